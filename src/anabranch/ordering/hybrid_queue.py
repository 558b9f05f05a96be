"""The hybrid queue: a queue for each partition, and one that says whose turn it is.

After Prasaad et al. 2018, figure 7 and theorem 4.1. Workers take turns from the master queue, so
that outputs are made almost in the order of their numbers. Who finds a partition at work leaves
its turn to the one who works on it, and goes on with the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from anabranch.ordering.atomics import ATOMICS, Atomics, Fifo
from anabranch.ordering.worklist import Expired, Fragment, Room, always, fragments

T = TypeVar("T")


class HybridQueue(Generic[T]):
    """A worklist for many workers; nobody ever waits for another."""

    def __init__(self, partitions: int, atomics: Atomics = ATOMICS) -> None:
        """For partitions from 0 on."""
        self._queues: list[Fifo[Fragment[T]]] = [atomics.fifo() for _ in range(partitions)]
        self._counts = [atomics.counter() for _ in range(partitions)]
        self._turns: Fifo[int] = atomics.fifo()
        self._adding, self._serial = atomics.mutex(), 0

    def add(self, content: Mapping[int, T]) -> int:
        """Take a bundle, cut into one fragment for each of some partitions; its serial number."""
        with self._adding:
            serial, self._serial = self._serial, self._serial + 1
            for fragment in fragments(serial, content):
                # Whoever has the turn finds the fragment: it is there first.
                self._queues[fragment.partition].put(fragment)
                self._turns.put(fragment.partition)
        return serial

    def consume(self, expired: Expired, room: Room = always) -> Iterator[Fragment[T]]:
        """Fragments for one worker, until its time is over or no turn is left.

        There is always room, soon, for whatever has had its turn: those before it had theirs.
        """
        del room
        # Between turns alone may time be over: what others have left here would be stranded.
        while not expired():
            partition = self._turns.take()
            if partition is None:
                return
            if self._counts[partition].add(1) == 0:
                yield self._foremost(partition)
                while self._counts[partition].add(-1) > 1:
                    yield self._foremost(partition)

    def _foremost(self, partition: int) -> Fragment[T]:
        found = self._queues[partition].take()
        assert found is not None, "a turn without a fragment"
        return found

    def __len__(self) -> int:
        """How many fragments have not had their turn."""
        return len(self._turns)
