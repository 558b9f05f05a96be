"""Pairs of rows of two streams with equal keys and near times (M13).

A pair leaves when its later record arrives: it has that one's order columns, and as `sub` the
partner's number. A row of an outer side that no row can match any more leaves alone, in phase 1.
How far the watermarks were says which rows have gone already, so state need not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from anabranch.kernels.together.arrival import ID, PLACES, ids, places
from anabranch.kernels.together.held import bound_of
from anabranch.kernels.together.join_order import Parts
from anabranch.kernels.together.join_run import FARTHEST, Positions, Run
from anabranch.kernels.together.join_state import (
    MATCHED,
    SIDE,
    JoinState,
    Matching,
    marks_of,
    restored,
)
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.together import Join

LEFT, RIGHT = 0, 1
_OUTER = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}
_PLACE = 32
"""Two positions make one number: no epoch has 2**31 rows."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Pairs of new rows of one side and their partners, by new row and then by arrival."""

    side: int
    """The later records' side."""
    later: pl.DataFrame
    later_at: Positions
    partner: pl.DataFrame
    partner_at: Positions
    stored: bool
    """Whether the partners came in earlier epochs."""

    @classmethod
    def of(
        cls, side: int, later: Run, partner: Run, at: tuple[Positions, Positions], *, stored: bool
    ) -> Hits:
        """Put pairs in order; a position is an arrival."""
        packed = pl.Series((at[0] << _PLACE) | at[1]).sort().to_numpy()
        later_at, partner_at = packed >> _PLACE, packed & (PLACES - 1)
        return cls(side, later.rows, later_at, partner.rows, partner_at, stored)


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

    @classmethod
    def of(cls, graph: Graph, op: Join) -> Self:
        """Lower a join."""
        left, right = (graph.output(port).schema for port in op.inputs)
        within, outer = min(op.within, FARTHEST), _OUTER[op.how]
        parts = Parts.of(graph, op)
        return cls(op.name, op.id, op.on, within, outer, (left, right), op.right_names, parts)

    @property
    def lag(self) -> int:
        """Rows that leave alone are that much older than the watermark that lets them go."""
        return self.within if self.outer else 0

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> JoinState:
        """The state after epochs with these deltas."""
        return restored(deltas, self.schemas, self.on, version)

    def run(self, taken: Taken, state: JoinState) -> Given[JoinState]:
        """Pair the new rows with those stored and with each other, then let go of what is due."""
        low, high = bound_of(taken.before, self.within), bound_of(taken.after, self.within)
        new, late = self._new(taken, low)
        hits = list(self._hits(new, state, low))
        new = self._matched(new, hits)
        pieces = (*state, Matching(new, self._marks(hits)))
        rows = [self._pairs(hits, new)]
        if high is not None and self.outer:
            rows += self._alone(pieces, low, high)
        held = pieces[-1] if high is None else pieces[-1].kept(high)
        out = pl.concat(rows, how="diagonal") if len(rows) > 1 else rows[0]
        return Given({OUT: out}, state.then(held, high), held.delta(high), letters=late)

    def _new(self, taken: Taken, low: int | None) -> tuple[tuple[Run, Run], int]:
        """The new rows that are not too late, in the order in which they are taken."""
        inputs = taken.rows
        if low is not None:
            inputs = [_not_before(rows, low) for rows in inputs]
        late = sum(rows.height for rows in taken.rows) - sum(rows.height for rows in inputs)
        left, right = (
            Run.of(self._stored(rows, side).hstack([ids(taken.epoch, place)]), self.on)
            for side, (rows, place) in enumerate(zip(inputs, places(inputs), strict=True))
        )
        return (left, right), late

    def _stored(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        return rows[[*self.schemas[side], *order_columns(rows.columns), TIME, SLICE]]

    def _hits(self, new: tuple[Run, Run], state: JoinState, low: int | None) -> Iterator[Hits]:
        """Pairs of new rows with stored ones, the oldest first, then with each other."""
        for side, later in enumerate(new):
            if later.height:
                for piece in state:
                    partner = piece.sides[1 - side]
                    at = partner.partners(later, self.within, low)
                    yield Hits.of(side, later, partner, at, stored=True)
        left, right = new
        if left.height and right.height:
            at_left, at_right = right.partners(left, self.within, low)
            came = left.rows[ID].to_numpy()[at_left] < right.rows[ID].to_numpy()[at_right]
            at = (at_right[came], at_left[came])
            yield Hits.of(RIGHT, right, left, at, stored=False)
            at = (at_left[~came], at_right[~came])
            yield Hits.of(LEFT, left, right, at, stored=False)

    # Pairs

    def _pairs(self, hits: Sequence[Hits], new: tuple[Run, Run]) -> pl.DataFrame:
        found = [self._beside(each) for each in hits if len(each.later_at)]
        if not found:
            nothing = np.empty(0, np.int64)
            hit = Hits.of(RIGHT, new[RIGHT], new[LEFT], (nothing, nothing), stored=False)
            return self._beside(hit)
        if len(found) == 1:
            return found[0]
        rows = pl.concat(found, how="diagonal")
        later = [each.later[ID].gather(each.later_at) for each in hits if len(each.later_at)]
        # Of one later record the pieces come in the order of their age.
        order = np.argsort(pl.concat(later).to_numpy(), kind="stable")
        return rows[order]

    def _beside(self, hits: Hits) -> pl.DataFrame:
        """The columns of both, and the hidden ones."""
        left, right = list(self.schemas[LEFT]), [name for name, _ in self.right_names]
        mine, theirs = (left, right) if hits.side == LEFT else (right, left)
        order = order_columns(hits.later.columns)
        new = hits.later[[*mine, *order, SLICE, TIME]][hits.later_at]
        old = hits.partner[[*theirs, ID, TIME]][hits.partner_at]
        one, two = (new, old) if hits.side == LEFT else (old, new)
        return pl.DataFrame(
            [
                *(one[name] for name in left),
                *(two[name].alias(to) for name, to in self.right_names),
                *(new[name] for name in [*order, SLICE]),
                pl.Series(TIME, np.maximum(new[TIME].to_numpy(), old[TIME].to_numpy())),
                old[ID].alias(sub(self.number)),
            ]
        )

    # Rows that leave alone

    def _matched(self, new: tuple[Run, Run], hits: Sequence[Hits]) -> tuple[Run, Run]:
        """The new rows, with whether they have a partner already."""
        flags = [np.zeros(run.height, dtype=bool) for run in new]
        for each in hits:
            flags[each.side][each.later_at] = True
            if not each.stored:
                flags[1 - each.side][each.partner_at] = True
        left, right = (
            run.with_column(pl.Series(MATCHED, flags[side]))
            if side in self.outer
            else run.without_order()
            for side, run in enumerate(new)
        )
        return left, right

    def _marks(self, hits: Sequence[Hits]) -> pl.DataFrame:
        """Marks for the older rows of outer sides that have a partner now."""
        marks = [
            each.partner.select(
                pl.lit(1 - each.side, pl.UInt8).alias(SIDE),
                pl.col(SLICE).cast(pl.UInt16).alias("slice"),
                pl.col(ID).alias("id"),
                pl.col(TIME).alias("time"),
            )[np.unique(each.partner_at)]
            for each in hits
            if each.stored and 1 - each.side in self.outer and len(each.partner_at)
        ]
        return marks_of(marks)

    def _alone(self, pieces: Sequence[Matching], low: int | None, high: int) -> list[pl.DataFrame]:
        """The rows of outer sides that can match no more and never did, in order."""
        marks = pl.concat([piece.marked(low, high) for piece in pieces])
        found = []
        for side in self.outer:
            for piece in pieces:
                rows = piece.sides[side].between(low, high)
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
        )


def _not_before(rows: pl.DataFrame, low: int) -> pl.DataFrame:
    least = rows[TIME].min()
    return rows if least is None or least >= low else rows.filter(pl.col(TIME) >= low)  # type: ignore[operator]
