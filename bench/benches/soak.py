"""Whether memory, threads and files stay as they are at full speed: a soak of ten minutes.

A query with windows and with Python state by key runs on Spark as fast as it can, from a generator
that has no end, with a checkpoint, into files. Every two seconds it is looked at what the driver,
Spark's JVM, the lanes' and the heads' processes hold, and what lies in the checkpoint, in the
exchange, in Spark's own directory and in the sinks' staging. The first quarter of what was seen
behind the warm-up is compared with the last. What the sinks published grows by design and is told
all the same. At the end the output is compared with its closed form.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.api.query import Query
from anabranch.spark.session import spark_context
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared
from bench.soak import query as soaked
from bench.soak.series import SHARE, Series, behind
from bench.soak.usage import MB, PROC, Files, Processes, by_role, files_below, owned_directories

TIMED = True
NOTES = (
    (
        "YSB's campaign views (windows of 10 s) and users' purchases counted by a Python function, "
        "from a generator without an end, epochs of 50,000 rows, on Spark, local[2], with a "
        "checkpoint, into Parquet files. first, last: the quarters of what was seen behind the "
        "warm-up, one sample every 2 s; slope: the growth a minute of a line through all of it."
    ),
    (
        "Not counted is the warm-up: a fifth of the time, and at least 150 commits, of which the "
        "last 100 are kept, with the files of state that they need. flat: the median of the last "
        "quarter is at most 5 % above that of the first, and a little (16 MB, 4 threads or "
        "descriptors, 64 files)."
    ),
    (
        "memory: what of it is resident, shared pages in each process. heap: what the JVM still "
        "holds after a collection that was asked for, behind the warm-up and at the end. output is "
        "what the sinks have published: it grows by design. All of it was compared with its closed "
        "form."
    ),
)

MINUTES, QUICK_MINUTES = 10.0, 0.5
EPOCH_ROWS = 50_000
SAMPLE_S, TELL_S = 2.0, 10.0
WARM_SHARE, WARM_COMMITS = 0.2, 150
LEAST = 8
"""Samples behind the warm-up."""
SLACK = {"MB": 16.0, "threads": 4.0, "descriptors": 4.0, "processes": 0.0, "files": 64.0}
GROWS = "output"
"""The case that is to grow."""
FIRST, LAST = "first", "last"
"""Quarters, as systems of a report."""

_Figures = dict[tuple[str, str, str], float]
"""By case, metric and unit."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All that was seen at a moment."""

    at: float
    rows: int
    commits: int
    figures: _Figures


def measure(stand: Stand) -> list[Row]:
    """Run it, look at it, compare."""
    if not PROC.is_dir():
        message = "the soak reads what processes hold from /proc, which is not here"
        raise RuntimeError(message)
    default = QUICK_MINUTES if stand.settings.quick else MINUTES
    seconds = 60 * (stand.settings.minutes or default)
    with tempfile.TemporaryDirectory(prefix="anabranch-soak-") as home:
        samples, live = _soaked(Path(home), seconds)
    rows, notes = told(samples[_warm(samples, seconds) :], live)
    stand.notes.append(f"{seconds / 60:g} minutes, {len(samples)} samples with the warm-up's.")
    stand.notes.extend(notes)
    return rows


def _warm(samples: Sequence[Sample], seconds: float) -> int:
    """The first sample behind the warm-up."""
    at, commits = [each.at for each in samples], [each.commits for each in samples]
    return behind(at, WARM_SHARE * seconds, commits, WARM_COMMITS)


# Running


def _soaked(home: Path, seconds: float) -> tuple[list[Sample], tuple[float, float]]:
    """Run for so long; everything that was seen, and the heap behind the warm-up and at the end."""
    output, checkpoint = home / "out", home / "checkpoint"
    samples: list[Sample] = []
    live: list[float] = []
    with _running(soaked.program(output), checkpoint) as (query, sc):
        for sample in _watched(query, home, min(SAMPLE_S, seconds / 60)):
            samples.append(sample)
            if not live and _warm(samples, seconds) < len(samples):
                live.append(_live(sc))
            # On a slow machine it takes longer until there is something to compare.
            if sample.at >= seconds and len(samples) - _warm(samples, seconds) >= LEAST:
                break
            _tell(samples, seconds)
        live.append(_live(sc))
        query.stop()
        rows = query.statistics()["rows"]
    soaked.require_right(output, rows)
    return samples, (live[0], live[-1])


@contextmanager
def _running(program: ab.Program, checkpoint: Path) -> Iterator[tuple[Query, Any]]:
    attached = spark_context(master="local[2]")
    try:
        trigger = ab.epochs("1 ms", max_rows=EPOCH_ROWS)
        query = program.start(attached.sc, trigger=trigger, checkpoint=checkpoint)
        try:
            yield query, attached.sc
        finally:
            if query.is_active:
                query.stop(drain=False)
    finally:
        attached.stop()


def _watched(query: Query, home: Path, every: float) -> Iterator[Sample]:
    """Look at it again and again, from its first commit on."""
    began: float | None = None
    while not query.await_termination(every):
        if began is None and query.last_progress is not None:
            began = time.monotonic()
        if began is not None:
            yield _sample(query, home, time.monotonic() - began)
    message = "the query ended by itself"
    raise RuntimeError(message)


def _tell(samples: Sequence[Sample], seconds: float) -> None:
    """Say now and then how far it is."""
    every, sample = min(TELL_S, seconds / 6), samples[-1]
    before = samples[-2].at if len(samples) > 1 else 0.0
    if sample.at // every > before // every:
        print(f"bench: {_line(sample, seconds)}", file=sys.stderr, flush=True)


def _sample(query: Query, home: Path, at: float) -> Sample:
    totals = query.statistics()
    figures: _Figures = {}
    for role, held in by_role(os.getpid()).items():
        figures |= _of_processes(role, held)
    for name, folders in _places(home).items():
        found = [files_below(folder) for folder in folders]
        total = Files(sum(each.count for each in found), sum(each.size for each in found))
        figures[name, "files", "files"] = float(total.count)
        figures[name, "size", "MB"] = total.size / MB
    return Sample(at, totals["rows"], totals["commits"], figures)


def _of_processes(role: str, held: Processes) -> _Figures:
    return {
        (role, "memory", "MB"): held.memory / MB,
        (role, "threads", "threads"): float(held.threads),
        (role, "descriptors", "descriptors"): float(held.descriptors),
        (role, "processes", "processes"): float(held.count),
    }


def _places(home: Path) -> dict[str, list[Path]]:
    checkpoint, outputs = home / "checkpoint", [home / "out" / "views", home / "out" / "milestones"]
    owned = owned_directories()
    return {
        "checkpoint": [checkpoint],
        "checkpoint-commits": [checkpoint / "commits"],
        "checkpoint-epochs": [checkpoint / "epochs"],
        "checkpoint-state": [checkpoint / "state"],
        "exchange": [each for each in owned if "-exchange-" in each.name],
        "temp": [each for each in owned if "-exchange-" not in each.name],
        "staging": [each / "_staging" for each in outputs],
        GROWS: outputs,
    }


def _live(sc: Any) -> float:
    """MB of the JVM's heap that are still held after a collection."""
    sc._jvm.System.gc()  # noqa: SLF001 - there is no other way to ask
    beans = sc._jvm.java.lang.management.ManagementFactory  # noqa: SLF001
    return float(beans.getMemoryMXBean().getHeapMemoryUsage().getUsed()) / MB


def _line(sample: Sample, seconds: float) -> str:
    held = ", ".join(
        f"{role} {sample.figures[role, 'memory', 'MB']:,.0f} MB"
        for role in ("driver", "jvm", "lanes", "heads")
    )
    files = sample.figures["checkpoint", "files", "files"]
    return (
        f"soak: {sample.at:.0f} of {seconds:.0f} s, {sample.rows:,} rows, {sample.commits:,} "
        f"commits, {held}, checkpoint {files:,.0f} files"
    )


# Telling


def told(samples: Sequence[Sample], live: tuple[float, float]) -> tuple[list[Row], list[str]]:
    """Rows, and in words what is flat, what is not, and whether old commits were removed."""
    at = tuple(each.at for each in samples)
    heap = {LAST: live[1:], FIRST: live[:1]}
    rows = [*_rates(samples), *compared(Metric("jvm", "heap", "MB"), heap, [(LAST, FIRST)])]
    grown = ["jvm heap"] if live[1] > live[0] * SHARE + SLACK["MB"] else []
    for case, metric, unit in dict.fromkeys(key for each in samples for key in each.figures):
        series = Series(at, tuple(each.figures.get((case, metric, unit), 0.0) for each in samples))
        rows += _compared(Metric(case, metric, unit), series)
        if case != GROWS and not series.flat(SLACK[unit]):
            grown.append(f"{case} {metric} (by {series.a_minute:+.3g} {unit} a minute)")
    verdict = f"NOT FLAT: {', '.join(grown)}." if grown else "All but the output is flat."
    return rows, [verdict, _retention(samples)]


def _rates(samples: Sequence[Sample]) -> list[Row]:
    pairs = list(pairwise(samples))
    at = tuple(later.at for _, later in pairs)
    rates = tuple((b.rows - a.rows) / (b.at - a.at) for a, b in pairs)
    return _compared(Metric("query", "throughput", "rows/s"), Series(at, rates))


def _compared(metric: Metric, series: Series) -> list[Row]:
    quarters = {LAST: series.last, FIRST: series.first}
    pairs = [(LAST, FIRST)] if statistics.median(series.first) else []
    slope = Metric(metric.case, f"{metric.name}_slope", f"{metric.unit}/min")
    return [*compared(metric, quarters, pairs), bare(slope, "all", [series.a_minute])]


def _retention(samples: Sequence[Sample]) -> str:
    made = samples[-1].commits
    kept = max(each.figures["checkpoint-commits", "files", "files"] for each in samples)
    working = "works" if kept < made else "DOES NOT WORK"
    return f"Retention {working}: {made:,} commits were made, at most {kept:,.0f} files kept."
