"""One queue for all partitions: the hybrid queue's rival, section 4.1 of Prasaad et al. 2018.

To take the foremost fragment and its partition is one step, under one lock; otherwise two workers
could take two fragments of a partition and begin with the second. Who finds the foremost
fragment's partition at work gets nothing, though others behind it might be free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from anabranch.ordering.atomics import ATOMICS, Atomics, Fifo
from anabranch.ordering.worklist import Expired, Fragment, Room, always, fragments

T = TypeVar("T")


class SharedQueue(Generic[T]):
    """A worklist in the order of numbers alone; of one partition for each worker, if stateless."""

    def __init__(self, partitions: int | None, atomics: Atomics = ATOMICS) -> None:
        """For partitions from 0 on; None if any two fragments may be operated on at once."""
        self._queue: Fifo[Fragment[T]] = atomics.fifo()
        self._busy = None if partitions is None else [False] * partitions
        self._lock = atomics.mutex()
        self._foremost: Fragment[T] | None = None
        self._serial = 0
        self.blocked = 0
        """How often a worker got nothing because the foremost fragment's partition was at work."""

    def add(self, content: Mapping[int, T]) -> int:
        """Take a bundle, cut into one fragment for each of some partitions; its serial number."""
        with self._lock:
            serial, self._serial = self._serial, self._serial + 1
            for fragment in fragments(serial, content):
                self._queue.put(fragment)
        return serial

    def consume(self, expired: Expired, room: Room = always) -> Iterator[Fragment[T]]:
        """The foremost fragments, as long as their partitions are free."""
        del room
        while not expired():
            fragment = self._queue.take() if self._busy is None else self._take(self._busy)
            if fragment is None:
                return
            yield fragment
            if self._busy is not None:
                with self._lock:
                    self._busy[fragment.partition] = False

    def _take(self, busy: list[bool]) -> Fragment[T] | None:
        with self._lock:
            found = self._queue.take() if self._foremost is None else self._foremost
            self._foremost = None
            if found is not None and busy[found.partition]:
                self._foremost, found = found, None
                self.blocked += 1
            if found is not None:
                busy[found.partition] = True
            return found

    def __len__(self) -> int:
        """How many fragments wait."""
        return len(self._queue) + (self._foremost is not None)
