"""Windows that slide, many at a time: panes in a grid, in which a window is a difference.

A grid has a line for each pane and a place in it for each key. The sum of a window is the running
sum behind its last line less the one before its first, so a pane is added once, however many
windows lie over it. Whole numbers may wrap around on the way: the difference is right again. The
extreme of a window is that of two stretches of its lines which may overlap.

A grid has places for panes that are not there, so it pays where most keys are in most panes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.windows.panes import START, Panes

Numbers: TypeAlias = npt.NDArray[np.int64]

ROOM = 1
"""A grid has at most so many places for each partial that would be grouped instead, once for each
window over it. Windows of 10 panes and 10,000 keys, 10 of which end at once, took 14 ms in a grid
of 190,000 places and 175 ms by groups, of which 1,640,000 partials are the most there can be."""
_ROW = "row"
_MOST = np.int64(2**63 - 1)


class Laid(Protocol):
    """Partials laid out so that those of one window and key are found together."""

    @property
    def height(self) -> int:
        """How many windows and keys there are."""

    def bounds(self) -> pl.DataFrame:
        """The start and the key of each."""

    def added(self, name: str) -> Numbers:
        """The sum of a column of each."""

    def extreme(self, name: str, *, least: bool) -> pl.Series:
        """The least or greatest value of a column of each, null of nothing."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Partials of panes, and the windows over them, in the order of their starts and keys."""

    panes: Panes
    starts: range
    """Of the windows."""
    keys: pl.DataFrame
    """A row for each key, in their order."""
    parts: Sequence[pl.DataFrame]
    """Partials, of which no two in one frame are of one pane and key."""
    places: Sequence[Numbers]
    """Where each partial of each part stands, line by line."""

    @classmethod
    def of(
        cls,
        panes: Panes,
        starts: range,
        names: Sequence[str],
        beside: Sequence[str],
        parts: Sequence[pl.DataFrame],
    ) -> Grid | None:
        """A grid of partials that lie within the windows; None where grouping is less work.

        Keys are told apart by the columns `names`, which decide what is in those `beside` them.
        """
        keys, codes = _numbered(pl.concat([x.select(*names, *beside) for x in parts]), names)
        grouped = len(codes) * min(panes.width, len(starts))
        if panes.lines(len(starts)) * keys.height > ROOM * grouped:
            return None
        places, begin = list[Numbers](), 0
        for part in parts:
            line = panes.line(part[START].to_numpy() - starts.start)
            places.append(line * keys.height + codes[begin : begin + part.height])
            begin += part.height
        return cls(panes, starts, keys, parts, places)

    @property
    def height(self) -> int:
        """How many windows and keys there are, of which some may be of no rows."""
        return len(self.starts) * self.keys.height

    def bounds(self) -> pl.DataFrame:
        """The start and the key of each."""
        starts = np.repeat(np.asarray(self.starts, dtype=np.int64), self.keys.height)
        keys = np.tile(np.arange(self.keys.height), len(self.starts))
        return self.keys[keys].with_columns(pl.Series(START, starts))

    def added(self, name: str) -> Numbers:
        """The sum of a column for each window and key, 0 where there is none."""
        grid = np.zeros((self._lines + 1, self.keys.height), dtype=np.int64)
        flat = grid[1:].reshape(-1)
        for part, places in zip(self.parts, self.places, strict=True):
            flat[places] += part[name].to_numpy()
        np.cumsum(grid, axis=0, out=grid)
        found: Numbers = self._at(grid, self.panes.width) - self._at(grid, 0)
        return found.reshape(-1)

    def extreme(self, name: str, *, least: bool) -> pl.Series:
        """The least or greatest value of a column for each window and key, null of nothing."""
        dtype = self.parts[0].schema[name]
        codes = [ordered_codes(part[name]) for part in self.parts]
        none, pick = (_MOST, np.minimum) if least else (~_MOST, np.maximum)
        grid = np.full((self._lines, self.keys.height), none)
        known = np.zeros((self._lines, self.keys.height), dtype=bool)
        for part, places, values in zip(self.parts, self.places, codes, strict=True):
            some = part[name].is_not_null().to_numpy()
            at = places[some]
            grid.reshape(-1)[at] = pick(grid.reshape(-1)[at], values[some])
            known.reshape(-1)[at] = True
        found = self._stretched(grid, pick).reshape(-1)
        some = self._stretched(known, np.logical_or).reshape(-1)
        known_ones = pl.when(pl.Series(some)).then(shown_values(found, dtype))
        return pl.select(known_ones.alias(name)).to_series()

    @property
    def _lines(self) -> int:
        return self.panes.lines(len(self.starts))

    def _at(self, grid: Any, line: int) -> Any:
        """The line so far behind the start of each window."""
        return grid[line :: self.panes.step][: len(self.starts)]

    def _stretched(self, grid: Any, pick: Any) -> Any:
        """What is picked of the lines of each window, step by step of twice as many."""
        span = 1
        while 2 * span <= self.panes.width:
            grid = pick(grid[:-span], grid[span:])
            span *= 2
        return pick(self._at(grid, 0), self._at(grid, self.panes.width - span))


def is_ordered(dtype: pl.DataType) -> bool:
    """Whether values can be told by whole numbers of 64 bits in the same order."""
    return dtype.is_temporal() or dtype.is_float() or dtype in _WHOLE


_WHOLE = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.Boolean)


def ordered_codes(values: pl.Series) -> Numbers:
    """Whole numbers in the order of values, NaN being the greatest; anything for null."""
    plain = values if values.dtype == pl.Boolean else values.to_physical()
    if not plain.dtype.is_float():
        return plain.cast(pl.Int64).fill_null(0).to_numpy()
    numbers = plain.cast(pl.Float64).fill_null(0.0).to_numpy()
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    return _turned(bits)


def shown_values(codes: Numbers, dtype: pl.DataType) -> pl.Series:
    """The values that whole numbers stand for."""
    if dtype.is_float():
        return pl.Series(_turned(codes).view(np.float64)).cast(dtype)
    return pl.Series(codes).cast(_physical(dtype), strict=False).cast(dtype)


def _turned(bits: Numbers) -> Numbers:
    """The bits of floats as numbers in their order, and back: those of negative ones descend."""
    return bits ^ ((bits >> 63) & _MOST)


def _physical(dtype: pl.DataType) -> pl.DataType:
    return pl.Series(dtype=dtype).to_physical().dtype


def _numbered(keys: pl.DataFrame, names: Sequence[str]) -> tuple[pl.DataFrame, Numbers]:
    """Each key once, in order, and the number of each row's key.

    By groups and not by a join: a join with one row on its left does not find NaN.
    """
    if not names:
        return keys[:1], np.zeros(keys.height, dtype=np.int64)
    beside = pl.exclude(*names, _ROW).first()
    found = keys.with_row_index(_ROW).group_by(names).agg(beside, pl.col(_ROW)).sort(names)
    codes = np.empty(keys.height, dtype=np.int64)
    lengths = found[_ROW].list.len().to_numpy()
    codes[found[_ROW].explode().to_numpy()] = np.repeat(np.arange(found.height), lengths)
    return found.drop(_ROW), codes
