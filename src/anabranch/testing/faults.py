"""Where a run can be cut off, and what cuts it off there.

A crash is of the process that drives the query. It is raised from a step of the protocol, before or
after the step is done, and from every later one of the same run: what is dead does nothing more,
though its threads are still unwinding.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from anabranch.errors import ProgramError
from anabranch.runtime.deployment import Deployment, Durability
from anabranch.runtime.executor import CycleResult, Executor
from anabranch.runtime.ground import Ground
from anabranch.runtime.payload import HeadItem, LaneJob, MergeItem
from anabranch.simulate.inline import InlineExecutor, Mischief
from anabranch.state.layout import COMMITS, PLANS, PUBLISHED, Commit, number_of, plan_of
from anabranch.state.store import LocalStore

When: TypeAlias = Literal["before", "after"]
Step: TypeAlias = Literal["plan", "job", "delta", "commit", "publish", "acknowledge"]

STEPS: Mapping[Step, str] = {
    "plan": "what an epoch will read is written down",
    "job": "a cycle's tasks run",
    "delta": "one of these tasks writes what it changed and stages its rows",
    "commit": "the record is written that makes epochs count",
    "publish": "a sink shows an epoch's rows",
    "acknowledge": "it is noted that they are shown",
}
"""The steps of the protocol, in their order."""

_WHENS: tuple[When, ...] = ("before", "after")
_FORM = re.compile(rf"(?:(before|after) )?({'|'.join(STEPS)})(?: (\d+))?")


class Crash(BaseException):
    """The end of a run; nothing may catch it but who set it."""


@dataclass(frozen=True, slots=True)
class FaultPoint:
    """A moment at which a run is cut off: from this epoch on, or from its beginning, the first.

    >>> print(*FaultPoint.of(3), *FaultPoint.of("plan"), *FaultPoint.of("after job 2"), sep="; ")
    before commit 3; before plan; after plan; after job 2
    """

    when: When
    step: Step
    epoch: int | None = None

    @classmethod
    def of(cls, given: object) -> tuple[FaultPoint, ...]:
        """The moments that a user means: an epoch's number, or "before" or "after" a step."""
        if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            return (cls("before", "commit", given),)
        found = _FORM.fullmatch(given) if isinstance(given, str) else None
        if found is None:
            message = f"crash_at: no fault point {given!r}"
            have = ", ".join(f"'before {step}', 'after {step}'" for step in STEPS)
            so = (
                "pass an epoch's number, or one of these, if you like with an epoch: 'after plan 3'"
            )
            raise ProgramError(message, have=have, so=so)
        when, step, epoch = found.groups()
        number = None if epoch is None else int(epoch)
        return tuple(cls(each, step, number) for each in _WHENS if when in (None, each))  # type: ignore[arg-type]

    def __str__(self) -> str:
        """As a user writes it."""
        number = "" if self.epoch is None else f" {self.epoch}"
        return f"{self.when} {self.step}{number}"

    @property
    def place(self) -> tuple[bool, int, int, bool]:
        """Its place among others: those of an epoch in the log's order, then the rest.

        In this order each can still be reached when the ones before it have come.
        """
        step = list(STEPS).index(self.step)
        return (self.epoch is None, self.epoch or 0, step, self.when == "after")

    def is_at(self, when: When, step: str, epochs: Collection[int]) -> bool:
        """Whether this is the moment.

        An epoch may have no such step any more, where it was committed with one before it, or none
        at all, where it has no rows to publish: then it is that of the next one which has.
        """
        if (self.when, self.step) != (when, step):
            return False
        return self.epoch is None or any(epoch >= self.epoch for epoch in epochs)


class Fuse:
    """Cuts one run off at a moment, if it is set to one."""

    def __init__(self, point: FaultPoint | None) -> None:
        """None: the run may go on to its end."""
        self._point = point
        self.blown = False

    @contextmanager
    def around(self, step: Step, epochs: Collection[int]) -> Iterator[None]:
        """A step of these epochs."""
        self._reach("before", step, epochs)
        yield
        self._reach("after", step, epochs)

    def _reach(self, when: When, step: Step, epochs: Collection[int]) -> None:
        here = self._point is not None and self._point.is_at(when, step, epochs)
        if self.blown or here:
            self.blown = True
            raise Crash


@dataclass(slots=True)
class History:
    """What the runs of a checkpoint have made durable so far, as the files say that they wrote."""

    commits: dict[int, range] = field(default_factory=dict)
    """The epochs of each, by its number."""
    acknowledged: int = -1
    """The last epoch whose rows are noted as shown."""

    @property
    def epochs(self) -> int:
        """How many are committed."""
        return max((each.stop for each in self.commits.values()), default=0)

    def shown_by(self, number: int) -> range:
        """The epochs that an acknowledgement is the first to speak of."""
        last = max((each.stop for at, each in self.commits.items() if at <= number), default=0)
        return range(self.acknowledged + 1, last)


class FusedStore(LocalStore):
    """The driver's checkpoint, with a fuse in it."""

    def __init__(self, root: Path, durability: Durability, fuse: Fuse, history: History) -> None:
        """Write the history of what is made here."""
        super().__init__(root, durability)
        self._fuse, self._history = fuse, history

    def create(self, path: str, data: bytes) -> None:
        """Make a file; the plans, commits and acknowledgements of epochs are steps."""
        history, number = self._history, number_of(path)
        if (plan := plan_of(path)) is not None and path.startswith(PLANS):
            with self._fuse.around("plan", (plan[0],)):
                super().create(path, data)
        elif number is not None and path.startswith(COMMITS):
            commit = Commit.from_bytes(path, data)
            epochs = range(commit.first, commit.last + 1)
            with self._if_any("commit", epochs):
                super().create(path, data)
                history.commits[number] = epochs
        elif number is not None and path.startswith(PUBLISHED):
            epochs = history.shown_by(number)
            with self._if_any("acknowledge", epochs):
                super().create(path, data)
                history.acknowledged = max(history.acknowledged, epochs.stop - 1)
        else:
            super().create(path, data)

    @contextmanager
    def _if_any(self, step: Step, epochs: Collection[int]) -> Iterator[None]:
        """A step, if it is of some epochs: each run begins with a commit of none."""
        if not epochs:
            yield
            return
        with self._fuse.around(step, epochs):
            yield


class FusedInline(InlineExecutor):
    """An executor in this process, with a fuse in its tasks."""

    def __init__(self, fuse: Fuse, seed: int, mischief: Mischief, slots: int) -> None:
        """Do the same mischief for the same seed."""
        super().__init__(seed, mischief, slots)
        self._fuse = fuse

    def _run(self, lane: int | None, payload: Any) -> bytes:
        with self._fuse.around("delta", _epochs_of(payload)):
            return super()._run(lane, payload)


class FusedExecutor:
    """Any executor, with a fuse in its jobs."""

    def __init__(self, inner: Executor, fuse: Fuse, *, tasks_too: bool) -> None:
        """With `tasks_too` a task is taken for all of its job: it runs where no fuse is."""
        self._inner, self._fuse, self._tasks_too = inner, fuse, tasks_too
        self._running = threading.Lock()
        self.elastic = inner.elastic

    @property
    def slots(self) -> int:
        """How many tasks run at a time now."""
        return self._inner.slots

    @property
    def fewest_slots(self) -> int:
        """How many are never let go."""
        return self._inner.fewest_slots

    @property
    def most_slots(self) -> int:
        """How many could be had by asking."""
        return self._inner.most_slots

    def want(self, slots: int) -> bool:
        """Ask for so many in all."""
        return self._inner.want(slots)

    def ground(self) -> Ground:
        """As the executor itself."""
        return self._inner.ground()

    def deploy(self, deployment: Deployment, was: Sequence[int] | None = None) -> None:
        """Tell all processes about a query."""
        self._inner.deploy(deployment, was)

    def reserve(self, lanes: int) -> bool:
        """Have so many lanes, or more."""
        return self._inner.reserve(lanes)

    def start(self, lanes: Sequence[int]) -> Future[None]:
        """Start the processes of lanes that were reserved."""
        return self._inner.start(lanes)

    def warm_up(self) -> None:
        """Start the processes."""
        self._inner.warm_up()

    def close(self) -> None:
        """Let go of the processes, when the job under way is over."""
        with self._running:
            self._inner.close()

    def cancel(self) -> None:
        """Give up the job under way."""
        self._inner.cancel()

    def forget(self, before: int) -> None:
        """Let go of what was exchanged."""
        self._inner.forget(before)

    def run(
        self,
        heads: Sequence[Sequence[HeadItem]],
        lanes: Mapping[int, LaneJob],
        merges: Sequence[MergeItem] = (),
    ) -> CycleResult:
        """One cycle."""
        payloads = (*heads, *lanes.values(), *merges)
        epochs = {epoch for each in payloads for epoch in _epochs_of(each)}
        with self._running, self._fuse.around("job", epochs):
            if not self._tasks_too:
                return self._inner.run(heads, lanes, merges)
            with self._fuse.around("delta", epochs):
                return self._inner.run(heads, lanes, merges)


def _epochs_of(payload: Any) -> set[int]:
    """The epochs a task works for: where they have no place in the log yet, their tickets."""
    match payload:
        case LaneJob(stages=stages):
            return {item.epoch for stage in stages for item in stage.items}
        case MergeItem(epoch=epoch):
            return {epoch}
    return {item.ticket for item in payload}
