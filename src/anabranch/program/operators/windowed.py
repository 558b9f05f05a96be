"""Windows and what becomes of them (M9, M10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import polars as pl

from anabranch.errors import ProgramError
from anabranch.program.aggregates import Aggregate, as_aggregate, result_type
from anabranch.program.functions import (
    Function,
    OnError,
    as_function,
    out_schema,
    require_on_error,
)
from anabranch.program.operators.operator import (
    DEAD_LETTERS,
    LATE,
    OUT,
    Base,
    Operator,
    Output,
    dead_letters,
    require_final,
    require_ticks,
    require_time,
)
from anabranch.program.schema import SchemaLike
from anabranch.program.windows import Rows, SessionGap, Window, lengths

BOUNDS = ("window_start", "window_end")
REVISION = "revision"


@dataclass(frozen=True, slots=True)
class Windowing:
    """Which windows, of which groups, and how long after their end they still change."""

    window: Window
    by: tuple[str, ...]
    allowed: int | None = None

    def check(self, given: Output, what: str) -> None:
        """Refuse windows that this stream cannot have."""
        require_final(given, what)
        time = require_time(given, what)
        for name, micros in lengths(self.window):
            require_ticks(micros, time, f"{what}: {name}")
        if self.allowed is not None and isinstance(self.window, SessionGap | Rows):
            message = "allow_late works on tumbling and sliding windows only"
            why = "late rows would change where other windows begin and end"
            so = "leave it out: late rows are in .late; or wait for them longer, by read(lateness=)"
            raise ProgramError(message, why=why, so=so)

    def columns(self, given: Output, what: str) -> dict[str, pl.DataType]:
        """The columns that say which window and group a result is of."""
        time = require_time(given, what)
        columns: dict[str, pl.DataType] = dict.fromkeys(BOUNDS, time.dtype)
        if clash := [name for name in self.by if name in columns]:
            message = f"{what}: a by column is called {clash[0]!r} like a bound of the window"
            raise ProgramError(message, so="rename it before")
        if self.allowed is not None and REVISION in self.by:
            message = f"{what}: a by column is called {REVISION!r} like the column of allow_late"
            raise ProgramError(message, so="rename it before")
        return columns | {name: given.schema[name] for name in self.by}


@dataclass(frozen=True, slots=True)
class WindowAggregate(Operator):
    """One row a window and group: bounds, group, aggregates, with `allow_late` the revision."""

    windowing: Windowing
    aggregates: tuple[tuple[str, Aggregate], ...]

    kind: ClassVar[str] = "window"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(
        cls, base: Base, given: Output, windowing: Windowing, aggregates: Mapping[str, Any]
    ) -> Self:
        """Aggregate each window."""
        windowing.check(given, base.name)
        columns = windowing.columns(given, base.name)
        if not aggregates:
            message = f"{base.name}: no aggregates"
            raise ProgramError(message, so="write .agg(n=ab.count())")
        found = []
        for name, each in aggregates.items():
            _refuse_clash(name, columns, windowing, base.name)
            aggregate = as_aggregate(each, f"{base.name}: {name}")
            columns[name] = result_type(aggregate, given.schema, f"{base.name}: {name}")
            found.append((name, aggregate))
        return cls(base, _outputs(given, columns, windowing), windowing, tuple(found))


@dataclass(frozen=True, slots=True)
class WindowApply(Operator):
    """What a function makes of each window's rows, behind the window's bounds and group."""

    windowing: Windowing
    function: Function
    columns: tuple[str, ...]
    """The columns that the function gives."""
    on_error: OnError

    kind: ClassVar[str] = "window"
    stateless: ClassVar[bool] = False

    @classmethod
    def over(
        cls,
        base: Base,
        given: Output,
        windowing: Windowing,
        fn: Any,
        out: SchemaLike | None,
        on_error: str,
    ) -> Self:
        """Apply `fn(key, frame)` to each window."""
        windowing.check(given, base.name)
        function = as_function(fn, base.name, state=True)
        if not function.takes_state or function.is_class:
            message = f"{base.name}: {function.name} must take two arguments"
            raise ProgramError(message, so="it is called as fn(key, frame)")
        schema = out_schema(function, out, base.name)
        for name in schema:
            _refuse_clash(name, {}, windowing, base.name)
        bounds = windowing.columns(given, base.name)
        columns = {name: dtype for name, dtype in bounds.items() if name not in schema}
        outputs = _outputs(given, columns | dict(schema), windowing)
        outputs[DEAD_LETTERS] = dead_letters(given)
        names = tuple(schema)
        return cls(base, outputs, windowing, function, names, require_on_error(on_error, base.name))


def _outputs(
    given: Output, columns: dict[str, pl.DataType], windowing: Windowing
) -> dict[str, Output]:
    revised = windowing.allowed is not None
    if revised:
        columns = {**columns, REVISION: pl.Int64()}
    return {OUT: Output(pl.Schema(columns), given.time, revised), LATE: given}


def _refuse_clash(
    name: str, columns: Mapping[str, pl.DataType], windowing: Windowing, what: str
) -> None:
    taken = name in columns or (name == REVISION and windowing.allowed is not None)
    if taken:
        message = f"{what}: two result columns would be called {name!r}"
        raise ProgramError(message, have=", ".join(columns))
