"""Rows of one side of a join in the order of their arrival, some of which an epoch asks for.

Beside the rows are bits of their keys' hashes. Rows with other bits have other keys; whether those
with the same bits have the same key is asked of the keys, where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from anabranch.kernels.bundle import SLICE, TIME, order_columns
from anabranch.kernels.keys import canonical
from anabranch.kernels.layers import Slices, counting
from anabranch.kernels.shelf import Shelf
from anabranch.kernels.together.join_near import (
    HASH,
    MOST,
    ByTime,
    Positions,
    Words,
    by_time,
    chosen,
    unfolded,
)

FARTHEST = 2**62 - 1
"""No time is farther than one more from 1970, so that times and stretches add up to 64 bits."""
MANY = 4
"""Rows that are more than so many times as many as the new ones are not all looked at."""
_NONE: Positions = np.empty(0, np.int64)


@dataclass(frozen=True)
class Run:
    """Rows of one side in the order of their arrival."""

    rows: pl.DataFrame
    on: tuple[str, ...]
    hashes: Words
    """Bits of each row's key; 0 where it has a null, and so no partners."""

    @classmethod
    def of(cls, rows: pl.DataFrame, on: Sequence[str]) -> Run:
        """See what keys the rows have."""
        return cls(rows, tuple(on), _hashes(rows, on))

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be found out again."""
        return {"rows": self.rows, "on": self.on, "hashes": self.hashes}

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self.rows.height

    @cached_property
    def times(self) -> Positions:
        """The times, as rows arrived."""
        return np.asarray(self.rows[TIME].to_numpy(), dtype=np.int64)

    @cached_property
    def by_time(self) -> Positions | None:
        """The rows by time; None where times ascend as rows arrive."""
        return by_time(self.times)

    @cached_property
    def _ascending(self) -> Positions:
        return self.times if self.by_time is None else self.times[self.by_time]

    @cached_property
    def _by_key(self) -> ByTime:
        return ByTime.of(self.times, self.hashes)

    def passed(self, bound: int) -> int:
        """How many have a time before this one."""
        return int(np.searchsorted(self._ascending, bound))

    def kept(self, bound: int) -> Run:
        """Those that do not."""
        passed = self.passed(bound)
        if passed in (0, self.height):
            return self if not passed else self._at(_NONE)
        keep = self.times >= bound
        rows = self.rows.filter(pl.Series(keep))
        return replace(self, rows=rows, hashes=chosen(self.hashes, keep))

    def before(self, newer: Run) -> Run:
        """These and newer ones."""
        if not (self.height and newer.height):
            return self if self.height else newer
        rows = pl.concat([self.rows, newer.rows], how="diagonal", rechunk=True)
        return replace(self, rows=rows, hashes=np.concatenate([self.hashes, newer.hashes]))

    def shelved(self, shelf: Shelf) -> Run:
        """The same, with the pieces that a shelf gave back; what is known of them stays known."""
        found = replace(self, rows=shelf.frame(self.rows), hashes=shelf.array(self.hashes))
        known, also = vars(self), vars(found)
        if "by_time" in known:
            also["by_time"] = None if self.by_time is None else shelf.array(self.by_time)
        if "_ascending" in known and self.by_time is not None:
            also["_ascending"] = shelf.array(self._ascending)
        if "_by_key" in known:
            also["_by_key"] = self._by_key.shelved(shelf, found.times)
        return found

    def none(self) -> Run:
        """None of the rows."""
        return self._at(_NONE)

    def of_slices(self, slices: Slices) -> Run:
        """The rows of these slices."""
        keep = counting(slices, self.rows[SLICE])
        rows = self.rows.filter(pl.Series(keep))
        return replace(self, rows=rows, hashes=chosen(self.hashes, keep))

    def with_column(self, column: pl.Series) -> Run:
        """The same rows with one column more."""
        return replace(self, rows=self.rows.hstack([column]))

    def without_order(self) -> Run:
        """The same rows without the columns of their order."""
        order = order_columns(self.rows.columns)
        return replace(self, rows=self.rows[[c for c in self.rows.columns if c not in order]])

    def between(self, low: int | None, high: int) -> pl.DataFrame:
        """The rows with a time in [low, high), by time."""
        begin = 0 if low is None else self.passed(low)
        end = max(begin, self.passed(high))
        return self.rows[begin:end] if self.by_time is None else self.rows[self.by_time[begin:end]]

    def asked(self, of: Run, within: int) -> Run:
        """All rows that may be partners of these; where they are many, few others."""
        many = MANY * of.height
        if self.height <= many:
            return self
        if not of.height:
            return self._at(_NONE)
        begin = np.searchsorted(self._ascending, of.times.min() - within)
        end = np.searchsorted(self._ascending, of.times.max() + within, side="right")
        if end - begin <= many:
            near = np.arange(begin, end) if self.by_time is None else self.by_time[begin:end]
            return self._at(np.sort(near))
        return self._at(self._near(of, within))

    def _near(self, of: Run, within: int) -> Positions:
        """The rows with the same bits of keys and near times."""
        rows = self._by_key
        begin, end = rows.stretches(of.hashes, of.times - within, of.times + within)
        _, places = unfolded(begin, (end - begin) * (of.hashes > 0))
        return np.unique(rows.rows(rows.packed[places]))

    def _at(self, positions: Positions) -> Run:
        return replace(self, rows=self.rows[positions], hashes=self.hashes[positions])


def _hashes(rows: pl.DataFrame, on: Sequence[str]) -> Words:
    if rows.is_empty():
        return np.empty(0, np.uint64)
    keys = rows.select(canonical(pl.col(name), rows.schema[name]).alias(name) for name in on)
    hashes = (keys.to_series().hash() if len(on) == 1 else keys.hash_rows()).to_numpy()
    found: Words = np.maximum(hashes & HASH, np.uint64(MOST))
    if any(keys[name].null_count() for name in on):
        found[keys.select(pl.any_horizontal(pl.all().is_null())).to_series().to_numpy()] = 0
    return found
