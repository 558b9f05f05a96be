"""What epochs under way cost and bring: disorder, watermarks, priority, a slow partition.

All cases run on Spark, local[2], one after the other in one process; the variants of a case take
turns. After every run its output, content and order, is compared with what plain Polars gives for
the same records.

`disorder`: word count over the same records as they happened (`in-order`) and with 40 % of them an
epoch early (`disorder-40`): they belong behind the watermark with which the epoch ends in which
they arrive. An epoch has the rows of a window. Where nothing is early nothing is waited for: the
lateness that `disorder-40` needs, one epoch, is part of what it costs.

`watermarks`: word count over the same records in epochs of 1 million rows (`watermarks-1x`) and of
10,000 (`watermarks-100x`), a watermark behind each.

`epochs-in-flight`: word count, 40 % of the records early, with as many epochs under way as there
are by default (`in-flight`), with one (`one-at-a-time`), and with records put into the order of
their times ahead of the windows (`hold-and-sort`).

`small-epochs`: word count, a backlog of epochs of 1,000 rows.

`priority`: word count, epochs of 1,000 rows that become due at half the rate at which such a
backlog is worked off. `priority`: lanes' work, which is all that watermarks cause, goes into every
cycle. `no-priority`: it waits until there is nothing left to read, as evaluators do without
priorities in StreamBox (9.2): they drain one place, then the next.

`slow-partition`: one of four partitions takes a fifth of a second to read, whatever is in it.
`utilisation` is how long tasks were at work, of all the time of all slots.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import polars as pl

import anabranch as ab
from anabranch.epoch.triggers import Trigger
from anabranch.runtime.assembly import Settings
from anabranch.scheduling.session_machine import First
from anabranch.spark.session import spark_context
from bench.epochs import slow, words
from bench.epochs.paced import Paced
from bench.epochs.running import Ran, require_equal, run
from bench.epochs.slow import OneSlow
from bench.epochs.words import Records, Words
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared

NOTES = (
    (
        "StreamBox's word count (texts of 17 words, Zipf, windows of 1 s) over texts that are "
        "replayed from memory, on Spark, local[2], into Parquet files; slow-partition counts keys. "
        "Throughput is rows of a run by the time from its first look at the source to its last "
        "commit. After every run all of its output, in order, was compared with plain Polars'."
    ),
    (
        "disorder: epochs of 1 million rows, as many as a window has. 40 % of the rows come 1 "
        "million rows early, so an epoch ends with a watermark that they are behind; StreamBox "
        "lost 7 % (Miao et al. 2017, figure 7). watermarks: epochs of 1 million and of 10,000 "
        "rows; StreamBox lost 20 % (figure 11), and far more with epochs of 1,000 (small-epochs)."
    ),
    (
        "epochs-in-flight: epochs of 50,000 rows, 40 % of them 50,000 rows early. hold-and-sort: "
        "`in_time_order()` ahead of the windows. StreamBox without epochs in parallel, its hold "
        "and sort, lost 25 to 87 % (figure 9), and nothing was sorted there."
    ),
    (
        "priority: latency of an epoch is from when its last row is due to when its commit is "
        "published; the first fifth of a run is not counted. no-priority: heads first."
    ),
    (
        "slow-partition: of four partitions one takes 0.2 s a read, in which the task waits. "
        "utilisation: seconds in which tasks were at work or waited for that partition, by "
        "seconds of the run and 2 slots."
    ),
)

_T = TypeVar("_T")

CORES = 2
EARLY = 0.4


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run."""

    epoch: int = 1_000_000
    """Rows of an epoch, and of a window, in `disorder` and of `watermarks-1x`."""
    epochs: int = 4
    times: int = 100
    """How many watermarks more, and smaller epochs."""
    small: int = 50_000
    """Rows of an epoch of `epochs-in-flight`."""
    smalls: int = 20
    due: int = 1_000
    """Rows of an epoch of `priority`."""
    dues: int = 300
    slow_rows: int = 2_000
    """Rows of an epoch and partition of `slow-partition`."""
    slow_epochs: int = 24
    wait: float = 0.2


FULL = Scale()
QUICK = Scale(100_000, 3, 100, 10_000, 6, 1_000, 60, 500, 8, 0.1)
TINY = Scale(1_000, 3, 10, 300, 3, 100, 12, 100, 3, 0.01)


@dataclass(frozen=True, slots=True)
class Ground:
    """Spark, a place for output, and how much to run."""

    sc: Any
    home: Path
    scale: Scale

    def run(
        self,
        program: Callable[[ab.sinks.Sink], ab.Program],
        expected: pl.DataFrame,
        settings: Settings,
    ) -> Ran:
        """Run a program to its end and compare what it wrote."""
        output = Path(tempfile.mkdtemp(dir=self.home))
        found = run(self.sc, program(ab.sinks.Files(output, format="parquet")), settings)
        require_equal(expected, output)
        return found

    def words(self, records: Records, epoch: int, *, held: bool = False, **options: Any) -> Ran:
        """Word count over records that are all there, in epochs of so many rows."""
        return self.run(
            lambda sink: words.counted(Words(records), sink, held=held),
            words.expected(records.rows, records.rate),
            settings(ab.available_now(max_rows=epoch), **options),
        )


def settings(trigger: Trigger, **options: Any) -> Settings:
    """As a user's query has them, but for these."""
    return Settings(trigger, lanes=CORES, **options)


def measure(stand: Stand) -> list[Row]:
    """All cases."""
    with ground(QUICK if stand.settings.quick else FULL) as here:
        return [row for case in CASES for row in case(stand, here)]


@contextmanager
def ground(scale: Scale) -> Iterator[Ground]:
    """Spark and a place for output, for as long as they are needed."""
    attached = spark_context(master=f"local[{CORES}]")
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as home:
            yield Ground(attached.sc, Path(home), scale)
    finally:
        attached.stop()


def disorder(stand: Stand, here: Ground) -> list[Row]:
    epoch = here.scale.epoch
    ordered = Records(here.scale.epochs * epoch, rate=epoch)
    early = replace(ordered, early=EARLY, by=epoch)
    runs = _raced(
        stand,
        "disorder",
        {
            "in-order": lambda: here.words(ordered, epoch),
            "disorder-40": lambda: here.words(early, epoch),
        },
    )
    return _throughput("disorder", runs, [("disorder-40", "in-order")])


def watermarks(stand: Stand, here: Ground) -> list[Row]:
    epoch, more = here.scale.epoch, f"watermarks-{here.scale.times}x"
    records = Records(here.scale.epochs * epoch, rate=epoch)
    runs = _raced(
        stand,
        "watermarks",
        {
            "watermarks-1x": lambda: here.words(records, epoch),
            more: lambda: here.words(records, epoch // here.scale.times),
        },
    )
    together = {name: [each.epochs_a_job for each in some] for name, some in runs.items()}
    metric = Metric("watermarks", "epochs_per_job", "epochs")
    return [
        *_throughput("watermarks", runs, [(more, "watermarks-1x")]),
        *compared(metric, together, []),
    ]


def epochs_in_flight(stand: Stand, here: Ground) -> list[Row]:
    epoch = here.scale.small
    records = Records(here.scale.smalls * epoch, rate=epoch, early=EARLY, by=epoch)
    runs = _raced(
        stand,
        "epochs-in-flight",
        {
            "in-flight": lambda: here.words(records, epoch),
            "one-at-a-time": lambda: here.words(records, epoch, in_flight=1),
            "hold-and-sort": lambda: here.words(records, epoch, held=True),
        },
    )
    pairs = [("one-at-a-time", "in-flight"), ("hold-and-sort", "in-flight")]
    return _throughput("epochs-in-flight", runs, pairs)


def priority(stand: Stand, here: Ground) -> list[Row]:
    epoch, count = here.scale.due, here.scale.dues
    records = Records(count * epoch, rate=count * epoch // 5)
    small = _raced(stand, "small-epochs", {"1k-rows": lambda: here.words(records, epoch)})
    backlog = median(each.throughput for each in small["1k-rows"])

    def latencies(first: First) -> list[float]:
        source = Paced(records, per_second=backlog / 2, epoch_rows=epoch)
        ran = here.run(
            lambda sink: words.counted(source, sink),
            words.expected(records.rows, records.rate),
            settings(ab.epochs("1 ms", max_rows=epoch), first=first),
        )
        return source.latencies(ran.commits)[count // 5 :]

    runs = _raced(
        stand,
        "priority",
        {
            "priority": lambda: latencies(First.LANES),
            "no-priority": lambda: latencies(First.HEADS),
        },
    )
    stand.notes.append(f"priority: {backlog / 2:,.0f} rows a second, half of a backlog's.")
    rows = _throughput("small-epochs", small, [])
    for name, share in (("latency_p50", 50), ("latency_p99", 99)):
        found = {
            system: [float(np.percentile(each, share)) * 1000 for each in some]
            for system, some in runs.items()
        }
        metric = Metric("priority", name, "ms")
        rows += compared(metric, found, [("no-priority", "priority")])
    return rows


def slow_partition(stand: Stand, here: Ground) -> list[Row]:
    scale = here.scale
    rows = scale.slow_rows * scale.slow_epochs
    source = OneSlow(rows, rate=scale.slow_rows * slow.PARTITIONS, wait=scale.wait)

    def ran(**options: Any) -> Ran:
        trigger = ab.available_now(max_rows=scale.slow_rows)
        return here.run(
            lambda sink: slow.counted(source, sink),
            slow.expected(source),
            settings(trigger, **options),
        )

    runs = _raced(
        stand, "slow-partition", {"in-flight": ran, "one-at-a-time": lambda: ran(in_flight=1)}
    )
    busy = {name: [each.utilisation(CORES) for each in some] for name, some in runs.items()}
    pairs = [("one-at-a-time", "in-flight")]
    return [
        *compared(Metric("slow-partition", "utilisation", "share"), busy, pairs),
        *_throughput("slow-partition", runs, pairs),
    ]


CASES: tuple[Callable[[Stand, Ground], list[Row]], ...] = (
    disorder,
    watermarks,
    epochs_in_flight,
    priority,
    slow_partition,
)


def _raced(
    stand: Stand, case: str, variants: Mapping[str, Callable[[], _T]]
) -> dict[str, list[_T]]:
    """All that the variants' runs gave, in turns, without the warm-up rounds."""
    found: dict[str, list[_T]] = {name: [] for name in variants}

    def contender(name: str) -> Callable[[], float]:
        def one() -> float:
            found[name].append(variants[name]())
            return 0.0

        return one

    stand.race(case, {name: contender(name) for name in variants})
    return {name: runs[-stand.settings.runs :] for name, runs in found.items()}


def _throughput(
    case: str, runs: Mapping[str, Sequence[Ran]], pairs: Sequence[tuple[str, str]]
) -> list[Row]:
    values = {name: [each.throughput for each in some] for name, some in runs.items()}
    return compared(Metric(case, "throughput", "rows/s"), values, pairs)
