"""Spark's JVM: how it is started for the least time and noise.

It is started directly, without the two shell scripts and the second JVM that `spark-submit` puts
before it, and without `SparkSubmit` itself where there is nothing for that to do; with the classes
it will load in an archive; silent on the terminal, its log in a file; everything it writes in one
private directory. A start has two halves, `launch` and `connect`, with room between them for
whatever else has to be done.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.runtime.exchange import OwnedDirectory, sweep
from anabranch.spark import private
from anabranch.spark.archive import Archive
from anabranch.spark.java import Java

# What Spark's launcher gives a JVM (4.3, JavaModuleOptions); a test compares it.
LAUNCHER_OPTIONS = (
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

# Java's optimising compiler takes 2 s of CPU in the first seconds of a Spark, for code most of
# which runs only then. Eight times the calls that it waits for by default make it 0.3 s; code that
# is still hot later is compiled all the same, a little later.
COMPILER_OPTIONS = (
    "-XX:Tier4InvocationThreshold=40000",
    "-XX:Tier4MinInvocationThreshold=4800",
    "-XX:Tier4CompileThreshold=120000",
    "-XX:Tier4BackEdgeThreshold=320000",
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

# The JVM answers in 1 to 3 s; a machine that is starved of CPU may take much longer.
PATIENCE_S = 120.0
# Between two looks whether it has answered.
LOOK_S = 0.005


@dataclass(slots=True)
class Jvm:
    """Spark's JVM: a process, and the directory with all it writes.

    `gateway` is there after `connect`.
    """

    process: subprocess.Popen[bytes]
    directory: OwnedDirectory
    environment: Mapping[str, str]
    gateway: Any = None

    @classmethod
    def launch(
        cls,
        java: Java,
        environment: Mapping[str, str],
        cache: Path,
        master: str,
        conf: Mapping[str, str],
    ) -> Jvm:
        """Start it, without waiting until it can be talked to."""
        root = Path(tempfile.gettempdir())
        sweep(root, "spark")
        directory = OwnedDirectory.create("spark", root)
        try:
            home = _private_home(directory.path)
            log = directory.path / "spark.log"
            (directory.path / "log4j2.properties").write_text(LOG4J.format(file=log))
            variables = jvm_environment(environment, java, home, _announced(directory.path))
            process = subprocess.Popen(
                command(java, environment, cache, master, conf, directory.path),
                stdin=subprocess.PIPE,  # it ends when this is closed, as when this process ends
                stdout=2,  # standard output is the program's
                env=variables,
                process_group=0,  # Ctrl-C is for this process alone: it will end the other in order
            )
        except BaseException:
            directory.remove()
            raise
        return cls(process, directory, variables)

    def connect(self) -> None:
        """Wait until it has said where it listens, and connect; once is enough.

        Raises:
            AnabranchError: It ended instead, or says nothing.
        """
        if self.gateway is not None:
            return
        announced, waited = _announced(self.directory.path), 0.0
        while not announced.exists():
            if waited > PATIENCE_S:
                self.process.kill()
                why = f"nothing was heard of it in {PATIENCE_S:.0f} s"
                raise self._silent(why)
            with suppress(subprocess.TimeoutExpired):
                why = f"it ended with {self.process.wait(LOOK_S)}"
                raise self._silent(why)
            waited += LOOK_S
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
            so="see what Java said above; where it lacks memory, give it less, e.g. "
            'conf={"spark.driver.memory": "512m"}; else run `anabranch doctor`',
        )


def jvm_environment(
    environment: Mapping[str, str], java: Java, home: Path, announced: Path
) -> dict[str, str]:
    """What the JVM finds in its environment; this process's own is left alone."""
    return {
        **_user(environment),
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


def _user(environment: Mapping[str, str]) -> dict[str, str]:
    """Who this is, where Hadoop was not told otherwise: it would load much to find that out."""
    if "HADOOP_USER_NAME" in environment:
        return {}
    try:
        return {"SPARK_USER": pwd.getpwuid(os.geteuid()).pw_name}
    except KeyError:
        return {}


def command(
    java: Java,
    environment: Mapping[str, str],
    cache: Path,
    master: str,
    conf: Mapping[str, str],
    directory: Path,
) -> list[str]:
    """The command line of Spark's JVM."""
    jars = pyspark_home() / "jars"
    extra = [environment.get(name) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR")]
    places = [place for place in (conf.get("spark.driver.extraClassPath"), *extra) if place]
    options = (*LAUNCHER_OPTIONS, *COMPILER_OPTIONS)
    archive = Archive.prepare(java, jars, options, cache) if not places else Archive()
    return [
        *archive.before,
        str(java.home / "bin" / "java"),
        "-cp",
        os.pathsep.join((*places, f"{jars}{os.sep}*")),
        f"-Xmx{conf.get('spark.driver.memory', '1g')}",
        *options,
        *archive.options,
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={(directory / 'log4j2.properties').as_uri()}",
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
        *entry(master, conf, environment),
    ]


GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"

# Settings that SparkSubmit acts on before there is a context: it fetches jars and logs in.
_FOR_SUBMIT = re.compile(r"spark\.(jars|submit|kerberos|driver\.userClassPathFirst)\b.*")


def entry(master: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """What the JVM runs: the server that Python talks to, by way of SparkSubmit if need be.

    >>> entry("local[2]", {"spark.ui.enabled": "true"}, {})
    ['org.apache.spark.api.python.PythonGatewayServer']
    >>> entry("local[2]", {"spark.jars": "a.jar", "spark.ui.enabled": "true"}, {})
    ['org.apache.spark.deploy.SparkSubmit', '--conf', 'spark.jars=a.jar', 'pyspark-shell']
    """
    given = [f"{name}={value}" for name, value in conf.items() if _FOR_SUBMIT.fullmatch(name)]
    # There it finds settings.
    elsewhere = environment.get("SPARK_CONF_DIR")
    if master.startswith("local") and not given and not elsewhere:
        return [GATEWAY]
    return [SUBMIT, *(word for each in given for word in ("--conf", each)), "pyspark-shell"]


def pyspark_home() -> Path:
    """Where PySpark is, found without loading it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        message = "PySpark is not installed"
        raise AnabranchError(
            message, so="pip install anabranch into this Python: it brings PySpark"
        )
    return Path(found.submodule_search_locations[0])


def _announced(directory: Path) -> Path:
    return directory / "gateway"


def _private_home(directory: Path) -> Path:
    """A SPARK_HOME of links, so that what Spark writes into its home is not in site-packages.

    It has no `python`: workers would import PySpark from a zip without bytecode, at twice the time.
    """
    home = directory / "home"
    (home / "work").mkdir(parents=True)
    for part in ("bin", "jars"):
        (home / part).symlink_to(pyspark_home() / part)
    return home
