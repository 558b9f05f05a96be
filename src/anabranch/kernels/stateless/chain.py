"""Operators without state, lowered once into steps and run on bundles of any size.

Steps are run eagerly: on 200,000 rows Polars' lazy queries took 1.6 times as long as the same steps
one by one, on 100 rows twice as long. What a lazy query would save, carrying columns that nobody
reads, is saved here instead: each step knows which of them are still *live*. Expressions are never
left out, even if nobody reads their result, since they may fail, and would in the sequential run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from anabranch.kernels.bundle import TIME, hidden, sub
from anabranch.kernels.failures import failing
from anabranch.kernels.letters import NONE, Left
from anabranch.kernels.stateless import calls
from anabranch.kernels.stateless.columns import filtered, framed, only
from anabranch.kernels.stateless.elementwise import ElementwiseStep
from anabranch.kernels.stateless.evaluated import Evaluated
from anabranch.kernels.stateless.frames import Frames
from anabranch.kernels.stateless.functions import FunctionsStep, Loop, Stage
from anabranch.kernels.stateless.left_out import inherited, left_out
from anabranch.kernels.stateless.python_rows import Made, Picker
from anabranch.kernels.stateless.steps import ExplodeStep, FilterStep, ProjectStep, Step
from anabranch.kernels.times import micros_of
from anabranch.kernels.together.lookup import LookupStep
from anabranch.program.expressions import Expression
from anabranch.program.functions import Function, OnError
from anabranch.program.operators import rowwise as ops
from anabranch.program.operators.operator import OUT, Operator
from anabranch.program.operators.together import Lookup
from anabranch.program.schema import TimeType

__all__ = ["Chain", "inherited", "left_out", "lower_chain"]


@dataclass(frozen=True)
class Chain:
    """Operators in a row; if letters are read, they are those of the last one."""

    steps: tuple[Step, ...]
    live: tuple[str, ...]
    """The user's columns that it reads; it must be given these and may be given more."""
    out: tuple[str, ...]
    """The user's columns that leave it."""

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Take a bundle through all steps; an error of the program raises `Failed`."""
        count, left = 0, NONE
        frame = only(frame, self.live)
        for step in self._fused:
            with failing(step.name):
                frame, left = step.run(frame)
            count += left.count
        return only(frame, self.out), Left(count, left.letters)

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> Chain:
        """The same operators with other versions of some lookup tables, by the lookup's name."""
        steps = tuple(
            step.with_table(tables[step.name])
            if isinstance(step, LookupStep) and step.name in tables
            else step
            for step in self.steps
        )
        return Chain(steps, self.live, self.out)

    @cached_property
    def _fused(self) -> tuple[Step, ...]:
        """The steps as they are run: functions of records that follow one another are one.

        Every step takes the columns it wants by name, so none is needed to leave out others.
        """
        found = list[Step]()
        for step in self.steps:
            last = found[-1] if found else None
            if isinstance(step, FunctionsStep) and isinstance(last, FunctionsStep) and last.open:
                found[-1] = FunctionsStep((*last.stages, *step.stages))
            elif not (isinstance(step, ProjectStep) and step.picks):
                found.append(step)
        return tuple(found)

    def run_apart(self, frame: pl.DataFrame) -> tuple[list[pl.DataFrame], Left]:
        """Take each row through all steps before the next one, and each that is made of it, too."""
        found: list[pl.DataFrame] = []
        count, letters = 0, list[pl.DataFrame]()
        waiting = [(0, row) for row in frame.select([*self.live, *hidden(frame)]).iter_slices(1)]
        waiting.reverse()
        while waiting:
            at, row = waiting.pop()
            if at == len(self.steps):
                found.append(row.select([*self.out, *hidden(row)]))
                continue
            with failing(self.steps[at].name):
                made, left = self.steps[at].run(row)
            count += left.count
            if left.letters is not None:
                letters.append(left.letters)
            waiting += [(at + 1, each) for each in reversed(list(made.iter_slices(1)))]
        return found, Left(count, pl.concat(letters) if letters else None)


def lower_chain(
    operators: Sequence[Operator],
    schemas: Sequence[pl.Schema],
    needed: Iterable[str],
    ordered: bool,  # noqa: FBT001 - a fact, not a mode
) -> Chain:
    """Steps for operators, each with its input's schema; `needed` of what leaves the last one.

    Where rows are ordered, each operator that makes several of one numbers them in a column.
    """
    live, steps = frozenset(needed), list[Step]()
    out = _sorted(live, operators[-1].outputs[OUT].schema) if operators else tuple(needed)
    for op, schema in reversed(list(zip(operators, schemas, strict=True))):
        name = sub(op.id) if ordered and _makes_several(op) else None
        step, live = _LOWER[type(op)](op, schema, live, name)
        steps.insert(0, step)
    first = tuple(schemas[0]) if operators else out
    return Chain(tuple(steps), tuple(c for c in first if c in live), out)


def _makes_several(op: Operator) -> bool:
    several = isinstance(op, ops.FlatMap | ops.Explode | ops.MapBatches)
    return several or (isinstance(op, Lookup) and op.many)


@dataclass(frozen=True)
class EventTimeStep:
    """The same rows at other event times (M7)."""

    name: str
    column: str
    time: TimeType
    on_error: OnError
    columns: tuple[str, ...]
    live: tuple[str, ...]

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Take the times from a column; a row without one obeys `on_error`."""
        times = micros_of(frame[self.column], self.time).alias(TIME)
        hide = [frame[name] for name in hidden(frame) if name != TIME]
        rows = framed([*(frame[name] for name in self.live), *hide, times], frame.height)
        if not times.null_count() and self.on_error != "dead_letter":
            return rows, NONE
        missing = times.is_null()
        error = ValueError(f"null event time in column {self.column!r}")
        made = Made(failures=dict.fromkeys(missing.arg_true().to_list(), error))
        left = left_out(self.name, frame, self.columns, made, self.on_error)
        return filtered(rows, ~missing, self.live), left


# Lowering, from the last operator to the first

_Live = frozenset[str]
_NONE: _Live = frozenset()


def _filter(op: ops.Filter, schema: pl.Schema, live: _Live, _: str | None) -> tuple[Step, _Live]:
    if isinstance(op.predicate, Function):
        return _function(op, op.predicate, calls.kept, schema, schema, None), frozenset(schema)
    evaluated = Evaluated.of([op.predicate], schema)
    return FilterStep(op.name, evaluated, _sorted(live, schema)), live | evaluated.roots


def _select(op: ops.Select, schema: pl.Schema, live: _Live, _: str | None) -> tuple[Step, _Live]:
    return _projected(op, schema, live, ())


def _with_columns(
    op: ops.WithColumns, schema: pl.Schema, live: _Live, _: str | None
) -> tuple[Step, _Live]:
    written = pl.DataFrame(schema=schema).select([each.expr for each in op.expressions]).columns
    return _projected(op, schema, live, _sorted(live - frozenset(written), schema))


def _projected(
    op: ops.Select | ops.WithColumns, schema: pl.Schema, live: _Live, kept: Iterable[str]
) -> tuple[Step, _Live]:
    """Bare columns are taken as they are, if somebody reads them; all else is computed."""
    names, computed = [(name, name) for name in kept], list[Expression]()
    for each in op.expressions:
        bare = _bare(each)
        if bare is None:
            computed.append(each)
        elif bare[1] in live:
            names.append(bare)
    made = Evaluated.of(computed, schema) if computed else None
    read = frozenset(old for old, _ in names) | (made.roots if made is not None else _NONE)
    return ProjectStep(op.name, tuple(names), made, _sorted(live, op.outputs[OUT].schema)), read


def _drop(op: ops.Drop, schema: pl.Schema, live: _Live, _: str | None) -> tuple[Step, _Live]:
    left = _sorted(live, schema)
    return ProjectStep(op.name, tuple((name, name) for name in left), None, left), live


def _rename(op: ops.Rename, schema: pl.Schema, live: _Live, _: str | None) -> tuple[Step, _Live]:
    new = dict(op.names)
    names = tuple((old, new.get(old, old)) for old in schema if new.get(old, old) in live)
    left = tuple(name for _, name in names)
    return ProjectStep(op.name, names, None, left), frozenset(old for old, _ in names)


def _explode(
    op: ops.Explode, schema: pl.Schema, live: _Live, sub: str | None
) -> tuple[Step, _Live]:
    needed = live | {op.column}
    return ExplodeStep(op.name, op.column, _sorted(needed, schema), sub), needed


def _map(op: ops.Map, schema: pl.Schema, live: _Live, _: str | None) -> tuple[Step, _Live]:
    del live
    out = op.outputs[OUT].schema
    return _function(op, op.function, calls.mapped, schema, out, None), frozenset(schema)


def _flat_map(
    op: ops.FlatMap, schema: pl.Schema, live: _Live, sub: str | None
) -> tuple[Step, _Live]:
    del live
    out = op.outputs[OUT].schema
    return _function(op, op.function, calls.flat_mapped, schema, out, sub), frozenset(schema)


def _function(
    op: ops.Filter | ops.Map | ops.FlatMap,
    function: Function,
    loop: Loop,
    schema: pl.Schema,
    out: pl.Schema,
    sub: str | None,
) -> FunctionsStep:
    stage = Stage(op.name, function.call, tuple(schema), loop, Picker(out), sub, op.on_error)
    return FunctionsStep((stage,))


def _map_batches(
    op: ops.MapBatches, schema: pl.Schema, live: _Live, sub: str | None
) -> tuple[Step, _Live]:
    del live
    assert op.elementwise, "of whole epochs: see BatchesKernel"
    frames = Frames(op.function.call, tuple(schema), op.outputs[OUT].schema)
    few = op.function.declared.selectivity in ("one", "at-most-one")
    return ElementwiseStep(op.name, frames, few, sub, op.on_error), frozenset(schema)


def _lookup(op: Lookup, schema: pl.Schema, live: _Live, sub: str | None) -> tuple[Step, _Live]:
    step = LookupStep.of(op, schema, live, sub)
    return step, frozenset(step.left) | frozenset(op.on)


def _with_event_time(
    op: ops.WithEventTime, schema: pl.Schema, live: _Live, sub: str | None
) -> tuple[Step, _Live]:
    del sub
    time = op.outputs[OUT].time
    assert time is not None
    read = frozenset(schema) if op.on_error == "dead_letter" else live | {op.column}
    seen, kept = _sorted(read, schema), _sorted(live, schema)
    return EventTimeStep(op.name, op.column, time, op.on_error, seen, kept), read


_LOWER: dict[type[Operator], Callable[..., tuple[Step, _Live]]] = {
    ops.Filter: _filter,
    ops.Select: _select,
    ops.WithColumns: _with_columns,
    ops.Drop: _drop,
    ops.Rename: _rename,
    ops.Explode: _explode,
    ops.Map: _map,
    ops.FlatMap: _flat_map,
    ops.MapBatches: _map_batches,
    ops.WithEventTime: _with_event_time,
    Lookup: _lookup,
}


def _bare(expression: Expression) -> tuple[str, str] | None:
    """The column that an expression is, and its name behind it, if it computes nothing."""
    match json.loads(expression.form) if expression.form else None:
        case {"Column": str(name), **rest} if not rest:
            return name, name
        case {"Alias": [{"Column": str(name), **rest}, str(new)], **others} if not (rest or others):
            return name, new
    return None


def _sorted(live: _Live, schema: pl.Schema) -> tuple[str, ...]:
    return tuple(name for name in schema if name in live)
