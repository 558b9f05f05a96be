"""A program's tasks as a worker calls them: one lane, and the state folded behind every epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.epoch.watermarks import SourceTime
from anabranch.kernels.bundle import visible
from anabranch.kernels.exits import Exit
from anabranch.kernels.lane_task import LaneState
from anabranch.kernels.region import lower
from anabranch.kernels.results import EpochInput, TaskError
from anabranch.state.slices import Owners

SLICES = 128


Parts = Mapping[int, Mapping[int, pl.DataFrame]]
"""What a task gave, by exit and by lane."""


class Tasks:
    """Takes a program's epochs one after the other; no executor, no exchange, no files."""

    def __init__(self, program: ab.Program, slices: int = SLICES) -> None:
        """Compile and lower the program; its one source has one partition."""
        plan = plan_of(program.freeze())
        (read,) = plan.graph.sources
        lowered = lower(plan)
        self._owners, self._name = Owners.spread(slices=slices, lanes=1), read.name
        self._head = lowered.heads[0].route(self._owners)
        self._stages, self._links = lowered.stages, lowered.links
        self._time = SourceTime((0,), read.lateness)
        self._epochs = self._rows = 0
        self._states = [stage.restore({}) for stage in self._stages]

    @property
    def state(self) -> LaneState:
        """What is kept behind the last epoch, of all stages."""
        return LaneState({name: v for state in self._states for name, v in state.views.items()})

    def restore(self) -> None:
        """Go on with a state that was read from its deltas."""
        self._states = [
            stage.restore({name: [frame] for name, frame in state.whole().items()})
            for stage, state in zip(self._stages, self._states, strict=True)
        ]

    def epoch(self, bundles: Sequence[pl.DataFrame], *, last: bool = False) -> list[pl.DataFrame]:
        """What comes out for one epoch of these bundles, as frames that follow one another."""
        results = []
        for bundle in bundles:
            result = self._head.run(bundle, 0, self._rows)
            _require(result.error)
            self._rows += bundle.height
            results.append(result)
        before = self._time.watermark
        times = [r.greatest_time for r in results if r.greatest_time is not None]
        done = frozenset({0}) if last else frozenset[int]()
        self._time = self._time.after({0: max(times, default=None)}, finished=done)
        number, self._epochs = self._epochs, self._epochs + 1
        marks = {self._name: (before, self._time.watermark)}
        heads = [result.parts for result in results]
        found, made = _written(self._head.exits, heads), dict[int, Parts]()
        for at, stage in enumerate(self._stages):
            given = EpochInput(number, self._given(at, heads, made), marks)
            ran = stage.run([given], self._states[at], self._owners)
            _require(ran.error)
            self._states[at] = ran.state.fold()
            made[at] = ran.outputs[0].parts
            found += _written(stage.exits, [made[at]])
        return found

    def _given(
        self, stage: int, heads: Sequence[Parts], made: Mapping[int, Parts]
    ) -> dict[int, list[pl.DataFrame]]:
        """What there is for each entry of a stage."""
        found: dict[int, list[pl.DataFrame]] = {}
        for link in self._links:
            if link.to == stage:
                before = heads if link.stage is None else [made[link.stage]]
                parts = [each[link.exit][0] for each in before if link.exit in each]
                found.setdefault(link.entry, []).extend(parts)
        return found


def _written(exits: Sequence[Exit], given: Sequence[Parts]) -> list[pl.DataFrame]:
    """The rows for sinks."""
    return [
        visible(parts[number][0])
        for parts in given
        for number, each in enumerate(exits)
        if each.sink is not None and number in parts
    ]


def _require(error: TaskError | None) -> None:
    if error is not None:
        message = f"{error.operator}: {error.text}"
        raise RuntimeError(message)
