"""A standalone Spark of a test's own: a Master, and Workers that come and go while queries run.

Everything listens on 127.0.0.1 alone, at ports that the system chooses, and only to who knows the
secret. A *node* is a Worker with all that it starts: executors, and their Python processes. All of them
have a variable in their environment by which they are found, so that a node can be frozen or lose its
power as a whole, and nothing outlives the test: `Standalone` is a context, and whoever has started a
process that has one calls `end_all` with its home.
"""

import os
import queue
import re
import secrets
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from anabranch import config
from anabranch.spark.archive import Archive
from anabranch.spark.jvm import (
    COMPILER_OPTIONS,
    LAUNCHER_OPTIONS,
    _private_home,
    jvm_environment,
    pyspark_home,
)
from anabranch.spark.known_java import known_java

ROOT = Path(__file__).resolve().parents[2]
CLUSTER, NODE = "ANABRANCH_TEST_CLUSTER", "ANABRANCH_TEST_NODE"
PATIENCE_S = 180
"""What takes longer is taken to hang; a starved machine is slow."""

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c{1}: %m%n%ex
"""


class Standalone:
    """A Master, and the nodes that were added to it; a context."""

    def __init__(self, home, **settings):
        """`settings` are Spark's, for Master and Workers, with "_" for ".": worker_timeout=5."""
        self.home = Path(home)
        self.home.mkdir(parents=True)
        self._secret = secrets.token_hex(16)
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.nodes = []

    def __enter__(self):
        (self.home / "log4j2.properties").write_text(LOG4J)
        given = {
            **self._guarded(),
            "spark.master.rest.enabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
            # An application is not given up however many of its executors die.
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.decommission.enabled": "true",
            **{f"spark.{name}": value for name, value in self._settings.items()},
        }
        text = "".join(f"{name} {value}\n" for name, value in given.items())
        (self.home / "spark.conf").touch(0o600)  # the secret is in it, and on no command line
        (self.home / "spark.conf").write_text(text)
        self._spark_home = _private_home(self.home)
        try:
            self.master = self._start("master.Master", {})
            self.url = self.master.until(r"Starting Spark master at (spark://\S+)")[1]
        except BaseException:
            end_all(self.home)
            raise
        return self

    def __exit__(self, *_):
        end_all(self.home)
        for each in (self.master, *(node.worker for node in self.nodes)):
            each.close()

    def add(self):
        """Add a node with one slot; it is there when the Master knows of it."""
        name = f"node{len(self.nodes)}"
        work = self.home / name
        given = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url)
        worker = self._start("worker.Worker", {NODE: f"{self.home}/{name}"}, *given)
        node = Node(worker, f"{NODE}={self.home}/{name}\0")
        self.nodes.append(node)
        worker.until(r"Successfully registered with master")
        return node

    def conf(self):
        """What a driver has to be told to be let in, and to be reached."""
        return {
            **self._guarded(),
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.decommission.enabled": "true",
        }

    def _guarded(self):
        return {"spark.authenticate": "true", "spark.authenticate.secret": self._secret}

    def _start(self, what, variables, *given):
        environment = _environment()
        cache = config.cache_directory(environment)
        java, jars = known_java(environment, cache), pyspark_home() / "jars"
        options = (*LAUNCHER_OPTIONS, *COMPILER_OPTIONS)
        archive = Archive.prepare(java, jars, options, cache)
        command = [
            str(java.home / "bin" / "java"),
            "-cp",
            f"{jars}{os.sep}*",
            "-Xmx256m",
            *options,
            # One that has yet to be written is left to drivers: these do not end by themselves.
            *(() if archive.before else archive.options),
            f"-Dlog4j2.configurationFile={(self.home / 'log4j2.properties').as_uri()}",
            f"org.apache.spark.deploy.{what}",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            *("--properties-file", str(self.home / "spark.conf")),
            *given,
        ]
        variables = {
            **jvm_environment(environment, java, self._spark_home, Path("/dev/null")),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            CLUSTER: str(self.home),
            **variables,
        }
        return Told(command, variables, self.home)


class Node:
    """A Worker, with its executors and their Python processes."""

    def __init__(self, worker, variable):
        self.worker, self._variable = worker, variable

    def __repr__(self):
        return self._variable.rstrip("\0").rpartition("/")[-1]

    def processes(self):
        """All its processes, by id."""
        return _having(self._variable)

    def executors(self):
        """The JVMs of its executors, by id."""
        return [pid for pid in self.processes() if "CoarseGrainedExecutorBackend" in _command(pid)]

    def stop(self):
        """End it as an administrator would: the Worker ends its executors."""
        self._tell(signal.SIGTERM)
        self.worker.wait()

    def kill(self):
        """Switch its power off."""
        kill_all(self.processes)
        self.worker.wait()

    def freeze(self):
        """Let none of its processes do anything, until it is thawed."""
        stopped = set()
        while new := set(self.processes()) - stopped:
            for pid in new:
                _send(pid, signal.SIGSTOP)
            stopped |= new

    def thaw(self, *pids):
        """Let them, or some of them, go on as if nothing had been."""
        for pid in pids or self.processes():
            _send(pid, signal.SIGCONT)

    def decommission(self):
        """Tell the Worker that the machine will soon be taken away."""
        self._tell(signal.SIGPWR)

    def _tell(self, number):
        os.kill(self.worker.process.pid, number)


class Told:
    """A process and what it says."""

    def __init__(self, command, environment, home):
        self.lines = []
        self._queue = queue.Queue()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            cwd=home,
            process_group=0,  # Ctrl-C is for the test, which ends it then
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._queue.put(line)
        self._queue.put(None)

    def until(self, pattern):
        """Wait for a line with this in it; one that says it no more is an error."""
        while True:
            try:
                line = self._queue.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"no {pattern!r} in\n{''.join(self.lines)}") from None
            if line is None:
                raise AssertionError(f"it ended without {pattern!r}:\n{''.join(self.lines)}")
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found

    def wait(self):
        self.process.wait(PATIENCE_S)

    def close(self):
        self.wait()
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()


def end_all(home):
    """End every process of the cluster with this home, whoever is left of it."""
    kill_all(lambda: _having(f"{CLUSTER}={home}\0"))


def kill_all(processes):
    """Kill them, and those that they have just started."""
    while found := processes():
        for pid in found:
            _send(pid, signal.SIGKILL)


def _having(variable):
    """Living processes that have this in their environment."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                if variable.encode() in (each / "environ").read_bytes():
                    found.append(int(each.name))
    return sorted(found)


def _command(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def _send(pid, number):
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _environment():
    found = dict(config.environment())
    if found.get("JAVA_HOME") == "/nonexistent":
        del found["JAVA_HOME"]
    return found
