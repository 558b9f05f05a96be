"""Partials of many keys, added up by sorting: they come out in the order of their keys.

A table of as many keys as rows is hashed into with a miss for every row, and what comes of it is
still to be sorted. Where keys are whole numbers it is faster to sort them, each with the number of
its row in its lower bits: 860,000 partials of 580,000 keys are added up in order in 36 ms, by
groups in 57 and then 22 to sort them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.windows.grid import Numbers, ordered_codes, shown_values
from anabranch.kernels.windows.panes import START

Places: TypeAlias = npt.NDArray[np.intp]

MANY = 20_000
"""Partials from which on sorting is faster, if keys are many."""
_SAMPLE, _DISTINCT = 4096, 0.9
"""Keys are many if so great a part of a sample differs: a hash table of few stays in the cache."""
_BITS = 64


@dataclass(frozen=True, eq=False)
class SortedKeys:
    """The keys of some rows, each once, in order."""

    keys: pl.Series
    order: Places
    """The rows, by key."""
    begins: Places
    """Where in that order each key begins."""

    @classmethod
    def of(cls, keys: pl.Series) -> SortedKeys | None:
        """None where they are no whole numbers, or where a hash table is faster."""
        if len(keys) < MANY or not _are_whole(keys.dtype) or keys.null_count():
            return None
        sample = keys.gather_every(max(1, len(keys) // _SAMPLE))
        if sample.n_unique() < _DISTINCT * len(sample):
            return None
        numbers, row_bits = keys.to_physical().to_numpy(), (len(keys) - 1).bit_length()
        low, high = int(numbers.min()), int(numbers.max())
        if (high - low).bit_length() + row_bits > _BITS:
            return None
        # Differences are right though they wrap around: none is too large for 64 bits.
        low_word, shift = np.uint64(low % 2**_BITS), np.uint64(row_bits)
        packed = (numbers.astype(np.uint64) - low_word) << shift
        packed |= np.arange(len(keys), dtype=np.uint64)
        packed.sort()
        order = (packed & np.uint64(2**row_bits - 1)).astype(np.intp)
        packed >>= shift
        begins = np.flatnonzero(np.concatenate(([True], packed[1:] != packed[:-1])))
        found = (packed[begins] + low_word).astype(numbers.dtype)
        return cls(pl.Series(keys.name, found).cast(keys.dtype), order, begins)

    def counts(self) -> Numbers:
        """How many rows each key has."""
        return np.diff(self.begins, append=len(self.order)).astype(np.int64)

    def over(self, partials: pl.DataFrame, beside: Sequence[str] = ()) -> PartialsByKey:
        """Partials of the rows, all of one start; keys decide on the columns `beside` them."""
        return PartialsByKey(self, partials, beside)


@dataclass(frozen=True, eq=False)
class PartialsByKey:
    """Partials of one start in the order of their keys: `Laid`."""

    sorted: SortedKeys
    partials: pl.DataFrame
    beside: Sequence[str]

    @property
    def height(self) -> int:
        """How many keys there are."""
        return len(self.sorted.begins)

    def bounds(self) -> pl.DataFrame:
        """The start, the key and what is beside it, of each."""
        start = pl.repeat(self.partials[START][0], self.height, dtype=pl.Int64, eager=True)
        first = self.sorted.order[self.sorted.begins]
        beside = [self.partials[name].gather(first) for name in self.beside]
        return pl.DataFrame([start.alias(START), self.sorted.keys, *beside])

    def added(self, name: str) -> Numbers:
        """The sum of a column for each key."""
        values: Numbers = self.partials[name].to_numpy()[self.sorted.order]
        if self.height == len(values):
            return values
        found: Numbers = np.add.reduceat(values, self.sorted.begins)
        return found

    def extreme(self, name: str, *, least: bool) -> pl.Series:
        """The least or greatest value of a column for each key, null of nothing."""
        column, order = self.partials[name], self.sorted.order
        some = column.is_not_null().to_numpy()
        pick, bounds = np.minimum if least else np.maximum, np.iinfo(np.int64)
        none = bounds.max if least else bounds.min
        codes = np.where(some, ordered_codes(column), none)[order]
        found = shown_values(pick.reduceat(codes, self.sorted.begins), column.dtype)
        known = np.logical_or.reduceat(some[order], self.sorted.begins)
        return pl.select(pl.when(pl.Series(known)).then(found).alias(name)).to_series()


_WHOLE = (
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64,
)  # fmt: skip


def _are_whole(dtype: pl.DataType) -> bool:
    """Whether keys are numbers of at most 64 bits, in their order."""
    return dtype in _WHOLE or dtype.is_temporal()
