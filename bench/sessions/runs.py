"""One run of many queries by one policy, and what came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

import anabranch as ab
from anabranch.api.session import CYCLES
from anabranch.scheduling.query_policies import QUERY_POLICIES, SPARKS
from anabranch.scheduling.slack import CYCLE_S
from anabranch.simulate.session import Measured, Pace, Simulated, latencies
from bench.sessions.delayed import LONGEST_S, Delayed, Law
from bench.sessions.shapes import LONGEST_PERIOD, PERIODS, SHAPES

if TYPE_CHECKING:
    from anabranch.api.query import Query

SYSTEMS = (*QUERY_POLICIES, *SPARKS)
EVERY, EVERY_S = "100 ms", 0.1
CORES = 2
_STARTING = "Initializing sources"
PROBED, MORE, KEPT_UP = 400_000.0, 2.0, 0.95
"""Rows a second of each query with which the capacity is looked for, by how many times more it is
looked for again, and the part of them from which on a session has kept up."""
TARGET_S, HALVINGS = 2.0, 3
"""A rate is sustained if 99 of 100 windows are seen within this; how often it is halved in."""
PROBING = ("klink", "spark-fifo")
"""Whose sustainable rates are looked for."""
LAWS: tuple[Law, ...] = ("uniform", "zipf")


@dataclass(frozen=True, slots=True)
class Scale:
    """How many queries, for how long; seconds."""

    queries: int = 9
    warm: float = 8.0
    """Not counted: queries are started in the first part of it, one after the other."""
    counted: float = 20.0
    probe: float = 8.0
    """How long the capacity is looked for."""
    shapes: tuple[str, ...] = ("ysb", "lrb", "nyt")
    """Of the queries, in turns."""


FULL, QUICK, TINY = Scale(), Scale(6, 5.0, 8.0, 4.0), Scale(2, 2.0, 4.0, 1.0)


@dataclass(frozen=True, slots=True)
class Turned:
    """What a query's turns came to since its start, as of a commit."""

    jobs: int
    rows: int
    seconds: float
    commit: float
    """Seconds that this commit took."""


def costs(turns: Sequence[Turned], before: Sequence[Turned] = ()) -> Measured:
    """What a job costs and what a row does, by least squares, all turns together as long as told.

    A job costs no more than the shortest ever took, those `before` among them. Of a query that is
    behind all turns read as much as they may, and squares alone cannot tell jobs from rows.

    >>> told = [Turned(1, 0, 1.0, 0.1), Turned(2, 10, 4.0, 0.1), Turned(4, 20, 8.0, 0.3)]
    >>> found = costs(told)
    >>> round(found.turn, 3), round(found.row, 3), round(found.commit, 3)
    (1.0, 0.2, 0.1)
    >>> alike = [Turned(n, 10 * n, 3.0 * n, 0.1) for n in range(4)]
    >>> found = costs(alike, [Turned(0, 0, 0.0, 0.1), Turned(1, 1, 1.0, 0.1)])
    >>> round(found.turn, 3), round(found.row, 3)
    (0.03, 0.297)
    """
    parts = _parts(turns)
    jobs, rows, seconds = parts.sum(axis=0)
    shortest = min(each[2] / each[0] for each in [*_parts(before), *parts] if each[0])
    turn = float(np.linalg.lstsq(parts[:, :2], parts[:, 2], rcond=None)[0][0])
    turn = min(max(turn, 0.0), float(shortest)) if rows else seconds / jobs
    row = max(0.0, seconds - turn * jobs) / rows if rows else 0.0
    commit = float(np.median([each.commit for each in turns]))
    return Measured(float(turn), float(row), commit)


def _parts(turns: Sequence[Turned]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Jobs, rows and seconds from one commit to the next."""
    known = [(each.jobs, each.rows, each.seconds) for each in turns]
    return np.diff(np.array(known or [(0, 0, 0.0)], float), axis=0)


@dataclass(slots=True)
class Seen:
    """What progress said while it counted."""

    begin: float
    end: float
    latencies: list[float] = field(default_factory=list)
    rows: int = 0
    turns: dict[str, list[Turned]] = field(default_factory=dict)
    """By query, as of each commit."""
    before: dict[str, list[Turned]] = field(default_factory=dict)
    """The same of the time that is not counted."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, progress: dict[str, Any]) -> None:
        """Take a commit's."""
        now = time.time()
        counts = self.begin <= now < self.end
        with self._lock:
            if counts:
                self.latencies += [each / 1000 for each in progress["anabranch"]["firingsMs"]]
                self.rows += progress["numInputRows"]
            if (told := progress["anabranch"].get("session")) and "turnsMs" in told:
                commit = progress["durationMs"].get("commitOffsets", 0.0) / 1e3
                seconds = told["turnsMs"] / 1e3
                turned = Turned(told["jobs"], told["rowsRead"], seconds, commit)
                if now < self.end:
                    kept = self.turns if counts else self.before
                    kept.setdefault(progress["name"], []).append(turned)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    policy: str
    latencies: tuple[float, ...]
    rows_per_second: float
    misses: float
    """The share of windows behind the goal."""
    deciding: float
    """The share of the time that decisions took."""
    most_held: int
    """Bytes."""
    short: int
    """How often memory was."""
    predicted: float | None = None
    """The mean latency that the simulation gives for the same rows, with what turns cost here."""

    @property
    def mean(self) -> float:
        """Seconds."""
        self._refuse_none()
        return float(np.mean(self.latencies))

    @property
    def p99(self) -> float:
        """Seconds."""
        self._refuse_none()
        return float(np.quantile(self.latencies, 0.99))

    def _refuse_none(self) -> None:
        if not self.latencies:
            message = f"no window fired by {self.policy} in the time that counts"
            raise RuntimeError(message)


def run(
    policy: str, rate: float, scale: Scale, seed: int, memory_limit: int | None = None
) -> Outcome:
    """All queries by one policy, with so many rows a second for each, on the Spark that is there.

    When all are ready their rows begin, one query's after the other's in the first half of the
    warm-up; half of them have uniform delays, half have Zipf's. At the end they are stopped at
    once: what is late is late.
    """
    seconds = scale.warm + scale.counted + 5.0
    goal = 1.0
    with ab.Session(
        policy=policy, lanes=1, memory_limit=memory_limit, master=f"local[{CORES}]"
    ) as session:
        shapes, laws = cycle(scale.shapes), cycle(LAWS)
        sources = list[Delayed]()
        for number in range(scale.queries):
            shape = next(shapes)
            sources.append(Delayed(rate, seconds, next(laws), seed * 100 + number))
            program = SHAPES[shape](sources[-1], ab.sinks.Callback(_nothing), f"{shape}-{number}")
            session.start(program, trigger=ab.epochs(EVERY))
        while any(query.status["message"] == _STARTING for query in session.queries):
            time.sleep(0.1)
        begin = time.time()
        seen = Seen(begin + scale.warm, begin + scale.warm + scale.counted)
        session.add_listener(seen)
        chance = np.random.default_rng(seed)
        starts = [float(at) for at in chance.uniform(0.0, scale.warm / 2, scale.queries)]
        for source, at in zip(sources, starts, strict=True):
            source.go(begin + at)
        time.sleep(max(0.0, seen.end - time.time()))
        overdue = [each for query in session.queries for each in _overdue(query, seen.end)]
        failed = [error for query in session.queries if (error := query.exception()) is not None]
        if failed or len(session.queries) < scale.queries:
            message = f"{scale.queries - len(session.queries)} queries ended before their time"
            raise RuntimeError(message)
        known = session.statistics()
        names = [query.name for query in session.queries]
        session.stop(drain=False)
    took = (*seen.latencies, *overdue)
    return Outcome(
        policy,
        took,
        seen.rows / scale.counted,
        float(np.mean([each > goal for each in took] or [True])),
        known["decidingMs"] / 1000 / (time.time() - begin),
        known["mostHeldBytes"] or 0,
        known["memoryModes"],
        _predicted(policy, names, sources, starts, seen, begin, scale),
    )


def _predicted(  # noqa: PLR0913, PLR0917 - all that a run was
    policy: str,
    names: list[str],
    sources: list[Delayed],
    starts: list[float],
    seen: Seen,
    begin: float,
    scale: Scale,
) -> float | None:
    """The mean latency of the same run in virtual time; None: it has no turns to simulate."""
    told = {name: each for name, each in seen.turns.items() if len(each) > 1}
    if policy not in QUERY_POLICIES or any(name not in told for name in names):
        return None
    queries = [
        Simulated(
            costs(told[name], seen.before.get(name, ())),
            source.feed(start),
            PERIODS[name.partition("-")[0]],
            origin=-(begin % LONGEST_PERIOD),
            levels=len(PERIODS[name.partition("-")[0]]),
        )
        for name, source, start in zip(names, sources, starts, strict=True)
    ]
    found = latencies(
        queries,
        QUERY_POLICIES[policy],
        Pace(EVERY_S, CYCLES * CYCLE_S),
        slots=CORES,
        begin=scale.warm,
        end=scale.warm + scale.counted,
    )
    return float(np.mean(found)) if found else None


def _overdue(query: Query, now: float) -> list[float]:
    """How late windows are that should have fired by now: their watermarks have come.

    Without those, who never serves some queries would look best by those he does serve.
    """
    told = (query.last_progress or {}).get("eventTime", {}).get("watermark")
    if told is None:
        return []
    mark, found = datetime.fromisoformat(told).timestamp(), list[float]()
    for period in PERIODS[query.name.partition("-")[0]]:
        ends = np.arange(mark // period + 1, now // period + 1) * period
        found += [now - float(end) for end in ends if end + LONGEST_S < now]
    return found


def capacity(
    scale: Scale,
    seed: int,
    tell: Callable[[str], object] = lambda _: None,
    probing: Sequence[str] = PROBING,
) -> dict[str, float]:
    """Rows a second of one query that can be sustained, by system; loads are parts of the most.

    The protocol of StreamBox's code: a rate is sustained where latencies stay below a target. What
    a backlog gives is no capacity: the epochs of a query that is behind get larger and a row
    cheaper, so at that rate everybody is behind for ever, and the later the longer one looks.
    """
    short = replace(scale, counted=scale.probe)
    run(probing[0], PROBED, short, seed)  # a JVM is slow at first, and that is not what is asked
    found = dict[str, float]()
    for policy in probing:
        low, high = 0.0, PROBED
        while sustained(policy, high, short, seed):
            tell(policy)
            low, high = high, high * MORE
        for _ in range(HALVINGS):
            rate = (low + high) / 2
            low, high = (rate, high) if sustained(policy, rate, short, seed) else (low, rate)
            tell(policy)
        found[policy] = low
    return found


def sustained(policy: str, rate: float, scale: Scale, seed: int) -> bool:
    """Whether rows at that rate are kept up with, and windows in time."""
    found = run(policy, rate, scale, seed)
    kept_up = found.rows_per_second >= KEPT_UP * rate * scale.queries
    return kept_up and bool(found.latencies) and found.p99 <= TARGET_S


def _nothing(rows: list[dict[str, Any]], epoch: int) -> None:
    del rows, epoch


__all__ = [
    "FULL",
    "LONGEST_S",
    "QUICK",
    "SYSTEMS",
    "TINY",
    "Outcome",
    "Scale",
    "capacity",
    "run",
]
