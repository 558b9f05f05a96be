"""An executor in this process that is as unkind as a cluster can be, and always in the same way.

A seed decides in which order tasks run, which job fails before or behind which of its tasks, which
lane's process dies and loses its state, and which task runs twice. Whatever it does, a query on it
must give what the sequential program gives.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded by the caller: an adversary to repeat
from typing import Any

from anabranch.runtime.aside import AtOnce
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult, JobFailed
from anabranch.runtime.ground import Ground
from anabranch.runtime.locality import Node, Topology
from anabranch.runtime.payload import (
    HeadDone,
    HeadItem,
    LaneDone,
    LaneJob,
    MergeDone,
    MergeItem,
    heads_from_bytes,
    heads_to_bytes,
    lane_from_bytes,
    lane_to_bytes,
    merges_from_bytes,
    merges_to_bytes,
)
from anabranch.runtime.tasks import Worker


@dataclass(frozen=True, slots=True)
class Mischief:
    """How often, of each job or task, something goes wrong."""

    fail: float = 0.0
    """A job fails somewhere among its tasks; what they did stays behind."""
    kill: float = 0.0
    """A lane's process dies between two jobs."""
    repeat: float = 0.0
    """A task runs twice, the first time for nothing."""
    die: float = 0.0
    """A lane's process dies behind its task; what the others did stands."""
    lose: float = 0.0
    """An executor is lost between two jobs, with all its lanes; or one comes."""


KIND = Mischief()
UNKIND = Mischief(fail=0.1, kill=0.1, repeat=0.15)


class Death(BaseException):
    """What a function raises to end the process that runs it, as far as there is one here."""


class InlineExecutor:
    """Runs tasks one after the other; payloads and results travel as they do on Spark."""

    def __init__(
        self,
        seed: int = 0,
        mischief: Mischief = KIND,
        slots: int = 2,
        topology: Topology | None = None,
        executors: int = 1,
    ) -> None:
        """Take a seed: the same one does the same again; a topology says what is on which node.

        Lanes are on so many executors.
        """
        self._topology = topology or Topology()
        self.slots, self.elastic = slots, True
        self._there = [f"e{number}" for number in range(executors)]
        self._came, self._reserved = executors, 0
        self._of: dict[int, str] = {}
        self._random = Random(seed)  # noqa: S311 - not a secret
        self._mischief = mischief
        self._processes: dict[int | None, Worker] = {}
        self._deployment: Deployment | None = None

    @property
    def fewest_slots(self) -> int:
        """As many as there are."""
        return self.slots

    @property
    def most_slots(self) -> int:
        """As many as there are."""
        return self.slots

    def want(self, slots: int) -> bool:
        """There is nobody to ask."""
        del slots
        return False

    def ground(self) -> Ground:
        """Where lanes are now, if there are several places."""
        if len(self._there) == 1 and self._came == 1:
            return Ground()
        lanes = max(self._reserved, 1 if self._deployment is None else self._deployment.lanes)
        kept = {at: name for at, name in self._of.items() if name in self._there and at < lanes}
        for lane in sorted(set(range(lanes)) - set(kept)):
            counts = Counter(kept.values())
            kept[lane] = min(self._there, key=lambda name: (counts[name], name))
        self._of = dict(sorted(kept.items()))
        return Ground(tuple(self._there), dict(self._of))

    def deploy(self, deployment: Deployment, was: Sequence[int] | None = None) -> None:
        """Have processes go on at another width, where it is the same run that does."""
        self._deployment, self._reserved = deployment, 0
        kept = {lane: each for lane, each in self._processes.items() if each.is_of(deployment)}
        self._processes = {lane: each.moved(deployment) for lane, each in kept.items()}
        if was is not None:
            numbers = {old: lane for lane, old in enumerate(was)}
            found = self._processes
            self._processes = {None: found[None]} if None in found else {}
            self._processes |= {numbers[at]: found[at] for at in numbers if at in found}
            self._of = {numbers[at]: self._of[at] for at in numbers if at in self._of}

    def reserve(self, lanes: int) -> bool:
        """There are as many as there are jobs for."""
        self._reserved = lanes
        return True

    def start(self, lanes: Sequence[int]) -> Future[None]:
        """They start with their first task."""
        del lanes
        return AtOnce().submit(lambda: None)

    def warm_up(self) -> None:
        """Nothing has to be started."""

    def close(self) -> None:
        """Forget all processes."""
        self._processes = {}

    def forget(self, before: int) -> None:
        """What was exchanged lies in files, which are not its own."""

    def cancel(self) -> None:
        """Nothing runs while another call can be made."""

    def run(
        self,
        heads: Sequence[Sequence[HeadItem]],
        lanes: Mapping[int, LaneJob],
        merges: Sequence[MergeItem] = (),
    ) -> CycleResult:
        """Run the tasks in some order, with some mischief."""
        self._perhaps_kill()
        self._perhaps_move()
        tasks: list[tuple[int | None, Any]] = [(None, list(items)) for items in heads]
        tasks += [(None, item) for item in merges]
        tasks += list(lanes.items())
        self._random.shuffle(tasks)
        fatal = self._random.randrange(len(tasks) + 1) if self._happens(self._mischief.fail) else -1
        done_heads: list[HeadDone] = []
        done_lanes: dict[int, LaneDone] = {}
        done_merges: list[MergeDone] = []
        for number, (lane, payload) in enumerate(tasks):
            if number == fatal:
                break
            if self._happens(self._mischief.repeat):
                self._run(lane, payload)
            result = self._run(lane, payload)
            if lane is not None:
                done_lanes[lane] = self._lane_done(payload, result)
            elif isinstance(payload, MergeItem):
                done_merges += merges_from_bytes(result)
            else:
                done_heads += heads_from_bytes(result)
        if fatal >= 0:
            message = f"the job failed at task {fatal} of {len(tasks)}, as the seed wanted it"
            raise JobFailed(message)
        return CycleResult(done_heads, done_lanes, done_merges)

    def _run(self, lane: int | None, payload: Any) -> bytes:
        try:
            return self._done(lane, payload)
        except Death as death:
            self._processes.pop(lane, None)
            if lane is not None:
                return b""
            message = "a process died"
            raise JobFailed(message, died=True) from death

    def _lane_done(self, job: LaneJob, result: bytes) -> LaneDone:
        if self._mischief.die and self._happens(self._mischief.die):
            self._processes.pop(job.lane, None)
            result = b""
        return lane_from_bytes(result) if result else LaneDone.gone(job)

    def _done(self, lane: int | None, payload: Any) -> bytes:
        worker = self._process(lane)
        worker.node = self._node(lane, payload)
        travelled = pickle.loads(pickle.dumps(payload))  # noqa: S301 - made one call before
        if lane is not None:
            return lane_to_bytes(worker.lane(travelled))
        if isinstance(travelled, MergeItem):
            return merges_to_bytes(worker.merges([travelled]))
        return heads_to_bytes(worker.heads(travelled))

    def _node(self, lane: int | None, payload: Any) -> Node:
        """Where a task runs: lanes where they are, merges near their rows, splits one by one."""
        if lane is not None:
            return self._topology.of_lane(lane)
        if isinstance(payload, MergeItem):
            return self._topology.near(payload.near)
        return self._topology.of_slot(payload[0].number)

    def _process(self, lane: int | None) -> Worker:
        assert self._deployment is not None
        if lane not in self._processes:
            self._processes[lane] = Worker(self._deployment)
        return self._processes[lane]

    def lose(self, executor: str) -> None:
        """Lose an executor, with all that its lanes had."""
        self._there.remove(executor)
        for lane in [lane for lane, name in self._of.items() if name == executor]:
            self._processes.pop(lane, None)

    def join(self) -> str:
        """Have one more."""
        self._there.append(f"e{self._came}")
        self._came += 1
        return self._there[-1]

    def _perhaps_move(self) -> None:
        if not self._mischief.lose or not self._happens(self._mischief.lose):
            return
        if len(self._there) > 1 and self._happens(0.5):
            self.lose(self._random.choice(self._there))
        else:
            self.join()

    def _perhaps_kill(self) -> None:
        for lane in sorted(key for key in self._processes if key is not None):
            if self._happens(self._mischief.kill):
                del self._processes[lane]

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance
