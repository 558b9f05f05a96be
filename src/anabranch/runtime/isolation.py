"""Which record ends every process that works on it: found by trials, of which nothing counts.

A record at which a function raises is an error of that record. One at which the process ends, by a
fault in native code, by memory, or because a job was given up that never ended, takes all others of
its job with it, again and again. So the work is done in parts: which task dies alone, in which
epoch, at how many of its rows. The last row of the smallest number that dies is the one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch.kernels.letters import SPLIT_ROWS
from anabranch.runtime.executor import CycleResult
from anabranch.runtime.payload import HeadDone, HeadItem, LaneItem, LaneJob, StageJob

Trial: TypeAlias = Callable[[list[HeadItem], dict[int, LaneJob]], CycleResult | None]
"""Runs work for nothing; None: a process died of it."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that ends processes."""

    ticket: int
    split: int
    """The number of its split in the epoch."""
    row: int
    """Its place in the split."""


def poison_in_heads(items: Iterable[HeadItem], trial: Trial) -> Poison | None:
    """The record, if it is in the stateless work of these splits that processes end."""
    for item in items:
        if trial([item], {}) is None:
            return _poison_in_split(item, trial)
    return None


def _poison_in_split(item: HeadItem, trial: Trial) -> Poison | None:
    nothing = trial([replace(item, until=0)], {})
    if nothing is None:
        return None  # it is not a matter of any record: reading alone does it
    (read,) = nothing.heads
    count = least_that_dies(
        read.rows, lambda rows: trial([replace(item, until=rows)], {}) is not None
    )
    return None if count is None else Poison(item.ticket, item.number, count - 1)


def poison_in_lanes(
    jobs: Mapping[int, LaneJob],
    rows: Mapping[int, Iterable[HeadDone]],
    trial: Trial,
) -> Poison | None:
    """The record, if it is in the work of these lanes that processes end.

    `rows` are the splits of an epoch as they were read, by ticket. The jobs are of stages that take
    rows from heads, so a row's place in its epoch is that of a record.
    """
    for lane, job in jobs.items():
        for stage in job.stages:

            def survives(
                items: Sequence[LaneItem], lane: int = lane, stage: StageJob = stage
            ) -> bool:
                asked = LaneJob(lane, (replace(stage, items=tuple(items)),))
                return trial([], {lane: asked}) is not None

            if not survives(stage.items):
                return _poison_in_epochs(stage.items, rows, survives)
    return None


def _poison_in_epochs(
    items: Sequence[LaneItem],
    rows: Mapping[int, Iterable[HeadDone]],
    survives: Callable[[Sequence[LaneItem]], bool],
) -> Poison | None:
    """The record among those of epochs that a lane does not survive."""
    epochs = least_that_dies(len(items), lambda count: survives(items[:count]))
    if epochs is None:
        return None
    *before, dying = items[:epochs]
    places = list(_places(rows[dying.ticket]))

    def survives_rows(count: int) -> bool:
        until = places[count - 1] if count else -1
        return survives([*before, replace(dying, until=until)])

    if not survives_rows(0):
        return None  # no record of this epoch: a watermark does it, or an earlier state
    count = least_that_dies(len(places), survives_rows)
    if count is None:
        return None
    split, row = divmod(places[count - 1], SPLIT_ROWS)
    return Poison(dying.ticket, split, row)


def least_that_dies(most: int, survives: Callable[[int], bool]) -> int | None:
    """The least number from 1 to `most` that does not survive, where 0 does.

    None: all do, so what died before did not die of this.

    >>> least_that_dies(10, lambda count: count < 7), least_that_dies(10, lambda count: True)
    (7, None)
    """
    low, high = 0, most
    if survives(most):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if survives(middle) else (low, middle)
    return high


def _places(splits: Iterable[HeadDone]) -> Iterator[int]:
    """The place of every row of an epoch."""
    for done in splits:
        yield from range(done.number * SPLIT_ROWS, done.number * SPLIT_ROWS + done.rows)
