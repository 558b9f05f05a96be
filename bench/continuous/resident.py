"""Programs at work with the trigger `ab.continuous`, on Spark, beside Structured Streaming.

Rows are seen on the driver, in order, before their commit.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

import anabranch as ab
from anabranch.runtime.continuous.loop import ContinuousLoop
from anabranch.spark.session import spark_context
from bench.continuous import killed, structured
from bench.continuous.due import Due, Latencies, Newest
from bench.continuous.programs import (
    Make,
    busy_polars,
    busy_python,
    counted,
    per_item,
    per_step,
    python,
    vector,
)
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

NAMES = (
    "vector-200k",
    "vector-highest",
    "python-50k",
    "python-highest",
    "kill-task",
    "kill-evaluator",
    "kill-executor",
    "kill-driver",
    "work-1us-polars",
    "work-10us-polars",
    "work-100us-polars",
    "work-1000us-polars",
    "work-1us-python",
    "work-10us-python",
    "work-100us-python",
    "work-1000us-python",
)
CORES = 2
QUANTILES = {"latency_p50": 0.5, "latency_p99": 0.99}
BISECTIONS = 4
"""The highest rate is known to a sixteenth of what a backlog gives."""
KILL_RATE = 20_000
SUSTAINED_S = 0.2
"""A rate is sustained if the median latency of the last third of rows is below this."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How long runs are, in seconds."""

    warm: float = 4.0
    """Not counted."""
    counted: float = 8.0
    backlog: float = 4.0
    """About how long a backlog takes that is worked off."""


FULL, QUICK, TINY = Scale(), Scale(2.0, 3.0, 1.5), Scale(0.3, 0.5, 0.2)


@dataclass(frozen=True)
class Ground:
    """Spark, and how long to run."""

    stand: Stand
    sc: Any
    scale: Scale

    def ran(
        self, make: Make, rows: int, rate: float | None, workers: int | Literal["auto"] = "auto"
    ) -> Ran:
        """A program over so many rows, to its end."""
        sink = Latencies()
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as home:
            # The first second is Spark's: the task is placed, and loads what it needs.
            begin = time.time() + (1.0 if rate is not None else 0.0)
            source = Due(rows, rate, begin)
            query = make(source, sink).start(
                self.sc,
                trigger=ab.continuous("5 ms", "2 s"),
                checkpoint=Path(home) / "checkpoint",
                parallelism=workers,
            )
            query.await_termination()
        return Ran(begin, rows, sink)

    def at_rate(self, make: Make, rate: float) -> Ran:
        """A program whose rows come at a rate, for as long as one is counted."""
        seconds = self.scale.warm + self.scale.counted
        return self.ran(make, int(seconds * rate), rate)

    def latencies(self, name: str, make: Make, rate: float) -> list[Row]:
        """Of all rows that were due when it had warmed up."""
        found: dict[str, dict[str, list[float]]] = {
            metric: {"continuous": [], "spark": []} for metric in QUANTILES
        }
        runs = self.stand.settings.runs
        self.stand.progress.begin(name, 2 * runs)
        for _ in range(runs):
            seconds = self.at_rate(make, rate).counted(self.scale)
            for metric, at in QUANTILES.items():
                found[metric]["continuous"].append(float(np.quantile(seconds, at)) * 1e3)
            self.stand.progress.step("continuous")
            kind, _, _ = name.partition("-")
            peer = structured.latencies(kind, rate, self.scale.warm, self.scale.counted)
            for metric in QUANTILES:
                found[metric]["spark"].append(peer[metric])
            self.stand.progress.step("spark")
        return [
            row
            for metric, values in found.items()
            for row in compared(Metric(name, metric, "ms"), values, [("continuous", "spark")])
        ]

    def highest(self, make: Make, guess: float) -> float:
        """The highest rate that is sustained: what a backlog gives, or by bisection below that."""
        ran = self.ran(make, int(guess * self.scale.backlog), None)
        low, high = 0.0, ran.throughput
        if self.at_rate(make, high).sustained(self.scale):
            return high
        for _ in range(BISECTIONS):
            rate = (low + high) / 2
            if self.at_rate(make, rate).sustained(self.scale):
                low = rate
            else:
                high = rate
        return low


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that is over."""

    begin: float
    rows: int
    sink: Latencies

    def counted(self, scale: Scale) -> np.ndarray[Any, Any]:
        """The latencies of rows that were due when it had warmed up, in seconds."""
        low = self.begin + scale.warm
        return self.sink.between(low, low + scale.counted)

    def sustained(self, scale: Scale) -> bool:
        """Whether it kept up."""
        end = self.begin + scale.warm + scale.counted
        last = self.sink.between(end - scale.counted / 3, end + 1)
        return bool(len(last)) and float(np.median(last)) < SUSTAINED_S

    @property
    def throughput(self) -> float:
        """Rows a second behind the first fourth of them: the first epochs are larger than others.

        And with several workers some of them are through when the first is.
        """
        sizes = np.cumsum([len(each) for each in self.sink.due])
        first = int(np.searchsorted(sizes, self.rows // 4))
        begin = float(self.sink.due[first][0] + self.sink.seconds[first][0])
        took, rows = self.sink.last_at - begin, self.sink.rows - int(sizes[first])
        return rows / took if took > 0 and rows > 0 else float(self.sink.rows)


def cases(stand: Stand, names: list[str], scale: Scale | None = None) -> list[Row]:
    """The cases that are asked for, on one Spark."""
    attached = spark_context(master=f"local[{CORES}]", app_name="bench continuous")
    try:
        ground = Ground(stand, attached.sc, scale or (QUICK if stand.settings.quick else FULL))
        return [row for name in names for row in _case(ground, name)]
    finally:
        attached.stop()


def _case(ground: Ground, name: str) -> list[Row]:
    match name.split("-"):
        case ["vector", "200k"]:
            return ground.latencies(name, vector, 200_000)
        case ["python", "50k"]:
            return ground.latencies(name, python, 50_000)
        case ["vector", "highest"]:
            return _highest(ground, name, vector, 600_000)
        case ["python", "highest"]:
            return [*_highest(ground, name, python, 120_000), *_loop(ground, name)]
        case ["kill", which]:
            return _recovery(ground, name, which)
        case ["work", micros, kind]:
            return _speed_up(ground, name, float(micros.removesuffix("us")), kind)
    message = f"no case {name!r}"
    raise ValueError(message)


def _highest(ground: Ground, name: str, make: Make, guess: float) -> list[Row]:
    runs = ground.stand.settings.runs
    ground.stand.progress.begin(name, runs)
    found = []
    for _ in range(runs):
        found.append(ground.highest(make, guess))
        ground.stand.progress.step("continuous")
    return [bare(Metric(name, "throughput", "rows/s"), "continuous", found)]


def _loop(ground: Ground, name: str) -> list[Row]:
    """The bare loop: the same function over the same records, on one core, without anything."""
    rows = 50_000 if ground.stand.settings.quick else 300_000
    records = Due(rows, None, 0.0).frame((0, rows)).rows(named=True)

    def run() -> None:
        states: dict[int, _State] = {}
        out = []
        for record in records:
            if record["n"] % 100 == 99:
                continue
            given = {**record, "m": record["n"] * 3 + 1}
            state = states.setdefault(record["k"], _State())
            for made in counted(given, state):
                made["m"] *= 2
                if made["m"] >= 0:
                    out.append(made)

    samples = ground.stand.race(name, {"bare loop": ground.stand.throughput(rows, run)})
    return compared(Metric(name, "throughput", "rows/s"), samples, [])


class _State:
    value: Any = None


def _recovery(ground: Ground, name: str, which: str) -> list[Row]:
    """How long after a kill the first row is seen that was due after it."""
    runs, found = ground.stand.settings.runs, list[float]()
    ground.stand.progress.begin(name, runs)
    for _ in range(runs):
        found.append(_killed(ground, which))
        ground.stand.progress.step("continuous")
    return [bare(Metric(name, "recovery_time", "s"), "continuous", found)]


def _killed(ground: Ground, which: str) -> float:
    if which in killed.PLACES:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as home:
            return killed.PLACES[which](Path(home), ground.scale.warm)
    make, sink = (python if which == "evaluator" else vector), Newest()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as home:
        source = Due(10**9, KILL_RATE, time.time())
        query = make(source, sink).start(
            ground.sc,
            trigger=ab.continuous("5 ms", "2 s"),
            checkpoint=Path(home) / "checkpoint",
            parallelism=2 if which == "evaluator" else "auto",
        )
        try:
            sink.wait(source.begin + ground.scale.warm)
            loop = query._loop  # noqa: SLF001 - who else would know whom to kill
            assert isinstance(loop, ContinuousLoop)
            task = loop.pid
            assert task is not None
            os.kill(_child(task) if which == "evaluator" else task, signal.SIGKILL)
            at = time.time()
            sink.wait(at)
            return time.time() - at
        finally:
            query.stop(drain=False)


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _speed_up(ground: Ground, name: str, micros: float, kind: str) -> list[Row]:
    """Throughput of a backlog with two evaluators beside one."""
    make = busy_python(micros, per_step()) if kind == "python" else busy_polars(micros, per_item())
    rows = max(400, int(min(300_000, ground.scale.backlog * 1e6 / (micros + 5))))
    contenders = {
        system: _throughput(ground, make, rows, workers)
        for system, workers in {"one evaluator": 1, "two evaluators": 2}.items()
    }
    samples = ground.stand.race(name, contenders)
    metric = Metric(name, "throughput", "rows/s")
    return compared(metric, samples, [("two evaluators", "one evaluator")])


def _throughput(ground: Ground, make: Make, rows: int, workers: int) -> Callable[[], float]:
    return lambda: ground.ran(make, rows, None, workers).throughput
