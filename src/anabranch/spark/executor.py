"""A query's cycles on Spark: tasks in lanes and heads, small values to and fro."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from anabranch import config
from anabranch.errors import AnabranchError, RunError
from anabranch.program.graph import Graph
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult, JobFailed
from anabranch.runtime.ground import Ground
from anabranch.runtime.payload import HeadItem, LaneJob, MergeItem
from anabranch.spark.allocation import Allocation
from anabranch.spark.file_executor import FileExecutor
from anabranch.spark.private import Executor, Spark
from anabranch.spark.private import JobFailed as SparkJobFailed
from anabranch.spark.shuffle_executor import ShuffleExecutor

POOL = "spark.scheduler.pool"
_NOT_OURS = (
    "Spark's dynamic allocation is on: it may end executors that hold a query's state, which then "
    "has to be read again. Set spark.dynamicAllocation.enabled=false and leave minExecutors and "
    "maxExecutors as they are: Anabranch then asks for executors, and lets them go, by itself"
)


class SparkExecutor:
    """Lanes on one SparkContext, for one query; rows go the fastest way that its hosts allow."""

    def __init__(
        self,
        sc: Any,
        graph: Graph,
        exchange: config.Exchange | None = None,
        *,
        pool: str | None = None,
    ) -> None:
        """Use this context; the graph says whose functions travel by value.

        Jobs go to a pool of Spark's fair scheduler, if one is named.
        """
        self._spark, self._pool = Spark(sc), pool
        self._host = sc.getConf().get("spark.driver.host", "localhost")
        self._there = self._spark.executor_ids()
        # Executors that have yet to come, or to say where they are, may be anywhere, unless the
        # master starts them here.
        here, executors = sc.master.startswith("local"), self._spark.executors()
        wanted = exchange or config.exchange()
        way = way_for(wanted, self._host, executors, known=here or _known(executors))
        self._inner = (FileExecutor if way == "files" else ShuffleExecutor)(sc, graph)
        self._watching = way == "files" and not here
        self._allocation = Allocation.of(self._spark)
        if self._spark.allocates:
            warnings.warn(_NOT_OURS, RuntimeWarning, stacklevel=2)
        self.elastic, self._width = self._inner.elastic, 0

    @property
    def slots(self) -> int:
        """How many tasks run at a time, on the executors that there are now."""
        return self._allocation.slots

    @property
    def fewest_slots(self) -> int:
        """How many there have to be."""
        return self._allocation.fewest_slots

    @property
    def most_slots(self) -> int:
        """How many could be had."""
        return self._allocation.most_slots

    def want(self, slots: int) -> bool:
        """Ask the master for executors, or have some go."""
        return self._allocation.want(self, slots)

    def ground(self) -> Ground:
        """Where lanes are now."""
        with telling():
            return self._inner.ground()

    def deploy(self, deployment: Deployment, was: Sequence[int] | None = None) -> None:
        """Have the deployment in all workers from the next cycle on, at its width."""
        with telling():
            if deployment.lanes > self._width:
                self._allocation.need(self, deployment.lanes)
            self._width = deployment.lanes
            self._inner.deploy(deployment, was)

    def reserve(self, lanes: int) -> bool:
        """Have so many lanes, or more, of the deployment."""
        with telling():
            return self._inner.reserve(lanes)

    def start(self, lanes: Sequence[int]) -> Future[None]:
        """Start the processes of lanes that were reserved, beside what runs."""
        with telling():
            return self._inner.start(lanes)

    def warm_up(self) -> None:
        """Start all processes before the first epoch."""
        with telling():
            self._inner.warm_up()

    def close(self) -> None:
        """Leave the lanes' processes to whoever comes next on this Spark."""
        self._inner.close()
        with suppress(Exception):  # Spark may be gone
            self._allocation.forget(self)

    def forget(self, before: int) -> None:
        """Let go of what was exchanged of tickets before this one."""
        self._inner.forget(before)

    def cancel(self) -> None:
        """Give up what is under way."""
        self._inner.cancel()

    def run(
        self,
        heads: Sequence[Sequence[HeadItem]],
        lanes: Mapping[int, LaneJob],
        merges: Sequence[MergeItem] = (),
    ) -> CycleResult:
        """One cycle."""
        with telling():
            if self._watching:
                self._refuse_strangers()
            if self._pool is not None:
                self._spark.set_property(POOL, self._pool)
            done = self._inner.run(heads, lanes, merges)
            self._allocation.let_go()
            return done

    def _refuse_strangers(self) -> None:
        """Executors may come at any time, and from anywhere."""
        there = self._spark.executor_ids()
        if there != self._there:
            way_for("files", self._host, self._spark.executors())
            self._there = there


def way_for(
    wanted: config.Exchange, driver: str, executors: Sequence[Executor], *, known: bool = True
) -> config.Exchange:
    """Which way rows go: through files where all executors are on the driver's host.

    >>> here, there = Executor("0", "localhost"), Executor("1", "there")
    >>> [way_for("auto", "here", each) for each in ([here], [here, there])]
    ['files', 'shuffle']
    """
    strangers = _strangers(driver, executors)
    if wanted == "files" and strangers:
        raise _elsewhere(strangers)
    if wanted != "auto":
        return wanted
    return "shuffle" if strangers or not known else "files"


def _known(executors: Sequence[Executor]) -> bool:
    return bool(executors) and all(each.host for each in executors)


def _strangers(driver: str, executors: Sequence[Executor]) -> list[str]:
    # An executor that has just registered has no address yet.
    here = {driver, "localhost", "127.0.0.1", ""}
    return sorted({each.host for each in executors} - here)


def _elsewhere(strangers: Sequence[str]) -> AnabranchError:
    message = f"Spark has executors on other hosts: {', '.join(strangers)}"
    why = "rows go through files of the driver's host, as was asked for or as fitted at the start"
    return AnabranchError(message, why=why, so="set ANABRANCH_EXCHANGE=shuffle and start again")


@contextmanager
def telling() -> Iterator[None]:
    """Tell a job that failed from a Spark that is gone."""
    from py4j.protocol import Py4JError

    try:
        yield
    except SparkJobFailed as failure:
        raise JobFailed(str(failure), died=failure.died) from failure
    except (ConnectionError, EOFError, Py4JError) as error:
        message = "Spark is gone: its JVM ended or does not answer"
        so = "start the query again; with a checkpoint it goes on behind its last commit"
        raise RunError(message, why=f"{type(error).__name__}: {error}", so=so) from error
