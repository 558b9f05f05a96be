"""An executor in this process that is as unkind as a cluster can be, and always in the same way.

A seed decides in which order tasks run, which job fails before or behind which of its tasks, which
lane's process dies and loses its state, and which task runs twice. Whatever it does, a query on it
must give what the sequential program gives.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded by the caller: an adversary to repeat
from typing import Any

from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult, JobFailed
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


KIND = Mischief()
UNKIND = Mischief(fail=0.1, kill=0.1, repeat=0.15)


class Death(BaseException):
    """What a function raises to end the process that runs it, as far as there is one here."""


class InlineExecutor:
    """Runs tasks one after the other; payloads and results travel as they do on Spark."""

    def __init__(self, seed: int = 0, mischief: Mischief = KIND, slots: int = 2) -> None:
        """Take a seed: the same one does the same again."""
        self.slots = slots
        self._random = Random(seed)  # noqa: S311 - not a secret
        self._mischief = mischief
        self._processes: dict[int | None, Worker] = {}
        self._deployment: Deployment | None = None

    def deploy(self, deployment: Deployment) -> None:
        """Forget all processes: a new width is a new set of them."""
        self._deployment = deployment
        self._processes = {}

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
                done_lanes[lane] = lane_from_bytes(result)
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
            message = "a process died"
            raise JobFailed(message, died=True) from death

    def _done(self, lane: int | None, payload: Any) -> bytes:
        worker = self._process(lane)
        travelled = pickle.loads(pickle.dumps(payload))  # noqa: S301 - made one call before
        if lane is not None:
            return lane_to_bytes(worker.lane(travelled))
        if isinstance(travelled, MergeItem):
            return merges_to_bytes(worker.merges([travelled]))
        return heads_to_bytes(worker.heads(travelled))

    def _process(self, lane: int | None) -> Worker:
        assert self._deployment is not None
        if lane not in self._processes:
            self._processes[lane] = Worker(self._deployment)
        return self._processes[lane]

    def _perhaps_kill(self) -> None:
        for lane in sorted(key for key in self._processes if key is not None):
            if self._happens(self._mischief.kill):
                del self._processes[lane]

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance
