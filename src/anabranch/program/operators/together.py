"""Operators that bring streams and tables together (M13, M14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self, TypeAlias

import polars as pl

from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration
from anabranch.program.operators.keyed import require_key
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
from anabranch.program.schema import TimeType, describe, require_columns
from anabranch.program.tables import Table, as_table

How: TypeAlias = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True, slots=True)
class Join(Operator):
    """Pairs of rows with equal keys whose event times are near."""

    on: tuple[str, ...]
    within: int
    how: How
    right_names: tuple[tuple[str, str], ...]
    """The right side's columns without the keys, and what they are called in the result."""

    kind: ClassVar[str] = "join"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(
        cls,
        base: Base,
        left: Output,
        right: Output,
        on: tuple[str, ...],
        within: str | timedelta,
        how: str,
    ) -> Self:
        """Join two streams on key columns, within a stretch of event time."""
        for side in (left, right):
            require_final(side, base.name)
            require_key(side, on, base.name)
        time = _one_time(left, right, base.name)
        if time is None:
            require_time(left, base.name)
        _require_how(how, ("inner", "left", "right", "full"), base.name)
        _require_same_types(left.schema, right.schema, on, base.name)
        schema, names = joined(left.schema, right.schema, on)
        outputs = {OUT: Output(schema, time), DEAD_LETTERS: dead_letters(left)}
        micros = parse_duration(within, f"{base.name}: within", zero=True)
        return cls(base, outputs, on, micros, how, names)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Lookup(Operator):
    """Each row beside the rows of a table with its key."""

    table: Table
    on: tuple[str, ...]
    how: Literal["inner", "left"]
    many: bool
    right_names: tuple[tuple[str, str], ...]

    kind: ClassVar[str] = "lookup"

    @classmethod
    def over(
        cls,
        base: Base,
        given: Output,
        table: Any,
        on: tuple[str, ...],
        how: str,
        many: bool,
        refresh: str | timedelta | None,
    ) -> Self:
        """Look rows up in a table."""
        require_key(given, on, base.name)
        _require_how(how, ("inner", "left"), base.name)
        found = as_table(table, base.name, refresh)
        require_columns(found.schema, on, f"{base.name}: the table")
        _require_same_types(given.schema, found.schema, on, base.name)
        if not many:
            refuse_duplicates(found.first, on, base.name)
        schema, names = joined(given.schema, found.schema, on)
        outputs = {OUT: Output(schema, given.time, given.revised)}
        return cls(base, outputs, found, on, how, many, names)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Union(Operator):
    """The rows of two streams, by log order and then by position."""

    kind: ClassVar[str] = "union"

    @classmethod
    def over(cls, base: Base, left: Output, right: Output) -> Self:
        """Put two streams of the same columns together."""
        _require_same_schema(left, right, base.name)
        time = _one_time(left, right, base.name)
        return cls(base, {OUT: Output(left.schema, time, left.revised or right.revised)})


@dataclass(frozen=True, slots=True)
class Merge(Operator):
    """The rows of two streams by event time."""

    kind: ClassVar[str] = "merge"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(cls, base: Base, left: Output, right: Output) -> Self:
        """Put two streams of the same columns together in the order of their event times."""
        for side in (left, right):
            require_final(side, base.name)
            require_time(side, base.name)
        _require_same_schema(left, right, base.name)
        return cls(base, {OUT: Output(left.schema, _one_time(left, right, base.name))})


@dataclass(frozen=True, slots=True)
class InTimeOrder(Operator):
    """The rows of one stream by event time."""

    kind: ClassVar[str] = "in_time_order"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(cls, base: Base, given: Output) -> Self:
        """Hold rows until the watermark has passed them."""
        require_final(given, base.name)
        require_time(given, base.name)
        return cls(base, {OUT: given})


def joined(
    left: pl.Schema, right: pl.Schema, on: Sequence[str]
) -> tuple[pl.Schema, tuple[tuple[str, str], ...]]:
    """Left's columns, then right's without the keys, clashes with `_right`."""
    columns = dict(left)
    names = []
    for name, dtype in right.items():
        if name in on:
            continue
        new = name if name not in columns else f"{name}_right"
        if new in columns:
            message = f"two result columns would be called {new!r}"
            raise ProgramError(message, so="rename one of them before")
        columns[new] = dtype
        names.append((name, new))
    return pl.Schema(columns), tuple(names)


def refuse_duplicates(table: pl.DataFrame, on: Sequence[str], what: str) -> None:
    """Refuse a table with several rows of one key."""
    keys = table.select(on).drop_nulls()
    if keys.is_duplicated().any():
        example = keys.filter(keys.is_duplicated()).row(0)
        message = f"{what}: the table has several rows for {', '.join(on)} = {example}"
        raise ProgramError(message, so="pass many=True to get a row for each")


def _require_same_schema(left: Output, right: Output, what: str) -> None:
    if dict(left.schema) != dict(right.schema):
        message = f"{what}: the two streams have different columns"
        have = f"{describe(left.schema)}  |  {describe(right.schema)}"
        raise ProgramError(message, have=have, so="make them equal with select")


def _require_same_types(left: pl.Schema, right: pl.Schema, on: Sequence[str], what: str) -> None:
    for name in on:
        if left[name] != right[name]:
            message = (
                f"{what}: column {name!r} is {left[name]} on the left, {right[name]} on the right"
            )
            raise ProgramError(message, so="cast one of them before")


def _one_time(left: Output, right: Output, what: str) -> TimeType | None:
    if left.time != right.time:
        message = f"{what}: the two streams have different event times"
        have = f"{_time(left)}  |  {_time(right)}"
        so = "give both the same type of event time with .with_event_time(column)"
        raise ProgramError(message, have=have, so=so)
    return left.time


def _time(given: Output) -> str:
    return "none" if given.time is None else f"{given.time.dtype} of {given.time.tick} us"


def _require_how(how: str, allowed: tuple[str, ...], what: str) -> None:
    if how not in allowed:
        message = f"{what}: how must be one of {', '.join(map(repr, allowed))}, got {how!r}"
        raise ProgramError(message)
