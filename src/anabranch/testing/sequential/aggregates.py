"""Aggregates, each over a window's values in order (M10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import polars as pl

from anabranch.errors import RunError
from anabranch.program.aggregates import Aggregate, Kind
from anabranch.testing.sequential.frames import aggregated, evaluated
from anabranch.testing.sequential.row import Record
from anabranch.testing.sequential.values import DIGITS, order_of

_LOW, _HIGH = -(2**63), 2**63 - 1


def aggregate(given: Aggregate, records: Sequence[Record], schema: pl.Schema, dtype: Any) -> Any:
    """The value of an aggregate over records in order; nulls are passed over."""
    if given.of is None:
        return len(records)
    if given.kind == "polars":
        return aggregated(records, schema, given.of)
    values = [evaluated(record, schema, given.of) for record in records]
    if given.kind == "top_k":
        return _top_k(given, values, records, schema) or None
    values = [value for value in values if value is not None]
    if given.kind == "sum":
        return _sum(values, dtype)
    if not values and given.kind not in ("count", "count_distinct", "approx_distinct"):
        return None
    return _TAKE[given.kind](values, given)


def _sum(values: list[Any], dtype: Any) -> Any:
    if isinstance(dtype, pl.Duration):
        return sum(values, timedelta(0))
    if isinstance(dtype, pl.Decimal):
        exact = reduce(DIGITS.add, values, Decimal(0))
        return DIGITS.quantize(exact, Decimal(1).scaleb(-dtype.scale))
    if isinstance(dtype, pl.Float64):
        return sum(values, 0.0)
    total = sum(int(value) for value in values)
    if not _LOW <= total <= _HIGH:
        message = f"sum overflows Int64: {total}"
        raise RunError(message, so="cast the column to Float64 or Decimal before summing")
    return total


def _mean(values: list[Any], given: Aggregate) -> float:  # noqa: ARG001
    return float(sum(values)) / len(values)


def _var(values: list[Any], given: Aggregate) -> float | None:
    assert given.ddof is not None
    if len(values) <= given.ddof:
        return None
    numbers = [float(value) for value in values]
    mean = sum(numbers) / len(numbers)
    return sum((number - mean) ** 2 for number in numbers) / (len(numbers) - given.ddof)


def _quantile(values: list[Any], given: Aggregate) -> float:
    """Linear between the two neighbours of q x (n - 1)."""
    assert given.q is not None
    ordered = [float(value) for value in sorted(values, key=order_of)]
    place = given.q * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    share = place - math.floor(place)
    return low if share == 0 or low == high else low + share * (high - low)


def _distinct(values: list[Any], given: Aggregate) -> int:  # noqa: ARG001
    return len({order_of(value) for value in values})


def _top_k(
    given: Aggregate, values: list[Any], records: Sequence[Record], schema: pl.Schema
) -> list[Record]:
    """The most frequent values, or those with the greatest `by`; equals by value."""
    if given.by is not None:
        beside = [evaluated(record, schema, given.by) for record in records]
        pairs = [(v, b) for v, b in zip(values, beside, strict=True) if None not in (v, b)]
        pairs.sort(key=lambda pair: order_of(pair[0]))
        pairs.sort(key=lambda pair: order_of(pair[1]), reverse=True)
        return [{"value": value, "by": by} for value, by in pairs[: given.k]]
    found: dict[Any, Record] = {}
    for value in values:
        if value is not None:
            found.setdefault(order_of(value), {"value": value, "count": 0})["count"] += 1
    ordered = sorted(found.items(), key=lambda item: (-item[1]["count"], item[0]))
    return [entry for _, entry in ordered[: given.k]]


_TAKE: dict[Kind, Callable[[list[Any], Aggregate], Any]] = {
    "count": lambda values, _: len(values),
    "min": lambda values, _: min(values, key=order_of),
    "max": lambda values, _: max(values, key=order_of),
    "mean": _mean,
    "var": _var,
    "first": lambda values, _: values[0],
    "last": lambda values, _: values[-1],
    "count_distinct": _distinct,
    "approx_distinct": _distinct,
    "quantile": _quantile,
    "approx_quantile": _quantile,
    "collect": lambda values, _: list(values),
}
