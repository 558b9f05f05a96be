"""A continuous query with a Spark of its own, whose driver or executor is killed.

    python -m bench.continuous.killed PLACE DIRECTORY BEGIN WARM AFTER

Says, a line each on standard output: when it has seen a row that was due WARM seconds behind BEGIN,
or behind AFTER if that is given; PLACE `executor` then kills the executor that the task is in, and
says so and when it has seen a row that was due after that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anabranch as ab
from anabranch.runtime.continuous.loop import ContinuousLoop
from anabranch.spark.session import spark_context
from bench.continuous.due import Due, Newest
from bench.continuous.programs import vector
from bench.harness.machine import ROOT

MASTERS = {"driver": "local[2]", "executor": "local-cluster[2,2,1024]"}
RATE = 20_000


def executor_killed(home: Path, warm: float) -> float:
    """Seconds from an executor's end until a row is seen that was due after it."""
    running = _started("executor", home, time.time(), warm)
    try:
        _said(running)
        killed, seen = _said(running), _said(running)
    finally:
        _end(running)
    return seen - killed


def driver_killed(home: Path, warm: float) -> float:
    """The same for the driver with all its processes; another is started at once."""
    begin = time.time()
    running = _started("driver", home, begin, warm)
    try:
        _said(running)
    finally:
        killed = time.time()
        _end(running)
    again = _started("driver", home, begin, warm, killed)
    try:
        return _said(again) - killed
    finally:
        _end(again)


PLACES = {"executor": executor_killed, "driver": driver_killed}


def _started(
    place: str, home: Path, begin: float, warm: float, after: float = 0.0
) -> subprocess.Popen[str]:
    settings = [place, str(home), *map(repr, (begin, warm, after))]
    command = [sys.executable, "-m", "bench.continuous.killed", *settings]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def _said(running: subprocess.Popen[str]) -> float:
    assert running.stdout is not None
    line = running.stdout.readline()
    if not line:
        message = "the query's process ended before its time"
        raise RuntimeError(message)
    return float(line)


def _end(running: subprocess.Popen[str]) -> None:
    """All processes of it, those of Spark included."""
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _say(moment: float) -> None:
    sys.stdout.write(f"{moment!r}\n")
    sys.stdout.flush()


def main(place: str, home: Path, begin: float, warm: float, after: float) -> None:
    """Run until somebody ends it."""
    attached, sink = spark_context(master=MASTERS[place], app_name=f"bench kill-{place}"), Newest()
    query = vector(Due(10**9, RATE, begin), sink).start(
        attached.sc, trigger=ab.continuous("5 ms", "2 s"), checkpoint=home / "checkpoint"
    )
    # Those that are due now have come when the task is at speed, however long Spark took to begin.
    sink.wait(after or begin)
    if not after:
        sink.wait(time.time() + warm)
    _say(time.time())
    if place == "executor":
        loop = query._loop  # noqa: SLF001 - who else would know whom to kill
        assert isinstance(loop, ContinuousLoop)
        assert loop.pid is not None
        task = loop.pid
        # Its parent has forked it, and was itself started by the executor.
        os.kill(_parent(_parent(task)), signal.SIGKILL)
        _say(time.time())
        # The task notices the end of its executor later than we do, and goes on until then.
        while loop.pid == task:
            time.sleep(0.001)
        sink.wait(time.time())
        _say(time.time())
    query.await_termination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(float, sys.argv[3:]))
