"""Columns and their types: what a program may hold, and which type its event times have.

Every value of a record is also a plain Python value, so types that Python cannot hold exactly
(nanoseconds, arbitrary objects) are refused where they enter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl
from polars.datatypes import DataTypeClass

from anabranch.connectors.rows import whole_type
from anabranch.errors import ProgramError, nearest
from anabranch.program.durations import MICROSECONDS

SchemaLike: TypeAlias = Mapping[str, pl.DataType | DataTypeClass | type]

_PLAIN = (
    pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64,
    pl.Float32, pl.Float64, pl.String, pl.Binary, pl.Date, pl.Time, pl.Decimal, pl.Enum,
    pl.Categorical, pl.Null,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeType:
    """The type in which a stream's event times are seen: a Datetime, or an integer with a unit.

    Inside, event times are whole microseconds since 1970-01-01 UTC; `tick` is how many of them
    one step of the visible type is.
    """

    dtype: pl.DataType
    tick: int

    @classmethod
    def of(cls, column: str, dtype: pl.DataType, unit: str) -> TimeType:
        """The time type of a column, refused if it can hold no time."""
        if unit not in ("s", "ms", "us"):
            message = f"time_unit must be 's', 'ms' or 'us', got {unit!r}"
            raise ProgramError(message)
        if isinstance(dtype, pl.Datetime):
            return cls(dtype, MICROSECONDS[dtype.time_unit])
        if dtype.is_integer():
            return cls(dtype, MICROSECONDS[unit])
        message = f"event time column {column!r} is {dtype}"
        so = "name a Datetime column, or an integer one with time_unit='s' | 'ms' | 'us'"
        raise ProgramError(message, so=so)


def as_schema(given: SchemaLike, what: str) -> pl.Schema:
    """Make a schema of names and types, refusing types that a record cannot hold.

    >>> dict(as_schema({"n": int, "s": pl.String}, "out"))
    {'n': Int64, 's': String}
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        message = f"{what} must map column names to Polars types, got {given!r}"
        raise ProgramError(message, so='write it like {"n": pl.Int64}')
    schema = pl.Schema(
        {name: _as_type(name, dtype, what) for name, dtype in given.items()}, check_dtypes=False
    )
    for name, dtype in schema.items():
        _refuse_type(name, dtype, what)
    return schema


def require_columns(schema: pl.Schema, names: Iterable[str], what: str) -> None:
    """Refuse names that the schema does not have."""
    for name in names:
        if not isinstance(name, str):
            message = f"{what}: not the name of a column: {name}"
            so = "compute it before, e.g. .with_columns(day=...), and name the column"
            raise ProgramError(message, have=describe(schema), so=so)
        if name not in schema:
            message = f"{what}: no column {name!r}"
            raise ProgramError(
                message, have=describe(schema), so=nearest(name, schema) or "name one of these"
            )


def describe(schema: pl.Schema) -> str:
    """The columns of a schema in one line.

    >>> describe(pl.Schema({"n": pl.Int64}))
    'n: Int64'
    """
    return ", ".join(f"{name}: {dtype}" for name, dtype in schema.items()) or "no columns"


def empty_frame(schema: pl.Schema) -> pl.DataFrame:
    """A frame of no rows, for asking Polars what an expression would do."""
    return pl.DataFrame(schema=schema)


def _as_type(name: str, dtype: object, what: str) -> pl.DataType:
    try:
        parsed = (
            pl.DataType.from_python(dtype)
            if isinstance(dtype, type) and not isinstance(dtype, DataTypeClass)
            else dtype
        )
    except TypeError:
        parsed = None
    if isinstance(parsed, DataTypeClass):
        parsed = _instance(parsed)
    if not isinstance(parsed, pl.DataType):
        message = f"{what}: column {name!r} has no Polars type: {dtype!r}"
        raise ProgramError(message, so="use types like pl.Int64 or pl.String")
    made: pl.DataType = whole_type(parsed)
    return made


def _instance(kind: DataTypeClass) -> pl.DataType | None:
    try:
        made: pl.DataType = kind()
        return made
    except TypeError:  # List, Struct, ... say nothing without their inner type
        return None


def _refuse_type(name: str, dtype: pl.DataType, what: str) -> None:
    for inner in _leaves(dtype):
        if isinstance(inner, (pl.Datetime, pl.Duration)) and inner.time_unit != "ns":
            continue
        if isinstance(inner, _PLAIN):
            continue
        message = f"{what}: column {name!r} has type {dtype}, which a record cannot hold exactly"
        so = (
            "cast it to microseconds, e.g. .dt.cast_time_unit('us')"
            if isinstance(inner, (pl.Datetime, pl.Duration))
            else "use a type with an exact plain Python value"
        )
        raise ProgramError(message, so=so)


def _leaves(dtype: pl.DataType) -> Iterable[pl.DataType]:
    if isinstance(dtype, (pl.List, pl.Array)):
        yield from _leaves(_known(dtype.inner))
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from _leaves(_known(field.dtype))
    else:
        yield dtype


def _known(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()
