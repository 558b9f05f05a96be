"""Equality and order of values (M6), and what a Python operator may give (api: `out`)."""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import polars as pl

from anabranch.testing.sequential.row import Record

DIGITS = Context(prec=76)
"""Python's own context rounds to 28 digits; Decimal columns have up to 38."""


class BadRow(Exception):
    """A row that a Python operator may not give."""


def order_of(value: Any) -> Any:  # noqa: PLR0911 - one case a kind
    """A Python value that compares as M6 says: null first, NaN last, -0.0 = 0.0, strings by bytes.

    Two values are the same key exactly when theirs are equal.

    >>> sorted([float("nan"), 2.0, None, -0.0], key=order_of)
    [None, -0.0, 2.0, nan]
    """
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, 1, 0.0) if math.isnan(value) else (1, 0, value + 0.0)
    if isinstance(value, int | Decimal):
        return (1, 0, value)
    if isinstance(value, str):
        return (1, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, datetime) and value.tzinfo is not None:
        # Python compares times of one zone by what the clock shows, and clocks go back.
        return (1, value.astimezone(UTC))
    if isinstance(value, list | tuple):
        return (1, tuple(order_of(each) for each in value))
    if isinstance(value, Mapping):
        return (1, tuple(order_of(each) for each in value.values()))
    return (1, value)


def key_of(record: Record, columns: Sequence[str]) -> tuple[Any, ...]:
    """The values of the key columns, -0.0 as 0.0 so that all spellings of a key are one."""
    return tuple(_canonical(record[name]) for name in columns)


def _canonical(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def copied(value: Any) -> Any:
    """A value that shares nothing with the original."""
    return copy.deepcopy(value)


def conform(given: Any, schema: pl.Schema) -> Record:
    """A record of exactly these columns: a missing one is null, an unknown one an error."""
    if not isinstance(given, Mapping):
        message = f"expected a dict, got {type(given).__name__}"
        raise BadRow(message)
    if unknown := [name for name in given if name not in schema]:
        message = f"unknown column {unknown[0]!r}; out has {', '.join(schema)}"
        raise BadRow(message)
    return {name: _fit(given.get(name), dtype, name) for name, dtype in schema.items()}


def _fit(value: Any, dtype: Any, where: str) -> Any:
    if value is None:
        return None
    fitted = _fitted(value, dtype, where)
    if fitted is None:
        message = f"column {where!r} is {dtype}, got {type(value).__name__} {value!r}"
        raise BadRow(message)
    return fitted


def _fitted(value: Any, dtype: Any, where: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case a type
    """The value as the type holds it, or None where it does not fit."""
    match dtype:
        case pl.Boolean():
            return value if isinstance(value, bool) else None
        case _ if dtype.is_integer():
            whole = isinstance(value, int) and not isinstance(value, bool)
            return value if whole and _in_range(value, dtype) else None
        case pl.Float64():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return float(value) if number else None
        case pl.Float32():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return _single(float(value)) if number else None
        case pl.Decimal():
            return _decimal(value, dtype) if isinstance(value, Decimal) else None
        case pl.String() | pl.Categorical():
            return value if isinstance(value, str) else None
        case pl.Enum():
            return value if value in dtype.categories.to_list() else None
        case pl.Binary():
            return bytes(value) if isinstance(value, bytes | bytearray) else None
        case pl.Datetime():
            return _instant(value, dtype) if isinstance(value, datetime) else None
        case pl.Date():
            return value if isinstance(value, date) and not isinstance(value, datetime) else None
        case pl.Time():
            return value if isinstance(value, time) else None
        case pl.Duration():
            whole = isinstance(value, timedelta) and _whole(value.microseconds, dtype)
            return value if whole else None
        case pl.List():
            return _items(value, dtype.inner, where) if isinstance(value, list | tuple) else None
        case pl.Array():
            fits = isinstance(value, list | tuple) and len(value) == dtype.size
            return _items(value, dtype.inner, where) if fits else None
        case pl.Struct() if isinstance(value, Mapping):
            return conform(value, pl.Schema({field.name: field.dtype for field in dtype.fields}))
        case _:
            return None


def _items(values: Sequence[Any], inner: Any, where: str) -> list[Any]:
    return [_fit(each, inner, where) for each in values]


def _in_range(value: int, dtype: Any) -> bool:
    bits = int(str(dtype).lstrip("UInt"))
    low, high = (
        (0, 2**bits) if dtype.is_unsigned_integer() else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    )
    return bool(low <= value < high)


def _single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _decimal(value: Decimal, dtype: Any) -> Decimal | None:
    scaled = DIGITS.quantize(value, Decimal(1).scaleb(-dtype.scale))
    return scaled if scaled == value else None


def _instant(value: datetime, dtype: Any) -> datetime | None:
    if (dtype.time_zone is None) != (value.tzinfo is None):
        return None
    return value if _whole(value.microsecond, dtype) else None


def _whole(microseconds: int, dtype: Any) -> bool:
    """Whether a type of this unit holds the time without cutting anything off."""
    return dtype.time_unit != "ms" or microseconds % 1000 == 0
