"""A source of rows that are already here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import polars as pl

from anabranch.connectors.base import Source
from anabranch.errors import ProgramError
from anabranch.ids import Offset, Partition

if TYPE_CHECKING:
    import pyarrow as pa


@final
class Records(Source):
    """Rows of a list or a frame; row i is in partition i mod partitions. Finishes.

    >>> dict(Records([{"n": 1}, {"n": 2}]).schema)
    {'n': Int64}
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]] | pl.DataFrame,
        schema: Mapping[str, Any] | None = None,
        partitions: int = 1,
    ) -> None:
        """Take the rows as they are now; the types are those of `schema`, else of the values."""
        if not isinstance(partitions, int) or partitions < 1:
            message = f"Records: partitions must be at least 1, got {partitions!r}"
            raise ProgramError(message)
        self._frame = rows if isinstance(rows, pl.DataFrame) else as_frame(list(rows), schema)
        self._partitions = partitions
        self.schema = self._frame.schema

    def partitions(self) -> Sequence[Partition]:
        """0, 1, ..."""
        return range(self._partitions)

    def latest(self) -> Mapping[Partition, Offset]:
        """The number of rows in each partition."""
        return {
            p: len(range(p, self._frame.height, self._partitions)) for p in range(self._partitions)
        }

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[tuple[Partition, Offset, Offset]]:
        """One split a partition."""
        return [(p, start[p], end[p]) for p in self.partitions() if p in end]

    def read(self, split: tuple[Partition, Offset, Offset]) -> Iterator[pa.RecordBatch]:
        """Every `partitions`-th row of a range."""
        partition, start, end = split
        mine = self._frame.slice(int(partition)).gather_every(self._partitions)
        yield from mine.slice(start, end - start).to_arrow().to_batches()

    def finished(self, partition: Partition) -> bool:  # noqa: ARG002
        """Nothing is ever added."""
        return True


def as_frame(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None) -> pl.DataFrame:
    """Put rows into a frame by columns: building it from dicts would coerce values silently."""
    if schema is None:
        if not rows:
            message = "Records: no rows and no schema"
            raise ProgramError(message, so='pass schema={"column": pl.Int64, ...}')
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: [row.get(name) for row in rows] for name in names}
        return _frame({name: pl.Series(name, _widened(values)) for name, values in columns.items()})
    for number, row in enumerate(rows):
        if unknown := [name for name in row if name not in schema]:
            message = f"Records: row {number} has a column {unknown[0]!r} that the schema has not"
            raise ProgramError(message, have=", ".join(schema))
    return _frame({name: [row.get(name) for row in rows] for name in schema}, schema)


def _widened(values: list[Any]) -> list[Any]:
    """A column of whole and broken numbers is one of broken ones."""
    kinds = {type(value) for value in values if value is not None}
    return [v if v is None else float(v) for v in values] if kinds == {int, float} else values


def _frame(columns: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> pl.DataFrame:
    try:
        return pl.DataFrame(columns, schema=schema, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        message = f"Records: the rows do not fit one type a column: {str(error).splitlines()[0]}"
        raise ProgramError(message, so="make them equal, or pass schema=") from error
