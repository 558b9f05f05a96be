"""The reorder buffer's rival, with one lock: who wants to add waits for who sends.

After Prasaad et al. 2018, figure 2. Here to be measured beside the other.
"""

from __future__ import annotations

from collections.abc import Callable
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
            if serial < self._reached or serial in self._held:
                message = f"output {serial} is sent again: {self._reached} is the next"
                raise ValueError(message)
            self._held[serial] = output
            while self._reached in self._held:
                self._forward(self._reached, self._held.pop(self._reached))
                self._reached += 1
        return True

    def put(self, serial: int, output: T, stopped: Callable[[], bool] = lambda: False) -> bool:
        """The same."""
        del stopped
        return self.send(serial, output)

    def wake(self) -> None:
        """Nobody waits for room."""
