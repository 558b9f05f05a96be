"""Rows of windows by key: laid out key by key, and kept of each key as a list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

SEEN, LAST = "seen", "last"
"""The columns of a key's count of records and of its last rows."""
_AT_ONCE = 2_000_000
"""At most so many rows are laid out for windows that overlap, at a time."""
_Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Laid:
    """Rows in the order of their keys' groups, each group in the order of arrival."""

    order: _Numbers
    """Which row stands at each place."""
    number: _Numbers
    """Its number in its group."""
    begins: _Numbers
    lengths: _Numbers
    """The groups."""
    member: _Numbers
    """A row of each group among the old keys and the epoch's rows."""
    total: _Numbers
    """How many records of its key went by with the row at each place; 0: it was there before."""
    seen: _Numbers
    """How many went by in all, a group."""

    @classmethod
    def none(cls) -> Laid:
        """No rows."""
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, empty, empty, empty, empty)

    def emitting(self, step: int, count: int) -> Iterator[_Numbers]:
        """The places of records that emit, in order of arrival, in portions."""
        places = np.flatnonzero((self.total > 0) & (self.total % step == 0))
        places = places[np.argsort(self.order[places], kind="stable")]
        portion = max(1, _AT_ONCE // count)
        yield from (places[at : at + portion] for at in range(0, max(1, len(places)), portion))


def listed(rows: pl.Series, lengths: _Numbers) -> pl.Series:
    """Rows one behind the other as lists of these lengths; null where one is of none.

    >>> listed(pl.Series("last", [1, 2, 3]), np.array([2, 0, 1])).to_list()
    [[1, 2], None, [3]]
    """
    group = pl.Series("g", np.repeat(np.arange(len(lengths), dtype=np.int64), lengths))
    lists = pl.DataFrame([group, rows]).group_by("g", maintain_order=True).agg(rows.name)
    every = pl.DataFrame({"g": np.arange(len(lengths), dtype=np.int64)})
    return every.join(lists, on="g", how="left", maintain_order="left")[rows.name]
