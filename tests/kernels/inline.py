"""A driver of kernels in one process: epochs, splits, lanes, watermarks (M4), and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.kernels.bundle import from_blob, in_order, to_blob, visible
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.letters import Origins, Split
from anabranch.kernels.region import lower_head, lower_lanes
from anabranch.kernels.results import END, EpochInput
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
    rows: list[dict[str, Any]] = field(default_factory=list)
    late: int = 0
    letters: int = 0
    error: Any = None


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
    """The rows of the one sink, in order, and what else the tasks told."""
    return _Run(program, choices).all(log)


class _Run:
    def __init__(self, program: ab.Program, choices: Choices) -> None:
        self.plan = plan_of(program.freeze())
        self.choices = choices
        self.draw = random.Random(choices.seed)
        owners = Owners.spread(slices=choices.slices, lanes=choices.width)
        self.head: HeadTask = lower_head(self.plan).route(owners)
        self.lane: Any = lower_lanes(self.plan)
        self.greatest: dict[Any, Any] = dict.fromkeys(self.plan.read.source.partitions())
        self.watermark: int | None = None
        self.ran = Ran()

    def all(self, log: Sequence[Cut]) -> Ran:
        states = [self.lane.restore({}) for _ in range(self.choices.width)] if self.lane else []
        deltas: list[list[Any]] = [[] for _ in states]
        epochs = []
        for number, cut in enumerate(log):
            before = self.watermark
            parts = self._heads(cut)
            if self.ran.error:
                break
            epochs.append((number, parts, before, self._close(cut)))
        for start in range(0, len(epochs), self.choices.group):
            group = epochs[start : start + self.choices.group]
            if self.lane is None:
                self._direct(group)
            elif not self._lanes(group, states, deltas):
                break
        return self.ran

    def _heads(self, cut: Cut) -> list[tuple[tuple[int, int], dict[int, pl.DataFrame]]]:
        """The parts of every split, with its place: the number of the partition, the first row."""
        source, found = self.plan.read.source, []
        for index, partition in enumerate(source.partitions()):
            start, end = cut.offsets.get(partition, (0, 0))
            while start < end:
                to = min(end, start + self.draw.randint(1, self.choices.split_rows))
                frame = self._frame(partition, start, to)
                result = self.head.run(frame, index, start)
                self.ran.letters += result.letters
                self.ran.error = self.ran.error or result.error
                self._see(partition, result.greatest_time)
                parts = {lane: self._moved(part) for lane, part in result.parts.items()}
                found.append(((index, start), parts))
                start = to
        self.draw.shuffle(found)
        return found

    def _frame(self, partition, start, end) -> pl.DataFrame:
        source = self.plan.read.source
        batches = [
            batch
            for split in source.plan({partition: start}, {partition: end})
            for batch in source.read(split)
        ]
        return pl.concat([pl.DataFrame(batch) for batch in batches])

    def _see(self, partition, time: int | None) -> None:
        if time is not None:
            known = self.greatest[partition]
            self.greatest[partition] = time if known is None else max(known, time)

    def _close(self, cut: Cut) -> int | None:
        read = self.plan.read
        end = read.source.end()
        live = [p for p in end if cut.offsets[p][1] != end[p]]
        if not live:
            self.watermark = END
        elif all(self.greatest[p] is not None for p in live):
            seen = min(self.greatest[p] for p in live) - read.lateness
            self.watermark = seen if self.watermark is None else max(self.watermark, seen)
        return self.watermark

    def _direct(self, group) -> None:
        """Rows that no lane takes are in order within their split."""
        for _, parts, _, _ in group:
            for _, found in sorted(parts, key=itemgetter(0)):
                for rows in found.values():
                    self.ran.rows += visible(rows).rows(named=True)

    def _lanes(self, group, states, deltas) -> bool:
        outputs: list[list[Any]] = [[] for _ in group]
        for lane in range(len(states)):
            inputs = [
                EpochInput(
                    number,
                    [found[lane] for _, found in parts if lane in found],
                    before,
                    after,
                    self._from(number),
                )
                for number, parts, before, after in group
            ]
            if self.choices.restart:
                names = self.lane.operators
                made = {name: [each[name] for each in deltas[lane]] for name in names}
                states[lane] = self.lane.restore(made)
            if self.choices.lose:
                self.lane.run(inputs, states[lane])
            result = self.lane.run(inputs, states[lane])
            if result.error:
                self.ran.error = result.error
                return False
            states[lane] = result.state
            if self.choices.fold:
                states[lane] = result.state.fold()
            deltas[lane] += result.deltas
            for at, output in enumerate(result.outputs):
                assert output.epoch == group[at][0]
                outputs[at].append(self._moved(output.rows))
                self.ran.late += output.late
                self.ran.letters += output.letters
        for frames in outputs:
            self.draw.shuffle(frames)
            self.ran.rows += visible(in_order(frames)).rows(named=True)
        return True

    def _from(self, epoch: int) -> Origins:
        """Offsets are the numbers of rows in their partition here."""
        read = self.plan.read
        splits = [Split(i, 0, str(p), 0) for i, p in enumerate(read.source.partitions())]
        return Origins(epoch, read.name, splits)

    def _moved(self, frame: pl.DataFrame) -> pl.DataFrame:
        return from_blob(to_blob(frame)) if self.choices.blobs else frame
