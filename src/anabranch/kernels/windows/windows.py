"""Windows in two halves: partials where the rows are, sums of partials where the key is.

A partial is a row `(slice, start, n, k0..., a0...)`: a window or pane, a key in the form of M6, how
many rows it is of, and for each aggregate what is needed to go on (`fields`). Partials of one
window and key add up to one; a window's result is what all of them add up to.

What partials add up to depends on their order only where an aggregate shows the order of rows. All
others, sums of floats among them, are the same for every grouping of the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from anabranch.kernels.bundle import SLICE as ROW_SLICE
from anabranch.kernels.failures import Failed, as_json
from anabranch.kernels.keys import canonical, canonical_type, is_canonical
from anabranch.kernels.results import TaskError
from anabranch.kernels.stateless.evaluated import Evaluated, is_column
from anabranch.kernels.times import shown_column
from anabranch.kernels.windows.fields import (
    PLACE,
    ROWS,
    VALUE,
    Counted,
    Edge,
    Extreme,
    Field,
    FieldKind,
    Kept,
    TooLarge,
)
from anabranch.kernels.windows.grid import Grid, Laid
from anabranch.kernels.windows.layout import SAMPLE, Layout
from anabranch.kernels.windows.lists import (
    ApproxDistinct,
    ApproxQuantile,
    Bag,
    Collected,
    DistinctValues,
    Quantile,
    TopBy,
    TopCounted,
)
from anabranch.kernels.windows.numbers import Mean, Sum, Variance
from anabranch.kernels.windows.panes import START, Panes, between
from anabranch.kernels.windows.sorted_keys import SortedKeys
from anabranch.kernels.windows.tally import Tally, are_many, grouped
from anabranch.kernels.windows.whole import WholeRows, whole_rows
from anabranch.program.aggregates import Aggregate
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.windowed import WindowAggregate, WindowApply
from anabranch.program.schema import TimeType
from anabranch.program.windows import Sliding, Tumbling
from anabranch.state.slices import slice_of

SLICE = "slice"
LEFT, FRESH = "left", "fresh"
"""With `allow_late`: how often a window has left, and how many of its rows are of this epoch."""


_FEW = 5_000
"""Partials from which on grouping by key alone is faster than by start and key, where all start at
one time: 100,000 take 2.6 ms and 4.6 ms, but 1,000 take 0.55 ms and 0.19 ms."""
_FEW_STARTS = 8
"""Those that start at one time are looked for among all: more is a sort."""
_SEVERAL = 2
"""Windows from which on panes are laid out in a grid."""


@dataclass(frozen=True)
class Windows:
    """A window operator, lowered: its groups and what becomes of them."""

    operator: str
    size: int
    """Of tumbling and sliding windows; else 0."""
    time: TimeType
    by: tuple[str, ...]
    keys: tuple[pl.Expr, ...]
    """The by columns in the form in which keys are compared, called `k0`, `k1`, ..."""
    key_types: tuple[pl.DataType, ...]
    fields: tuple[Field, ...]
    schema: pl.Schema
    """The columns of the result."""
    panes: Panes | None = None
    kept: WholeRows | None = None
    revised: bool = False
    """Whether partials say how often their window has left."""

    @classmethod
    def of(cls, op: WindowAggregate | WindowApply, given: pl.Schema) -> Windows:
        """Lower a window operator over rows of this schema."""
        window, time = op.windowing.window, op.outputs[OUT].time
        assert time is not None
        by = op.windowing.by
        keys = tuple(
            canonical(pl.col(name), given[name]).alias(f"k{at}") for at, name in enumerate(by)
        )
        types = tuple(canonical_type(given[name]) for name in by)
        panes = None
        if isinstance(window, Tumbling):
            panes = Panes(window.size, window.size)
        elif isinstance(window, Sliding):
            panes = Panes(window.size, window.slide)
        # Only partials of tumbling windows come in the order in which they are added.
        placed = not isinstance(window, Tumbling)
        fields = fields_of(op, given, placed=placed) if isinstance(op, WindowAggregate) else ()
        whole = isinstance(op, WindowApply)
        return cls(
            op.name,
            0 if panes is None else panes.size,
            time,
            by,
            keys,
            types,
            fields,
            op.outputs[OUT].schema,
            panes,
            whole_rows(fields, given, everything=whole, placed=placed),
            op.windowing.allowed is not None,
        )

    @property
    def ordered(self) -> bool:
        """Whether the order in which partials are added shows."""
        return self.kept is not None or any(field.ordered for field in self.fields)

    @property
    def placed(self) -> bool:
        """Whether values are kept with the places of their rows."""
        kept = self.kept is not None and self.kept.placed
        return kept or any(field.ordered and field.placed for field in self.fields)

    @property
    def roots(self) -> tuple[str, ...]:
        """The columns of its rows that it reads."""
        read = [field.roots for field in self.fields]
        if self.kept is not None:
            read.append(frozenset(self.kept.schema))
        return tuple(dict.fromkeys([*self.by, *sorted(frozenset[str]().union(*read))]))

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
        if self.kept is not None:
            columns |= self.kept.columns
        if self.revised:
            columns |= {LEFT: pl.Int64(), FRESH: pl.Int64()}
        return pl.Schema(columns)

    def layout(self, partials: pl.DataFrame) -> Layout:
        """How a bundle's values are laid out; numbers that add up are always put together."""
        if self.kept is None and not any(field.whole for field in self.fields):
            return Layout.COPIES
        return Layout.of(partials[ROWS].head(SAMPLE))

    # Partials

    def partials(
        self, given: pl.DataFrame | Tally, slices: int, key: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """A bundle's rows as partials, one for each window or pane and key; it is not empty.

        `key`, some of the windows' own columns or all, decides on slices: what follows a window
        may have fewer, and all that is one to it has to be in one slice here already.
        """
        assert self.panes is not None
        tally = given if isinstance(given, Tally) else Tally(given)
        if self.counts is not None and are_many(tally.rows):
            found = self._of_counts(tally.counted(self.panes, self.counts))
        else:
            found = self.grouped(*tally.paned(self.panes))
        return self.sliced(found, slices, key)

    @cached_property
    def counts(self) -> str | None:
        """The column of which the number of each value is all that is asked for, if there is one.

        It is the only key of windows that count rows, or what a bag without a key is of.
        """
        if self.kept is not None or self.revised:
            return None
        if not self.by and len(self.fields) == 1:
            return _counted_by(self.fields[0])
        if len(self.by) != 1 or any(field.kind != "rows" for field in self.fields):
            return None
        (key,), (name,) = self.keys, self.by
        return name if is_column(key, name) else None

    def _of_counts(self, counts: pl.DataFrame) -> pl.DataFrame:
        if self.by:
            return self._whole(counts.rename({VALUE: self.names[0]}))
        (bag,) = self.fields
        assert isinstance(bag, Bag)
        return self._whole(bag.begun(bag.bagged(counts, VALUE, [START])))

    def sliced(
        self, partials: pl.DataFrame, slices: int, key: Sequence[str] | None
    ) -> pl.DataFrame:
        """Partials with the slice of each, by some of the windows' columns or by all."""
        named = dict(zip(self.by, self.names, strict=True))
        names = self.names if key is None else [named[each] for each in key]
        return partials.with_columns(slice_of(partials, names, slices).alias(SLICE))

    def grouped(
        self, rows: pl.DataFrame, starts: pl.Series, places: pl.Series | None = None
    ) -> pl.DataFrame:
        """Rows, in order, as partials: one for each of these starts and each key."""
        if not rows.height:
            return pl.DataFrame(schema=self.partial_schema)
        same = starts.min() == starts.max()
        found = self._by_sorting(rows, starts) if same else None
        if found is None:
            found = self._by_groups(rows, starts, places, same=bool(same))
        return self._whole(found)

    def _by_groups(
        self, rows: pl.DataFrame, starts: pl.Series, places: pl.Series | None, *, same: bool
    ) -> pl.DataFrame:
        values = self._values(rows, starts, places)
        names = self.names if same and self.by else [START, *self.names]
        if are_many(values) and self.kept is None and len(self.fields) == 1:
            (field,) = self.fields
            if isinstance(field, Bag) and field.counts:
                return self._counted(values, names, field)
        aggregates = [pl.len().cast(pl.Int64).alias(ROWS)]
        for field in self.fields:
            aggregates += field.first(values)
        if self.kept is not None:
            aggregates.append(self.kept.first())
        if SLICE in values.columns:
            aggregates.append(pl.col(SLICE).first())
        found = self._grouped(values, names, aggregates)
        if START not in names:
            found = found.with_columns(pl.lit(starts[0], pl.Int64).alias(START))
        for field in self.fields:
            found = field.begun(found)
        return found

    def _by_sorting(self, rows: pl.DataFrame, starts: pl.Series) -> pl.DataFrame | None:
        """Rows of one start as partials in the order of keys; None where groups are faster."""
        if not self._sorts:
            return None
        in_order = SortedKeys.of(rows.select(self.keys).to_series())
        if in_order is None:
            return None
        once = pl.repeat(1, rows.height, dtype=pl.Int64, eager=True).alias(ROWS)
        columns = [starts.alias(START), once]
        for field in self.fields:
            if field.of is not None:
                columns += field.repeated(field.of.over(rows).to_series(), once)
        beside = [rows[ROW_SLICE].alias(SLICE)] if ROW_SLICE in rows.columns else []
        partials = pl.DataFrame([*columns, *beside])
        return self._laid(in_order.over(partials, [each.name for each in beside]))

    def _values(
        self, rows: pl.DataFrame, starts: pl.Series, places: pl.Series | None
    ) -> pl.DataFrame:
        columns = [starts.alias(START), *rows.select(self.keys)]
        for field in self.fields:
            columns += field.prepared(rows)
        if self.kept is not None:
            columns.append(self.kept.prepared(rows, places))
        if places is not None:
            columns.append(places.alias(PLACE))
        if ROW_SLICE in rows.columns:
            columns.append(rows[ROW_SLICE].alias(SLICE))
        return pl.DataFrame(columns)

    def _grouped(
        self, values: pl.DataFrame, names: list[str], aggregates: list[pl.Expr]
    ) -> pl.DataFrame:
        if self.ordered:
            return values.group_by(names, maintain_order=True).agg(aggregates)
        return grouped(values, names, aggregates)

    def _counted(self, values: pl.DataFrame, names: list[str], bag: Bag) -> pl.DataFrame:
        """Many rows as partials of a bag alone: each value is counted before there are lists."""
        slices = [pl.col(SLICE).first()] if SLICE in values.columns else []
        alone = names == [START] and values[START].min() == values[START].max()
        groups, number = [] if alone else names, pl.len().cast(pl.Int64).alias(ROWS)
        counts = grouped(values, [*groups, bag.value], [number, *slices])
        if alone:
            counts = counts.with_columns(pl.lit(values[START][0], pl.Int64).alias(START))
        found = bag.bagged(counts, bag.value, names, slices)
        if START not in names:
            found = found.with_columns(pl.lit(values[START][0], pl.Int64).alias(START))
        return bag.begun(found)

    def _whole(self, found: pl.DataFrame) -> pl.DataFrame:
        """Partials with all their columns."""
        schema = self.partial_schema
        missing = [name for name in schema if name not in found.columns]
        zeros = [pl.lit(0).cast(schema[name]).alias(name) for name in missing]
        return found.with_columns(zeros).select(list(schema))

    def merged(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Partials in the order of the log, added up, sorted by start."""
        names = list(self.partial_schema)
        whole = [frame.select(names) for frame in frames if frame.height]
        if not whole:
            return pl.DataFrame(schema=self.partial_schema)
        together = pl.concat(whole)
        starts = self._few_starts(together)
        if starts is None:
            return self._added(together, [START, *self.names]).sort(START, maintain_order=True)
        if len(starts) == 1:
            return self._of_one_start(together)
        each = (together.filter(pl.col(START) == start) for start in starts)
        return pl.concat([self._of_one_start(part) for part in each])

    def _few_starts(self, partials: pl.DataFrame) -> Sequence[int] | None:
        """When partials start, in order; None where most are not many enough to be alone."""
        if not self.by or partials.height < _FEW:
            return None
        starts = partials[START]
        if starts.min() == starts.max():
            return (int(starts[0]),)
        found = starts.unique().sort().to_list()
        few = len(found) <= _FEW_STARTS and len(found) * _FEW <= partials.height
        return found if few else None

    def _of_one_start(self, partials: pl.DataFrame) -> pl.DataFrame:
        """The same of partials that all start at one time, by key alone."""
        if self._adds and all(field.slides(partials) for field in self.fields):
            in_order = SortedKeys.of(partials[self.names[0]])
            if in_order is not None:
                return self._whole(self._laid(in_order.over(partials, [SLICE])))
        return self._added(partials, self.names)

    def _added(self, partials: pl.DataFrame, groups: list[str]) -> pl.DataFrame:
        aggregates = [pl.col(SLICE).first(), pl.col(ROWS).sum()]
        if START not in groups:
            aggregates.append(pl.col(START).first())
        for field in self.fields:
            aggregates += field.again(partials)
        if self.kept is not None:
            aggregates.append(self.kept.again())
        if self.revised:
            aggregates += [pl.col(LEFT).sum(), pl.col(FRESH).sum()]
        added = self._grouped(partials, groups, aggregates)
        for field in self.fields:
            added = field.settled(added)
        return self._whole(added)

    @cached_property
    def _sorts(self) -> bool:
        """Whether a row is a partial as it is, and such partials can be laid out."""
        none = pl.DataFrame(schema=self.partial_schema)
        return self._adds and all(
            field.of is None or (field.repeats and field.slides(none)) for field in self.fields
        )

    @property
    def _adds(self) -> bool:
        """Whether there is one key, and nothing is kept but what aggregates add up."""
        return len(self.by) == 1 and self.kept is None and not self.revised

    def slid(self, parts: Sequence[pl.DataFrame], low: int, high: int) -> pl.DataFrame | None:
        """The windows over panes that start from `low` to `high`, sorted by start and key.

        Each part is sorted by start, with one partial a pane and key. None where `merged` has to
        add up the panes of each window, or is as fast.
        """
        panes = self.panes
        if panes is None or panes.slide >= panes.size or self.revised or self.kept is not None:
            return None
        inside = [between(part, low, high + panes.size - 1) for part in parts]
        inside = [part for part in inside if part.height]
        if not inside or len(starts := panes.reached(inside, low, high)) < _SEVERAL:
            return None
        if not all(field.slides(part) for field in self.fields for part in inside):
            return None
        grid = Grid.of(panes, starts, self.names, [SLICE], inside)
        # A grid has places for windows and keys that there are not.
        return None if grid is None else self._whole(self._laid(grid).filter(pl.col(ROWS) > 0))

    def _laid(self, laid: Laid) -> pl.DataFrame:
        columns = [pl.Series(ROWS, laid.added(ROWS))]
        for field in self.fields:
            columns += field.slid(laid)
        found = laid.bounds().with_columns(columns)
        for field in self.fields:
            found = field.settled(found)
        return found

    # Results

    def finished(self, partials: pl.DataFrame) -> dict[str, pl.Series]:
        """The aggregates of partials that are whole windows, by name."""
        kept = [field for field in self.fields if field.kind == "polars"]
        found: dict[str, pl.Series] = {}
        if kept and self.kept is not None:
            found = {each.name: each for each in self.kept.aggregated(kept, partials)}
        for field in self.fields:
            if field.kind != "polars":
                try:
                    found[field.name] = field.last(partials)
                except TooLarge as error:
                    window = partials.select(START, *self.names).row(error.row, named=True)
                    text = f"RunError: {error.why}"
                    raise Failed(TaskError(self.operator, text, as_json(window))) from None
        return found

    def shown(self, partials: pl.DataFrame, start: pl.Expr, end: pl.Expr) -> pl.DataFrame:
        """The bounds and keys of partials, as the user sees them."""
        return partials.select(
            shown_column(start, self.time).alias("window_start"),
            shown_column(end, self.time).alias("window_end"),
            *(
                pl.col(k).cast(self.schema[name]).alias(name)
                for k, name in zip(self.names, self.by, strict=True)
            ),
        )


def _counted_by(field: Field) -> str | None:
    """The column that a bag is of, if it is one in the form in which values are compared."""
    counts = isinstance(field, TopCounted) and is_canonical(field.given)
    return field.of.column if counts and field.of is not None else None


_FIELDS: Mapping[str, type[Field]] = {
    "rows": Field, "count": Counted, "whole": Sum, "decimal": Sum, "float": Sum, "mean": Mean,
    "var": Variance, "min": Extreme, "max": Extreme, "first": Edge, "last": Edge,
    "collect": Collected, "count_distinct": DistinctValues, "approx_distinct": ApproxDistinct,
    "quantile": Quantile, "approx_quantile": ApproxQuantile, "top_k": TopCounted, "top_by": TopBy,
    "polars": Kept,
}  # fmt: skip


def fields_of(op: WindowAggregate, given: pl.Schema, *, placed: bool) -> tuple[Field, ...]:
    """The aggregates of a window operator over rows of this schema, lowered."""
    types = op.outputs[OUT].schema
    return tuple(
        _field(name, at, each, types[name], given, placed=placed)
        for at, (name, each) in enumerate(op.aggregates)
    )


def _field(
    name: str, at: int, each: Aggregate, dtype: pl.DataType, given: pl.Schema, *, placed: bool
) -> Field:
    if each.of is None:
        return Field(name, "rows", at, dtype, None, dtype, each)
    of = Evaluated.of([each.of], given)
    by = None if each.by is None else Evaluated.of([each.by], given)
    value: Any = dtype
    if each.kind != "polars":
        value = of.over(pl.DataFrame(schema=given)).dtypes[0]
    kind = _kind(each, dtype)
    return _FIELDS[kind](name, kind, at, dtype, of, value, each, by, placed)


def _kind(each: Aggregate, dtype: pl.DataType) -> FieldKind:
    if each.kind == "top_k":
        return "top_k" if each.by is None else "top_by"
    if each.kind != "sum":
        return each.kind
    if dtype.is_float():
        return "float"
    return "decimal" if isinstance(dtype, pl.Decimal) else "whole"
