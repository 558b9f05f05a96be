"""How cost grows: with keys that are idle, with slices, with rows; and what a key takes up."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import polars as pl

import anabranch as ab
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared
from bench.kernels import cases
from bench.kernels.tasks import Tasks

IDLE = (10, 1_000, 100_000, 1_000_000)
SLICES = (1, 16, 128, 256)
SIZES = (2_000, 20_000, 200_000, 800_000)
BATCH = 20_000
"""Rows of an epoch, while other keys are idle."""
EPOCHS = 10
WINDOW = "1 h"

Program = Callable[[], ab.Program]
IDLING: dict[str, Program] = {
    "keyed": cases.keyed,
    "window": lambda: cases.windows(ab.tumbling(WINDOW), count=ab.count(), total=ab.sum("n")),
    "sliding": lambda: cases.windows(ab.sliding(WINDOW, "30 min"), count=ab.count()),
}


def measure(stand: Stand) -> list[Row]:
    """All of it."""
    quick = stand.settings.quick
    return [
        *(row for name in IDLING for row in idle_keys(stand, name, IDLE[: 3 if quick else 4])),
        *(row for name in ("keyed", "window") for row in slices(stand, name)),
        *sizes(stand, SIZES[: 3 if quick else 4]),
        *memory(100_000 if quick else 1_000_000),
    ]


def idle_keys(stand: Stand, name: str, counts: tuple[int, ...]) -> list[Row]:
    """Seconds of an epoch of the same rows, while so many other keys have state."""
    batches = [_batch(epoch) for epoch in range(1, 200)]
    runs = {
        f"{count} idle": _going_on(stand, filled(IDLING[name], count), batches) for count in counts
    }
    samples = stand.race(f"idle keys, {name}", runs)
    first, *others = samples
    metric = Metric(f"idle keys, {name}", "seconds", "s")
    return compared(metric, samples, [(other, first) for other in others])


def _going_on(stand: Stand, tasks: Tasks, batches: list[pl.DataFrame]) -> Callable[[], float]:
    """Each run goes on where the one before ended: the median epoch of the next few."""
    ahead = iter(batches)

    def run() -> float:
        timed = [stand.seconds(partial(tasks.epoch, [next(ahead)]))() for _ in range(EPOCHS)]
        return median(timed)

    return run


def filled(program: Program, keys: int) -> Tasks:
    """Tasks with the state of this many keys that are in none of the batches."""
    tasks = Tasks(program())
    tasks.epoch([_idle(keys)])
    return tasks


def slices(stand: Stand, name: str) -> list[Row]:
    """Seconds of an epoch of many keys with the state in so many slices."""
    batches = [cases.many_keys(epoch, cases.ROWS // 4) for epoch in range(100)]
    runs = {
        _slices(number): _going_on(stand, Tasks(IDLING[name](), number), batches)
        for number in SLICES
    }
    samples = stand.race(f"slices, {name}", runs)
    first, *others = samples
    metric = Metric(f"slices, {name}", "seconds", "s")
    return compared(metric, samples, [(other, first) for other in others])


def sizes(stand: Stand, counts: tuple[int, ...]) -> list[Row]:
    """Rows a second of bundles of any size."""

    def run(rows: int) -> float:
        batches = [cases.events(epoch, rows) for epoch in range(4)]
        tasks = Tasks(cases.counted())
        tasks.epoch([batches[0]])
        return rows / median(
            stand.seconds(partial(tasks.epoch, [batch]))() for batch in batches[1:]
        )

    samples = stand.race("rows of a bundle", {f"{each}": partial(run, each) for each in counts})
    metric = Metric("rows of a bundle", "throughput", "rows/s")
    return [bare(metric, system, values) for system, values in samples.items()]


def memory(keys: int) -> list[Row]:
    """Bytes of state a key and an open window: as columns, and as Python objects beside them."""
    rows = []
    for name, case in (("keyed", "a key"), ("window", "an open window")):
        tracemalloc.start()
        tasks = filled(IDLING[name], keys)
        objects, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        whole = sum(frame.estimated_size() for frame in tasks.state.whole().values())
        metric = Metric(f"state of {case}", "bytes", "B")
        rows += [
            bare(metric, "columns", [whole / keys]),
            bare(metric, "python objects", [objects / keys]),
        ]
    return rows


def _idle(keys: int) -> pl.DataFrame:
    """One row for each of some keys, the last rows of the first second."""
    numbers = np.arange(keys, dtype=np.int64)
    return pl.DataFrame(
        {
            "t": pl.repeat(0, keys, dtype=pl.Int64, eager=True).cast(pl.Datetime("us")),
            "k": -1 - numbers,
            "name": "idle-" + pl.Series(numbers).cast(pl.String),
            "kind": pl.repeat("view", keys, eager=True),
            "n": numbers,
            "x": numbers.astype(np.float64),
        },
        schema=cases.SCHEMA,
    )


def _batch(epoch: int) -> pl.DataFrame:
    return cases.events(epoch, BATCH)


def _slices(number: int) -> str:
    return "1 slice" if number == 1 else f"{number} slices"
