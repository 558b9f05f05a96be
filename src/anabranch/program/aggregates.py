"""What a window may be reduced to (M10).

Every aggregate of a column looks at its values that are not null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import polars as pl

from anabranch.errors import ProgramError
from anabranch.program.expressions import Expression, projected, require_row_wise, scalar

Kind: TypeAlias = Literal[
    "count", "sum", "min", "max", "mean", "var", "first", "last", "count_distinct",
    "approx_distinct", "quantile", "approx_quantile", "top_k", "collect", "polars",
]  # fmt: skip
Column: TypeAlias = str | pl.Expr

_ORDERED = ("min", "max", "top_k", "count_distinct", "approx_distinct")
"""Aggregates that compare values (M6)."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate over a row-wise expression; `polars` is a scalar aggregation kept whole."""

    kind: Kind
    of: Expression | None = None
    by: Expression | None = None
    k: int | None = None
    q: float | None = None
    ddof: int | None = None
    error: float | None = None

    def __str__(self) -> str:
        """Render as it was written, roughly.

        >>> str(sum("price"))
        'sum(col("price"))'
        """
        return f"{self.kind}({'' if self.of is None else self.of.text})"


def count(x: Column | None = None) -> Aggregate:
    """The number of rows, or of values that are not null."""
    return Aggregate("count", None if x is None else Expression.of(x))


def sum(x: Column) -> Aggregate:  # noqa: A001 - the public name
    """The sum: Int64 of integers, an overflow is an error; Float64 of floats; 0 of nothing."""
    return Aggregate("sum", Expression.of(x))


def min(x: Column) -> Aggregate:  # noqa: A001 - the public name
    """The smallest value in the order of keys (M6)."""
    return Aggregate("min", Expression.of(x))


def max(x: Column) -> Aggregate:  # noqa: A001 - the public name
    """The greatest value in the order of keys (M6), where NaN is last."""
    return Aggregate("max", Expression.of(x))


def mean(x: Column) -> Aggregate:
    """The arithmetic mean."""
    return Aggregate("mean", Expression.of(x))


def var(x: Column, ddof: int = 1) -> Aggregate:
    """The variance, of a sample by default; null below ddof + 1 values."""
    _require(isinstance(ddof, int) and ddof >= 0, f"var: ddof must be 0, 1, ..., got {ddof!r}")
    return Aggregate("var", Expression.of(x), ddof=ddof)


def first(x: Column) -> Aggregate:
    """The value of the first row by order key."""
    return Aggregate("first", Expression.of(x))


def last(x: Column) -> Aggregate:
    """The value of the last row by order key."""
    return Aggregate("last", Expression.of(x))


def count_distinct(x: Column) -> Aggregate:
    """How many different values there are, exactly."""
    return Aggregate("count_distinct", Expression.of(x))


def approx_distinct(x: Column, error: float = 0.02) -> Aggregate:
    """How many different values there are, within a relative error."""
    _require_error("approx_distinct", error)
    return Aggregate("approx_distinct", Expression.of(x), error=error)


def quantile(x: Column, q: float) -> Aggregate:
    """The exact q-quantile, linear between neighbours."""
    _require_fraction("quantile", q)
    return Aggregate("quantile", Expression.of(x), q=q)


def approx_quantile(x: Column, q: float, error: float = 0.01) -> Aggregate:
    """The q-quantile within a relative error of the value."""
    _require_fraction("approx_quantile", q)
    _require_error("approx_quantile", error)
    return Aggregate("approx_quantile", Expression.of(x), q=q, error=error)


def top_k(x: Column, k: int, by: Column | None = None) -> Aggregate:
    """The k most frequent values, with `by` the k with the greatest `by`; ties by value."""
    _require(
        isinstance(k, int) and not isinstance(k, bool) and k >= 1,
        f"top_k: k must be a whole number of at least 1, got {k!r}",
    )
    return Aggregate("top_k", Expression.of(x), by=None if by is None else Expression.of(by), k=k)


def collect(x: Column) -> Aggregate:
    """All values as a list, by order key."""
    return Aggregate("collect", Expression.of(x))


def as_aggregate(given: Aggregate | pl.Expr, what: str) -> Aggregate:
    """Take an aggregate, or a scalar Polars aggregation."""
    if isinstance(given, pl.Expr):
        return Aggregate("polars", Expression.of(given))
    if isinstance(given, Aggregate):
        return given
    message = f"{what}: not an aggregate: {given!r}"
    so = "use ab.count(), ab.sum(...), ..., or a Polars aggregation such as pl.col('x').max()"
    raise ProgramError(message, so=so)


def result_type(aggregate: Aggregate, schema: pl.Schema, what: str) -> pl.DataType:
    """The type an aggregate gives over a schema, refused where it cannot be taken."""
    if aggregate.kind == "polars":
        assert aggregate.of is not None
        return scalar(schema, aggregate.of, what)
    if aggregate.of is None:
        return pl.Int64()
    value = _column(aggregate.of, schema, what)
    if aggregate.kind in _ORDERED and value.is_nested():
        message = f"{what}: {aggregate.kind} of {value}, which has no order"
        raise ProgramError(message, so="take one of its fields, e.g. pl.col('x').struct.field('y')")
    by = None if aggregate.by is None else _column(aggregate.by, schema, what)
    return _typed(aggregate.kind, value, by, what)


def _typed(kind: Kind, value: pl.DataType, by: pl.DataType | None, what: str) -> pl.DataType:
    match kind:
        case "count" | "count_distinct" | "approx_distinct":
            return pl.Int64()
        case "sum":
            return _sum_type(value, what)
        case "mean" | "var" | "quantile" | "approx_quantile":
            _require_numeric(kind, value, what)
            return pl.Float64()
        case "top_k":
            beside = {"count": pl.Int64()} if by is None else {"by": by}
            return pl.List(pl.Struct({"value": value, **beside}))
        case "collect":
            return pl.List(value)
        case _:
            return value


def _sum_type(value: pl.DataType, what: str) -> pl.DataType:
    if value.is_integer() or isinstance(value, pl.Boolean):
        return pl.Int64()
    if value.is_float():
        return pl.Float64()
    if isinstance(value, (pl.Decimal, pl.Duration)):
        return value
    message = f"{what}: sum of {value}"
    raise ProgramError(message, so="sum numbers or durations")


def _column(expression: Expression, schema: pl.Schema, what: str) -> pl.DataType:
    require_row_wise(expression, schema, what)
    found = projected(schema, [expression], what)
    _require(len(found) == 1, f"{what}: one column, got {', '.join(found)}")
    return found.dtypes()[0]


def _require_numeric(kind: str, value: pl.DataType, what: str) -> None:
    plain = value.is_integer() or value.is_float() or isinstance(value, (pl.Boolean, pl.Decimal))
    _require(plain, f"{what}: {kind} of {value}")


def _require_fraction(what: str, q: float) -> None:
    good = isinstance(q, int | float) and 0 <= q <= 1
    _require(good, f"{what}: q must lie between 0 and 1, got {q!r}")


def _require_error(what: str, error: float) -> None:
    good = isinstance(error, int | float) and 0 < error < 1
    _require(good, f"{what}: error must lie between 0 and 1, got {error!r}")


def _require(good: bool, message: str) -> None:  # noqa: FBT001 - a condition, not a mode
    if not good:
        raise ProgramError(message)
