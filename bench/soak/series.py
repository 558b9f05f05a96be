"""What was looked at again and again: how it was at first, how it is at last, how it goes on."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SHARE = 1.05
"""By so much what is flat may be more at last than it was at first, and by a little besides."""


@dataclass(frozen=True, slots=True)
class Series:
    """One figure over time.

    >>> steady = Series((0.0, 60.0, 120.0, 180.0), (5.0, 6.0, 5.0, 6.0))
    >>> steady.first, steady.last, round(steady.a_minute, 3)
    ((5.0,), (6.0,), 0.2)
    >>> Series((0.0, 60.0, 120.0, 180.0), (1.0, 3.0, 5.0, 7.0)).a_minute
    2.0
    """

    at: tuple[float, ...]
    """Seconds."""
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.at) != len(self.values) or len(self.at) < 4:
            message = f"four samples are the least, there are {len(self.values)}"
            raise ValueError(message)

    @property
    def first(self) -> tuple[float, ...]:
        """The first quarter."""
        return self.values[: len(self.values) // 4]

    @property
    def last(self) -> tuple[float, ...]:
        """The last quarter."""
        return self.values[-(len(self.values) // 4) :]

    @property
    def a_minute(self) -> float:
        """By how much it grows in a minute, as a straight line through all of it says."""
        return statistics.linear_regression(self.at, self.values).slope * 60

    def flat(self, slack: float) -> bool:
        """Whether the median of the last quarter is at most 5 % and a little above the first's.

        >>> growing = Series((0.0, 1.0, 2.0, 3.0), (10.0, 11.0, 12.0, 13.0))
        >>> growing.flat(slack=2.0), growing.flat(slack=3.0)
        (False, True)
        """
        first, last = statistics.median(self.first), statistics.median(self.last)
        return last <= first * SHARE + slack


def behind(at: Sequence[float], seconds: float, commits: Sequence[int], least: int) -> int:
    """The first sample behind the warm-up: after so many seconds, and with so many commits made.

    >>> behind([0.0, 1.0, 2.0, 3.0], 1.0, [0, 50, 90, 120], 100)
    3
    """
    known = zip(at, commits, strict=True)
    found = (n for n, (time, made) in enumerate(known) if time >= seconds and made >= least)
    return next(found, len(at))
