"""Regions as tasks: the one place where plans meet kernels.

A task is a value that can be pickled. It gives the same result for the same arguments, and an error
of the user's program is part of the result: a task never raises for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import polars as pl

from anabranch.compiler.staged import Head, Place, Stage, StagedPlan, is_row_by_row
from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.kernels.bundle import FROM, OFFSET, PARTITION, SLICE
from anabranch.kernels.exits import Exit
from anabranch.kernels.head_task import Entrance, HeadNode, HeadTask
from anabranch.kernels.kernel import Kernel
from anabranch.kernels.keyed.deduplicate import DeduplicateKernel
from anabranch.kernels.keyed.pattern import MatchKernel
from anabranch.kernels.keyed.process import ProcessKernel
from anabranch.kernels.keyed.reduce import ReduceKernel
from anabranch.kernels.lane_task import Entry, LaneTask, Loop, Node
from anabranch.kernels.letters import Origins
from anabranch.kernels.stateless.batches import BatchesKernel
from anabranch.kernels.stateless.chain import Chain, lower_chain
from anabranch.kernels.stateless.split import Branches
from anabranch.kernels.together.feedback import FeedbackKernel
from anabranch.kernels.together.join import JoinKernel
from anabranch.kernels.together.lookup import LookupStep
from anabranch.kernels.together.time_order import TimeOrderKernel
from anabranch.kernels.together.union import UnionKernel
from anabranch.kernels.windows.early import EarlyPartials
from anabranch.kernels.windows.kernel import WindowKernel
from anabranch.kernels.windows.rows import RowsKernel
from anabranch.kernels.windows.sessions import SessionKernel
from anabranch.kernels.windows.windows import Windows
from anabranch.kernels.wires import Wire, wires_of
from anabranch.program.graph import Graph
from anabranch.program.operators import keyed, rowwise, together, windowed
from anabranch.program.operators.edges import Feedback, Read
from anabranch.program.operators.operator import DEAD_LETTERS, LATE, OUT, Operator, Port
from anabranch.program.windows import Rows, SessionGap

RegionTask: TypeAlias = HeadTask | LaneTask


@dataclass(frozen=True)
class Lowered:
    """A program's tasks, and which way rows go from one to another."""

    heads: tuple[HeadTask, ...]
    """In the order of the sources; without lanes to send rows to yet."""
    stages: tuple[LaneTask, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """An exchange: from an exit of a head or a stage to an entry of a stage."""

    head: int | None
    """The number of the head that rows come from, or None."""
    stage: int | None
    """The number of the stage that they come from, or None."""
    exit: int
    to: int
    """The number of the stage that they go to."""
    entry: int


def lower(plan: StagedPlan) -> Lowered:
    """All tasks of a program."""
    heads = tuple(_HeadLowering(plan, head).task() for head in plan.heads)
    empties: dict[Port, pl.DataFrame] = {}
    for head in heads:
        empties |= head.nothing()
    stages: list[LaneTask] = []
    for stage in plan.stages:
        stages.append(_StageLowering(plan, stage).task(empties))
        empties |= stages[-1].nothing()
    return Lowered(heads, tuple(stages), tuple(_links(plan)))


def _links(plan: StagedPlan) -> Iterator[Link]:
    places: list[tuple[int | None, int | None, Place]] = [
        *((number, None, head) for number, head in enumerate(plan.heads)),
        *((None, stage.number, stage) for stage in plan.stages),
    ]
    for head, stage, place in places:
        for number, (port, to) in enumerate(plan.leaving(place)):
            entry = plan.entries(to).index(port)
            yield Link(head, stage, number, to.number, entry)


def _exits(plan: StagedPlan, place: Place) -> tuple[Exit, ...]:
    """To stages first, in the order of `leaving`, then to sinks."""
    to_stages = [
        Exit(Wire(port), key=to.key or (), windows=_combined(plan, port, to))
        for port, to in plan.leaving(place)
    ]
    to_sinks = [
        Exit(wires_of(plan.graph, write)[0], sink=write.name)
        for write in plan.sinks(place)
        if plan.homes[write.inputs[0].operator] is place
    ]
    passing = [
        Exit(Wire(write.inputs[0]), sink=write.name)
        for write in plan.sinks(place)
        if plan.homes[write.inputs[0].operator] is not place
    ]
    return (*to_stages, *to_sinks, *passing)


def _combined(plan: StagedPlan, port: Port, to: Stage) -> Windows | None:
    """The windows at an entry of a stage whose partials are made in the head, if they can be."""
    graph = plan.graph
    if not isinstance(plan.homes[port.operator], Head):
        return None
    readers = [edge for edge in graph.consumers(port) if plan.homes[edge.operator] is to]
    if len(readers) != 1 or graph.closes(port):
        return None
    op = graph[readers[0].operator]
    if not isinstance(op, windowed.WindowAggregate) or graph.is_read(Port(op.id, LATE)):
        return None
    windows = Windows.of(op, graph.output(port).schema)
    return None if windows.panes is None or windows.placed or windows.revised else windows


def _runs(plan: StagedPlan, place: Place) -> Iterator[tuple[Operator, ...]]:
    """A place's operators: those that make one chain together, any other alone."""
    graph, waiting = plan.graph, list[Operator]()
    for op in plan.operators(place):
        if isinstance(op, Feedback):
            continue
        if waiting and not _follows(graph, waiting[-1], op):
            yield tuple(waiting)
            waiting = []
        if is_row_by_row(op):
            waiting.append(op)
        else:
            yield (op,)
    if waiting:
        yield tuple(waiting)


def _follows(graph: Graph, before: Operator, op: Operator) -> bool:
    """Whether an operator can be in one chain with the one before it."""
    port = Port(before.id)
    # A chain's letters are its last operator's.
    alone = len(graph.consumers(port)) == 1 and not graph.closes(port)
    alone = alone and not _letters_read(graph, before)
    return alone and is_row_by_row(op) and op.inputs == (port,)


def _chain(
    graph: Graph, operators: Sequence[Operator], needed: Iterable[str], *, ordered: bool
) -> Chain:
    schemas = [_given(graph, op) for op in operators]
    return lower_chain([_told(graph, op) for op in operators], schemas, tuple(needed), ordered)


# Heads


@dataclass(frozen=True, slots=True)
class _HeadLowering:
    """One source and what is done where it is read."""

    plan: StagedPlan
    head: Head

    def task(self) -> HeadTask:
        """The task, without lanes to send rows to yet."""
        plan, graph = self.plan, self.plan.graph
        read = graph[self.head.source]
        assert isinstance(read, Read)
        exits = _exits(plan, self.head)
        # Rows for sinks leave as they came, and each split knows its own place. Partials have no
        # order of their own unless it shows in what they add up to.
        ordered = any(each.windows is None and each.sink is None for each in exits)
        nodes = []
        for run in _runs(plan, self.head):
            (wire,) = wires_of(graph, run[0])
            if isinstance(run[0], rowwise.Split):
                nodes.append(HeadNode(Port(run[0].id), wire, Branches.of(graph, run[0])))
                continue
            port = Port(run[-1].id)
            chain = _chain(graph, run, self._needed(port, exits), ordered=ordered)
            early, exits = self._early(HeadNode(port, wire, chain), run, exits)
            if early is not None:
                nodes.append(early)
        out, port = read.outputs[OUT], Port(read.id)
        letters = read.on_error == "dead_letter" and _letters_read(graph, read)
        leaves = any(each.wire.port == port for each in exits)
        live = {*self._needed(port, exits)} if leaves or letters else set[str]()
        for node in nodes:
            if node.wire.port == port:
                live |= {*(node.work.live if isinstance(node.work, Chain) else out.schema)}
        entrance = Entrance(
            port,
            read.name,
            out.schema,
            tuple(name for name in out.schema if name in live),
            read.event_time,
            out.time,
            read.on_error if letters or read.on_error == "fail" else "skip",
            ordered,
            timed=any(each.sink is None for each in exits),
            unread=read.source.unread,
        )
        return HeadTask(entrance, tuple(nodes), exits, self.head.proofs)

    def _needed(self, port: Port, exits: Sequence[Exit]) -> tuple[str, ...]:
        """The columns of a port that somebody reads."""
        graph = self.plan.graph
        mine = [each for each in exits if each.wire.port == port]
        schema = graph.output(port).schema
        inside = any(self.plan.homes[e.operator] is self.head for e in graph.consumers(port))
        if not mine or inside or any(each.windows is None for each in mine):
            return tuple(schema)
        roots = {name for each in mine for name in each.roots}
        return tuple(name for name in schema if name in roots)

    def _early(
        self, node: HeadNode, run: Sequence[Operator], exits: tuple[Exit, ...]
    ) -> tuple[HeadNode | None, tuple[Exit, ...]]:
        """Take the last step off a chain if it is a lookup that partials may be made before.

        Where nothing is left of the chain its rows leave from where they came, with those of other
        readers: what is counted for one of them is counted for all.
        """
        assert isinstance(node.work, Chain)
        mine = [each for each in exits if each.wire.port == node.port]
        last = node.work.steps[-1] if node.work.steps else None
        alone = len(self.plan.graph.consumers(node.port)) == 1 and len(mine) == 1
        if not alone or mine[0].windows is None or not isinstance(last, LookupStep):
            return node, exits
        early = EarlyPartials.of(last, mine[0].windows, _given(self.plan.graph, run[-1]))
        if early is None:
            return node, exits
        changed, left = replace(mine[0], early=early), node.work.steps[:-1]
        if not left:
            changed = replace(changed, wire=Wire(node.wire.port))
        found = tuple(changed if each is mine[0] else each for each in exits)
        chain = Chain(left, node.work.live, changed.roots)
        return replace(node, work=chain) if left else None, found


# Stages


@dataclass(frozen=True, slots=True)
class _StageLowering:
    """A stage's operators, one after the other."""

    plan: StagedPlan
    stage: Stage

    def task(self, empties: Mapping[Port, pl.DataFrame]) -> LaneTask:
        """The task of a lane, given what the ports before it give of no rows."""
        plan = self.plan
        entries = tuple(self._entry(port, empties) for port in plan.entries(self.stage))
        nodes, loops = tuple(self._nodes()), tuple(self._loops())
        task = LaneTask(entries, nodes, _exits(plan, self.stage), self.stage.proofs, loops)
        return _apart(plan, task) if len(plan.unproved) > 1 else task

    def _entry(self, port: Port, empties: Mapping[Port, pl.DataFrame]) -> Entry:
        plan = self.plan
        windows = _combined(plan, port, self.stage)
        letters = port.output == DEAD_LETTERS and isinstance(plan.homes[port.operator], Head)
        feeds = tuple(sorted(_lags(plan.graph, port).items()))
        if windows is not None:
            placed = {PARTITION: pl.Int32(), OFFSET: pl.Int64()} if windows.ordered else {}
            empty = pl.DataFrame(schema={**windows.partial_schema, **placed})
            return Entry(port, empty, feeds)
        empty = empties[port].clear().with_columns(pl.lit(0, pl.UInt16).alias(SLICE))
        traced = isinstance(plan.homes[port.operator], Head) and _held_before_letters(plan.graph)
        entry = Entry(port, empty, feeds, letters, traced)
        return replace(entry, empty=entry.told(empty, Origins(0)))

    def _loops(self) -> Iterator[Loop]:
        """Feedbacks, each with what closes it."""
        graph = self.plan.graph
        for op in (graph[number] for number in self.stage.operators):
            if isinstance(op, Feedback):
                kernel = FeedbackKernel.of(graph, op)
                carried = tuple(FROM) if _held_before_letters(graph) else ()
                kernel = replace(kernel, carried=carried)
                yield Loop(Port(op.id), graph.feedback[op.id], kernel)

    def _nodes(self) -> Iterator[Node]:
        """Kernels, and runs of operators without state as chains."""
        graph = self.plan.graph
        for run in _runs(self.plan, self.stage):
            wires, port = wires_of(graph, run[0]), Port(run[-1].id)
            if is_row_by_row(run[0]):
                needed = tuple(run[-1].outputs[OUT].schema)
                yield Node(port, wires, _chain(graph, run, needed, ordered=True))
            else:
                work = self._work(run[0])
                traced = isinstance(work, TimeOrderKernel | JoinKernel) and bool(work.carried)
                yield Node(port, wires, work, traced=traced)

    def _work(self, op: Operator) -> Branches | Kernel[Any]:
        graph, op = self.plan.graph, _told(self.plan.graph, op)
        if isinstance(op, rowwise.Split):
            return Branches.of(graph, op)
        if isinstance(op, keyed.Process):
            return ProcessKernel.of(graph, op, once=op.id in self.plan.unproved)
        if isinstance(op, windowed.WindowAggregate | windowed.WindowApply):
            return self._window(op)
        kernel = _KERNELS[type(op)](graph, op)
        if isinstance(kernel, TimeOrderKernel | JoinKernel) and _held_before_letters(graph):
            return replace(kernel, carried=tuple(FROM))
        return kernel

    def _window(self, op: windowed.WindowAggregate | windowed.WindowApply) -> Kernel[Any]:
        graph = self.plan.graph
        match op.windowing.window:
            case SessionGap():
                return SessionKernel.of(graph, op)
            case Rows():
                return RowsKernel.of(graph, op)
        kernel = WindowKernel.of(graph, op)
        (port,) = op.inputs
        entered = self.plan.homes[port.operator] is not self.stage
        combined = entered and _combined(self.plan, port, self.stage) is not None
        return replace(kernel, combined=combined)


_KERNELS: Mapping[type[Operator], Callable[[Graph, Any], Kernel[Any]]] = {
    keyed.Reduce: ReduceKernel.of,
    keyed.Deduplicate: DeduplicateKernel.of,
    keyed.Match: MatchKernel.of,
    together.Join: JoinKernel.of,
    together.Merge: TimeOrderKernel.of,
    together.InTimeOrder: TimeOrderKernel.of,
    together.Union: UnionKernel.of,
    rowwise.MapBatches: BatchesKernel.of,
}


def _lags(graph: Graph, port: Port) -> dict[str, int]:
    """The sources that feed a port, and by how much it is behind each (M13: outer joins)."""
    found: dict[OperatorId, dict[str, int]] = {}
    for op in graph.operators[: port.operator + 1]:
        if isinstance(op, Read):
            found[op.id] = {op.name: 0}
            continue
        lag = JoinKernel.of(graph, op).lag if isinstance(op, together.Join) else 0
        mine = found[op.id] = {}
        for given in op.inputs:
            for source, before in found[given.operator].items():
                mine[source] = max(before + lag, mine.get(source, 0))
    return found[port.operator]


def _held_before_letters(graph: Graph) -> bool:
    """Whether dead letters are read of an operator behind one that holds rows and lets them go."""
    behind: set[OperatorId] = set()
    for op in graph.operators:
        if any(port.operator in behind for port in op.inputs):
            behind.add(op.id)
            if _letters_read(graph, op):
                return True
        holds = isinstance(op, together.Merge | together.InTimeOrder | Feedback)
        if holds or (isinstance(op, together.Join) and op.how != "inner"):
            behind.add(op.id)
    return False


def _letters_read(graph: Graph, op: Operator) -> bool:
    return graph.is_read(Port(op.id, DEAD_LETTERS))


def _told(graph: Graph, op: Operator) -> Operator:
    """The operator, which skips records instead of making letters that nobody reads."""
    if getattr(op, "on_error", "fail") != "dead_letter" or _letters_read(graph, op):
        return op
    return replace(op, on_error="skip")  # type: ignore[call-arg]


def _given(graph: Graph, op: Operator) -> pl.Schema:
    return graph.output(op.inputs[0]).schema


# Functions that may know of each other


def _apart(plan: StagedPlan, task: LaneTask) -> LaneTask:
    """Let each row go all the way before the next one, as far as functions could tell."""
    if len(task.entries) != 1 or task.loops:
        first, port = 0, Port(OperatorId(-1))
    else:
        first, port = 0, task.entries[0].port
    for node in task.nodes:
        if node.wires != (Wire(port),) or not _at_once(node.work):
            break
        first, port = first + 1, node.port
    late = [op for op in plan.unproved if op > port.operator]
    homes = {_home(task.nodes, op) for op in late}
    if len(homes) > 1:
        one, other = (plan.graph[number] for number in sorted(homes)[:2])
        message = f"{one.name} and {other.name} cannot run together yet"
        why = "nothing is proved of their functions, which may know of each other"
        so = 'declare what holds, e.g. @ab.operator(state="stateless")'
        raise ProgramError(message, site=other.site, why=why, so=so)
    apart = frozenset(homes) if len(late) > 1 else frozenset[OperatorId]()
    nodes = tuple(replace(node, apart=node.port.operator in apart) for node in task.nodes)
    early = len(plan.unproved) - len(late)
    return replace(task, nodes=nodes, one_by_one=first if early > 1 else 0)


def _at_once(work: Chain | Branches | Kernel[Any]) -> bool:
    """Whether an operator gives all it has to give for a row when it takes it."""
    if isinstance(work, ProcessKernel):
        return work.on_timer is None
    return isinstance(work, Chain | ReduceKernel | DeduplicateKernel | MatchKernel | RowsKernel)


def _home(nodes: tuple[Node, ...], number: OperatorId) -> OperatorId:
    """The node that an operator is in: the first that ends with it or behind it."""
    return next(node.port.operator for node in nodes if node.port.operator >= number)
