"""Where a port's rows go, and in which order among several readers (M5: diamonds)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

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
    operator where these two meet at the lower input; those that never meet stay as written.
    """
    edges = graph.consumers(port)
    reached = [dict(_reachable(graph, edge)) for edge in edges]
    meetings = sorted(
        (min(met), one, other)
        for one, other in combinations(range(len(edges)), 2)
        if (met := reached[one].keys() & reached[other].keys())
    )
    if not meetings:
        return [Route(edge, None) for edge in edges]
    before: set[tuple[int, int]] = set()
    for meeting, one, other in meetings:
        gap = reached[one][meeting] - reached[other][meeting]
        first, second = (one, other) if gap <= 0 else (other, one)
        # Meetings may contradict each other; the earlier ones hold.
        if not _follows(second, first, before):
            before.add((first, second))
    return [Route(edges[at], branch) for branch, at in enumerate(_sorted(len(edges), before))]


def _follows(one: int, other: int, before: set[tuple[int, int]]) -> bool:
    """Whether `one` is already known to come before `other`, directly or through others."""
    after = {second for first, second in before if first == one}
    return other in after or any(_follows(each, other, before) for each in after)


def _sorted(count: int, before: set[tuple[int, int]]) -> Iterator[int]:
    """Numbers in an order that agrees with all pairs, the smallest possible one next."""
    left = list(range(count))
    while left:
        blocked = {second for first, second in before if first in left}
        following = next(each for each in left if each not in blocked)
        left.remove(following)
        yield following


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
