"""Where time goes: seconds by what they went into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.clock import Clock


class Stopwatch:
    """Adds up stretches of time by name.

    >>> from anabranch.testing.clock import MockClock
    >>> clock = MockClock()
    >>> watch = Stopwatch(clock)
    >>> with watch("read"):
    ...     clock.advance(2.0)
    >>> watch.spent
    {'read': 2.0}
    """

    def __init__(self, clock: Clock) -> None:
        """Begin with nothing."""
        self._clock = clock
        self.spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time inside under this name."""
        began = self._clock.elapsed()
        try:
            yield
        finally:
            self.add(name, self._clock.elapsed() - began)

    def add(self, name: str, seconds: float) -> None:
        """Count so much time under this name."""
        self.spent[name] = self.spent.get(name, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """What was counted so far; begin anew."""
        spent, self.spent = self.spent, {}
        return spent
