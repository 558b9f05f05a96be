"""What all operators have in common: a name, a place in the user's file, inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import polars as pl

from anabranch.errors import ProgramError, Site
from anabranch.ids import OperatorId
from anabranch.program.schema import TimeType, as_schema

OUT = "out"
DEAD_LETTERS = "dead_letters"
LATE = "late"
REST = "rest"

DEAD_LETTER_SCHEMA = as_schema(
    {
        "operator": pl.String,
        "source": pl.String,
        "partition": pl.String,
        "offset": pl.Int64,
        "epoch": pl.Int64,
        "reason": pl.String,
        "error": pl.String,
        "traceback": pl.String,
        "record": pl.String,
    },
    "dead letters",
)


@dataclass(frozen=True, slots=True)
class Port:
    """One output of one operator."""

    operator: OperatorId
    output: str = OUT


@dataclass(frozen=True, slots=True)
class Output:
    """What comes out of a port: columns, the type of event times, whether rows are revised."""

    schema: pl.Schema
    time: TimeType | None
    revised: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """What the builder gives each operator."""

    id: OperatorId
    name: str
    site: Site
    inputs: tuple[Port, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of a program."""

    base: Base = field(repr=False)
    outputs: Mapping[str, Output] = field(repr=False)

    kind: ClassVar[str]
    stateless: ClassVar[bool] = True
    """Whether it keeps nothing from one row to the next (so revised rows may enter, M9)."""

    @property
    def id(self) -> OperatorId:
        """Its number in order of writing, which is a topological order."""
        return self.base.id

    @property
    def name(self) -> str:
        """The name its state is kept by."""
        return self.base.name

    @property
    def site(self) -> Site:
        """The user's line."""
        return self.base.site

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The ports it reads, in position order."""
        return self.base.inputs


def require_time(given: Output, what: str) -> TimeType:
    """The type of event times, refused where a stream has none."""
    if given.time is None:
        message = f"{what} needs event times, and this stream has none"
        so = "pass event_time=... to program.read, or call .with_event_time(column) before"
        raise ProgramError(message, so=so)
    return given.time


def require_ticks(micros: int, time: TimeType, what: str) -> None:
    """Refuse a length that the event times' own type cannot show."""
    if micros % time.tick:
        message = f"{what} is no whole number of the time column's units"
        why = f"one unit of {time.dtype} is {time.tick} us, and {what} is {micros} us"
        so = f"choose a multiple of {time.tick} us, or read event times in finer units (time_unit=)"
        raise ProgramError(message, why=why, so=so)


def require_final(given: Output, what: str) -> None:
    """Refuse rows that may be revised where they would be counted twice."""
    if given.revised:
        message = f"{what} cannot take rows that may be revised"
        why = "a window above it has allow_late(...), which emits a row again when it changes"
        so = "put only stateless operators and sinks behind it, or leave allow_late out"
        raise ProgramError(message, why=why, so=so)


def dead_letters(given: Output) -> Output:
    """The dead letters of an operator over this stream."""
    return Output(DEAD_LETTER_SCHEMA, given.time)
