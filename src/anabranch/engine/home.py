"""Where the state of one partition of a stage is at home, and who takes its epochs there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import polars as pl

from anabranch.engine.changes import Changes
from anabranch.kernels.lane_task import LaneTask, Node
from anabranch.kernels.resident import CanReside, Resident, Residing, UnfitError
from anabranch.kernels.results import EpochInput, EpochOutput, TaskError
from anabranch.state.slices import Owners


class Home(Protocol):
    """The state of one partition of a stage; one call at a time."""

    def take(self, given: EpochInput) -> EpochOutput | TaskError:
        """What becomes of the partition's next epoch.

        With an error of the user's program the state is what it was before the epoch.
        """

    def changed(self) -> Mapping[str, pl.DataFrame]:
        """By operator all that changed since this was last asked, or the state restored.

        It is one delta: those of the epochs in between, one behind the other. Nothing for an
        operator that has taken no epoch since.
        """

    def whole(self, slices: frozenset[int] | None = None) -> Mapping[str, pl.DataFrame]:
        """By operator all of the state, or of some slices, as one delta.

        `changed` goes on as if not asked.
        """

    def restore(self, deltas: Mapping[str, Iterable[pl.DataFrame]]) -> None:
        """Have the state that epochs with these deltas make, in order; without any, the first."""


class LocalHome:
    """A home in this process, for operators that let go of the interpreter's lock.

    The first state is that before all epochs. Operators that can be resident are, until one of
    them meets rows that it cannot hold: then all are as they are elsewhere, from there on.
    """

    def __init__(self, task: LaneTask, owners: Owners) -> None:
        """`owners` are those of the slices of the stages behind, by partition."""
        self._kernels, self._owners = task, owners
        self._residents: dict[str, Resident] = {}
        self._moved: set[str] = set()
        """Those of them that have taken an epoch since they were asked."""
        self._state, self._changes = task.restore({}), Changes()
        self._begin()

    def take(self, given: EpochInput) -> EpochOutput | TaskError:
        """What becomes of the partition's next epoch."""
        before = self._state
        try:
            result = self._task.run([given], before, self._owners)
        except UnfitError:
            self._leave()
            return self.take(given)
        if result.error is not None:
            return result.error
        state, changed = result.state.together(before, result.deltas)
        for name, resident in self._residents.items():
            resident.settle()
            self._moved.add(name)
            del changed[name]
        self._state = state.fold()
        for loop in self._kernels.loops:
            self._changes.forget(loop.work.operator)
        self._changes.add(changed)
        return result.outputs[0]

    def changed(self) -> Mapping[str, pl.DataFrame]:
        """By operator all that changed since this was last asked, or the state restored."""
        moved, self._moved = self._moved, set()
        return {**self._changes.take(), **{name: self._residents[name].changed() for name in moved}}

    def whole(self, slices: frozenset[int] | None = None) -> Mapping[str, pl.DataFrame]:
        """By operator all of the state, or of some slices, as one delta."""
        residents = {name: each.whole(slices) for name, each in self._residents.items()}
        return {**self._state.whole(slices), **residents}

    def restore(self, deltas: Mapping[str, Iterable[pl.DataFrame]]) -> None:
        """Have the state that epochs with these deltas make, in order."""
        self._begin()
        deltas = {name: list(frames) for name, frames in deltas.items()}
        try:
            for name, resident in self._residents.items():
                resident.restore(deltas.get(name, ()))
        except UnfitError:
            self._task, self._residents = self._kernels, {}
        self._state, self._changes = self._task.restore(deltas), Changes()

    def _begin(self) -> None:
        """Have the first state, as much of it resident as can be."""
        self._residents, self._moved = {}, set()
        nodes = tuple(self._residing(node) for node in self._kernels.nodes)
        self._task = replace(self._kernels, nodes=nodes)
        self._state = self._task.restore({})

    def _residing(self, node: Node) -> Node:
        if not isinstance(node.work, CanReside) or (resident := node.work.resident()) is None:
            return node
        name = node.work.operator
        self._residents[name] = resident
        return replace(node, work=Residing(name, node.work.lag, resident))

    def _leave(self) -> None:
        """Go on with states that are values, from where the resident ones are."""
        whole = {name: [each] for name, each in self.whole().items()}
        for name in self._moved:
            self._changes.add({name: self._residents[name].changed()})
        self._task, self._residents, self._moved = self._kernels, {}, set()
        self._state = self._task.restore(whole)
