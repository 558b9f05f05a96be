"""The only place that reads the environment."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from anabranch.errors import AnabranchError, nearest

Exchange: TypeAlias = Literal["auto", "files", "shuffle"]
"""How rows go from task to task on Spark."""

PipelinePolicy: TypeAlias = Literal["lp", "ct", "et", "qst", "nem"]
"""By what workers of a continuous query are given to operators."""


_SAID: ContextVar[Mapping[str, str]] = ContextVar("_SAID", default={})  # noqa: B039 - never changed


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server of ours is reached."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where queries tell of themselves, besides to who asks them."""

    metrics: Address | None = None
    """Where Prometheus reads their figures; None: nowhere."""
    progress: Path | None = None
    """The file that gets a line of progress a commit; None: none."""
    telemetry: bool = False
    """Whether they tell OpenTelemetry."""


@dataclass(frozen=True, slots=True)
class StateMemory:
    """How much memory state may have, and where the rest of it goes."""

    lane: int | None = None
    """Bytes for a lane; None: a share of the machine's."""
    directory: Path | None = None
    """On the local disk of whoever runs lanes; None: where temporary files are."""


def environment() -> Mapping[str, str]:
    """A copy of the environment as it is now, with what `saying` says in its place."""
    return {**os.environ, **_SAID.get()}


@contextmanager
def saying(said: Mapping[str, str]) -> Iterator[None]:
    """Let these go before the environment, as a command line's options do.

    >>> with saying({"ANABRANCH_JOB_TIMEOUT": "3"}):
    ...     job_timeout()
    3.0
    """
    token = _SAID.set({**_SAID.get(), **said})
    try:
        yield
    finally:
        _SAID.reset(token)


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """Where things may be kept that can be made again: `ANABRANCH_CACHE`, else the user's cache.

    Without a usable home a directory of this user's under the system's temporary one.
    """
    env = environment() if env is None else env
    if chosen := env.get("ANABRANCH_CACHE"):
        return Path(chosen)
    home = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/nonexistent")) / ".cache")
    parent = home if home.exists() else home.parent
    if parent.exists() and os.access(parent, os.W_OK):
        return home / "anabranch"
    return Path(tempfile.gettempdir()) / f"anabranch-{os.getuid()}"


def local_directory(env: Mapping[str, str] | None = None) -> Path:
    """Where a process may keep what is of this host alone: Spark says it to its workers.

    >>> local_directory({"SPARK_LOCAL_DIRS": "/data/1/blocks,/data/2/blocks"})
    PosixPath('/data/1/blocks')
    """
    env = environment() if env is None else env
    given = env.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(given or tempfile.gettempdir())


def exchange(env: Mapping[str, str] | None = None) -> Exchange:
    """How rows go from task to task on Spark: `ANABRANCH_EXCHANGE`.

    `files` of one host are fastest, Spark's `shuffle` reaches all hosts; `auto`, the default, takes
    files where all executors are on the driver's host.

    >>> exchange({}), exchange({"ANABRANCH_EXCHANGE": "shuffle"})
    ('auto', 'shuffle')
    """
    return cast("Exchange", _one_of("ANABRANCH_EXCHANGE", get_args(Exchange), env))


def pipeline_policy(env: Mapping[str, str] | None = None) -> PipelinePolicy:
    """By what workers of a continuous query go to operators: `ANABRANCH_PIPELINE_POLICY`.

    Last in pipeline (`lp`), unless another is said: current throughput (`ct`), estimated time
    (`et`), queue-size throttling (`qst`), next externalization (`nem`). No output shows it.

    >>> pipeline_policy({}), pipeline_policy({"ANABRANCH_PIPELINE_POLICY": "ct"})
    ('lp', 'ct')
    """
    known = get_args(PipelinePolicy)
    return cast("PipelinePolicy", _one_of("ANABRANCH_PIPELINE_POLICY", known, env))


def _one_of(name: str, known: tuple[str, ...], env: Mapping[str, str] | None) -> str:
    """What a variable says, which has to be one of these; the first, where it says nothing."""
    env = environment() if env is None else env
    chosen = env.get(name) or known[0]
    if chosen not in known:
        message = f"{name} is {chosen!r}"
        so = nearest(chosen, known) or "set it to one of these, or unset it"
        raise AnabranchError(message, have=", ".join(known), so=so)
    return chosen


def job_timeout(env: Mapping[str, str] | None = None) -> float | None:
    """Seconds after which a Spark job of ours is given up: `ANABRANCH_JOB_TIMEOUT`, else never.

    For functions that may never end: given up twice, the record at which it happens is looked for.

    >>> job_timeout({}), job_timeout({"ANABRANCH_JOB_TIMEOUT": "2.5"})
    (None, 2.5)
    """
    env = environment() if env is None else env
    if not (chosen := env.get("ANABRANCH_JOB_TIMEOUT")):
        return None
    try:
        seconds = float(chosen)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        message = f"ANABRANCH_JOB_TIMEOUT is {chosen!r}"
        raise AnabranchError(message, so="give a positive number of seconds")
    return seconds


def node(env: Mapping[str, str] | None = None) -> str:
    """What this process's node is called: `ANABRANCH_NODE`, else the host's name.

    Processes of one node have a memory or a disk in common, such as containers on one machine.

    >>> node({"ANABRANCH_NODE": "rack-7"}), node({}) == platform.node()
    ('rack-7', True)
    """
    env = environment() if env is None else env
    return env.get("ANABRANCH_NODE") or platform.node()


def objects_over_http(scheme: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether an object store may be talked to without encryption, as obstore's variables say.

    >>> objects_over_http("s3", {}), objects_over_http("s3", {"AWS_ALLOW_HTTP": "true"})
    (False, True)
    """
    env = environment() if env is None else env
    whose = {"s3": "AWS", "gs": "GOOGLE"}.get(scheme, "AZURE")
    return env.get(f"{whose}_ALLOW_HTTP", "").lower() in ("true", "1", "yes", "on", "y")


def outlets(env: Mapping[str, str] | None = None) -> Outlets:
    """Where queries tell of themselves.

    `ANABRANCH_METRICS_PORT`: the port at which Prometheus reads their figures, else none is opened;
    `ANABRANCH_METRICS_HOST`: who may, by the address it is bound to; this host alone, unless given.
    `ANABRANCH_PROGRESS`: the file to which every commit appends its progress, else none.
    `ANABRANCH_OTEL`: 1 where figures and spans go to OpenTelemetry, else they do not.

    >>> outlets({"ANABRANCH_METRICS_PORT": "9464"}).metrics
    Address(host='127.0.0.1', port=9464)
    """
    env = environment() if env is None else env
    progress = env.get("ANABRANCH_PROGRESS")
    # The working directory may be another one when the first commit is made.
    file = Path(progress).absolute() if progress else None
    return Outlets(_metrics(env), file, _telemetry(env))


def state_memory(env: Mapping[str, str] | None = None) -> StateMemory:
    """How much of its state a lane has in memory, and where the rest goes.

    `ANABRANCH_STATE_MEMORY`: so much for each lane, as `512 MB`, else a share of the machine's.
    `ANABRANCH_STATE_DIRECTORY`: a directory of the local disk, else that for temporary files.

    >>> state_memory({"ANABRANCH_STATE_MEMORY": "1.5 GB"}).lane
    1500000000
    """
    env = environment() if env is None else env
    directory = env.get("ANABRANCH_STATE_DIRECTORY")
    path = Path(directory).absolute() if directory else None
    if not (chosen := env.get("ANABRANCH_STATE_MEMORY")):
        return StateMemory(None, path)
    if (size := size_of(chosen)) is None:
        message = f"ANABRANCH_STATE_MEMORY is {chosen!r}"
        have = ", ".join(f"{unit}B" for unit in _UNITS if unit)
        raise AnabranchError(message, have=have, so="give a size, as 512 MB, or unset it")
    return StateMemory(size, path)


def size_of(given: str) -> int | None:
    """How many bytes a text says; None: it says no size.

    >>> size_of("1.5 GB"), size_of("64 KiB"), size_of("much")
    (1500000000, 65536, None)
    """
    if not (size := _SIZE.fullmatch(given.strip())):
        return None
    number, unit, binary = size.groups()
    power = _UNITS.index(unit.upper().replace("K", "k"))
    return int(float(number) * (1024 if binary else 1000) ** power)


_UNITS = ("", "k", "M", "G", "T")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGTmgt]?)(i?)[bB]")


def _metrics(env: Mapping[str, str]) -> Address | None:
    if not (chosen := env.get("ANABRANCH_METRICS_PORT")):
        return None
    if not (chosen.isascii() and chosen.isdecimal() and 0 < int(chosen) < 65_536):
        message = f"ANABRANCH_METRICS_PORT is {chosen!r}"
        raise AnabranchError(message, so="give a port, from 1 to 65535")
    return Address(env.get("ANABRANCH_METRICS_HOST") or "127.0.0.1", int(chosen))


def _telemetry(env: Mapping[str, str]) -> bool:
    chosen = env.get("ANABRANCH_OTEL") or "0"
    if chosen not in {"0", "1"}:
        message = f"ANABRANCH_OTEL is {chosen!r}"
        raise AnabranchError(message, so="give 1 to tell OpenTelemetry of queries, or 0")
    return chosen == "1"
