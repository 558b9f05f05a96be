"""What a join keeps: the rows of both sides that can still match, and which of them have.

A delta has the columns `slice`, `kind`, `id`, `time`; then `matched` (whether a row of an outer
side had a partner when it came), `l:` and `r:` with the user's columns of either side, `o:` with
the order columns of rows that may leave alone. Its kinds are rows of the left and of the right,
marks for older rows that have had a partner since, and one row whose time is that up to which all
have gone. Columns of kinds that are not in it may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import polars as pl

from anabranch.compiler.plan import HIDDEN
from anabranch.kernels.bundle import FROM, SLICE, TIME, order_columns
from anabranch.kernels.layers import Slices, mine, narrowed
from anabranch.kernels.shelf import Shelf
from anabranch.kernels.together.arrival import ID
from anabranch.kernels.together.held import HeldState
from anabranch.kernels.together.join_run import Run

MATCHED = f"{HIDDEN}matched"
"""Whether a row of an outer side had a partner when it came."""
SIDE = "side"

_MARKS, _PASSED = 2, 4
"""Kinds: 0 and 1 are rows of the sides, 2 and 3 marks for those, 4 tells of the watermark."""
_SHORT = {"slice": SLICE, "id": ID, "time": TIME, "matched": MATCHED}


@dataclass(frozen=True, slots=True)
class Matching:
    """Rows that can still match."""

    sides: tuple[Run, Run]
    marks: pl.DataFrame
    """`side`, `slice`, `id`, `time` of rows of outer sides with a partner; sorted by time."""
    slices: Slices | None = None
    """The slices that count of it; None: all."""

    @property
    def height(self) -> int:
        """How many rows and marks there are."""
        return sum(side.height for side in self.sides) + self.marks.height

    @property
    def divided(self) -> bool:
        """Whether some may be of slices that count no longer."""
        return self.slices is not None

    def only(self, slices: Slices) -> Matching:
        """The same, of which these slices alone count."""
        found = narrowed(self.slices, slices)
        if found:
            return replace(self, slices=found)
        left, right = (side.none() for side in self.sides)
        return Matching((left, right), self.marks.clear())

    def alone(self) -> Matching:
        """The same without rows of slices that count no longer."""
        if self.slices is None:
            return self
        left, right = (side.of_slices(self.slices) for side in self.sides)
        return Matching((left, right), mine(self.marks, self.slices))

    def shelved(self, shelf: Shelf) -> Matching:
        """The same, with the pieces that a shelf gave back."""
        left, right = (side.shelved(shelf) for side in self.sides)
        return replace(self, sides=(left, right), marks=shelf.frame(self.marks))

    def passed(self, bound: int) -> int:
        """How many have a time before this one."""
        marks = int(self.marks["time"].search_sorted(bound, side="left"))
        return sum(side.passed(bound) for side in self.sides) + marks

    def kept(self, bound: int) -> Matching:
        """Those that do not."""
        left, right = (side.kept(bound) for side in self.sides)
        gone = int(self.marks["time"].search_sorted(bound, side="left"))
        marks = self.marks[gone:].rechunk() if gone else self.marks
        return Matching((left, right), marks, self.slices)

    def before(self, newer: Matching) -> Matching:
        """These and newer ones, of which all count."""
        left, right = (one.before(two) for one, two in zip(self.sides, newer.sides, strict=True))
        if not (self.marks.height and newer.marks.height):
            return Matching((left, right), self.marks if self.marks.height else newer.marks)
        # A row that has several partners is marked in each of their epochs.
        return Matching((left, right), pl.concat([self.marks, newer.marks]).unique().sort("time"))

    def marked(self, low: int | None, high: int) -> pl.DataFrame:
        """The marks for rows with a time in [low, high)."""
        times = self.marks["time"]
        begin = 0 if low is None else int(times.search_sorted(low, side="left"))
        end = int(times.search_sorted(high, side="left"))
        return mine(self.marks[begin : max(begin, end)], self.slices)

    def asked(self, side: int, of: Run, within: int) -> Run:
        """All rows of a side that may be partners of these; where they are many, few others."""
        found = self.sides[side].asked(of, within)
        return found if self.slices is None else found.of_slices(self.slices)

    def between(self, side: int, low: int | None, high: int) -> pl.DataFrame:
        """The rows of a side with a time in [low, high), by time."""
        return mine(self.sides[side].between(low, high), self.slices, SLICE)

    def delta(self, bound: int | None) -> pl.DataFrame:
        """All of it, sorted by slice; all of it counts."""
        parts = [_told(run.rows, side) for side, run in enumerate(self.sides) if run.height]
        if self.marks.height:
            marks = self.marks.with_columns((pl.col(SIDE) + _MARKS).alias("kind")).drop(SIDE)
            parts.append(marks.select("slice", "kind", "id", "time"))
        if parts and bound is not None:
            at = parts[0].head(1).select("slice", pl.lit(_PASSED, pl.UInt8).alias("kind"))
            parts.append(at.with_columns(pl.lit(bound, pl.Int64).alias("time")))
        if not parts:
            return pl.DataFrame(schema={"slice": pl.UInt16, "kind": pl.UInt8})
        whole = pl.concat(parts, how="diagonal") if len(parts) > 1 else parts[0]
        return whole.sort("slice", maintain_order=True)


JoinState: TypeAlias = HeldState[Matching]


def restored(
    deltas: Iterable[pl.DataFrame],
    schemas: Sequence[pl.Schema],
    on: Sequence[str],
    version: int,
) -> JoinState:
    """The state after epochs with these deltas."""
    blank = {"slice": pl.UInt16, "kind": pl.UInt8, "id": pl.Int64, "time": pl.Int64}
    whole = pl.concat([pl.DataFrame(schema=blank), *deltas], how="diagonal")
    told = whole.filter(pl.col("kind") == _PASSED)["time"].max()
    left, right = (
        Run.of(_rows(whole.filter(pl.col("kind") == side), side, schema), on)
        for side, schema in enumerate(schemas)
    )
    marks = whole.filter(pl.col("kind").is_in([_MARKS, _MARKS + 1]))
    marks = marks.with_columns((pl.col("kind") - _MARKS).cast(pl.UInt8).alias(SIDE))
    held = Matching((left, right), marks_of([marks.select(NO_MARKS.columns)]))
    return HeldState.of(held, told, version)  # type: ignore[arg-type]


NO_MARKS = pl.DataFrame(
    schema={SIDE: pl.UInt8, "slice": pl.UInt16, "id": pl.Int64, "time": pl.Int64}
)


def marks_of(marks: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Marks as one frame, sorted by time."""
    return pl.concat([NO_MARKS, *marks]).sort("time")


def _told(rows: pl.DataFrame, side: int) -> pl.DataFrame:
    """Rows as part of a delta."""
    hidden = {name for name in rows.columns if name.startswith(HIDDEN)}
    matched = [pl.col(MATCHED).alias("matched")] if MATCHED in hidden else []
    return rows.select(
        pl.col(SLICE).cast(pl.UInt16).alias("slice"),
        pl.lit(side, pl.UInt8).alias("kind"),
        pl.col(ID).alias("id"),
        pl.col(TIME).alias("time"),
        *matched,
        *(
            pl.col(name).alias(f"{'lr'[side]}:{name}")
            for name in rows.columns
            if name not in hidden
        ),
        *(
            pl.col(name).alias(f"o:{name}")
            for name in [*order_columns(hidden), *(each for each in FROM if each in hidden)]
        ),
    )


def _rows(told: pl.DataFrame, side: int, schema: pl.Schema) -> pl.DataFrame:
    """The rows in a delta, in the order in which they came."""
    told = told.sort("id", maintain_order=True)
    prefix = f"{'lr'[side]}:"
    there = [
        pl.col(f"{prefix}{name}").alias(name)
        if f"{prefix}{name}" in told.columns
        else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    ]
    order = [pl.col(name).alias(name[2:]) for name in told.columns if name.startswith("o:")]
    short = [pl.col(name).alias(to) for name, to in _SHORT.items() if name in told.columns]
    return told.select(*there, *order, *short).rechunk()
