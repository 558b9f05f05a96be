"""One run of a query on Spark, from its first epoch to its last commit, and what it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.clock import SystemClock
from anabranch.runtime.assembly import Settings, assemble
from anabranch.spark.executor import SparkExecutor

POLL_S = 0.001
"""How long a query without work waits before it looks at its source again."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What was made durable together."""

    at: float
    """Seconds of the clock, when it was published."""
    epochs: int
    rows: int
    jobs: int
    """Since the commit before."""
    busy: float
    """Seconds in which tasks were at work, of all tasks together."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A whole run."""

    seconds: float
    commits: Sequence[Commit]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.commits)

    @property
    def throughput(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def epochs_a_job(self) -> float:
        return sum(each.epochs for each in self.commits) / sum(each.jobs for each in self.commits)

    def utilisation(self, slots: int) -> float:
        """The share of the time of all slots in which tasks were at work.

        >>> Ran(2.0, [Commit(1.0, 1, 10, 1, 1.0), Commit(2.0, 1, 10, 1, 2.0)]).utilisation(2)
        0.75
        """
        return sum(each.busy for each in self.commits) / (slots * self.seconds)


def run(sc: Any, program: ab.Program, settings: Settings) -> Ran:
    """Run to the end; its processes are there before the time begins."""
    graph, commits = program.freeze(), list[Commit]()
    assembled = assemble(graph, settings, SparkExecutor(sc, graph), SystemClock())
    loop = assembled.loop
    loop.on_progress = lambda told: commits.append(_commit(told))
    try:
        loop.warm_up()
        began = time.perf_counter()
        while not loop.over:
            if not loop.step():
                time.sleep(POLL_S)
        return Ran(time.perf_counter() - began, commits)
    finally:
        loop.close()
        assembled.close()


def _commit(told: dict[str, Any]) -> Commit:
    ours = told["anabranch"]
    busy = sum(ours["tasksMs"].values()) / 1000
    return Commit(
        time.monotonic(), len(ours["latencyMs"]), told["numInputRows"], ours["jobs"], busy
    )


def require_equal(expected: pl.DataFrame, output: Path) -> None:
    """All rows in all files, in order: a number for a wrong answer is no number."""
    found = pl.concat(map(pl.read_parquet, sorted(output.glob("*.parquet"))))
    assert_frame_equal(expected, found.cast(expected.schema))
