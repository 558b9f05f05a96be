"""What of an operator's state still counts: that something has left is known by the watermark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import polars as pl

from anabranch.program.durations import MICROSECONDS
from anabranch.state.description import Facts
from anabranch.state.layout import Commit

_LEAST = -(2**63)


@dataclass(frozen=True, slots=True)
class Lasting:
    """An operator's watermark, and the lengths of time that its description tells."""

    watermark: int | None = None
    """Microseconds; None: before all time, or not known. Then everything counts."""
    window: tuple[int, int] | None = None
    """Size and slide."""
    allowed: int = 0
    within: int = 0
    ttl: int | None = None

    @classmethod
    def of(cls, facts: Facts, commit: Commit | None) -> Self:
        """By what a checkpoint says of an operator and of its sources."""
        return cls(
            _watermark(facts.get("watermark", ()), {} if commit is None else commit.watermarks),
            _window(" ".join(facts.get("window", ()))),
            _micros(" ".join(facts.get("allow_late", ()))) or 0,
            _micros(" ".join(facts.get("within", ()))) or 0,
            _micros(" ".join(facts.get("ttl", ()))),
        )

    def panes(self, start: str) -> pl.Expr:
        """Panes that are part of a window that has not left for good."""
        if self.watermark is None or self.window is None:
            return pl.lit(value=True)
        size, slide = self.window
        bound = self.watermark - size - self.allowed
        return pl.col(start) // slide * slide > max(bound, _LEAST)

    def after(self, end: str) -> pl.Expr:
        """What ends behind the watermark."""
        return self._beyond(pl.col(end) > self._less(self.allowed))

    def until(self, until: str) -> pl.Expr:
        """What counts until then; what counts no more has the least number of all."""
        least = _LEAST if self.watermark is None else self.watermark
        return pl.col(until) >= max(least, _LEAST + 1)

    def near(self, time: str) -> pl.Expr:
        """What may still be near enough to what comes."""
        return self._beyond(pl.col(time) >= self._less(self.within))

    def from_now(self, time: str) -> pl.Expr:
        """What the watermark has not passed."""
        return self._beyond(pl.col(time) >= self._less(0))

    def seen(self, seen: pl.Expr) -> pl.Expr:
        """What was seen no longer ago than its time to live."""
        return self._beyond(seen >= self._less(self.ttl or 0))

    def _less(self, length: int) -> int:
        return _LEAST if self.watermark is None else max(self.watermark - length, _LEAST)

    def _beyond(self, found: pl.Expr) -> pl.Expr:
        return pl.lit(value=True) if self.watermark is None else found


def _watermark(told: tuple[str, ...], known: Mapping[str, int | None]) -> int | None:
    """The least of the watermarks that count, as `watermark_of` tells them."""
    found = []
    for line in told:
        source, _, less = line.rpartition(" less ") if line not in known else (line, "", "")
        mark = known.get(source)
        if mark is None:
            return None
        found.append(mark - (_micros(less) or 0))
    return min(found, default=None)


def _window(told: str) -> tuple[int, int] | None:
    kind, _, rest = told.partition(" ")
    size, _, slide = rest.partition(" by ")
    found = _micros(size)
    if kind not in ("tumbling", "sliding") or found is None:
        return None
    return found, (_micros(slide) if slide else None) or found


def _micros(told: str) -> int | None:
    """A length as facts tell it; None: it is none.

    >>> _micros("10 s"), _micros("none")
    (10000000, None)
    """
    count, _, unit = told.partition(" ")
    return int(count) * MICROSECONDS[unit] if count.isdecimal() and unit in MICROSECONDS else None
