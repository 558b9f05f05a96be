"""A query that asks for an executor, and lets one go; in a process of its own: it has one Spark.

The arguments are a directory and how executors go: "decommission", or "kill" for at once. Begins with one executor of two that there may be. Says, as a line of
JSON, what happened: how many executors there were when, how wide the query was, where lanes were
when an executor was sent away, and how many jobs failed.
"""

import functools
import json
import sys
import threading
from pathlib import Path

import anabranch as ab
from anabranch.api.starting import start
from anabranch.runtime import elasticity
from anabranch.runtime.assembly import Settings
from anabranch.spark.departures import Departures
from anabranch.spark.executor import SparkExecutor
from anabranch.spark.private import Spark
from anabranch.spark.session import spark_context
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from tests.runtime.programs import PROGRAMS
from tests.spark.test_spine import Growing, check, promptly

MASTER = "local-cluster[2,1,512]"
CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.executor.cores": "1",
}
MOMENT = threading.Event()
ENOUGH = 8000
"""Rows for longer than anybody waits for an executor."""


class Sent:
    """Where lanes were when executors were sent away."""

    def __init__(self):
        self._let_go, self.seen = Spark.let_go, []

    def let_go(self, spark, ids):
        lanes = Departures.of(spark.sc).lanes()
        self.seen.append({"ids": list(ids), "lanes": dict(lanes)})
        return self._let_go(spark, ids)

    def __enter__(self):
        Spark.let_go = functools.partialmethod(_told, self.let_go)
        return self

    def __exit__(self, *_):
        Spark.let_go = self._let_go


def _told(spark, call, ids):
    return call(spark, ids)


def feed(growing, until):
    """Give a query rows for as long as it takes."""
    while not until():
        growing.add(2)
        MOMENT.wait(0.1)


def run(sc, home):
    # Lanes that are never idle, and epochs that are always overdue: the policy wants to be wider.
    elasticity._worked = lambda done: 1.0
    spark, growing = Spark(sc), Growing(home)
    growing._rows = PROGRAMS["fraud"][1](ENOUGH)
    graph = growing.program(home).freeze()
    # All plans are kept: there are as many epochs as it takes.
    settings = Settings(ab.epochs("1 ms", 100), home / "ckpt", slices=16, keep=None)
    executor = SparkExecutor(sc, graph)
    query = start(graph, settings, executor)
    loop = query._loop
    found = {"slots": [executor.slots], "most": executor.most_slots}
    feed(growing, lambda: loop._deployment.lanes == 2 and loop._shape._rescaling is None)
    found["slots"].append(executor.slots)
    found["because"] = loop._shape._elastic.because
    # From here on it is the test that decides.
    loop._shape._elastic.auto = False
    executor.want(1)
    feed(growing, lambda: {spark.executor_ids()} == ids_of(executor))
    growing.add(5)
    promptly(query.process_all_available)
    found["slots"].append(executor.slots)
    promptly(query.stop)
    found["failures"] = sum(each["anabranch"]["failures"] for each in query.recent_progress)
    check(growing.program(home), home)
    history = recover(LocalStore(home / "ckpt")).history
    epochs = [at for each in history for at in range(each.first, each.last + 1)]
    found["in order"] = epochs == list(range(len(epochs)))
    found["widths"] = sorted({each.lanes for each in history if not each.is_opening})
    return found


def ids_of(executor):
    """The executors on which its lanes are."""
    return {where.id for where in executor._inner._lanes.executors().values()}


def main(home, how):
    gracefully = {"spark.decommission.enabled": str(how == "decommission").lower()}
    attached = spark_context(master=MASTER, conf={**CONF, **gracefully})
    with Sent() as sent:
        found = run(attached.sc, home)
    sys.stdout.write(json.dumps({**found, "sent": sent.seen}) + "\n")
    attached.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
