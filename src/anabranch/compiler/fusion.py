"""Operators that `fuse_with` keeps in one region.

Where a parallel region holds both, nothing is to be done. Where none can, they and everything that
lies between them share a sequential region, as operators 12 to 14 of figure 5 in Schneider et al.
(2012) are in no parallel one. That is sound because the set is closed: whatever is on a path from
one member to another is a member, so no row leaves the region and enters it again within an epoch.
Operators on no common path may be fused as well: they run in one place, each in its turn.

It is impossible only where two such sets each wait for the other; that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from anabranch.compiler.plan import Region
from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph

Pair: TypeAlias = tuple[OperatorId, OperatorId]


@dataclass(frozen=True, slots=True)
class Fusion:
    """What fusion asks of the regions."""

    begins: frozenset[OperatorId] = frozenset()
    """Operators at which a region must begin."""
    pairs: tuple[Pair, ...] = ()
    """What no parallel region can hold."""
    sets: Mapping[OperatorId, int] = field(default_factory=dict)
    """For each operator in a fused sequential region the number of that region."""

    @classmethod
    def sequential(
        cls, graph: Graph, pairs: tuple[Pair, ...], begins: frozenset[OperatorId]
    ) -> Fusion:
        """Put each pair, and what lies between, into a sequential region."""
        sets: dict[OperatorId, int] = {}
        for number, group in enumerate(_closed(graph, pairs)):
            sets |= dict.fromkeys(group, number)
        return cls(begins.difference(sets), pairs, sets)

    def home(self, number: OperatorId) -> int | None:
        """The number of the fused region an operator is in, if it is in one."""
        return self.sets.get(number)

    @property
    def asked(self) -> frozenset[OperatorId]:
        """The operators that were named, without what lies between."""
        return frozenset(number for pair in self.pairs for number in pair)


def unsatisfied(graph: Graph, homes: Mapping[OperatorId, object]) -> list[Pair]:
    """The pairs that are in different regions, the earlier operator first."""
    return [(min(pair), max(pair)) for pair in graph.fused if homes[pair[0]] is not homes[pair[1]]]


def refuse_cycles(graph: Graph, regions: Sequence[Region], pairs: Iterable[Pair]) -> None:
    """Refuse regions of which two wait for each other; `feedback` waits for nothing."""
    homes = {number: region.id for region in regions for number in region.operators}
    readers: dict[int, set[int]] = {region.id: set() for region in regions}
    waits = dict.fromkeys(readers, 0)
    for op in graph.operators:
        for before in {homes[port.operator] for port in op.inputs} - {homes[op.id]}:
            if homes[op.id] not in readers[before]:
                readers[before].add(homes[op.id])
                waits[homes[op.id]] += 1
    ready = [number for number, count in waits.items() if not count]
    while ready:
        for behind in readers[ready.pop()]:
            waits[behind] -= 1
            if not waits[behind]:
                ready.append(behind)
    for one, other in pairs:
        if waits[homes[one]]:
            _refuse(graph, one, other)


def _refuse(graph: Graph, one: OperatorId, other: OperatorId) -> None:
    message = f"{graph[one].name} and {graph[other].name} cannot be kept in one region"
    why = "another region that fuse_with makes has to run both before and behind it"
    have = f"{graph[one].name} at {graph[one].site}, {graph[other].name} at {graph[other].site}"
    so = "leave out one of the calls of fuse_with"
    raise ProgramError(message, site=graph[other].site, why=why, have=have, so=so)


def _closed(graph: Graph, pairs: Iterable[Pair]) -> list[set[OperatorId]]:
    """Disjoint sets that hold each pair whole and everything between their members."""
    found: list[set[OperatorId]] = []
    for pair in pairs:
        group = _between(graph, set(pair))
        # A grown set may reach into others, and what lies between them is between its own members.
        while meeting := [each for each in found if each & group]:
            found = [each for each in found if not each & group]
            group = _between(graph, group.union(*meeting))
        found.append(group)
    return found


def _between(graph: Graph, members: set[OperatorId]) -> set[OperatorId]:
    """The members and what lies on a path from one to another."""
    low, high = min(members), max(members)
    behind, before = set(members), set(members)
    for op in graph.operators[low : high + 1]:
        if any(port.operator in behind for port in op.inputs):
            behind.add(op.id)
    for op in reversed(graph.operators[low : high + 1]):
        if op.id in before:
            before.update(port.operator for port in op.inputs)
    return behind & before
