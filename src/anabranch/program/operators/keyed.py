"""Operators with state: a key's records come one at a time, in order (M11, M12, M14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

import polars as pl

from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration
from anabranch.program.expressions import Expression
from anabranch.program.functions import (
    Function,
    OnError,
    as_function,
    out_schema,
    require_on_error,
)
from anabranch.program.operators.operator import (
    DEAD_LETTERS,
    OUT,
    Base,
    Operator,
    Output,
    dead_letters,
    require_final,
    require_time,
)
from anabranch.program.operators.rowwise import predicate
from anabranch.program.pattern import Step
from anabranch.program.schema import SchemaLike, describe, require_columns


def require_key(given: Output, key: Sequence[str], what: str) -> tuple[str, ...]:
    """The key columns, refused where they do not exist or cannot be compared."""
    require_columns(given.schema, key, what)
    for name in key:
        dtype = given.schema[name]
        if dtype.is_nested():
            message = f"{what}: key column {name!r} is {dtype}, which has no order"
            raise ProgramError(message, have=describe(given.schema))
    if len(set(key)) < len(key):
        message = f"{what}: a key column is named twice: {', '.join(key)}"
        raise ProgramError(message)
    return tuple(key)


@dataclass(frozen=True, slots=True)
class Process(Operator):
    """A function with state, per key, or over the whole stream where the key is None."""

    key: tuple[str, ...] | None
    function: Function
    ttl: int | None
    on_error: OnError

    kind: ClassVar[str] = "process"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(
        cls,
        base: Base,
        given: Output,
        key: tuple[str, ...] | None,
        fn: Any,
        out: SchemaLike | None,
        ttl: str | timedelta | None,
        on_error: str,
    ) -> Self:
        """Apply a function or a KeyedOperator to each key's records."""
        require_final(given, base.name)
        function = as_function(fn, base.name, state=True)
        if function.has_timers or ttl is not None:
            require_time(given, f"{base.name} with {'timers' if ttl is None else 'ttl'}")
        schema = out_schema(function, out, base.name)
        outputs = {OUT: Output(schema, given.time), DEAD_LETTERS: dead_letters(given)}
        life = None if ttl is None else parse_duration(ttl, f"{base.name}: ttl")
        return cls(base, outputs, key, function, life, require_on_error(on_error, base.name))


@dataclass(frozen=True, slots=True)
class Reduce(Operator):
    """The running combination of a key's records."""

    key: tuple[str, ...]
    function: Function
    on_error: OnError

    kind: ClassVar[str] = "reduce"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(cls, base: Base, given: Output, key: tuple[str, ...], fn: Any, on_error: str) -> Self:
        """Combine the value so far with each record by `fn(value, record)`."""
        require_final(given, base.name)
        function = as_function(fn, base.name, state=True)
        if not function.takes_state or function.is_class:
            message = f"{base.name}: {function.name} must take two arguments"
            raise ProgramError(message, so="it is called as fn(value, record)")
        outputs = {OUT: given, DEAD_LETTERS: dead_letters(given)}
        return cls(base, outputs, key, function, require_on_error(on_error, base.name))


@dataclass(frozen=True, slots=True)
class Deduplicate(Operator):
    """The first of the records with a key, or the first within a stretch of event time."""

    key: tuple[str, ...]
    within: int | None

    kind: ClassVar[str] = "deduplicate"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(
        cls, base: Base, given: Output, key: tuple[str, ...], within: str | timedelta | None
    ) -> Self:
        """Drop records whose key has passed before."""
        require_final(given, base.name)
        if within is None:
            return cls(base, {OUT: given}, key, None)
        require_time(given, f"{base.name} with within")
        return cls(base, {OUT: given}, key, parse_duration(within, f"{base.name}: within"))


@dataclass(frozen=True, slots=True)
class Match(Operator):
    """Sequences of a key's records that fit a pattern."""

    key: tuple[str, ...]
    steps: tuple[Step, ...]
    within: int
    skip: bool
    on_error: OnError

    kind: ClassVar[str] = "match"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(
        cls,
        base: Base,
        given: Output,
        key: tuple[str, ...],
        steps: Sequence[Step],
        within: str | timedelta,
        skip: bool,
        on_error: str,
    ) -> Self:
        """Find a pattern within a stretch of event time."""
        require_final(given, base.name)
        time = require_time(given, base.name)
        checked = tuple(_step(each, given, base.name) for each in steps)
        names = [*key, "match_start", "match_end", *(each.name for each in checked)]
        if not checked or len(set(names)) < len(names):
            message = f"{base.name}: the steps need names of their own: {', '.join(names)}"
            raise ProgramError(message)
        columns: dict[str, pl.DataType] = {name: given.schema[name] for name in key}
        columns |= {"match_start": time.dtype, "match_end": time.dtype}
        columns |= {each.name: pl.List(pl.Struct(dict(given.schema))) for each in checked}
        outputs = {OUT: Output(pl.Schema(columns), given.time), DEAD_LETTERS: dead_letters(given)}
        micros = parse_duration(within, f"{base.name}: within")
        return cls(base, outputs, key, checked, micros, skip, require_on_error(on_error, base.name))


def _step(given: Any, stream: Output, what: str) -> Step:
    if not isinstance(given, Step):
        message = f"{what}: not a step: {given!r}"
        raise ProgramError(message, so='use ab.step("name", predicate)')
    if isinstance(given.predicate, Expression):
        predicate(given.predicate.expr, stream.schema, f"{what}: {given.name}")
    return given
