"""A driver of kernels in one process: epochs, splits, lanes, watermarks (M4), and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.epoch.watermarks import SourceTime
from anabranch.kernels.bundle import from_blob, in_order, to_blob, visible
from anabranch.kernels.letters import Origins, Split
from anabranch.kernels.region import lower
from anabranch.kernels.results import EpochInput
from anabranch.program.log import Cut
from anabranch.state.slices import Owners


@dataclass
class Choices:
    """What no output may show: how work is divided and repeated."""

    width: int = 2
    slices: int = 8
    split_rows: int = 4
    group: int = 2
    seed: int = 0
    blobs: bool = False
    restart: bool = False
    """Rebuild the state from its deltas before every run."""
    fold: bool = False
    lose: bool = False
    """Run everything twice, as if the first attempt were lost."""


@dataclass
class Ran:
    sinks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    late: int = 0
    letters: int = 0
    error: Any = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Those of the only sink."""
        (rows,) = self.sinks.values()
        return rows


def logged(program: ab.Program, epoch_rows: int) -> list[Cut]:
    """The log that `run_sequential(epoch_rows=...)` makes, for a source of Records."""
    (read,) = program.freeze().sources
    source, log = read.source, list[Cut]()
    end, at = source.end(), dict.fromkeys(source.partitions(), 0)
    while at != end or not log:
        to = {p: min(end[p], at[p] + epoch_rows) for p in end}
        log.append(Cut(read.name, {p: (at[p], to[p]) for p in end}))
        at = to
    return log


def run_inline(program: ab.Program, log: Sequence[Cut], choices: Choices) -> Ran:
    """The rows of the sinks, in order, and what else the tasks told."""
    return _Run(program, choices).all(log)


@dataclass
class _Epoch:
    number: int
    source: int
    marks: dict[str, tuple[int | None, int | None]]
    origins: Origins
    heads: list[dict[int, dict[int, pl.DataFrame]]] = field(default_factory=list)
    """What each split gave, by exit and lane."""
    stages: dict[int, list[dict[int, dict[int, pl.DataFrame]]]] = field(default_factory=dict)
    """What each lane of a stage gave, by exit and lane."""


class _Run:
    def __init__(self, program: ab.Program, choices: Choices) -> None:
        self.plan = plan_of(program.freeze())
        self.reads = self.plan.graph.sources
        self.choices = choices
        self.draw = random.Random(choices.seed)
        self.owners = Owners.spread(slices=choices.slices, lanes=choices.width)
        lowered = lower(self.plan)
        self.heads = [head.route(self.owners) for head in lowered.heads]
        self.stages, self.links = lowered.stages, lowered.links
        self.times = {
            read.name: SourceTime(tuple(read.source.partitions()), read.lateness)
            for read in self.reads
        }
        self.ran = Ran({write.name: [] for write in self.plan.graph.sinks})
        self.states = {
            (number, lane): task.restore({})
            for number, task in enumerate(self.stages)
            for lane in range(choices.width)
        }
        self.deltas: dict[tuple[int, int], list[Any]] = {place: [] for place in self.states}

    def all(self, log: Sequence[Cut]) -> Ran:
        epochs = []
        for number, cut in enumerate(log):
            epoch = self._read(number, cut)
            if self.ran.error:
                break
            epochs.append(epoch)
        for start in range(0, len(epochs), self.choices.group):
            group = epochs[start : start + self.choices.group]
            for number in range(len(self.stages)):
                for lane in range(self.choices.width):
                    if not self._lane(number, lane, group):
                        return self.ran
            for epoch in group:
                self._deliver(epoch)
        return self.ran

    def _read(self, number: int, cut: Cut) -> _Epoch:
        (at,) = [at for at, read in enumerate(self.reads) if read.name == cut.source]
        read, found = self.reads[at], []
        greatest: dict[Any, int | None] = {}
        for index, partition in enumerate(read.source.partitions()):
            start, end = cut.offsets.get(partition, (0, 0))
            while start < end:
                to = min(end, start + self.draw.randint(1, self.choices.split_rows))
                frame = self._frame(read, partition, start, to, self.heads[at].columns)
                without = [n - start for p, n in cut.quarantined if p == partition and n >= start]
                without = [row for row in without if row < to - start]
                result = self.heads[at].run(frame, index, start, without)
                self.ran.letters += result.letters
                self.ran.error = self.ran.error or result.error
                seen = [greatest.get(partition), result.greatest_time]
                greatest[partition] = max((s for s in seen if s is not None), default=None)
                found.append({e: self._moved(parts) for e, parts in result.parts.items()})
                start = to
        before = {name: time.watermark for name, time in self.times.items()}
        time, end = self.times[read.name], read.source.end()
        ended = frozenset(p for p in end if p in cut.offsets and cut.offsets[p][1] == end[p])
        done = ended if cut.finished is None else cut.finished
        self.times[read.name] = time.after(greatest, idle=cut.idle, finished=done)
        marks = {name: (before[name], time.watermark) for name, time in self.times.items()}
        # Offsets are the numbers of rows in their partition here.
        splits = [Split(i, 0, str(p), 0) for i, p in enumerate(read.source.partitions())]
        return _Epoch(number, at, marks, Origins(number, read.name, splits), found)

    def _frame(self, read, partition, start, end, columns) -> pl.DataFrame:
        (split,) = read.source.plan({partition: start}, {partition: end})
        frame: pl.DataFrame = read.source.frame(split, columns)
        return frame

    def _given(self, stage: int, lane: int, epoch: _Epoch) -> EpochInput:
        parts: dict[int, list[pl.DataFrame]] = {}
        for link in self.links:
            if link.to == stage:
                made = epoch.heads if link.head == epoch.source else []
                made = made if link.stage is None else epoch.stages[link.stage]
                found = [each.get(link.exit, {}).get(lane) for each in made]
                parts[link.entry] = [part for part in found if part is not None]
                self.draw.shuffle(parts[link.entry])
        return EpochInput(epoch.number, parts, epoch.marks, epoch.origins)

    def _lane(self, number: int, lane: int, group: list[_Epoch]) -> bool:
        task, place = self.stages[number], (number, lane)
        inputs = [self._given(number, lane, epoch) for epoch in group]
        if self.choices.restart:
            names = task.operators
            made = {name: [each[name] for each in self.deltas[place]] for name in names}
            self.states[place] = task.restore(made)
        if self.choices.lose:
            task.run(inputs, self.states[place], self.owners)
        result = task.run(inputs, self.states[place], self.owners)
        if result.error:
            self.ran.error = result.error
            return False
        state, changed = result.state.together(self.states[place], result.deltas)
        self.states[place] = state.fold() if self.choices.fold else state
        self.deltas[place].append(changed)
        for epoch, output in zip(group, result.outputs, strict=True):
            assert output.epoch == epoch.number
            parts = {e: self._moved(found) for e, found in output.parts.items()}
            epoch.stages.setdefault(number, []).append(parts)
            self.ran.late += output.late
            self.ran.letters += output.letters
        return True

    def _deliver(self, epoch: _Epoch) -> None:
        for at, made in [(self.heads[epoch.source], epoch.heads)] + [
            (self.stages[number], found) for number, found in epoch.stages.items()
        ]:
            for number, exit_ in enumerate(at.exits):
                if exit_.sink is not None:
                    frames = [each[number][0] for each in made if number in each]
                    if at is not self.heads[epoch.source]:
                        self.draw.shuffle(frames)
                        frames = [in_order(frames)] if frames else []
                    for frame in frames:
                        self.ran.sinks[exit_.sink] += visible(frame).rows(named=True)

    def _moved(self, parts: dict[int, pl.DataFrame]) -> dict[int, pl.DataFrame]:
        if not self.choices.blobs:
            return parts
        return {lane: from_blob(to_blob(frame)) for lane, frame in parts.items()}
