"""The rows of two streams in the order of their keys (M14)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import polars as pl

from anabranch.kernels.bundle import hidden, in_order
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.windows.windows import SLICE
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.together import Union


@dataclass(frozen=True, slots=True)
class Nothing:
    """The state of an operator that keeps none."""

    version: int = 0
    oldest: int = 0

    def at(self, version: int) -> Self:
        """The same nothing, earlier."""
        self._require_known(version)
        return replace(self, version=version)

    def then(self) -> Self:
        """The same nothing, an epoch later."""
        return replace(self, version=self.version + 1)

    def fold(self, version: int) -> Self:
        """The same nothing, committed."""
        self._require_known(version)
        return replace(self, oldest=version)

    def whole(self) -> pl.DataFrame:
        """A delta without rows."""
        return pl.DataFrame(schema={SLICE: pl.UInt16})

    def _require_known(self, version: int) -> None:
        if not self.oldest <= version <= self.version:
            message = f"no state at version {version}: {self.oldest} to {self.version} are known"
            raise LookupError(message)


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

    def run(self, taken: Taken, state: Nothing) -> Given[Nothing]:
        """Put the rows of both in order."""
        frames = [rows.select([*self.columns, *hidden(rows)]) for rows in taken.rows]
        return Given({OUT: in_order(frames)}, state.then(), state.whole())
