"""Which shape Spark jobs should have: two stages, one job each, or one stage and files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from anabranch.runtime.exchange import exchange_directory
from anabranch.spark.session import spark_context
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared
from bench.shapes.shapes import JobEach, Measured, OneStage, Shape, TwoStages
from bench.shapes.workload import Place, Workload

NOTES = (
    (
        "Campaign views over Parquet files, 2 partitions, 2 lanes, 2 cores; an epoch and lane "
        "write a state file and, when windows end, a Parquet file; the driver a commit file. "
        "Latency: from the start of an epoch's heads to its commit, all shapes running as fast as "
        "they can. Every run is checked: views counted in lanes equal views in the files."
    ),
    (
        "a: one two-stage job a cycle. a-overlap: with the next map stage submitted before. b: one "
        "two-stage job an epoch and query, 4 map stages in flight. c-apart: one-stage jobs, heads "
        "and lanes in turns. c: lanes of an epoch and heads of the next in one job."
    ),
)

MASTERS = ("local[2]", "local-cluster[2,1,1024]")
# Rows an epoch, queries, epochs a run: a run takes about a second.
POINTS = (
    (10_000, 1, 24),
    (200_000, 1, 20),
    (800_000, 1, 12),
    (4_000_000, 1, 6),
    (10_000, 20, 3),
    (200_000, 20, 3),
)
QUICK_POINTS = ((10_000, 1, 10), (200_000, 1, 10))


def measure(stand: Stand) -> list[Row]:
    rows: list[Row] = []
    with _directory() as directory:
        for master in MASTERS[:1] if stand.settings.quick else MASTERS:
            with _shapes(master) as shapes:
                for size, queries, epochs in QUICK_POINTS if stand.settings.quick else POINTS:
                    work = Workload.prepare(directory, size, queries, epochs)
                    name = f"{master} {_short(size)} rows, queries: {queries}"
                    rows += _case(stand, name, shapes, work)
    return rows


def _case(stand: Stand, case: str, shapes: dict[str, Shape], work: Workload) -> list[Row]:
    latencies: dict[str, list[Measured]] = {name: [] for name in shapes}

    def contender(name: str, shape: Shape) -> Callable[[], float]:
        def run() -> float:
            with _place(work.directory) as place:
                measured = shape.run(work, place)
            assert measured.counted == work.expected(), (name, measured.counted, work.expected())
            latencies[name].append(measured)
            return work.rows * work.queries * work.epochs / measured.seconds

        return run

    found = stand.race(case, {name: contender(name, shape) for name, shape in shapes.items()})
    pairs = [(name, "a") for name in shapes if name != "a"]
    rows = compared(Metric(case, "throughput", "rows/s"), found, pairs)
    for label, at in (("p50", 50), ("p90", 90)):
        metric = Metric(case, f"latency {label}", "s")
        for name, runs in latencies.items():
            counted = runs[stand.settings.warmups :]
            rows.append(bare(metric, name, [_percentile(each.latencies, at) for each in counted]))
    return rows


@contextmanager
def _shapes(master: str) -> Iterator[dict[str, Shape]]:
    attached, exchange = spark_context(master=master, app_name="shapes"), exchange_directory()
    sc: Any = attached.sc
    try:
        yield {
            "a": TwoStages(sc, overlapping=False),
            "a-overlap": TwoStages(sc, overlapping=True),
            "b": JobEach(sc, in_flight=4),
            "c-apart": OneStage(sc, exchange.path, together=False),
            "c": OneStage(sc, exchange.path, together=True),
        }
    finally:
        attached.stop()
        exchange.remove()


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shapes-") as name:
        yield Path(name)


@contextmanager
def _place(directory: Path) -> Iterator[Place]:
    place = Place.make(directory)
    try:
        yield place
    finally:
        shutil.rmtree(place.directory)


def _percentile(values: list[float], at: int) -> float:
    return median(values) if at == 50 else quantiles(values, n=100, method="inclusive")[at - 1]


def _short(rows: int) -> str:
    return f"{rows // 1_000_000} M" if rows >= 1_000_000 else f"{rows // 1000} k"
