"""A source in other processes: copies in tasks, and the next run's."""

from __future__ import annotations

import json
import pickle
from typing import Any

from anabranch.connectors.base import Source
from anabranch.testing.broken import broken, same_json
from anabranch.testing.source_later import require_not_before
from anabranch.testing.source_rules import SourceRule
from anabranch.testing.source_under_check import SourceUnderCheck


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
        )
        for split in splits:
            _frames(case, copy, split)


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


def _frames(case: SourceUnderCheck, copy: Source, split: Any) -> None:
    __tracebackhide__ = True
    records = list(case.records(copy, split))
    names = list(case.types)
    rule = SourceRule.FRAMES
    for chosen in (None, names[:1], names[::-1]):
        frame = copy.frame(split, chosen)
        asked = names if chosen is None else chosen
        if asked != frame.columns:
            raise broken(rule, asked, frame.columns, "select the columns in the order given")
        if frame.schema != {name: case.types[name] for name in asked}:
            raise broken(rule, dict(case.types), dict(frame.schema), "cast them")
        expected = [{name: row[name] for name in asked} for row in records]
        case.same(rule, expected, frame.rows(named=True), "or leave frame() to the default")


def check_restart(case: SourceUnderCheck, pristine: Source) -> None:
    """A new process that is told the memory gives the same."""
    __tracebackhide__ = True
    memory = case.source.memory()
    if not same_json(memory):
        raise broken(
            SourceRule.MEMORY,
            "the same when it comes back from JSON",
            memory,
            "give lists instead of tuples, and texts for the keys of dicts",
        )
    if memory is not None:
        pristine.recall(json.loads(json.dumps(memory)))
    for partition, (first, end) in case.ranges.items():
        case.same(
            SourceRule.RECALLED,
            case.content[partition],
            case.read(partition, first, end, pristine),
            "remember what gives offsets their meaning, such as the names of files",
        )
    ends = {partition: end for partition, (_, end) in case.ranges.items()}
    require_not_before(case, ends, pristine, "in a new process")
