"""Where a port's rows go, and in which order among several readers (M5: diamonds)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key

from anabranch.ids import OperatorId
from anabranch.program.graph import Edge, Graph
from anabranch.program.operators.operator import Port
from anabranch.testing.sequential.row import Row


@dataclass(frozen=True, slots=True)
class Route:
    """One reader of a port; in a diamond a branch number is appended to the row's key."""

    edge: Edge
    branch: int | None

    def carry(self, row: Row) -> Row:
        """The row as this reader gets it."""
        return row if self.branch is None else replace(row, key=(*row.key, self.branch))


def routes_of(graph: Graph, port: Port) -> Sequence[Route]:
    """The readers of a port.

    Where some of them meet again further down, the rows of one record must arrive there in a fixed
    order: each branch gets a number. Of two branches the one comes first that enters the first
    operator where these two meet at the lower input; two that never meet stay as written.
    """
    edges = graph.consumers(port)
    reached = {edge: dict(_reachable(graph, edge)) for edge in edges}

    def compared(one: Edge, other: Edge) -> int:
        meeting = min(reached[one].keys() & reached[other].keys(), default=None)
        return 0 if meeting is None else reached[one][meeting] - reached[other][meeting]

    met = [number for edge in edges for number in reached[edge]]
    if len(set(met)) == len(met):
        return [Route(edge, None) for edge in edges]
    ordered = sorted(edges, key=cmp_to_key(compared))
    return [Route(edge, branch) for branch, edge in enumerate(ordered)]


def _reachable(graph: Graph, edge: Edge) -> Iterator[tuple[OperatorId, int]]:
    """The operators downstream of an edge, with the first position at which it enters each."""
    entered = {edge.operator: edge.position}
    for each in graph.operators[edge.operator :]:
        if each.id not in entered:
            positions = [at for at, port in enumerate(each.inputs) if port.operator in entered]
            if not positions:
                continue
            entered[each.id] = positions[0]
        yield each.id, entered[each.id]
