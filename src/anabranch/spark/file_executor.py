"""A query's cycles on Spark, rows through files of one host: one job a cycle."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.program.graph import Graph
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult
from anabranch.runtime.payload import (
    HeadItem,
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
        self.slots: int = sc.defaultParallelism

    def deploy(self, deployment: Deployment) -> None:
        """Have the deployment in all workers from the next cycle on, at its width."""
        if self._lanes is None or self._lanes.count != deployment.lanes:
            self.close()
            self._lanes = Lanes(self._sc, deployment.lanes, lane=run_lane, head=run_heads)
        elif self._deployed is not None:
            self._lanes.withdraw(self._deployed.id)
        self._lanes.deploy(deployment.id, shipped(deployment, self._graph))
        self._deployed = deployment

    def warm_up(self) -> None:
        """Start all processes before the first epoch."""
        assert self._lanes is not None
        self._lanes.warm_up()

    def close(self) -> None:
        """Leave the lanes' processes to whoever comes next on this Spark."""
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
        number = self._deployed.id
        jobs = {lane: pickle.dumps((number, job)) for lane, job in lanes.items()}
        tasks = [pickle.dumps((number, list(items))) for items in heads]
        tasks += [pickle.dumps((number, item)) for item in merges]
        called = label_of(self._deployed, heads, lanes)
        by_lane, others = self._lanes.run(jobs, tasks, label=called)
        by_head, by_merge = others[: len(heads)], others[len(heads) :]
        return CycleResult(
            [each for data in by_head for each in heads_from_bytes(data)],
            {lane: lane_from_bytes(data) for lane, data in by_lane.items()},
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


def _worker(plans: Plans, deployment: str) -> Worker:
    if deployment not in _workers:
        _workers.clear()  # one query a set of lanes: an older deployment is not coming back
        _workers[deployment] = Worker(plans[deployment])
    return _workers[deployment]
