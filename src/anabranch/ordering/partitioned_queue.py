"""A queue for each partition: the hybrid queue's rival, section 4.2 of Prasaad et al. 2018.

A worker keeps a partition for all its time, so that outputs are made far out of order: a partition
that nobody has holds up those of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from anabranch.ordering.atomics import ATOMICS, Atomics, Fifo
from anabranch.ordering.worklist import Expired, Fragment, Room, always, fragments

T = TypeVar("T")


class PartitionedQueue(Generic[T]):
    """A worklist of which each worker takes a whole partition."""

    def __init__(self, partitions: int, atomics: Atomics = ATOMICS) -> None:
        """For partitions from 0 on."""
        self._queues: list[Fifo[Fragment[T]]] = [atomics.fifo() for _ in range(partitions)]
        self._taken = [atomics.flag() for _ in range(partitions)]
        self._waiting: list[Fragment[T] | None] = [None] * partitions
        """What was taken from a queue and had no room; of who has the partition."""
        self._start = atomics.counter()
        self._adding, self._serial = atomics.mutex(), 0
        self.refused = 0
        """How many fragments had no room."""

    def add(self, content: Mapping[int, T]) -> int:
        """Take a bundle, cut into one fragment for each of some partitions; its serial number."""
        with self._adding:
            serial, self._serial = self._serial, self._serial + 1
            for fragment in fragments(serial, content):
                self._queues[fragment.partition].put(fragment)
        return serial

    def consume(self, expired: Expired, room: Room = always) -> Iterator[Fragment[T]]:
        """All of one partition, then of the next, as far as there is room for what they give.

        Without that, all workers could be waiting for room while the fragment that would make it
        is in a partition that nobody has.
        """
        count = len(self._queues)
        first = self._start.add(1)
        for partition in ((first + step) % count for step in range(count)):
            if self._taken[partition].take():
                try:
                    while not expired() and (found := self._foremost(partition, room)) is not None:
                        yield found
                finally:
                    self._taken[partition].clear()
            if expired():
                return

    def _foremost(self, partition: int, room: Room) -> Fragment[T] | None:
        found, self._waiting[partition] = self._waiting[partition], None
        found = self._queues[partition].take() if found is None else found
        if found is not None and not room(found.serial):
            self._waiting[partition], found = found, None
            self.refused += 1
        return found

    def __len__(self) -> int:
        """How many fragments wait."""
        return sum(len(queue) for queue in self._queues) + sum(
            fragment is not None for fragment in self._waiting
        )
