"""A query's cycles on Spark: tasks in lanes and heads, small values to and fro."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from anabranch import config
from anabranch.errors import AnabranchError, RunError
from anabranch.program.graph import Graph
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult, JobFailed
from anabranch.runtime.payload import HeadItem, LaneJob, MergeItem
from anabranch.spark.file_executor import FileExecutor
from anabranch.spark.private import Executor, Spark
from anabranch.spark.private import JobFailed as SparkJobFailed
from anabranch.spark.shuffle_executor import ShuffleExecutor


class SparkExecutor:
    """Lanes on one SparkContext, for one query; rows go the fastest way that its hosts allow."""

    def __init__(self, sc: Any, graph: Graph, exchange: config.Exchange | None = None) -> None:
        """Use this context; the graph says whose functions travel by value."""
        self._spark = Spark(sc)
        self._host = sc.getConf().get("spark.driver.host", "localhost")
        self._there = self._spark.executor_ids()
        # Executors that have yet to come, or to say where they are, may be anywhere, unless the
        # master starts them here.
        here, executors = sc.master.startswith("local"), self._spark.executors()
        wanted = exchange or config.exchange()
        way = way_for(wanted, self._host, executors, known=here or _known(executors))
        self._inner = (FileExecutor if way == "files" else ShuffleExecutor)(sc, graph)
        self._watching = way == "files" and not here
        self.slots: int = sc.defaultParallelism

    def deploy(self, deployment: Deployment) -> None:
        """Have the deployment in all workers from the next cycle on, at its width."""
        self._inner.deploy(deployment)

    def warm_up(self) -> None:
        """Start all processes before the first epoch."""
        with _telling():
            self._inner.warm_up()

    def close(self) -> None:
        """Leave the lanes' processes to whoever comes next on this Spark."""
        self._inner.close()

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
        with _telling():
            if self._watching:
                self._refuse_strangers()
            return self._inner.run(heads, lanes, merges)

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
def _telling() -> Iterator[None]:
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
