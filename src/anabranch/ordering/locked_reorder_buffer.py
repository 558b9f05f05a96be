"""The reorder buffer's rival, with one lock: who wants to add waits for who sends.

After Prasaad et al. 2018, figure 2. Here to be measured beside the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from anabranch.ordering.atomics import ATOMICS, Atomics

T = TypeVar("T")


class LockedReorderBuffer(Generic[T]):
    """As `ReorderBuffer`, of any size: outputs are added, and leave, under one lock."""

    def __init__(self, forward: Callable[[int, T], None], atomics: Atomics = ATOMICS) -> None:
        """For outputs from 0 on."""
        self._forward, self._lock = forward, atomics.mutex()
        self._held: dict[int, T] = {}
        self._reached = 0
        self.refused = 0
        """None ever is."""

    @property
    def next(self) -> int:
        """The number of the output that is the next to leave."""
        return self._reached

    def fits(self, serial: int) -> bool:
        """Always."""
        return serial >= self._reached

    def send(self, serial: int, output: T) -> bool:
        """Add an output and have all leave that may; always adds it, and may wait."""
        with self._lock:
            self.add(serial, output)
            for _ in self.leaving():
                pass
        return True

    def add(self, serial: int, output: T) -> bool:
        """Add an output; always. Who calls this and not `send` sees to it that he is alone."""
        if serial < self._reached or serial in self._held:
            message = f"output {serial} is sent again: {self._reached} is the next"
            raise ValueError(message)
        self._held[serial] = output
        return True

    def leaving(self) -> Iterator[tuple[int, T]]:
        """Have all leave that may, each when the next is asked for; alone, as with `add`."""
        while self._reached in self._held:
            output = self._held.pop(self._reached)
            yield self._reached, output
            self._forward(self._reached, output)
            self._reached += 1

    def put(self, serial: int, output: T, stopped: Callable[[], bool] = lambda: False) -> bool:
        """The same."""
        del stopped
        return self.send(serial, output)

    def wake(self) -> None:
        """Nobody waits for room."""
