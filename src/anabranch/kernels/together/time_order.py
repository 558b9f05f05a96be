"""The rows of one or two streams by event time (M14).

Rows are held until the watermark has passed them and leave in order (time, input, arrival); those
that come behind it pass at once, with the order they came in. All rows are in one lane.

A delta has the columns `slice`, `side` (the input), `id` (the arrival), `time`, and the user's with
a `c:` before them. A row with the side `PASSED` is no row: its time is that up to which all have
gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import polars as pl

from anabranch.kernels.bundle import (
    FROM,
    OFFSET,
    PARTITION,
    PHASE,
    SLICE,
    TIME,
    hidden,
    in_order,
    key_part,
)
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.layers import Slices, mine, narrowed
from anabranch.kernels.shelf import Shelf
from anabranch.kernels.together.arrival import ID, ids, places
from anabranch.kernels.together.held import LEAST, HeldState
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.together import InTimeOrder, Merge

SIDE = "side"
PASSED = 255
"""The side of the row in a delta that says how far the watermark was."""

_HEAD: Mapping[str, pl.DataType] = {
    "slice": pl.UInt16(), SIDE: pl.UInt8(), "id": pl.Int64(), "time": pl.Int64()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ByTime:
    """Rows sorted by time: `_HEAD`, then the user's columns under `c:`."""

    frame: pl.DataFrame
    slices: Slices | None = None
    """The slices that count of it; None: all."""

    @property
    def height(self) -> int:
        """How many there are."""
        return self.frame.height

    @property
    def divided(self) -> bool:
        """Whether some may be of slices that count no longer."""
        return self.slices is not None

    def only(self, slices: Slices) -> ByTime:
        """The same, of which these slices alone count."""
        found = narrowed(self.slices, slices)
        return replace(self, slices=found) if found else ByTime(self.frame.clear())

    def alone(self) -> ByTime:
        """The same without rows of slices that count no longer."""
        return ByTime(mine(self.frame, self.slices))

    def shelved(self, shelf: Shelf) -> ByTime:
        """The same, with the pieces that a shelf gave back."""
        return replace(self, frame=shelf.frame(self.frame))

    def passed(self, bound: int) -> int:
        """How many have a time before this one."""
        return int(self.frame["time"].search_sorted(bound, side="left"))

    def kept(self, bound: int) -> ByTime:
        """Those that do not, apart from the others' memory where there were any."""
        gone = self.passed(bound)
        return replace(self, frame=self.frame[gone:].rechunk()) if gone else self

    def before(self, newer: ByTime) -> ByTime:
        """These and newer ones, of which all count."""
        return ByTime(pl.concat([self.frame, newer.frame]).sort("time"))

    def between(self, low: int | None, high: int) -> pl.DataFrame:
        """The rows with a time in [low, high)."""
        begin = 0 if low is None else self.passed(low)
        return mine(self.frame[begin : max(begin, self.passed(high))], self.slices)

    def delta(self, bound: int | None) -> pl.DataFrame:
        """The rows by slice, the first of them behind one that says how far the watermark was.

        All of them count.
        """
        if not self.height or bound is None:
            return self.frame.sort("slice", maintain_order=True)
        told = self.frame.head(1).select("slice").with_columns(
            pl.lit(PASSED, pl.UInt8).alias(SIDE), pl.lit(bound, pl.Int64).alias("time")
        )  # fmt: skip
        both = pl.concat([told, self.frame], how="diagonal").select(self.frame.columns)
        return both.sort("slice", maintain_order=True)


TimeOrderState: TypeAlias = HeldState[ByTime]


@dataclass(frozen=True)
class TimeOrderKernel:
    """`merge` and `in_time_order`."""

    operator: str
    number: int
    schema: pl.Schema
    """The columns of the result."""
    carried: tuple[str, ...] = ()
    """Hidden columns that are held with a row: where it comes from, if a dead letter may tell."""

    @classmethod
    def of(cls, graph: Graph, op: Merge | InTimeOrder) -> Self:
        """Lower a merge, of two streams or of one."""
        del graph
        return cls(op.name, op.id, op.outputs[OUT].schema)

    @property
    def lag(self) -> int:
        """Its output's watermark is its own: what it holds is not behind."""
        return 0

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> TimeOrderState:
        """The state after epochs with these deltas."""
        columns = {f"c:{name}": dtype for name, dtype in self._columns().items()}
        empty = pl.DataFrame(schema={**_HEAD, **columns})
        # What is carried may be more or less than it was when a row came to be held.
        rows = pl.concat([empty, *deltas], how="diagonal").select(empty.columns)
        told = rows.filter(pl.col(SIDE) == PASSED)["time"].max()
        held = ByTime(rows.filter(pl.col(SIDE) != PASSED).sort("time"))
        return HeldState.of(held, told, version)  # type: ignore[arg-type]

    def after(self, state: TimeOrderState, deltas: Iterable[pl.DataFrame]) -> TimeOrderState:
        """The state after more epochs with these deltas."""
        return state.after(self.restore(deltas))

    def run(self, taken: Taken, state: TimeOrderState) -> Given[TimeOrderState]:
        """Let what is behind pass, hold the rest, release what the watermark has passed."""
        behind, new = self._divided(taken)
        after = LEAST if taken.after is None else taken.after
        due = [held.between(taken.before, after) for held in (*state, new)]
        rows = in_order(behind)
        if any(each.height for each in due):
            released = self._released(pl.concat(due).sort("time", SIDE, "id"))
            rows = pl.concat([rows, released], how="diagonal")
        held = new.kept(after)
        return Given({OUT: rows}, state.then(held, taken.after), held.delta(taken.after))

    def _divided(self, taken: Taken) -> tuple[list[pl.DataFrame], ByTime]:
        """The rows that are behind, and those that are not, sorted by time."""
        behind, new = [], []
        place = places(taken.rows)
        for side, frame in enumerate(taken.rows):
            rows = frame.with_columns(ids(taken.epoch, place[side]))
            late = pl.lit(value=False) if taken.before is None else pl.col(TIME) < taken.before
            passing = rows.filter(late)
            behind.append(passing.select([*self.schema, *hidden(frame)]))
            new.append(self._held(rows.filter(~late) if passing.height else rows, side))
        return behind, ByTime(pl.concat(new).sort("time"))

    def _held(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        return rows.select(
            pl.col(SLICE).cast(pl.UInt16).alias("slice"),
            pl.lit(side, pl.UInt8).alias(SIDE),
            pl.col(ID).alias("id"),
            pl.col(TIME).alias("time"),
            *(pl.col(name).alias(f"c:{name}") for name in self._columns()),
        )

    def _columns(self) -> dict[str, pl.DataType]:
        return {**self.schema, **{name: FROM[name] for name in self.carried}}

    def _released(self, due: pl.DataFrame) -> pl.DataFrame:
        return due.select(
            *_named(self._columns()),
            pl.col("time").alias(TIME),
            pl.col("slice").alias(SLICE),
            pl.lit(1, pl.Int8).alias(PHASE),
            pl.lit(self.number, pl.Int32).alias(PARTITION),
            pl.col("time").alias(OFFSET),
            pl.col(SIDE).alias(key_part(self.number, 0)),
            pl.col("id").alias(key_part(self.number, 1)),
        )


def _named(names: Iterable[str]) -> Sequence[pl.Expr]:
    return [pl.col(f"c:{name}").alias(name) for name in names]
