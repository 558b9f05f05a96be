"""How rows are bundled where they come in: StreamBox's rule beside ours, on Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import anabranch as ab
from anabranch.clock import SystemClock
from anabranch.epoch.bundles import Bundles, EvenBundles, StreamBoxBundles
from anabranch.program.graph import Graph
from anabranch.runtime.assembly import Settings, assemble
from anabranch.spark.executor import SparkExecutor
from anabranch.spark.session import spark_context
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.workloads import ysb
from bench.workloads.ysb_files import FileSet

NOTES = (
    (
        "Campaign views (YSB) on Spark, local[2]. even: as few bundles as keep all slots busy, "
        "which is Anabranch's rule; streambox: as many bundles of an epoch as evaluators, at most "
        "80,000 rows, halved for every 10 % that ingress falls, at least 1,000 (Miao et al. 2017, "
        "section 8); whole: one bundle a split."
    ),
    (
        "backlog: Parquet files of 800,000 rows, all there at the beginning, an epoch each; rows a "
        "second of the whole run. alone: epochs of 400,000 generated rows, the next one cut when "
        "the one before is committed; median seconds from cut to commit. Both include the "
        "sources' own work. The first epochs are not counted in 'alone'."
    ),
)

CORES = 2
FILE_ROWS, FILES = 800_000, 24
EPOCH_ROWS, EPOCHS, SKIPPED = 400_000, 14, 4

Policy = Callable[[], Bundles]
POLICIES: dict[str, Policy] = {
    "even": lambda: EvenBundles(CORES),
    "streambox": lambda: StreamBoxBundles(CORES),
    "whole": lambda: EvenBundles(0),
}
PAIRS = [("streambox", "even"), ("whole", "even")]


def measure(stand: Stand) -> list[Row]:
    """Race the policies on both workloads."""
    quick = stand.settings.quick
    attached = spark_context(master=f"local[{CORES}]")
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as home:
            files = FileSet(Path(home) / "files", FILE_ROWS, FILE_ROWS, 6 if quick else FILES)
            files.write()
            backlog = {
                name: lambda policy=policy: _backlog(attached.sc, files, policy())
                for name, policy in POLICIES.items()
            }
            alone = {
                name: lambda policy=policy: _alone(attached.sc, policy(), 6 if quick else EPOCHS)
                for name, policy in POLICIES.items()
            }
            return [
                *compared(
                    Metric("backlog", "throughput", "rows/s"), stand.race("backlog", backlog), PAIRS
                ),
                *compared(Metric("alone", "latency", "s"), stand.race("alone", alone), PAIRS),
            ]
    finally:
        attached.stop()


def _backlog(sc: Any, files: FileSet, policy: Bundles) -> float:
    """Rows a second of a run over all files."""
    source = ab.sources.Files(files.directory, format="parquet", bounded=True)
    graph = ysb.campaign_views(source).freeze()
    began = time.perf_counter()
    _run(sc, graph, ab.available_now(max_rows=FILE_ROWS), policy)
    return files.count * files.rows / (time.perf_counter() - began)


def _alone(sc: Any, policy: Bundles, epochs: int) -> float:
    """The median latency of epochs that have the machine to themselves."""
    source = ysb.source(epochs * EPOCH_ROWS, rate=EPOCH_ROWS)
    graph = ysb.campaign_views(source).freeze()
    found = _run(sc, graph, ab.available_now(max_rows=EPOCH_ROWS), policy, in_flight=1)
    return median(found[SKIPPED:] or found)


def _run(sc: Any, graph: Graph, trigger: Any, policy: Bundles, in_flight: int = 16) -> list[float]:
    """Run to the end; the latencies of its epochs, in seconds."""
    latencies: list[float] = []
    executor = SparkExecutor(sc, graph)
    settings = Settings(trigger, lanes=CORES, bundles=policy, in_flight=in_flight)
    assembled = assemble(graph, settings, executor, SystemClock())
    loop = assembled.loop
    loop.on_progress = lambda told: latencies.extend(
        each / 1000 for each in told["anabranch"]["latencyMs"]
    )
    try:
        loop.warm_up()
        while not loop.over:
            loop.step()
    finally:
        loop.close()
        assembled.close()
    return latencies
