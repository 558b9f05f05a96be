"""How long it takes until rows are committed again when a lane's process is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle

from anabranch.runtime import under_way
from bench.elastic.ground import CORES, Ground
from bench.elastic.watched import Watched
from bench.harness.report import Row, Series
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

AFTER_S = 2.0
"""How much of what comes behind a fault is shown."""


def recover(stand: Stand, here: Ground, size: str) -> list[Row]:
    """One query; its lanes are killed in turn, half a round of deltas behind the last kill."""
    case = f"recover-{size}"
    with here.sized(size, lanes=CORES) as query:
        state, rate = query.state, here.rate(query)
        query.settle(rate)
        victims = cycle(range(CORES))
        values = stand.race(case, {"anabranch": lambda: _killed(query, rate, next(victims))})
        query.await_commits(under_way.ROUND)
        fault, took = query.faults[-1], values["anabranch"][-1]
        points = query.behind(fault, fault + took + AFTER_S, rate)
        stand.series.append(Series(case, "waited", "anabranch", points))
        query.finish()
    return [
        bare(Metric(case, "recovery_time", "s"), "anabranch", values["anabranch"]),
        bare(Metric(case, "state", "MB"), "anabranch", [state / 1e6]),
    ]


def interval(stand: Stand, here: Ground) -> list[Row]:
    """The same state, written anew once in so many deltas."""
    case = "recover-interval"
    with here.sized(here.scale.recover[0], lanes=CORES) as query:
        rate = here.rate(query)
        query.settle(rate)
        victims = cycle(range(CORES))

        def one(shortest: int, longest: int) -> float:
            with _round(shortest, longest):
                return _killed(query, rate, next(victims))

        usual = partial(one, under_way.ROUND, under_way.LONGEST_ROUND)
        fixed = {f"every-{each}": partial(one, each, each) for each in here.scale.rounds}
        values = stand.race(case, {"anabranch": usual, **fixed})
        query.finish()
    against = [(name, "anabranch") for name in fixed]
    return compared(Metric(case, "recovery_time", "s"), values, against)


def _killed(query: Watched, rate: float, lane: int) -> float:
    query.catch_up(rate)
    query.await_commits(under_way.ROUND * 3 // 2)
    return query.kill(lane)


@contextmanager
def _round(shortest: int, longest: int) -> Iterator[None]:
    """Have slices written anew once in so many deltas; the driver says which, and it is here."""
    usual = under_way.ROUND, under_way.LONGEST_ROUND
    under_way.ROUND, under_way.LONGEST_ROUND = shortest, longest
    try:
        yield
    finally:
        under_way.ROUND, under_way.LONGEST_ROUND = usual
