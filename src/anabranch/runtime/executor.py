"""Who runs a cycle's tasks: Spark, this process, or a clock that is only imagined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from anabranch.runtime.deployment import Deployment
from anabranch.runtime.ground import Ground
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

    @property
    def died(self) -> bool:
        """Whether a lane's process ended while it was at its stages: the others' work stands.

        One that had nothing to do but for later is no trouble to anybody now.
        """
        return any(done.died and done.missing for done in self.lanes.values())


class Executor(Protocol):
    """Runs the tasks of a cycle and waits for them."""

    elastic: bool
    """Whether lanes may come and go while those that are there work."""

    @property
    def slots(self) -> int:
        """How many tasks run at a time now; may change from cycle to cycle."""
        ...

    @property
    def fewest_slots(self) -> int:
        """How many are never let go."""
        ...

    @property
    def most_slots(self) -> int:
        """How many could be had by asking; as many as there are, where nobody can be asked."""
        ...

    def want(self, slots: int) -> bool:
        """Ask for so many in all, or let go of what is more; says whether anybody can be asked.

        Does not wait. They come later, or never; none goes where lanes still are.
        """
        ...

    def ground(self) -> Ground:
        """Where lanes are now; whoever runs jobs asks, between two of them."""
        ...

    def deploy(self, deployment: Deployment, was: Sequence[int] | None = None) -> None:
        """Tell all processes about a query; later runs are of this deployment.

        `was` has for each of its lanes which one it was before, where they change numbers.
        """
        ...

    def reserve(self, lanes: int) -> bool:
        """Have so many lanes, or more, of the deployment: beside its own some with replicas.

        Returns whether they can be had, as `elastic` says.
        """
        ...

    def start(self, lanes: Sequence[int]) -> Future[None]:
        """Start the processes of lanes that were reserved, beside what runs."""
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
