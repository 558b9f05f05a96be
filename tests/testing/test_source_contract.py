"""Our own sources keep the contract; of sources that break one rule each, that rule is told."""

import re
import threading
from datetime import datetime
from itertools import count
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.connectors.unread import UNREAD
from anabranch.errors import ProgramError
from anabranch.testing import ABORT, EOF, MockClock, TestingSource, check_source
from anabranch.testing.source_rules import SourceRule
from tests.connectors.torn import Torn

ROWS = [{"n": n, "s": f"row {n}", "at": datetime(2024, 1, 1, 0, n)} for n in range(23)]


def frame(first, rows):
    return pl.DataFrame({"n": range(first, first + rows)})


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_records_keep_the_contract(partitions):
    check_source(ab.sources.Records(ROWS, partitions=partitions), event_time="at")


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("rows", [None, 40])
def test_generators_keep_the_contract(rows, partitions):
    make = {"schema": {"n": pl.Int64}, "rows": rows, "partitions": partitions}
    check_source(ab.sources.Generator(lambda i: {"n": i * i}, **make))
    check_source(
        ab.sources.Generator(lambda numbers: numbers.alias("n").to_frame(), vectorized=True, **make)
    )


def test_sources_that_follow_a_clock_keep_the_contract():
    clock = MockClock(start=1_000.0)
    generator = ab.sources.Generator(
        lambda i: {"n": i}, schema={"n": pl.Int64}, rows=30, rate=10, partitions=2, clock=clock
    )
    check_source(generator, advance=lambda: clock.advance(1))
    check_source(generator, advance=lambda: clock.advance(10))
    check_source(
        ab.sources.Rate(20, clock=clock),
        advance=lambda: clock.advance(1),
        again=lambda: ab.sources.Rate(20, clock=clock),
        event_time="timestamp",
    )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("bounded", [False, True])
def test_files_keep_the_contract(suffix, bounded, tmp_path):
    def put(number):
        write = pl.DataFrame.write_parquet if suffix == "parquet" else pl.DataFrame.write_ipc
        write(frame(10 * number, 4 + number), tmp_path / f"{number}.{suffix}")

    for number in (3, 1, 0, 4):
        put(number)
    numbers = count(5)

    def make():
        return ab.sources.Files(tmp_path, bounded=bounded)

    check_source(make())
    check_source(make(), advance=lambda: put(next(numbers)), again=make)
    put(2)
    check_source(make(), advance=lambda: put(next(numbers)), again=make)


def test_the_testing_source_keeps_the_contract():
    items = [{"n": 1}, {"n": 2}, EOF, {"n": 3}, ABORT, EOF, {"n": 4}]
    check_source(TestingSource([*items, *items]))


class Good(ab.sources.Source):
    """Numbers in two partitions; which ones is found out at the first look, and remembered."""

    schema = pl.Schema({"n": pl.Int64(), "s": pl.String()})
    looks = count(1)

    def __init__(self):
        self.sizes = {0: 12, "b": 9}
        self.base = None

    def partitions(self):
        return list(self.sizes)

    def latest(self):
        if self.base is None:
            self.base = 100 * next(self.looks)
        return dict(self.sizes)

    def plan(self, start, end):
        return [
            (partition, start[partition], end[partition], self.base)
            for partition in self.sizes
            if partition in end
        ]

    def read(self, split):
        partition, start, end, base = split
        rows = [self.row(partition, base + number) for number in range(start, end)]
        yield from pl.DataFrame(rows, self.schema, orient="row").to_arrow().to_batches()

    def row(self, partition, number):
        return {"n": number, "s": f"{partition} {number}"}

    def memory(self):
        return {"base": self.base}

    def recall(self, memory):
        self.base = memory["base"]

    def grow(self):
        self.sizes[0] += 5


def test_one_of_ones_own_keeps_the_contract():
    source = Good()
    check_source(source)
    check_source(source, advance=source.grow, rows=8, event_time="n")
    assert 17 == source.sizes[0]


def test_a_source_of_which_rows_cannot_be_read_keeps_the_contract():
    rows = [{"n": 1, "s": "a"}, "torn", {"n": 2, "s": None}, "torn", "torn", {"n": 3, "s": "b"}]
    check_source(Torn(rows, {"n": pl.Int64, "s": pl.String}, partitions=2))


class NoSchema(Good):
    schema: Any = None


class NoColumns(Good):
    schema = pl.Schema()


class OneNameTwice(Good):
    def partitions(self):
        return [0, 0]


class OtherOrder(Good):
    turns = count()

    def partitions(self):
        return [0, "b"] if next(self.turns) % 2 else ["b", 0]


class StrangeNames(Good):
    def partitions(self):
        return [0, ("b", 1)]


class NoLatest(Good):
    def latest(self):
        return {0: super().latest()[0]}


class Tuples(Good):
    def latest(self):
        return {partition: (size,) for partition, size in super().latest().items()}


class OtherTypes(Good):
    def read(self, split):
        for batch in super().read(split):
            yield from (
                pl.DataFrame(batch).with_columns(pl.col("n").cast(pl.Int32)).to_arrow().to_batches()
            )


class NoBatches(Good):
    def read(self, split):
        return map(pl.DataFrame, super().read(split))


class UnreadAndRead(Good):
    unread = "torn"

    def read(self, split):
        told = {"file": "f", "line": 1, "why": "torn", "text": ""}
        for batch in super().read(split):
            frame = pl.DataFrame(batch).with_columns(pl.lit(told, UNREAD).alias("torn"))
            yield from frame.to_arrow().to_batches()


class FrameWithoutTheUnread(Torn):
    """Where the column of unread rows is not asked for, their rows seem to be read."""

    def __init__(self):
        super().__init__(["torn", {"n": 1}, {"n": 2}], {"n": pl.Int64})

    def frame(self, split, columns=None):
        return super().frame(split, columns).select(columns or ["n"])

    def grow(self):
        pass


class OtherEachTime(Good):
    reads = count()

    def row(self, partition, number):
        return {"n": number, "s": str(next(self.reads))}


class EndIncluded(Good):
    def read(self, split):
        partition, start, end, base = split
        return super().read((partition, start, end + 1, base))


class Overlap(Good):
    def read(self, split):
        partition, start, end, base = split
        return super().read((partition, start - 1 if 0 < start < end else start, end, base))


class Gap(Good):
    def read(self, split):
        partition, start, end, base = split
        return super().read((partition, start + 1 if 0 < start < end else start, end, base))


class BeyondTheEnd(Good):
    def limit(self, partition, start, end, rows):
        return start + rows


class BackFromTheStart(Good):
    def limit(self, partition, start, end, rows):
        return start - 1 if start == 3 else super().limit(partition, start, end, rows)


class AllAtOnce(Good):
    def limit(self, partition, start, end, rows):
        return end


class StandsStill(Good):
    def limit(self, partition, start, end, rows):
        return start if start == 2 else super().limit(partition, start, end, rows)


class PartitionsTurned(Good):
    def plan(self, start, end):
        return super().plan(start, end)[::-1]


class Locked(Good):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class LockedByALook(Good):
    def latest(self):
        self.lock = threading.Lock()
        return super().latest()


class LockedSplit:
    def __init__(self, given):
        self.given, self.lock = given, threading.Lock()


class LockedSplits(Good):
    def plan(self, start, end):
        return [LockedSplit(split) for split in super().plan(start, end)]

    def read(self, split):
        return super().read(split.given)


class ReadsByWhatStaysHere(Good):
    def read(self, split):
        return super().read(split) if self.base is not None else iter(())

    def __getstate__(self):
        return {**vars(self), "base": None}


class FrameOfAllColumns(Good):
    def frame(self, split, columns=None):
        return super().frame(split)


class FrameOfOtherTypes(Good):
    def frame(self, split, columns=None):
        return super().frame(split, columns).with_columns(pl.all().cast(pl.String))


class FrameWithoutARow(Good):
    def frame(self, split, columns=None):
        return super().frame(split, columns)[1:]


class StrangeMemory(Good):
    def memory(self):
        return {1: self.base}


class Forgetful(Good):
    def plan(self, start, end):
        self.latest()
        return super().plan(start, end)

    def recall(self, memory):
        """Begins anew."""


class BackInANewProcess(Good):
    def memory(self):
        self.known = 5
        return super().memory()

    def recall(self, memory):
        super().recall(memory)
        self.sizes = {0: 5, "b": 5}


class BackLater(Good):
    def grow(self):
        self.sizes[0] -= 2


class BackWithoutNumbers(Good):
    """Offsets that only the source can read."""

    def latest(self):
        return {partition: [size] for partition, size in super().latest().items()}

    def first(self, partition):
        return [0]

    def limit(self, partition, start, end, rows):
        return end if rows is None else [min(start[0] + rows, end[0])]

    def plan(self, start, end):
        return [(p, s[0], e[0], self.base) for p, s in start.items() for e in [end[p]]]

    def grow(self):
        self.sizes[0] = 3


class NewOneFirst(Good):
    def grow(self):
        self.sizes = {"a": 3, **self.sizes}


class LosesOne(Good):
    def grow(self):
        del self.sizes["b"]


class FinishedTooSoon(Good):
    def finished(self, partition):
        return partition == "b"

    def end(self):
        return {0: 20, "b": 20}


class FinishedAndGrows(Good):
    def finished(self, partition):
        return True


class HintsAtTooMuch(Good):
    def hint(self):
        return 10**6


class SharedCursor(Good):
    """Keeps how far it is in itself."""

    def read(self, split):
        partition, start, end, base = split
        self.at = start
        while self.at < end:
            yield from super().read((partition, self.at, self.at + 1, base))
            self.at += 1


class OneReaderAtATime(Good):
    """Gives nothing while somebody reads."""

    def __init__(self):
        super().__init__()
        self.open = 0

    def read(self, split):
        self.open += 1
        try:
            yield from super().read(split) if self.open == 1 else ()
        finally:
            self.open -= 1


class MoreIsLess(Good):
    def limit(self, partition, start, end, rows):
        return super().limit(partition, start, end, 1 if rows == 7 else rows)


class LimitedWithoutANumber(Good):
    def limit(self, partition, start, end, rows):
        return super().limit(partition, start, end, 2 if rows is None else rows)


class OneStartForAll(Good):
    def plan(self, start, end):
        least = min(start.values())
        return super().plan(dict.fromkeys(start, least), end)


class RecallsAndBeginsAnew(Good):
    anew = False

    def recall(self, memory):
        super().recall(memory)
        self.anew = True

    def plan(self, start, end):
        return super().plan(dict.fromkeys(start, 0) if self.anew else start, end)


class GoesOnFromItsFirstPlan(Good):
    """What is planned first in a new process moves what follows."""

    moved = None

    def recall(self, memory):
        super().recall(memory)
        self.moved = 0

    def plan(self, start, end):
        planned = super().plan(start, end)
        if self.moved is None:
            return planned
        self.moved, moved = max(self.moved, *start.values()), self.moved
        return [(p, max(s, min(moved, e)), e, base) for p, s, e, base in planned]


class RecallsWhatIsThereNow(Good):
    """In a new process the names of files, say, are those that are there then."""

    moved = 0

    def recall(self, memory):
        self.base = memory["base"] + self.moved

    def grow(self):
        type(self).moved += 1


class NoEnd(Good):
    def end(self):
        return {0: 12}


class EndTooSoon(Good):
    def end(self):
        return {0: 5, "b": None}


class EndIsATuple(Good):
    def end(self):
        return {0: (12,), "b": (9,)}


class NotFinishedLater(Good):
    grown = False

    def finished(self, partition):
        return partition == "b" and not self.grown

    def grow(self):
        super().grow()
        self.grown = True


class NotFinishedInANewProcess(Good):
    told = False

    def finished(self, partition):
        return partition == "b" and not self.told

    def recall(self, memory):
        super().recall(memory)
        self.told = True


WHOLE = "partition 0, from 0 to 12"
NEW = "in a new process"
"""Where a rule is broken, where that can be told."""

BROKEN = [
    (NoSchema, SourceRule.SCHEMA, "", "schema must map column names to Polars types, got None"),
    (NoColumns, SourceRule.SCHEMA, "", r"Schema\(\)"),
    (OneNameTwice, SourceRule.PARTITIONS, "", r"\[0, 0\]"),
    (OtherOrder, SourceRule.PARTITIONS, "", r"\[0, 'b'\]"),
    (StrangeNames, SourceRule.PARTITIONS, "", r"\('b', 1\)"),
    (NoLatest, SourceRule.LATEST, "", r"\[0\]"),
    (Tuples, SourceRule.OFFSETS, "partition 0, latest()", r"\(12,\)"),
    (OtherTypes, SourceRule.BATCHES, "", "column 'n' is Int32, expected Int64"),
    (NoBatches, SourceRule.BATCHES, "", "DataFrame"),
    (UnreadAndRead, SourceRule.UNREAD, "", "{'n': .*, 's': .*}"),
    (
        FrameWithoutTheUnread,
        SourceRule.FRAMES,
        "partition 0, from 0 to 3",
        "3 records, number 0: {'torn': None, 'n': None}",
    ),
    (OtherEachTime, SourceRule.REPEATED, WHOLE, "12 records, number 0: {'n': .*"),
    (SharedCursor, SourceRule.UNDISTURBED, WHOLE, r"\d+ records, number \d: .*"),
    (OneReaderAtATime, SourceRule.UNDISTURBED, WHOLE, "0 records"),
    (EndIncluded, SourceRule.NOTHING, "partition 0, from 0 to 0", r"\[{'n': .*"),
    (Overlap, SourceRule.JOINED, f"{WHOLE}, cut at 1", "13 records, number 1: .*"),
    (Gap, SourceRule.JOINED, f"{WHOLE}, cut at 1", "11 records, number 1: .*"),
    (BeyondTheEnd, SourceRule.LIMIT_BETWEEN, "partition 0, from 0 to 0", r"100, by limit.*=100\)"),
    (BackFromTheStart, SourceRule.LIMIT_BETWEEN, "partition 0, from 3 to 12", "2, by limit.*=1.*"),
    (AllAtOnce, SourceRule.LIMIT_ROWS, "partition 0, from 0", "12 rows"),
    (StandsStill, SourceRule.LIMIT_GOES_ON, "partition 0, from 2 to 12", "2 after many"),
    (MoreIsLess, SourceRule.LIMIT_GROWS, WHOLE, "1 rows, up to 1"),
    (LimitedWithoutANumber, SourceRule.LIMIT_GROWS, WHOLE, "2 rows, up to 2"),
    (
        PartitionsTurned,
        SourceRule.PLANNED,
        "plan({0: 0, 'b': 0}, {0: 12, 'b': 9})",
        "21 records, number 0: {'n': .*, 's': 'b .*",
    ),
    (
        OneStartForAll,
        SourceRule.PLANNED,
        "plan({0: 4, 'b': 5}, {0: 8, 'b': 9})",
        "9 records, number 4: .*",
    ),
    (Locked, SourceRule.TRAVELS, "", "TypeError: cannot pickle '_thread.lock' object"),
    (LockedByALook, SourceRule.TRAVELS_LATER, "", "TypeError: cannot pickle '_thread.lock' object"),
    (LockedSplits, SourceRule.SPLITS_TRAVEL, "", "TypeError: cannot pickle '_thread.lock' object"),
    (ReadsByWhatStaysHere, SourceRule.COPIES, WHOLE, "0 records"),
    (FrameOfAllColumns, SourceRule.FRAMES, WHOLE, r"\['n', 's'\]"),
    (FrameOfOtherTypes, SourceRule.FRAMES, WHOLE, "{'n': String, 's': String}"),
    (FrameWithoutARow, SourceRule.FRAMES, WHOLE, "11 records, number 0: .*"),
    (StrangeMemory, SourceRule.MEMORY, "", r"{1: \d+}"),
    (Forgetful, SourceRule.RECALLED, f"{WHOLE}, {NEW}", "12 records, number 0: .*"),
    (
        RecallsWhatIsThereNow,
        SourceRule.RECALLED,
        f"{WHOLE}, {NEW}, when more had come",
        "12 records, number 0: .*",
    ),
    (
        RecallsAndBeginsAnew,
        SourceRule.RESUMED,
        f"partition 0, from 1 to 2, {NEW}",
        "2 records, number 0: .*",
    ),
    (
        GoesOnFromItsFirstPlan,
        SourceRule.RESUMED,
        f"partition 'b', from 0 to 1, {NEW}",
        "0 records",
    ),
    (BackInANewProcess, SourceRule.NOT_BACK, f"partition 0, {NEW}", "5"),
    (BackLater, SourceRule.NOT_BACK, "partition 0, later", "10"),
    (BackWithoutNumbers, SourceRule.NOT_BACK, "partition 0, later", r"\[3\]"),
    (NewOneFirst, SourceRule.NEW_PARTITIONS, "", r"\['a', 0, 'b'\]"),
    (LosesOne, SourceRule.NEW_PARTITIONS, "", r"\[0\]"),
    (NoEnd, SourceRule.END, "", r"\[0\]"),
    (EndTooSoon, SourceRule.END, "partition 0", "5"),
    (EndIsATuple, SourceRule.OFFSETS, "partition 0, end()", r"\(12,\)"),
    (FinishedTooSoon, SourceRule.FINISHED, "partition 'b'", "9"),
    (FinishedAndGrows, SourceRule.FINISHED_FOR_EVER, "partition 0", "17"),
    (NotFinishedLater, SourceRule.FINISHED_FOR_EVER, "partition 'b', later", "not finished"),
    (
        NotFinishedInANewProcess,
        SourceRule.FINISHED_FOR_EVER,
        f"partition 'b', {NEW}",
        "not finished",
    ),
    (HintsAtTooMuch, SourceRule.HINTED, "partition 0, from 12 to 17", "{'n': .*"),
]


@pytest.mark.parametrize(
    ("kind", "rule", "at", "found"), BROKEN, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_broken_rule_is_told(kind, rule, at, found):
    source = kind()

    with pytest.raises(AssertionError) as failed:
        check_source(source, advance=source.grow, event_time="n")

    told, *lines = str(failed.value).splitlines()
    parts = {line[2:12].rstrip(): line[12:] for line in lines}
    assert f"broken: {rule.value}" == told
    assert at == parts.pop("at", "")
    assert ["expected", "found", "so"] == list(parts)
    assert re.fullmatch(found, parts["found"]), parts["found"]


def test_every_rule_can_fail():
    assert set(SourceRule) == {rule for _, rule, _, _ in BROKEN}


def test_offsets_that_are_no_numbers_need_no_limit():
    """The default cannot count them, and cuts nothing: that is slow, not wrong."""

    class Uncut(BackWithoutNumbers):
        limit = ab.sources.Source.limit

    check_source(Uncut())


def test_a_source_without_records_proves_nothing():
    empty = ab.sources.Records([], schema={"n": pl.Int64})
    with pytest.raises(ProgramError, match=r"^check_source: the source holds no records"):
        check_source(empty)
    with pytest.raises(ProgramError, match=r"^check_source: the source holds no records"):
        check_source(empty, advance=lambda: None)
    with pytest.raises(ProgramError, match=r"^check_source: not a source: 7"):
        check_source(7)
