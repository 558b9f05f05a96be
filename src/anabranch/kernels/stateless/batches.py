"""Functions of frames: each epoch's rows as one frame, at its end (M8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from anabranch.kernels.bundle import (
    FROM,
    FROM_OFFSET,
    FROM_PARTITION,
    OFFSET,
    PARTITION,
    PHASE,
    SLICE,
    TIME,
    sub,
)
from anabranch.kernels.failures import Failed, told
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.letters import letters_about
from anabranch.kernels.state import Nothing
from anabranch.kernels.stateless.columns import framed
from anabranch.kernels.stateless.frames import Frames
from anabranch.kernels.stateless.python_rows import records_of
from anabranch.program.functions import OnError
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import DEAD_LETTERS, OUT
from anabranch.program.operators.rowwise import MapBatches


@dataclass(frozen=True)
class BatchesKernel:
    """A function of frames over the whole stream.

    What it makes need not correspond to rows, so it follows the epoch's records, with the greatest
    of their event times.
    """

    operator: str
    number: int
    frames: Frames
    on_error: OnError
    lag: int = 0

    @classmethod
    def of(cls, graph: Graph, op: MapBatches) -> Self:
        """Lower the operator."""
        given = graph.output(op.inputs[0]).schema
        frames = Frames(op.function.call, tuple(given), op.outputs[OUT].schema)
        return cls(op.name, op.id, frames, op.on_error)

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> Nothing:
        """There is nothing to restore."""
        del deltas
        return Nothing(version, version)

    def after(self, state: Nothing, deltas: Iterable[pl.DataFrame]) -> Nothing:
        """The same nothing."""
        del deltas
        return state

    def run(self, taken: Taken, state: Nothing) -> Given[Nothing]:
        """Give the function the epoch's rows; an error of it is one of all of them."""
        (rows,) = taken.rows
        made, error = self._called(rows)
        time = pl.repeat(rows[TIME].max(), made.height, dtype=pl.Int64, eager=True)
        found = {OUT: framed([*made, *self._places(time)], made.height)}
        failed = rows.clear() if error is None else rows
        if self.on_error == "dead_letter":
            found[DEAD_LETTERS] = self._letters(failed, error)
        return Given(found, state.then(), state.whole(), letters=failed.height)

    def _called(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, Exception | None]:
        if not rows.height:
            return self.frames.nothing(), None
        try:
            return self.frames(rows), None
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            if self.on_error == "fail":
                (record,) = records_of(rows.head(1), self.frames.columns)
                raise Failed(told(self.operator, error, record)) from None
            return self.frames.nothing(), error

    def _letters(self, rows: pl.DataFrame, error: Exception | None) -> pl.DataFrame:
        """A letter for each row: it follows the epoch's records, at its record's own time."""
        records = records_of(rows, self.frames.columns)
        places = framed([*self._places(rows[TIME]), *_origin(rows)], rows.height)
        errors = None if error is None else [error] * rows.height
        return letters_about(self.operator, records, places, "error", errors)

    def _places(self, times: pl.Series) -> list[pl.Series]:
        """The hidden columns of rows at these times that the end of the epoch makes (M5)."""
        height = len(times)
        return [
            times.alias(TIME),
            pl.Series(SLICE, np.zeros(height, dtype=np.uint16)),
            pl.Series(PHASE, np.ones(height, dtype=np.int8)),
            pl.Series(PARTITION, np.full(height, self.number, dtype=np.int32)),
            pl.Series(OFFSET, np.zeros(height, dtype=np.int64)),
            pl.Series(sub(self.number), np.arange(height, dtype=np.int64)),
        ]


def _origin(rows: pl.DataFrame) -> list[pl.Series]:
    """Which records these are, null for rows that a watermark made."""
    if not rows.height:
        # Where there are no rows, there may be no order columns.
        schema = {FROM_PARTITION: pl.Int32(), FROM_OFFSET: pl.Int64()}
        return pl.DataFrame(schema=schema).get_columns()
    places = rows.select(
        pl.col(PARTITION).cast(pl.Int32).alias(FROM_PARTITION),
        pl.col(OFFSET).cast(pl.Int64).alias(FROM_OFFSET),
    )
    if PHASE in rows.columns:
        places = places.select(pl.when(rows[PHASE].is_null()).then(pl.all()))
    known = [rows[name] for name in FROM if name in rows.columns]
    return [*places.get_columns(), *known]
