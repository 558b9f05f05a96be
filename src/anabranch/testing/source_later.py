"""A source as time goes on: more comes, and what was there stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.connectors.base import Source
from anabranch.ids import Offset, Partition
from anabranch.testing.broken import broken
from anabranch.testing.source_elsewhere import recalled, require_recalled
from anabranch.testing.source_ends import check_ends, require_not_before, require_still_finished
from anabranch.testing.source_rules import SourceRule
from anabranch.testing.source_under_check import SourceUnderCheck, place


def check_later(
    case: SourceUnderCheck, advance: Callable[[], object] | None, fresh: Callable[[], Source]
) -> None:
    """What was there stays, and what is finished gets nothing more."""
    __tracebackhide__ = True
    before = case.latest(case.partitions())
    finished = check_ends(case, before)
    hint, memory = case.source.hint(), case.source.memory()
    if advance is not None:
        advance()
    partitions = case.partitions()
    if partitions[: len(before)] != list(before):
        so = "keep the ones there are in their order"
        raise broken(SourceRule.NEW_PARTITIONS, list(before), partitions, so)
    after = case.latest(partitions)
    require_not_before(case, before, case.source, "later")
    for partition in finished:
        _nothing_more(partition, before[partition], after[partition])
        require_still_finished(case.source, partition, "later")
    _above_the_hint(case, hint, before, after)
    if advance is not None:
        # What a run remembers is as old as its last commit.
        require_recalled(case, recalled(fresh(), memory), "in a new process, when more had come")


def _nothing_more(partition: Partition, before: Offset, after: Offset) -> None:
    __tracebackhide__ = True
    if after != before:
        raise broken(
            SourceRule.FINISHED_FOR_EVER,
            f"{before!r} for ever",
            after,
            "say finished() only when nothing will ever be added",
            at=f"partition {partition!r}",
        )


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
                    at=place(partition, start, after[partition]),
                )
