"""Dead letters: what is told of a record that failed, could not be read, or came too late.

A kernel makes letters of the rows of its bundle that failed. They keep those rows' hidden columns,
so they are where their record would be in order and in time. Which record of which source it was is
added where the epoch is known (`Origins`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from anabranch.kernels.bundle import (
    FROM,
    FROM_EPOCH,
    FROM_OFFSET,
    FROM_PARTITION,
    OFFSET,
    PARTITION,
    PHASE,
    hidden,
)
from anabranch.kernels.failures import as_json, told
from anabranch.kernels.stateless.python_rows import Record, records_of
from anabranch.program.operators.operator import DEAD_LETTER_SCHEMA

Reason = Literal["error", "late", "quarantined", "unread"]

_ORIGIN = ("source", "partition", "offset", "epoch")
_TOLD = [name for name in DEAD_LETTER_SCHEMA if name not in _ORIGIN]


def letters_of(
    operator: str,
    rows: pl.DataFrame,
    columns: Sequence[str],
    reason: Reason,
    errors: Sequence[BaseException] | None = None,
) -> pl.DataFrame:
    """A letter for each of these rows of a bundle, with their errors, if there were any.

    `columns` are those that the operator takes, which may be more than it reads. Where there are no
    rows there are no letters, but all their columns.
    """
    return letters_about(operator, records_of(rows, columns), rows, reason, errors)


def letters_about(
    operator: str,
    records: Sequence[Record],
    places: pl.DataFrame,
    reason: Reason,
    errors: Sequence[BaseException] | None = None,
) -> pl.DataFrame:
    """A letter for each record, with the hidden columns of the row at its place."""
    tales = [told(operator, error) for error in errors or ()]
    texts = [tale.text for tale in tales] or None
    tracebacks = ["\n".join(tale.traceback) for tale in tales] or None
    return _letters(operator, records, places, reason, texts, tracebacks)


def letters_unread(operator: str, unread: Sequence[Record], places: pl.DataFrame) -> pl.DataFrame:
    """A letter for each row that its source could not read: the error is why, the record the rest.

    They are values of the column that the source names for them.
    """
    records = [{name: row[name] for name in row if name != "why"} for row in unread]
    return _letters(operator, records, places, "unread", [row["why"] for row in unread])


def _letters(
    operator: str,
    records: Sequence[Record],
    places: pl.DataFrame,
    reason: Reason,
    errors: Sequence[str] | None = None,
    tracebacks: Sequence[str] | None = None,
) -> pl.DataFrame:
    nothing: list[str | None] = [None] * len(records)
    columns = {
        "operator": [operator] * len(records),
        "reason": [reason] * len(records),
        "error": errors or nothing,
        "traceback": tracebacks or nothing,
        "record": [as_json(record) for record in records],
    }
    made = pl.DataFrame(columns, schema={name: DEAD_LETTER_SCHEMA[name] for name in _TOLD})
    return made.hstack([places[name] for name in hidden(places)])


@dataclass(frozen=True, slots=True)
class Left:
    """Records that were left out: how many, and their letters where somebody reads them."""

    count: int = 0
    letters: pl.DataFrame | None = None


NONE = Left()


SPLIT_ROWS = 1 << 40
"""Rows are ordered by their split's place in its epoch, then by their place in the split."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows that were read together: where their offsets begin, and which record the first is."""

    index: int
    """Of the partition."""
    offset: int
    """The first row's `OFFSET`."""
    partition: str
    row: int
    """The first row's number in its partition."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Where an epoch's records come from."""

    epoch: int
    source: str | None = None
    splits: Sequence[Split] = ()

    def addressed(self, letters: pl.DataFrame) -> pl.DataFrame:
        """Letters with the records that they are about; those of a watermark have an epoch only."""
        found = self._found(letters)
        if FROM.keys() <= {*letters.columns}:
            # A row that was held comes from an earlier epoch, and maybe from another source.
            known = letters.select(
                pl.col(name).alias(to) for name, to in zip(FROM, _ORIGIN, strict=True)
            )
            held = known["epoch"].is_not_null()
            found = known.with_columns(
                pl.when(held).then(pl.col(name)).otherwise(found[name]) for name in _ORIGIN
            )
        kept = [name for name in hidden(letters) if name not in (FROM_PARTITION, FROM_OFFSET)]
        return letters.with_columns(found).select([*DEAD_LETTER_SCHEMA, *kept])

    def traced(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of a source with where they come from beside them."""
        found = self._found(rows)
        return rows.with_columns(
            found[name].alias(to) for to, name in zip(FROM, _ORIGIN, strict=True)
        )

    def kept(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows that are to be held, with where they come from: of a watermark's, the epoch."""
        missing = [
            pl.lit(None, FROM[name]).alias(name) for name in FROM if name not in rows.columns
        ]
        return rows.with_columns(missing).with_columns(pl.col(FROM_EPOCH).fill_null(self.epoch))

    def _found(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The `_ORIGIN` of each row, by its order columns."""
        if not rows.height:
            # Where there are no rows, there may be no order columns.
            return pl.DataFrame(schema={name: DEAD_LETTER_SCHEMA[name] for name in _ORIGIN})
        table = pl.DataFrame(
            [(s.index, s.offset, s.offset, s.partition, s.row) for s in self.splits],
            schema={
                PARTITION: pl.Int32(),
                OFFSET: pl.Int64(),
                "begin": pl.Int64(),
                "partition": pl.String(),
                "row": pl.Int64(),
            },
            orient="row",
        ).sort(PARTITION, OFFSET)
        elsewhere = FROM_PARTITION in rows.columns
        partition, offset = (FROM_PARTITION, FROM_OFFSET) if elsewhere else (PARTITION, OFFSET)
        places = rows.select(
            pl.col(partition).cast(pl.Int32).alias(PARTITION),
            pl.col(offset).cast(pl.Int64).alias(OFFSET),
            at=pl.row_index(),
        ).sort(PARTITION, OFFSET)
        found = places.join_asof(table, on=OFFSET, by=PARTITION, check_sortedness=False)
        found = found.sort("at")
        by_record: pl.Expr | pl.Series = pl.lit(value=True)
        if elsewhere:
            by_record = rows[FROM_PARTITION].is_not_null()
        elif PHASE in rows.columns:
            by_record = rows[PHASE].is_null()
        return found.select(
            pl.when(by_record).then(pl.lit(self.source, pl.String)).alias("source"),
            pl.when(by_record).then(pl.col("partition")).alias("partition"),
            pl.when(by_record)
            .then(pl.col("row") + pl.col(OFFSET) - pl.col("begin"))
            .alias("offset"),
            pl.lit(self.epoch, pl.Int64).alias("epoch"),
        )
