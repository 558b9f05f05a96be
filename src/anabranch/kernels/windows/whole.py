"""Windows whose rows are kept whole: for functions, and for Polars aggregations of any kind.

A partial holds its rows in a list, so that rows of one key, window and bundle are one value that is
put behind another without looking into it (StreamBox 7.1: many values a key by chunks).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.kernels.windows.fields import Field

KEPT = "kept"
_ROW = "__ab_row"
_PLACE = "__ab_place"


@dataclass(frozen=True)
class WholeRows:
    """Which columns of rows are kept."""

    schema: pl.Schema
    placed: bool

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The partial column."""
        place = {_PLACE: pl.Int64()} if self.placed else {}
        return {KEPT: pl.List(pl.Struct({**place, **self.schema}))}

    def prepared(self, rows: pl.DataFrame, places: pl.Series | None) -> pl.Series:
        """A bundle's rows as one column."""
        kept = rows.select(list(self.schema))
        if self.placed:
            assert places is not None
            kept = kept.select(places.alias(_PLACE), pl.all())
        return kept.to_struct(KEPT)

    def first(self) -> pl.Expr:
        """The rows of a group."""
        return pl.col(KEPT)

    def again(self) -> pl.Expr:
        """The rows of a group of partials."""
        return pl.col(KEPT).explode(empty_as_null=False, keep_nulls=False)

    def frames(self, partials: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """The rows of each partial, in order."""
        flat = self._flat(partials).select(list(self.schema))
        begin = 0
        for length in partials[KEPT].list.len().to_list():
            yield flat.slice(begin, length)
            begin += length

    def aggregated(self, fields: Sequence[Field], partials: pl.DataFrame) -> pl.DataFrame:
        """What scalar aggregations make of each partial's rows, none of which has none."""
        plain = [each for each in fields if _is_plain(each)]
        others = [each for each in fields if not _is_plain(each)]
        found = [self._one_by_one(others, partials)] if others else []
        if plain:
            together = self._together(plain, partials)
            found.append(self._one_by_one(plain, partials) if together is None else together)
        return pl.concat(found, how="horizontal")

    def _one_by_one(self, fields: Sequence[Field], partials: pl.DataFrame) -> pl.DataFrame:
        empty = pl.DataFrame(schema={field.name: field.dtype for field in fields})
        expressions = _expressions(fields)
        return pl.concat([empty, *(each.select(expressions) for each in self.frames(partials))])

    def _together(self, fields: Sequence[Field], partials: pl.DataFrame) -> pl.DataFrame | None:
        """All partials at once; None where Polars gives other types for groups."""
        grouped = self._flat(partials).group_by(_ROW, maintain_order=True)
        found = grouped.agg(_expressions(fields)).drop(_ROW)
        same = found.dtypes == [field.dtype for field in fields]
        return found if same and found.height == partials.height else None

    def _flat(self, partials: pl.DataFrame) -> pl.DataFrame:
        """All rows, each with the number of its partial, in order."""
        lists = partials.select(KEPT).with_row_index(_ROW)
        flat = lists.explode(KEPT, empty_as_null=False, keep_nulls=False).unnest(KEPT)
        return flat.sort([_ROW, _PLACE]) if self.placed else flat


def _expressions(fields: Sequence[Field]) -> list[pl.Expr]:
    return [field.of.expressions[0].alias(field.name) for field in fields if field.of is not None]


_AGGREGATIONS = frozenset(
    ("Min", "Max", "Sum", "Mean", "Median", "Std", "Var", "NUnique", "First", "Last", "Count")
)


def _is_plain(field: Field) -> bool:
    """Whether an aggregation is one of those that mean the same for a group as for a frame.

    One frame after the other costs some 40 us each; groups of one frame hardly anything.
    """
    expression = field.aggregate.of
    if expression is None or expression.form is None or (field.of and field.of.only is not None):
        return False
    return _plain(json.loads(expression.form))


def _plain(node: Any) -> bool:
    if not isinstance(node, dict) or len(node) != 1:
        return bool(node == "Len")
    ((kind, inside),) = node.items()
    match kind:
        case "Column":
            return True
        case "Literal":
            return isinstance(inside, dict) and set(inside) == {"Dyn"}
        case "BinaryExpr":
            return _plain(inside["left"]) and _plain(inside["right"])
        case "Filter":
            return _plain(inside["input"]) and _plain(inside["by"])
    aggregation = next(iter(inside)) if kind == "Agg" else None
    return aggregation in _AGGREGATIONS and _plain(_input(inside[aggregation]))


def _input(of: Any) -> Any:
    """What an aggregation is taken over, beside its options."""
    if isinstance(of, list):
        return of[0]
    return of["input"] if isinstance(of, dict) and "input" in of else of


def whole_rows(
    fields: Sequence[Field], given: pl.Schema, *, everything: bool, placed: bool
) -> WholeRows | None:
    """What must be kept of rows: all for a function, for aggregations the columns they read."""
    if everything:
        return WholeRows(given, placed)
    read = [field.roots for field in fields if field.kind == "polars"]
    if not read:
        return None
    # A number of rows is one of some column.
    names = frozenset[str]().union(*read) or frozenset(list(given)[:1])
    return WholeRows(pl.Schema({n: d for n, d in given.items() if n in names}), placed)
