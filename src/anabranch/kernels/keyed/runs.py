"""Runs without gaps, all keys at once: a run is its first row and how far it goes.

A run ends where a predicate does not hold, where its rows are too far apart, or where its least
time is too far behind the watermark. Each of these stays true for every longer run, so it is enough
to look at whole runs, and not at what they were on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Run: TypeAlias = tuple[tuple[int, ...], int, int]
"""The places of the rows taken so far, their least and their greatest event time."""

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Marks: TypeAlias = npt.NDArray[np.bool_]


class Contiguous:
    """Rows of several keys, each key's in their order, and which step each of them fits."""

    def __init__(
        self, owners: _Numbers, times: _Numbers, masks: Sequence[_Marks], pattern: Sequence[int]
    ) -> None:
        """Arrange the rows key by key; `owners` are the numbers of their keys."""
        self._order = np.argsort(owners, kind="stable")
        self._owners, self._times = owners[self._order], times[self._order]
        self._fits = [masks[step][self._order] for step in pattern]

    def matches(self, first: int, within: int, before: int) -> list[tuple[int, ...]]:
        """The places of complete runs that end at `first` or behind it, in order of their ends."""
        length = len(self._fits)
        begins = np.arange(len(self._order))
        good, _, _ = self._runs(begins, length, within, before)
        begins = begins[good]
        begins = begins[self._order[begins + length - 1] >= first]
        kept, owner, free = [], -1, 0
        for begin, of in zip(begins.tolist(), self._owners[begins].tolist(), strict=True):
            if of != owner:
                owner, free = of, begin
            if begin >= free:
                kept.append(begin)
                free = begin + length
        found = self._order[np.array(kept, dtype=np.int64)[:, None] + np.arange(length)]
        found = found[np.argsort(found[:, -1])]
        return [tuple(places) for places in found.tolist()]

    def left(
        self, matches: Sequence[tuple[int, ...]], first: int, within: int, before: int
    ) -> dict[int, list[Run]]:
        """The runs that wait at the end, oldest first, of keys with a row from `first` on."""
        ends = np.flatnonzero(np.append(self._owners[1:] != self._owners[:-1], values=True))
        ends = ends[self._order[ends] >= first]
        where = np.empty_like(self._order)
        where[self._order] = np.arange(len(self._order))
        free = dict.fromkeys(self._owners[ends].tolist(), 0)
        for taken in matches:
            at = int(where[taken[-1]])
            free[int(self._owners[at])] = max(free[int(self._owners[at])], at + 1)
        found: dict[int, list[Run]] = {owner: [] for owner in free}
        behind = np.array(list(free.values()), dtype=np.int64)
        for length in range(len(self._fits) - 1, 0, -1):
            begins = ends - length + 1
            good, low, high = self._runs(begins, length, within, before)
            good &= begins >= behind
            for begin, least, greatest in zip(
                begins[good].tolist(), low[good].tolist(), high[good].tolist(), strict=True
            ):
                places = tuple(self._order[begin : begin + length].tolist())
                found[int(self._owners[begin])].append((places, least, greatest))
        return found

    def _runs(
        self, begins: _Numbers, length: int, within: int, before: int
    ) -> tuple[_Marks, _Numbers, _Numbers]:
        """Which runs of so many rows may go on, and their least and greatest times."""
        last = begins + length - 1
        good = (begins >= 0) & (last < len(self._order))
        safe = np.where(good, begins, 0)
        good &= self._owners[safe] == self._owners[np.where(good, last, 0)]
        low = high = self._times[safe]
        for step in range(length):
            at = np.where(good, safe + step, 0)
            if step and step == length - 1:
                # What came before the last row must have counted when it came.
                good = good & (low + within >= before)
            good = good & self._fits[step][at]
            low = np.minimum(low, self._times[at])
            high = np.maximum(high, self._times[at])
        return good & (high - low <= within), low, high
