"""Queries on two executors, rows through Spark's shuffle; in a process of its own: it has one Spark.

The arguments are a directory and the names of scenarios: "fraud 2", "rescale", "kill noticed" ...
Says of each, as a line of JSON, what went wrong; and of those that kill an executor how many
shipments were made again, how many of their parts were compared with those of the first time, which of
them differed, and which epochs were committed. Of those that change the width, the widths between
which rows were taken, where slices came from, and how many shipments were made again by the plan of
a width before.
"""

import functools
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

import anabranch as ab
from anabranch.spark.session import spark_context
from anabranch.spark.shuffle_executor import ShuffleExecutor, _name
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from tests.runtime.programs import PROGRAMS
from tests.spark.backlog import Backlog, Watching, replicating
from tests.spark.test_spine import check, ended, files, promptly

MASTER = "local-cluster[2,1,1024]"


def program(name, home):
    make, rows, schema = PROGRAMS[name]
    return make(ab.sources.Records(rows(60), schema=schema, partitions=2), files(home))


def run(sc, home, name, lanes, rows=7):
    query = program(name, home).start(
        sc,
        trigger=ab.available_now(rows),
        checkpoint=home / "ckpt",
        parallelism=lanes,
        slices=16,
    )
    assert isinstance(query._loop._executor._inner, ShuffleExecutor)
    ended(query)
    check(program(name, home), home)


def rescale(sc, home, widths, watching):
    """Other widths, one after the other, while there is always something to do."""
    backlog = Backlog(home)
    with watching:
        query = backlog.program(home).start(
            sc, trigger=ab.epochs("1 ms", 5), checkpoint=home / "ckpt", parallelism=1, slices=16
        )
        backlog.follow(query)
        promptly(query.process_all_available)
        for width in widths:
            promptly(query.rescale, width)
        backlog.enough()
        promptly(query.process_all_available)
        plans = len(query._loop._executor._inner._lanes.plans)
        promptly(query.stop)
    check(backlog.program(home), home)
    origins = [each["anabranch"]["slicesFrom"] for each in query.recent_progress]
    return {
        "widths": sorted(set(watching.widths)),
        "replicas": sum(each["replica"] > 0 for each in origins),
        "plans": plans,
        "remade": sum(deployed != plan for deployed, plan in watching.remade),
        "epochs": committed(home),
    }


class KillingAmid(Watching):
    """Kills the executor of the first lane once while the width changes: at a moment of it."""

    def __init__(self, moment):
        super().__init__()
        self._moment = moment

    def start(self, executor, lanes):
        started = super().start(executor, lanes)
        self._reach("start", executor)
        return started

    def run(self, executor, heads, lanes, merges=()):
        if replicating(lanes):
            self._reach("before", executor)
        return super().run(executor, heads, lanes, merges)

    def deploy(self, executor, deployment, was=None):
        super().deploy(executor, deployment, was)
        if executor._shipments:
            self._reach("after", executor)
            self._reach("unnoticed", executor)

    def _reach(self, moment, executor):
        if self._moment == moment:
            self._moment = None
            kill_executor(executor._lanes, noticed=moment != "unnoticed")

    def __exit__(self, *given):
        super().__exit__(*given)
        assert self._moment is None, f"nothing was killed {self._moment}"


class Killing:
    """Kills the executor of a lane when heads are done that lanes have not taken yet.

    That is before the lanes' job, with Spark noticing before it or not; or a moment into it.
    """

    def __init__(self, how):
        self._run, self._replace = ShuffleExecutor.run, ShuffleExecutor._replace
        self._keep = ShuffleExecutor._keep
        self._amid, self._noticed, self._left = how == "amid", how == "noticed", 1
        self.killed = False
        self._digests = {}
        self.found = {"remade": 0, "compared": 0, "differ": []}

    def run(self, executor, heads, lanes, merges=()):
        timer = None
        if self._left and lanes and executor._lanes.pids():
            self._left -= 1
            timer = threading.Timer(0.1 * self._amid, self._kill, [executor._lanes])
            timer.start()
            if not self._amid:
                timer.join()
        try:
            return self._run(executor, heads, lanes, merges)
        finally:
            if timer is not None:
                timer.join()

    def _kill(self, lanes):
        self.killed = True
        kill_executor(lanes, noticed=self._noticed)

    def replace(self, executor, old, dones):
        self.found["remade"] += 1
        self._replace(executor, old, dones)

    def keep(self, executor, *made):
        """A part made again has the lengths and checksums of the first: the same bytes."""
        dones = self._keep(executor, *made)
        for part in (part for done in dones for part in done.parts.values()):
            name = _name(part)
            if name in self._digests:
                self.found["compared"] += 1
                if self._digests[name] != part["places"]:
                    self.found["differ"].append(name)
            self._digests[name] = part["places"]
        return dones

    def __enter__(self):
        ShuffleExecutor.run = functools.partialmethod(_told, self.run)
        ShuffleExecutor._replace = functools.partialmethod(_told, self.replace)
        ShuffleExecutor._keep = functools.partialmethod(_told, self.keep)
        return self

    def __exit__(self, *_):
        ShuffleExecutor.run, ShuffleExecutor._replace = self._run, self._replace
        ShuffleExecutor._keep = self._keep


def _told(executor, call, *given):
    return call(executor, *given)


def kill(sc, home, how):
    with Killing(how) as killing:
        run(sc, home, "fraud", 2, rows=5)
    assert killing.killed, "nothing was killed"
    return {**killing.found, "epochs": committed(home)}


def committed(home):
    history = recover(LocalStore(home / "ckpt")).history
    return [epoch for each in history for epoch in range(each.first, each.last + 1)]


def kill_executor(lanes, *, noticed):
    """Kill the executor of the first lane; `noticed`: and wait until Spark knows."""
    there = lanes._spark.executor_ids
    before, moment = there(), threading.Event()
    os.kill(parent(parent(lanes.pids()[0])), signal.SIGKILL)
    while noticed and there() == before:
        moment.wait(0.01)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def left(sc):
    """The files of shuffles; Spark removes them in its own time."""
    home, moment = Path(sc.getConf().get("spark.local.dir")), threading.Event()
    for _ in range(500):
        found = [file.name for file in home.rglob("shuffle_*") if file.is_file()]
        if not found or moment.wait(0.02):
            break
    return found


def scenario(sc, home, name):
    what, _, how = name.partition(" ")
    if what == "rescale":
        return rescale(sc, home, map(int, how.split()), Watching())
    if what == "amid":
        return rescale(sc, home, (2,), KillingAmid(how))
    if what == "kill":
        return kill(sc, home, how.split()[0])
    if what == "left":
        return left(sc)
    return run(sc, home, what, int(how))


def main(home, names):
    attached = spark_context(master=MASTER)
    for at, name in enumerate(names):
        place = home / str(at)
        place.mkdir()
        told = {"name": name, "wrong": None, "found": None}
        try:
            told["found"] = scenario(attached.sc, place, name)
        except Exception:
            told["wrong"] = traceback.format_exc()
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    attached.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
