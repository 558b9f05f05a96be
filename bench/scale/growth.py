"""What an event costs as there is more input, and as there are more keys.

A program with state by key, in tasks as a worker calls them: filter, columns, sums by key in
windows of ten seconds each five. Processor time a row, behind a warm-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
import polars as pl

import anabranch as ab
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.kernels.tasks import Tasks
from bench.workloads import mixer

NAMES = ("growth-input", "growth-keys")
EPOCH, PER_SECOND = 100_000, 100_000
"""Rows of an epoch, and of a second of event time."""
SCHEMA = pl.Schema({"t": pl.Datetime("us"), "k": pl.Int64(), "v": pl.Int64()})


@dataclass(frozen=True, slots=True)
class Size:
    """Of a run."""

    rows: int
    keys: int

    @property
    def epochs(self) -> int:
        """As many as rows need."""
        return self.rows // EPOCH


BASE, QUICK = Size(1_000_000, 10_000), Size(200_000, 1_000)


def program() -> ab.Program:
    """Sums by key in sliding windows."""
    made = ab.Program("growth")
    source = ab.sources.Records([], schema=SCHEMA)
    (
        made.read(source, name="in", event_time="t")
        .filter(pl.col("v") % 10 != 0)
        .with_columns(w=pl.col("v") * 3)
        .window(ab.sliding("10 s", "5 s"), by="k")
        .agg(total=ab.sum("w"), rows=ab.count())
        .write(ab.sinks.Memory("out"))
    )
    return made


def epoch(number: int, keys: int) -> pl.DataFrame:
    """The rows of one epoch."""
    n = np.arange(number * EPOCH, (number + 1) * EPOCH, dtype=np.int64)
    times = pl.Series(n * (1_000_000 // PER_SECOND)).cast(pl.Datetime("us"))
    drawn = mixer.below(keys, n.astype(np.uint64), seed=9, field=0).astype(np.int64)
    return pl.DataFrame({"t": times, "k": drawn, "v": n})


def per_event(stand: Stand, size: Size) -> list[float]:
    """Nanoseconds of processor time a row, from one window to the next."""
    tasks, took = Tasks(program()), list[float]()
    for number in range(size.epochs + _WARM):
        given = epoch(number, size.keys)
        run = _run(tasks, given)
        seconds = stand.seconds(run)()
        if number >= _WARM:
            took.append(seconds / EPOCH * 1e9)
    # A window fires each fifth epoch: whole rounds of five are what an event costs.
    rounds = [took[at : at + _ROUND] for at in range(0, len(took) - _ROUND + 1, _ROUND)]
    return [sum(each) / len(each) for each in rounds] or took


_WARM, _ROUND = 15, 5
"""Epochs: until the first windows are full, and from one window to the next."""


def _run(tasks: Tasks, given: pl.DataFrame) -> Callable[[], object]:
    return lambda: tasks.epoch([given])


def measured(stand: Stand, name: str) -> Iterator[Row]:
    """By how much input there is, or by how many keys."""
    base = QUICK if stand.settings.quick else BASE
    if name == "growth-input":
        sizes = {f"{times} x": Size(base.rows * times, base.keys) for times in (1, 4, 16)}
    else:
        # As much for all that the most keys fill: a window has a million rows.
        counts = (1_000, 10_000) if stand.settings.quick else (1_000, 10_000, 100_000, 1_000_000)
        sizes = {f"{keys:,} keys": Size(2 * base.rows, keys) for keys in counts}
    stand.progress.begin(name, len(sizes))
    samples = dict[str, list[float]]()
    for system, size in sizes.items():
        samples[system] = per_event(stand, size)
        stand.progress.step(system)
    first = next(iter(sizes))
    metric = Metric(name, "cost_per_event", "ns")
    yield from compared(metric, samples, [(each, first) for each in sizes if each != first])
    worst = max(median(values) for values in samples.values()) / median(samples[first])
    stand.notes.append(f"{name}: the dearest is {worst:.2f} times the first.")
