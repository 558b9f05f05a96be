"""How a program runs: which operators run together, what is parallel by what, and why.

A plan adds facts to a graph and changes nothing in it. How many run in parallel is no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.keyed import Process
from anabranch.program.operators.operator import Operator
from anabranch.program.operators.windowed import WindowAggregate

Routing: TypeAlias = Literal["any", "key", "one"]
"""Rows go to whoever is free, to the owner of their key's slice, or all to one."""

Ordering: TypeAlias = Literal["none", "order-keys"]
"""Rows leave as they come, or are put in the order of their keys (M5) where they leave."""

HIDDEN = "__ab_"
"""How the names of columns begin that travel beside the user's."""

JointKind: TypeAlias = Literal["source", "shuffle", "sink"]

Stateful: TypeAlias = Process | WindowAggregate


@dataclass(frozen=True, slots=True)
class Region:
    """Operators that run together in one task, in order."""

    id: int
    operators: tuple[OperatorId, ...]
    parallel: bool
    key: tuple[str, ...] | None
    """The columns whose values decide the slice; none: all rows are in one slice."""
    routing: Routing
    ordering: Ordering
    because: str


@dataclass(frozen=True, slots=True)
class Joint:
    """Where rows enter a region, from the outside or from another region, or leave the last."""

    kind: JointKind
    before: int | None
    """The region that gives the rows; None at a source."""
    behind: int | None
    """The region that takes them; None at a sink."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph divided into regions, in topological order, with the joints between them."""

    graph: Graph
    regions: tuple[Region, ...]
    joints: tuple[Joint, ...]

    @property
    def head(self) -> Region:
        """The region that reads; it has no state, so it runs anywhere and at any time."""
        return self.regions[0]

    @property
    def keyed(self) -> Region | None:
        """The region with state, whose slices live in lanes; None where nothing has state."""
        return self.regions[1] if len(self.regions) > 1 else None

    @property
    def read(self) -> Read:
        """The one source."""
        return self.graph.sources[0]

    @property
    def write(self) -> Write:
        """The one sink."""
        return self.graph.sinks[0]

    def operators(self, region: Region) -> tuple[Operator, ...]:
        """A region's operators, in order."""
        return tuple(self.graph[number] for number in region.operators)

    @property
    def stateful(self) -> Stateful | None:
        """The operator with state; it is the first of its region."""
        if self.keyed is None:
            return None
        op = self.graph[self.keyed.operators[0]]
        assert isinstance(op, Process | WindowAggregate)
        return op
