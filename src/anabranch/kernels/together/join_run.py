"""Rows of one side of a join, and where those of a key and a stretch of time are.

The rows stay as they arrived. Beside them is an order by time, and one number a row: 32 bits of its
key's hash, then its rank in the order by time. Sorted, those numbers are an index: the rows of a
key between two times are between two places of it, however many rows the key has. What it finds has
the same 32 bits; whether the keys are equal is asked of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.bundle import TIME, order_columns
from anabranch.kernels.keys import canonical

Positions: TypeAlias = npt.NDArray[np.int64]

_RANK = np.uint64(2**32 - 1)
_KEY = ~_RANK
FARTHEST = 2**62
LOOSE = 6
"""Up to so many rows a key it is faster to look at the times of all than to search for the near."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one side in the order of their arrival, with an index."""

    rows: pl.DataFrame
    on: tuple[str, ...]
    by_time: Positions
    """Positions in `rows`."""
    times: Positions
    """Ascending."""
    index: npt.NDArray[np.uint64]
    """Ascending; rows with null in their key are not in it."""
    keys: npt.NDArray[np.uint64]
    """The keys in the index, each once."""
    heads: Positions
    """Where each key begins in the index, and where the last one ends."""

    @classmethod
    def of(cls, rows: pl.DataFrame, on: Sequence[str]) -> Run:
        """Make the index."""
        times = np.asarray(rows[TIME].to_numpy(), dtype=np.int64)
        by_time = np.arange(rows.height, dtype=np.int64)
        if (times[1:] < times[:-1]).any():
            by_time = rows[TIME].arg_sort().to_numpy().astype(np.int64)
            times = times[by_time]
        index = _index(rows, on, by_time)
        keys = index & _KEY
        new = np.ones(len(index) + 1, dtype=bool)
        new[1:-1] = keys[1:] != keys[:-1]
        heads = np.flatnonzero(new) if len(index) else np.zeros(1, np.int64)
        return cls(rows, tuple(on), by_time, times, index, keys[heads[:-1]], heads)

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self.rows.height

    def passed(self, bound: int) -> int:
        """How many have a time before this one."""
        return int(np.searchsorted(self.times, bound))

    def kept(self, bound: int) -> Run:
        """Those that do not."""
        if not self.passed(bound):
            return self
        return Run.of(self.rows.filter(pl.col(TIME) >= bound), self.on)

    def before(self, newer: Run) -> Run:
        """These and newer ones."""
        if not (self.height and newer.height):
            return self if self.height else newer
        return Run.of(pl.concat([self.rows, newer.rows], how="diagonal", rechunk=True), self.on)

    def with_column(self, column: pl.Series) -> Run:
        """The same rows with one column more."""
        return replace(self, rows=self.rows.hstack([column]))

    def without_order(self) -> Run:
        """The same rows without the columns of their order."""
        order = order_columns(self.rows.columns)
        return replace(self, rows=self.rows[[c for c in self.rows.columns if c not in order]])

    def between(self, low: int | None, high: int | None) -> pl.DataFrame:
        """The rows with a time in [low, high), by time; without a high none."""
        end = 0 if high is None else self.passed(high)
        begin = 0 if low is None else self.passed(low)
        return self.rows[self.by_time[begin : max(begin, end)]]

    def partners(self, of: Run, within: int, floor: int | None) -> tuple[Positions, Positions]:
        """Pairs with equal keys at most `within` apart: positions in `of`, and positions in these.

        Those of these with a time before `floor` have none.
        """
        if not (len(self.index) and len(of.index)):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        asking, begin, count = self._same_key(of)
        rank = _ranks(of.index[asking])
        narrow = int(count.sum()) > LOOSE * len(asking)
        if narrow:
            begin, count = self._near(of, asking, rank, within, floor)
        theirs, places = unfolded(begin, count)
        theirs, mine = rank[theirs], _ranks(self.index[places])
        if not narrow:
            near = np.abs(of.times[theirs] - self.times[mine]) <= within
            if floor is not None and self.times[0] < floor:
                near &= self.times[mine] >= floor
            theirs, mine = theirs[near], mine[near]
        return self._equal(of, of.by_time[theirs], self.by_time[mine])

    def _same_key(self, of: Run) -> tuple[Positions, Positions, Positions]:
        """Places in the other's index whose key is here; where its rows begin, and how many."""
        at = np.minimum(np.searchsorted(self.keys, of.keys), len(self.keys) - 1)
        known = np.flatnonzero(self.keys[at] == of.keys)
        at = at[known]
        number, asking = unfolded(of.heads[known], of.heads[known + 1] - of.heads[known])
        begin = self.heads[at]
        return asking, begin[number], (self.heads[at + 1] - begin)[number]

    def _near(
        self, of: Run, asking: Positions, rank: Positions, within: int, floor: int | None
    ) -> tuple[Positions, Positions]:
        """Where the rows of the same key and a near time begin, and how many there are."""
        low = of.times - within if floor is None else np.maximum(of.times - within, floor)
        first = np.searchsorted(self.times, low).view(np.uint64)
        last = np.searchsorted(self.times, of.times + within, side="right").view(np.uint64)
        key = of.index[asking] & _KEY
        begin = np.searchsorted(self.index, key | first[rank])
        count = np.searchsorted(self.index, key | last[rank]) - begin
        # A floor above a row's own reach makes a stretch that ends before it begins.
        return begin, np.maximum(count, 0)

    def _equal(self, of: Run, asked: Positions, found: Positions) -> tuple[Positions, Positions]:
        """Without those that have only 32 bits of their hashes in common."""
        same = np.ones(len(asked), dtype=bool)
        for name in self.on:
            # Polars' equality is that of M6 for all that can be a key of one type.
            same &= (of.rows[name][asked] == self.rows[name][found]).to_numpy()
        return (asked, found) if same.all() else (asked[same], found[same])


def _index(rows: pl.DataFrame, on: Sequence[str], by_time: Positions) -> npt.NDArray[np.uint64]:
    if rows.is_empty():
        return np.empty(0, np.uint64)
    keys = rows.select(canonical(pl.col(name), rows.schema[name]).alias(name) for name in on)
    hashes = (keys.to_series().hash() if len(on) == 1 else keys.hash_rows()).to_numpy()
    index = (hashes[by_time] & _KEY) | np.arange(rows.height, dtype=np.uint64)
    if any(keys[name].null_count() for name in on):
        whole = keys.select(pl.all_horizontal(pl.all().is_not_null())).to_series().to_numpy()
        index = index[whole[by_time]]
    found: npt.NDArray[np.uint64] = pl.Series(index).sort().to_numpy()
    return found


def _ranks(index: npt.NDArray[np.uint64]) -> Positions:
    return (index & _RANK).view(np.int64)


def unfolded(begin: Positions, count: Positions) -> tuple[Positions, Positions]:
    """For each stretch its number as often as it is long, and the places in it.

    >>> number, place = unfolded(np.array([7, 0, 3]), np.array([2, 0, 1]))
    >>> number.tolist(), place.tolist()
    ([0, 0, 2], [7, 8, 3])
    """
    end = np.cumsum(count)
    number = np.repeat(np.arange(len(count)), count)
    place = np.repeat(begin - (end - count), count)
    place += np.arange(len(place))
    return number, place
