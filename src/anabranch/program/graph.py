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
    _consumers: Mapping[Port, tuple[Edge, ...]] = field(init=False, repr=False, compare=False)
    _readers: Mapping[OperatorId, tuple[OperatorId, ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Find once who reads what: it is asked for every operator."""
        consumers: dict[Port, list[Edge]] = {}
        readers: dict[OperatorId, list[OperatorId]] = {}
        for each in self.operators:
            for position, port in enumerate(each.inputs):
                consumers.setdefault(port, []).append(Edge(each.id, position))
                readers.setdefault(port.operator, []).append(each.id)
        for number, port in self.feedback.items():
            readers.setdefault(port.operator, []).append(number)
        by_port = {port: tuple(edges) for port, edges in consumers.items()}
        by_operator = {number: tuple(found) for number, found in readers.items()}
        object.__setattr__(self, "_consumers", by_port)
        object.__setattr__(self, "_readers", by_operator)

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
        return self._consumers.get(port, ())

    def is_read(self, port: Port) -> bool:
        """Whether anybody takes a port's rows: they are read, or close a feedback."""
        return bool(self.consumers(port)) or self.closes(port)

    def closes(self, port: Port) -> bool:
        """Whether a port's rows come out of a feedback in the next epoch."""
        return port in self.feedback.values()

    def readers(self, number: OperatorId) -> tuple[OperatorId, ...]:
        """Who takes an operator's rows, once for each input; a feedback takes what closes it."""
        return self._readers.get(number, ())
