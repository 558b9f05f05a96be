"""Rows of Python values as frames of a schema: checked, not coerced.

Polars, told to be strict, still takes True for 1, cuts 1.5 to 1 inside a struct, and gives a Date
column another type when it meets a datetime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import polars as pl
from polars.datatypes import DataTypeClass

from anabranch.errors import ProgramError

BATCH_ROWS = 65_536
"""At most so many rows are held at a time: 8 columns of 8 bytes are then 4 MiB."""


class Misfit(Exception):
    """A row that its schema cannot hold: its place among the rows given, and why."""

    def __init__(self, row: int, why: str) -> None:
        """Say which row and why."""
        super().__init__(row, why)
        self.row, self.why = row, why


def frame_of(rows: Sequence[Any], schema: pl.Schema) -> pl.DataFrame:
    """Put rows into a frame of exactly this schema, or raise `Misfit`.

    A missing key is null. An unknown key is a misfit, and so is a value of another type: a whole
    number is fine for a float, a float or a bool for a whole number is not, and nothing is cut off.

    >>> frame_of([{"n": 1}, {}], pl.Schema({"n": pl.Int64})).to_dicts()
    [{'n': 1}, {'n': None}]
    """
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Misfit(number, f"it is a {type(row).__name__}, not a dict")
        if unknown := [name for name in row if name not in schema]:
            raise Misfit(number, f"it has a column {unknown[0]!r} that the schema has not")
    columns = [
        _column(name, [row.get(name) for row in rows], dtype) for name, dtype in schema.items()
    ]
    return pl.DataFrame(columns)


def declared(schema: Mapping[str, Any], what: str) -> pl.Schema:
    """The schema a user wrote as a mapping of names to types.

    >>> declared({"n": int, "at": pl.Datetime}, "Generator")
    Schema([('n', Int64), ('at', Datetime(time_unit='us', time_zone=None))])
    """
    try:
        types = {name: whole_type(dtype) for name, dtype in schema.items()}
        if not types or not all(isinstance(name, str) for name in types):
            raise TypeError("at least one column, each with a text for a name")  # noqa: EM101 - told below
        return pl.Schema(types)
    except (AttributeError, TypeError) as error:
        message = f"{what}: schema must map column names to Polars types, got {schema!r}"
        so = 'write it like {"user": pl.String, "amount": pl.Float64}'
        raise ProgramError(message, why=str(error).splitlines()[0], so=so) from error


def difference(expected: pl.Schema, found: pl.Schema) -> str | None:
    """The first difference in names or types, in words; the columns' order is none.

    >>> difference(pl.Schema({"n": pl.Int64}), pl.Schema({"n": pl.Int32}))
    "column 'n' is Int32, expected Int64"
    """
    for name, dtype in expected.items():
        if name not in found:
            return f"column {name!r} is missing, expected {dtype}"
        if found[name] != dtype:
            return f"column {name!r} is {found[name]}, expected {dtype}"
    extra = [name for name in found if name not in expected]
    return f"column {extra[0]!r} is {found[extra[0]]}, expected no such column" if extra else None


def _column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    if not {type(value) for value in values} <= _exact(dtype):
        wrong = next((row for row, value in enumerate(values) if not _fits(value, dtype)), None)
        if wrong is not None:
            raise Misfit(wrong, _why(name, values[wrong], dtype))
    try:
        return _series(name, values, dtype)
    except _REFUSALS:
        # Of the right type, but too large, or no member of an Enum: Polars knows which one not.
        wrong = next(row for row, value in enumerate(values) if not _builds(value, dtype))
        raise Misfit(wrong, _why(name, values[wrong], dtype)) from None


_REFUSALS = (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError)
_NONE = type(None)
_EXACT: Mapping[type, frozenset[type]] = {
    pl.Boolean: frozenset({bool, _NONE}),
    pl.Float32: frozenset({float, int, _NONE}),
    pl.Float64: frozenset({float, int, _NONE}),
    pl.String: frozenset({str, _NONE}),
    pl.Categorical: frozenset({str, _NONE}),
    pl.Enum: frozenset({str, _NONE}),
    pl.Binary: frozenset({bytes, _NONE}),
    pl.Date: frozenset({date, _NONE}),
    pl.Time: frozenset({time, _NONE}),
    pl.Null: frozenset({_NONE}),
}


def _exact(dtype: pl.DataType) -> frozenset[type]:
    """The Python types that need no closer look; a column of them is checked by one set."""
    return frozenset({int, _NONE}) if dtype.is_integer() else _EXACT.get(type(dtype), frozenset())


def _fits(value: object, dtype: Any) -> bool:  # noqa: PLR0911 - one case a type
    """Whether a type holds this value as it is, but for the range of numbers."""
    if value is None or type(value) in _exact(dtype):
        return True
    match dtype:
        case pl.Datetime():
            return isinstance(value, datetime) and _instant_fits(value, dtype)
        case pl.Duration():
            return isinstance(value, timedelta) and _unit_fits(value.microseconds, dtype.time_unit)
        case pl.Decimal():
            return isinstance(value, Decimal) and value.is_finite() and _scale_fits(value, dtype)
        case pl.List() | pl.Array():
            return isinstance(value, list | tuple) and all(_fits(v, dtype.inner) for v in value)
        case pl.Struct():
            types = {field.name: field.dtype for field in dtype.fields}
            return isinstance(value, dict) and all(
                name in types and _fits(each, types[name]) for name, each in value.items()
            )
    # A subclass of a plain type is one; but a bool is no number here, a datetime no date.
    kinds = tuple(kind for kind in _exact(dtype) if kind is not _NONE)
    return isinstance(value, kinds) and not isinstance(value, bool | datetime)


def _instant_fits(value: datetime, dtype: pl.Datetime) -> bool:
    # Polars takes a naive value for UTC and the other way round: an hour may be meant either way.
    aware = value.tzinfo is not None
    return aware == (dtype.time_zone is not None) and _unit_fits(value.microsecond, dtype.time_unit)


def _unit_fits(microseconds: int, unit: str) -> bool:
    return unit != "ms" or microseconds % 1000 == 0


def _scale_fits(value: Decimal, dtype: pl.Decimal) -> bool:
    # Python's own context would round to 28 digits; Decimal columns have up to 38.
    return value == Context(prec=76).quantize(value, Decimal(1).scaleb(-dtype.scale))


def _builds(value: object, dtype: pl.DataType) -> bool:
    try:
        _series("", [value], dtype)
    except _REFUSALS:
        return False
    return True


def _series(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    return pl.Series(name, values, dtype=dtype, strict=True)


def _why(name: str, value: object, dtype: pl.DataType) -> str:
    return f"column {name!r} is {dtype}, got {type(value).__name__} {value!r}"


def shown(schema: pl.Schema) -> str:
    """The columns of a schema in one line."""
    return ", ".join(f"{name}: {dtype}" for name, dtype in schema.items())


def whole_type(dtype: Any) -> Any:
    """The same type with instances inside: Polars leaves `pl.List(pl.Int64)` a class there.

    >>> isinstance(whole_type(pl.List(pl.Int64)).inner, pl.Int64)
    True
    """
    known = dtype() if isinstance(dtype, DataTypeClass) else dtype
    match known:
        case pl.List():
            return pl.List(whole_type(known.inner))
        case pl.Array():
            return pl.Array(whole_type(known.inner), known.size)
        case pl.Struct():
            return pl.Struct({each.name: whole_type(each.dtype) for each in known.fields})
        case _:
            return known
