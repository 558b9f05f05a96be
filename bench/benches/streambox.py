"""StreamBox's six benchmarks, rows a second and core, beside what its authors measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.kernels import single
from bench.kernels.tasks import Tasks
from bench.workloads.streambox import BENCHMARKS, Benchmark, Replay

PUBLISHED = "streambox, published"
NOTES = (
    (
        "anabranch: head and lane tasks as a worker calls them, one lane, Polars with one thread, "
        "rows a second of processor time; no executor, exchange or file. A buffer is filled before "
        "and replayed, bundle by bundle; event time is made as it is replayed. Windows are fixed, "
        "1 s, of 1 million records (join: of each stream; netmon 500,000); the watermark follows "
        "each second. tweets: ten epochs a second, since each has all words in memory at once."
    ),
    (
        "streambox, published: no measurement of ours. Its regression table (word count 5200, grep "
        "38500, join 5200, distinct 2000, netmon 1000, tweets 5000 thousand records a second; "
        "1 s target latency) divided by the 56 cores of that machine, Miao et al., USENIX ATC "
        "2017, and the code published with it: C++, other data, other processors. join: its rate "
        "is that of each stream, so ours, of both, is to be halved."
    ),
)
WARM, COUNTED = 1, 2
"""Seconds of event time in a run."""
QUICK = 10
"""So many times fewer rows."""


def measure(stand: Stand) -> list[Row]:
    """In a process of its own, with one thread."""
    return single.measured(__name__, stand)


def cases(stand: Stand) -> list[Row]:
    """One after the other."""
    stand = replace(stand, clock=time.process_time)
    return [row for each in BENCHMARKS for row in _case(stand, each)]


def _case(stand: Stand, benchmark: Benchmark) -> list[Row]:
    replay = benchmark.replay(benchmark.rows // (QUICK if stand.settings.quick else 1))
    samples = stand.race(benchmark.name, {"anabranch": _timed(stand, benchmark, replay)})
    beside = {**samples, PUBLISHED: (float(benchmark.per_core),)}
    metric = Metric(benchmark.name, "throughput", "rows/s")
    return compared(metric, beside, [("anabranch", PUBLISHED)])


def _timed(stand: Stand, benchmark: Benchmark, replay: Replay) -> Callable[[], float]:
    def run() -> float:
        tasks = Tasks(benchmark.program())
        for _ in played(tasks, benchmark, replay, range(WARM)):
            pass

        def rest() -> None:
            for _ in played(tasks, benchmark, replay, range(WARM, WARM + COUNTED)):
                pass

        return COUNTED * replay.rows / stand.seconds(rest)()

    return run


def played(tasks: Tasks, benchmark: Benchmark, replay: Replay, seconds: range) -> Iterator[int]:
    """Take seconds through the tasks, an epoch at a time; how many rows came out of each."""
    for second in seconds:
        waiting = []
        for bundle in replay.second(second):
            waiting.append(bundle)
            if len(waiting) == benchmark.at_once:
                yield sum(frame.height for frame in tasks.epoch(waiting))
                waiting = []
        if waiting:
            yield sum(frame.height for frame in tasks.epoch(waiting))
