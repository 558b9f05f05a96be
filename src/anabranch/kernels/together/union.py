"""The rows of two streams in the order of their keys (M14)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import polars as pl

from anabranch.kernels.bundle import hidden, in_order
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.state import Nothing
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.together import Union


@dataclass(frozen=True)
class UnionKernel:
    """Two streams as one."""

    operator: str
    columns: tuple[str, ...]
    """The left one's, in its order."""

    @classmethod
    def of(cls, graph: Graph, op: Union) -> Self:
        """Lower a union."""
        del graph
        return cls(op.name, tuple(op.outputs[OUT].schema))

    @property
    def lag(self) -> int:
        """Its output's watermark is its own."""
        return 0

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> Nothing:
        """Nothing is kept."""
        del deltas
        return Nothing(version, version)

    def after(self, state: Nothing, deltas: Iterable[pl.DataFrame]) -> Nothing:
        """The same nothing."""
        del deltas
        return state

    def run(self, taken: Taken, state: Nothing) -> Given[Nothing]:
        """Put the rows of both in order."""
        frames = [rows.select([*self.columns, *hidden(rows)]) for rows in taken.rows]
        return Given({OUT: in_order(frames)}, state.then(), state.whole())
