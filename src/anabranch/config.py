"""The only place that reads the environment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from anabranch.errors import AnabranchError

Exchange: TypeAlias = Literal["auto", "files", "shuffle"]
"""How rows go from task to task on Spark."""


def environment() -> Mapping[str, str]:
    """A copy of the environment as it is now."""
    return dict(os.environ)


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


def exchange(env: Mapping[str, str] | None = None) -> Exchange:
    """How rows go from task to task on Spark: `ANABRANCH_EXCHANGE`.

    `files` of one host are fastest, Spark's `shuffle` reaches all hosts; `auto`, the default, takes
    files where all executors are on the driver's host.

    >>> exchange({}), exchange({"ANABRANCH_EXCHANGE": "shuffle"})
    ('auto', 'shuffle')
    """
    env = environment() if env is None else env
    chosen = env.get("ANABRANCH_EXCHANGE") or "auto"
    if chosen not in get_args(Exchange):
        message = f"ANABRANCH_EXCHANGE is {chosen!r}"
        raise AnabranchError(message, have=", ".join(get_args(Exchange)))
    return cast("Exchange", chosen)


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
