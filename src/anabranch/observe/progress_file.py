"""Progress as lines of JSON in a file, one a commit, for whoever follows a file.

    {"id": "5f…", "runId": "c1…", "name": "clicks", "timestamp": "…", "batchId": 7, …}

A line is what `query.last_progress` is. The file is opened for every line, so it may be moved away
between two: the next one begins another. Several queries may write to one file.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError

# What is no file, such as a pipe that nobody reads, is refused or full: a query never waits for it.
_OPENED = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o666
"""Less what the user's umask takes away."""


def append(path: Path, line: bytes) -> None:
    """Append a line, all of it or nothing.

    A line that somebody left unfinished at the end, by a crash, is ended first.

    Raises:
        OSError: It cannot be; the file is as it was.
    """
    file = os.open(path, _OPENED, _MODE)
    try:
        # Half of a line may also be one that another query is writing just now.
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        lead = b"" if _at_line_start(file) else b"\n"
        _write(file, lead + line + b"\n")
    finally:
        os.close(file)


def _at_line_start(file: int) -> bool:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        return True
    return os.pread(file, 1, found.st_size - 1) == b"\n"


def _write(file: int, data: bytes) -> None:
    written = 0
    try:
        # In one call as a rule, so that lines of several writers do not mix.
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError:
        _take_back(file, written)
        raise


def _take_back(file: int, written: int) -> None:
    """Cut off what was written of a line, unless somebody has written behind it."""
    if written and stat.S_ISREG(os.fstat(file).st_mode):
        end = os.lseek(file, 0, os.SEEK_CUR)
        if os.fstat(file).st_size == end:
            os.ftruncate(file, end - written)


class ProgressFile:
    """A watcher that appends every commit's progress to a file.

    When that fails it is told once. The line is lost, and the next one is tried again.
    """

    def __init__(self, query: str, path: Path, tell: Callable[[AnabranchError], None]) -> None:
        """Write nothing yet; `tell` is called at most once."""
        self._query, self._path, self._tell = query, path, tell
        self._told = False

    def note(self, progress: Mapping[str, Any]) -> None:
        """Append a commit's line."""
        line = json.dumps(progress, ensure_ascii=False, default=str).encode(errors="replace")
        try:
            append(self._path, line)
        except OSError as error:
            if not self._told:
                self._told = True
                self._tell(self._refused(error))

    def close(self) -> None:
        """Nothing is open between two lines."""

    def _refused(self, error: OSError) -> AnabranchError:
        why = error.strerror or str(error)
        message = f"progress of {self._query!r} cannot be written to {self._path}: {why}"
        so = "the query goes on, and tries again at each commit; mend that, or choose another file "
        so += "(ANABRANCH_PROGRESS, or --progress of anabranch run)"
        return AnabranchError(message, so=so)
