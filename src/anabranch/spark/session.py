"""A SparkContext to work with: the user's, the one of this process, or one of our own.

Our own is started for the least time and noise: its JVM directly, without the two shell scripts and
the second JVM that `spark-submit` puts before it; with the classes it will load in an archive;
bound to loopback; silent on the terminal, its log in a file;
everything it writes in one private directory, which is gone when this process is.

A process keeps its JVM until its end, as with PySpark: a second context of ours is made in the same
one.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from anabranch import config
from anabranch.errors import AnabranchError
from anabranch.runtime.exchange import OwnedDirectory, sweep
from anabranch.spark import private
from anabranch.spark.java import Java, find_java

# A user's conf wins.
BASE: Mapping[str, str] = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Attempts are ours: a task that Spark runs again would meet state that has moved on.
        "spark.task.maxFailures": "1",
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
LOOPBACK = MappingProxyType(
    {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
)

# What Spark's launcher gives a JVM (4.3, JavaModuleOptions); a test compares it.
JVM_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""

# Spark's limit for the directory of its sockets; the system's limit for their paths is the reason.
LONGEST_SOCKET_DIRECTORY = 61
# The JVM answers in 1 to 3 s; a machine that is starved of CPU may take much longer.
PATIENCE_S = 120.0
# An archive is 60 MB, and there is one for each environment.
ARCHIVES_KEPT = 3


@dataclass(frozen=True, slots=True)
class Attached:
    """A SparkContext; `owned` if we started it, and so may stop it."""

    sc: Any
    owned: bool

    def stop(self) -> None:
        """Give it back: one of our own ends when the last who uses it has given it back."""
        if self.owned:
            _shared.give_back(self.sc)


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
            environment = config.environment() if environment is None else environment
            cache = config.cache_directory(environment) if cache is None else cache
            running = _start(master, app_name, dict(conf or {}), environment, cache)
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
        what = f"{type(given).__name__} is no Spark session"
        raise _unfit(what, "give a SparkSession, a SparkContext or nothing")
    if context._jsc is None:
        what = "this Spark session is stopped"
        raise _unfit(what, "give a running one, or none to start one")
    return context


def master_of(master: str) -> str:
    """The master with one attempt a task.

    >>> [master_of(each) for each in ("local", "local[2]", "local[*,4]", "yarn")]
    ['local[1,1]', 'local[2,1]', 'local[*,1]', 'yarn']
    """
    if master == "local":
        return "local[1,1]"
    threads = re.fullmatch(r"local\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\]", master)
    return f"local[{threads[1]},1]" if threads else master


def settings(master: str, conf: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The configuration of a context of ours; what the user set stands.

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
        found["spark.python.daemon.module"] = "anabranch.spark.daemon"
    if cluster := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]", master):
        executors, cores, memory = map(int, cluster.groups())
        found["spark.executor.memory"] = f"{memory}m"
        # Without it Spark does not know how many to wait for, and waits for none.
        found["spark.cores.max"] = str(executors * cores)
    return {**found, **conf}


def start_jvm(
    java: Java, environment: Mapping[str, str], cache: Path, conf: Mapping[str, str]
) -> Jvm:
    """Start Spark's JVM and wait until it can be talked to.

    Raises:
        AnabranchError: It ended instead.
    """
    sweep(Path(tempfile.gettempdir()), "spark")
    directory = OwnedDirectory.create("spark", Path(tempfile.gettempdir()))
    try:
        home = _private_home(directory.path)
        log = directory.path / "spark.log"
        (directory.path / "log4j2.properties").write_text(LOG4J.format(file=log))
        announced = directory.path / "gateway"
        process = subprocess.Popen(
            command(java, environment, cache, conf, directory.path),
            stdin=subprocess.PIPE,  # it ends when this is closed, as it is when this process ends
            stdout=2,  # standard output is the program's
            env=jvm_environment(environment, java, home, announced),
            process_group=0,  # Ctrl-C is for this process alone: it will end the other in order
        )
        jvm = Jvm(process, directory)
        jvm.connect(announced)
    except BaseException:
        directory.remove()
        raise
    return jvm


def jvm_environment(
    environment: Mapping[str, str], java: Java, home: Path, announced: Path
) -> dict[str, str]:
    """What the JVM finds in its environment; this process's own is left alone."""
    return {
        **environment,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        # Read where executors are launched.
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LOCAL_IP": environment.get("SPARK_LOCAL_IP", "127.0.0.1"),
        "SPARK_LOCAL_HOSTNAME": environment.get("SPARK_LOCAL_HOSTNAME", "localhost"),
        "PYSPARK_PYTHON": sys.executable,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(announced),
    }


def command(
    java: Java,
    environment: Mapping[str, str],
    cache: Path,
    conf: Mapping[str, str],
    directory: Path,
) -> list[str]:
    """The command line of Spark's JVM."""
    jars = f"{_pyspark() / 'jars'}{os.sep}*"
    extra = [environment.get(name) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR")]
    places = [place for place in (conf.get("spark.driver.extraClassPath"), *extra) if place]
    archive = Archive.prepare(java, cache) if not places else Archive()
    return [
        *archive.before,
        str(java.home / "bin" / "java"),
        "-cp",
        os.pathsep.join((*places, jars)),
        f"-Xmx{conf.get('spark.driver.memory', '1g')}",
        *JVM_OPTIONS,
        *archive.options,
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={(directory / 'log4j2.properties').as_uri()}",
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]


@dataclass(frozen=True, slots=True)
class Archive:
    """The classes that Spark loads, parsed and checked already: a start takes half as long.

    `options` are for the JVM, `before` stands before its command. A JVM that finds no archive
    writes one when it ends, beside its place; a shell that waits for it moves it there. So an
    archive appears whole or not at all, also if two are written at once. The JVM itself checks
    that an archive fits its class path and version, and does without if it does not.
    """

    options: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    # $1 is the draft, $2 its place, the rest the command.
    PUBLISH = (
        'draft=$1 place=$2; shift 2; "$@"; end=$?; '
        '[ -f "$draft" ] && mv "$draft" "$place"; exit $end'
    )

    @classmethod
    def prepare(cls, java: Java, cache: Path) -> Archive:
        """The archive for this Java and this PySpark, or how to make it; none if that fails."""
        try:
            cache.mkdir(parents=True, exist_ok=True)
            base = cls._base(java, cache)
            place = cache / f"spark-{cls._key(java)}.jsa"
            if place.exists():
                files = os.pathsep.join(str(each) for each in (base, place) if each)
                return cls(("-Xlog:disable", f"-XX:SharedArchiveFile={files}"))
            cls._prune(cache)
        except (OSError, subprocess.SubprocessError):
            return cls()
        draft = cache / f"{place.stem}-{secrets.token_hex(6)}.draft"
        below = (f"-XX:SharedArchiveFile={base}",) if base else ()
        before = ("/bin/sh", "-c", cls.PUBLISH, "sh", str(draft), str(place))
        return cls(("-Xlog:disable", *below, f"-XX:ArchiveClassesAtExit={draft}"), before)

    @staticmethod
    def _base(java: Java, cache: Path) -> Path | None:
        """The archive of Java's own classes: most Javas bring it, the one from pip does not."""
        if (java.home / "lib" / "server" / "classes.jsa").exists():
            return None
        place = cache / f"{java.home.name}-{java.version}.jsa"
        if not place.exists():
            draft = cache / f"{place.stem}-{secrets.token_hex(6)}.draft"
            subprocess.run(
                [java.home / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE_S,
                check=True,
            )
            draft.rename(place)
        return place

    @staticmethod
    def _key(java: Java) -> str:
        jars = _pyspark() / "jars"
        parts = (str(java.home), java.version, str(jars), str(jars.stat().st_mtime_ns))
        return hashlib.sha256("\n".join((*parts, *JVM_OPTIONS)).encode()).hexdigest()[:16]

    @staticmethod
    def _prune(cache: Path) -> None:
        """Leave the newest: environments come and go, and each has its own."""
        archives = sorted(cache.glob("spark-*.jsa"), key=lambda file: file.stat().st_mtime_ns)
        for file in archives[: -(ARCHIVES_KEPT - 1)]:
            file.unlink(missing_ok=True)


@dataclass(slots=True)
class Jvm:
    """Spark's JVM: a process, and the directory with all it writes."""

    process: subprocess.Popen[bytes]
    directory: OwnedDirectory
    gateway: Any = None

    def connect(self, announced: Path) -> None:
        """Wait until it has said where it listens, and connect.

        Raises:
            AnabranchError: It ended instead, or says nothing.
        """
        waited, step = 0.0, 0.02
        while not announced.exists():
            if waited > PATIENCE_S:
                self.process.kill()
                why = f"nothing was heard of it in {PATIENCE_S:.0f} s"
                raise self._silent(why)
            with suppress(subprocess.TimeoutExpired):
                why = f"it ended with {self.process.wait(step)}"
                raise self._silent(why)
            waited += step
        with announced.open("rb") as file:
            port = int.from_bytes(file.read(4), "big")
            secret = file.read(int.from_bytes(file.read(4), "big")).decode()
        self.gateway = private.connect(port, secret)

    def alive(self) -> bool:
        """Whether it can still be talked to."""
        return self.process.poll() is None

    def end(self) -> None:
        """Let it end, which it does when its standard input is closed; remove what it wrote."""
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        self.directory.remove()

    def _silent(self, why: str) -> AnabranchError:
        log = self.directory.path / "spark.log"
        last = log.read_text(errors="replace").strip()[-500:] if log.exists() else ""
        return AnabranchError(
            "Spark's JVM did not start",
            why=f"{why}; {last}" if last else why,
            so="run `anabranch doctor`",
        )


class _Shared:
    """What this process has started: one JVM, at most one context, and who uses it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._jvm: Jvm | None = None
        self._users: dict[int, int] = {}

    def jvm(self, start: Any) -> Jvm:
        if self._jvm is not None and not self.alive():
            self._jvm.end()
            self._jvm = None
            private.forget_gateway()
        if self._jvm is None:
            self._jvm = start()
            atexit.register(self._jvm.end)
        return self._jvm

    def alive(self) -> bool:
        return self._jvm is not None and self._jvm.alive()

    def has(self, sc: Any) -> bool:
        return id(sc) in self._users

    def lose(self, sc: Any) -> None:
        self._users.pop(id(sc), None)
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


_shared = _Shared()


def _start(
    master: str,
    app_name: str,
    conf: dict[str, str],
    environment: Mapping[str, str],
    cache: Path,
) -> Any:
    from pyspark import SparkConf, SparkContext

    if private.has_gateway() and _shared._jvm is None:
        # Somebody's context was here before and is stopped; its JVM stays, and will do.
        owned = OwnedDirectory.create("spark", Path(tempfile.gettempdir()))
        atexit.register(owned.remove)
        directory, gateway = owned.path, None
    else:
        java = find_java(environment, cache)
        jvm = _shared.jvm(lambda: start_jvm(java, environment, cache, conf))
        directory, gateway = jvm.directory.path, jvm.gateway
    chosen = SparkConf(loadDefaults=False)
    (directory / "s").mkdir(mode=0o700, exist_ok=True)
    for name, value in settings(master, conf, directory).items():
        chosen.set(name, value)
    with _interrupts_left_alone():
        sc = SparkContext(master_of(master), app_name, conf=chosen, gateway=gateway)
    sc.pythonExec = environment.get("PYSPARK_PYTHON", sys.executable)
    return sc


def _unfit(what: str, so: str, why: str | None = None) -> AnabranchError:
    return AnabranchError(what, why=why, so=so)


def _stop(sc: Any, *, alive: bool) -> None:
    if alive:
        sc.stop()
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


def _private_home(directory: Path) -> Path:
    """A SPARK_HOME of links, so that what Spark writes into its home is not in site-packages.

    It has no `python`: workers would import PySpark from a zip without bytecode, at twice the time.
    """
    home = directory / "home"
    (home / "work").mkdir(parents=True)
    for part in ("bin", "jars"):
        (home / part).symlink_to(_pyspark() / part)
    return home


def _pyspark() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent
