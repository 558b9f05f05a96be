"""Who runs a cycle's tasks: Spark, this process, or a clock that is only imagined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.runtime.deployment import Deployment
from anabranch.runtime.payload import HeadDone, HeadItem, LaneDone, LaneJob, MergeDone, MergeItem


class JobFailed(Exception):
    """A cycle's job failed as a whole; nothing it did counts.

    `died` says that a process ended while it was at it, and not by an error of Python's.
    """

    def __init__(self, text: str, *, died: bool = False) -> None:
        """Say why."""
        super().__init__(text)
        self.died = died


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What came back: every split of every epoch, every lane, every merge."""

    heads: Sequence[HeadDone]
    lanes: Mapping[int, LaneDone]
    merges: Sequence[MergeDone] = ()


class Executor(Protocol):
    """Runs the tasks of a cycle and waits for them."""

    slots: int
    """How many tasks run at a time."""

    def deploy(self, deployment: Deployment) -> None:
        """Tell all processes about a query; later runs are of this deployment."""
        ...

    def warm_up(self) -> None:
        """Start the processes, so that the first epoch need not wait for them."""
        ...

    def close(self) -> None:
        """Let go of the processes; nothing is run any more."""
        ...

    def cancel(self) -> None:
        """Give up the job under way, if there is one: it fails. Safe from any thread."""
        ...

    def forget(self, before: int) -> None:
        """Let go of what was exchanged of tickets before this one; it is asked for no more."""
        ...

    def run(
        self,
        heads: Sequence[Sequence[HeadItem]],
        lanes: Mapping[int, LaneJob],
        merges: Sequence[MergeItem] = (),
    ) -> CycleResult:
        """Run a task for each list of splits, each lane and each merge; raises `JobFailed`."""
        ...
