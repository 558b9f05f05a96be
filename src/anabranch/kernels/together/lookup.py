"""Rows beside a table's rows with their key (M13)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from anabranch.compiler.plan import HIDDEN
from anabranch.kernels.bundle import hidden
from anabranch.kernels.keys import canonical
from anabranch.kernels.letters import NONE, Left
from anabranch.kernels.stateless.columns import framed
from anabranch.program.operators.together import Lookup

_ROW = f"{HIDDEN}row"


@dataclass(frozen=True)
class LookupStep:
    """A join with a table that is here as a whole; null matches nothing, order stays."""

    name: str
    on: tuple[str, ...]
    """The key columns in the rows."""
    keys: tuple[str, ...]
    """The names of the table's key columns, in the form in which keys are compared."""
    exprs: tuple[pl.Expr, ...]
    """The rows' key columns in that form."""
    table: pl.DataFrame
    how: Literal["inner", "left"]
    many: bool
    left: tuple[str, ...]
    """The rows' columns that are read behind it."""
    sub: str | None
    plain: bool
    """Whether the rows' key columns are compared as they are."""
    taken: tuple[pl.Expr, ...]
    """What is taken of a table: its keys in that form, and the columns that are read."""

    @classmethod
    def of(
        cls, op: Lookup, schema: pl.Schema, live: Collection[str], sub: str | None
    ) -> LookupStep:
        """Take the table as it was first, with the columns that are read."""
        keys = tuple(f"{HIDDEN}on{at}" for at in range(len(op.on)))
        named = list(zip(keys, op.on, strict=True))
        exprs = tuple(canonical(pl.col(name), schema[name]).alias(key) for key, name in named)
        right = [pl.col(old).alias(new) for old, new in op.right_names if new in live]
        taken = (*exprs, *right)
        table = _prepared(op.table.first, taken, keys)
        left = tuple(name for name in schema if name in live)
        columns = ((pl.col(name), schema[name]) for name in op.on)
        plain = all(canonical(column, dtype) is column for column, dtype in columns)
        return cls(op.name, op.on, keys, exprs, table, op.how, op.many, left, sub, plain, taken)

    def with_table(self, table: pl.DataFrame) -> LookupStep:
        """The same step with another version of the table."""
        return replace(self, table=_prepared(table, self.taken, self.keys))

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Join, and number the matches of a row where there may be several and order is kept."""
        rows = framed(self._beside_keys(frame), frame.height)
        if self.sub is not None:
            rows = rows.with_row_index(_ROW)
        found = rows.join(
            self.table,
            on=self.keys,
            how=self.how,
            maintain_order="left_right" if self.many else "left",
        )
        if self.sub is not None:
            number = pl.int_range(pl.len(), dtype=pl.Int64).over(_ROW).alias(self.sub)
            found = found.with_columns(number)
        dropped = {*self.keys, _ROW}
        return framed((each for each in found if each.name not in dropped), found.height), NONE

    def _beside_keys(self, frame: pl.DataFrame) -> list[pl.Series]:
        """The columns that are read behind it, and the key columns to join on."""
        kept = [frame[name] for name in (*self.left, *hidden(frame))]
        if self.plain:
            named = zip(self.keys, self.on, strict=True)
            return [*kept, *(frame[name].alias(key) for key, name in named)]
        return [*kept, *frame.select_seq(self.exprs)]


def _prepared(table: pl.DataFrame, taken: Sequence[pl.Expr], keys: Sequence[str]) -> pl.DataFrame:
    """A table as it is joined with: rows that match nothing are left out."""
    return table.select(taken).drop_nulls(keys).rechunk()
