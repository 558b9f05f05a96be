"""One bundle by panes: what several windows over the same rows ask for is found once."""

from __future__ import annotations

import polars as pl

from anabranch.kernels.bundle import TIME
from anabranch.kernels.windows.codes import CodedTexts
from anabranch.kernels.windows.fields import ROWS, VALUE
from anabranch.kernels.windows.panes import START, Panes
from anabranch.kernels.windows.sorted_keys import SortedKeys

MANY = 100_000
"""Rows from which on Polars' streaming engine groups faster by several columns (7.5 ms for 10), or
by texts: it keeps no list of rows for each (38 ns for 90, of 3.3 million words of 100,000)."""

_RUN = 10_000
"""Rows of a pane, on average, from which on it is worth a call of its own."""


class Tally:
    """The rows of a bundle, and what has been found of them."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """Nothing is looked at before somebody asks."""
        self.rows = rows
        self._paned = dict[Panes, tuple[pl.DataFrame, pl.Series]]()
        self._counted = dict[tuple[Panes, str], pl.DataFrame]()

    def paned(self, panes: Panes) -> tuple[pl.DataFrame, pl.Series]:
        """The rows that lie in windows, and the start of the pane of each."""
        if panes not in self._paned:
            rows = self._inside(panes)
            self._paned[panes] = rows, panes.starts(rows[TIME])
        return self._paned[panes]

    def counted(self, panes: Panes, column: str) -> pl.DataFrame:
        """How often each value of a column is in each pane: `start`, `value` and `n`.

        Values are told apart as Polars does it, so it must be a column whose form is that of M6.
        """
        if (panes, column) not in self._counted:
            self._counted[panes, column] = self._count(panes, column)
        return self._counted[panes, column]

    def _inside(self, panes: Panes) -> pl.DataFrame:
        outside = panes.outside(self.rows[TIME])
        return self.rows if outside is None else self.rows.filter(~outside)

    def _count(self, panes: Panes, column: str) -> pl.DataFrame:
        rows = self._inside(panes)
        if are_many(rows) and (found := _by_codes(rows, panes, column)) is not None:
            return found
        number = pl.len().cast(pl.Int64).alias(ROWS)
        # Most bundles lie in one pane: nothing of the size of the bundle has to be made for it.
        start = panes.only(rows[TIME])
        if start is None:
            rows, starts = self.paned(panes)
            values = pl.DataFrame([starts.alias(START), rows[column].alias(VALUE)])
            return grouped(values, [START, VALUE], [number])
        alone = rows[column].alias(VALUE)
        if (in_order := SortedKeys.of(alone)) is not None:
            found = pl.DataFrame([in_order.keys, pl.Series(ROWS, in_order.counts())])
        else:
            found = grouped(pl.DataFrame([alone]), [VALUE], [number])
        return found.select(pl.lit(start, pl.Int64).alias(START), VALUE, ROWS)


def _by_codes(rows: pl.DataFrame, panes: Panes, column: str) -> pl.DataFrame | None:
    """The same of texts that have codes, in rows whose panes follow one another."""
    if rows.schema[column] != pl.String or rows[TIME].null_count():
        return None
    start = panes.only(rows[TIME])
    runs = (
        panes.runs(rows[TIME].to_numpy(), rows.height // _RUN)
        if start is None
        else [(start, 0, rows.height)]
    )
    coded = CodedTexts.of(rows[column]) if runs else None
    return None if runs is None or coded is None else coded.counted(runs)


def are_many(rows: pl.DataFrame) -> bool:
    """Whether rows are so many that another engine groups them faster."""
    return rows.height >= MANY


def grouped(values: pl.DataFrame, names: list[str], aggregates: list[pl.Expr]) -> pl.DataFrame:
    """Groups in no order, by the engine that is the faster one."""
    if are_many(values) and (len(names) > 1 or values.schema[names[0]] == pl.String):
        return values.lazy().group_by(names).agg(aggregates).collect(engine="streaming")
    return values.group_by(names).agg(aggregates)
