"""From a graph to a plan.

For now plans are linear: one source, operators without state, at most one operator with state, more
without, one sink. Everything else is refused by name, line and reason; the oracle still runs it.
"""

from __future__ import annotations

from typing import NoReturn

import polars as pl

from anabranch.compiler.plan import HIDDEN, Joint, Plan, Region
from anabranch.compiler.traits import traits_of
from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.program.aggregates import Aggregate
from anabranch.program.functions import Function
from anabranch.program.graph import Edge, Graph
from anabranch.program.operators import rowwise
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.keyed import Process
from anabranch.program.operators.operator import LATE, OUT, Operator, Port
from anabranch.program.operators.together import Lookup
from anabranch.program.operators.windowed import WindowAggregate
from anabranch.program.windows import Tumbling

_MEANWHILE = "run it with ab.testing.run_sequential meanwhile"
_ROW_BY_ROW = (
    rowwise.Filter, rowwise.Select, rowwise.WithColumns, rowwise.Drop, rowwise.Rename,
    rowwise.Explode, rowwise.Map, rowwise.FlatMap,
)  # fmt: skip
AGGREGATES = ("count", "sum", "min", "max")
"""Aggregates that have partials so far."""


def plan_of(graph: Graph) -> Plan:
    """Divide a graph into regions, or refuse what cannot run in parallel yet."""
    chain = _chain(graph)
    for op in chain:
        _refuse_hidden(op)
    stateful = [at for at, op in enumerate(chain) if _has_state(op)]
    for at in stateful[1:]:
        _refuse(chain[at], "one operator with state", f"{chain[stateful[0]].name} is one already")
    if not stateful:
        head = _head(0, graph, chain)
        return Plan(graph, (head,), (Joint("source", None, 0), Joint("sink", 0, None)))
    at = stateful[0]
    regions = (_head(0, graph, chain[:at]), _keyed(1, chain[at:]))
    joints = (Joint("source", None, 0), Joint("shuffle", 0, 1), Joint("sink", 1, None))
    return Plan(graph, regions, joints)


def _chain(graph: Graph) -> tuple[Operator, ...]:
    """The operators from the source to the sink, refused unless each follows the one before."""
    for kind, found in (("source", graph.sources), ("sink", graph.sinks)):
        if len(found) != 1:
            where: Operator = found[1] if found else graph.operators[-1]
            _refuse(where, f"one {kind}", f"the program has {len(found)}")
    reached: list[Operator] = [graph.sources[0]]
    while not isinstance(reached[-1], Write):
        reached.append(_next(graph, reached[-1]))
    for op in graph.operators:
        if op not in reached:
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
    function = getattr(op, "function", None) or getattr(op, "predicate", None)
    if isinstance(function, Function) and function.declared.state not in (None, "stateless"):
        why = f"{function.name} is declared {function.declared.state}"
        _refuse(op, "functions without state", why)
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


def _head(number: int, graph: Graph, chain: tuple[Operator, ...]) -> Region:
    because = "no operator keeps anything from one row to the next"
    if taken := [op.name for op in chain if traits_of(graph, op).state == "unknown"]:
        because += f"; of {', '.join(taken)} that is what the kind of operator demands (M8)"
    return Region(
        number,
        _ids(chain),
        parallel=True,
        key=None,
        routing="any",
        ordering="order-keys",
        because=because,
    )


def _keyed(number: int, chain: tuple[Operator, ...]) -> Region:
    op = chain[0]
    key = op.windowing.by if isinstance(op, WindowAggregate) else op.key  # type: ignore[attr-defined]
    if key:
        because = f"{op.name} keeps its state by {', '.join(key)}, and no key knows of another"
        return Region(
            number,
            _ids(chain),
            parallel=True,
            key=tuple(key),
            routing="key",
            ordering="order-keys",
            because=because,
        )
    because = f"{op.name} is over the whole stream"
    return Region(
        number,
        _ids(chain),
        parallel=False,
        key=None,
        routing="one",
        ordering="order-keys",
        because=because,
    )


def _ids(chain: tuple[Operator, ...]) -> tuple[OperatorId, ...]:
    return tuple(op.id for op in chain)


def _refuse(op: Operator, supported: str, why: str) -> NoReturn:
    message = f"{op.name} cannot run in parallel yet"
    have = f"supported so far: {supported}"
    raise ProgramError(message, site=op.site, why=why, have=have, so=_MEANWHILE)
