"""What the runtime can run of a plan today: chains from one source to one sink.

One source, operators without state, at most one operator with state, more without, one sink.
Everything else is refused by name, line and reason; the oracle still runs it.

The proof is kept: no operator that is unknown or over the whole stream is in the head, which runs
anywhere and at any time, nor in several lanes. From the first such operator on, or from the one
with state if such a one is behind it, all rows are in one lane, in order. That is more than a plan
asks for which has a parallel region behind the sequential one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import NoReturn, TypeAlias

import polars as pl

from anabranch.compiler.plan import HIDDEN, Plan
from anabranch.compiler.proof import Proof
from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.program.aggregates import Aggregate
from anabranch.program.graph import Edge, Graph
from anabranch.program.operators import rowwise
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.keyed import Process
from anabranch.program.operators.operator import LATE, OUT, Operator, Port
from anabranch.program.operators.together import Lookup
from anabranch.program.operators.windowed import WindowAggregate
from anabranch.program.windows import Tumbling

Stateful: TypeAlias = Process | WindowAggregate

AGGREGATES = ("count", "sum", "min", "max")
"""Aggregates that have partials so far."""

_MEANWHILE = "run it with ab.testing.run_sequential meanwhile"
_ROW_BY_ROW = (
    rowwise.Filter, rowwise.Select, rowwise.WithColumns, rowwise.Drop, rowwise.Rename,
    rowwise.Explode, rowwise.Map, rowwise.FlatMap,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators that run together in one task, in order."""

    id: int
    operators: tuple[OperatorId, ...]
    parallel: bool
    key: tuple[str, ...] | None
    """The columns whose values decide the slice; none: all rows are in one slice."""
    unproved: tuple[OperatorId, ...] = ()
    """Those of its operators that may keep something outside of their state."""
    proofs: tuple[Proof, ...] = ()
    """What must hold where it runs."""


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """A chain in one or two stages: what reads and keeps nothing, and what has state."""

    graph: Graph
    regions: tuple[Stage, ...]

    @property
    def head(self) -> Stage:
        """The stage that reads; it has no state, so it runs anywhere and at any time."""
        return self.regions[0]

    @property
    def keyed(self) -> Stage | None:
        """The stage with state, whose slices live in lanes; None where nothing has state."""
        return self.regions[1] if len(self.regions) > 1 else None

    @property
    def read(self) -> Read:
        """The one source."""
        return self.graph.sources[0]

    @property
    def write(self) -> Write:
        """The one sink."""
        return self.graph.sinks[0]

    def operators(self, region: Stage) -> tuple[Operator, ...]:
        """A stage's operators, in order."""
        return tuple(self.graph[number] for number in region.operators)

    @property
    def stateful(self) -> Stateful | None:
        """The operator with state, if there is one."""
        lanes = () if self.keyed is None else self.operators(self.keyed)
        return next((op for op in lanes if isinstance(op, Process | WindowAggregate)), None)

    @property
    def first(self) -> tuple[Operator, ...]:
        """The lanes' operators before the one with state, or all there are without one."""
        return tuple(takewhile(lambda op: op != self.stateful, self._lanes))

    @property
    def tail(self) -> tuple[Operator, ...]:
        """The lanes' operators behind the one with state."""
        return self._lanes[len(self.first) + 1 :]

    @property
    def unproved(self) -> tuple[Operator, ...]:
        """Operators of which nothing is proved; all are in the lanes, and the lanes are one."""
        return tuple(op for op in self._lanes if self.keyed and op.id in self.keyed.unproved)

    @property
    def _lanes(self) -> tuple[Operator, ...]:
        lanes = () if self.keyed is None else self.operators(self.keyed)
        return tuple(op for op in lanes if not isinstance(op, Write))


def linear_plan(plan: Plan) -> LinearPlan:
    """Divide a chain into stages, or refuse what cannot run in parallel yet."""
    graph = plan.graph
    chain = _chain(graph)
    for op in chain:
        _refuse_hidden(op)
    stateful = [at for at, op in enumerate(chain) if _has_state(op)]
    for at in stateful[1:]:
        _refuse(chain[at], "one operator with state", f"{chain[stateful[0]].name} is one already")
    together = [at for at, op in enumerate(chain) if not plan.traits[op.id].parallelisable]
    begin = min([*stateful, *together], default=None)
    if begin is None:
        return LinearPlan(graph, (_head(plan, chain),))
    key = None if together else _key(chain[stateful[0]])
    unproved = [op for op in chain if plan.traits[op.id].state == "unknown"]
    lanes = Stage(
        1,
        _ids(chain[begin:]),
        parallel=key is not None,
        key=key,
        unproved=_ids(tuple(unproved)),
        proofs=_proofs(plan, chain[begin:]),
    )
    return LinearPlan(graph, (_head(plan, chain[:begin]), lanes))


def _head(plan: Plan, chain: tuple[Operator, ...]) -> Stage:
    return Stage(0, _ids(chain), parallel=True, key=None, proofs=_proofs(plan, chain))


def _proofs(plan: Plan, chain: tuple[Operator, ...]) -> tuple[Proof, ...]:
    found = (plan.traits[op.id].proof for op in chain)
    return tuple(proof for proof in found if proof is not None)


def _key(op: Operator) -> tuple[str, ...] | None:
    """What divides the rows of an operator with state; None where they must be in one place."""
    key = op.windowing.by if isinstance(op, WindowAggregate) else getattr(op, "key", None)
    return tuple(key) if key else None


def _chain(graph: Graph) -> tuple[Operator, ...]:
    """The operators from the source to the sink, refused unless each follows the one before."""
    for kind, found in (("source", graph.sources), ("sink", graph.sinks)):
        if len(found) != 1:
            where: Operator = found[1] if found else graph.operators[-1]
            _refuse(where, f"one {kind}", f"the program has {len(found)}")
    reached: list[Operator] = [graph.sources[0]]
    while not isinstance(reached[-1], Write):
        reached.append(_next(graph, reached[-1]))
    on_chain = {op.id for op in reached}
    for op in graph.operators:
        if op.id not in on_chain:
            _refuse(op, "a chain from the source to the sink", "it leads elsewhere")
    return tuple(reached)


def _next(graph: Graph, op: Operator) -> Operator:
    for output in op.outputs:
        if output != OUT and graph.consumers(Port(op.id, output)):
            what = "late records" if output == LATE else output.replace("_", " ")
            _refuse(op, "the main output of an operator", f"its {what} are read")
    readers: tuple[Edge, ...] = graph.consumers(Port(op.id))
    if len(readers) != 1:
        why = "nothing reads it" if not readers else f"{len(readers)} operators read it"
        _refuse(op, "one reader an operator", why)
    return graph[readers[0].operator]


def _refuse_hidden(op: Operator) -> None:
    for output in op.outputs.values():
        if taken := [name for name in output.schema if name.startswith(HIDDEN)]:
            message = f"{op.name}: a column is called {taken[0]!r}"
            why = f"names that begin with {HIDDEN} are taken by Anabranch itself"
            raise ProgramError(message, site=op.site, why=why, so="rename it")


def _has_state(op: Operator) -> bool:
    """Whether an operator keeps something; refused if there is no kernel for it yet."""
    match op:
        case Read() | Write():
            return False
        case Lookup(table=table):
            if table.refresh is not None:
                _refuse(op, "lookup tables that do not change", "it has refresh")
            return False
        case Process():
            return _require_process(op)
        case WindowAggregate():
            return _require_window(op)
    if not isinstance(op, _ROW_BY_ROW):
        have = "filter, select, with_columns, drop, rename, explode, map, flat_map, lookup"
        have += ", key_by(...).process, tumbling windows"
        _refuse(op, have, f"there is no kernel for {op.kind} yet")
    return False


def _require_process(op: Process) -> bool:
    if op.function.has_timers:
        _refuse(op, "process without timers", f"{op.function.name} has on_timer")
    if op.ttl is not None:
        _refuse(op, "process without ttl", "it has ttl")
    return True


def _require_window(op: WindowAggregate) -> bool:
    if not isinstance(op.windowing.window, Tumbling):
        kind = type(op.windowing.window).__name__.lower()
        _refuse(op, "tumbling windows", f"it is over {kind}")
    if op.windowing.allowed is not None:
        _refuse(op, "windows without allow_late", "it has allow_late")
    for name, aggregate in op.aggregates:
        why = _without_partial(aggregate, op.outputs[OUT].schema[name])
        if why is not None:
            _refuse(op, f"the aggregates {', '.join(AGGREGATES)}", f"{name} is {why}")
    return True


def _without_partial(aggregate: Aggregate, dtype: pl.DataType) -> str | None:
    if aggregate.kind not in AGGREGATES:
        return str(aggregate)
    if isinstance(dtype, pl.Decimal) and aggregate.kind == "sum":
        return f"a sum of {dtype}"
    if isinstance(dtype, pl.Enum | pl.Categorical | pl.Null) or dtype.is_nested():
        return f"a {aggregate.kind} of {dtype}"
    return None


def _ids(chain: tuple[Operator, ...]) -> tuple[OperatorId, ...]:
    return tuple(op.id for op in chain)


def _refuse(op: Operator, supported: str, why: str) -> NoReturn:
    message = f"{op.name} cannot run in parallel yet"
    have = f"supported so far: {supported}"
    raise ProgramError(message, site=op.site, why=why, have=have, so=_MEANWHILE)
