"""Regions as tasks: the one place where plans meet kernels.

A task is a value that can be pickled. It gives the same result for the same arguments, and an error
of the user's program is part of the result: a task never raises for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import polars as pl

from anabranch.compiler.branches import branches
from anabranch.compiler.staged import ROW_BY_ROW, StagedPlan
from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, branch
from anabranch.kernels.head_task import Entrance, HeadTask
from anabranch.kernels.kernel import Kernel
from anabranch.kernels.keyed.deduplicate import DeduplicateKernel
from anabranch.kernels.keyed.pattern import MatchKernel
from anabranch.kernels.keyed.process import ProcessKernel
from anabranch.kernels.keyed.reduce import ReduceKernel
from anabranch.kernels.lane_task import LaneTask, Node, Wire
from anabranch.kernels.stateless.batches import BatchesKernel
from anabranch.kernels.stateless.chain import Chain, lower_chain
from anabranch.kernels.stateless.split import Branches
from anabranch.kernels.together.join import JoinKernel
from anabranch.kernels.together.lookup import LookupStep
from anabranch.kernels.together.time_order import TimeOrderKernel
from anabranch.kernels.together.union import UnionKernel
from anabranch.kernels.windows.early import EarlyPartials
from anabranch.kernels.windows.kernel import WindowKernel
from anabranch.kernels.windows.rows import RowsKernel
from anabranch.kernels.windows.sessions import SessionKernel
from anabranch.kernels.windows.windows import Windows
from anabranch.program.graph import Edge, Graph
from anabranch.program.operators import keyed, rowwise, together, windowed
from anabranch.program.operators.operator import DEAD_LETTERS, LATE, OUT, Operator, Port
from anabranch.program.windows import Rows, SessionGap

RegionTask: TypeAlias = HeadTask | LaneTask


def lower_head(plan: StagedPlan) -> HeadTask:
    """The task that reads, without lanes to send rows to yet."""
    operators = tuple(_told(plan.graph, op) for op in plan.operators(plan.head))
    read, windows = plan.read, _combined(plan)
    given = plan.graph.output(plan.entry).schema
    needed = tuple(given) if windows is None else windows.roots
    # Partials have no order of their own unless it shows in what they add up to.
    ordered = windows is None
    chain = lower_chain(operators, [_given(plan.graph, op) for op in operators], needed, ordered)
    chain, early = _early(chain, windows, plan.graph, operators)
    out = read.outputs[OUT]
    timed = plan.lanes is not None
    entrance = Entrance(
        read.name, out.schema, read.event_time, out.time, read.on_error, ordered, timed
    )
    key = plan.lanes.key if plan.lanes is not None else None
    ends, proofs = plan.lanes is None, plan.head.proofs
    return HeadTask(entrance, chain, key or (), windows, early, ends, proofs)


def lower_lanes(plan: StagedPlan) -> LaneTask | None:
    """The task of a lane; None where nothing is in lanes."""
    if plan.lanes is None:
        return None
    nodes = tuple(_Lowering(plan).nodes())
    (exit_port,) = plan.write.inputs
    leaving = _wire(plan.graph, exit_port, Edge(plan.write.id, 0))
    task = LaneTask(plan.entry, _no_rows(plan), nodes, leaving, plan.lanes.proofs)
    return _apart(plan, task) if len(plan.unproved) > 1 else task


def _combined(plan: StagedPlan) -> Windows | None:
    """The windows at the entry of the lanes whose partials are made in the head, if they can be."""
    graph = plan.graph
    readers = graph.consumers(plan.entry)
    if plan.lanes is None or len(readers) != 1:
        return None
    op = graph[readers[0].operator]
    if not isinstance(op, windowed.WindowAggregate) or graph.consumers(Port(op.id, LATE)):
        return None
    windows = Windows.of(op, graph.output(plan.entry).schema)
    return None if windows.panes is None or windows.placed or windows.revised else windows


def _early(
    chain: Chain, windows: Windows | None, graph: Graph, operators: tuple[Operator, ...]
) -> tuple[Chain, EarlyPartials | None]:
    """Take the last step off a chain if it is a lookup that partials may be made before."""
    last = chain.steps[-1] if chain.steps else None
    if windows is None or not isinstance(last, LookupStep):
        return chain, None
    early = EarlyPartials.of(last, windows, _given(graph, operators[-1]))
    if early is None:
        return chain, None
    out = tuple(dict.fromkeys([*last.left, *last.on]))
    return Chain(chain.steps[:-1], chain.live, out), early


def _no_rows(plan: StagedPlan) -> pl.DataFrame:
    """What the head gives of no rows."""
    windows = _combined(plan)
    if windows is not None:
        placed = {PARTITION: pl.Int32(), OFFSET: pl.Int64()} if windows.ordered else {}
        return pl.DataFrame(schema={**windows.partial_schema, **placed})
    rows = lower_head(plan).through(pl.DataFrame(schema=plan.read.outputs[OUT].schema))
    return rows.with_columns(pl.lit(0, pl.UInt16).alias(SLICE))


@dataclass(frozen=True, slots=True)
class _Lowering:
    """The lanes' operators, one after the other."""

    plan: StagedPlan

    def nodes(self) -> Iterator[Node]:
        """Kernels, and runs of operators without state as chains."""
        assert self.plan.lanes is not None
        waiting: list[Operator] = []
        for op in self.plan.operators(self.plan.lanes):
            if waiting and not self._follows(waiting[-1], op):
                yield self._chain(waiting)
                waiting = []
            if isinstance(op, ROW_BY_ROW):
                waiting.append(op)
            else:
                yield Node(Port(op.id), self._wires(op), self._work(op))
        if waiting:
            yield self._chain(waiting)

    def _follows(self, before: Operator, op: Operator) -> bool:
        """Whether an operator can be in one chain with the one before it."""
        graph, port = self.plan.graph, Port(before.id)
        # A chain's letters are its last operator's.
        alone = len(graph.consumers(port)) == 1 and not _letters_read(graph, before)
        return alone and isinstance(op, ROW_BY_ROW) and op.inputs == (port,)

    def _chain(self, operators: list[Operator]) -> Node:
        graph, last = self.plan.graph, operators[-1]
        schemas = [_given(graph, op) for op in operators]
        operators = [_told(graph, op) for op in operators]
        chain = lower_chain(operators, schemas, tuple(last.outputs[OUT].schema), ordered=True)
        return Node(Port(last.id), self._wires(operators[0]), chain)

    def _wires(self, op: Operator) -> tuple[Wire, ...]:
        graph = self.plan.graph
        return tuple(_wire(graph, port, Edge(op.id, at)) for at, port in enumerate(op.inputs))

    def _work(self, op: Operator) -> Branches | Kernel[Any]:
        graph, op = self.plan.graph, _told(self.plan.graph, op)
        if isinstance(op, rowwise.Split):
            return Branches.of(graph, op)
        if isinstance(op, keyed.Process):
            return ProcessKernel.of(graph, op, once=op.id in self.plan.unproved)
        if isinstance(op, windowed.WindowAggregate | windowed.WindowApply):
            return self._window(op)
        return _KERNELS[type(op)](graph, op)

    def _window(self, op: windowed.WindowAggregate | windowed.WindowApply) -> Kernel[Any]:
        graph = self.plan.graph
        match op.windowing.window:
            case SessionGap():
                return SessionKernel.of(graph, op)
            case Rows():
                return RowsKernel.of(graph, op)
        kernel = WindowKernel.of(graph, op)
        combined = op.inputs == (self.plan.entry,) and _combined(self.plan) is not None
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


def _wire(graph: Graph, port: Port, reader: Edge) -> Wire:
    number = branches(graph, port).get(reader)
    return Wire(port, None if number is None else (branch(port.operator), number))


def _letters_read(graph: Graph, op: Operator) -> bool:
    return bool(graph.consumers(Port(op.id, DEAD_LETTERS)))


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
    first, port = 0, task.entry
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
