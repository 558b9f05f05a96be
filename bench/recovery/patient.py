"""The query's process from outside: started, watched, killed; and how long it took to heal."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.machine import ROOT
from bench.recovery.driver import Arriving

PATIENCE_S = 300
STEADY, STEADY_S = 20, 2.0
"""So many commits in a row, each less than so many seconds behind, are taken for the usual."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit was told as: when, how many rows are committed, whose lanes took them."""

    at: float
    end: int
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Healed:
    """Seconds from a fault."""

    first: float
    """To the first commit with a row that came after the fault."""
    caught_up: float
    """To the first one whose lag is no more than before the fault."""


@dataclass(slots=True)
class Patient:
    """One query, through all its processes."""

    options: Mapping[str, Any]
    errors: Path
    _process: subprocess.Popen[str] = field(init=False)
    _lines: queue.Queue[str | None] = field(init=False)

    @property
    def arriving(self) -> Arriving:
        """The source, to know how many rows are there at a moment."""
        return Arriving(self.options["keys"], self.options["rate"], self.options["begun"])

    def start(self) -> None:
        """A new process, where the last one left off."""
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        with self.errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.recovery.driver", json.dumps(self.options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
                cwd=ROOT,
            )
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()

    def commit(self) -> Commit:
        """The next commit."""
        told = json.loads(self._line())
        return Commit(told["at"], told["end"], tuple(told["lanes"]))

    def usual_lag(self) -> float:
        """Rows that have come and are not committed, at worst, once all is steady."""
        lags: list[float] = []
        while len(lags) < STEADY or max(lags) > STEADY_S * self.options["rate"]:
            lags = [*lags, self.lag(self.commit())][-STEADY:]
        return max(lags)

    def lag(self, commit: Commit) -> float:
        """Rows that had come and were not committed."""
        return self.arriving.arrived(commit.at) - commit.end

    def heal(self, fault: float, usual: float) -> Healed:
        """Watch commits from a fault on until all is as it was."""
        there, first = self.arriving.arrived(fault), None
        while True:
            commit = self.commit()
            if commit.at <= fault or commit.end <= there:
                continue
            first = first or commit.at
            if self.lag(commit) <= usual:
                return Healed(first - fault, commit.at - fault)

    def kill_lane(self) -> float:
        """Kill a lane's process; says when."""
        commit = self.commit()
        fault = time.time()
        os.kill(commit.lanes[0], signal.SIGKILL)
        return fault

    def kill_driver(self) -> float:
        """Kill the driver and its JVM at once; says when."""
        jvm = _children(self._process.pid, "org.apache.spark")
        if not jvm:
            message = "the driver has no JVM to be killed"
            raise RuntimeError(message)
        victims = [*jvm, self._process.pid]
        fault = time.time()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        return fault

    def stop(self) -> None:
        """Let it finish what it has begun."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        while self._line() != "ended":
            pass
        self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """Make sure that nothing is left of it."""
        if self._process.poll() is None:
            self._process.kill()  # its JVM ends with its standard input
            self._process.wait(PATIENCE_S)

    def _line(self) -> str:
        line = self._lines.get(timeout=PATIENCE_S)
        if line is None:
            message = f"the query ended:\n{self.errors.read_text()[-3000:]}"
            raise RuntimeError(message)
        return line


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _children(pid: int, command: str) -> list[int]:
    """Processes right below one whose command line has this text."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found if command in Path(f"/proc/{each}/cmdline").read_text()]
