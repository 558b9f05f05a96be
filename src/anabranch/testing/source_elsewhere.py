"""A source in other processes: copies in tasks, and the next run's."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

from anabranch.connectors.base import Source
from anabranch.ids import Partition
from anabranch.testing.broken import broken, same_json
from anabranch.testing.source_ends import require_not_before, require_still_finished
from anabranch.testing.source_rules import SourceRule
from anabranch.testing.source_under_check import Part, SourceUnderCheck, place

_RESTARTS = 6
"""So many new processes, for each partition."""


def check_copies(case: SourceUnderCheck) -> None:
    """What a task reads, and as one frame."""
    __tracebackhide__ = True
    copy = case.travelled(SourceRule.TRAVELS_LATER)
    for partition, (first, end) in case.ranges.items():
        splits = [
            _travelled_split(each)
            for each in case.source.plan({partition: first}, {partition: end})
        ]
        case.same(
            SourceRule.COPIES,
            case.content[partition],
            [row for split in splits for row in case.records(copy, split)],
            "put into splits, or leave in __getstate__, all that reading needs",
            at=place(partition, first, end),
        )
        for split in splits:
            _frames(case, copy, split, place(partition, first, end))


def _travelled_split(split: Any) -> Any:
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


def _frames(case: SourceUnderCheck, copy: Source, split: Any, at: str) -> None:
    __tracebackhide__ = True
    records = list(case.records(copy, split))
    names = list(case.types)
    rule = SourceRule.FRAMES
    for chosen in (None, names[:1], names[::-1]):
        frame = copy.frame(split, chosen)
        types = case.with_unread(frame)
        wanted = names if chosen is None else chosen
        asked = [*wanted, *(name for name in types if name not in names)]
        if asked != frame.columns:
            so = "select the columns in the order given"
            raise broken(rule, asked, frame.columns, so, at=at)
        if frame.schema != {name: types[name] for name in asked}:
            raise broken(rule, dict(types), dict(frame.schema), "cast them", at=at)
        told = [] if case.source.unread is None else [case.source.unread]
        expected = [{name: row[name] for name in [*told, *wanted]} for row in records]
        case.same(rule, expected, case.rows_of(frame), "or leave frame() to the default", at=at)


def check_restart(case: SourceUnderCheck, fresh: Callable[[], Source]) -> None:
    """A new process that is told the memory gives the same, from wherever it goes on.

    `fresh` makes the source as it is before its first look, each time anew.
    """
    __tracebackhide__ = True
    memory = case.source.memory()
    if not same_json(memory):
        raise broken(
            SourceRule.MEMORY,
            "the same when it comes back from JSON",
            memory,
            "give lists instead of tuples, and texts for the keys of dicts",
        )
    started = recalled(fresh(), memory)
    require_recalled(case, started, "in a new process")
    ends = {partition: end for partition, (_, end) in case.ranges.items()}
    require_not_before(case, ends, started, "in a new process")
    for partition in case.ranges:
        if case.source.finished(partition):
            require_still_finished(started, partition, "in a new process")
        _resumed(case, partition, started)
        _resumed_by_others(case, partition, lambda: recalled(fresh(), memory))


def recalled(source: Source, memory: Any) -> Source:
    """A source that was told a memory, as it comes back from a checkpoint."""
    if memory is not None:
        source.recall(json.loads(json.dumps(memory)))
    return source


def require_recalled(case: SourceUnderCheck, started: Source, when: str) -> None:
    """That all that was there is there."""
    __tracebackhide__ = True
    for partition, (first, end) in case.ranges.items():
        case.same(
            SourceRule.RECALLED,
            case.content[partition],
            case.read(partition, first, end, started),
            "remember what gives offsets their meaning, such as the names of files",
            at=f"{place(partition, first, end)}, {when}",
        )


def _resumed(case: SourceUnderCheck, partition: Partition, started: Source) -> None:
    """From every offset to the next one."""
    __tracebackhide__ = True
    for start, end, expected in case.parts(partition, 1):
        _goes_on(case, started, partition, (start, end, expected))


def _resumed_by_others(
    case: SourceUnderCheck, partition: Partition, fresh: Callable[[], Source]
) -> None:
    """From some offsets to the end, each time by a source that has done nothing before."""
    __tracebackhide__ = True
    _, end = case.ranges[partition]
    parts = case.parts(partition, 1)
    for number in range(1, len(parts), max(1, len(parts) // _RESTARTS)):
        rest = [row for _, _, rows in parts[number:] for row in rows]
        _goes_on(case, fresh(), partition, (parts[number][0], end, rest))


def _goes_on(case: SourceUnderCheck, started: Source, partition: Partition, part: Part) -> None:
    __tracebackhide__ = True
    start, end, expected = part
    # As they come back from a checkpoint.
    at, to = json.loads(json.dumps([start, end]))
    case.same(
        SourceRule.RESUMED,
        expected,
        case.read(partition, at, to, started),
        "give a range by its offsets and memory() alone, whatever was read before it",
        at=f"{place(partition, start, end)}, in a new process",
    )
