"""A source as time goes on: more comes, and what was there stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.connectors.base import Source
from anabranch.ids import Offset, Partition
from anabranch.testing.broken import broken
from anabranch.testing.source_rules import SourceRule
from anabranch.testing.source_under_check import SourceUnderCheck


def check_later(case: SourceUnderCheck, advance: Callable[[], object] | None) -> None:
    """What was there stays, and what is finished gets nothing more."""
    __tracebackhide__ = True
    before = case.latest(case.partitions())
    finished = [each for each in before if case.source.finished(each)]
    _at_the_end(case, finished, before)
    hint = case.source.hint()
    if advance is not None:
        advance()
    partitions = case.partitions()
    if partitions[: len(before)] != list(before):
        so = "keep the ones there are in their order"
        rule = SourceRule.NEW_PARTITIONS
        raise broken(rule, list(before), partitions, so)
    after = case.latest(partitions)
    require_not_before(case, before, case.source, "later")
    for partition in finished:
        if after[partition] != before[partition]:
            raise broken(
                SourceRule.FINISHED_FOR_EVER,
                f"{before[partition]!r} in partition {partition!r} for ever",
                after[partition],
                "say finished() only when nothing will ever be added",
            )
    _above_the_hint(case, hint, before, after)


def _at_the_end(
    case: SourceUnderCheck, finished: Sequence[Partition], latest: Mapping[Partition, Offset]
) -> None:
    __tracebackhide__ = True
    end = case.source.end()
    for partition in finished:
        if end[partition] != latest[partition]:
            raise broken(
                SourceRule.FINISHED,
                f"latest() at end(), {end[partition]!r}, in partition {partition!r}",
                latest[partition],
                "say finished() only once latest() has reached the end",
            )


def require_not_before(
    case: SourceUnderCheck, known: Mapping[Partition, Offset], source: Source, when: str
) -> None:
    """That latest is not before what was known, as far as that can be told of offsets."""
    __tracebackhide__ = True
    latest = source.latest()
    for partition, end in known.items():
        if partition not in latest or _is_before(case, source, partition, latest[partition], end):
            raise broken(
                SourceRule.NOT_BACK,
                f"{end!r} or behind it in partition {partition!r}",
                f"{latest.get(partition)!r}, {when}",
                "count on from what memory() says; records that were there stay there",
            )


def _is_before(
    case: SourceUnderCheck, source: Source, partition: Partition, found: Offset, end: Offset
) -> bool:
    if type(found) is int and type(end) is int:
        return found < end
    if found in (end, None):
        return False
    first, _ = case.ranges[partition]
    reached = source.limit(partition, first, found, case.rows)
    held = case.read(partition, first, reached, source)
    return len(held) < len(case.content[partition])


def _above_the_hint(
    case: SourceUnderCheck,
    hint: Any,
    before: Mapping[Partition, Offset],
    after: Mapping[Partition, Offset],
) -> None:
    __tracebackhide__ = True
    if hint is None or case.event_time is None:
        return
    for partition, start in before.items():
        for row in case.read(partition, start, after[partition]):
            time = row[case.event_time]
            if time is not None and time < hint:
                raise broken(
                    SourceRule.HINTED,
                    f"{case.event_time} of {hint!r} or later",
                    row,
                    "hint at no more than is certain of what will still come",
                )
