"""Figures 6 to 9 of Farhat, Daudjee, Querzoni 2021 as tables, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import NormalDist, fmean

import numpy as np

from anabranch.scheduling.guard import guarded
from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.scheduling.sweeps import Sweeps
from anabranch.simulate.cluster import Cluster, on_cluster
from anabranch.simulate.queries import (
    Delay,
    Load,
    Outcome,
    UniformDelay,
    ZipfDelay,
    by_batches,
    by_policy,
)
from bench.harness.report import Row
from bench.harness.statistics import Metric, bare, compared

CORES, RATE, STARTS_S = 24, 10_000.0, 20.0
"""The paper's: threads of a node, events a second of a query, and when queries are started."""
FULL_AT = 60
"""Queries at which a node's cores are all taken: so a row's cost follows. The paper's own are not
told; latencies there grow beyond 40 to 60."""
DELAYS: dict[str, Delay] = {"uniform": UniformDelay(0.0, 0.5), "zipf": ZipfDelay(0.005)}
WINDOWS = {"ysb": 3.0, "lrb": 3.0, "nyt": 1.0}
HORIZON_S, SHORT_S = 90.0, 40.0
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
SYSTEMS = (*QUERY_POLICIES, "spark-fifo", "spark-fair")
PAIRS = [("klink", other) for other in SYSTEMS if other != "klink"]


def loads(count: int, shape: str = "ysb", law: str = "uniform", cores: int = CORES) -> list[Load]:
    """So many queries, started at any moment of the first seconds."""
    chance, cost = random.Random(count), cores / (FULL_AT * RATE)
    return [
        Load(RATE, cost, WINDOWS[shape], DELAYS[law], chance.uniform(0, STARTS_S), firing=0.002)
        for _ in range(count)
    ]


def outcome(system: str, given: Sequence[Load], horizon: float, cores: int = CORES) -> Outcome:
    """A run by a policy, or as Spark schedules jobs."""
    chance = random.Random(11)
    if system in QUERY_POLICIES:
        policy = guarded(QUERY_POLICIES[system])
        return by_policy(given, policy, chance, cores=cores, horizon=horizon)
    fair = system == "spark-fair"
    return by_batches(given, chance, fair=fair, cores=cores, horizon=horizon)


def rows_of(
    case: str, name: str, unit: str, value: Callable[[Outcome], float], found: dict[str, Outcome]
) -> list[Row]:
    """One metric of all systems, Klink's beside each of the others'."""
    samples = {system: [value(each)] for system, each in found.items()}
    pairs = [pair for pair in PAIRS if pair[1] in found]
    return compared(Metric(case, name, unit), samples, pairs)


def _quantile(share: float) -> Callable[[Outcome], float]:
    return lambda found: found.quantile(share)


def _beside(alone: float) -> Callable[[Outcome], float]:
    return lambda found: found.mean / alone


def figure_6(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """YSB: mean latency by queries (a), quantiles (b), slowdown (c), throughput (d), nodes (e)."""
    horizon = SHORT_S if quick else HORIZON_S
    for count in (20, 60) if quick else (1, 20, 40, 60, 80):
        given = loads(count)
        found = {system: outcome(system, given, horizon) for system in SYSTEMS}
        yield from rows_of("figure-6", f"latency_mean_{count}", "s", lambda e: e.mean, found)
        yield from rows_of(
            "figure-6", f"throughput_{count}", "rows/s", lambda e: e.rows / horizon, found
        )
        if count == 60:
            for name, share in QUANTILES.items():
                yield from rows_of("figure-6", f"latency_{name}_60", "s", _quantile(share), found)
            beside = _beside(outcome("fcfs", given[:1], horizon).mean)
            yield from rows_of("figure-6", "slowdown_60", "x", beside, found)
    for nodes in (1, 8) if quick else (1, 2, 4, 8):
        found = {
            system: on_cluster(
                Cluster(nodes, CORES, lanes=min(2, nodes)),
                loads(80),
                guarded(QUERY_POLICIES[system]),
                random.Random(11),
                horizon=SHORT_S,
            )
            for system in (("klink", "rr") if quick else QUERY_POLICIES)
        }
        yield from rows_of("figure-6", f"latency_mean_{nodes}_nodes", "s", lambda e: e.mean, found)


def figure_7(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """LRB and NYT: means and quantiles at 60 queries, by both laws of delays."""
    for shape in ("lrb", "nyt"):
        for law in ("uniform",) if quick else DELAYS:
            given = loads(60, shape, law)
            found = {system: outcome(system, given, SHORT_S) for system in SYSTEMS}
            name = f"{shape}_{law}"
            yield from rows_of("figure-7", f"latency_mean_{name}", "s", lambda e: e.mean, found)
            for quantile, share in QUANTILES.items():
                yield from rows_of(
                    "figure-7",
                    f"latency_{quantile}_{name}",
                    "s",
                    _quantile(share),
                    found,
                )


def figure_8(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Rows that wait at the worst moment, by queries: what memory is taken by."""
    for count in (60,) if quick else (20, 40, 60, 80):
        given = loads(count)
        found = {system: outcome(system, given, SHORT_S) for system in SYSTEMS}
        yield from rows_of(
            "figure-8", f"most_waiting_{count}", "rows", lambda e: e.most_waiting, found
        )


def figure_9(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """How often a sweeping watermark comes within the interval, beside linear regression (c)."""
    count = 500 if quick else 4_000
    for law, delay in DELAYS.items():
        chance = random.Random(5)
        delays = [delay.drawn(chance) for _ in range(count)]
        for sure in (0.90, 0.95):
            metric = Metric("figure-9", f"accuracy_{law}_{sure:.0%}".replace("%", ""), "share")
            samples = {
                "klink": [_inside(delays, sure)],
                "linear regression": [_regressed(delays, sure)],
            }
            yield from compared(metric, samples, [("klink", "linear regression")])


def _inside(delays: Sequence[float], sure: float) -> float:
    sweeps, found = Sweeps(), list[bool]()
    for number, delay in enumerate(delays):
        estimate = sweeps.next(0.0)
        if estimate is not None and number >= 50:
            low, high = estimate.within(sure)
            found.append(low <= delay <= high)
        sweeps = sweeps.swept(delay)
    return fmean(found)


def _regressed(delays: Sequence[float], sure: float) -> float:
    """By a line through the last 400, and a normal law of what it is off by."""
    found, reach = list[bool](), NormalDist().inv_cdf((1 + sure) / 2)
    for number in range(50, len(delays)):
        known = np.asarray(delays[max(0, number - 400) : number])
        at = np.arange(len(known))
        slope, first = np.polyfit(at, known, 1)
        off = float(np.std(known - (slope * at + first)))
        found.append(abs(delays[number] - (slope * len(known) + first)) <= reach * off)
    return fmean(found)


def nodes_1000(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """A thousand nodes of two cores with a thousand queries of two lanes each."""
    nodes = 50 if quick else 1_000
    cost = 1.9 / RATE
    chance = random.Random(1)
    given = [
        Load(RATE, cost, 3.0, DELAYS["uniform"], chance.uniform(0, 5), firing=0.002)
        for _ in range(nodes)
    ]
    for system in ("klink", "fcfs", "rr"):
        found = on_cluster(
            Cluster(nodes, 2, lanes=2),
            given,
            guarded(QUERY_POLICIES[system]),
            random.Random(11),
            horizon=20.0,
        )
        for name, value in (("latency_mean", found.mean), ("latency_p99", found.quantile(0.99))):
            yield bare(Metric("nodes-1000", name, "s"), system, [value])


def joins(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Joins of a stream that is late and one that is not: by the least slack, or the greatest."""
    for count in (60,) if quick else (40, 60, 80):
        found = {"fcfs": outcome("fcfs", _joins(count, min), SHORT_S)}
        for name, slack_of in (("klink, least", min), ("klink, greatest", max)):
            found[name] = outcome("klink", _joins(count, slack_of), SHORT_S)
        metrics: dict[str, Callable[[Outcome], float]] = {
            f"latency_mean_{count}": lambda each: each.mean,
            f"latency_p99_{count}": _quantile(0.99),
        }
        for metric, value in metrics.items():
            samples = {system: [value(each)] for system, each in found.items()}
            pairs = [("klink, greatest", "klink, least"), ("klink, least", "fcfs")]
            yield from compared(Metric("joins", metric, "s"), samples, pairs)


def _joins(count: int, slack_of: Callable[[Iterable[float]], float]) -> list[Load]:
    late = UniformDelay(0.0, 1.0)
    return [replace(each, joined=(late,), slack_of=slack_of) for each in loads(count)]


FIGURES: dict[str, Callable[[bool], Iterator[Row]]] = {
    "figure-6": figure_6,
    "figure-7": figure_7,
    "figure-8": figure_8,
    "figure-9": figure_9,
    "joins": joins,
    "nodes-1000": nodes_1000,
}
