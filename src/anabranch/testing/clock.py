"""Time that passes only when a test says so."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import final


@final
class MockClock:
    """A clock that stands still until it is advanced; both its hands move together.

    >>> clock = MockClock(start=100.0)
    >>> clock.advance(2.5)
    >>> clock.now(), clock.elapsed()
    (102.5, 2.5)
    """

    def __init__(self, start: float = 0.0) -> None:
        """Begin at `start` seconds since 1970-01-01 UTC."""
        self._start, self._passed = start, 0.0

    def now(self) -> float:
        """The start and all advances."""
        return self._start + self._passed

    def elapsed(self) -> float:
        """All advances."""
        return self._passed

    def advance(self, by: float | timedelta) -> None:
        """Let time pass: seconds, or a timedelta; never back."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if not math.isfinite(seconds) or seconds < 0:
            message = f"a clock goes forward: cannot advance by {by!r}"
            raise ValueError(message)
        self._passed += seconds
