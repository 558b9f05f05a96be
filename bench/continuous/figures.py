"""Figures 8 to 14 of Prasaad et al. 2018 as tables, in virtual time with costs of this machine.

"Scaling Ordered Stream Processing on Shared-Memory Multicores", section 7. There: 16 cores, C++,
minutes. Here: as many workers as are imagined, each tuple a bundle, operators' costs as they were
measured right before, in the same run. What the paper's figures show is said with each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from anabranch.engine.core import Scheme
from anabranch.ordering.hybrid_queue import HybridQueue
from anabranch.ordering.reorder_buffer import ReorderBuffer
from anabranch.simulate.model import Model, in_ranges
from anabranch.simulate.pipeline import Outcome
from bench.continuous import operators, virtual
from bench.continuous.operators import Kind, Operator, Query, measured, programs
from bench.continuous.virtual import Setting, locked, partitioned, run
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

NAMES = tuple(f"figure-{number}" for number in range(8, 15))
WORKERS, QUICK_WORKERS = (1, 2, 4, 8, 16), (1, 4)
TUPLES, QUICK_TUPLES = 1_200, 60
CONTENTION = 0.05
"""A worker is so much slower for each other one at its operator: a guess, to see what it does."""
SIGMAS = (0.1, 0.25, 0.5, 1.0, 2.0)
KEYS = 1 << 20
COSTS = (10e-6, 100e-6, 1e-3, 10e-3)
"""Figure 10's, in seconds."""
LIGHT = (10e-6, 20e-6, 50e-6)
"""Tens of microseconds (section 7.3.1)."""
PROLIFIC, PROLIFIC_COST = 50, 100e-6
"""Tuples for one, and what each costs (section 7.3.2)."""
WIDE = 4096
"""Room in a reorder buffer that is never full here; the engine's has 64."""
EVEN = ((Kind.STATELESS, 20e-6), (Kind.PARTITIONED, 40e-6), (Kind.PARTITIONED, 30e-6))
"""Query 1's shape with costs of nobody: where nothing dear has one state, workers can be of use."""
LAST = 1e-6
HYBRID, PARTITIONED = "hybrid", "partitioned"
NON_BLOCKING, LOCKED = "non-blocking", "locked"


@dataclass(frozen=True, slots=True)
class Ground:
    """What the figures of one run have in common."""

    queries: Mapping[str, Query]
    onward: float
    """Seconds in which a tuple goes on from a reorder buffer to the next worklist."""
    add: float
    """Seconds in which an output is put into a reorder buffer, where none may leave."""
    workers: tuple[int, ...]
    tuples: int

    def light(self, at: int, rows: list[int]) -> float:
        """What a bundle takes to go on, by its tuples."""
        del at
        return self.onward * len(rows)


def cases(stand: Stand, names: Sequence[str]) -> list[Row]:
    """Measure, then some figures."""
    quick = stand.settings.quick
    onward, add = zip(*reorderings(stand), strict=True)
    ground = Ground(
        {each: measured(stand, each) for each in programs()} | {"even": even(median(onward))},
        median(onward),
        median(add),
        QUICK_WORKERS if quick else WORKERS,
        QUICK_TUPLES if quick else TUPLES,
    )
    stand.notes.append(
        f"Seeds: {virtual.SEED} (tuples in virtual time), {operators.SEED} (sales and clicks). "
        f"Measured: an output is added to a reorder buffer in {ground.add * 1e6:.2f} us, goes on "
        f"to a hybrid queue in {ground.onward * 1e6:.2f} us a tuple. {ground.tuples} tuples a run."
    )
    return [
        *_operators(ground),
        *(row for name in names for row in FIGURES[name](ground)),
    ]


def even(onward: float) -> Query:
    """Operators of about the same cost, and a cheap one with one state at the end."""
    first = [
        Operator(f"operator {at}", kind, cost, 1.0, onward) for at, (kind, cost) in enumerate(EVEN)
    ]
    return Query("even", (*first, Operator("last", Kind.STATEFUL, LAST, 1.0, 0.0)))


def reorderings(stand: Stand) -> Iterator[tuple[float, float]]:
    """Seconds in which an output goes on, and in which it is added, run by run."""
    for _ in range(stand.settings.warmups + stand.settings.runs):
        yield _reordering(stand)


def _reordering(stand: Stand) -> tuple[float, float]:
    """Seconds in which an output goes on, and in which it is added, on this machine."""
    count, queue = 2_000, HybridQueue[int](virtual.FINE)
    through = ReorderBuffer[int](64, lambda _, value: _into(queue, value))
    begin = stand.clock()
    for number in range(count):
        through.send(number, number)
    whole = (stand.clock() - begin) / count
    waiting = ReorderBuffer[int](count + 1, lambda _, value: _into(queue, value))
    begin = stand.clock()
    for number in range(1, count + 1):
        waiting.send(number, number)
    add = (stand.clock() - begin) / count
    return max(whole - add, 0.0), add


def _into(queue: HybridQueue[int], value: int) -> None:
    queue.add({value % virtual.FINE: value})


def _operators(ground: Ground) -> Iterator[Row]:
    for name, query in ground.queries.items():
        for each in query.operators:
            where = f"{name} {each.name} ({each.kind.value})"
            yield bare(Metric("operators", "cost", "us"), where, [each.cost * 1e6])
            yield bare(Metric("operators", "selectivity", "tuples"), where, [each.selectivity])
            yield bare(Metric("operators", "onward", "us"), where, [each.onward * 1e6])


def _throughput(case: str, what: str, found: Mapping[str, float], against: str) -> list[Row]:
    pairs = [(system, against) for system in found if system != against]
    samples = {system: [value] for system, value in found.items()}
    return compared(Metric(case, f"throughput, {what}", "tuples/s"), samples, pairs)


def _milliseconds(case: str, what: str, found: Mapping[str, float]) -> list[Row]:
    metric = Metric(case, what, "ms")
    return [bare(metric, system, [value * 1e3]) for system, value in found.items()]


def figure_8(ground: Ground) -> Iterator[Row]:
    """Policies on the queries. There: current throughput first, last in pipeline close to it."""
    for query in ground.queries.values():
        for workers in ground.workers:
            yield from _policies(ground, query, Setting(workers), f"{query.name}, {workers}")
        crowded = Setting(ground.workers[-1], contention=CONTENTION)
        yield from _policies(ground, query, crowded, f"{query.name}, {crowded.workers} crowded")


def _policies(ground: Ground, query: Query, setting: Setting, what: str) -> Iterator[Row]:
    found = {
        name: virtual.query(query, ground.tuples, replace(setting, policy=name))
        for name in virtual.POLICIES
    }
    # By a run in which nobody is in another's way; whose it is does not matter.
    alone = virtual.query(query, ground.tuples, replace(setting, contention=0.0))
    limit = {"bound": virtual.bound(query, alone)}
    speeds = {name: each.throughput for name, each in found.items()}
    yield from _throughput("figure-8", what, speeds | limit, "bound")
    mean = {name: each.mean_latency for name, each in found.items()}
    yield from _milliseconds("figure-8", f"mean latency, {what}", mean)
    most = {name: each.latency(0.99) for name, each in found.items()}
    yield from _milliseconds("figure-8", f"latency p99, {what}", most)


def figure_9(ground: Ground) -> Iterator[Row]:
    """Keys by a Gauss curve, in ranges. There: partitioned falls behind as sigma falls."""
    for sigma in SIGMAS:
        keys = _gaussian(sigma, ground.tuples)
        for workers in ground.workers:
            setting = Setting(workers)
            found = {
                HYBRID: _ranged(ground, keys, setting),
                PARTITIONED: _ranged(ground, keys, partitioned(setting)),
            }
            yield from _beside("figure-9", f"sigma {sigma:g}, {workers}", found, PARTITIONED)


def _ranged(ground: Ground, keys: Sequence[int], setting: Setting) -> Outcome:
    parts = setting.partitions
    model = Model("keyed", lambda _: PROLIFIC_COST, parts, partition=in_ranges(KEYS, parts))
    return run([model], keys, setting, ground.light)


def _gaussian(sigma: float, count: int) -> list[int]:
    """Keys from N(0, sigma), those outside [-1, 1) drawn again, scaled to the key space."""
    chance, found = random.Random(virtual.SEED), list[int]()
    while len(found) < count:
        value = chance.gauss(0.0, sigma)
        if -1 <= value < 1:
            found.append(int((value + 1) / 2 * KEYS))
    return found


def figure_10(ground: Ground) -> Iterator[Row]:
    """Latency of one keyed operator. There: hybrid near its cost, partitioned much above."""
    wide = Scheme(room=WIDE)
    for cost in COSTS:
        for workers in ground.workers:
            setting = Setting(workers, scheme=wide)
            settings = {HYBRID: setting, PARTITIONED: partitioned(setting)}
            latencies = {
                name: run(
                    [Model.of("keyed", cost, partitions=each.partitions)],
                    virtual.numbers(ground.tuples),
                    each,
                    ground.light,
                ).mean_latency
                for name, each in settings.items()
            }
            what = f"mean latency, {cost * 1e6:g} us, {workers}"
            samples = {name: [value * 1e3] for name, value in latencies.items()}
            yield from compared(Metric("figure-10", what, "ms"), samples, [(HYBRID, PARTITIONED)])


def figure_11(ground: Ground) -> Iterator[Row]:
    """Both queues on the queries, by current throughput. There: hybrid ahead but for query 15."""
    for query in ground.queries.values():
        for workers in ground.workers[1:]:
            setting = Setting(workers)
            found = {
                HYBRID: virtual.query(query, ground.tuples, setting),
                PARTITIONED: virtual.query(query, ground.tuples, partitioned(setting)),
            }
            yield from _beside("figure-11", f"{query.name}, {workers}", found, PARTITIONED)


def _beside(case: str, what: str, found: Mapping[str, Outcome], against: str) -> Iterator[Row]:
    speeds = {name: each.throughput for name, each in found.items()}
    yield from _throughput(case, what, speeds, against)
    mean = {name: each.mean_latency for name, each in found.items()}
    yield from _milliseconds(case, f"mean latency, {what}", mean)


def figure_12(ground: Ground) -> Iterator[Row]:
    """Light operators. There: non-blocking scales further, and costs grow less with workers."""
    values = virtual.numbers(ground.tuples)
    for cost in LIGHT:
        simulated = partial(_passing, ground, [Model.of("light", cost)], values)
        for workers in ground.workers:
            setting = Setting(workers, add=ground.add)
            yield from _schemes("figure-12", f"{cost * 1e6:g} us, {workers}", setting, simulated)


def _passing(
    ground: Ground, models: Sequence[Model], values: Sequence[int], setting: Setting
) -> Outcome:
    return run(models, values, setting, ground.light)


def figure_13(ground: Ground) -> Iterator[Row]:
    """50 tuples for one, then a keyed operator. There: as in figure 12, for dear operators too."""
    models = [
        Model.of("prolific", PROLIFIC_COST, selectivity=float(PROLIFIC)),
        Model.of("keyed", PROLIFIC_COST, partitions=virtual.FINE),
    ]
    values = virtual.numbers(max(ground.tuples // 12, 10))
    simulated = partial(_passing, ground, models, values)
    for workers in ground.workers:
        setting = Setting(workers, add=ground.add)
        yield from _schemes("figure-13", f"{PROLIFIC} for one, {workers}", setting, simulated)


def _schemes(
    case: str, what: str, setting: Setting, simulated: Callable[[Setting], Outcome]
) -> Iterator[Row]:
    found = {name: simulated(each) for name, each in _buffers(setting).items()}
    speeds = {name: each.throughput for name, each in found.items()}
    yield from _throughput(case, what, speeds, LOCKED)
    for name, each in found.items():
        first = each.operators[0]
        yield bare(Metric(case, f"worker time a tuple, {what}", "us"), name, [first.each * 1e6])
        blocked = each.blocked / (each.seconds * each.workers)
        yield bare(Metric(case, f"blocked, {what}", "share"), name, [blocked])
        yield bare(Metric(case, f"refused, {what}", "outputs"), name, [float(each.refused)])


def _buffers(setting: Setting) -> dict[str, Setting]:
    """Both reorder buffers, and the non-blocking one with room for all, as the other has."""
    wide = replace(setting, scheme=Scheme(room=WIDE))
    return {NON_BLOCKING: setting, LOCKED: locked(setting), f"{NON_BLOCKING}, wide": wide}


def figure_14(ground: Ground) -> Iterator[Row]:
    """Both reorder buffers on the queries, by current throughput. There: non-blocking ahead."""
    for query in ground.queries.values():
        for workers in ground.workers[1:]:
            found = {
                name: virtual.query(query, ground.tuples, setting)
                for name, setting in _buffers(Setting(workers, add=ground.add)).items()
            }
            speeds = {name: each.throughput for name, each in found.items()}
            what = f"{query.name}, {workers}"
            yield from _throughput("figure-14", what, speeds, LOCKED)
            for name, each in found.items():
                blocked = each.blocked / (each.seconds * each.workers)
                yield bare(Metric("figure-14", f"blocked, {what}", "share"), name, [blocked])


FIGURES: Mapping[str, Callable[[Ground], Iterator[Row]]] = dict(
    zip(
        NAMES,
        (figure_8, figure_9, figure_10, figure_11, figure_12, figure_13, figure_14),
        strict=True,
    )
)
