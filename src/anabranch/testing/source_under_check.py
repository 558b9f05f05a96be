"""A source that is checked: what it has, and how a run looks at it and reads it.

Whatever it is asked here is asked as a run does, and each answer is held to the rule it must keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import polars as pl

from anabranch.connectors.base import Source
from anabranch.connectors.rows import difference
from anabranch.connectors.unread import UNREAD
from anabranch.errors import ProgramError
from anabranch.ids import Offset, Partition
from anabranch.program.schema import as_schema
from anabranch.testing.broken import broken, parted, same_json
from anabranch.testing.source_rules import SourceRule

if TYPE_CHECKING:
    import pyarrow as pa

Record: TypeAlias = dict[str, Any]
Part: TypeAlias = tuple[Offset, Offset, list[Record]]
"""A range of a partition, and its records."""

_STEPS = 1_000
"""More than there are records; an offset may be of something that is no record."""


class SourceUnderCheck:
    """A source, and what it held at the first look."""

    def __init__(self, source: Source, rows: int, event_time: str | None) -> None:
        """Look at nothing yet; of each partition up to `rows` will be read."""
        self.source, self.rows, self.event_time = source, rows, event_time
        self.types = pl.Schema()
        self.ranges: dict[Partition, tuple[Offset, Offset]] = {}
        """Of each partition from its beginning on, what is read."""
        self.content: dict[Partition, list[Record]] = {}
        self._parts: dict[tuple[Partition, int], list[Part]] = {}
        """By the rows of each: reading may be slow."""

    def look(self) -> bool:
        """Look at the source, and read what it has; whether that is anything."""
        __tracebackhide__ = True
        self._schema()
        partitions = self.partitions()
        latest = self.latest(partitions)
        for partition in partitions:
            first = self.offset(self.source.first(partition), "first", partition)
            self.limit(partition, first, first, self.rows)
            end = self.limit(partition, first, latest[partition], self.rows)
            self.ranges[partition] = (first, end)
            self.content[partition] = self.read(partition, first, end)
        return any(self.content.values())

    def require_records(self) -> None:
        """Refuse a source of which nothing can be told."""
        if not any(self.content.values()):
            message = "check_source: the source holds no records, so that nothing can be checked"
            so = "give it some, or pass advance= to let them come"
            raise ProgramError(message, so=so)

    def _schema(self) -> None:
        __tracebackhide__ = True
        schema: Any = getattr(self.source, "schema", None)
        error: ProgramError | None = None
        try:
            self.types = as_schema(schema, "schema")
        except ProgramError as refused:
            error = refused
        if error is not None or not self.types:
            found = f"{schema!r}" if error is None else error.what
            so = "set self.schema where the source is made, e.g. to pl.Schema({'n': pl.Int64()})"
            raise broken(SourceRule.SCHEMA, "names and types", found, so) from error

    def partitions(self) -> list[Partition]:
        """Its partitions, in their order."""
        __tracebackhide__ = True
        found, once_more = list(self.source.partitions()), list(self.source.partitions())
        rule = SourceRule.PARTITIONS
        so = "give whole numbers or texts; a new partition goes to the end"
        if found != once_more or len(set(found)) != len(found):
            raise broken(rule, found, once_more, so)
        if strange := [each for each in found if type(each) not in (int, str)]:
            raise broken(rule, "whole numbers or texts", strange[0], so)
        return found

    def latest(self, partitions: Sequence[Partition]) -> Mapping[Partition, Offset]:
        """Where each of these partitions ends now."""
        __tracebackhide__ = True
        latest = self.source.latest()
        if {*latest} != {*partitions}:
            raise broken(
                SourceRule.LATEST,
                list(partitions),
                list(latest),
                "give the offset behind the last record; an empty partition's is its beginning",
            )
        return {each: self.offset(latest[each], "latest", each) for each in partitions}

    def offset(self, offset: Offset, what: str, partition: Partition) -> Offset:
        """An offset that it gave."""
        __tracebackhide__ = True
        if not same_json(offset):
            raise broken(
                SourceRule.OFFSETS,
                "null, a number, a text, a list or an object with texts for keys",
                offset,
                "give lists instead of tuples, and texts or numbers instead of dates",
                at=f"partition {partition!r}, {what}()",
            )
        return offset

    def read(
        self, partition: Partition, start: Offset, end: Offset, by: Source | None = None
    ) -> list[Record]:
        """The records of a range, as tasks read them."""
        __tracebackhide__ = True
        source = by or self.source
        splits = source.plan({partition: start}, {partition: end})
        return [row for split in splits for row in self.records(source, split)]

    def records(self, source: Source, split: Any) -> Iterator[Record]:
        """The records of a split, read by the source or a copy of it."""
        __tracebackhide__ = True
        for batch in source.read(split):
            yield from self.rows_of(self._frame_of(batch))

    def rows_of(self, frame: pl.DataFrame) -> list[Record]:
        """The rows of a frame, each with what is told of unread ones, if the source has such."""
        unread, rows = self.source.unread, frame.rows(named=True)
        return rows if unread is None else [{unread: None, **row} for row in rows]

    def _frame_of(self, batch: pa.RecordBatch) -> pl.DataFrame:
        __tracebackhide__ = True
        import pyarrow as pa

        rule = SourceRule.BATCHES
        if not isinstance(batch, pa.RecordBatch):
            so = "yield from frame.to_arrow().to_batches()"
            raise broken(rule, "a pyarrow.RecordBatch", type(batch).__name__, so)
        frame = pl.DataFrame(batch)
        if wrong := difference(self.with_unread(frame), frame.schema):
            so = "declare what is read, or cast what is read to what is declared"
            raise broken(rule, dict(self.types), wrong, so)
        self._unread_alone(frame)
        return frame

    def _unread_alone(self, frame: pl.DataFrame) -> None:
        __tracebackhide__ = True
        unread = self.source.unread
        if unread is None or unread not in frame.columns:
            return
        for row in frame.rows(named=True):
            told = row.pop(unread)
            if told is not None and any(value is not None for value in row.values()):
                so = "make such rows by anabranch.connectors.unread.unread_rows"
                raise broken(SourceRule.UNREAD, f"nulls in all columns but {unread!r}", row, so)

    def with_unread(self, frame: pl.DataFrame) -> pl.Schema:
        """The source's columns, and that of unread rows where a frame has it."""
        told = {self.source.unread: UNREAD} if self.source.unread in frame.columns else {}
        return pl.Schema({**self.types, **told})

    def limit(self, partition: Partition, start: Offset, end: Offset, rows: int | None) -> Offset:
        """Where it cuts a range off."""
        __tracebackhide__ = True
        found = self.source.limit(partition, start, end, rows)
        self.offset(found, "limit", partition)
        numbers = [each for each in (start, found, end) if type(each) is int]
        if numbers != sorted(numbers) or found is None or (start == end != found):
            raise broken(
                SourceRule.LIMIT_BETWEEN,
                "an offset in this range",
                f"{found!r}, by limit(rows={rows})",
                "never go behind the end, nor before the start",
                at=place(partition, start, end),
            )
        return found

    def parts(self, partition: Partition, rows: int) -> Sequence[Part]:
        """All that is read of a partition in ranges of so many rows, read by the source itself."""
        __tracebackhide__ = True
        if (partition, rows) not in self._parts:
            self._parts[partition, rows] = [
                (start, end, self.read(partition, start, end))
                for start, end in self._steps(partition, rows)
            ]
        return self._parts[partition, rows]

    def _steps(self, partition: Partition, rows: int) -> Iterator[tuple[Offset, Offset]]:
        __tracebackhide__ = True
        at, end = self.ranges[partition]
        for _ in range(_STEPS + len(self.content[partition])):
            if at == end:
                return
            cut = self.limit(partition, at, end, rows)
            yield at, cut
            at = cut
        raise broken(
            SourceRule.LIMIT_GOES_ON,
            f"{end!r}, after some steps of {rows} rows",
            f"{at!r} after many",
            "give an offset behind the start while there are records before the end",
            at=place(partition, at, end),
        )

    def fresh(self) -> Callable[[], Source]:
        """What makes the source as it is now, before the first look, each time anew."""
        __tracebackhide__ = True
        from anabranch.spark.shipping import travelled

        pristine = self.travelled(SourceRule.TRAVELS)
        return lambda: cast("Source", travelled(pristine))

    def travelled(self, rule: SourceRule) -> Source:
        """The source as a task has it."""
        __tracebackhide__ = True
        from anabranch.spark.shipping import travelled

        try:
            return cast("Source", travelled(self.source))
        except Exception as error:
            so = "keep what cannot travel out of __getstate__, and open it where it is used"
            found = f"{type(error).__name__}: {error}"
            raise broken(rule, "a source that can be pickled", found, so) from error

    def same(
        self,
        rule: SourceRule,
        expected: list[Record],
        found: list[Record],
        so: str,
        *,
        at: str,
    ) -> None:
        """That records are those expected."""
        __tracebackhide__ = True
        if (error := parted(rule, expected, found, so, what="records", at=at)) is not None:
            raise error


def place(partition: Partition, start: Offset, end: Offset) -> str:
    """A range as it is told.

    >>> place("b", 3, [7])
    "partition 'b', from 3 to [7]"
    """
    return f"partition {partition!r}, from {start!r} to {end!r}"
