"""Pairs of rows of two streams with equal keys and near times (M13).

A pair leaves when its later record arrives: it has that one's order columns, and as `sub` the
partner's number. A row of an outer side that no row can match any more leaves alone, in phase 1.
How far the watermarks were says which rows have gone already, so state need not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from anabranch.kernels.bundle import (
    OFFSET,
    PARTITION,
    PHASE,
    SLICE,
    TIME,
    in_order,
    order_columns,
    sub,
)
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.letters import letters_of
from anabranch.kernels.together.arrival import ID, PLACES, ids, places
from anabranch.kernels.together.held import bound_of
from anabranch.kernels.together.join_order import Parts
from anabranch.kernels.together.join_pairs import Pairs
from anabranch.kernels.together.join_run import FARTHEST, Run
from anabranch.kernels.together.join_state import (
    MATCHED,
    SIDE,
    JoinState,
    Matching,
    marks_of,
    restored,
)
from anabranch.kernels.together.join_tables import LEFT, RIGHT, Table
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import DEAD_LETTERS, OUT, Port
from anabranch.program.operators.together import Join

_OUTER = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}


@dataclass(frozen=True)
class JoinKernel:
    """A join of two streams."""

    operator: str
    number: int
    on: tuple[str, ...]
    within: int
    outer: tuple[int, ...]
    """The sides of which rows leave alone."""
    schemas: tuple[pl.Schema, pl.Schema]
    right_names: tuple[tuple[str, str], ...]
    parts: Parts
    letters: bool = False
    """Whether letters about rows that came too late are read."""
    carried: tuple[str, ...] = ()
    """Hidden columns that are kept with a row: where it comes from, if a dead letter may tell."""

    @classmethod
    def of(cls, graph: Graph, op: Join) -> Self:
        """Lower a join."""
        left, right = (graph.output(port).schema for port in op.inputs)
        within, outer = min(op.within, FARTHEST), _OUTER[op.how]
        parts = Parts.of(graph, op)
        schemas, letters = (left, right), graph.is_read(Port(op.id, DEAD_LETTERS))
        return cls(op.name, op.id, op.on, within, outer, schemas, op.right_names, parts, letters)

    @property
    def lag(self) -> int:
        """Rows that leave alone are that much older than the watermark that lets them go."""
        return self.within if self.outer else 0

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> JoinState:
        """The state after epochs with these deltas."""
        return restored(deltas, self.schemas, self.on, version)

    def after(self, state: JoinState, deltas: Iterable[pl.DataFrame]) -> JoinState:
        """The state after more epochs with these deltas."""
        return state.after(self.restore(deltas))

    def run(self, taken: Taken, state: JoinState) -> Given[JoinState]:
        """Pair the new rows with those stored and with each other, then let go of what is due."""
        low, high = bound_of(taken.before, self.within), bound_of(taken.after, self.within)
        inputs, late = self._in_time(taken.rows, low)
        stored = list(state)
        found = Pairs.of(self._tables(taken.epoch, inputs, stored), self.within, low)
        pairs, *columns = self._same(found)
        pieces = (*stored, Matching(self._matched(pairs), self._marks(pairs)))
        rows = [self._beside(pairs, *columns)]
        if high is not None and self.outer:
            rows += self._alone(pieces, low, high)
        held = pieces[-1] if high is None else pieces[-1].kept(high)
        out = pl.concat(rows, how="diagonal") if len(rows) > 1 else rows[0]
        letters = sum(rows.height for rows in taken.rows) - sum(rows.height for rows in inputs)
        given = {OUT: out, **late}
        return Given(given, state.then(held, high), held.delta(high), letters=letters)

    def _tables(
        self, epoch: int, inputs: Sequence[pl.DataFrame], stored: Sequence[Matching]
    ) -> tuple[Table, Table]:
        """The rows of either side that an epoch looks at."""
        place = places(inputs)
        new = [
            Run.of(rows.hstack([ids(epoch, at)]), self.on)
            for rows, at in zip(inputs, place, strict=True)
        ]
        left, right = (
            Table(
                [
                    *(piece.asked(side, new[1 - side], self.within) for piece in stored),
                    new[side],
                ],
                place[side],
            )
            for side in (LEFT, RIGHT)
        )
        return left, right

    def _in_time(
        self, given: Sequence[pl.DataFrame], low: int | None
    ) -> tuple[Sequence[pl.DataFrame], Mapping[str, pl.DataFrame]]:
        """The rows that are not too late, and letters about the others where they are read."""
        inputs, letters = [], []
        for schema, rows in zip(self.schemas, given, strict=True):
            late = _before(rows, low)
            kept = rows.filter(pl.col(TIME) >= low) if late.height else rows
            hidden = [*order_columns(rows.columns), TIME, SLICE, *self.carried]
            inputs.append(kept[[*schema, *hidden]])
            if self.letters:
                letters.append(letters_of(self.operator, late, list(schema), "late"))
        return inputs, {DEAD_LETTERS: in_order(letters)} if self.letters else {}

    # Pairs

    def _same(self, pairs: Pairs) -> tuple[Pairs, pl.DataFrame, pl.DataFrame]:
        """The pairs with the same keys, and the visible columns of either side."""
        left, right = pairs.tables
        names = [*self.on, *(name for name, _ in self.right_names)]
        one = left.columns(list(self.schemas[LEFT]))[pairs.left]
        two = right.columns(names)[pairs.right]
        # Polars' equality is that of M6 for all that can be a key of one type.
        same = [one[name] == two[name] for name in self.on]
        if all(each.all() for each in same):
            return pairs, one, two
        keep = pl.Series(np.logical_and.reduce([each.to_numpy() for each in same]))
        return pairs.only(keep), one.filter(keep), two.filter(keep)

    def _beside(self, pairs: Pairs, one: pl.DataFrame, two: pl.DataFrame) -> pl.DataFrame:
        """The columns of both, and the hidden ones."""
        new = [table.new.rows for table in pairs.tables]
        hidden = [rows.select(*order_columns(rows.columns), SLICE, *self.carried) for rows in new]
        order = pl.concat(hidden, how="diagonal", rechunk=True)[pairs.later]
        numbers = [run.rows[ID] for table in pairs.tables for run in table.runs]
        return pl.DataFrame(
            [
                *one,
                *(two[name].alias(to) for name, to in self.right_names),
                *(order[name] for name in [*order_columns(order.columns), SLICE, *self.carried]),
                pairs.times.alias(TIME),
                pl.concat(numbers, rechunk=True).gather(pairs.partner).alias(sub(self.number)),
            ]
        )

    # Rows that leave alone

    def _matched(self, pairs: Pairs) -> tuple[Run, Run]:
        """The new rows, with whether they have a partner already."""
        left, right = (
            table.new.with_column(pl.Series(MATCHED, pairs.met(side)[table.stored :]))
            if side in self.outer
            else table.new.without_order()
            for side, table in enumerate(pairs.tables)
        )
        return left, right

    def _marks(self, pairs: Pairs) -> pl.DataFrame:
        """Marks for the older rows of outer sides that have a partner now."""
        marks = []
        for side in self.outer:
            table = pairs.tables[side]
            met = pl.Series(pairs.met(side)[: table.stored])
            marks.append(
                table.columns([SLICE, ID, TIME])[: table.stored]
                .filter(met)
                .select(
                    pl.lit(side, pl.UInt8).alias(SIDE),
                    pl.col(SLICE).cast(pl.UInt16).alias("slice"),
                    pl.col(ID).alias("id"),
                    pl.col(TIME).alias("time"),
                )
            )
        return marks_of(marks)

    def _alone(self, pieces: Sequence[Matching], low: int | None, high: int) -> list[pl.DataFrame]:
        """The rows of outer sides that can match no more and never did, in order."""
        marks = pl.concat([piece.marked(low, high) for piece in pieces])
        found = []
        for side in self.outer:
            for piece in pieces:
                rows = piece.between(side, low, high)
                if rows.height:
                    found.append(self._outgoing(rows, side, marks))
        # Where none is left, none of their columns is either.
        return [in_order(found)] if any(rows.height for rows in found) else []

    def _outgoing(self, rows: pl.DataFrame, side: int, marks: pl.DataFrame) -> pl.DataFrame:
        mine = marks.filter(pl.col(SIDE) == side)
        alone = rows.filter(~pl.col(MATCHED)).join(
            mine, left_on=[SLICE, ID], right_on=["slice", "id"], how="anti"
        )
        none = pl.lit(None)
        left = [
            pl.col(name) if side == LEFT or name in self.on else none.cast(dtype).alias(name)
            for name, dtype in self.schemas[LEFT].items()
        ]
        right = [
            (pl.col(name) if side == RIGHT else none.cast(self.schemas[RIGHT][name])).alias(to)
            for name, to in self.right_names
        ]
        parts = [pl.col(name).alias(self.parts.name(name)) for name in order_columns(rows.columns)]
        return alone.select(
            *left,
            *right,
            TIME,
            SLICE,
            pl.lit(1, pl.Int8).alias(PHASE),
            pl.lit(self.number, pl.Int32).alias(PARTITION),
            pl.col(TIME).alias(OFFSET),
            pl.lit(side, pl.Int8).alias(self.parts.side),
            (pl.col(ID) // PLACES).alias(self.parts.epoch),
            *parts,
            *self.carried,
        )


def _before(rows: pl.DataFrame, low: int | None) -> pl.DataFrame:
    least = rows[TIME].min()
    if low is None or least is None or least >= low:  # type: ignore[operator]
        return rows.clear()
    return rows.filter(pl.col(TIME) < low)
