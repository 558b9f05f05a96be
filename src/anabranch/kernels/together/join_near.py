"""Rows of one side of a join by key and then by time, and arrays of such rows.

A row is told by one number: bits of its key's hash, and below them its place in an order of rows.
Sorted, those numbers hold the rows of a key together in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.shelf import Shelf

Positions: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]
_Number = TypeVar("_Number", np.int64, np.uint64)

MOST = 2**28
"""An epoch asks for fewer rows of a lane, new ones among them: more do not fit into its memory."""
AT = np.uint64(MOST - 1)
HASH = ~AT
"""The bits that are kept of a hash; below them is room for a row's number."""


@dataclass(frozen=True, slots=True)
class ByTime:
    """Rows by key and then by time."""

    times: Positions
    """Sorted."""
    order: Positions | None
    """The rows by time; None where times ascend as rows arrive."""
    packed: Words
    """Bits and ranks by time, sorted; rows without a key are not there."""

    @classmethod
    def of(cls, times: Positions, hashes: Words) -> ByTime:
        """Sort rows with these times and bits of keys."""
        order = by_time(times)
        if order is None:
            return cls(times, None, packed_of(hashes))
        return cls(times[order], order, packed_of(hashes[order]))

    def shelved(self, shelf: Shelf, times: Positions) -> ByTime:
        """The same, with the pieces that a shelf gave back; `times` are those of the rows."""
        packed = shelf.array(self.packed)
        if self.order is None:
            return ByTime(times, None, packed)
        return ByTime(shelf.array(self.times), shelf.array(self.order), packed)

    def rows(self, packed: Words) -> Positions:
        """Which rows have these bits and ranks."""
        rank = (packed & AT).view(np.int64)
        return rank if self.order is None else self.order[rank]

    def stretches(
        self, hashes: Words, low: Positions, high: Positions
    ) -> tuple[Positions, Positions]:
        """Where the rows with these bits and times from `low` to `high` begin and end."""
        first = np.searchsorted(self.times, low).view(np.uint64)
        last = np.searchsorted(self.times, high, side="right").view(np.uint64)
        begin, end = (np.searchsorted(self.packed, hashes | rank) for rank in (first, last))
        return begin, end


def packed_of(hashes: Words) -> Words:
    """Bits and numbers of the rows with a key, sorted.

    >>> packed_of(np.array([2 * MOST, 0, MOST, 2 * MOST], np.uint64)) & AT
    array([2, 0, 3], dtype=uint64)
    """
    if len(hashes) >= MOST:
        message = f"{len(hashes)} rows of a join in one lane: fewer than {MOST} fit"
        raise OverflowError(message)
    packed = hashes | np.arange(len(hashes), dtype=np.uint64)
    packed = packed if hashes.all() else chosen(packed, hashes > 0)
    found: Words = pl.Series(packed).sort().to_numpy()
    return found


def by_time(times: Positions) -> Positions | None:
    """Where values are in their order, the first of equal ones first; None where they ascend."""
    if not (times[1:] < times[:-1]).any():
        return None
    return np.argsort(times, kind="stable")


def chosen(values: npt.NDArray[_Number], keep: Flags) -> npt.NDArray[_Number]:
    """Some of the values: Polars is several times faster at it than NumPy."""
    return pl.Series(values).filter(pl.Series(keep)).to_numpy()


def unfolded(begin: Positions, count: Positions) -> tuple[Positions, Positions]:
    """For each stretch its number as often as it is long, and the places in it.

    >>> number, place = unfolded(np.array([7, 0, 3]), np.array([2, 0, 1]))
    >>> number.tolist(), place.tolist()
    ([0, 0, 2], [7, 8, 3])
    """
    full = np.flatnonzero(count > 0)
    if not len(full):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    begin, count = begin[full], count[full]
    ends = np.cumsum(count)
    # Sums of steps: within a stretch by 1, at its start from the last place of the one before.
    number, place = np.empty((2, ends[-1]), np.int64)
    number[:], place[:] = 0, 1
    number[0], place[0] = full[0], begin[0]
    number[ends[:-1]] = np.diff(full)
    place[ends[:-1]] = begin[1:] - (begin + count)[:-1] + 1
    return np.cumsum(number, out=number), np.cumsum(place, out=place)
