"""A session in virtual time: the turns of queries whose costs were measured, one Spark job each.

What decides is what ships: `scheduling/turns.py` with its policies and guard, over prospects made
of the same estimates. What is imagined is the work: a turn takes what a turn took in a real run,
and so much for each row that it reads. A turn reads what has come since the one before, and works
off what that one had read; windows fire at its end, if the watermark of what it worked off is past
theirs. Events come in blocks, each as late as was drawn for the run that costs were taken from.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.query_view import Policy
from anabranch.scheduling.sweeps import Estimate, Moments, Sweeps
from anabranch.scheduling.turns import Turns

LOOK_S = 0.01
"""How often a query looks whether it has something to do."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a query costs, as a real run told."""

    turn: float
    """Seconds of a turn of one job, whatever is in it."""
    row: float
    """Seconds a row that a turn reads, beyond that."""
    commit: float = 0.0
    """Seconds from the end of a turn until what it brought is seen."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What comes to a query: blocks of as many rows each, in order."""

    begin: float
    """When the first row happens; times of events count from there."""
    rate: float
    """Rows a second."""
    rows: int
    """Of a block."""
    here: tuple[float, ...]
    """When each block can be read, in seconds of the run."""

    def come(self, now: float) -> int:
        """How many blocks can be read."""
        return bisect_right(self.here, now)

    def watermark(self, blocks: int) -> float | None:
        """The event time of the last row of so many blocks, in seconds of the run."""
        return self.begin + (blocks * self.rows - 1) / self.rate if blocks else None


@dataclass(frozen=True, slots=True)
class Simulated:
    """A query of a session."""

    costs: Measured
    feed: Feed
    periods: tuple[float, ...]
    """Seconds between the ends of windows, of each operator that has some."""
    origin: float = 0.0
    """A moment of the run at which windows of all periods end."""
    levels: int = 1
    """Operators with windows, one behind the other: each has a job of its own when it fires."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a session goes about it, in seconds."""

    every: float
    """Between two epochs of a query, if it has no more waiting."""
    cycle: float = 0.48
    """That a turn may take."""


@dataclass(slots=True)
class _Query:
    """One at work."""

    given: Simulated
    sweeps: Sweeps = field(default_factory=Sweeps)
    read: int = 0
    """Blocks that were read."""
    ready: int | None = None
    """Up to which block the next turn works off; None: nothing was read."""
    marks: float | None = None
    """The watermark behind the last commit."""
    cut: float = -math.inf
    """When it read last."""
    arrived: float = 0.0
    """When what is ready had come."""
    asking: bool = False
    fired: list[tuple[float, float]] = field(default_factory=list)
    """Ends of windows, and when they fired."""

    def wants(self, now: float, pace: Pace) -> bool:
        """Whether it has something to do."""
        come = self.given.feed.come(now) > self.read
        return self.ready is not None or (come and self.due(now, pace.every))

    def due(self, now: float, every: float) -> bool:
        """Whether the next epoch is."""
        return now - self.cut >= every - 1e-9

    def prospect(self, now: float) -> Prospect:
        """What it says of itself."""
        feed, costs = self.given.feed, self.given.costs
        unread = (feed.come(now) - self.read) * feed.rows
        end, read = self.next_end(), feed.watermark(self.read)
        before = unread if end is None or read is None else max(0.0, end - read) * feed.rate
        expected = None if end is None else self._expected(end)
        oldest = self.arrived if self.ready is not None else self._oldest(now)
        return Prospect(
            now,
            unread,
            costs.turn + min(unread, before) * costs.row,
            oldest=oldest,
            due=end,
            expected=() if expected is None else (expected,),
        )

    def _oldest(self, now: float) -> float:
        here = self.given.feed.here
        return here[self.read] if self.read < len(here) and here[self.read] <= now else now

    def next_end(self) -> float | None:
        """The end of the window that fires next."""
        if self.marks is None:
            return None
        return min(_after(self.marks, period, self.given.origin) for period in self.given.periods)

    def _expected(self, end: float) -> Estimate | None:
        mark = None if self.ready is None else self.given.feed.watermark(self.ready)
        if mark is not None and mark >= end:
            return Estimate(self.arrived, 0.0)
        return self.sweeps.next(end)

    def take(self, now: float, pace: Pace) -> tuple[int, float]:
        """Begin a turn: how many blocks are worked off by its end, and how long it takes.

        What it reads is worked off by the next one, unless a window waits for nothing else.
        """
        works, blocks = self.ready or 0, 0
        self.ready = None
        come = self.given.feed.come(now) - self.read
        if come > 0 and self.due(now, pace.every):
            blocks, before = min(come, self._most(pace)), self.given.feed.watermark(self.read)
            self.read += blocks
            self.ready, self.arrived = self.read, now
            self.cut = now if blocks == come else -math.inf
            self._learn(before, now)
        took = self.given.costs.turn + blocks * self.given.feed.rows * self.given.costs.row
        if self._fires():
            assert self.ready is not None
            works, self.ready = self.ready, None
            took += self.given.levels * self.given.costs.turn
        return works, took

    def _fires(self) -> bool:
        """Whether all that was read makes a window fire."""
        end = self.next_end()
        mark = None if self.ready is None else self.given.feed.watermark(self.ready)
        return end is not None and mark is not None and mark >= end

    def _most(self, pace: Pace) -> int:
        """Blocks that a turn may read: as many as it has time for."""
        costs, rows = self.given.costs, self.given.feed.rows
        if not costs.row:
            return max(1, len(self.given.feed.here))
        return max(1, int((pace.cycle - costs.turn) / (costs.row * rows)))

    def _learn(self, before: float | None, now: float) -> None:
        mark = self.given.feed.watermark(self.read)
        assert mark is not None
        if self.given.feed.come(now) > self.read:
            return  # what is left had come before: how late it is says how long it waited here
        self.sweeps = self.sweeps.brought(Moments.of(now - mark))
        if before is None:
            return
        for period in self.given.periods:
            if _after(before, period, self.given.origin) <= mark:
                self.sweeps = self.sweeps.swept(now - mark)

    def commit(self, works: int, now: float) -> None:
        """Let windows fire up to the watermark of what was worked off."""
        mark, before = self.given.feed.watermark(works), self.marks
        assert mark is not None
        self.marks = mark
        if before is None:
            return
        for period in self.given.periods:
            end = _after(before, period, self.given.origin)
            while end <= mark:
                self.fired.append((end, now))
                end += period


def _after(moment: float, period: float, origin: float) -> float:
    """The first end of a window behind a moment."""
    return origin + (math.floor((moment - origin) / period + 1e-9) + 1) * period


def latencies(
    queries: Sequence[Simulated],
    policy: Policy,
    pace: Pace,
    *,
    slots: int,
    begin: float,
    end: float,
) -> list[float]:
    """How long windows took from their ends that fired between two moments, in seconds.

    Windows whose watermarks had come and that had not fired by the end count with how late they
    were by then.
    """
    running = [_Query(each) for each in queries]
    turns, now = Turns(policy, slots), 0.0
    for place in range(len(running)):
        turns = turns.enter(place, now)
    events: list[tuple[float, int, int]] = []
    """Ends of turns: when, whose, and how many blocks are worked off by then."""
    while now < end:
        for place, query in enumerate(running):
            if not query.asking and query.wants(now, pace):
                query.asking = True
                turns = turns.ask(place, query.prospect(now))
        turns, granted = turns.next(now)
        for each in granted:
            query = running[each.place]
            works, took = query.take(now, pace)
            heapq.heappush(events, (now + took, each.place, works))
        step = _next(running, now, pace)
        now = min([step, *(at for at, _, _ in events[:1])])
        while events and events[0][0] <= now + 1e-12:
            at, place, works = heapq.heappop(events)
            query = running[place]
            turns, query.asking = turns.end(place, at), False
            if works:
                query.commit(works, at + query.given.costs.commit)
    found = [at - over for query in running for over, at in query.fired if begin <= at < end]
    return found + [each for query in running for each in _overdue(query, end)]


def _next(running: Sequence[_Query], now: float, pace: Pace) -> float:
    """When somebody has something to do who has nothing now, if no turn ends before."""
    found = [now + pace.every]
    for query in running:
        if query.asking:
            continue
        here, read = query.given.feed.here, query.read
        come = here[read] if read < len(here) else math.inf
        found.append(max(come, query.cut + pace.every))
    return max(min(found), now + LOOK_S)


def _overdue(query: _Query, now: float) -> list[float]:
    if query.marks is None:
        return []
    come, found = query.given.feed.watermark(query.given.feed.come(now)), list[float]()
    for period in query.given.periods:
        end = _after(query.marks, period, query.given.origin)
        while come is not None and end <= come:
            found.append(now - end)
            end += period
    return found
