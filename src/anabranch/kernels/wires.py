"""One input of an operator or a sink."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from anabranch.compiler.branches import branches
from anabranch.kernels.bundle import branch
from anabranch.program.graph import Edge, Graph
from anabranch.program.operators.operator import Operator, Port


@dataclass(frozen=True, slots=True)
class Wire:
    """A port as one of its readers sees it."""

    port: Port
    branch: tuple[str, int] | None = None
    """Where readers of a port meet again: the column that tells them apart, and its value (M5)."""

    def carry(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as this reader gets them."""
        if self.branch is None:
            return rows
        name, number = self.branch
        return rows.with_columns(pl.lit(number, pl.Int64).alias(name))


def wires_of(graph: Graph, op: Operator) -> tuple[Wire, ...]:
    """The inputs of an operator."""
    return tuple(_wire(graph, port, Edge(op.id, at)) for at, port in enumerate(op.inputs))


def _wire(graph: Graph, port: Port, reader: Edge) -> Wire:
    number = branches(graph, port).get(reader)
    return Wire(port, None if number is None else (branch(port.operator), number))
