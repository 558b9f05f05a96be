"""Deduplication (M11): a record passes unless one with its key passed at a time near its own.

All of it is arithmetic on columns. Without `within` a key passes once, for ever. With it, what of
an epoch passes depends, key by key, on what passed before: of each key the first record that is
left is taken, and those near it are dropped, for all keys at once. Where a key has many that pass,
a plain loop over numbers ends it, so that no key makes others wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.bundle import TIME
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.keyed.rows import UNTIL, ColumnState, Shape, arranged, as_delta
from anabranch.program.graph import Graph
from anabranch.program.operators.keyed import Deduplicate
from anabranch.program.operators.operator import OUT

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Marks: TypeAlias = npt.NDArray[np.bool_]

_ROUNDS = 4
"""So many records of a key are found together with all others; what is left is taken in a loop."""
_EARLY = -(2**63)


@dataclass(frozen=True)
class DeduplicateKernel:
    """A deduplicate operator, lowered."""

    operator: str
    shape: Shape
    within: int | None
    lag: int = 0

    @classmethod
    def of(cls, graph: Graph, op: Deduplicate) -> Self:
        """Lower the operator."""
        given = graph.output(op.inputs[0]).schema
        kept: dict[str, pl.DataType] = {} if op.within is None else {UNTIL: pl.Int64()}
        return cls(op.name, Shape.of(op.key, given, kept, one=op.within is None), op.within)

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> ColumnState:
        """The state after epochs with these deltas, in order."""
        return ColumnState.from_deltas(self.shape, deltas, version)

    def after(self, state: ColumnState, deltas: Iterable[pl.DataFrame]) -> ColumnState:
        """The state after more epochs with these deltas, in order."""
        return state.after(deltas)

    def run(self, taken: Taken, state: ColumnState) -> Given[ColumnState]:
        """Pass what is new."""
        (rows,) = taken.rows
        if not rows.height:
            return self._given(rows, self.shape.empty(), taken, state)
        if self.within is None:
            return self._ever(rows, taken, state)
        keyed = rows.select(*self.shape.keyed(), (pl.col(TIME) + self.within).alias(UNTIL))
        before = _EARLY if taken.before is None else taken.before
        passed = self._passed(keyed, state.find(keyed), before)
        fresh = self.shape.alive(keyed.filter(passed), taken.after)
        return self._given(rows.filter(passed), fresh, taken, state)

    def _given(
        self, rows: pl.DataFrame, fresh: pl.DataFrame, taken: Taken, state: ColumnState
    ) -> Given[ColumnState]:
        delta = as_delta(self.shape, fresh)
        return Given({OUT: rows}, state.then(delta, taken.after), delta)

    def _ever(self, rows: pl.DataFrame, taken: Taken, state: ColumnState) -> Given[ColumnState]:
        """The first of each key that is not known."""
        first = rows.select(self.shape.keyed()).with_row_index("at")
        first = first.unique(self.shape.keys, keep="first", maintain_order=True)
        known = state.find(first)
        if known.height:
            first = first.join(
                known, on=self.shape.keys, how="anti", nulls_equal=True, maintain_order="left"
            )
        return self._given(rows[first["at"]], first, taken, state)

    # Within a stretch of time

    def _passed(self, keyed: pl.DataFrame, known: pl.DataFrame, before: int) -> pl.Series:
        """Which records pass; `known` has passed earlier, of these keys and maybe of others."""
        assert self.within is not None
        known = known.filter(pl.col(UNTIL) >= before)
        together = pl.concat([known, keyed])
        order, numbers = arranged(together, self.shape.keys)
        until = together[UNTIL].to_numpy()[order]
        old = order < known.height
        near = _near(until, numbers, old, self.within) if known.height else np.zeros_like(old)
        rest = np.flatnonzero(~old & ~near)
        kept = _thinned(rest, until, numbers, self.within, before)
        found = np.zeros(together.height, dtype=bool)
        found[order[kept]] = True
        return pl.Series(found[known.height :])


def _near(times: _Numbers, numbers: _Numbers, old: _Marks, within: int) -> _Marks:
    """Which rows have an old one of their key within so much of them, before or behind."""
    by_time = np.lexsort((times, numbers))
    at, of, marks = times[by_time], numbers[by_time], old[by_time]
    places = np.arange(len(at))
    before = np.maximum.accumulate(np.where(marks, places, -1))
    behind = np.minimum.accumulate(np.where(marks, places, len(at))[::-1])[::-1]
    found = np.zeros(len(at), dtype=bool)
    for one, exists in ((before, before >= 0), (behind, behind < len(at))):
        place = np.where(exists, one, 0)
        found |= exists & (of[place] == of) & (np.abs(at[place] - at) <= within)
    result = np.empty_like(found)
    result[by_time] = found
    return result


def _thinned(
    rest: _Numbers, until: _Numbers, numbers: _Numbers, within: int, before: int
) -> _Numbers:
    """The places that pass among these, none of which is near one that has passed.

    A record so far behind that it would be forgotten at once passes and keeps none from passing.
    """
    kept = []
    for _ in range(_ROUNDS):
        if not len(rest):
            break
        of = numbers[rest]
        first = np.empty(len(rest), dtype=bool)
        first[0], first[1:] = True, of[1:] != of[:-1]
        kept.append(rest[first])
        anchor = rest[first][np.cumsum(first) - 1]
        near = np.abs(until[rest] - until[anchor]) <= within
        rest = rest[~first & ~(near & (until[anchor] >= before))]
    kept.append(_one_by_one(rest, until, numbers, within, before))
    return np.concatenate(kept)


def _one_by_one(
    rest: _Numbers, until: _Numbers, numbers: _Numbers, within: int, before: int
) -> _Numbers:
    """The same, record by record."""
    kept, passed, key = [], list[int](), -1
    for place, at, of in zip(
        rest.tolist(), until[rest].tolist(), numbers[rest].tolist(), strict=True
    ):
        if of != key:
            passed, key = [], of
        # Those that passed are more than `within` apart: one neighbour on each side decides.
        right = bisect_left(passed, at - within)
        if right < len(passed) and passed[right] <= at + within:
            continue
        kept.append(place)
        if at >= before:
            insort(passed, at)
    return np.array(kept, dtype=np.int64)
