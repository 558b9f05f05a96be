"""Structured Streaming's process from outside: what it is told, and what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from bench.harness.machine import ROOT

PATIENCE_S = 1800


@dataclass(frozen=True, slots=True)
class Restart:
    """One change of width, in seconds."""

    steady: float
    gap: float
    turn: float


def restarts(keys: int, rate: float, window: float, runs: int) -> list[tuple[Restart, Restart]]:
    """Changes to two partitions and back to one, so many times."""
    options = {"keys": keys, "rate": rate, "window": window, "runs": runs}
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "bench.elastic.structured", json.dumps(options)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        message = f"Structured Streaming failed:\n{done.stderr[-3000:]}"
        raise RuntimeError(message)
    return parsed(done.stdout)


def parsed(output: str) -> list[tuple[Restart, Restart]]:
    r"""What it told in its last line, there and back.

    >>> one = '{"steady": 1.0, "gap": 2.0, "turn": 3.0}'
    >>> parsed(f"some words\n[{one}, {one}]\n")[0][1].gap
    2.0
    """
    found = [Restart(**each) for each in json.loads(output.splitlines()[-1])]
    return list(zip(found[::2], found[1::2], strict=True))
