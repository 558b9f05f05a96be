"""Partials made before a lookup instead of behind it, where many rows ask for the same few keys.

A lookup gives all rows of one key the same columns. So rows are first counted and added up by the
lookup's own key, then the few partials are looked up, then those that fall into one window and key
are added again. On 800,000 ad events, 267,000 of them views of 1,000 ads, this took 9 ms where the
lookup of every view and their partials took 20 ms.

It is sound because partials of partials are those of all rows (`Windows.merged`), and it is done
only where nothing can tell the difference: no aggregate reads a column of the table or computes
anything that could fail on a row that the lookup would have dropped, and none shows the order of
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from anabranch.kernels.keys import canonical, canonical_type
from anabranch.kernels.together.lookup import LookupStep
from anabranch.kernels.windows.fields import Field
from anabranch.kernels.windows.windows import Windows

_SAMPLE = 4096
"""Rows that are looked at to tell whether keys are few."""


@dataclass(frozen=True)
class EarlyPartials:
    """A lookup and the windows behind it, in the other order."""

    lookup: LookupStep
    windows: Windows
    before: Windows
    """The same windows over the rows before the lookup, by its key and the other `by` columns."""

    @classmethod
    def of(cls, lookup: LookupStep, windows: Windows, schema: pl.Schema) -> EarlyPartials | None:
        """None where it could show; `schema` is that of the rows before the lookup."""
        added = set(lookup.table.columns)
        kept = tuple(name for name in windows.by if name not in added)
        if lookup.many or windows.ordered:
            return None
        if not all(_plain(field, schema, added) for field in windows.fields):
            return None
        if any(canonical_type(schema[name]) != schema[name] for name in kept):
            return None
        keys = [*lookup.exprs, *(canonical(pl.col(name), schema[name]) for name in kept)]
        types = [*(lookup.table.schema[key] for key in lookup.keys), *(schema[n] for n in kept)]
        before = replace(
            windows,
            by=(*lookup.on, *kept),
            keys=tuple(key.alias(f"k{at}") for at, key in enumerate(keys)),
            key_types=tuple(types),
        )
        return cls(lookup, windows, before)

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> EarlyPartials:
        """The same with another version of the lookup's table, if there is one."""
        table = tables.get(self.lookup.name)
        return self if table is None else replace(self, lookup=self.lookup.with_table(table))

    def pays(self, rows: pl.DataFrame) -> bool:
        """Whether there are many rows to a key, as far as the first of them tell."""
        if rows.height < _SAMPLE:
            return False
        return rows.head(_SAMPLE).select(self.lookup.exprs).n_unique() <= _SAMPLE // 2

    def partials(
        self, rows: pl.DataFrame, slices: int, key: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """What `Windows.partials` gives for the same rows behind the lookup."""
        early, lookup, windows = self.before.partials(rows, 1), self.lookup, self.windows
        named = [*lookup.keys, *self.before.by[len(lookup.keys) :]]
        found = early.rename(dict(zip(self.before.names, named, strict=True)))
        found = found.join(lookup.table, on=lookup.keys, how=lookup.how)
        found = windows.merged([found.with_columns(windows.keys)])
        return windows.sliced(found, slices, key)


def _plain(field: Field, schema: pl.Schema, added: set[str]) -> bool:
    """Whether a field counts rows, or takes a column as it is from before the lookup."""
    if field.by is not None:
        return False
    if field.of is None:
        return True
    (read, *others), (expression, *_) = sorted(field.of.roots), field.of.expressions
    return not others and read in schema and read not in added and _is(expression, read)


def _is(expression: pl.Expr, column: str) -> bool:
    return expression.meta.eq(pl.col(column))
