"""A program's heads and stages as operators of the core, epoch by epoch.

A bundle is an epoch of the log: small, since one is cut as soon as there are rows. Heads read its
splits, any two at once. From there on it carries what it has for each stage and each sink; a stage
takes what is for it, divided by slices among partitions, each with its own state. So any plan is a
chain: stages stand in it in the order of the plan.

Watermarks are known where heads' results are in order again, and nowhere before (M4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import polars as pl

from anabranch.compiler.staged import StagedPlan
from anabranch.connectors.base import Source
from anabranch.engine.core import Work
from anabranch.engine.home import Home, LocalHome
from anabranch.epoch.protocol import Offer
from anabranch.epoch.watermarks import SourceTime
from anabranch.ids import Marks, Partition
from anabranch.kernels.bundle import in_order, visible
from anabranch.kernels.exits import Exit
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.lane_task import LaneTask
from anabranch.kernels.letters import SPLIT_ROWS, Origins, Split
from anabranch.kernels.region import Link, lower
from anabranch.kernels.results import EpochInput, EpochOutput, HeadResult, TaskError
from anabranch.ordering.worklist import Fragment
from anabranch.program.graph import Graph
from anabranch.state.slices import Owners

Parts = Mapping[int, Mapping[int, pl.DataFrame]]
"""Rows by exit and partition, as tasks give them."""


class TaskFailedError(Exception):
    """The user's program failed; the task tells how."""

    def __init__(self, error: TaskError) -> None:
        super().__init__(error.text)
        self.error = error


Barrier: TypeAlias = Mapping[tuple[int, int], frozenset[int] | None]
"""What partitions of stages give beside what has changed: all of some slices, or of their state."""

Head: TypeAlias = Callable[[pl.DataFrame, int, int], HeadResult]
"""What is done to rows of a source's partition, the first of which has this place."""


@dataclass(frozen=True, slots=True)
class EpochToRead:
    """An epoch before it is read: a source, what is taken of it, the splits that make it up."""

    source: int
    offer: Offer
    splits: tuple[tuple[int, Any], ...]
    """Each with the index of its partition, in order."""
    barrier: Barrier | None = None
    """What is to be had behind it; None: nothing, it is an epoch as any other."""
    at: float = 0.0
    """When it was cut, in seconds of the clock."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One split of an epoch, or none of it."""

    epoch: EpochToRead
    at: int | None


@dataclass(frozen=True, slots=True)
class Reached:
    """How far sources are behind a barrier."""

    times: Mapping[str, SourceTime]
    rows: Mapping[str, Mapping[Partition, int]]
    """How many each partition has given."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a partition of a stage says at a barrier."""

    deltas: Mapping[str, pl.DataFrame]
    """By operator, what has changed since the barrier before."""
    whole: Mapping[str, pl.DataFrame]
    """By operator, all that there is of what was asked for."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch on its way: what it has for stages that are ahead of it, and for sinks."""

    number: int
    marks: Marks
    origins: Origins
    ahead: Mapping[tuple[int, int], Mapping[int, tuple[pl.DataFrame, ...]]]
    """By stage and entry, then by partition."""
    sinks: Mapping[str, tuple[pl.DataFrame, ...]]
    read: EpochToRead
    rows: int = 0
    """That were read."""
    late: int = 0
    letters: int = 0
    reached: Reached | None = None
    """At a barrier."""
    changed: Mapping[tuple[int, int], Changed] = field(default_factory=dict)
    """At a barrier, by stage and partition."""

    @property
    def moves(self) -> bool:
        """Whether event time goes on in it."""
        return any(before != after for before, after in self.marks.values())

    def output(self, sink: str) -> pl.DataFrame | None:
        """The rows of a sink, in order, the user's columns alone; None: there are none."""
        frames = [frame for frame in self.sinks.get(sink, ()) if frame.height]
        # What one partition gave is in order by itself.
        return visible(in_order(frames) if len(frames) > 1 else frames[0]) if frames else None


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
    heads: Sequence[Head]
    """Who does it."""
    ways: Sequence[_Ways]
    times: dict[str, SourceTime]
    first: int = 0
    """The number of the first epoch."""
    behind: StageWork | None = None
    rows: dict[str, dict[Partition, int]] = field(default_factory=dict)
    """How many rows each partition has given before, by source."""
    name: str = "heads"
    partitions: int | None = None

    def operate(self, fragment: Fragment[Reading]) -> tuple[EpochToRead, HeadResult | None]:
        """Read a split."""
        epoch, at = fragment.content.epoch, fragment.content.at
        if at is None:
            return epoch, None
        _, source, task = self.inputs[epoch.source]
        partition, split = epoch.splits[at]
        # Splits follow one another: their numbers tell the order of rows of one partition.
        frame = source.frame(split, task.columns)
        result = self.heads[epoch.source](frame, partition, at * SPLIT_ROWS)
        if result.error is not None:
            raise TaskFailedError(result.error)
        return epoch, result

    def together(
        self, serial: int, made: Mapping[int, tuple[EpochToRead, HeadResult | None]]
    ) -> tuple[EpochToRead, list[HeadResult]]:
        """All that was read of an epoch, in the order of its splits."""
        del serial
        results = [made[at][1] for at in sorted(made)]
        return made[0][0], [each for each in results if each is not None]

    def onward(
        self, serial: int, bundle: tuple[EpochToRead, list[HeadResult]]
    ) -> Mapping[int, Any]:
        """The epoch, with the watermarks that its rows make."""
        read, results = bundle
        name, source, _ = self.inputs[read.source]
        names = list(source.partitions())
        splits = [
            Split(partition, at * SPLIT_ROWS, str(names[partition]), first)
            for at, (partition, first) in enumerate(self._firsts(read, names, results))
        ]
        before = {each: time.watermark for each, time in self.times.items()}
        self.times[name] = self.times[name].after(
            _greatest(read, names, results),
            idle=read.offer.idle,
            finished=read.offer.finished,
            hint=read.offer.hint,
        )
        marks = {each: (before[each], time.watermark) for each, time in self.times.items()}
        number = self.first + serial
        epoch = Epoch(
            number,
            marks,
            Origins(number, name, tuple(splits)),
            {},
            {},
            read,
            rows=sum(each.rows_in for each in results),
            letters=sum(each.letters for each in results),
            reached=None if read.barrier is None else self._reached(),
        )
        made = self.ways[read.source].out(epoch, [each.parts for each in results])
        return _given(made, self.behind)

    def _reached(self) -> Reached:
        return Reached(dict(self.times), {name: dict(rows) for name, rows in self.rows.items()})

    def _firsts(
        self, read: EpochToRead, names: Sequence[Partition], results: Sequence[HeadResult]
    ) -> Iterator[tuple[int, int]]:
        """Of each split its partition, and the number there of its first row."""
        rows = self.rows.setdefault(self.inputs[read.source][0], {})
        for (partition, _), result in zip(read.splits, results, strict=True):
            place = names[partition]
            yield partition, rows.get(place, 0)
            rows[place] = rows.get(place, 0) + result.rows_in


@dataclass
class StageWork:
    """A stage's operators, in partitions with states of their own."""

    number: int
    ways: _Ways
    homes: Sequence[Home]
    """Of each partition."""
    loops: bool = False
    """Whether it has a feedback, whose rows come out in the next epoch, whatever that brings."""
    behind: StageWork | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return f"stage {self.number}"

    @property
    def partitions(self) -> int | None:
        """In how many parts its state is."""
        return len(self.homes)

    def given(self, epoch: Epoch, partition: int) -> EpochInput | None:
        """What a partition has to take of an epoch; None: nothing that it would notice."""
        parts = {
            entry: frames[partition]
            for (stage, entry), frames in epoch.ahead.items()
            if stage == self.number and partition in frames
        }
        still = not parts and not epoch.moves and not self.loops
        if still and epoch.read.barrier is None:
            return None
        return EpochInput(epoch.number, parts, epoch.marks, epoch.origins)

    def operate(
        self, fragment: Fragment[tuple[Epoch, EpochInput | None]]
    ) -> tuple[Epoch, EpochOutput | None, Changed | None]:
        """Take an epoch in one partition."""
        (epoch, given), at = fragment.content, fragment.partition
        if given is None:
            return epoch, None, None
        home, barrier = self.homes[at], epoch.read.barrier
        output = home.take(given)
        if isinstance(output, TaskError):
            raise TaskFailedError(output)
        if barrier is None:
            return epoch, output, None
        place = (self.number, at)
        whole = home.whole(barrier[place]) if place in barrier else {}
        return epoch, output, Changed(home.changed(), whole)

    def together(
        self, serial: int, made: Mapping[int, tuple[Epoch, EpochOutput | None, Changed | None]]
    ) -> Epoch:
        """The epoch with what all partitions made of it."""
        del serial
        (epoch, _, _), *_ = made.values()
        outputs = [output for at in sorted(made) if (output := made[at][1]) is not None]
        changed = {
            (self.number, at): told for at in sorted(made) if (told := made[at][2]) is not None
        }
        found = self.ways.out(epoch, [each.parts for each in outputs])
        return replace(
            found,
            late=found.late + sum(each.late for each in outputs),
            letters=found.letters + sum(each.letters for each in outputs),
            changed={**found.changed, **changed},
        )

    def onward(self, serial: int, bundle: Epoch) -> Mapping[int, Any]:
        """The epoch as the next stage takes it."""
        del serial
        return _given(bundle, self.behind)


def _given(epoch: Epoch, stage: StageWork | None) -> Mapping[int, Any]:
    """An epoch's fragments for a stage; as it is where there is none."""
    if stage is None:
        return {0: epoch}
    assert stage.partitions is not None
    inputs = ((at, stage.given(epoch, at)) for at in range(stage.partitions))
    found = {at: (epoch, given) for at, given in inputs if given is not None}
    return found or {0: (epoch, None)}


def _greatest(
    read: EpochToRead, names: Sequence[Partition], results: Sequence[HeadResult]
) -> dict[Partition, int | None]:
    found: dict[Partition, int | None] = {}
    for (partition, _), result in zip(read.splits, results, strict=True):
        name = names[partition]
        seen = [each for each in (found.get(name), result.greatest_time) if each is not None]
        found[name] = max(seen, default=None)
    return found


@dataclass(frozen=True)
class Program:
    """A program as a pipeline takes it: its sources and stages, and how they hang together."""

    inputs: Sequence[tuple[str, Source, HeadTask]]
    """By source: its name, itself, and what is done where it is read."""
    stages: Sequence[tuple[LaneTask, bool]]
    """Each with whether it is divided by a key."""
    links: Sequence[Link]
    owners: Owners
    """Of slices, by partition."""

    @classmethod
    def of(cls, plan: StagedPlan, *, partitions: int, slices: int) -> Program:
        """One in which each stage that is divided has so many partitions."""
        lowered, owners = lower(plan), Owners.spread(slices=slices, lanes=partitions)
        both = zip(plan.stages, lowered.stages, strict=True)
        reads = zip(plan.graph.sources, lowered.heads, strict=True)
        return cls(
            [(read.name, read.source, head.route(owners)) for read, head in reads],
            [(task, stage.key is not None) for stage, task in both],
            lowered.links,
            owners,
        )

    def partitions_of(self, stage: int) -> int:
        """In how many parts a stage's state is."""
        return self.owners.lanes if self.stages[stage][1] else 1

    def slices_of(self, stage: int, partition: int) -> frozenset[int] | None:
        """The slices of a stage's state that a partition has; None: all."""
        return frozenset(self.owners.slices_of(partition)) if self.stages[stage][1] else None


@dataclass(frozen=True)
class Beginning:
    """Where a pipeline begins."""

    times: Mapping[str, SourceTime]
    """Of each source."""
    first: int = 0
    """The number of the first epoch."""
    rows: Mapping[str, Mapping[Partition, int]] = field(default_factory=dict)
    """How many rows each partition has given before, by source."""

    @classmethod
    def of(cls, graph: Graph) -> Beginning:
        """The very first one."""
        return cls(
            {
                read.name: SourceTime(tuple(read.source.partitions()), read.lateness)
                for read in graph.sources
            }
        )


class Places(Protocol):
    """Where a program's work is done."""

    def head(self, source: int) -> Head:
        """Who does what is done where a source is read."""

    def home(self, stage: int, partition: int) -> Home:
        """Where the state of a stage's partition is."""


@dataclass(frozen=True)
class Here:
    """In this process, all of it."""

    program: Program

    def head(self, source: int) -> Head:
        """Whoever reads."""
        return self.program.inputs[source][2].run

    def home(self, stage: int, partition: int) -> Home:
        """Here, without any state yet."""
        del partition
        return LocalHome(self.program.stages[stage][0], self.program.owners)


def works_of(program: Program, beginning: Beginning, places: Places | None = None) -> list[Work]:
    """The operators of a program, and where they are done; None: here."""
    places = places or Here(program)
    stages = [
        StageWork(
            number,
            _Ways.of(task.exits, (link for link in program.links if link.stage == number)),
            [places.home(number, at) for at in range(program.partitions_of(number))],
            bool(task.loops),
        )
        for number, (task, _) in enumerate(program.stages)
    ]
    for before, stage in pairwise(stages):
        before.behind = stage
    sources = range(len(program.inputs))
    exits = [head.exits for _, _, head in program.inputs]
    heads = Heads(
        program.inputs,
        [places.head(source) for source in sources],
        [
            _Ways.of(exits[source], (link for link in program.links if link.head == source))
            for source in sources
        ],
        dict(beginning.times),
        beginning.first,
        stages[0] if stages else None,
        {name: dict(rows) for name, rows in beginning.rows.items()},
    )
    return [heads, *stages]


def fragments_of(epoch: EpochToRead) -> dict[int, Reading]:
    """An epoch as the heads take it."""
    return {at: Reading(epoch, at) for at in range(len(epoch.splits))} or {0: Reading(epoch, None)}
