"""Where a source ends: never before where it was, and for good once it says so."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.connectors.base import Source
from anabranch.ids import Offset, Partition
from anabranch.testing.broken import broken
from anabranch.testing.source_rules import SourceRule
from anabranch.testing.source_under_check import SourceUnderCheck


def check_ends(case: SourceUnderCheck, latest: Mapping[Partition, Offset]) -> list[Partition]:
    """What `end` and `finished` say while the source is at `latest`; who is finished."""
    __tracebackhide__ = True
    end = case.source.end()
    if {*end} != {*latest}:
        so = "give each partition's, None for one that never ends; or leave it to the default"
        raise broken(SourceRule.END, list(latest), list(end), so)
    for partition, at in latest.items():
        case.offset(end[partition], "end", partition)
        if end[partition] is not None and is_before(
            case, case.source, partition, end[partition], at
        ):
            raise broken(
                SourceRule.END,
                f"{at!r} or behind it, or None",
                end[partition],
                "say where it will end once all that it will ever hold is there",
                at=f"partition {partition!r}",
            )
    finished = [each for each in latest if case.source.finished(each)]
    for partition in finished:
        if end[partition] != latest[partition]:
            raise broken(
                SourceRule.FINISHED,
                f"latest() at end(), {end[partition]!r}",
                latest[partition],
                "say finished() only once latest() has reached the end",
                at=f"partition {partition!r}",
            )
    return finished


def require_still_finished(source: Source, partition: Partition, when: str) -> None:
    """That a partition which was finished is."""
    __tracebackhide__ = True
    if not source.finished(partition):
        raise broken(
            SourceRule.FINISHED_FOR_EVER,
            "finished, as it was",
            "not finished",
            "say finished() as long as nothing will ever be added, in a new process too",
            at=f"partition {partition!r}, {when}",
        )


def require_not_before(
    case: SourceUnderCheck, known: Mapping[Partition, Offset], source: Source, when: str
) -> None:
    """That latest is not before what was known, as far as that can be told of offsets."""
    __tracebackhide__ = True
    latest = source.latest()
    for partition, end in known.items():
        if partition not in latest or is_before(case, source, partition, latest[partition], end):
            raise broken(
                SourceRule.NOT_BACK,
                f"{end!r} or behind it",
                latest.get(partition),
                "count on from what memory() says; records that were there stay there",
                at=f"partition {partition!r}, {when}",
            )


def is_before(
    case: SourceUnderCheck, source: Source, partition: Partition, found: Offset, end: Offset
) -> bool:
    """Whether an offset is before another, as far as that can be told."""
    if type(found) is int and type(end) is int:
        return found < end
    if found in (end, None):
        return False
    first, _ = case.ranges[partition]
    reached = source.limit(partition, first, found, case.rows)
    held = case.read(partition, first, reached, source)
    return len(held) < len(case.content[partition])
