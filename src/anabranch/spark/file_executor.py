"""A query's cycles on Spark, rows through files of one host: one job a cycle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from anabranch import config
from anabranch.program.graph import Graph
from anabranch.runtime.aside import AtOnce, InThread
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult
from anabranch.runtime.ground import Ground
from anabranch.runtime.payload import (
    HeadItem,
    LaneDone,
    LaneJob,
    MergeItem,
    heads_from_bytes,
    heads_to_bytes,
    lane_from_bytes,
    lane_to_bytes,
    merges_from_bytes,
    merges_to_bytes,
)
from anabranch.runtime.tasks import Worker
from anabranch.spark.labels import label_of
from anabranch.spark.lanes import Lanes, Plans
from anabranch.spark.shipping import shipped


class FileExecutor:
    """Lanes on one SparkContext, for one query, all on the driver's host."""

    def __init__(self, sc: Any, graph: Graph) -> None:
        """Use this context; the graph says whose functions travel by value."""
        self._sc, self._graph = sc, graph
        self._lanes: Lanes | None = None
        self._deployed: Deployment | None = None
        self._beside, self._starting = InThread(), dict[int, Future[None]]()
        """Who starts lanes, and those that are starting."""
        self.elastic = True

    def ground(self) -> Ground:
        """Where lanes are now."""
        assert self._lanes is not None
        return self._lanes.ground()

    def deploy(self, deployment: Deployment, was: Sequence[int] | None = None) -> None:
        """Have the deployment in all workers from the next cycle on, at its width."""
        self._await(list(self._starting))
        if self._lanes is not None and was is not None:
            self._lanes.renumber(was)
        if self._lanes is None:
            self._make(deployment.lanes)
        assert self._lanes is not None
        self._lanes.resize(deployment.lanes)
        if self._deployed is not None:
            self._lanes.withdraw(self._deployed.id)
        self._lanes.deploy(deployment.id, shipped(deployment, self._graph))
        self._deployed = deployment

    def reserve(self, lanes: int) -> bool:
        """Have so many lanes at hand, in the processes that are there and in new ones."""
        assert self._lanes is not None
        self._lanes.resize(max(lanes, self._lanes.count))
        return True

    def start(self, lanes: Sequence[int]) -> Future[None]:
        """Start the processes of lanes that were reserved, beside what runs."""
        assert self._lanes is not None
        if not lanes:
            return AtOnce().submit(lambda: None)
        self._await(
            [each for each in lanes if each in self._starting and self._starting[each].done()]
        )
        new = [lane for lane in lanes if lane not in self._starting]
        started = self._beside.submit(partial(self._lanes.start, new))
        self._starting |= dict.fromkeys(new, started)
        return started  # behind those that were begun before: it is one after the other

    def _await(self, lanes: Iterable[int]) -> None:
        """Wait until these lanes have started; one that has not may still be at it, unseen.

        So a lane has one task at a time: a second one would have a process of its own.
        """
        starting = {lane: self._starting.pop(lane) for lane in lanes if lane in self._starting}
        wait(starting.values())
        failed = [lane for lane, started in starting.items() if started.exception()]
        if failed and self._lanes is not None:
            self._lanes.leave(failed)

    def _make(self, lanes: int) -> None:
        self.close()
        self._lanes = Lanes(self._sc, lanes, lane=run_lane, head=run_heads)

    def warm_up(self) -> None:
        """Start all processes before the first epoch."""
        assert self._lanes is not None
        self._await(list(self._starting))
        self._lanes.warm_up()

    def close(self) -> None:
        """Leave the lanes' processes to whoever comes next on this Spark."""
        self._await(list(self._starting))
        if self._lanes is not None:
            self._lanes.close()
        self._lanes = None

    def forget(self, before: int) -> None:
        """What was exchanged lies in files, which are not its own."""

    def cancel(self) -> None:
        """Give up the job under way."""
        if self._lanes is not None:
            self._lanes.cancel()

    def run(
        self,
        heads: Sequence[Sequence[HeadItem]],
        lanes: Mapping[int, LaneJob],
        merges: Sequence[MergeItem] = (),
    ) -> CycleResult:
        """One Spark job."""
        assert self._lanes is not None
        assert self._deployed is not None
        self._await(lanes)
        number = self._deployed.id
        jobs = {lane: pickle.dumps((number, job)) for lane, job in lanes.items()}
        tasks = [pickle.dumps((number, list(items))) for items in heads]
        tasks += [pickle.dumps((number, item)) for item in merges]
        called = label_of(self._deployed, heads, lanes)
        by_lane, others = self._lanes.run(jobs, tasks, label=called)
        by_head, by_merge = others[: len(heads)], others[len(heads) :]
        return CycleResult(
            [each for data in by_head for each in heads_from_bytes(data)],
            {
                lane: LaneDone.gone(lanes[lane]) if data is None else lane_from_bytes(data)
                for lane, data in by_lane.items()
            },
            [each for data in by_merge for each in merges_from_bytes(data)],
        )


# In a worker

_workers: dict[str, Worker] = {}


def run_heads(plans: Plans, _number: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """A task that any process may do: some splits, or a merge."""
    _prepare()
    for payload in payloads:
        deployment, asked = pickle.loads(payload)  # noqa: S301 - the driver's own
        worker = _worker(plans, deployment)
        if isinstance(asked, MergeItem):
            yield merges_to_bytes(worker.merges([asked]))
        else:
            yield heads_to_bytes(worker.heads(asked))


def run_lane(plans: Plans, _number: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """A lane's task: its epochs in order."""
    _prepare()
    for payload in payloads:
        deployment, job = pickle.loads(payload)  # noqa: S301 - the driver's own
        yield lane_to_bytes(_worker(plans, deployment).lane(job))


def _prepare() -> None:
    """Load what the first epoch would else wait for: it takes a quarter of a second."""
    import pyarrow as pa  # noqa: F401


def _new(plan: Deployment) -> Worker:
    return Worker(plan, aside=InThread, node=config.node())


def _worker(plans: Plans, deployment: str) -> Worker:
    if deployment not in _workers:
        plan: Deployment = plans[deployment]
        before = next((each for each in _workers.values() if each.is_of(plan)), None)
        if before is None:
            for each in _workers.values():
                each.close()
        _workers.clear()  # one query a set of lanes: an older deployment is not coming back
        _workers[deployment] = before.moved(plan) if before else _new(plan)
    return _workers[deployment]
