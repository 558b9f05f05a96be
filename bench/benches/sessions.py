"""Many queries on one Spark: latencies by policy, beside Spark's own schedulers.

    ./x bench sessions                      # all of it, some 50 minutes
    ./x bench sessions load-100             # one load; --save for a results file of its own
    ./x bench sessions overhead memory      # what deciding costs; a bound of memory
    ./x bench sessions prediction           # virtual time beside real time, ten minutes
    ./x bench sessions 'figure-*'           # the paper's figures, in virtual time; no Spark
    ./x bench sessions --quick              # a look

`load-60`, `load-100`, `load-130`: nine queries in the shapes of YSB, LRB and NYT (three each), on
local[2], one lane each, an epoch every 100 ms, started one after the other; rows by the wall clock,
late by a uniform or a Zipf law (0 to 500 ms). Their rate is this part of the capacity: the highest
at which Klink or Spark's FIFO, whichever has more, keeps up with 99 of 100 windows seen within 2 s
of their ends, by doubling and then halving (rows `capacity`). A horizon of 20 s counts,
behind a warm-up; at its end all is stopped. `latency_mean`, `latency_p99`: from the end of
a window to when its rows were published. `goal_misses`: the share of windows for which that was
more than 1 s. `throughput`: rows that were committed. Each policy is a system; `spark-fifo` and
`spark-fair` are the same engine without turns, one epoch of a query under way at a time, as
Structured Streaming has it, its jobs scheduled by Spark. `klink, simulated`: the same rows, as late
as they were, in virtual time (`simulate/session.py`), with what turns and rows cost in that run;
`prediction` has that alone, at the three loads.

`overhead`: what one decision costs among 10, 100 and 1,000 queries that all ask, and at a load of
100 % the part of the time that decisions took. `memory`: queries that keep rows until their windows
are over, at 130 % of their own capacity: bytes of rows that were read and not committed at the
worst moment, throughput and latency with a bound of half of what is held without one, beside none.
`short`: how often the bound was reached.

`joins`: queries with two inputs of unlike delays, whose slack is the least of their inputs' (3.3 of
the paper) or the greatest. `figure-6` to `figure-9`, `nodes-1000`: the paper's figures in virtual
time, on the shipped policies and estimates: 24 cores a node and 10,000 rows a second for each
query, as there; what a row costs is chosen so that 60 queries take all cores of a node. The last
number of a metric's name is that of queries, or of nodes. `slowdown`: beside one query alone.
`accuracy`: how often a sweeping watermark came within the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

import numpy as np

from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.scheduling.sweeps import Estimate
from anabranch.scheduling.turns import Turns
from anabranch.spark.session import spark_context
from bench.harness.report import Row, Series
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared
from bench.sessions.figures import FIGURES
from bench.sessions.runs import (
    CORES,
    FULL,
    HALVINGS,
    PROBING,
    QUICK,
    SYSTEMS,
    Outcome,
    Scale,
    capacity,
    run,
)

NOTES = (
    (
        "Delays, horizon and the number of queries are scaled down from Farhat, Daudjee, Querzoni "
        "2021 (up to 80 queries, 20 minutes, 24 threads) to two cores. The rows are made by the "
        "tasks that read them. A window that had not fired by the end, though its watermark had "
        "come, counts with how late it was by then."
    ),
)
LOADS = {"load-60": 0.6, "load-100": 1.0, "load-130": 1.3}
NAMES = (*LOADS, "prediction", "overhead", "memory", *FIGURES)
CHOICES = (*NAMES, "load-*", "figure-*")
PREDICTED = ("klink", "fcfs")
"""Policies whose runs are repeated in virtual time."""
BOUND = 0.5
"""The bound of memory, as a part of what is held at the worst moment without one."""
KEEPING = ("medians", "nyt")
"""Shapes of the queries for that: with the partial results of windows alone nothing is held."""
COMPARED = ("klink", "fcfs", "spark-fifo", "spark-fair")
"""Systems that all runs are of; the others have one, to be beside them."""
OVER = 1.3
"""The part of the capacity at which memory is short."""


def measure(stand: Stand) -> list[Row]:
    """All cases, or those that are asked for."""
    names, scale = stand.settings.cases, QUICK if stand.settings.quick else FULL
    asked = [each for each in NAMES if not names or any(fnmatchcase(each, n) for n in names)]
    rows = deciding(stand) if "overhead" in asked else []
    for name in asked:
        rows += FIGURES[name](stand.settings.quick) if name in FIGURES else ()
    loads = [each for each in asked if each in LOADS]
    if not loads and not {"memory", "overhead", "prediction"}.intersection(asked):
        return rows
    attached = spark_context(
        master=f"local[{CORES}]", app_name="bench sessions", conf={"spark.scheduler.mode": "FAIR"}
    )
    try:
        return rows + _on_spark(stand, asked, loads, scale)
    finally:
        attached.stop()


def _on_spark(stand: Stand, asked: list[str], loads: list[str], scale: Scale) -> list[Row]:
    """On one Spark for all: processes are found running by whoever comes next.

    Its fair scheduler serves jobs without a pool of their own in the order in which they came.
    """
    rows = list[Row]()
    if loads or {"overhead", "prediction"}.intersection(asked):
        stand.progress.begin("capacity", len(PROBING) * (HALVINGS + 3))
        found = capacity(scale, 1, stand.progress.step)
        each = max(found.values())
        metric = Metric("capacity", "throughput", "rows/s")
        for system, rate in found.items():
            rows.append(bare(metric, system, [rate * scale.queries]))
        for name in loads:
            rows += load(stand, name, each * LOADS[name], scale)
        if "prediction" in asked:
            rows += prediction(stand, each, scale)
        if "overhead" in asked:
            shares = [run("klink", each, scale, at).deciding for at in range(stand.settings.runs)]
            rows.append(bare(Metric("overhead", "decisions", "share"), "klink", shares))
    if "memory" in asked:
        rows += memory(stand, scale)
    return rows


def load(stand: Stand, case: str, rate: float, scale: Scale) -> list[Row]:
    """Every policy at one load, in turns."""
    found: dict[str, list[Outcome]] = {system: [] for system in SYSTEMS}
    runs = stand.settings.runs
    stand.progress.begin(case, runs * len(SYSTEMS))
    for number in range(runs):
        for system in SYSTEMS:
            if not number or system in COMPARED:
                found[system].append(run(system, rate, scale, seed=number))
            stand.progress.step(system)
    pairs = [
        (system, against)
        for system in SYSTEMS
        for against in ("spark-fifo", "spark-fair")
        if not system.startswith("spark")
    ]
    metrics: dict[str, tuple[str, Callable[[Outcome], float]]] = {
        "latency_mean": ("s", lambda each: each.mean),
        "latency_p99": ("s", lambda each: each.p99),
        "throughput": ("rows/s", lambda each: each.rows_per_second),
    }
    stand.series.extend(_distributions(case, found))
    rows = list[Row]()
    for name, (unit, value) in metrics.items():
        samples = {system: [value(each) for each in outs] for system, outs in found.items()}
        beside = _simulated(found) if name == "latency_mean" else {}
        both = [(name, name.partition(",")[0]) for name in beside]
        rows += compared(Metric(case, name, unit), samples | beside, [*pairs, *both])
    for system, outs in found.items():
        missed = Metric(case, "goal_misses", "share")
        rows.append(bare(missed, system, [each.misses for each in outs]))
    return rows


def prediction(stand: Stand, rate: float, scale: Scale) -> Iterator[Row]:
    """Mean latencies in virtual time beside those of the runs that costs were taken from."""
    stand.progress.begin("prediction", stand.settings.runs * len(LOADS))
    for part in LOADS.values():
        found = list[Outcome]()
        for number in range(stand.settings.runs):
            found.append(run("klink", rate * part, scale, seed=number))
            stand.progress.step(f"{part:.0%}")
        samples = {"klink": [each.mean for each in found], **_simulated({"klink": found})}
        metric = Metric("prediction", f"latency_mean_{100 * part:.0f}", "s")
        yield from compared(metric, samples, [("klink, simulated", "klink")])


def _distributions(case: str, found: dict[str, list[Outcome]]) -> Iterator[Series]:
    """By system, seconds and the share of windows that took no longer."""
    shares = np.linspace(0.0, 1.0, 101)
    for system, outs in found.items():
        took = [each for out in outs for each in out.latencies]
        points = zip(np.quantile(took, shares), shares, strict=True)
        yield Series(
            case,
            "within",
            system,
            tuple((round(float(a), 4), round(float(b), 2)) for a, b in points),
        )


def _simulated(found: dict[str, list[Outcome]]) -> dict[str, list[float]]:
    """What virtual time says of the same runs, with the costs that they had."""
    told = {
        f"{system}, simulated": [each.predicted for each in found[system]]
        for system in PREDICTED
        if system in found
    }
    return {
        name: [value for value in values if value is not None]
        for name, values in told.items()
        if None not in values
    }


def deciding(stand: Stand) -> list[Row]:
    """One decision of Klink's among so many queries."""
    rows = []
    for count in (10, 100, 1000):
        turns = Turns(QUERY_POLICIES["klink"], 1)
        for place in range(count):
            due = Estimate(100.0 + place % 7, 0.3, ())
            asked = Prospect(99.0, 100, 0.05, due=100.0, expected=(due,))
            turns = turns.enter(place, 99.0).ask(place, asked)
        seconds = [stand.seconds(partial(turns.next, 99.5))() for _ in range(50)]
        metric = Metric("overhead", f"decision_{count}", "s")
        rows.append(bare(metric, "klink", seconds))
    return rows


def memory(stand: Stand, scale: Scale) -> list[Row]:
    """With a limit of memory and without; queries that keep rows, at a rate that is too high."""
    scale = replace(scale, shapes=KEEPING)
    stand.progress.begin("memory: capacity", HALVINGS + 3)
    rate = OVER * capacity(scale, 1, stand.progress.step, ("klink",))["klink"]
    runs = range(stand.settings.runs)
    stand.progress.begin("memory", 2 * len(runs))
    found: dict[str, list[Outcome]] = {"memory mode": [], "back-pressure alone": []}
    bounds = list[float]()
    for number in runs:
        without = run("klink", rate, scale, number)
        stand.progress.step("back-pressure alone")
        bounds.append(BOUND * without.most_held)
        found["back-pressure alone"].append(without)
        found["memory mode"].append(run("klink", rate, scale, number, int(bounds[-1])))
        stand.progress.step("memory mode")
    metrics: dict[str, tuple[str, Callable[[Outcome], float]]] = {
        "most_held": ("bytes", lambda each: float(each.most_held)),
        "throughput": ("rows/s", lambda each: each.rows_per_second),
        "latency_mean": ("s", lambda each: each.mean),
        "latency_p99": ("s", lambda each: each.p99),
        "short": ("times", lambda each: float(each.short)),
    }
    rows = [bare(Metric("memory", "bound", "bytes"), "memory mode", bounds)]
    for name, (unit, value) in metrics.items():
        samples = {system: [value(each) for each in outs] for system, outs in found.items()}
        pairs = [("memory mode", "back-pressure alone")] if name != "short" else []
        rows += compared(Metric("memory", name, unit), samples, pairs)
    return rows
