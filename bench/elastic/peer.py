"""Structured Streaming's process from outside: what it is told, and what it found.

Cases of their own: with 1 GB of state one change takes it minutes, so that it is changed once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.elastic.arriving import keys_for
from bench.elastic.ground import Ground, bytes_of
from bench.harness.machine import ROOT
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

PATIENCE_S = 1800
SPARK, STEADY = "structured-streaming", "steady"
MANY_KEYS = 2_000_000
"""From so many on it is changed once, and not warmed up by a change before."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One change of width, in seconds."""

    steady: float
    gap: float
    turn: float


@dataclass(frozen=True, slots=True)
class Told:
    """What it found: its own rate, and changes there and back."""

    rate: float
    changes: tuple[tuple[Restart, Restart], ...]


def structured(stand: Stand, here: Ground, size: str) -> list[Row]:
    """One size of state."""
    keys, warm, runs = keys_for(bytes_of(size)), stand.settings.warmups, stand.settings.runs
    if keys >= MANY_KEYS:
        warm, runs = 0, 1
    case = f"structured-{size}"
    stand.progress.begin(case, 1)
    told = restarts(keys, here.scale.window, warm + runs)
    stand.progress.step(SPARK)
    return rows_of(case, told.rate, told.changes[warm:])


def rows_of(case: str, rate: float, changes: Sequence[tuple[Restart, Restart]]) -> list[Row]:
    """Gaps and times of both directions."""
    rows = list[Row]()
    for at, suffix in enumerate(("", "_down")):
        some = [both[at] for both in changes]
        gaps = {SPARK: [each.gap for each in some], STEADY: [each.steady for each in some]}
        rows += compared(Metric(case, f"longest_gap{suffix}", "s"), gaps, [(SPARK, STEADY)])
        turns = [each.turn for each in some]
        rows.append(bare(Metric(case, f"turn_time{suffix}", "s"), SPARK, turns))
    return [*rows, bare(Metric(case, "rate", "rows/s"), SPARK, [rate])]


def restarts(keys: int, window: float, runs: int) -> Told:
    """Changes to two partitions and back to one, so many times."""
    options = {"keys": keys, "window": window, "runs": runs}
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


def parsed(output: str) -> Told:
    r"""What it told in its last line.

    >>> one = '{"steady": 1.0, "gap": 2.0, "turn": 3.0}'
    >>> parsed(f'some words\n{{"rate": 9.0, "changes": [{one}, {one}]}}\n').changes[0][1].gap
    2.0
    """
    told = json.loads(output.splitlines()[-1])
    found = [Restart(**each) for each in told["changes"]]
    return Told(told["rate"], tuple(zip(found[::2], found[1::2], strict=True)))
