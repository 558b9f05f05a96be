"""Many queries on the cores of one node, in virtual time: what a policy does to their latencies.

A query has rows that come at a rate and windows that end one after the other. A window fires when
its sweeping watermark is worked off, which comes as late as the network brings it and waits behind
the rows that came before it. Its latency is from the end of the window to that moment, as in
Farhat, Daudjee, Querzoni 2021, section 6. Rows are a fluid: how many wait is a number, not a list.

In every cycle cores are given to queries by rank; one that is done with all that waited leaves its
core to the next. Beside the policies there are two that know nothing
of queries' progress, as Spark schedules the jobs of streaming queries: one batch of a query at a
time, which is all that waits when it begins; jobs in the order in which they came (`fifo`), or all
that there are at once (`fair`). What is drawn is drawn by the caller's chance, the same for every
policy.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from anabranch.scheduling.query_view import Policy, QueryView
from anabranch.scheduling.slack import CYCLE_S, slack
from anabranch.scheduling.sweeps import Estimate, Moments, Sweeps

if TYPE_CHECKING:
    import random  # noqa: TID251 - the type alone

_TINY = 1e-9
"""Seconds that are none: sums of floats do not come out even."""


class Delay(Protocol):
    """How late the network brings what is sent."""

    def drawn(self, chance: random.Random) -> float:
        """Seconds."""


@dataclass(frozen=True, slots=True)
class UniformDelay:
    """Any delay between two is as likely as any other."""

    low: float
    high: float

    def drawn(self, chance: random.Random) -> float:
        """Seconds."""
        return chance.uniform(self.low, self.high)


@dataclass(frozen=True, slots=True)
class ZipfDelay:
    """Delays of 1 to `most` units, the n-th as likely as `n ** -exponent`."""

    unit: float
    most: int = 100
    exponent: float = 0.99

    def drawn(self, chance: random.Random) -> float:
        """Seconds."""
        weights = [n**-self.exponent for n in range(1, self.most + 1)]
        return self.unit * chance.choices(range(1, self.most + 1), weights)[0]


@dataclass(frozen=True, slots=True)
class Load:
    """One query: what comes to it and what that costs."""

    rate: float
    """Rows a second."""
    cost: float
    """Seconds of one core a row, to the end of the pipeline."""
    window: float
    """Seconds."""
    delay: Delay
    start: float = 0.0
    gives: float = 0.01
    """Rows that leave, for one that comes in."""
    firing: float = 0.0
    """Seconds of one core that a window takes to fire."""
    joined: tuple[Delay, ...] = ()
    """Of further inputs, where it is a join: a window's watermark has come when all have it."""
    slack_of: Callable[[Iterable[float]], float] = min
    """Which of its inputs' slacks is a join's."""

    @property
    def delays(self) -> tuple[Delay, ...]:
        """Of all inputs."""
        return (self.delay, *self.joined)

    @property
    def share(self) -> float:
        """Of one core, what it takes to keep up."""
        return self.rate * self.cost + self.firing / self.window


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    latencies: tuple[tuple[float, ...], ...]
    """Of each query, window by window, in seconds."""
    rows: float
    """That were worked off."""
    most_waiting: float
    """Rows that waited, at the worst moment."""
    longest_wait: float
    """The longest that a query with something to do had no turn."""
    overdue: tuple[float, ...] = ()
    """How late windows are by the end whose watermarks have come, and that have not fired."""

    @property
    def all(self) -> list[float]:
        """All latencies, in order of size; what has not fired is at least as late as it is.

        Without those, who never serves some queries would look best by those he does serve.
        """
        return sorted([*(each for query in self.latencies for each in query), *self.overdue])

    @property
    def mean(self) -> float:
        """The mean latency of all windows."""
        return sum(self.all) / len(self.all)

    def quantile(self, share: float) -> float:
        """The latency that so many do not exceed."""
        found = self.all
        return found[min(len(found) - 1, math.ceil(share * len(found)) - 1)]


@dataclass(slots=True)
class Piece:
    """Something that waits: rows, or the watermark that ends a window."""

    came: float
    rows: float = 0.0
    work: float = 0.0
    """Seconds that are left of it."""
    ends: float | None = None
    """The end of the window that it makes fire."""


@dataclass(slots=True)
class Running:
    """A query at work."""

    place: int
    load: Load
    chance: random.Random
    queue: deque[Piece] = field(default_factory=deque)
    coming: deque[tuple[tuple[float, ...], float]] = field(default_factory=deque)
    """Watermarks on their way: when each input has it, and the end of its window."""
    fired: list[tuple[float, float]] = field(default_factory=list)
    """The ends of windows, and when each fired."""
    sweeps: list[Sweeps] = field(init=False)
    """Of each input."""
    since: float = 0.0
    """Up to when rows have come."""
    served: float = 0.0
    done: float = 0.0
    batch: float = 0.0
    """Seconds of work that are left of its batch, where there are batches."""

    def __post_init__(self) -> None:
        """Know nothing of any input."""
        self.sweeps = [Sweeps() for _ in self.load.delays]

    @property
    def latencies(self) -> list[float]:
        """Of windows, from their ends."""
        return [at - end for end, at in self.fired]

    def overdue(self, now: float) -> list[float]:
        """How late windows are whose watermarks have come, and that have not fired."""
        return [now - piece.ends for piece in self.queue if piece.ends is not None]

    @property
    def work(self) -> float:
        """Seconds of all that waits."""
        return sum(piece.work for piece in self.queue)

    @property
    def rows(self) -> float:
        """That wait."""
        return sum(piece.rows for piece in self.queue)

    def plan(self, horizon: float) -> None:
        """Know when every watermark comes; none overtakes the one before it."""
        load = self.load
        last = [0.0 for _ in load.delays]
        self.since = self.served = load.start
        for number in range(1, int((horizon - load.start) / load.window) + 1):
            ends = load.start + number * load.window
            last = [
                max(before, ends + delay.drawn(self.chance))
                for before, delay in zip(last, load.delays, strict=True)
            ]
            if max(last) <= horizon:
                self.coming.append((tuple(last), ends))

    def arrive(self, now: float) -> None:
        """Take what has come up to now."""
        while self.coming and max(self.coming[0][0]) <= now:
            came, ends = self.coming.popleft()
            self._rows_until(max(came))
            self.queue.append(Piece(max(came), work=self.load.firing, ends=ends))
            for number, at in enumerate(came):
                self.sweeps[number] = self.sweeps[number].swept(at - ends)
        self._rows_until(now)

    def _rows_until(self, at: float) -> None:
        if at <= self.since:
            return
        rows = self.load.rate * (at - self.since)
        for number, delay in enumerate(self.load.delays):
            found = Moments.of(delay.drawn(self.chance))
            self.sweeps[number] = self.sweeps[number].brought(found)
        self.queue.append(Piece(self.since, rows, rows * self.load.cost))
        self.since = at

    def operate(self, begin: float, seconds: float, cores: float = 1.0) -> float:
        """Work off what waits, from then on, for so long; the seconds that it took."""
        spent = 0.0
        while self.queue and (spent < seconds - _TINY or not self.queue[0].work):
            piece = self.queue[0]
            took = min(piece.work / cores, seconds - spent)
            share = 1.0 if piece.work <= took * cores + _TINY else took * cores / piece.work
            self.done += piece.rows * share
            spent += took
            if share < 1.0:
                piece.rows, piece.work = piece.rows * (1 - share), piece.work * (1 - share)
                break
            if piece.ends is not None:
                self.fired.append((piece.ends, begin + spent))
            self.queue.popleft()
        return spent

    def view(self, now: float) -> QueryView:
        """What a policy sees of it."""
        cost, due = self.work, self._due()
        slacks = [slack(each, now, cost) for each in self._expected(due, now)]
        return QueryView(
            self.place,
            now,
            round(self.rows),
            cost,
            self.load.gives,
            self.queue[0].came if self.queue else now,
            self.served,
            due,
            self.load.slack_of(slacks) if slacks else None,
        )

    def _due(self) -> float | None:
        """The end of the next window that has not fired."""
        waiting = [piece.ends for piece in self.queue if piece.ends is not None]
        if waiting:
            return waiting[0]
        return self.coming[0][1] if self.coming else None

    def _expected(self, due: float | None, now: float) -> list[Estimate]:
        """When the watermark of that window comes, by input; one that has come is known."""
        for piece in self.queue:
            if piece.ends is not None:
                return [Estimate(piece.came, 0.0)]
        if due is None:
            return []
        come = self.coming[0][0]
        found = [
            Estimate(at, 0.0) if at <= now else sweeps.next(due)
            for at, sweeps in zip(come, self.sweeps, strict=True)
        ]
        return [each for each in found if each is not None]


def by_policy(
    loads: Sequence[Load],
    policy: Policy,
    chance: random.Random,
    *,
    cores: int = 2,
    horizon: float = 60.0,
    cycle: float = CYCLE_S,
) -> Outcome:
    """Run queries by a policy: in each cycle those of the least ranks have the cores."""

    def turn(queries: list[Running], now: float) -> None:
        share_cores([query for query in queries if query.queue], policy, now, cycle, cores)

    return _run(loads, turn, horizon, cycle, chance)


def share_cores(
    waiting: Sequence[Running], policy: Policy, now: float, cycle: float, cores: int
) -> None:
    """Give the cores of one node to who goes first; who is done leaves his to the next."""
    used = [0.0] * cores
    for running in sorted(waiting, key=lambda each: policy(each.view(now))):
        core = min(range(cores), key=used.__getitem__)
        if used[core] >= cycle - _TINY:
            return
        used[core] += running.operate(now + used[core], cycle - used[core])
        running.served = now + used[core]


def by_batches(
    loads: Sequence[Load],
    chance: random.Random,
    *,
    fair: bool,
    cores: int = 2,
    horizon: float = 60.0,
    cycle: float = CYCLE_S,
) -> Outcome:
    """Run queries as Spark does: batch by batch, in the order of their jobs or all at once."""
    jobs: deque[Running] = deque()

    def turn(queries: list[Running], now: float) -> None:
        left, at = cycle, now
        while left > _TINY:
            for query in queries:
                if query.batch <= _TINY and query.queue and query not in jobs:
                    query.batch = query.work
                    jobs.append(query)
            if not jobs:
                return
            shared = list(jobs) if fair else [jobs[0]]
            each = min(left, *(query.batch * len(shared) / cores for query in shared))
            each = max(each, _TINY)
            for query in shared:
                query.operate(at, each, cores / len(shared))
                query.batch -= each * cores / len(shared)
                query.served = at + each
            for query in [query for query in shared if query.batch <= _TINY]:
                jobs.remove(query)
            left, at = left - each, at + each

    return _run(loads, turn, horizon, cycle, chance)


def _run(
    loads: Sequence[Load],
    turn: Callable[[list[Running], float], None],
    horizon: float,
    cycle: float,
    chance: random.Random,
) -> Outcome:
    queries = [Running(place, load, chance) for place, load in enumerate(loads)]
    for query in queries:
        query.plan(horizon)
    most = longest = 0.0
    for number in range(math.ceil(horizon / cycle)):
        now = number * cycle
        for query in queries:
            query.arrive(now)
        most = max(most, sum(query.rows for query in queries))
        turn(queries, now)
        waits = (now - query.served for query in queries if query.queue)
        longest = max([longest, *waits])
    found = tuple(tuple(query.latencies) for query in queries)
    overdue = tuple(each for query in queries for each in query.overdue(horizon))
    return Outcome(found, sum(query.done for query in queries), most, longest, overdue)
