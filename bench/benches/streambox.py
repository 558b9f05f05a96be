"""StreamBox's six benchmarks, rows a second and core, beside what its authors measured.

    ./x bench streambox                 # all six, half an hour
    ./x bench streambox grep tweets     # some of them; --save for results files of their own
    ./x bench streambox --quick         # a look: tasks alone

`anabranch`: on Spark, local[2], the highest rate at which 99 of 100 results are seen within 1 s of
the end of their window (join: of their newer record), by halving below what tasks alone could do on
two cores; half of it counts as a core's. An epoch every 200 ms. `anabranch, 100 ms`: within 100 ms,
an epoch every 20 ms. `continuous, 50 ms`: within 50 ms by the trigger `ab.continuous`. `tasks
alone`: head and lane tasks as a worker calls them, in one process, by processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from anabranch.spark.session import spark_context
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.kernels import single
from bench.kernels.tasks import Tasks
from bench.streambox.sustained import CORES, FULL, HALVINGS, TARGETS, highest
from bench.workloads.streambox import BENCHMARKS, Benchmark, Replay

PUBLISHED, ALONE = "streambox-paper", "tasks alone"
CHOICES = tuple(each.name for each in BENCHMARKS)
NOTES = (
    (
        "tasks alone: one lane, Polars with one thread, rows a second of processor time; no "
        "executor, exchange or file. A buffer is filled before and replayed, bundle by bundle; "
        "event time is made as it is replayed. Windows are fixed, 1 s, of 1 million records (join: "
        "of each stream; netmon 500,000); the watermark follows each second. tweets: ten epochs a "
        "second, since each has all words in memory at once."
    ),
    (
        "anabranch, continuous: rows are made by the tasks that read them, on the same two cores, "
        "with the driver and its JVM. The rate is known to a sixteenth of what tasks alone "
        "could do on two cores, or of what is kept within 1 s for shorter targets; below that to "
        "its half, and zero is less than a 256th."
    ),
    (
        "streambox-paper: no measurement of ours. Its regression table (word count 5200, grep "
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
    """Tasks alone in a process of its own with one thread; then on Spark, unless it is a look."""
    alone = {row.case: row for row in single.measured(__name__, stand)}
    found: dict[str, dict[str, list[float]]] = {
        name: {ALONE: [row.value]} for name, row in alone.items()
    }
    if not stand.settings.quick:
        attached = spark_context(master=f"local[{CORES}]", app_name="bench streambox")
        try:
            for name, row in alone.items():
                found[name] |= _sustained(stand, attached.sc, name, row.value)
        finally:
            attached.stop()
    rows = list[Row]()
    for name, samples in found.items():
        paper = next(each for each in BENCHMARKS if each.name == name).per_core
        beside = {**samples, PUBLISHED: [float(paper)]}
        metric = Metric(name, "throughput_per_core", "rows/s")
        made = compared(metric, beside, [(system, PUBLISHED) for system in samples])
        rows += [
            replace(each, low=alone[name].low, high=alone[name].high, runs=alone[name].runs)
            if each.system == ALONE
            else each
            for each in made
        ]
    return rows


def _sustained(stand: Stand, sc: object, name: str, per_core: float) -> dict[str, list[float]]:
    """What is sustained within each target, of one core."""
    runs = 1 if stand.settings.quick else min(stand.settings.runs, 3)
    stand.progress.begin(f"{name} on Spark", runs * len(TARGETS) * HALVINGS)
    found: dict[str, list[float]] = {target.system: [] for target in TARGETS}
    for _ in range(runs):
        most = per_core * CORES
        for target in TARGETS:

            def tell(system: str = target.system) -> None:
                stand.progress.step(system)

            rate = highest(sc, name, target, most, FULL, tell)
            found[target.system].append(rate / CORES)
            # No more is kept within a shorter time than within the first and longest.
            most = max(found[TARGETS[0].system][-1] * CORES, 1.0)
    return found


def cases(stand: Stand) -> list[Row]:
    """Tasks alone, one benchmark after the other."""
    stand = replace(stand, clock=time.process_time)
    asked = stand.settings.cases
    chosen = [each for each in BENCHMARKS if not asked or each.name in asked]
    return [row for each in chosen for row in _case(stand, each)]


def _case(stand: Stand, benchmark: Benchmark) -> list[Row]:
    replay = benchmark.replay(benchmark.rows // (QUICK if stand.settings.quick else 1))
    samples = stand.race(benchmark.name, {ALONE: _timed(stand, benchmark, replay)})
    return compared(Metric(benchmark.name, "throughput_per_core", "rows/s"), samples, [])


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
