"""Rows to the first branch whose predicate is true (M8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import polars as pl

from anabranch.kernels.failures import failing
from anabranch.kernels.stateless.evaluated import Evaluated
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import REST
from anabranch.program.operators.rowwise import Split


@dataclass(frozen=True)
class Branches:
    """A split, lowered: it keeps nothing, and has several outputs."""

    name: str
    predicates: tuple[tuple[str, Evaluated], ...]

    @classmethod
    def of(cls, graph: Graph, op: Split) -> Self:
        """Lower the operator."""
        given = graph.output(op.inputs[0]).schema
        found = tuple((name, Evaluated.of([each], given)) for name, each in op.predicates)
        return cls(op.name, found)

    def run(self, rows: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
        """Divide rows; a predicate is asked only about those that no earlier one took."""
        outputs = {}
        for name, predicate in self.predicates:
            with failing(self.name):
                mask = predicate.over(rows).to_series().fill_null(value=False)
            outputs[name] = rows.filter(mask)
            rows = rows.filter(~mask)
        return {**outputs, REST: rows}
