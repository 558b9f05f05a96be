"""Other ways to write checkpoints, as workers that differ from ours in nothing else.

`none` writes nothing of its state: what is lost is lost. `synchronous` writes all of a lane's state
inside the lane's task, every so many deltas, as systems do that stop to take a checkpoint.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from anabranch.program.graph import Graph
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.payload import LaneDone, LaneJob, StageJob, lane_to_bytes
from anabranch.runtime.tasks import Worker
from anabranch.runtime.under_way import ROUND
from anabranch.spark.executor import SparkExecutor
from anabranch.spark.file_executor import FileExecutor, run_heads
from anabranch.spark.lanes import Lanes, Plans, Work


class Without(Worker):
    """Writes no state."""

    def lane(self, job: LaneJob) -> LaneDone:
        stages = tuple(replace(stage, compact=()) for stage in job.stages)
        return super().lane(replace(job, stages=stages))

    def _write_deltas(
        self, lane: int, job: StageJob, version: str, changed: Mapping[str, pl.DataFrame]
    ) -> dict[str, tuple[str, int]]:
        del lane, job, version, changed
        return {}


class Synchronous(Worker):
    """Writes deltas, and all of a lane's state at once, while its epoch waits."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment, aside=AtOnce)
        self._written = Counter[int]()

    def lane(self, job: LaneJob) -> LaneDone:
        stages = tuple(self._all_at_once(job.lane, stage) for stage in job.stages)
        return super().lane(replace(job, stages=stages))

    def _all_at_once(self, lane: int, job: StageJob) -> StageJob:
        self._written[job.stage] += 1
        if self._written[job.stage] % ROUND:
            return replace(job, compact=())
        slices = self._deployment.slices_of(self._deployment.stages[job.stage], lane)
        return replace(job, compact=tuple(sorted(slices or ())))


class _Other(FileExecutor):
    """Ours, with other workers in its lanes."""

    def __init__(self, sc: Any, graph: Graph, lane: Work) -> None:
        super().__init__(sc, graph)
        self._lane = lane

    def _make(self, lanes: int) -> None:
        self.close()
        self._lanes = Lanes(self._sc, lanes, lane=self._lane, head=run_heads)


def none(sc: Any, graph: Graph) -> SparkExecutor:
    """An executor whose lanes write nothing."""
    return with_lanes(sc, graph, run_without)


def synchronous(sc: Any, graph: Graph) -> SparkExecutor:
    """An executor whose lanes stop to write."""
    return with_lanes(sc, graph, run_synchronous)


def with_lanes(sc: Any, graph: Graph, lane: Work) -> SparkExecutor:
    """An executor in whose lanes this runs; rows go through files."""
    made = SparkExecutor(sc, graph)
    made._inner = _Other(sc, graph, lane)  # noqa: SLF001 - nobody else needs to
    return made


# In a worker

_workers: dict[str, Worker] = {}


def run_without(plans: Plans, _number: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """A lane's task."""
    yield from _run(Without, plans, payloads)


def run_synchronous(plans: Plans, _number: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """A lane's task."""
    yield from _run(Synchronous, plans, payloads)


def _run(kind: type[Worker], plans: Plans, payloads: Iterator[bytes]) -> Iterator[bytes]:
    for payload in payloads:
        deployment, job = pickle.loads(payload)
        if deployment not in _workers:
            _workers.clear()
            _workers[deployment] = kind(plans[deployment])
        yield lane_to_bytes(_workers[deployment].lane(job))
