"""A source of rows that are already here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import polars as pl

from anabranch.connectors.base import Source
from anabranch.connectors.rows import Misfit, declared, frame_of, shown
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
    """Put rows into a frame; without a schema each column has the type of its values."""
    if schema is None:
        if not rows:
            message = "Records: no rows and no schema"
            raise ProgramError(message, so='pass schema={"column": pl.Int64, ...}')
        return _inferred(rows)
    try:
        return frame_of(rows, declared(schema, "Records"))
    except Misfit as misfit:
        message = f"Records: row {misfit.row} does not fit the schema"
        have = shown(declared(schema, "Records"))
        so = "mend the row, or the schema"
        raise ProgramError(message, why=misfit.why, have=have, so=so) from misfit


def _inferred(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            message = f"Records: row {number} is no record: {row!r}"
            raise ProgramError(message, so='pass dicts, e.g. [{"n": 1}, {"n": 2}], or a frame')
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _widened([row.get(name) for row in rows]) for name in names}
    try:
        return pl.DataFrame([pl.Series(name, values) for name, values in columns.items()])
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        message = f"Records: the rows do not fit one type a column: {str(error).splitlines()[0]}"
        raise ProgramError(message, so="make them equal, or pass schema=") from error


def _widened(values: list[Any]) -> list[Any]:
    """A column of whole and broken numbers is one of broken ones."""
    kinds = {type(value) for value in values if value is not None}
    return [v if v is None else float(v) for v in values] if kinds == {int, float} else values
