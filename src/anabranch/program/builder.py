"""A program while it is written: hands out numbers and names, then freezes into a graph."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.errors import ProgramError, Site, calling_site
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Feedback
from anabranch.program.operators.operator import OUT, Base, Operator, Output, Port, require_final
from anabranch.program.schema import describe

_LONGEST_NAME = 100


class Builder:
    """Collects operators in order of writing."""

    def __init__(self, name: str) -> None:
        """Begin an empty program."""
        self.name = _plain_name(name, "Program")
        self._operators: list[Operator | None] = []
        self._reserved: dict[OperatorId, Site] = {}
        self._names: dict[str, Site] = {}
        self._feedback: dict[OperatorId, Port] = {}
        self._fused: list[tuple[OperatorId, OperatorId]] = []

    def reserve(self) -> OperatorId:
        """Take a number for an operator that is added later."""
        number = OperatorId(len(self._operators))
        self._operators.append(None)
        self._reserved[number] = calling_site()
        return number

    def add(
        self,
        kind: str,
        name: str | None,
        inputs: tuple[Port, ...],
        make: Callable[[Base], Operator],
        number: OperatorId | None = None,
    ) -> Operator:
        """Make an operator and keep it; a refused one leaves no trace."""
        site = calling_site()
        chosen = self._name(kind, name)
        place = OperatorId(len(self._operators)) if number is None else number
        made = make(Base(place, chosen, site, inputs))
        if number is None:
            self._operators.append(made)
        else:
            self._operators[number] = made
            del self._reserved[number]
        self._names[chosen] = site
        return made

    def close(self, feedback: Feedback, port: Port, given: Output) -> None:
        """Say where a feedback's rows come from."""
        if feedback.id in self._feedback:
            message = f"{feedback.name} is closed already"
            raise ProgramError(message, so="union the streams that enter it, and close it once")
        require_final(given, feedback.name)
        columns = feedback.outputs[OUT].schema
        if dict(columns) != dict(given.schema):
            message = f"{feedback.name}: the closing stream has other columns"
            have = f"{describe(columns)}  |  {describe(given.schema)}"
            raise ProgramError(message, have=have)
        self._feedback[feedback.id] = port

    def fuse(self, one: OperatorId, other: OperatorId) -> None:
        """Keep two operators in one region."""
        self._fused.append((one, other))

    def freeze(self) -> Graph:
        """The program so far, refused while it has loose ends."""
        for site in self._reserved.values():
            message = "late is read of a window that has no agg or apply"
            raise ProgramError(message, site=site, so="call .agg(...) on the same window")
        operators = tuple(each for each in self._operators if each is not None)
        for each in operators:
            if isinstance(each, Feedback) and each.id not in self._feedback:
                message = f"{each.name} is never closed"
                raise ProgramError(message, site=each.site, so="call .close(stream) on it")
        graph = Graph(self.name, operators, dict(self._feedback), tuple(self._fused))
        if not graph.sources:
            message = f"program {self.name!r} reads nothing"
            raise ProgramError(message, so="begin with program.read(source)")
        return graph

    def _name(self, kind: str, name: str | None) -> str:
        if name is None:
            number = 1 + sum(
                1 for each in self._operators if each is not None and each.kind == kind
            )
            while f"{kind}-{number}" in self._names:
                number += 1
            return f"{kind}-{number}"
        chosen = _plain_name(name, kind)
        if chosen in self._names:
            message = f"two operators are called {chosen!r}"
            why = f"the first is at {self._names[chosen]}"
            so = "give one another name=; a sink with a name of its own, such as Memory, goes by it"
            raise ProgramError(message, why=why, so=so)
        return chosen


def _plain_name(name: str, what: str) -> str:
    """Names become directories of a checkpoint, so they must be able to."""
    good = (
        isinstance(name, str)
        and 0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and not name.startswith((".", "-"))
        and not set(name) & set("/\\:")
    )
    if good:
        return name
    message = f"{what}: not a name: {name!r}"
    so = f"use up to {_LONGEST_NAME} printable characters without / \\ : and no leading dot"
    raise ProgramError(message, so=so)
