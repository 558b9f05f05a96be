"""A SparkContext to work with: the user's, the one of this process, or one of our own.

Our own is started for the least time (`jvm.py`, `nursery.py`), bound to loopback, and leaves
nothing behind when this process is gone. `begin` has its processes started while there is something
else to do; `spark_context` waits for them.

A process keeps its JVM until its end, as with PySpark: a second context of ours is made in the same
one.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from anabranch import config
from anabranch.errors import AnabranchError, calling_site
from anabranch.runtime.exchange import OwnedDirectory
from anabranch.spark import private
from anabranch.spark.adoption import NURSERY
from anabranch.spark.allocation import decided_here
from anabranch.spark.jvm import Jvm
from anabranch.spark.known_java import known_java
from anabranch.spark.nursery import Nursery, cores

# A user's conf wins.
BASE: Mapping[str, str] = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        # Whoever opens the pages may read them, and no more. `jvm_environment` binds them to
        # loopback; what they show of settings is without secrets, by Spark's own default.
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A fifth of the start of a context goes into figures that are shown nowhere.
        "spark.metrics.executorMetricsSource.enabled": "false",
        # Attempts are ours: what Spark runs again does nothing but say so. But it has to be run
        # again, or a process that died would take the work of all others in its job with it.
        "spark.task.maxFailures": "4",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.speculation": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        # Our blobs are compressed where it pays and carry their own checksums.
        "spark.shuffle.compress": "false",
        "spark.shuffle.checksum.enabled": "false",
        # Lanes say where they want to be; the shuffle must not say otherwise.
        "spark.shuffle.reduceLocality.enabled": "false",
        # A lane that is moved has to load its state; one whose executor is gone is not waited for.
        "spark.locality.wait.process": "10s",
        "spark.locality.wait.node": "0",
        "spark.locality.wait.rack": "0",
        # Without it the first lanes would all be put on the executor that came first.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # One thread a task: as many tasks run as there are cores.
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        # Thousands of small jobs are run: what is kept of each for a UI adds up.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.cleaner.periodicGC.interval": "5min",
    }
)
DAEMON = "anabranch.spark.daemon"
LOOPBACK = MappingProxyType(
    {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
)

# Spark's limit for the directory of its sockets; the system's limit for their paths is the reason.
LONGEST_SOCKET_DIRECTORY = 61


@dataclass(frozen=True, slots=True)
class Attached:
    """A SparkContext; `owned` if we started it, and so may stop it."""

    sc: Any
    owned: bool

    def stop(self) -> None:
        """Give it back: one of our own ends when the last who uses it has given it back."""
        if self.owned:
            _shared.give_back(self.sc)


def begin(
    given: Any = None,
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    lanes: int | None = None,
    environment: Mapping[str, str] | None = None,
    cache: Path | None = None,
) -> None:
    """Have the processes started that `spark_context` with the same arguments would start.

    Does not wait for them. `lanes` are those of the query that is about to run, as many as tasks
    run at a time if it is None: its workers are made ready too.

    Raises:
        AnabranchError: There is no Java.
    """
    if given is not None:
        return
    with _shared.lock:
        if private.active_context() is None:
            wanted = _Wanted.of(master, conf, environment, cache)
            jvm = _launch(wanted)
            if jvm is not None:
                _shared.nurse(lambda: _nursery(wanted, jvm, lanes))


def spark_context(
    given: Any = None,
    *,
    master: str = "local[*]",
    app_name: str = "anabranch",
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    cache: Path | None = None,
) -> Attached:
    """The SparkContext to work with.

    That is the one of `given` (a SparkSession or a SparkContext); without it the one this process
    has, as in a notebook; else a new one with `master`, `app_name` and `conf`.

    Raises:
        AnabranchError: It is Spark Connect, which has no jobs; or there is no Java; or it does not
            start.
    """
    if given is not None:
        return Attached(context_of(given), owned=False)
    with _shared.lock:
        running = private.active_context()
        if running is not None and _shared.has(running) and not _shared.alive():
            _shared.lose(running)
            running = None
        if running is not None and not _shared.has(running):
            return Attached(context_of(running), owned=False)
        if running is None:
            running = _start(_Wanted.of(master, conf, environment, cache), app_name)
        return _shared.take(running)


def context_of(given: Any) -> Any:
    """The SparkContext of what a user gave.

    Raises:
        AnabranchError: It has none, or a stopped one.
    """
    if type(given).__module__.startswith("pyspark.sql.connect"):
        what = "this is a Spark Connect session"
        raise _unfit(
            what,
            "give a classic session (SparkSession.builder.master(...)), or none to start one",
            "Anabranch runs Spark jobs of its own, and Spark Connect has none",
        )
    context = getattr(given, "sparkContext", given)
    if not hasattr(context, "_jsc"):
        what = f"{type(given).__name__} is no Spark session: {given!r}"
        raise _unfit(what, "give a SparkSession, a SparkContext or nothing")
    if context._jsc is None:
        what = "this Spark session is stopped"
        raise _unfit(what, "give a running one, or none to start one")
    return context


def master_of(master: str) -> str:
    """The master with as many attempts a task as elsewhere: by itself a local one has one.

    >>> [master_of(each) for each in ("local", "local[2]", "local[*,1]", "yarn")]
    ['local[1,4]', 'local[2,4]', 'local[*,4]', 'yarn']
    """
    if master == "local":
        return "local[1,4]"
    threads = re.fullmatch(r"local\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\]", master)
    return f"local[{threads[1]},4]" if threads else master


def settings(master: str, conf: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The configuration of a context of ours; what the user set stands.

    But for dynamic allocation: Spark's would take executors from lanes.

    >>> settings("yarn", {"spark.ui.enabled": "true"}, Path("/tmp/x"))["spark.ui.enabled"]
    'true'
    """
    found = {**BASE, "spark.local.dir": str(directory / "local")}
    sockets = directory / "s"
    if len(str(sockets)) <= LONGEST_SOCKET_DIRECTORY:
        found["spark.python.unix.domain.socket.dir"] = str(sockets)
    else:
        found["spark.python.unix.domain.socket.enabled"] = "false"
    if master.startswith("local"):
        # Workers import what the driver does, from the same places.
        found["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(
            str(Path(each or ".").absolute()) for each in sys.path if each != "__pypackages__"
        )
        found |= LOOPBACK
        found["spark.python.daemon.module"] = DAEMON
    if cluster := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]", master):
        executors, cores, memory = map(int, cluster.groups())
        found["spark.executor.memory"] = f"{memory}m"
        # Without it Spark does not know how many to wait for, and waits for none.
        found["spark.cores.max"] = str(executors * cores)
    return {**found, **decided_here(conf)}


def slots_of(master: str) -> int:
    """How many tasks will run at a time on a local master.

    >>> slots_of("local"), slots_of("local[3]"), slots_of("local[*]") > 0
    (1, 3, True)
    """
    threads = re.fullmatch(r"local\[\s*(\d+|\*)\s*[\],].*", master)
    if threads is None:
        return 1
    return cores() if threads[1] == "*" else int(threads[1])


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a context of ours is made of."""

    master: str
    conf: Mapping[str, str]
    environment: Mapping[str, str]
    cache: Path

    @classmethod
    def of(
        cls,
        master: str,
        conf: Mapping[str, str] | None,
        environment: Mapping[str, str] | None,
        cache: Path | None,
    ) -> _Wanted:
        environment = config.environment() if environment is None else environment
        cache = config.cache_directory(environment) if cache is None else cache
        return cls(master, dict(conf or {}), environment, cache)

    @property
    def python(self) -> str:
        """The Python of workers."""
        return self.environment.get("PYSPARK_PYTHON", sys.executable)


class _Shared:
    """What this process has started: one JVM, at most one context, and who uses it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nursery: Nursery | None = None
        self._jvm: Jvm | None = None
        self._users: dict[int, int] = {}

    def jvm(self, launch: Callable[[], Jvm]) -> Jvm:
        """The one that runs, or else another."""
        if self._jvm is not None and not self.alive():
            self.give_up()
            private.forget_gateway()
        if self._jvm is None:
            self._jvm = launch()
            atexit.register(self._jvm.end)
        return self._jvm

    def nurse(self, start: Callable[[], Nursery | None]) -> None:
        """Have a nursery for the context that is about to be made."""
        if self.nursery is None:
            self.nursery = start()
            if self.nursery is not None:
                atexit.register(self.nursery.end)

    def alive(self) -> bool:
        return self._jvm is not None and self._jvm.alive()

    def has(self, sc: Any) -> bool:
        return id(sc) in self._users

    def lose(self, sc: Any) -> None:
        self._users.pop(id(sc), None)
        self.close_nursery()
        private.forget_gateway()

    def take(self, sc: Any) -> Attached:
        with self.lock:
            self._users[id(sc)] = self._users.get(id(sc), 0) + 1
        return Attached(sc, owned=True)

    def give_back(self, sc: Any) -> None:
        with self.lock:
            left = self._users.get(id(sc), 0) - 1
            if left > 0:
                self._users[id(sc)] = left
            elif self._users.pop(id(sc), None) is not None:
                _stop(sc, alive=self.alive())
                self.close_nursery()

    def give_up(self) -> None:
        """Let go of a JVM that cannot be talked to."""
        self.close_nursery()
        if self._jvm is not None:
            self._jvm.end()
            atexit.unregister(self._jvm.end)
            self._jvm = None

    def close_nursery(self) -> None:
        if self.nursery is not None:
            self.nursery.end()
            atexit.unregister(self.nursery.end)
            self.nursery = None


_shared = _Shared()


def _launch(wanted: _Wanted) -> Jvm | None:
    """A JVM of ours, just started or running; none if somebody else's is here and will do."""
    if private.has_gateway() and _shared._jvm is None:
        return None
    return _shared.jvm(
        lambda: Jvm.launch(
            known_java(wanted.environment, wanted.cache),
            wanted.environment,
            wanted.cache,
            wanted.master,
            wanted.conf,
        )
    )


def _nursery(wanted: _Wanted, jvm: Jvm, lanes: int | None) -> Nursery | None:
    """A nursery for the heads and lanes of one query, if its workers will look for one."""
    directory = jvm.directory.path
    chosen = settings(wanted.master, wanted.conf, directory)
    on_one_host = re.fullmatch(r"local(\[.*\])?", wanted.master)
    ours = chosen.get("spark.python.daemon.module") == DAEMON
    if not on_one_host or not ours:
        return None
    slots = slots_of(wanted.master)
    return Nursery.start(
        directory,
        slots + (lanes if lanes and lanes > 0 else slots),
        wanted.python,
        worker_environment(jvm.environment, chosen),
    )


def worker_environment(of_jvm: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """The environment that Spark gives to workers, as far as it matters to what they load.

    >>> worker_environment({"A": "1"}, {"spark.executorEnv.B": "2", "spark.ui.enabled": "false"})
    {'A': '1', 'PYTHONHASHSEED': '0', 'PYTHONUNBUFFERED': 'YES', 'B': '2', 'PYTHONPATH': ''}
    """
    prefix = "spark.executorEnv."
    given = {
        name.removeprefix(prefix): value
        for name, value in chosen.items()
        if name.startswith(prefix)
    }
    places = (given.get("PYTHONPATH"), of_jvm.get("PYTHONPATH"))
    return {
        **of_jvm,
        # As PySpark has it; the same words then have the same hash in all workers.
        "PYTHONHASHSEED": of_jvm.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
        **given,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
    }


def _start(wanted: _Wanted, app_name: str) -> Any:
    jvm = _launch(wanted)
    # While the JVM gets up.
    from pyspark import SparkConf, SparkContext

    if jvm is None:
        # Somebody's context was here before and is stopped; its JVM stays, and will do.
        owned = OwnedDirectory.create("spark", Path(tempfile.gettempdir()))
        atexit.register(owned.remove)
        directory, gateway = owned.path, None
    else:
        try:
            jvm.connect()
        except BaseException:
            _shared.give_up()
            raise
        directory, gateway = jvm.directory.path, jvm.gateway
    chosen = SparkConf(loadDefaults=False)
    (directory / "s").mkdir(mode=0o700, exist_ok=True)
    if _shared.nursery is not None:
        chosen.set(f"spark.executorEnv.{NURSERY}", str(_shared.nursery.place))
    for name, value in settings(wanted.master, wanted.conf, directory).items():
        chosen.set(name, value)
    with _interrupts_left_alone():
        sc = SparkContext(master_of(wanted.master), app_name, conf=chosen, gateway=gateway)
    sc.pythonExec = wanted.python
    return sc


def _unfit(what: str, so: str, why: str | None = None) -> AnabranchError:
    return AnabranchError(what, site=calling_site(), why=why, so=so)


def _stop(sc: Any, *, alive: bool) -> None:
    if alive:
        private.stop(sc)
    else:
        private.forget_gateway()


@contextmanager
def _interrupts_left_alone() -> Iterator[None]:
    """Keep Ctrl-C ours: PySpark would answer it by calls into the JVM from within any call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
