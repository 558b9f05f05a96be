"""Cells that several workers use at once: each operation is one step.

Queues and buffers of the continuous engine are written against these, so that what is shipped is
also what runs under an interleaver, which has others take a step between any two operations.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Counter:
    """A number."""

    def __init__(self, start: int = 0) -> None:
        self._value, self._lock = start, threading.Lock()

    def load(self) -> int:
        """What it is."""
        return self._value

    def add(self, step: int) -> int:
        """Change it; returns what it was."""
        with self._lock:
            before = self._value
            self._value = before + step
        return before


class Flag:
    """Set or clear."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Set it, if it is clear; whether this is who has set it."""
        return self._lock.acquire(blocking=False)

    def clear(self) -> None:
        """Clear it; who has set it does so."""
        self._lock.release()


class Cells(Generic[T]):
    """An array; a cell holds a value or None."""

    def __init__(self, size: int) -> None:
        self._values: list[T | None] = [None] * size

    def load(self, at: int) -> T | None:
        """What a cell holds."""
        return self._values[at]

    def store(self, at: int, value: T | None) -> None:
        """Have a cell hold this."""
        self._values[at] = value


class Fifo(Generic[T]):
    """A queue; values leave as they came."""

    def __init__(self) -> None:
        self._values: deque[T] = deque()

    def put(self, value: T) -> None:
        """Add a value behind all others."""
        self._values.append(value)

    def take(self) -> T | None:
        """The foremost value, which leaves; None if there is none."""
        try:
            return self._values.popleft()
        except IndexError:
            return None

    def __len__(self) -> int:
        """How many values there are; others may come and go meanwhile."""
        return len(self._values)


class Atomics:
    """Makes cells; an interleaver makes others, in which every step can be seen."""

    def counter(self, start: int = 0) -> Counter:
        """A number, from this on."""
        return Counter(start)

    def flag(self) -> Flag:
        """A flag that is clear."""
        return Flag()

    def cells(self, size: int) -> Cells[Any]:
        """An array of empty cells."""
        return Cells(size)

    def fifo(self) -> Fifo[Any]:
        """A queue in which nothing is."""
        return Fifo()

    def mutex(self) -> AbstractContextManager[Any]:
        """A lock that nobody holds: one at a time is inside, others wait."""
        return threading.Lock()


ATOMICS = Atomics()
