"""Values that a column would give back as they are, told without making the column.

Only types for which Python's values and the column's are one to one are *exact*. Not among them are
Float32 and Decimal, which round; times with a zone or in milliseconds; Categorical and Enum, and
whatever has parts that could be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import polars as pl

_NONE = type(None)
_WHOLE = 2**53
"""Whole numbers up to here are floats without being rounded."""


def is_exact(dtype: pl.DataType) -> bool:
    """Whether values of a type can be told to fit."""
    return type(dtype) in _RANGES or type(dtype) in _CHECKS or dtype == _MICROSECONDS


def held_values(values: Sequence[Any], dtype: pl.DataType) -> Sequence[Any] | None:
    """The values as a column of an exact type gives them back; None: make the column to see.

    >>> held_values([1, None, 2], pl.Float64())
    [1.0, None, 2.0]
    >>> held_values([256], pl.UInt8()) is None
    True
    """
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    if not kinds:
        return values
    if type(dtype) in _RANGES:
        return values if kinds == {int} and _in_range(values, dtype) else None
    if dtype == _MICROSECONDS:
        return values if kinds == {datetime} and _naive(values) else None
    kind, check = _CHECKS[type(dtype)]
    if kinds == {kind}:
        return values if check(values) else None
    return _as_floats(values) if kind is float and kinds <= {int, float} else None


def _any(_: Sequence[Any]) -> bool:
    return True


def _encodes(values: Sequence[str | None]) -> bool:
    """Whether texts are texts: Python's may hold halves of characters."""
    try:
        "".join(filter(None, values)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_range(values: Sequence[int | None], dtype: pl.DataType) -> bool:
    low, high = _RANGES[type(dtype)]
    # Null is left out and so is 0, which fits.
    return (
        low <= min(filter(None, values), default=0) <= max(filter(None, values), default=0) <= high
    )


def _naive(values: Sequence[datetime | None]) -> bool:
    """Whether times have no zone and no second meaning, which a column does not keep."""
    return not any(each.tzinfo is not None or each.fold for each in values if each is not None)


def _as_floats(values: Sequence[Any]) -> list[float | None] | None:
    if any(type(each) is int and not -_WHOLE <= each <= _WHOLE for each in values):
        return None
    return [None if each is None else float(each) for each in values]


_MICROSECONDS = pl.Datetime("us")
_CHECKS: Mapping[type[pl.DataType], tuple[type | None, Callable[[Sequence[Any]], bool]]] = {
    pl.Boolean: (bool, _any),
    pl.Float64: (float, _any),
    pl.String: (str, _encodes),
    pl.Binary: (bytes, _any),
    pl.Date: (date, _any),
    pl.Null: (None, _any),
}
_RANGES: Mapping[type[pl.DataType], tuple[int, int]] = {
    **{
        kind: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for kind, bits in ((pl.Int8, 8), (pl.Int16, 16), (pl.Int32, 32), (pl.Int64, 64))
    },
    **{
        kind: (0, 2**bits - 1)
        for kind, bits in ((pl.UInt8, 8), (pl.UInt16, 16), (pl.UInt32, 32), (pl.UInt64, 64))
    },
}
