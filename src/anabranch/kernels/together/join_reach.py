"""For each new row of a join a stretch of the other side's rows, among which its partners are.

All rows are sorted by the bits of their keys and then by arrival. How many rows of the other side
are before a row in its key says which stretch of them came before it: no row searches for it. Their
times are looked at afterwards. Where keys have many rows, stretches are made shorter before: then
the near ones are searched for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.kernels.together.join_near import (
    AT,
    MOST,
    ByTime,
    Flags,
    Positions,
    Words,
    chosen,
    packed_of,
    unfolded,
)
from anabranch.kernels.together.join_tables import LEFT, Arrivals

_ROW = 32
"""Two numbers of rows make one."""


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs of rows with the same bits and near times."""

    later: Positions
    """Rows of both tables."""
    partner: Positions
    """Rows of both tables."""
    times: Positions
    """The later of both times."""


@dataclass(frozen=True, slots=True)
class Reach:
    """For each new row a stretch of rows of the other side, among which its partners are."""

    listed: Positions
    """The left side's rows with a key, by key, then the right side's: rows of both tables."""
    lefts: int
    """How many of them are the left side's."""
    begin: Positions
    """For each new row where its stretch of the list begins."""
    count: Positions
    by_arrival: bool = True
    """Whether the rows of a stretch are as they came, and before the one whose stretch it is."""

    @classmethod
    def of(cls, arrivals: Arrivals) -> Reach:
        """All rows of a row's key that came before it."""
        packed = packed_of(arrivals.hashes)
        order = (packed & AT).view(np.int64)
        row = arrivals.row[order]
        is_right = row >= arrivals.tables[LEFT].height
        listed = np.concatenate([chosen(row, ~is_right), chosen(row, is_right)])
        lefts = len(row) - int(np.count_nonzero(is_right))
        begin, count = np.zeros((2, len(arrivals.row)), np.int64)
        begin[order], count[order] = _before(packed, is_right, lefts)
        return cls(listed, lefts, begin[arrivals.stored :], count[arrivals.stored :])

    def near(self, arrivals: Arrivals, within: int, floor: int | None) -> Found:
        """The pairs with near times, in order."""
        times = arrivals.times
        later, place = unfolded(self.begin, self.count)
        apart, theirs = np.empty((2, len(later)), np.int64)
        np.take(times[arrivals.new], later, out=apart, mode="clip")
        np.take(times[self.listed], place, out=theirs, mode="clip")
        apart -= theirs
        near = (apart <= within) & (apart >= -within)
        if floor is not None and (times < floor).any():
            near &= theirs >= floor
        later, partner = chosen(later, near), self.listed[chosen(place, near)]
        if self.by_arrival:
            both = chosen(theirs, near) + np.maximum(chosen(apart, near), 0)
            return Found(arrivals.new[later], partner, both)
        later, partner = _in_order(arrivals, later, partner)
        later = arrivals.new[later]
        return Found(later, partner, np.maximum(times[later], times[partner]))

    def narrowed(self, arrivals: Arrivals, side: int, within: int, floor: int | None) -> Reach:
        """Stretches without rows of this side whose times are not near."""
        asked, asking = arrivals.tables[side], arrivals.tables[1 - side].places
        asks = asking[self.count[asking] > 0]
        mine = arrivals.times[arrivals.new[asks]]
        low = mine - within if floor is None else np.maximum(mine - within, floor)
        near = ByTime.of(asked.times, asked.hashes)
        begin, end = near.stretches(arrivals.hashes[arrivals.stored + asks], low, mine + within)
        first, behind = (0, 0) if side == LEFT else (arrivals.tables[LEFT].height, self.lefts)
        begin, end, by_arrival = begin + behind, end + behind, near.order is None
        if by_arrival:
            begin = np.maximum(begin, self.begin[asks])
            end = np.minimum(end, (self.begin + self.count)[asks])
        listed, begins, counts = self.listed.copy(), self.begin.copy(), self.count.copy()
        listed[behind : behind + len(near.packed)] = near.rows(near.packed) + first
        # A floor above a row's own reach makes a stretch that ends before it begins.
        begins[asks], counts[asks] = begin, np.maximum(end - begin, 0)
        return Reach(listed, self.lefts, begins, counts, self.by_arrival and by_arrival)


def _before(packed: Words, is_right: Flags, lefts: int) -> tuple[Positions, Positions]:
    """Where in the list the other side's rows of each row's key begin, and how many precede it.

    Arrays are written over when they are needed no more: fresh memory costs more than that. There
    are products instead of choices, which would branch by chance.
    """
    begin, count, number = np.empty((3, len(packed)), np.int64)
    number[:1] = MOST
    # Numbers with the same bits differ in the room below them alone.
    np.bitwise_xor(packed[1:], packed[:-1], out=number[1:].view(np.uint64))
    is_head = number.view(np.uint64) >= MOST
    heads, rights = np.flatnonzero(is_head), np.cumsum(is_right, out=count)
    rights_before = rights[heads] - is_right[heads]
    # By key, for a left row where the key's right ones begin, for a right row its left ones.
    begins = np.stack([rights_before + lefts, heads - rights_before], axis=1).ravel()
    np.cumsum(is_head, out=number)
    number -= 1
    number *= 2
    number += is_right
    np.take(begins, number, out=begin, mode="clip")
    # Where those before a row end: for a left row behind as many right ones as there are up to it,
    # for a right row at its own number less those.
    number[:] = np.arange(1 - lefts, len(packed) + 1 - lefts)
    number *= is_right
    count *= 1 - 2 * is_right.view(np.int8)
    count += number
    count += lefts
    count -= begin
    return begin, count


def _in_order(
    arrivals: Arrivals, later: Positions, partner: Positions
) -> tuple[Positions, Positions]:
    """Pairs by the later row's place and then by the partner, without partners that come later."""
    came = np.empty(len(arrivals.row), np.int64)
    came[arrivals.row] = np.arange(-arrivals.stored, len(arrivals.new))
    pairs = chosen((later << _ROW) | partner, came[partner] < later)
    pairs = pl.Series(pairs).sort().to_numpy()
    return pairs >> _ROW, pairs & (2**_ROW - 1)
