"""Where the state of one partition of a stage is at home, and who takes its epochs there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import polars as pl

from anabranch.engine.changes import Changes
from anabranch.kernels.lane_task import LaneTask
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

    The first state is that before all epochs.
    """

    def __init__(self, task: LaneTask, owners: Owners) -> None:
        """`owners` are those of the slices of the stages behind, by partition."""
        self._task, self._owners = task, owners
        self._state = task.restore({})
        self._changes = Changes()

    def take(self, given: EpochInput) -> EpochOutput | TaskError:
        """What becomes of the partition's next epoch."""
        before = self._state
        result = self._task.run([given], before, self._owners)
        if result.error is not None:
            return result.error
        state, changed = result.state.together(before, result.deltas)
        self._state = state.fold()
        self._changes.add(changed)
        return result.outputs[0]

    def changed(self) -> Mapping[str, pl.DataFrame]:
        """By operator all that changed since this was last asked, or the state restored."""
        return self._changes.take()

    def whole(self, slices: frozenset[int] | None = None) -> Mapping[str, pl.DataFrame]:
        """By operator all of the state, or of some slices, as one delta."""
        return self._state.whole(slices)

    def restore(self, deltas: Mapping[str, Iterable[pl.DataFrame]]) -> None:
        """Have the state that epochs with these deltas make, in order."""
        self._state, self._changes = self._task.restore(deltas), Changes()
