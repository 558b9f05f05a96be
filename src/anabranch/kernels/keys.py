"""Key columns in the form in which M6 compares them: equal keys are equal values."""

from __future__ import annotations

import polars as pl


def canonical(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A key column with 0.0 for -0.0, and texts for what Polars would order by numbers.

    Polars itself takes one NaN for another, null for null, and puts them where M6 does. It adds 0.0
    to -0.0 without effect, so the sign is taken away by hand.
    """
    if is_canonical(dtype):
        return column
    if dtype.is_float():
        return pl.when(column == 0).then(pl.lit(0.0, dtype)).otherwise(column)
    return column.cast(pl.String)


def is_canonical(dtype: pl.DataType) -> bool:
    """Whether key columns of this type are compared as they are."""
    return not (dtype.is_float() or isinstance(dtype, pl.Enum | pl.Categorical))


def canonical_type(dtype: pl.DataType) -> pl.DataType:
    """The type of a canonical key column."""
    return pl.String() if isinstance(dtype, pl.Enum | pl.Categorical) else dtype
