"""Whether a source keeps its contract (`anabranch.connectors.base.Source`), rule by rule.

What is asked here is what a run asks: the source is looked at, cut by `limit`, planned, read by a
copy in another process, and read again by a new one that was told the source's memory.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import polars as pl

from anabranch.connectors.base import Source
from anabranch.connectors.rows import difference
from anabranch.errors import ProgramError
from anabranch.ids import Offset, Partition
from anabranch.program.schema import as_schema
from anabranch.testing.broken import broken, parted, same_json

if TYPE_CHECKING:
    import pyarrow as pa

Record: TypeAlias = dict[str, Any]

_CUTS = (1, 3, 7)
"""Rows after which a range is cut, besides its middle."""
_WITH_REST = 8
"""So many cuts are tried against all that is behind them: more would be read again and again."""
_STEPS = 1_000
"""More than there are records; an offset may be of something that is no record."""


class SourceRule(Enum):
    """What a source promises."""

    SCHEMA = "schema is a Polars schema with at least one column"
    PARTITIONS = "partitions() gives different names, in the same order each time"
    LATEST = "latest() has an offset for each partition"
    OFFSETS = "offsets are JSON values, and the same when they come back from JSON"
    BATCHES = "read() gives record batches of the source's schema"
    REPEATED = "a range of offsets is the same records each time"
    NOTHING = "a range that ends where it begins holds nothing"
    JOINED = "ranges that meet join without a gap and without an overlap"
    LIMIT_BETWEEN = "limit() lies between the start and the end"
    LIMIT_ROWS = "limit() goes at most so many rows from the start"
    LIMIT_GOES_ON = "limit() gets to the end, by as many rows as it may at a time"
    PLANNED = "plan() gives splits in the order of partitions, and of offsets in each"
    TRAVELS = "a copy can travel to a task"
    TRAVELS_LATER = "a copy that has been looked at can travel to a task"
    SPLITS_TRAVEL = "splits can be pickled"
    COPIES = "a copy in a task reads the same records"
    FRAMES = "frame() gives what read() gives, of the columns that are asked for"
    MEMORY = "memory() is a JSON value"
    RECALLED = "after recall(memory()) a range is the same records in a new process"
    NOT_BACK = "latest() never goes back"
    NEW_PARTITIONS = "a new partition goes to the end"
    FINISHED = "a partition is finished when all it will ever hold is there"
    FINISHED_FOR_EVER = "nothing follows in a partition that is finished"
    HINTED = "no record comes below the hint"


def check_source(
    source: Source,
    *,
    rows: int = 100,
    advance: Callable[[], object] | None = None,
    again: Callable[[], Source] | None = None,
    event_time: str | None = None,
) -> None:
    """Fail unless a source keeps the contract of sources; up to `rows` of each partition are read.

    An AssertionError says which rule is broken, what was expected and found, and what to do.

    `advance` lets more records come, for rules about what changes: it puts a file into the
    directory, or moves a clock. `again` makes the source anew, as a program that is started again
    does; without it a copy from before the first look is taken for that. `event_time` names the
    column that a `hint` is about.

    >>> from anabranch.connectors.records import Records
    >>> check_source(Records([{"n": n} for n in range(10)], partitions=3))
    """
    __tracebackhide__ = True
    if not isinstance(source, Source):
        message = f"check_source: not a source: {source!r}"
        raise ProgramError(message, so="derive from ab.sources.Source")
    check = _SourceCheck(source, rows, event_time)
    pristine = check.travelled(SourceRule.TRAVELS) if again is None else again()
    if not check.look() and advance is not None:
        advance()
        check.look()
    check.require_records()
    check.ranges()
    check.order_of_plans()
    check.copies()
    check.restart(pristine)
    check.later(advance)


class _SourceCheck:
    """A source under check."""

    def __init__(self, source: Source, rows: int, event_time: str | None) -> None:
        self._source, self._rows, self._event_time = source, rows, event_time
        self._types = pl.Schema()
        self._ranges: dict[Partition, tuple[Offset, Offset]] = {}
        """Of each partition from its beginning on, what is read."""
        self._content: dict[Partition, list[Record]] = {}

    # ---- What is there ----------------------------------------------------------------------

    def look(self) -> bool:
        """Look at the source, and read what it has; whether that is anything."""
        __tracebackhide__ = True
        self._schema()
        partitions = self._partitions()
        latest = self._latest(partitions)
        for partition in partitions:
            first = self._offset(self._source.first(partition), "first", partition)
            self._limit(partition, first, first, self._rows)
            end = self._limit(partition, first, latest[partition], self._rows)
            self._ranges[partition] = (first, end)
            self._content[partition] = self._read(partition, first, end)
        return any(self._content.values())

    def require_records(self) -> None:
        """Refuse a source of which nothing can be told."""
        if not any(self._content.values()):
            message = "check_source: the source holds no records, so that nothing can be checked"
            so = "give it some, or pass advance= to let them come"
            raise ProgramError(message, so=so)

    def _schema(self) -> None:
        __tracebackhide__ = True
        schema: Any = getattr(self._source, "schema", None)
        error: ProgramError | None = None
        try:
            self._types = as_schema(schema, "schema")
        except ProgramError as refused:
            error = refused
        if error is not None or not self._types:
            found = f"{schema!r}" if error is None else error.what
            so = "set self.schema where the source is made, e.g. to pl.Schema({'n': pl.Int64()})"
            raise broken(SourceRule.SCHEMA, "names and types", found, so) from error

    def _partitions(self) -> list[Partition]:
        __tracebackhide__ = True
        found, once_more = list(self._source.partitions()), list(self._source.partitions())
        rule = SourceRule.PARTITIONS
        so = "give whole numbers or texts; a new partition goes to the end"
        if found != once_more or len(set(found)) != len(found):
            raise broken(rule, found, once_more, so)
        if strange := [each for each in found if type(each) not in (int, str)]:
            raise broken(rule, "whole numbers or texts", strange[0], so)
        return found

    def _latest(self, partitions: Sequence[Partition]) -> Mapping[Partition, Offset]:
        __tracebackhide__ = True
        latest = self._source.latest()
        if {*latest} != {*partitions}:
            raise broken(
                SourceRule.LATEST,
                list(partitions),
                list(latest),
                "give the offset behind the last record; an empty partition's is its beginning",
            )
        return {each: self._offset(latest[each], "latest", each) for each in partitions}

    def _offset(self, offset: Offset, what: str, partition: Partition) -> Offset:
        __tracebackhide__ = True
        if not same_json(offset):
            raise broken(
                SourceRule.OFFSETS,
                "null, a number, a text, a list or an object with texts for keys",
                f"{offset!r}, from {what} of partition {partition!r}",
                "give lists instead of tuples, and texts or numbers instead of dates",
            )
        return offset

    # ---- Reading ----------------------------------------------------------------------------

    def _read(
        self, partition: Partition, start: Offset, end: Offset, by: Source | None = None
    ) -> list[Record]:
        """The records of a range, as tasks read them."""
        __tracebackhide__ = True
        source = by or self._source
        splits = source.plan({partition: start}, {partition: end})
        return [row for split in splits for row in self._records(source, split)]

    def _records(self, source: Source, split: Any) -> Iterator[Record]:
        __tracebackhide__ = True
        for batch in source.read(split):
            yield from self._frame_of(batch).rows(named=True)

    def _frame_of(self, batch: pa.RecordBatch) -> pl.DataFrame:
        __tracebackhide__ = True
        import pyarrow as pa

        rule = SourceRule.BATCHES
        if not isinstance(batch, pa.RecordBatch):
            so = "yield from frame.to_arrow().to_batches()"
            raise broken(rule, "a pyarrow.RecordBatch", type(batch).__name__, so)
        frame = pl.DataFrame(batch)
        if wrong := difference(self._types, frame.schema):
            so = "declare what is read, or cast what is read to what is declared"
            raise broken(rule, dict(self._types), wrong, so)
        return frame

    def ranges(self) -> None:
        """A range is the same each time, and the same in parts."""
        __tracebackhide__ = True
        for partition, (first, end) in self._ranges.items():
            whole = self._content[partition]
            self._same(
                SourceRule.REPEATED,
                whole,
                self._read(partition, first, end),
                "records are read again after a crash: give what was there the first time",
            )
            self._nothing(partition, first, end)
            for rows in sorted({*_CUTS, len(whole) // 2} - {0}):
                self._joined(partition, rows)

    def _nothing(self, partition: Partition, *offsets: Offset) -> None:
        __tracebackhide__ = True
        for offset in offsets:
            if found := self._read(partition, offset, offset):
                raise broken(
                    SourceRule.NOTHING,
                    [],
                    found[:3],
                    "a range takes its start and leaves its end out",
                )

    def _joined(self, partition: Partition, rows: int) -> None:
        """The whole range in steps of so many rows."""
        __tracebackhide__ = True
        rule = SourceRule.JOINED
        so = "a range takes its start and leaves its end out"
        joined = list[Record]()
        for number, (at, cut) in enumerate(self._steps(partition, rows)):
            part = self._read(partition, at, cut)
            self._few(partition, at, part, rows)
            joined += part
            if number < _WITH_REST:
                rest = self._read(partition, cut, self._ranges[partition][1])
                told = f"{so}; here one is cut at {cut!r}"
                self._same(rule, self._content[partition], [*joined, *rest], told)
        self._same(rule, self._content[partition], joined, f"{so}; here of {rows} rows each")

    def _steps(self, partition: Partition, rows: int) -> Iterator[tuple[Offset, Offset]]:
        __tracebackhide__ = True
        at, end = self._ranges[partition]
        for _ in range(_STEPS + len(self._content[partition])):
            if at == end:
                return
            cut = self._limit(partition, at, end, rows)
            yield at, cut
            at = cut
        raise broken(
            SourceRule.LIMIT_GOES_ON,
            f"{end!r} of partition {partition!r}",
            f"{at!r} after many steps of {rows} rows",
            "give an offset behind the start while there are records before the end",
        )

    def _few(self, partition: Partition, at: Offset, part: list[Record], rows: int) -> None:
        __tracebackhide__ = True
        # The default cannot cut what it cannot count, and says so: then epochs are as they come.
        by_default = type(self._source).limit is Source.limit and not isinstance(at, int)
        if len(part) > rows and not by_default:
            raise broken(
                SourceRule.LIMIT_ROWS,
                f"at most {rows} rows from {at!r} of partition {partition!r}",
                f"{len(part)} rows",
                "override limit(): the default takes offsets for numbers of records",
            )

    def _limit(self, partition: Partition, start: Offset, end: Offset, rows: int) -> Offset:
        __tracebackhide__ = True
        found = self._source.limit(partition, start, end, rows)
        self._offset(found, "limit", partition)
        numbers = [each for each in (start, found, end) if type(each) is int]
        if numbers != sorted(numbers) or found is None or (start == end != found):
            raise broken(
                SourceRule.LIMIT_BETWEEN,
                f"from {start!r} to {end!r} of partition {partition!r}",
                found,
                "never go behind the end, nor before the start",
            )
        return found

    def order_of_plans(self) -> None:
        """All partitions at once are one after the other."""
        __tracebackhide__ = True
        start = {partition: first for partition, (first, _) in self._ranges.items()}
        end = {partition: last for partition, (_, last) in self._ranges.items()}
        found = [
            row
            for split in self._source.plan(start, end)
            for row in self._records(self._source, split)
        ]
        self._same(
            SourceRule.PLANNED,
            [row for partition in self._ranges for row in self._content[partition]],
            found,
            "go through self.partitions() in order, and through a partition by offset",
        )

    # ---- Elsewhere, and later ---------------------------------------------------------------

    def travelled(self, rule: SourceRule) -> Source:
        """The source as a task has it."""
        __tracebackhide__ = True
        from anabranch.spark.shipping import travelled

        try:
            return cast("Source", travelled(self._source))
        except Exception as error:
            so = "keep what cannot travel out of __getstate__, and open it where it is used"
            found = f"{type(error).__name__}: {error}"
            raise broken(rule, "a source that can be pickled", found, so) from error

    def copies(self) -> None:
        """What a task reads, and as one frame."""
        __tracebackhide__ = True
        copy = self.travelled(SourceRule.TRAVELS_LATER)
        for partition, (first, end) in self._ranges.items():
            splits = [
                self._travelled_split(each)
                for each in self._source.plan({partition: first}, {partition: end})
            ]
            self._same(
                SourceRule.COPIES,
                self._content[partition],
                [row for split in splits for row in self._records(copy, split)],
                "put into splits, or leave in __getstate__, all that reading needs",
            )
            for split in splits:
                self._frames(copy, split)

    def _travelled_split(self, split: Any) -> Any:
        __tracebackhide__ = True
        try:
            return pickle.loads(pickle.dumps(split))  # noqa: S301 - made one call before
        except Exception as error:
            raise broken(
                SourceRule.SPLITS_TRAVEL,
                "plain values",
                f"{type(error).__name__}: {error}",
                "put names, numbers and offsets into a split, not open files or connections",
            ) from error

    def _frames(self, copy: Source, split: Any) -> None:
        __tracebackhide__ = True
        records = list(self._records(copy, split))
        names = list(self._types)
        rule = SourceRule.FRAMES
        for chosen in (None, names[:1], names[::-1]):
            frame = copy.frame(split, chosen)
            asked = names if chosen is None else chosen
            if asked != frame.columns:
                raise broken(rule, asked, frame.columns, "select the columns in the order given")
            if frame.schema != {name: self._types[name] for name in asked}:
                raise broken(rule, dict(self._types), dict(frame.schema), "cast them")
            expected = [{name: row[name] for name in asked} for row in records]
            self._same(rule, expected, frame.rows(named=True), "or leave frame() to the default")

    def restart(self, pristine: Source) -> None:
        """A new process that is told the memory gives the same."""
        __tracebackhide__ = True
        memory = self._source.memory()
        if not same_json(memory):
            raise broken(
                SourceRule.MEMORY,
                "the same when it comes back from JSON",
                memory,
                "give lists instead of tuples, and texts for the keys of dicts",
            )
        if memory is not None:
            pristine.recall(json.loads(json.dumps(memory)))
        for partition, (first, end) in self._ranges.items():
            self._same(
                SourceRule.RECALLED,
                self._content[partition],
                self._read(partition, first, end, pristine),
                "remember what gives offsets their meaning, such as the names of files",
            )
        ends = {partition: end for partition, (_, end) in self._ranges.items()}
        self._not_before(ends, pristine, "in a new process")

    def later(self, advance: Callable[[], object] | None) -> None:
        """What was there stays, and what is finished gets nothing more."""
        __tracebackhide__ = True
        before = self._latest(self._partitions())
        finished = [each for each in before if self._source.finished(each)]
        self._at_the_end(finished, before)
        hint = self._source.hint()
        if advance is not None:
            advance()
        partitions = self._partitions()
        if partitions[: len(before)] != list(before):
            so = "keep the ones there are in their order"
            rule = SourceRule.NEW_PARTITIONS
            raise broken(rule, list(before), partitions, so)
        after = self._latest(partitions)
        self._not_before(before, self._source, "later")
        for partition in finished:
            if after[partition] != before[partition]:
                raise broken(
                    SourceRule.FINISHED_FOR_EVER,
                    f"{before[partition]!r} in partition {partition!r} for ever",
                    after[partition],
                    "say finished() only when nothing will ever be added",
                )
        self._above_the_hint(hint, before, after)

    def _at_the_end(
        self, finished: Sequence[Partition], latest: Mapping[Partition, Offset]
    ) -> None:
        __tracebackhide__ = True
        end = self._source.end()
        for partition in finished:
            if end[partition] != latest[partition]:
                raise broken(
                    SourceRule.FINISHED,
                    f"latest() at end(), {end[partition]!r}, in partition {partition!r}",
                    latest[partition],
                    "say finished() only once latest() has reached the end",
                )

    def _not_before(self, known: Mapping[Partition, Offset], source: Source, when: str) -> None:
        """That latest is not before what was known, as far as that can be told of offsets."""
        __tracebackhide__ = True
        latest = source.latest()
        for partition, end in known.items():
            if partition not in latest or self._is_before(
                source, partition, latest[partition], end
            ):
                raise broken(
                    SourceRule.NOT_BACK,
                    f"{end!r} or behind it in partition {partition!r}",
                    f"{latest.get(partition)!r}, {when}",
                    "count on from what memory() says; records that were there stay there",
                )

    def _is_before(self, source: Source, partition: Partition, found: Offset, end: Offset) -> bool:
        if type(found) is int and type(end) is int:
            return found < end
        if found in (end, None):
            return False
        first, _ = self._ranges[partition]
        reached = source.limit(partition, first, found, self._rows)
        held = self._read(partition, first, reached, source)
        return len(held) < len(self._content[partition])

    def _above_the_hint(
        self, hint: Any, before: Mapping[Partition, Offset], after: Mapping[Partition, Offset]
    ) -> None:
        __tracebackhide__ = True
        if hint is None or self._event_time is None:
            return
        for partition, start in before.items():
            for row in self._read(partition, start, after[partition]):
                time = row[self._event_time]
                if time is not None and time < hint:
                    raise broken(
                        SourceRule.HINTED,
                        f"{self._event_time} of {hint!r} or later",
                        row,
                        "hint at no more than is certain of what will still come",
                    )

    def _same(self, rule: SourceRule, expected: list[Record], found: list[Record], so: str) -> None:
        __tracebackhide__ = True
        if (error := parted(rule, expected, found, so, what="records")) is not None:
            raise error
