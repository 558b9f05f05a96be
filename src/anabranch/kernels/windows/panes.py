"""Panes: the stretches of time between the bounds of windows, so that windows share their sums.

Windows start every `slide` and end `size` later, so in each slide lies one start and one end, and
time falls into two panes a slide: before the end and behind it. Where ends fall on starts there is
one. A window is a run of whole panes, at most 2 x size / slide + 1 of them, whatever the numbers
are. (Paired windows: Krishnamurthy, Wu, Franklin, SIGMOD 2006; panes of the greatest common divisor
would be 14 for windows of 10 every 3, these are 7.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers: TypeAlias = npt.NDArray[np.int64]

Run: TypeAlias = tuple[int, int, int]
"""The start of a pane, and which rows lie in it: from, and to before."""

START = "start"
_FAR = 2**62
"""No event time is farther from 1970."""


@dataclass(frozen=True, slots=True)
class Panes:
    """The panes of windows of one size at every multiple of a slide.

    >>> Panes(10, 3).starts(pl.Series([0, 1, 2, 3])).to_list()
    [0, 1, 1, 3]
    """

    size: int
    slide: int

    @property
    def rest(self) -> int:
        """How far behind a start an end lies; 0: on it."""
        return self.size % self.slide

    @property
    def step(self) -> int:
        """How many panes lie between the starts of two windows."""
        return 2 if self.rest else 1

    @property
    def width(self) -> int:
        """How many panes a window has."""
        return self.size // self.slide * self.step + (1 if self.rest else 0)

    def lines(self, windows: int) -> int:
        """How many panes so many windows have that follow one another.

        >>> Panes(10, 3).width, Panes(10, 3).lines(2)
        (7, 9)
        """
        return (windows - 1) * self.step + self.width

    def line(self, behind: Numbers) -> Numbers:
        """The number of the pane that starts so far behind the start of a window.

        >>> Panes(10, 3).line(np.array([0, 1, 3, 4, 9])).tolist()
        [0, 1, 2, 3, 6]
        """
        slides, rest = np.divmod(behind, self.slide)
        return slides * self.step + (rest > 0)

    def starts(self, times: pl.Series) -> pl.Series:
        """The start of the pane of each time."""
        # Most bundles lie in one pane, and to look for that is far cheaper than to divide.
        start = self.only(times)
        if start is None:
            return self._starts(times)
        return pl.repeat(start, len(times), dtype=pl.Int64, eager=True).alias(START)

    def only(self, times: pl.Series) -> int | None:
        """The start of the one pane that all times lie in; None where there are several, or none.

        >>> Panes(10, 10).only(pl.Series([11, 19])), Panes(10, 10).only(pl.Series([19, 20]))
        (10, None)
        """
        if not len(times) or times.null_count():
            return None
        first, last = self._starts(pl.Series([times.min(), times.max()], dtype=pl.Int64))
        return int(first) if first == last else None

    def runs(self, times: Numbers, most: int) -> list[Run] | None:
        """The panes that times lie in, one behind the other.

        None where times go back, or where there would be more runs than `most`.

        >>> Panes(10, 10).runs(np.array([3, 9, 10, 31]), 9)
        [(0, 0, 2), (10, 2, 3), (30, 3, 4)]
        """
        if len(times) > 1 and not bool((times[1:] >= times[:-1]).all()):
            return None
        found, begin = list[Run](), 0
        while begin < len(times):
            if len(found) == most:
                return None
            start, end = self._around(int(times[begin]))
            behind = int(np.searchsorted(times, end))
            found.append((start, begin, behind))
            begin = behind
        return found

    def _around(self, time: int) -> tuple[int, int]:
        """The start and the end of the pane of a time."""
        base = time - time % self.slide
        if not self.rest:
            return base, base + self.slide
        split = base + self.rest
        return (base, split) if time < split else (split, base + self.slide)

    def _starts(self, times: pl.Series) -> pl.Series:
        base = times - times % self.slide
        if not self.rest:
            return base.alias(START)
        behind = (times - base >= self.rest).cast(pl.Int64)
        return (base + behind * self.rest).alias(START)

    def outside(self, times: pl.Series) -> pl.Series | None:
        """Which times lie in no window; None: windows have no gaps."""
        return None if self.slide <= self.size else times % self.slide >= self.size

    def closed(self, watermark: int | None) -> int | None:
        """The last time of which all windows end at a watermark or before."""
        if watermark is None:
            return None
        return min((watermark - self.size) // self.slide * self.slide + self.slide - 1, _FAR)

    def first_open(self, watermark: int | None) -> int:
        """The start of the first window that ends behind a watermark."""
        if watermark is None:
            return -_FAR
        return (watermark - self.size) // self.slide * self.slide + self.slide

    def last_ended(self, watermark: int | None) -> int | None:
        """The start of the last window that ends at a watermark or before."""
        return None if watermark is None else min(self.first_open(watermark) - self.slide, _FAR)

    def windows(self, panes: pl.DataFrame, low: int, high: int) -> list[pl.DataFrame]:
        """Panes, sorted by start, as parts of windows that start from `low` to `high`.

        A pane is there once for each of them, with the window's start in place of its own.
        """
        if not panes.height or low > high:
            return []
        if self.slide == self.size:
            return [between(panes, low, high)]
        reached = self.reached([panes], low, high)
        low, high = reached.start, reached.stop - self.slide
        if (high - low) // self.slide < self.size // self.slide:
            return self._by_window(panes, low, high)
        return self._by_pane(panes, low, high)

    def reached(self, parts: Sequence[pl.DataFrame], low: int, high: int) -> range:
        """The starts of windows from `low` to `high` that panes may lie in, sorted in each part."""
        first = min(int(part[START][0]) for part in parts)
        last = max(int(part[START][-1]) for part in parts)
        low = max(low, (first - self.size) // self.slide * self.slide + self.slide)
        high = min(high, last // self.slide * self.slide)
        return range(low, high + self.slide, self.slide)

    def _by_window(self, panes: pl.DataFrame, low: int, high: int) -> list[pl.DataFrame]:
        found = []
        for start in range(low, high + 1, self.slide):
            part = between(panes, start, start + self.size - 1)
            if part.height:
                found.append(part.with_columns(pl.lit(start, pl.Int64).alias(START)))
        return found

    def _by_pane(self, panes: pl.DataFrame, low: int, high: int) -> list[pl.DataFrame]:
        base = pl.col(START) - pl.col(START) % self.slide
        ends = -(-self.size // self.slide)
        found = []
        for back in range(ends):
            start = base - back * self.slide
            part = panes
            if self.rest and back == ends - 1:
                # The last part of such a window is a pane before an end.
                part = panes.filter(pl.col(START) == base)
            found.append(part.with_columns(start).filter(pl.col(START).is_between(low, high)))
        return found


def between(panes: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Of panes, sorted by start, those that start from `low` to `high`."""
    starts = panes[START]
    begin = int(starts.search_sorted(low, side="left"))
    end = int(starts.search_sorted(high, side="right"))
    return panes.slice(begin, max(0, end - begin))
