"""What a program keeps state for, as facts that are written into its checkpoint and compared.

A fact is here if state means something else without it: a window's length, what is aggregated, the
columns of a key. The code of a function is no such fact, since to mend it is what restarts are for;
its name is told, and a change of it is noted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import polars as pl

from anabranch.compiler.staged import StagedPlan
from anabranch.ids import OperatorId
from anabranch.kernels.bundle import FROM
from anabranch.kernels.lane_task import LaneTask
from anabranch.program.aggregates import Aggregate
from anabranch.program.durations import MICROSECONDS
from anabranch.program.expressions import Expression
from anabranch.program.functions import Function
from anabranch.program.graph import Graph
from anabranch.program.operators import keyed, together, windowed
from anabranch.program.operators.edges import Feedback, Read
from anabranch.program.operators.operator import OUT, Operator
from anabranch.program.pattern import Step
from anabranch.program.windows import Rows, SessionGap, Sliding, Tumbling, Window
from anabranch.state.delta import SLICE
from anabranch.state.description import Description, Facts

KIND, DIVIDED, WATERMARK, TIMERS = "kind", "divided by", "watermark", "timers"
STATE, FUNCTION = "state", "function"

_Told: TypeAlias = Iterator[tuple[str, tuple[str, ...]]]
"""Labels, each with its lines."""


def describe(plan: StagedPlan, tasks: Sequence[LaneTask]) -> Description:
    """All operators of a program that keep state, its sources and its sinks."""
    graph, marks = plan.graph, _watermarks(plan.graph)
    by_name = {op.name: op for op in graph.operators}
    operators: dict[str, Facts] = {}
    for stage, task in zip(plan.stages, tasks, strict=True):
        for name, frame in task.restore({}).whole().items():
            if frame.columns == [SLICE]:
                continue
            op = by_name[name]
            operators[name] = {
                KIND: (_kind(op),),
                **dict(_facts(graph, op)),
                DIVIDED: _divided(stage.key),
                **({WATERMARK: marks[op.id]} if _reads_watermark(op) else {}),
                STATE: _columns(frame.schema),
            }
    sources = {read.name: type(read.source).__name__ for read in graph.sources}
    return Description(operators, sources, tuple(write.name for write in graph.sinks))


def divided(key: Sequence[str] | None) -> Facts:
    """All that a delta itself says of its operator, for checkpoints without descriptions."""
    return {DIVIDED: _divided(key)}


def _divided(key: Sequence[str] | None) -> tuple[str, ...]:
    return ("nothing",) if key is None else tuple(key)


def _kind(op: Operator) -> str:
    match op:
        case windowed.WindowAggregate():
            return "window with agg"
        case windowed.WindowApply():
            return "window with apply"
    return op.kind


def _facts(graph: Graph, op: Operator) -> _Told:
    given = [graph.output(port).schema for port in op.inputs]
    match op:
        case windowed.WindowAggregate() | windowed.WindowApply():
            yield from _window_facts(op, given[0])
        case together.Join(on=on, within=within, how=how):
            yield "key", _columns(given[0], on)
            yield "within", (_span(within),)
            yield "how", (how,)
            yield "left columns", _columns(given[0])
            yield "right columns", _columns(given[1])
        case together.Merge() | together.InTimeOrder() | Feedback():
            yield "columns", _columns(op.outputs[OUT].schema)
        case _:
            yield from _keyed_facts(op, given[0])


def _keyed_facts(op: Operator, given: pl.Schema) -> _Told:
    match op:
        case keyed.Process(key=key, function=function, ttl=ttl):
            yield "key", _columns(given, key or ())
            yield TIMERS, ("yes" if function.has_timers else "no",)
            yield "ttl", ("none" if ttl is None else _span(ttl),)
            yield FUNCTION, (function.name,)
        case keyed.Reduce(key=key, function=function):
            yield "key", _columns(given, key)
            yield "columns", _columns(given)
            yield FUNCTION, (function.name,)
        case keyed.Deduplicate(key=key, within=within):
            yield "key", _columns(given, key)
            yield "within", ("ever" if within is None else _span(within),)
        case keyed.Match(key=key, steps=steps, within=within, skip=skip):
            yield "key", _columns(given, key)
            yield "steps", tuple(map(_step, steps))
            yield "within", (_span(within),)
            yield "skip", (str(skip),)
            yield "columns", _columns(given)


def _window_facts(op: windowed.WindowAggregate | windowed.WindowApply, given: pl.Schema) -> _Told:
    windowing = op.windowing
    yield "key", _columns(given, windowing.by)
    yield "window", (_window(windowing.window),)
    yield "allow_late", ("no" if windowing.allowed is None else _span(windowing.allowed),)
    if isinstance(op, windowed.WindowAggregate):
        yield "aggregates", tuple(_aggregate(each) for _, each in op.aggregates)
    else:
        yield "columns", _columns(given)
        yield FUNCTION, (op.function.name,)


def _reads_watermark(op: Operator) -> bool:
    """Whether what an operator keeps means something else at another watermark."""
    match op:
        case keyed.Process(function=function, ttl=ttl):
            return function.has_timers or ttl is not None
        case keyed.Reduce() | keyed.Deduplicate(within=None) | Feedback():
            return False
        case windowed.WindowAggregate(windowing=by) | windowed.WindowApply(windowing=by):
            return not isinstance(by.window, Rows)
    return True


def _watermarks(graph: Graph) -> Mapping[OperatorId, tuple[str, ...]]:
    """Of each operator the sources that its watermark is of, and by how much it is behind them."""
    out: dict[OperatorId, dict[str, int]] = {}
    told: dict[OperatorId, tuple[str, ...]] = {}
    for op in graph.operators:
        mine: dict[str, int] = {op.name: 0} if isinstance(op, Read) else {}
        for port in op.inputs:
            for source, lag in out[port.operator].items():
                mine[source] = max(lag, mine.get(source, 0))
        told[op.id] = tuple(watermark_of(name, lag) for name, lag in sorted(mine.items()))
        # What an outer join lets go alone is older than its watermark (M13).
        more = op.within if isinstance(op, together.Join) and op.how != "inner" else 0
        out[op.id] = {source: lag + more for source, lag in mine.items()}
    return told


def watermark_of(source: str, lag: int = 0) -> str:
    """A source whose watermark counts, as a fact tells it.

    >>> watermark_of("clicks"), watermark_of("clicks", 5_000_000)
    ('clicks', 'clicks less 5 s')
    """
    return f"{source} less {_span(lag)}" if lag else source


def _columns(schema: pl.Schema, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Columns with their types; without where rows come from, which is kept or not as is needed."""
    chosen = [name for name in schema if name.removeprefix("c:") not in FROM]
    return tuple(f"{name}: {schema[name]}" for name in (chosen if names is None else names))


def _window(window: Window) -> str:
    match window:
        case Tumbling(size):
            return f"tumbling {_span(size)}"
        case Sliding(size, slide):
            return f"sliding {_span(size)} by {_span(slide)}"
        case SessionGap(gap):
            return f"session {_span(gap)}"
        case Rows(count, step):
            return f"rows {count} by {step}"


def _aggregate(aggregate: Aggregate) -> str:
    """An aggregate without the name of its result, which is no part of the state."""
    given = [] if aggregate.of is None else [_expression(aggregate.of)]
    if aggregate.by is not None:
        given.append(f"by={_expression(aggregate.by)}")
    numbers = {"k": aggregate.k, "q": aggregate.q, "ddof": aggregate.ddof, "error": aggregate.error}
    given += [f"{name}={value}" for name, value in numbers.items() if value is not None]
    return f"{aggregate.kind}({', '.join(given)})"


def _step(step: Step) -> str:
    predicate = step.predicate
    told = predicate.name if isinstance(predicate, Function) else _expression(predicate)
    return f"{step.name}: {told} x {step.times}"


def _expression(expression: Expression) -> str:
    """An expression as Polars writes it; where that leaves things out, with a digest of all."""
    if "…" not in expression.text or expression.form is None:
        return expression.text
    return f"{expression.text} #{hashlib.sha256(expression.form.encode()).hexdigest()[:8]}"


def _span(micros: int) -> str:
    """A length of time in the largest unit that it is a whole number of."""
    unit = max((name for name in MICROSECONDS if micros % MICROSECONDS[name] == 0), key=_size)
    return f"{micros // MICROSECONDS[unit]} {unit}"


def _size(unit: str) -> int:
    return MICROSECONDS[unit]
