"""A program's heads and stages as operators of the core, epoch by epoch.

A bundle is an epoch of the log: small, since one is cut as soon as there are rows. Heads read its
splits, any two at once. From there on it carries what it has for each stage and each sink; a stage
takes what is for it, divided by slices among partitions, each with its own state. So any plan is a
chain: stages stand in it in the order of the plan.

Watermarks are known where heads' results are in order again, and nowhere before (M4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import polars as pl

from anabranch.compiler.staged import StagedPlan
from anabranch.connectors.base import Source
from anabranch.engine.core import Work
from anabranch.epoch.protocol import Offer
from anabranch.epoch.watermarks import SourceTime
from anabranch.ids import Marks, Partition
from anabranch.kernels.bundle import in_order, visible
from anabranch.kernels.exits import Exit
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.lane_task import LaneState, LaneTask
from anabranch.kernels.letters import Origins, Split
from anabranch.kernels.region import Link, lower
from anabranch.kernels.results import EpochInput, HeadResult, TaskError
from anabranch.ordering.worklist import Fragment
from anabranch.state.slices import Owners

Parts = Mapping[int, Mapping[int, pl.DataFrame]]
"""Rows by exit and partition, as tasks give them."""


class TaskFailedError(Exception):
    """The user's program failed; the task tells how."""

    def __init__(self, error: TaskError) -> None:
        super().__init__(error.text)
        self.error = error


@dataclass(frozen=True, slots=True)
class Cut:
    """An epoch as it is read: a source, what is taken of it, and the splits that make it up."""

    source: int
    offer: Offer
    splits: tuple[tuple[int, Any], ...]
    """Each with the index of its partition, in order."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One split of a cut, or none of it."""

    cut: Cut
    at: int | None


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch on its way: what it has for stages that are ahead of it, and for sinks."""

    number: int
    marks: Marks
    origins: Origins
    ahead: Mapping[tuple[int, int], Mapping[int, tuple[pl.DataFrame, ...]]]
    """By stage and entry, then by partition."""
    sinks: Mapping[str, tuple[pl.DataFrame, ...]]
    rows: int = 0
    """That were read."""
    late: int = 0
    letters: int = 0

    @property
    def moves(self) -> bool:
        """Whether event time goes on in it."""
        return any(before != after for before, after in self.marks.values())

    def output(self, sink: str) -> pl.DataFrame | None:
        """The rows of a sink, in order, the user's columns alone; None: there are none."""
        frames = self.sinks.get(sink, ())
        return visible(in_order(frames)) if frames else None


@dataclass(frozen=True, slots=True)
class _Ways:
    """Where the exits of one place lead."""

    exits: tuple[Exit, ...]
    to: Mapping[int, tuple[int, int]]
    """The stage and entry behind an exit, if it is none to a sink."""

    @classmethod
    def of(cls, exits: tuple[Exit, ...], links: Iterable[Link]) -> _Ways:
        return cls(exits, {link.exit: (link.to, link.entry) for link in links})

    def out(self, epoch: Epoch, made: Sequence[Parts]) -> Epoch:
        """The epoch with what some tasks gave."""
        ahead, sinks = dict(epoch.ahead), dict(epoch.sinks)
        for number, exit_ in enumerate(self.exits):
            parts = [each[number] for each in made if number in each]
            if exit_.sink is not None:
                found = tuple(frame for part in parts for frame in part.values())
                sinks[exit_.sink] = (*sinks.get(exit_.sink, ()), *found)
            elif parts:
                ahead[self.to[number]] = _by_partition(parts)
        return replace(epoch, ahead=ahead, sinks=sinks)


def _by_partition(
    parts: Iterable[Mapping[int, pl.DataFrame]],
) -> dict[int, tuple[pl.DataFrame, ...]]:
    found: dict[int, list[pl.DataFrame]] = {}
    for part in parts:
        for partition, frame in part.items():
            found.setdefault(partition, []).append(frame)
    return {partition: tuple(frames) for partition, frames in found.items()}


@dataclass
class Heads:
    """Reads splits and does what needs no state; the first operator."""

    inputs: Sequence[tuple[str, Source, HeadTask]]
    """By source: its name, itself, and what is done where it is read."""
    ways: Sequence[_Ways]
    times: dict[str, SourceTime]
    first: int = 0
    """The number of the first epoch."""
    behind: Stage | None = None
    rows: dict[tuple[str, Partition], int] = field(default_factory=dict)
    """How many rows each partition has given before, by source and partition."""
    name: str = "heads"
    partitions: int | None = None

    def operate(self, fragment: Fragment[Reading]) -> tuple[Cut, HeadResult | None]:
        """Read a split."""
        cut, at = fragment.content.cut, fragment.content.at
        if at is None:
            return cut, None
        _, source, task = self.inputs[cut.source]
        partition, split = cut.splits[at]
        # Splits follow one another: their numbers tell the order of rows of one partition.
        result = task.run(source.frame(split, task.columns), partition, at * SPLIT_ROWS)
        if result.error is not None:
            raise TaskFailedError(result.error)
        return cut, result

    def together(
        self, serial: int, made: Mapping[int, tuple[Cut, HeadResult | None]]
    ) -> tuple[Cut, list[HeadResult]]:
        """All that was read of a cut, in the order of its splits."""
        del serial
        results = [made[at][1] for at in sorted(made)]
        return made[0][0], [each for each in results if each is not None]

    def onward(self, serial: int, bundle: tuple[Cut, list[HeadResult]]) -> Mapping[int, Any]:
        """The epoch, with the watermarks that its rows make."""
        cut, results = bundle
        name, source, _ = self.inputs[cut.source]
        names = list(source.partitions())
        splits = [
            Split(partition, at * SPLIT_ROWS, str(names[partition]), first)
            for at, (partition, first) in enumerate(self._firsts(cut, names, results))
        ]
        before = {each: time.watermark for each, time in self.times.items()}
        self.times[name] = self.times[name].after(
            _greatest(cut, names, results),
            idle=cut.offer.idle,
            finished=cut.offer.finished,
            hint=cut.offer.hint,
        )
        marks = {each: (before[each], time.watermark) for each, time in self.times.items()}
        number = self.first + serial
        epoch = Epoch(
            number,
            marks,
            Origins(number, name, tuple(splits)),
            {},
            {},
            rows=sum(each.rows_in for each in results),
            letters=sum(each.letters for each in results),
        )
        made = self.ways[cut.source].out(epoch, [each.parts for each in results])
        return _given(made, self.behind)

    def _firsts(
        self, cut: Cut, names: Sequence[Partition], results: Sequence[HeadResult]
    ) -> Iterator[tuple[int, int]]:
        """Of each split its partition, and the number there of its first row."""
        source = self.inputs[cut.source][0]
        for (partition, _), result in zip(cut.splits, results, strict=True):
            place = (source, names[partition])
            yield partition, self.rows.get(place, 0)
            self.rows[place] = self.rows.get(place, 0) + result.rows_in


SPLIT_ROWS = 1 << 32
"""More rows than a split has."""


@dataclass
class Stage:
    """A stage's operators, in partitions with states of their own."""

    number: int
    task: LaneTask
    ways: _Ways
    owners: Owners
    """Of the slices, by partition: also of those of the stages that it sends rows to."""
    states: list[LaneState]
    behind: Stage | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return f"stage {self.number}"

    @property
    def partitions(self) -> int | None:
        """In how many parts its state is."""
        return len(self.states)

    def given(self, epoch: Epoch, partition: int) -> EpochInput | None:
        """What a partition has to take of an epoch; None: nothing that it would notice."""
        parts = {
            entry: frames[partition]
            for (stage, entry), frames in epoch.ahead.items()
            if stage == self.number and partition in frames
        }
        if not parts and not epoch.moves:
            return None
        return EpochInput(epoch.number, parts, epoch.marks, epoch.origins)

    def operate(self, fragment: Fragment[tuple[Epoch, EpochInput | None]]) -> tuple[Epoch, Any]:
        """Take an epoch in one partition."""
        epoch, given = fragment.content
        if given is None:
            return epoch, None
        before = self.states[fragment.partition]
        result = self.task.run([given], before, self.owners)
        if result.error is not None:
            raise TaskFailedError(result.error)
        state, _ = result.state.together(before, result.deltas)
        self.states[fragment.partition] = state.fold()
        return epoch, result.outputs[0]

    def together(self, serial: int, made: Mapping[int, tuple[Epoch, Any]]) -> Epoch:
        """The epoch with what all partitions made of it."""
        del serial
        (epoch, _), *_ = made.values()
        outputs = [made[at][1] for at in sorted(made) if made[at][1] is not None]
        found = self.ways.out(epoch, [each.parts for each in outputs])
        return replace(
            found,
            late=found.late + sum(each.late for each in outputs),
            letters=found.letters + sum(each.letters for each in outputs),
        )

    def onward(self, serial: int, bundle: Epoch) -> Mapping[int, Any]:
        """The epoch as the next stage takes it."""
        del serial
        return _given(bundle, self.behind)


def _given(epoch: Epoch, stage: Stage | None) -> Mapping[int, Any]:
    """An epoch's fragments for a stage; as it is where there is none."""
    if stage is None:
        return {0: epoch}
    assert stage.partitions is not None
    inputs = ((at, stage.given(epoch, at)) for at in range(stage.partitions))
    found = {at: (epoch, given) for at, given in inputs if given is not None}
    return found or {0: (epoch, None)}


def _greatest(
    cut: Cut, names: Sequence[Partition], results: Sequence[HeadResult]
) -> dict[Partition, int | None]:
    found: dict[Partition, int | None] = {}
    for (partition, _), result in zip(cut.splits, results, strict=True):
        name = names[partition]
        seen = [each for each in (found.get(name), result.greatest_time) if each is not None]
        found[name] = max(seen, default=None)
    return found


def works_of(plan: StagedPlan, *, partitions: int, slices: int) -> list[Work]:
    """The operators of a program, each stage that is divided in so many partitions."""
    lowered, graph = lower(plan), plan.graph
    owners = Owners.spread(slices=slices, lanes=partitions)
    stages = [
        Stage(
            number,
            task,
            _Ways.of(task.exits, (link for link in lowered.links if link.stage == number)),
            owners,
            [task.restore({}) for _ in range(partitions if stage.key is not None else 1)],
        )
        for number, (stage, task) in enumerate(zip(plan.stages, lowered.stages, strict=True))
    ]
    for before, stage in pairwise(stages):
        before.behind = stage
    ways = [
        _Ways.of(head.exits, (link for link in lowered.links if link.head == number))
        for number, head in enumerate(lowered.heads)
    ]
    times = {
        read.name: SourceTime(tuple(read.source.partitions()), read.lateness)
        for read in graph.sources
    }
    inputs = [
        (read.name, read.source, head.route(owners))
        for read, head in zip(graph.sources, lowered.heads, strict=True)
    ]
    return [Heads(inputs, ways, times, behind=stages[0] if stages else None), *stages]


def fragments_of(cut: Cut) -> dict[int, Reading]:
    """A cut as the heads take it."""
    return {at: Reading(cut, at) for at in range(len(cut.splits))} or {0: Reading(cut, None)}
