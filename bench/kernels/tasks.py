"""A program's tasks as a worker calls them: one lane, and the state folded behind every epoch."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.epoch.watermarks import SourceTime
from anabranch.kernels.bundle import visible
from anabranch.kernels.lane_task import LaneState
from anabranch.kernels.region import lower
from anabranch.kernels.results import EpochInput, HeadResult, TaskError
from anabranch.state.slices import Owners

SLICES = 128


class Tasks:
    """Takes a program's epochs one after the other; no executor, no exchange, no files."""

    def __init__(self, program: ab.Program, slices: int = SLICES) -> None:
        """Compile and lower the program; its one source has one partition."""
        plan = plan_of(program.freeze())
        owners = Owners.spread(slices=slices, lanes=1)
        lowered, (read,) = lower(plan), plan.graph.sources
        self._owners, self._name = owners, read.name
        self._head = lowered.heads[0].route(owners)
        self._lane = lowered.stages[0] if lowered.stages else None
        self._time = SourceTime((0,), read.lateness)
        self._epochs = self._rows = 0
        self._state = LaneState({}) if self._lane is None else self._lane.restore({})

    @property
    def state(self) -> LaneState:
        """What is kept behind the last epoch."""
        return self._state

    def restore(self) -> None:
        """Go on with a state that was read from its deltas."""
        assert self._lane is not None
        self._state = self._lane.restore({n: [f] for n, f in self._state.whole().items()})

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
        parts = [part for result in results for part in result.parts.get(0, {}).values()]
        if self._lane is None:
            return [visible(part) for part in parts]
        marks = {self._name: (before, self._time.watermark)}
        given = EpochInput(number, self._entries(results), marks)
        made = self._lane.run([given], self._state, self._owners)
        _require(made.error)
        self._state = made.state.fold()
        return [visible(part[0]) for part in made.outputs[0].parts.values()]

    def _entries(self, results: Sequence[HeadResult]) -> dict[int, list[pl.DataFrame]]:
        """What the heads gave for each entry of the lane: exits and entries are in one order."""
        found: dict[int, list[pl.DataFrame]] = {}
        for result in results:
            for number, parts in result.parts.items():
                found.setdefault(number, []).extend(parts.values())
        return found


def _require(error: TaskError | None) -> None:
    if error is not None:
        message = f"{error.operator}: {error.text}"
        raise RuntimeError(message)
