"""A command and the processes that it leaves behind: over when the last of them is.

Who ends is not always who writes last: Flink's client is gone before its JVM and the Python
processes of that JVM are, and what they still write would appear in a directory that is being
removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE_S = 20.0
"""What is left behind ends by itself within this time, or is killed."""
KILLED_S = 5.0
"""How long the killed are waited for: where nobody takes note of their end, they stay listed."""
LOOK_S = 0.01


def run_whole(
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    patience_s: float,
    grace_s: float = GRACE_S,
) -> int:
    """Run a command to the end of its process group; its exit code. What it prints is in `log`.

    Raises:
        subprocess.TimeoutExpired: The command was not done in time; it was killed.
    """
    with log.open("wb") as file:
        leader = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        code = leader.wait(patience_s)
        _gone(leader.pid, grace_s)
    finally:
        _kill(leader)
    return code


def _kill(leader: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        leader.wait()
    _gone(leader.pid, KILLED_S)


def _gone(group: int, within_s: float) -> bool:
    """Wait until a process group has no member, at most for so long."""
    until = time.monotonic() + within_s
    while _has_members(group):
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
