"""Tumbling windows in two halves: partials where the rows are, sums of partials where the key is.

A partial is a row `(slice, start, n, k0..., a0...)`: a window, a key in the form of M6, how many
rows it is of, and for each aggregate what is needed to go on. Partials of one window and key add up
to one; a window's result is what all of them add up to.

Whole numbers are added in two halves of 32 bits, since Polars' sums wrap around: the high halves
cannot, and say in the end whether the sum fits. Floats are added in the order of the log, one after
the other, so that no grouping of epochs into runs shows in the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import polars as pl

from anabranch.kernels.bundle import OFFSET, PARTITION, TIME, WINDOW_END, key
from anabranch.kernels.evaluated import Evaluated
from anabranch.kernels.failures import Failed, as_json
from anabranch.kernels.keys import canonical, canonical_type
from anabranch.kernels.results import TaskError
from anabranch.kernels.times import shown_column
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.windowed import WindowAggregate
from anabranch.program.schema import TimeType
from anabranch.program.windows import Tumbling
from anabranch.state.slices import slice_of

SLICE, START, ROWS = "slice", "start", "n"
_HALF = 2**32
_FITS = 2**31
"""The high half of a sum that fits into 64 bits lies in [-2**31, 2**31)."""

_MANY = 100_000
"""Rows from which on Polars' streaming engine groups by several columns faster (7.5 ms for 10)."""

FieldKind: TypeAlias = Literal["rows", "count", "whole", "float", "min", "max"]


@dataclass(frozen=True)
class Field:
    """One aggregate: its value, its partial columns, what they become."""

    name: str
    """The column of the result."""
    kind: FieldKind
    at: int
    dtype: pl.DataType
    """The type of the result."""
    of: Evaluated | None
    """The values that are aggregated."""

    @property
    def value(self) -> str:
        """The column of the values, before they are aggregated."""
        return f"v{self.at}"

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The partial columns and their types."""
        match self.kind:
            case "rows":
                return {}
            case "whole":
                return {f"a{self.at}h": pl.Int64(), f"a{self.at}l": pl.Int64()}
            case "count":
                return {f"a{self.at}": pl.Int64()}
            case _:
                return {f"a{self.at}": self.dtype}

    def first(self, values: pl.Series) -> list[pl.Expr]:
        """The partial columns of a group of values."""
        column = pl.col(self.value)
        match self.kind:
            case "rows":
                return []
            case "count":
                return [column.count().cast(pl.Int64).alias(f"a{self.at}")]
            case "whole":
                return self._halves(column, values)
            case "float":
                return [column.cast(pl.Float64).sum().alias(f"a{self.at}")]
            case "min" | "max":
                return [self._extreme(column)]

    def again(self) -> list[pl.Expr]:
        """The partial columns of a group of partials."""
        match self.kind:
            case "rows":
                return []
            case "float":
                # A running sum is added up strictly from the first to the last.
                return [pl.col(f"a{self.at}").cum_sum().last()]
            case "min" | "max":
                return [self._extreme(pl.col(f"a{self.at}"))]
            case _:
                return [pl.col(name).sum() for name in self.columns]

    def carried(self) -> list[pl.Expr]:
        """What the low half has too much, put into the high one."""
        if self.kind != "whole":
            return []
        high, low = (pl.col(name) for name in self.columns)
        return [high + low // _HALF, low % _HALF]

    def last(self) -> pl.Expr:
        """The column of the result."""
        if self.kind == "rows":
            return pl.col(ROWS).alias(self.name)
        if self.kind == "whole":
            high, low = (pl.col(name) for name in self.columns)
            return (high * _HALF + low).cast(self.dtype).alias(self.name)
        return pl.col(f"a{self.at}").alias(self.name)

    def _halves(self, column: pl.Expr, values: pl.Series) -> list[pl.Expr]:
        high, low = self.columns
        if _greatest(values) * len(values) < _HALF * _FITS:
            # No sum of so few and small numbers can be too large.
            total = column.cast(pl.Int64).sum()
            return [(total // _HALF).alias(high), (total % _HALF).alias(low)]
        return [
            (column // _HALF).cast(pl.Int64).sum().alias(high),
            (column % _HALF).cast(pl.Int64).sum().alias(low),
        ]

    def _extreme(self, column: pl.Expr) -> pl.Expr:
        """The least or greatest by M6, where NaN is the greatest."""
        found = column.min() if self.kind == "min" else column.max()
        if self.kind == "max" and self.dtype.is_float():
            nan = pl.lit(float("nan"), self.dtype)
            found = pl.when(column.is_nan().any()).then(nan).otherwise(found)
        return found.alias(f"a{self.at}")


@dataclass(frozen=True)
class Windows:
    """A tumbling window operator, lowered."""

    operator: str
    size: int
    time: TimeType
    by: tuple[str, ...]
    keys: tuple[pl.Expr, ...]
    """The by columns in the form in which keys are compared, called `k0`, `k1`, ..."""
    key_types: tuple[pl.DataType, ...]
    fields: tuple[Field, ...]
    schema: pl.Schema
    """The columns of the result."""

    @classmethod
    def of(cls, op: WindowAggregate, given: pl.Schema) -> Windows:
        """Lower a window operator over rows of this schema."""
        window, time = op.windowing.window, op.outputs[OUT].time
        assert isinstance(window, Tumbling)
        assert time is not None
        by = op.windowing.by
        keys = tuple(
            canonical(pl.col(name), given[name]).alias(f"k{at}") for at, name in enumerate(by)
        )
        types = tuple(canonical_type(given[name]) for name in by)
        schema = op.outputs[OUT].schema
        return cls(op.name, window.size, time, by, keys, types, fields_of(op, given), schema)

    @property
    def ordered(self) -> bool:
        """Whether the order in which partials are added shows."""
        return any(field.kind == "float" for field in self.fields)

    @property
    def roots(self) -> tuple[str, ...]:
        """The columns of its rows that it reads."""
        read = [field.of.roots for field in self.fields if field.of is not None]
        return tuple(dict.fromkeys([*self.by, *sorted(frozenset().union(*read))]))

    @property
    def names(self) -> list[str]:
        """The key columns of a partial."""
        return [f"k{at}" for at in range(len(self.by))]

    @property
    def partial_schema(self) -> pl.Schema:
        """The columns of state and deltas."""
        columns: dict[str, pl.DataType] = {
            SLICE: pl.UInt16(), START: pl.Int64(), ROWS: pl.Int64(),
            **dict(zip(self.names, self.key_types, strict=True)),
        }  # fmt: skip
        for field in self.fields:
            columns |= field.columns
        return pl.Schema(columns)

    def partials(self, rows: pl.DataFrame, slices: int) -> pl.DataFrame:
        """A bundle's rows as partials, one for each window and key; the bundle is not empty."""
        values = self._values(rows)
        starts = (values[START].min(), values[START].max())
        grouped = self.names if starts[0] == starts[1] else [START, *self.names]
        aggregates = [pl.len().cast(pl.Int64).alias(ROWS)]
        for field in self.fields:
            given = values[field.value] if field.of is not None else values[START]
            aggregates += field.first(given)
        found = self._grouped(values, grouped, aggregates)
        if START not in grouped:
            found = found.with_columns(pl.lit(starts[0], pl.Int64).alias(START))
        found = found.with_columns(slice_of(found, self.names, slices).alias(SLICE))
        return found.select(list(self.partial_schema))

    def _grouped(
        self, values: pl.DataFrame, keys: list[str], aggregates: list[pl.Expr]
    ) -> pl.DataFrame:
        if not keys:
            return values.select(aggregates)
        if self.ordered:
            # Kept in order, Polars adds a group's floats in the order of its rows.
            return values.group_by(keys, maintain_order=True).agg(aggregates)
        if len(keys) > 1 and values.height >= _MANY:
            found = values.lazy().group_by(keys).agg(aggregates)
            return found.collect(engine="streaming")
        return values.group_by(keys).agg(aggregates)

    def merged(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Partials in the order of the log, added up, sorted by start."""
        names = list(self.partial_schema)
        whole = [frame.select(names) for frame in frames if frame.height]
        if not whole:
            return pl.DataFrame(schema=self.partial_schema)
        together = pl.concat(whole)
        aggregates = [pl.col(SLICE).first(), pl.col(ROWS).sum()]
        for field in self.fields:
            aggregates += field.again()
        added = together.group_by([START, *self.names], maintain_order=self.ordered).agg(aggregates)
        carried = [each for field in self.fields for each in field.carried()]
        added = added.with_columns(carried) if carried else added
        return added.select(names).sort(START, maintain_order=True)

    def results(self, partials: pl.DataFrame) -> pl.DataFrame:
        """The rows of whole windows, in order (end, start, key), with their order columns."""
        ordered = partials.sort([START, *self.names], maintain_order=True)
        self._refuse_overflow(ordered)
        end = pl.col(START) + self.size
        columns = [
            shown_column(pl.col(START), self.time).alias("window_start"),
            shown_column(end, self.time).alias("window_end"),
            *(
                pl.col(k).cast(self.schema[name]).alias(name)
                for k, name in zip(self.names, self.by, strict=True)
            ),
            *(field.last() for field in self.fields),
            # M7: the last instant that lies in the window.
            (end - 1).alias(TIME),
            end.alias(WINDOW_END),
            *(pl.col(k).alias(key(at)) for at, k in enumerate(self.names)),
        ]
        return ordered.select(columns)

    def _values(self, rows: pl.DataFrame) -> pl.DataFrame:
        time = pl.col(TIME)
        start = (time - time % self.size).alias(START)
        found = rows.select([start, *self.keys])
        for field in self.fields:
            if field.of is not None:
                values = field.of.over(rows).to_series()
                if field.kind == "whole":
                    values = values.cast(pl.Int64) if values.dtype == pl.Boolean else values
                    values = values.to_physical()
                found = found.with_columns(values.alias(field.value))
        return found

    def _refuse_overflow(self, partials: pl.DataFrame) -> None:
        for field in self.fields:
            if field.kind != "whole":
                continue
            high, low = field.columns
            wrong = partials.filter(~pl.col(high).is_between(-_FITS, _FITS - 1))
            if wrong.height:
                row = wrong.row(0, named=True)
                total = row[high] * _HALF + row[low]
                window = {START: row[START], **{n: row[n] for n in self.names}}
                text = f"RunError: sum overflows Int64: {total}"
                raise Failed(TaskError(self.operator, text, as_json(window)))


def fields_of(op: WindowAggregate, given: pl.Schema) -> tuple[Field, ...]:
    """The aggregates of a window operator over rows of this schema, lowered."""
    found = []
    for at, (name, aggregate) in enumerate(op.aggregates):
        dtype = op.outputs[OUT].schema[name]
        if aggregate.of is None:
            found.append(Field(name, "rows", at, dtype, None))
            continue
        evaluated = Evaluated.of([aggregate.of], given)
        kind: FieldKind
        if aggregate.kind == "sum":
            kind = "float" if dtype.is_float() else "whole"
        else:
            assert aggregate.kind in ("count", "min", "max")
            kind = aggregate.kind
        found.append(Field(name, kind, at, dtype, evaluated))
    return tuple(found)


def _greatest(values: pl.Series) -> int:
    """How far from 0 whole numbers lie."""
    bounds = (values.min(), values.max())
    return max((abs(each) for each in bounds if isinstance(each, int)), default=0)


def in_log_order(parts: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Partials of an epoch in the order of its splits, where they say which they are of."""
    full = [part for part in parts if part.height]
    if full and PARTITION in full[0].columns:
        full.sort(key=lambda part: part.select(PARTITION, OFFSET).row(0))
    return full
