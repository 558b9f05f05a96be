"""What enters a feedback in one epoch, and comes out of it at the start of the next (M14).

All rows are in one lane. A delta has the columns `slice`, `epoch`, `at` (the place in which a row
entered), and the user's with a `c:` before them. It says all there is behind an epoch: what entered
in epochs before is gone. A row at `CLOSED` is no row, so that a delta tells of its epoch where
nothing entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl

from anabranch.kernels.bundle import FROM, OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.failures import Failed, failing, told
from anabranch.kernels.layers import Slices, mine, require_folded
from anabranch.kernels.shelf import Shelf
from anabranch.kernels.stateless.columns import framed
from anabranch.kernels.stateless.python_rows import records_of
from anabranch.kernels.times import micros_of
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Feedback
from anabranch.program.operators.operator import OUT
from anabranch.program.schema import TimeType

CLOSED = -1
"""The place of the row in a delta that says of which epoch it is."""

_HEAD: Mapping[str, pl.DataType] = {"slice": pl.UInt16(), "epoch": pl.Int64(), "at": pl.Int64()}


@dataclass(frozen=True, slots=True)
class FeedbackState:
    """Rows that come out in the next epoch, at each of some versions that follow one another."""

    first: int
    """The version of the first of them."""
    frames: tuple[pl.DataFrame, ...]
    """Deltas: each is all there is at its version."""

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.first + len(self.frames) - 1

    @property
    def oldest(self) -> int:
        """The first version that is known."""
        return self.first

    @property
    def rows(self) -> pl.DataFrame:
        """The rows that come out next, in order."""
        newest = self.frames[-1]
        return newest.filter(pl.col("at") != CLOSED) if newest.height else newest

    def at(self, version: int) -> Self:
        """The state at an earlier version."""
        self._require_known(version)
        return replace(self, frames=self.frames[: version - self.first + 1])

    def then(self, delta: pl.DataFrame) -> Self:
        """The state after one more epoch."""
        return replace(self, frames=(*self.frames, delta))

    def fold(self, version: int) -> Self:
        """The same state without versions before this one."""
        self._require_known(version)
        return replace(self, first=version, frames=self.frames[version - self.first :])

    def together(self, since: int) -> tuple[Self, pl.DataFrame]:
        """The same state; and what the newest epoch says, which is all that counts."""
        self._require_known(since)
        return self.fold(self.version), self.frames[-1]

    def whole(self, slices: Slices | None = None) -> pl.DataFrame:
        """All of it, or of some slices, as one delta."""
        return mine(self.frames[-1], slices)

    def only(self, slices: Slices) -> Self:
        """The same state, of these slices alone."""
        return replace(self, frames=tuple(mine(frame, slices) for frame in self.frames))

    def joined(self, other: Self) -> Self:
        """This state and one of other slices, both folded."""
        require_folded(self.version, self.oldest)
        require_folded(other.version, other.oldest)
        return replace(self, frames=(_newest([self.frames[-1], other.frames[-1]]),))

    def shelved(self, shelf: Shelf) -> Self:
        """The same state, with the pieces that a shelf gave back."""
        return replace(self, frames=tuple(shelf.frame(frame) for frame in self.frames))

    def _require_known(self, version: int) -> None:
        if not self.oldest <= version <= self.version:
            message = f"no state at version {version}: {self.oldest} to {self.version} are known"
            raise LookupError(message)


@dataclass(frozen=True)
class FeedbackKernel:
    """A stream that is read before it is written: it gives first, and takes at an epoch's end."""

    operator: str
    partition: int
    """In the place of its rows' partition: before all of a source's, in the order of feedbacks."""
    schema: pl.Schema
    event_time: str | None = None
    time: TimeType | None = None
    carried: tuple[str, ...] = ()
    """Hidden columns that are held with a row: where it comes from, if a dead letter may tell."""

    @classmethod
    def of(cls, graph: Graph, op: Feedback) -> Self:
        """Lower a feedback."""
        partition = sorted(graph.feedback).index(op.id) - len(graph.feedback)
        out = op.outputs[OUT]
        return cls(op.name, partition, out.schema, op.event_time, out.time)

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> FeedbackState:
        """The state after epochs with these deltas."""
        return FeedbackState(version, (_newest([self._nothing(), *deltas]),))

    def after(self, state: FeedbackState, deltas: Iterable[pl.DataFrame]) -> FeedbackState:
        """The state after more epochs with these deltas, folded."""
        more = state.then(_newest([state.frames[-1], *deltas]))
        return more.fold(more.version)

    def given(self, state: FeedbackState) -> pl.DataFrame:
        """What entered in the epoch before, as rows of this one."""
        held = state.rows
        names = (*self.schema, *self.carried)
        columns = [held[f"c:{name}"].alias(name) for name in names]
        height = held.height
        columns += [
            self._times(held).alias(TIME),
            held["slice"].alias(SLICE),
            pl.Series(PARTITION, np.full(height, self.partition, dtype=np.int32)),
            held["at"].alias(OFFSET),
        ]
        return framed(columns, height)

    def closed(
        self, epoch: int, rows: pl.DataFrame, state: FeedbackState
    ) -> tuple[FeedbackState, pl.DataFrame]:
        """The state behind an epoch in which these rows entered, in order; and its delta."""
        marker = pl.DataFrame({"slice": [0], "epoch": [epoch], "at": [CLOSED]}, schema=_HEAD)
        entered = rows.select(
            pl.lit(0, pl.UInt16).alias("slice"),
            pl.lit(epoch, pl.Int64).alias("epoch"),
            pl.int_range(pl.len(), dtype=pl.Int64).alias("at"),
            *(pl.col(name).alias(f"c:{name}") for name in (*self.schema, *self.carried)),
        )
        delta = pl.concat([marker, entered], how="diagonal").select(entered.columns)
        return state.then(delta), delta

    def _times(self, held: pl.DataFrame) -> pl.Series:
        """Event times by their column; a row without one ends the run, as it comes out."""
        if self.event_time is None or self.time is None:
            return pl.repeat(None, held.height, dtype=pl.Int64, eager=True)
        values = held[f"c:{self.event_time}"]
        if values.null_count():
            first = values.is_null().arg_max()
            assert first is not None
            names = (pl.col(f"c:{name}").alias(name) for name in self.schema)
            row = held.slice(first, 1).select(names)
            (record,) = records_of(row, tuple(self.schema))
            missing = ValueError(f"null event time in column {self.event_time!r}")
            raise Failed(told(self.operator, missing, record))
        with failing(self.operator):
            return micros_of(values, self.time)

    def _nothing(self) -> pl.DataFrame:
        columns = {**self.schema, **{name: FROM[name] for name in self.carried}}
        return pl.DataFrame(schema={**_HEAD, **{f"c:{name}": columns[name] for name in columns}})


def _newest(deltas: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """What the newest epoch says, with the columns of the first delta."""
    frames = list(deltas)
    # What is carried may be more or less than it was when a row entered.
    rows = pl.concat(frames, how="diagonal").select(frames[0].columns)
    return rows.filter(pl.col("epoch") == pl.col("epoch").max())
