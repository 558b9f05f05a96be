"""Ranges of offsets: each the same whenever it is read, in parts and as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from anabranch.connectors.base import Source
from anabranch.ids import Offset, Partition
from anabranch.testing.broken import broken
from anabranch.testing.source_rules import SourceRule
from anabranch.testing.source_under_check import Record, SourceUnderCheck, place

_CUTS = (1, 3, 7)
"""Rows after which a range is cut, besides its middle."""
_WITH_REST = 8
"""So many cuts are tried against all that is behind them: more would be read again and again."""
_ROUNDS = 3
"""So many epochs or a little more, where all partitions are planned together."""


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
            at=place(partition, first, end),
        )
        _undisturbed(case, partition)
        _nothing(case, partition, first, end)
        _grows(case, partition)
        for rows in sorted({*_CUTS, len(whole) // 2} - {0}):
            _joined(case, partition, rows)


def _undisturbed(case: SourceUnderCheck, partition: Partition) -> None:
    """Two reads side by side, behind one that came no further than its first record."""
    __tracebackhide__ = True
    first, end = case.ranges[partition]

    def reading() -> Iterator[Record]:
        for split in case.source.plan({partition: first}, {partition: end}):
            yield from case.records(case.source, split)

    given_up = reading()
    next(given_up, None)
    pairs = list(zip_longest(reading(), reading()))
    del given_up
    for number in (0, 1):
        case.same(
            SourceRule.UNDISTURBED,
            case.content[partition],
            [pair[number] for pair in pairs if pair[number] is not None],
            "keep how far a read is in the read itself, not in the source",
            at=place(partition, first, end),
        )


def _nothing(case: SourceUnderCheck, partition: Partition, *offsets: Offset) -> None:
    __tracebackhide__ = True
    for offset in offsets:
        if found := case.read(partition, offset, offset):
            raise broken(
                SourceRule.NOTHING,
                [],
                found[:3],
                "a range takes its start and leaves its end out",
                at=place(partition, offset, offset),
            )


def _grows(case: SourceUnderCheck, partition: Partition) -> None:
    """Who may have more rows gets those that fewer are, and perhaps more; without a number most."""
    __tracebackhide__ = True
    first, end = case.ranges[partition]
    furthest, by = 0, 0
    for rows in (*_CUTS, case.rows, None):
        cut = case.limit(partition, first, end, rows)
        reached = len(case.read(partition, first, cut))
        if reached < furthest:
            raise broken(
                SourceRule.LIMIT_GROWS,
                f"{furthest} rows or more by limit(rows={rows}), as by limit(rows={by})",
                f"{reached} rows, up to {cut!r}",
                "go as far as there are rows, up to so many",
                at=place(partition, first, end),
            )
        furthest, by = reached, rows or 0


def _joined(case: SourceUnderCheck, partition: Partition, rows: int) -> None:
    """The whole range in steps of so many rows."""
    __tracebackhide__ = True
    rule = SourceRule.JOINED
    so = "a range takes its start and leaves its end out"
    joined = list[Record]()
    first, end = case.ranges[partition]
    for number, (start, cut, part) in enumerate(case.parts(partition, rows)):
        _few(case, partition, start, part, rows)
        joined += part
        if number < _WITH_REST:
            rest = case.read(partition, cut, end)
            told = f"{place(partition, first, end)}, cut at {cut!r}"
            case.same(rule, case.content[partition], [*joined, *rest], so, at=told)
    told = f"{place(partition, first, end)}, in steps of {rows} rows"
    case.same(rule, case.content[partition], joined, so, at=told)


def _few(
    case: SourceUnderCheck, partition: Partition, start: Offset, part: list[Record], rows: int
) -> None:
    __tracebackhide__ = True
    # The default cannot cut what it cannot count, and says so: then epochs are as they come.
    by_default = type(case.source).limit is Source.limit and not isinstance(start, int)
    if len(part) > rows and not by_default:
        raise broken(
            SourceRule.LIMIT_ROWS,
            f"at most {rows} rows",
            f"{len(part)} rows",
            "override limit(): the default takes offsets for numbers of records",
            at=f"partition {partition!r}, from {start!r}",
        )


def check_plans(case: SourceUnderCheck) -> None:
    """All partitions at once are one after the other: as a whole, and epoch by epoch."""
    __tracebackhide__ = True
    first = {partition: start for partition, (start, _) in case.ranges.items()}
    end = {partition: last for partition, (_, last) in case.ranges.items()}
    _planned(case, first, end, case.content)
    rows = max(1, max(map(len, case.content.values())) // _ROUNDS)
    # Not as many of each, so that none is where the others are.
    parts = [case.parts(each, rows + more) for more, each in enumerate(case.ranges)]
    at = first
    for epoch in zip_longest(*parts):
        # A partition that is read to its end has ranges of nothing from then on.
        given = dict(zip(at, epoch, strict=True))
        to = {each: part[1] if part else end[each] for each, part in given.items()}
        _planned(case, at, to, {each: part[2] if part else [] for each, part in given.items()})
        at = to


def _planned(
    case: SourceUnderCheck,
    start: Mapping[Partition, Offset],
    end: Mapping[Partition, Offset],
    parts: Mapping[Partition, list[Record]],
) -> None:
    __tracebackhide__ = True
    splits = case.source.plan(dict(start), dict(end))
    case.same(
        SourceRule.PLANNED,
        [row for partition in start for row in parts[partition]],
        [row for split in splits for row in case.records(case.source, split)],
        "go through self.partitions() in order, and through each from its own start to its own end",
        at=f"plan({dict(start)}, {dict(end)})",
    )
