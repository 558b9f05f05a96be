"""The only place that reads the time; everything else is given a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two hands: the wall's for what users see, a steady one for what is measured."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC; may jump."""
        ...

    def elapsed(self) -> float:
        """Seconds since some moment; never goes back."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()
