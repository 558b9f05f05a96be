"""A program as a frozen graph: operators in order of writing, which is a topological order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from anabranch.ids import OperatorId
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import Operator, Output, Port

_Kind = TypeVar("_Kind", bound=Operator)


@dataclass(frozen=True, slots=True)
class Edge:
    """One input of one operator."""

    operator: OperatorId
    position: int


@dataclass(frozen=True, slots=True)
class Graph:
    """All a user wrote; every port named in it exists."""

    name: str
    operators: tuple[Operator, ...]
    feedback: Mapping[OperatorId, Port] = field(default_factory=dict)
    """For each feedback operator the port that closes it."""
    fused: tuple[tuple[OperatorId, OperatorId], ...] = ()
    """Operators the user wants in one region."""

    def __getitem__(self, number: OperatorId) -> Operator:
        """The operator with this number."""
        return self.operators[number]

    def of(self, kind: type[_Kind]) -> Iterator[_Kind]:
        """All operators of a kind, in order of writing."""
        return (each for each in self.operators if isinstance(each, kind))

    @property
    def sources(self) -> tuple[Read, ...]:
        """Where rows enter, in the order of the `read` calls."""
        return tuple(self.of(Read))

    @property
    def sinks(self) -> tuple[Write, ...]:
        """Where rows leave."""
        return tuple(self.of(Write))

    def output(self, port: Port) -> Output:
        """What comes out of a port."""
        return self[port.operator].outputs[port.output]

    def consumers(self, port: Port) -> tuple[Edge, ...]:
        """Who reads a port, in order of writing; closing a feedback is no reading."""
        return tuple(
            Edge(each.id, position)
            for each in self.operators
            for position, read in enumerate(each.inputs)
            if read == port
        )
