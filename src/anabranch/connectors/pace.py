"""Rows that become due as time passes."""

from __future__ import annotations

from typing import final

from anabranch.clock import Clock


@final
class Pace:
    """So many rows a second, counted on the steady hand of a clock from the first look on.

    Row n is due n / rate seconds behind the beginning, whenever one looks: after a pause all that
    became due meanwhile is there, and no fraction of a row is lost from look to look.

    >>> from anabranch.testing import MockClock
    >>> clock = MockClock()
    >>> pace = Pace(2, clock)
    >>> pace.look()
    0
    >>> clock.advance(1.5)
    >>> pace.look(), pace.due
    (3, 3)
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        """Begin at the first look, with nothing due."""
        self._rate, self._clock = rate, clock
        self._began: float | None = None
        self._before = 0
        self.due = 0
        """Rows that were due at the last look."""

    def look(self) -> int:
        """How many rows are due by now; never fewer than before."""
        now = self._clock.elapsed()
        if self._began is None:
            self._began = now
        self.due = self._before + int(self._rate * (now - self._began))
        return self.due

    def go_on(self, due: int, ago: float | None = None) -> None:
        """Count on from so many, as a new process does, whose clock is another.

        They were due `ago` seconds before now; without it the next look is the beginning.
        """
        self._before = self.due = due
        self._began = None if ago is None else self._clock.elapsed() - ago
