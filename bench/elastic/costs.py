"""What state costs while nothing changes: writing it, dividing it, having much of it."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import anabranch as ab
from anabranch.runtime.assembly import Settings
from anabranch.spark.executor import SparkExecutor
from bench.elastic import checkpoints
from bench.elastic.arriving import Arriving, program, require_right
from bench.elastic.ground import CORES, Ground, bytes_of, in_turns
from bench.elastic.watched import Commit, Executing, Watched, throughput
from bench.epochs.running import run
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

WAYS: dict[str, Executing] = {
    "anabranch": SparkExecutor,
    "none": checkpoints.none,
    "synchronous": checkpoints.synchronous,
}
HELD = 8
"""Of so many bytes of state one may be in memory, of `state` that is `bounded`."""
EPOCH = 100_000
"""Rows of an epoch of `slices` and `state`."""


@dataclass(frozen=True, slots=True)
class Written:
    """What commits tell of a stretch at a steady rate."""

    worst: float
    """Seconds from cut to commit, of the epoch that took longest."""
    mean: float
    bytes: float
    """Of state, an epoch."""

    @classmethod
    def of(cls, commits: list[Commit]) -> Written:
        """Sum up.

        >>> Written.of([Commit(0.0, 1, 5, 5, 2, 80, 0, (1.0, 2.0))])
        Written(worst=2.0, mean=1.5, bytes=40.0)
        """
        latencies = [each for commit in commits for each in commit.latencies]
        epochs = sum(commit.epochs for commit in commits)
        return cls(max(latencies), fmean(latencies), sum(each.written for each in commits) / epochs)


def checkpoint(stand: Stand, here: Ground, size: str) -> list[Row]:
    """Ours beside none and beside one for which an epoch waits: a query each, the same rate."""
    case = f"checkpoint-{size}"
    with ExitStack() as stack:
        queries = {
            name: stack.enter_context(here.sized(size, lanes=CORES, executing=way))
            for name, way in WAYS.items()
        }
        state, rate = queries["anabranch"].state, here.rate(queries["anabranch"])
        systems = {
            name: partial(_steady, query, rate, here.scale.epochs)
            for name, query in queries.items()
        }
        runs, _ = in_turns(stand, case, systems)
        for query in queries.values():
            query.finish()
    worst = {name: [each.worst for each in some] for name, some in runs.items()}
    mean = {name: [each.mean for each in some] for name, some in runs.items()}
    written = {name: [each.bytes for each in some] for name, some in runs.items() if name != "none"}
    against = [("anabranch", "none"), ("anabranch", "synchronous")]
    return [
        *compared(Metric(case, "worst_epoch", "s"), worst, against),
        *compared(Metric(case, "mean_epoch", "s"), mean, against),
        *compared(Metric("checkpoint-bytes", "bytes_per_epoch", "B"), written, against[1:]),
        bare(Metric(case, "state", "MB"), "anabranch", [state / 1e6]),
        bare(Metric(case, "rate", "rows/s"), "anabranch", [rate]),
    ]


def _steady(query: Watched, rate: float, commits: int) -> Written:
    query.settle(rate)
    known = len(query.commits)
    query.await_commits(commits)
    found = query.commits[known:]
    query.rest()
    return Written.of(found)


def slices(stand: Stand, here: Ground, count: int) -> list[Row]:
    """One lane whose state is in so many slices, beside one that is not divided."""
    case = f"slices-{count}"
    systems = {f"slices-{each}": partial(_sliced, here, each) for each in (count, 1)}
    values = stand.race(case, systems)
    return compared(Metric(case, "throughput", "rows/s"), values, [(case, "slices-1")])


def _sliced(here: Ground, count: int) -> float:
    source = Arriving(here.scale.slice_keys, here.scale.slice_rows)
    with tempfile.TemporaryDirectory(dir=here.home) as home:
        settings = Settings(ab.available_now(max_rows=EPOCH), lanes=1, slices=count)
        ran = run(here.sc, program(source, Path(home)), settings)
        require_right(Path(home), ran.rows, source.keys)
    return ran.throughput


def state(stand: Stand, here: Ground, size: str) -> list[Row]:
    """How long 100,000 rows of a backlog take with much state, in memory or not, and hardly any."""
    case, little = f"state-{size}", bytes_of(size) // CORES // HELD
    with ExitStack() as stack:
        queries = {
            "anabranch": stack.enter_context(here.sized(size, lanes=CORES)),
            "bounded": stack.enter_context(here.sized(size, lanes=CORES, memory=little)),
            "few-keys": stack.enter_context(here.watched(here.scale.few_keys, lanes=CORES)),
        }
        mb = queries["anabranch"].state / 1e6
        values = stand.race(case, {name: partial(_taken, here, q) for name, q in queries.items()})
        for query in queries.values():
            query.finish()
    return [
        *compared(
            Metric(case, "time_per_100k", "s"),
            values,
            [("anabranch", "few-keys"), ("bounded", "anabranch")],
        ),
        bare(Metric(case, "state", "MB"), "anabranch", [mb]),
    ]


def _taken(here: Ground, query: Watched) -> float:
    begin, end = query.flood(here.scale.probe, EPOCH)
    return 100_000 / throughput(query.commits, begin, end)
