"""Functions of frames: each epoch's rows as one frame, at its end (M8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import polars as pl

from anabranch.kernels.bundle import OFFSET, PARTITION, PHASE, SLICE, TIME, sub
from anabranch.kernels.failures import BadRow, Failed, told
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.stateless.python_rows import records_of
from anabranch.program.functions import OnError
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.rowwise import MapBatches


@dataclass(frozen=True, slots=True)
class Nothing:
    """The state of an operator that keeps nothing from one epoch to the next."""

    version: int = 0

    @property
    def oldest(self) -> int:
        """Any version is as good."""
        return 0

    def at(self, version: int) -> Nothing:
        """Nothing."""
        return Nothing(version)

    def fold(self, version: int) -> Nothing:
        """Nothing."""
        del version
        return self

    def whole(self) -> pl.DataFrame:
        """No rows."""
        return pl.DataFrame(schema={"slice": pl.UInt16()})


@dataclass(frozen=True)
class BatchesKernel:
    """A function of frames over the whole stream.

    What it makes need not correspond to rows, so it follows the epoch's records, with the greatest
    of their event times.
    """

    operator: str
    number: int
    call: Callable[[pl.DataFrame], Any]
    given: pl.Schema
    out: pl.Schema
    on_error: OnError
    lag: int = 0

    @classmethod
    def of(cls, graph: Graph, op: MapBatches) -> Self:
        """Lower the operator."""
        given = graph.output(op.inputs[0]).schema
        return cls(op.name, op.id, op.function.call, given, op.outputs[OUT].schema, op.on_error)

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> Nothing:
        """There is nothing to restore."""
        del deltas
        return Nothing(version)

    def run(self, taken: Taken, state: Nothing) -> Given[Nothing]:
        """Give the function the epoch's rows; an error of it is one of all of them."""
        (rows,) = taken.rows
        made, letters = self._called(rows) if rows.height else (pl.DataFrame(schema=self.out), 0)
        placed = made.with_columns(
            pl.lit(rows[TIME].max(), pl.Int64).alias(TIME),
            pl.lit(0, pl.UInt16).alias(SLICE),
            pl.lit(1, pl.Int8).alias(PHASE),
            pl.lit(self.number, pl.Int32).alias(PARTITION),
            pl.lit(0, pl.Int64).alias(OFFSET),
            pl.int_range(made.height, dtype=pl.Int64).alias(sub(self.number)),
        )
        return Given({OUT: placed}, Nothing(state.version + 1), state.whole(), letters=letters)

    def _called(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        frame = rows.select(list(self.given))
        try:
            return self._checked(self.call(frame)), 0
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            if self.on_error == "fail":
                (record, *_) = records_of(frame.head(1), frame.columns)
                raise Failed(told(self.operator, error, record)) from None
            return pl.DataFrame(schema=self.out), rows.height

    def _checked(self, made: Any) -> pl.DataFrame:
        if not isinstance(made, pl.DataFrame):
            message = f"expected a frame, got {type(made).__name__}"
            raise BadRow(message)
        if dict(made.schema) != dict(self.out):
            message = f"expected the columns {dict(self.out)}, got {dict(made.schema)}"
            raise BadRow(message)
        return made.select(list(self.out))
