"""Where rows enter and leave a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Self

import polars as pl

from anabranch.connectors.base import Sink, Source
from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration
from anabranch.program.functions import OnError, require_on_error
from anabranch.program.operators.operator import (
    DEAD_LETTER_SCHEMA,
    DEAD_LETTERS,
    OUT,
    Base,
    Operator,
    Output,
    Port,
)
from anabranch.program.schema import SchemaLike, TimeType, as_schema, require_columns


@dataclass(frozen=True, slots=True)
class Read(Operator):
    """Rows of a source, in log order; lengths in microseconds."""

    source: Source = field(compare=False)
    event_time: str | None
    lateness: int
    idle_timeout: int | None
    on_error: OnError

    kind: ClassVar[str] = "read"

    @classmethod
    def over(
        cls,
        base: Base,
        source: Source,
        event_time: str | None,
        time_unit: str,
        lateness: str | timedelta,
        idle_timeout: str | timedelta | None,
        on_error: str,
    ) -> Self:
        """Read a source, its event times from one of its columns."""
        if not isinstance(source, Source):
            message = f"{base.name}: not a source: {source!r}"
            so = "use ab.sources.Records, Files, Generator, ..., or derive from ab.sources.Source"
            raise ProgramError(message, so=so)
        schema = as_schema(source.schema, f"{base.name}: schema")
        if source.unread in schema:
            message = f"{base.name}: the source tells rows that it could not read in one of its"
            message += f" own columns, {source.unread!r}"
            raise ProgramError(message, so="give the source's `unread` a name of its own")
        time = None
        if event_time is not None:
            require_columns(schema, [event_time], f"{base.name}: event_time")
            time = TimeType.of(event_time, schema[event_time], time_unit)
        out = Output(schema, time)
        return cls(
            base,
            {OUT: out, DEAD_LETTERS: Output(DEAD_LETTER_SCHEMA, None)},
            source,
            event_time,
            parse_duration(lateness, f"{base.name}: lateness", zero=True),
            None
            if idle_timeout is None
            else parse_duration(idle_timeout, f"{base.name}: idle_timeout"),
            require_on_error(on_error, base.name),
        )


@dataclass(frozen=True, slots=True)
class Feedback(Operator):
    """Rows that a later stream gave in the epoch before (M14)."""

    event_time: str | None

    kind: ClassVar[str] = "feedback"

    @classmethod
    def over(cls, base: Base, schema: SchemaLike, event_time: str | None, time_unit: str) -> Self:
        """Read what `.close(stream)` will give."""
        columns = as_schema(schema, f"{base.name}: schema")
        time = None
        if event_time is not None:
            require_columns(columns, [event_time], f"{base.name}: event_time")
            time = TimeType.of(event_time, columns[event_time], time_unit)
        return cls(base, {OUT: Output(columns, time)}, event_time)


@dataclass(frozen=True, slots=True)
class Write(Operator):
    """Rows into a sink, in the order of their keys unless the user does not care."""

    sink: Sink = field(compare=False)
    ordered: bool

    kind: ClassVar[str] = "write"

    @classmethod
    def over(cls, base: Base, sink: Sink, schema: pl.Schema, ordered: Any) -> Self:
        """Write a stream of these columns to a sink."""
        if not isinstance(sink, Sink):
            message = f"{base.name}: not a sink: {sink!r}"
            so = "use ab.sinks.Memory, Files, ..., or derive from ab.sinks.Sink"
            raise ProgramError(message, so=so)
        if not isinstance(ordered, bool):
            message = f"{base.name}: ordered must be True or False, got {ordered!r}"
            raise ProgramError(message)
        sink.require(schema)
        return cls(base, {}, sink, ordered)

    @property
    def port(self) -> Port:
        """The one port it reads."""
        return self.inputs[0]
