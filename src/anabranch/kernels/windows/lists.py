"""Aggregates that keep values: in a list, as a set, or with how many there are of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from anabranch.kernels.keys import canonical_type
from anabranch.kernels.stateless.evaluated import Evaluated
from anabranch.kernels.windows.fields import PLACE, ROWS, Field, compared
from anabranch.kernels.windows.sketches import Distinct, Numbers, Quantiles
from anabranch.kernels.windows.tally import grouped

_ROW = "row"


class Listed(Field):
    """Values in a list, in no order that shows."""

    @property
    def whole(self) -> bool:
        """Values are kept."""
        return True

    @property
    def element(self) -> pl.DataType:
        """The type of the elements."""
        return self.given

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The list."""
        return {self.column: pl.List(self.element)}

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """The values that are not null."""
        del values
        return [pl.col(self.value).drop_nulls().alias(self.column)]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """One list behind the other."""
        del partials
        return [_elements(self.column)]


class Collected(Listed):
    """All values by order key."""

    @property
    def element(self) -> pl.DataType:
        """The value, and the place of its row where the lists are in no order."""
        return pl.Struct({"p": pl.Int64(), "v": self.given}) if self.placed else self.given

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """The values that are not null, rows being in order."""
        if not self.placed:
            return super().first(values)
        value = pl.col(self.value)
        both = pl.struct(pl.col(PLACE).alias("p"), value.alias("v"))
        return [both.filter(value.is_not_null()).alias(self.column)]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The values in order, null of nothing."""
        lists = pl.col(self.column)
        if self.placed:
            lists = _sorted(partials, self.column)
        found = partials.select(pl.when(lists.list.len() > 0).then(lists).alias(self.name))
        return found.to_series().cast(self.dtype)


class DistinctValues(Listed):
    """The set of values, of which the number is asked."""

    @property
    def element(self) -> pl.DataType:
        """The value, in the form in which it is compared."""
        return canonical_type(self.given)

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """Values in the form in which they are compared."""
        (values,) = super().prepared(rows)
        return [compared(values)]

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """Each value once."""
        del values
        return [pl.col(self.value).drop_nulls().unique().alias(self.column)]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """Each value once."""
        del partials
        return [_elements(self.column).unique()]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """How many there are."""
        return partials[self.column].list.len().cast(pl.Int64).alias(self.name)


class ApproxDistinct(DistinctValues):
    """The set of a sketch's pairs."""

    @property
    def element(self) -> pl.DataType:
        """A register and a rank in it, as one number."""
        return pl.Int32()

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The pair of each value."""
        (values,) = super().prepared(rows)
        return [self._sketch.pairs(values).alias(self.value)]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The estimate."""
        lists = partials.select(self.column).with_row_index(_ROW)
        flat = lists.explode(self.column, empty_as_null=False, keep_nulls=False)
        flat = flat.sort([_ROW, self.column]).cast(pl.Int64)
        groups, pairs = flat[_ROW].to_numpy(), flat[self.column].to_numpy()
        return pl.Series(self.name, self._sketch.estimates(groups, pairs, partials.height))

    @property
    def _sketch(self) -> Distinct:
        assert self.aggregate.error is not None
        return Distinct.within(self.aggregate.error)


class Quantile(Listed):
    """All values, as floats."""

    @property
    def element(self) -> pl.DataType:
        """A float."""
        return pl.Float64()

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """Values as floats; no two change places by that."""
        (values,) = super().prepared(rows)
        return [values.cast(pl.Float64)]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """Linear between the two neighbours of q x (n - 1)."""
        assert self.aggregate.q is not None
        lists = partials.select(pl.col(self.column)).with_row_index(_ROW)
        flat = lists.explode(self.column, empty_as_null=False, keep_nulls=False)
        # Polars puts NaN last, as M6 does.
        values = flat.sort([_ROW, self.column])[self.column].to_numpy()
        counts = lists[self.column].list.len().to_numpy().astype(np.int64)
        found = _between(values, np.cumsum(counts) - counts, counts, self.aggregate.q)
        return found.alias(self.name)


def _between(
    values: np.ndarray[tuple[int], np.dtype[np.float64]], begins: Numbers, counts: Numbers, q: float
) -> pl.Series:
    """Quantiles of runs of sorted values, null of empty ones."""
    some = counts > 0
    place = np.where(some, q * (counts - 1), 0.0)
    below = np.floor(place)
    first = np.where(some, begins, 0)
    if not len(values):
        return pl.Series([None] * len(counts), dtype=pl.Float64)
    low = values[first + below.astype(np.int64)]
    high = values[first + np.ceil(place).astype(np.int64)]
    share = place - below
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.where((share == 0) | (low == high), low, low + share * (high - low))
    return pl.select(pl.when(pl.Series(some)).then(pl.Series(found))).to_series()


class Bag(Field):
    """How many there are of each value."""

    counts = True
    """Whether `n` is how often a value was seen."""

    @property
    def whole(self) -> bool:
        """Values are kept, each once."""
        return True

    @property
    def element(self) -> pl.DataType:
        """The value, in the form in which it is compared."""
        return canonical_type(self.given)

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """A list of values and their numbers, each value once."""
        return {self.column: pl.List(pl.Struct({"v": self.element, "n": pl.Int64()}))}

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """Values in the form in which they are compared."""
        (values,) = super().prepared(rows)
        return [compared(values)]

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """Count each value."""
        del values
        found = pl.col(self.value).drop_nulls().alias("v").value_counts(name="n")
        return [found.alias(self.column)]

    def bagged(
        self,
        counts: pl.DataFrame,
        value: str,
        names: Sequence[str],
        others: Sequence[pl.Expr] = (),
    ) -> pl.DataFrame:
        """Partials of how often each value of a column is in each group; `begun` is to be done."""
        entries = pl.struct(pl.col(value).alias("v"), pl.col(ROWS).alias("n"))
        entries = entries.filter(pl.col(value).is_not_null()).alias(self.column)
        return counts.group_by(names).agg(pl.col(ROWS).sum(), entries, *others)

    def begun(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Each value is there once already."""
        return partials.cast(self.columns)  # type: ignore[arg-type]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """One list behind the other."""
        del partials
        return [_elements(self.column)]

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Add up the numbers of equal values."""
        flat = grouped(self.flat(partials), [_ROW, "v"], [pl.col("n").sum()])
        return partials.with_columns(_lists(flat, partials.height, self.columns))

    def flat(self, partials: pl.DataFrame) -> pl.DataFrame:
        """A row for each entry of each list."""
        lists = partials.select(self.column).with_row_index(_ROW)
        flat = lists.explode(self.column, empty_as_null=False, keep_nulls=False)
        return flat.unnest(self.column)


class TopCounted(Bag):
    """The most frequent values, equally frequent ones by value."""

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The first k by number and value, null of nothing."""
        flat = self.flat(partials).sort([_ROW, "n", "v"], descending=[False, True, False])
        flat = flat.group_by(_ROW, maintain_order=True).head(self.aggregate.k or 1)
        flat = flat.rename({"v": "value", "n": "count"})
        return _top(self, flat, partials.height)


class TopBy(Bag):
    """The values whose `by` is the greatest, those with equal ones by value."""

    counts = False

    @property
    def beside(self) -> pl.DataType:
        """The type of `by`."""
        assert isinstance(self.dtype, pl.List)
        assert isinstance(self.dtype.inner, pl.Struct)
        return self.dtype.inner.fields[1].dtype  # type: ignore[return-value]

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """A list of values and what stands beside them, at most k."""
        both = {"v": self.element, "n": canonical_type(self.beside)}
        return {self.column: pl.List(pl.Struct(both))}

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """Both columns in the form in which they are compared."""
        assert self.aggregate.by is not None
        beside = self._by.over(rows).to_series().alias(f"{self.value}b")
        return [*super().prepared(rows), compared(beside)]

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """The pairs without a null."""
        del values
        value, beside = pl.col(self.value), pl.col(f"{self.value}b")
        both = pl.struct(value.alias("v"), beside.alias("n"))
        return [both.filter(value.is_not_null() & beside.is_not_null()).alias(self.column)]

    def begun(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Keep the first k pairs."""
        return self.settled(partials)

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Keep the first k pairs."""
        flat = self._sorted(partials)
        return partials.with_columns(_lists(flat, partials.height, self.columns))

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The first k pairs, null of nothing."""
        flat = self._sorted(partials).rename({"v": "value", "n": "by"})
        return _top(self, flat, partials.height)

    @property
    def roots(self) -> frozenset[str]:
        """The columns of both expressions."""
        return super().roots | self._by.roots

    @property
    def _by(self) -> Evaluated:
        assert self.by is not None
        return self.by

    def _sorted(self, partials: pl.DataFrame) -> pl.DataFrame:
        flat = self.flat(partials).sort([_ROW, "n", "v"], descending=[False, True, False])
        return flat.group_by(_ROW, maintain_order=True).head(self.aggregate.k or 1)


class ApproxQuantile(Bag):
    """How many values there are in each bin of a sketch."""

    @property
    def element(self) -> pl.DataType:
        """The code of a bin, which grows with its values."""
        return pl.Int64()

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The code of each value's bin."""
        (values,) = super().prepared(rows)
        numbers = values.cast(pl.Float64)
        codes = pl.Series(self.value, self._sketch.codes(numbers.fill_null(0.0).to_numpy()))
        if not numbers.null_count():
            return [codes]
        known = pl.when(numbers.is_not_null()).then(codes).alias(self.value)
        return [pl.select(known).to_series()]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """Linear between the bins of the two neighbours of q x (n - 1)."""
        q = self.aggregate.q
        assert q is not None
        flat = self.flat(partials).sort([_ROW, "v"])
        codes, counts = flat["v"].to_numpy(), flat["n"].to_numpy()
        rows = flat[_ROW].to_numpy()
        totals = np.bincount(rows, weights=counts, minlength=partials.height).astype(np.int64)
        if not len(codes):
            return pl.Series(self.name, [None] * partials.height, pl.Float64())
        place = np.maximum(q * (totals - 1), 0.0)
        before, ends = np.cumsum(totals) - totals, np.cumsum(counts)
        around = [before + np.floor(place), before + np.ceil(place)]
        # A group without values asks for one of its neighbours, and is null below.
        bins = [np.searchsorted(ends, np.minimum(at, ends[-1] - 1), side="right") for at in around]
        low, high = (self._sketch.values(codes[each]) for each in bins)
        share = place - np.floor(place)
        with np.errstate(invalid="ignore", over="ignore"):
            found = np.where((share == 0) | (low == high), low, low + share * (high - low))
        some = pl.when(pl.Series(totals > 0)).then(pl.Series(found))
        return pl.select(some.alias(self.name)).to_series()

    @property
    def _sketch(self) -> Quantiles:
        assert self.aggregate.error is not None
        return Quantiles.within(self.aggregate.error)


def _elements(column: str) -> pl.Expr:
    """The elements of a group's lists; in a group they become a list again."""
    return pl.col(column).explode(empty_as_null=False, keep_nulls=False)


def _sorted(partials: pl.DataFrame, column: str) -> pl.Expr:
    """Lists of placed values by place, without the places."""
    flat = partials.select(column).with_row_index(_ROW)
    flat = flat.explode(column, empty_as_null=False, keep_nulls=False).unnest(column)
    flat = flat.sort([_ROW, "p"]).group_by(_ROW, maintain_order=True).agg("v")
    return pl.lit(_spread(flat, partials.height, "v"))


def _lists(flat: pl.DataFrame, height: int, columns: dict[str, pl.DataType]) -> pl.Series:
    """Entries `v` and `n` of rows as lists, as many as there were."""
    ((name, dtype),) = columns.items()
    grouped = flat.group_by(_ROW, maintain_order=True).agg(pl.struct("v", "n").alias(name))
    return _spread(grouped, height, name).cast(dtype)


def _top(field: Field, flat: pl.DataFrame, height: int) -> pl.Series:
    names = [name for name in flat.columns if name != _ROW]
    grouped = flat.group_by(_ROW, maintain_order=True).agg(pl.struct(names).alias(field.name))
    return _spread(grouped, height, field.name).cast(field.dtype)


def _spread(grouped: pl.DataFrame, height: int, name: str) -> pl.Series:
    """A value for each row from 0 on, null where there is none."""
    if grouped.height == height:
        return grouped.sort(_ROW)[name]
    rows = pl.DataFrame({_ROW: pl.arange(height, dtype=pl.get_index_type(), eager=True)})
    return rows.join(grouped, on=_ROW, how="left", maintain_order="left")[name]
