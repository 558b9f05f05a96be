"""Ranges of offsets: each the same whenever it is read, in parts and as a whole."""

from __future__ import annotations

from anabranch.connectors.base import Source
from anabranch.ids import Offset, Partition
from anabranch.testing.broken import broken
from anabranch.testing.source_rules import SourceRule
from anabranch.testing.source_under_check import Record, SourceUnderCheck

_CUTS = (1, 3, 7)
"""Rows after which a range is cut, besides its middle."""
_WITH_REST = 8
"""So many cuts are tried against all that is behind them: more would be read again and again."""


def check_ranges(case: SourceUnderCheck) -> None:
    """A range is the same each time, and the same in parts."""
    __tracebackhide__ = True
    for partition, (first, end) in case.ranges.items():
        whole = case.content[partition]
        case.same(
            SourceRule.REPEATED,
            whole,
            case.read(partition, first, end),
            "records are read again after a crash: give what was there the first time",
        )
        _nothing(case, partition, first, end)
        for rows in sorted({*_CUTS, len(whole) // 2} - {0}):
            _joined(case, partition, rows)


def _nothing(case: SourceUnderCheck, partition: Partition, *offsets: Offset) -> None:
    __tracebackhide__ = True
    for offset in offsets:
        if found := case.read(partition, offset, offset):
            raise broken(
                SourceRule.NOTHING,
                [],
                found[:3],
                "a range takes its start and leaves its end out",
            )


def _joined(case: SourceUnderCheck, partition: Partition, rows: int) -> None:
    """The whole range in steps of so many rows."""
    __tracebackhide__ = True
    rule = SourceRule.JOINED
    so = "a range takes its start and leaves its end out"
    joined = list[Record]()
    for number, (at, cut) in enumerate(case.steps(partition, rows)):
        part = case.read(partition, at, cut)
        _few(case, partition, at, part, rows)
        joined += part
        if number < _WITH_REST:
            rest = case.read(partition, cut, case.ranges[partition][1])
            told = f"{so}; here one is cut at {cut!r}"
            case.same(rule, case.content[partition], [*joined, *rest], told)
    case.same(rule, case.content[partition], joined, f"{so}; here of {rows} rows each")


def _few(
    case: SourceUnderCheck, partition: Partition, at: Offset, part: list[Record], rows: int
) -> None:
    __tracebackhide__ = True
    # The default cannot cut what it cannot count, and says so: then epochs are as they come.
    by_default = type(case.source).limit is Source.limit and not isinstance(at, int)
    if len(part) > rows and not by_default:
        raise broken(
            SourceRule.LIMIT_ROWS,
            f"at most {rows} rows from {at!r} of partition {partition!r}",
            f"{len(part)} rows",
            "override limit(): the default takes offsets for numbers of records",
        )


def check_plans(case: SourceUnderCheck) -> None:
    """All partitions at once are one after the other."""
    __tracebackhide__ = True
    start = {partition: first for partition, (first, _) in case.ranges.items()}
    end = {partition: last for partition, (_, last) in case.ranges.items()}
    found = [
        row for split in case.source.plan(start, end) for row in case.records(case.source, split)
    ]
    case.same(
        SourceRule.PLANNED,
        [row for partition in case.ranges for row in case.content[partition]],
        found,
        "go through self.partitions() in order, and through a partition by offset",
    )
