"""What the runtime can run of a plan today: one source, one sink, and two stages between them.

The *head* reads and keeps nothing: the source, and the operators behind it that are stateless, as
far as they follow one another. It runs anywhere and at any time. All else is in the *lanes*:
divided by key where all of it is one parallel region of the plan, else in one lane, in order. That
is less parallel than a plan of several regions allows, and never more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from anabranch.compiler.plan import HIDDEN, Plan
from anabranch.compiler.proof import Proof
from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators import keyed, rowwise, together, windowed
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import DEAD_LETTERS, Operator, Port

ROW_BY_ROW = (
    rowwise.Filter, rowwise.Select, rowwise.WithColumns, rowwise.Drop, rowwise.Rename,
    rowwise.Explode, rowwise.Map, rowwise.FlatMap, rowwise.WithEventTime, together.Lookup,
)  # fmt: skip
"""Operators that run on rows of any bundle, wherever it is."""

_IN_LANES = (
    keyed.Process, keyed.Reduce, keyed.Deduplicate, keyed.Match, windowed.WindowAggregate,
    windowed.WindowApply, together.Join, together.Merge, together.InTimeOrder, together.Union,
    rowwise.Split, rowwise.MapBatches,
)  # fmt: skip

_MEANWHILE = "run it with ab.testing.run_sequential meanwhile"


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators that run in one task, in topological order."""

    operators: tuple[OperatorId, ...]
    key: tuple[str, ...] | None = None
    """The columns whose values decide the slice; none: all rows are in one slice."""
    unproved: tuple[OperatorId, ...] = ()
    """Those of its operators that may keep something outside of their state."""
    proofs: tuple[Proof, ...] = ()
    """What must hold where it runs."""

    @property
    def parallel(self) -> bool:
        """Whether its rows are divided."""
        return self.key is not None


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """A program in one or two stages."""

    graph: Graph
    head: Stage
    lanes: Stage | None

    @property
    def read(self) -> Read:
        """The one source."""
        return self.graph.sources[0]

    @property
    def write(self) -> Write:
        """The one sink."""
        return self.graph.sinks[0]

    def operators(self, stage: Stage) -> tuple[Operator, ...]:
        """A stage's operators but for the source and the sink."""
        found = (self.graph[number] for number in stage.operators)
        return tuple(op for op in found if not isinstance(op, Read | Write))

    @property
    def unproved(self) -> tuple[OperatorId, ...]:
        """Operators of which nothing is proved; all are in the lanes, and those are one."""
        return () if self.lanes is None else self.lanes.unproved

    @property
    def entry(self) -> Port:
        """Where rows leave the head's operators."""
        (port,) = self.write.inputs
        return Port(self.head.operators[-1]) if self.lanes is not None else port


def staged_plan(plan: Plan) -> StagedPlan:
    """Divide a program into its stages, or refuse what cannot be run yet."""
    graph = plan.graph
    _refuse_shape(graph)
    for op in graph.operators:
        _refuse_hidden(op)
        _require_kernel(graph, op)
    head = _head(plan)
    rest = tuple(op for op in graph.operators if op.id not in head)
    if all(isinstance(op, Write) for op in rest):
        whole = (*head, *(op.id for op in rest))
        return StagedPlan(graph, Stage(whole, proofs=_proofs(plan, whole)), None)
    numbers = tuple(op.id for op in rest)
    unproved = tuple(op.id for op in rest if plan.traits[op.id].state == "unknown")
    lanes = Stage(numbers, _key(plan, rest), unproved, _proofs(plan, numbers))
    return StagedPlan(graph, Stage(head, proofs=_proofs(plan, head)), lanes)


def _head(plan: Plan) -> tuple[OperatorId, ...]:
    """The source and what follows it, one after the other, without state and proved."""
    graph = plan.graph
    found = [graph.sources[0].id]
    while True:
        readers = graph.consumers(Port(found[-1]))
        if len(readers) != 1:
            return tuple(found)
        op = graph[readers[0].operator]
        if not isinstance(op, ROW_BY_ROW) or plan.traits[op.id].state != "stateless":
            return tuple(found)
        if graph.consumers(Port(op.id, DEAD_LETTERS)):
            # Which record a letter is about is known in the lanes alone.
            return tuple(found)
        found.append(op.id)


def _key(plan: Plan, rest: tuple[Operator, ...]) -> tuple[str, ...] | None:
    """What divides the lanes' rows: the key of the one region that all of them are in."""
    homes = plan.homes()
    regions = {homes[op.id].id: homes[op.id] for op in rest if not isinstance(op, Write)}
    if len(regions) != 1:
        return None
    (region,) = regions.values()
    return region.key if region.parallel else None


def _proofs(plan: Plan, numbers: tuple[OperatorId, ...]) -> tuple[Proof, ...]:
    found = (plan.traits[number].proof for number in numbers)
    return tuple(proof for proof in found if proof is not None)


# Refusals


def _refuse_shape(graph: Graph) -> None:
    for kind, found in (("source", graph.sources), ("sink", graph.sinks)):
        if len(found) != 1:
            where: Operator = found[1] if found else graph.operators[-1]
            _refuse(where, f"one {kind}", f"the program has {len(found)}")


def _refuse_hidden(op: Operator) -> None:
    for output in op.outputs.values():
        if taken := [name for name in output.schema if name.startswith(HIDDEN)]:
            message = f"{op.name}: a column is called {taken[0]!r}"
            why = f"names that begin with {HIDDEN} are taken by Anabranch itself"
            raise ProgramError(message, site=op.site, why=why, so="rename it")


def _require_kernel(graph: Graph, op: Operator) -> None:
    if isinstance(op, together.Lookup) and op.table.refresh is not None:
        _refuse(op, "lookup tables that do not change", "it has refresh")
    if isinstance(op, Read) and graph.consumers(Port(op.id, DEAD_LETTERS)):
        _refuse(op, "records that fail, or are skipped", "its dead letters are read")
    if isinstance(op, rowwise.MapBatches) and op.elementwise:
        _refuse(op, "map_batches of whole epochs", "it has elementwise=True")
    if not isinstance(op, (Read, Write, *ROW_BY_ROW, *_IN_LANES)):
        have = ", ".join(sorted(kind.kind for kind in (*ROW_BY_ROW, *_IN_LANES)))
        _refuse(op, have, f"there is no kernel for {op.kind} yet")


def _refuse(op: Operator, supported: str, why: str) -> NoReturn:
    message = f"{op.name} cannot run in parallel yet"
    have = f"supported so far: {supported}"
    raise ProgramError(message, site=op.site, why=why, have=have, so=_MEANWHILE)
