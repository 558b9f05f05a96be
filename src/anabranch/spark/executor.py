"""A query's cycles on Spark: tasks in lanes and heads, small values to and fro."""

from __future__ import annotations

import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.errors import AnabranchError, RunError
from anabranch.program.functions import Function
from anabranch.program.graph import Graph
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult, JobFailed
from anabranch.runtime.payload import (
    HeadDone,
    HeadItem,
    LaneJob,
    heads_from_bytes,
    heads_to_bytes,
    lane_from_bytes,
    lane_to_bytes,
)
from anabranch.runtime.tasks import Worker
from anabranch.spark.lanes import Lanes, Plans
from anabranch.spark.private import Executor, Spark
from anabranch.spark.private import JobFailed as SparkJobFailed


class SparkExecutor:
    """Lanes on one SparkContext, for one query."""

    def __init__(self, sc: Any, graph: Graph) -> None:
        """Use this context; the graph says whose functions travel by value."""
        executors = Spark(sc).executors()
        require_one_host(sc.getConf().get("spark.driver.host", "localhost"), executors)
        self._sc, self._graph = sc, graph
        self._lanes: Lanes | None = None
        self._deployed: str | None = None
        self.slots: int = sc.defaultParallelism

    def deploy(self, deployment: Deployment) -> None:
        """Have the deployment in all workers from the next cycle on, at its width."""
        if self._lanes is None or self._lanes.count != deployment.lanes:
            self.close()
            self._lanes = Lanes(self._sc, deployment.lanes, lane=run_lane, head=run_heads)
        elif self._deployed is not None:
            self._lanes.withdraw(self._deployed)
        self._lanes.deploy(deployment.id, _shipped(deployment, self._graph))
        self._deployed = deployment.id

    def warm_up(self) -> None:
        """Start all processes before the first epoch."""
        assert self._lanes is not None
        with _telling():
            self._lanes.warm_up()

    def close(self) -> None:
        """Leave the lanes' processes to whoever comes next on this Spark."""
        if self._lanes is not None:
            self._lanes.close()
        self._lanes = None

    def cancel(self) -> None:
        """Give up the job under way."""
        if self._lanes is not None:
            self._lanes.cancel()

    def run(self, heads: Sequence[Sequence[HeadItem]], lanes: Mapping[int, LaneJob]) -> CycleResult:
        """One Spark job."""
        assert self._lanes is not None
        jobs = {lane: pickle.dumps((self._deployed, job)) for lane, job in lanes.items()}
        tasks = [pickle.dumps((self._deployed, list(items))) for items in heads]
        with _telling():
            by_lane, by_head = self._lanes.run(jobs, tasks)
        done: list[HeadDone] = [each for data in by_head for each in heads_from_bytes(data)]
        return CycleResult(done, {lane: lane_from_bytes(data) for lane, data in by_lane.items()})


def require_one_host(driver: str, executors: Sequence[Executor]) -> None:
    """Refuse executors on other hosts: rows go from heads to lanes through files of one host.

    >>> require_one_host("here", [Executor("0", "here"), Executor("1", "localhost")])
    """
    # An executor that has just registered has no address yet.
    here = {driver, "localhost", "127.0.0.1", ""}
    if elsewhere := sorted({each.host for each in executors} - here):
        message = f"Spark's executors are on other hosts: {', '.join(elsewhere)}"
        why = "rows are exchanged through files of one host; between hosts they cannot be yet"
        raise AnabranchError(message, why=why, so="use a master on this host, such as local[*]")


@contextmanager
def _telling() -> Iterator[None]:
    """Tell a job that failed from a Spark that is gone."""
    from py4j.protocol import Py4JError

    try:
        yield
    except SparkJobFailed as failure:
        raise JobFailed(str(failure)) from failure
    except (ConnectionError, EOFError, Py4JError) as error:
        message = "Spark is gone: its JVM ended or does not answer"
        so = "start the query again; with a checkpoint it goes on behind its last commit"
        raise RunError(message, why=f"{type(error).__name__}: {error}", so=so) from error


# In a worker

_workers: dict[str, Worker] = {}


def run_heads(plans: Plans, _number: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """A head task: some splits."""
    _prepare()
    for payload in payloads:
        deployment, items = pickle.loads(payload)  # noqa: S301 - the driver's own
        yield heads_to_bytes(_worker(plans, deployment).heads(items))


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


# Shipping


def _shipped(deployment: Deployment, graph: Graph) -> bytes:
    from pyspark import cloudpickle

    with _by_value(_modules(graph), cloudpickle):
        data: bytes = cloudpickle.dumps(deployment)
    return data


@contextmanager
def _by_value(modules: Sequence[ModuleType], cloudpickle: Any) -> Iterator[None]:
    """Ship the code of these modules itself: workers may not be able to import them."""
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _modules(graph: Graph) -> list[ModuleType]:
    """The modules of users' functions that are not installed packages."""
    calls = [
        found.call
        for op in graph.operators
        for found in (getattr(op, "function", None), getattr(op, "predicate", None))
        if isinstance(found, Function)
    ]
    names = {getattr(call, "__module__", None) or type(call).__module__ for call in calls}
    modules = [sys.modules[name] for name in names if name in sys.modules and name != "__main__"]
    return [module for module in modules if not _is_installed(module)]


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    homes = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    homes.append(Path(__file__).resolve().parents[1])
    return any(Path(file).resolve().is_relative_to(home) for home in homes)
