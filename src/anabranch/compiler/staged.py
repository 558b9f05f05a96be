"""A plan as it is run: a head for each source, and stages of lanes behind them.

A *head* reads a source and keeps nothing: the source, and the operators behind it that are
stateless and proved, as far as rows reach them from that source alone. It runs on any rows of any
epoch, anywhere and at any time, before the epoch has a place in the log.

All else is in *stages*. A stage has state by slice: its rows are divided by the key of a parallel
region of the plan, or all are in one lane. Rows go from heads and stages to stages through an
exchange, in which the key decides the lane. An operator without state is where its input is, so
that no rows are moved for it.

Stages have *levels*: a stage takes rows of heads and of stages of lower levels. So an epoch goes
from level to level, and while it is at one, the next epoch may be at the level before.

Dead letters of a head are the one thing that needs the place in the log: they say which epoch they
are of. They go to one lane, as they are few, and what reads them is in stages. So do rows that go
from a head to a sink where there are several sources.

What comes out of a feedback is what entered it in the epoch before, from all lanes. So a loop is in
one lane of one stage: feedbacks, and all that lies on a way from one to one (itself or another).
What is before a loop, or behind it, is where it would be without.

Functions of which nothing is proved may know of each other. If there are two of them, all that is
not in a head is one stage, in one lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from anabranch.compiler.loops import Loops, taken
from anabranch.compiler.plan import HIDDEN, Plan, Region
from anabranch.compiler.proof import Proof
from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators import rowwise, together
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import DEAD_LETTERS, Operator, Port

ROW_BY_ROW = (
    rowwise.Filter, rowwise.Select, rowwise.WithColumns, rowwise.Drop, rowwise.Rename,
    rowwise.Explode, rowwise.Map, rowwise.FlatMap, rowwise.WithEventTime, together.Lookup,
)  # fmt: skip
"""Operators that do, whatever they are told."""


def is_row_by_row(op: Operator) -> bool:
    """Whether an operator runs on rows of any bundle, wherever it is."""
    return isinstance(op, ROW_BY_ROW) or (isinstance(op, rowwise.MapBatches) and op.elementwise)


@dataclass(frozen=True, slots=True)
class Head:
    """A source and what is done with its rows where they are read, in topological order."""

    operators: tuple[OperatorId, ...]
    """The source first; sinks that take rows from here among them."""
    proofs: tuple[Proof, ...] = ()
    """What must hold where it runs."""

    @property
    def source(self) -> OperatorId:
        """The source."""
        return self.operators[0]


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators that run in one task of a lane, in topological order; sinks among them."""

    number: int
    """Its place among the stages, which is a topological order."""
    level: int
    """1 or more: it takes what heads and stages of lower levels give."""
    operators: tuple[OperatorId, ...]
    key: tuple[str, ...] | None = None
    """The columns whose values decide the slice; none: all rows are in one slice."""
    proofs: tuple[Proof, ...] = ()
    """What must hold where it runs."""

    @property
    def parallel(self) -> bool:
        """Whether its rows are divided."""
        return self.key is not None


Place: TypeAlias = Head | Stage


@dataclass(frozen=True)
class StagedPlan:
    """A program in heads and stages; every operator is in one of them."""

    graph: Graph
    heads: tuple[Head, ...]
    """In the order of the sources."""
    stages: tuple[Stage, ...] = ()
    unproved: tuple[OperatorId, ...] = ()
    """Operators of which nothing is proved; all are in stages, and if several, in the only one."""

    @cached_property
    def homes(self) -> Mapping[OperatorId, Place]:
        """Where each operator is."""
        places: tuple[Place, ...] = (*self.heads, *self.stages)
        return {number: place for place in places for number in place.operators}

    @property
    def levels(self) -> int:
        """How many levels an epoch goes through."""
        return max((stage.level for stage in self.stages), default=0)

    def operators(self, place: Place) -> tuple[Operator, ...]:
        """A place's operators but for sources and sinks."""
        found = (self.graph[number] for number in place.operators)
        return tuple(op for op in found if not isinstance(op, Read | Write))

    def sinks(self, place: Place) -> tuple[Write, ...]:
        """The sinks that take rows from here."""
        found = (self.graph[number] for number in place.operators)
        return tuple(op for op in found if isinstance(op, Write))

    def entries(self, stage: Stage) -> tuple[Port, ...]:
        """The ports of other places whose rows a stage takes, in the order of their operators."""
        return self._entries[stage.number]

    @cached_property
    def _entries(self) -> tuple[tuple[Port, ...], ...]:
        return tuple(self._entries_of(stage) for stage in self.stages)

    def _entries_of(self, stage: Stage) -> tuple[Port, ...]:
        found = {
            port
            for number in stage.operators
            for port in taken(self.graph, number)
            if self.homes[port.operator] is not stage
        }
        return tuple(sorted(found, key=lambda port: (port.operator, port.output)))

    def leaving(self, place: Place) -> tuple[tuple[Port, Stage], ...]:
        """The ports of a place whose rows other stages take, with those, in order."""
        return tuple(
            (port, stage)
            for stage in self.stages
            if stage is not place
            for port in self.entries(stage)
            if self.homes[port.operator] is place
        )


def staged_plan(plan: Plan) -> StagedPlan:
    """Divide a program into heads and stages, or refuse what cannot be run."""
    graph = plan.graph
    if not graph.sinks or not graph.sources:
        does, so = (
            ("writes", "end a stream with .write(sink)")
            if graph.sources
            else ("reads", "begin with program.read(source)")
        )
        message = f"program {graph.name!r} {does} nothing"
        raise ProgramError(message, site=graph.operators[-1].site, so=so)
    for op in graph.operators:
        _refuse_hidden(op)
    return _Staging(plan, plan.homes()).all()


@dataclass(slots=True)
class _Staging:
    """Operators from the first to the last, each put where it runs."""

    plan: Plan
    homes: Mapping[OperatorId, Region]
    heads: dict[OperatorId, OperatorId] = field(default_factory=dict)
    """The source of the head that an operator is in."""
    lanes: dict[OperatorId, tuple[int, int]] = field(default_factory=dict)
    """For each operator in lanes the level and the region that divides its rows, or _ONE."""

    def all(self) -> StagedPlan:
        """The whole program."""
        graph = self.plan.graph
        for op in graph.operators:
            self._place_in_head(op)
        rest = [op for op in graph.operators if op.id not in self.heads]
        unproved = tuple(
            op.id for op in rest if self.plan.traits[op.id].state == "unknown" and op.inputs
        )
        self._place_in_lanes(rest, together=len(unproved) > 1)
        heads = tuple(self._head(read) for read in graph.sources)
        return StagedPlan(graph, heads, self._stages(), unproved)

    def _place_in_head(self, op: Operator) -> None:
        if isinstance(op, Read):
            self.heads[op.id] = op.id
            return
        ports = op.inputs
        if len(ports) != 1 or ports[0].operator not in self.heads:
            return
        if ports[0].output == DEAD_LETTERS:
            return
        # A sink is told the epoch, which is not known where there are several sources.
        alone = isinstance(op, Write) and len(self.plan.graph.sources) == 1
        if not alone and not self._moves_along(op):
            return
        self.heads[op.id] = self.heads[ports[0].operator]

    def _moves_along(self, op: Operator) -> bool:
        """Whether an operator may run wherever its rows are."""
        alike = is_row_by_row(op) or isinstance(op, rowwise.Split)
        return alike and self.plan.traits[op.id].state == "stateless"

    def _place_in_lanes(self, rest: Sequence[Operator], *, together: bool) -> None:
        if together:
            self.lanes = {op.id: (1, _ONE) for op in rest}
            return
        loops = Loops.of(self.plan.graph)
        for op in rest:
            if op.id not in loops.inside | loops.behind:
                self.lanes[op.id] = self._in_lanes(op)
        # What closes a feedback may be written behind what reads it.
        ports = (port for number in loops.inside for port in taken(self.plan.graph, number))
        entering = (port.operator for port in ports if port.operator not in loops.inside)
        level = _level(map(self.lanes.get, entering), _ONE)
        self.lanes |= dict.fromkeys(loops.inside, (level, _ONE))
        for op in rest:
            if op.id in loops.behind:
                self.lanes[op.id] = self._in_lanes(op)
        self.lanes = {op.id: self.lanes[op.id] for op in rest}

    def _in_lanes(self, op: Operator) -> tuple[int, int]:
        """Its level, and what divides its rows."""
        given = [self.lanes.get(port.operator) for port in op.inputs]
        (first, *others) = given
        if first is not None and not others and (isinstance(op, Write) or self._moves_along(op)):
            return first
        region = self.homes[op.id]
        divided = region.id if region.parallel and region.key else _ONE
        return (_level(given, divided), divided)

    def _head(self, read: Read) -> Head:
        mine = tuple(number for number, source in self.heads.items() if source == read.id)
        return Head(mine, _proofs(self.plan, mine))

    def _stages(self) -> tuple[Stage, ...]:
        regions = {region.id: region for region in self.plan.regions}
        found = []
        for number, (level, divided) in enumerate(sorted(set(self.lanes.values()))):
            mine = tuple(op for op, home in self.lanes.items() if home == (level, divided))
            key = None if divided == _ONE else regions[divided].key
            found.append(Stage(number, level, mine, key, _proofs(self.plan, mine)))
        return tuple(found)


_ONE = -1
"""In the place of a region: all rows are in one lane."""


def _level(given: Iterable[tuple[int, int] | None], divided: int) -> int:
    """The level of what takes rows of these places, of which None is a head."""
    below = (0 if each is None else each[0] - (each[1] == divided) for each in given)
    return 1 + max(below, default=0)


def _proofs(plan: Plan, numbers: tuple[OperatorId, ...]) -> tuple[Proof, ...]:
    found = (plan.traits[number].proof for number in numbers)
    return tuple(proof for proof in found if proof is not None)


# Refusals


def _refuse_hidden(op: Operator) -> None:
    for output in op.outputs.values():
        if taken := [name for name in output.schema if name.startswith(HIDDEN)]:
            message = f"{op.name}: a column is called {taken[0]!r}"
            why = f"names that begin with {HIDDEN} are taken by Anabranch itself"
            raise ProgramError(message, site=op.site, why=why, so="rename it")
