"""Aggregates in three steps: partial columns of rows, of partials, and what they become (M10).

Rows of a window and key become one partial; partials of one window and key become one. Both are
groups of a frame, so a field says which expressions to take over a group. What a group cannot do in
an expression is done to the whole frame afterwards, in `settled`.

Fields that are *ordered* show the order of rows. Where a window's partials follow one another in
the order of the log that order is enough; where they do not, as with panes and sessions that merge,
fields are *placed*: each value is kept with the place of its row in the lane's input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import polars as pl

from anabranch.kernels.keys import canonical, canonical_type
from anabranch.kernels.stateless.evaluated import Evaluated
from anabranch.kernels.windows.grid import Laid, is_ordered
from anabranch.program.aggregates import Aggregate

FieldKind: TypeAlias = Literal[
    "rows", "count", "whole", "decimal", "float", "mean", "var", "min", "max", "first", "last",
    "collect", "count_distinct", "approx_distinct", "quantile", "approx_quantile", "top_k",
    "top_by", "polars",
]  # fmt: skip

ROWS, PLACE = "n", "place"
VALUE = "value"
"""Where values are counted, they are called so: a column of the user's may be called as ours."""


@dataclass(frozen=True)
class Field:
    """One aggregate: its value, its partial columns, what they become. As it is, it counts rows."""

    name: str
    """The column of the result."""
    kind: FieldKind
    at: int
    dtype: pl.DataType
    """The type of the result."""
    of: Evaluated | None
    """The values that are aggregated."""
    given: pl.DataType
    """The type of the values."""
    aggregate: Aggregate
    by: Evaluated | None = None
    """What stands beside the values (`top_k`)."""
    placed: bool = False

    @property
    def roots(self) -> frozenset[str]:
        """The columns that it reads."""
        return frozenset() if self.of is None else self.of.roots

    @property
    def ordered(self) -> bool:
        """Whether the order of rows shows."""
        return self.kind in {"first", "last", "collect", "polars"}

    @property
    def whole(self) -> bool:
        """Whether partials keep values, so that a sum of them is no smaller than they are."""
        return False

    @property
    def value(self) -> str:
        """The column of the values, before they are aggregated."""
        return f"v{self.at}"

    @property
    def column(self) -> str:
        """The first partial column."""
        return f"a{self.at}"

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The partial columns and their types."""
        return {}

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The columns of the values, as `first` wants them."""
        return [] if self.of is None else [self.of.over(rows).to_series().alias(self.value)]

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """The partial columns of a group of these values."""
        del values
        return []

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """The partial columns of a group of these partials."""
        del partials
        return []

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        """What is left to do to partials of whole groups."""
        return partials

    def begun(self, partials: pl.DataFrame) -> pl.DataFrame:
        """The same of partials that `first` made."""
        return self.settled(partials)

    @property
    def repeats(self) -> bool:
        """Whether `repeated` knows the partial columns."""
        return False

    def repeated(self, values: pl.Series, counts: pl.Series) -> list[pl.Series]:
        """The partial columns of each value, as if it were there so many times."""
        raise NotImplementedError(self.kind, values.dtype, counts.dtype)

    def slides(self, partials: pl.DataFrame) -> bool:
        """Whether `slid` knows the partial columns of windows over these."""
        del partials
        return self.kind in {"rows", "count"}

    def slid(self, laid: Laid) -> list[pl.Series]:
        """The partial columns of each window and key; `settled` is still to be done."""
        del laid
        return []

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The column of the result; `TooLarge` where a value has no place in its type."""
        return partials[ROWS].alias(self.name)


class TooLarge(Exception):
    """A result that its type cannot hold."""

    def __init__(self, row: int, why: str) -> None:
        """Say in which row, and why."""
        super().__init__(why)
        self.row, self.why = row, why


class Counted(Field):
    """How many values are not null."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The number."""
        return {self.column: pl.Int64()}

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """Count them."""
        del values
        return [pl.col(self.value).count().cast(pl.Int64).alias(self.column)]

    @property
    def repeats(self) -> bool:
        """It does."""
        return True

    def repeated(self, values: pl.Series, counts: pl.Series) -> list[pl.Series]:
        """As often as the value is there, if it is not null."""
        return [counted(values, counts).alias(self.column)]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """Add the counts."""
        del partials
        return [pl.col(self.column).sum()]

    def slid(self, laid: Laid) -> list[pl.Series]:
        """Add the counts."""
        return [pl.Series(self.column, laid.added(self.column))]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The number."""
        return partials[self.column].alias(self.name)


class Extreme(Field):
    """The least or greatest value by M6, where NaN is the greatest and texts go by their bytes."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The value, in the form in which it is compared."""
        return {self.column: canonical_type(self.given)}

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """Values in the form in which they are compared."""
        (values,) = super().prepared(rows)
        return [compared(values)]

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """The extreme of the values."""
        del values
        return [self._extreme(pl.col(self.value))]

    @property
    def repeats(self) -> bool:
        """It does."""
        return True

    def repeated(self, values: pl.Series, counts: pl.Series) -> list[pl.Series]:
        """The value, however often it is there."""
        del counts
        return [compared(values).alias(self.column)]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """The extreme of the extremes."""
        del partials
        return [self._extreme(pl.col(self.column))]

    def slides(self, partials: pl.DataFrame) -> bool:
        """If whole numbers can stand for the values."""
        return is_ordered(partials.schema[self.column])

    def slid(self, laid: Laid) -> list[pl.Series]:
        """The extreme of the extremes."""
        return [laid.extreme(self.column, least=self.kind == "min")]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The extreme."""
        return partials[self.column].cast(self.dtype).alias(self.name)

    def _extreme(self, column: pl.Expr) -> pl.Expr:
        found = column.min() if self.kind == "min" else column.max()
        if self.kind == "max" and self.given.is_float():
            nan = pl.lit(float("nan"), self.given)
            found = pl.when(column.is_nan().any()).then(nan).otherwise(found)
        return found.alias(self.column)


class Edge(Field):
    """The first or last value that is not null."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The value, and the place of its row."""
        place = {f"{self.column}p": pl.Int64()} if self.placed else {}
        return {self.column: self.given, **place}

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """The value at the edge: rows come in order."""
        del values
        known = pl.col(self.value).is_not_null()
        found = [self._edge(pl.col(self.value).filter(known)).alias(self.column)]
        if self.placed:
            found.append(self._edge(pl.col(PLACE).filter(known)).alias(f"{self.column}p"))
        return found

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """The edge of the edges."""
        del partials
        known = pl.col(self.column).is_not_null()
        if not self.placed:
            return [self._edge(pl.col(self.column).filter(known)).alias(self.column)]
        value, place = pl.col(self.column).filter(known), pl.col(f"{self.column}p").filter(known)
        value = self._edge(value.sort_by(place))
        extreme = place.min() if self.kind == "first" else place.max()
        return [value.alias(self.column), extreme.alias(f"{self.column}p")]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The value."""
        return partials[self.column].alias(self.name)

    def _edge(self, column: pl.Expr) -> pl.Expr:
        return column.first() if self.kind == "first" else column.last()


class Kept(Field):
    """A scalar Polars aggregation over a window's rows, which are kept elsewhere (`whole rows`)."""

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """Nothing: it reads the rows themselves."""
        del rows
        return []


def counted(values: pl.Series, counts: pl.Series) -> pl.Series:
    """How often values that are not null are there."""
    return counts * values.is_not_null().cast(pl.Int64)


def compared(values: pl.Series) -> pl.Series:
    """Values in the form in which M6 compares them."""
    if not (values.dtype.is_float() or isinstance(values.dtype, pl.Enum | pl.Categorical)):
        return values
    return pl.select(canonical(pl.lit(values), values.dtype).alias(values.name)).to_series()
