"""What a query can expect: learnt from its commits, told when it asks for a turn.

Event times and watermarks are microseconds, moments seconds of the wall clock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.epoch.machine import Container
from anabranch.epoch.watermarks import END_OF_TIME, SourceTime
from anabranch.observe.waits import Shape, Wait
from anabranch.scheduling.expectations import Expectations
from anabranch.scheduling.memory_mode import Waiting
from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.sweeps import Estimate

_LOG = logging.getLogger("anabranch")

MOST_FIRINGS = 64
"""Windows of one commit whose latencies are told: a replay passes thousands."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in a query, at one moment."""

    unread: int
    """Rows, as far as offsets count them."""
    read: int
    """Rows that are not committed."""
    held: int
    """Bytes of those."""
    oldest: float
    """When the oldest of them came."""


@dataclass(slots=True)
class Prospects:
    """Of one query; used by its own thread."""

    shape: Shape
    goal: float | None = None
    known: Expectations = field(default_factory=Expectations)
    watermarks: dict[str, int | None] = field(default_factory=dict)
    """Of each source, behind the last commit."""
    arrived: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The newest watermark of each source that has come and is not committed, and when it came."""
    fired: int = 0
    missed: int = 0
    """Windows that fired since the start, and those of them behind the goal."""
    jobs: int = 0
    rows: int = 0
    seconds: float = 0.0
    """Jobs of the turns that are over, rows that they read, and how long those turns took."""
    under_way: tuple[int, int] = (0, 0)
    """Jobs of the turn that is not over, and their rows: what it takes is not known yet."""

    @classmethod
    def of(cls, shape: Shape, goal: float | None, times: Mapping[str, SourceTime]) -> Prospects:
        """Of a query that begins behind these times."""
        marks = {name: time.watermark for name, time in times.items()}
        return cls(shape, goal, watermarks=marks)

    def worked(self, rows: int, seconds: float) -> None:
        """Learn from a job."""
        self.known = self.known.worked(rows, seconds)
        jobs, before = self.under_way
        self.under_way = jobs + 1, before + rows

    def turned(self, seconds: float) -> None:
        """Note how long a turn took: its jobs, and what the driver did before and behind them."""
        (jobs, rows), self.under_way = self.under_way, (0, 0)
        self.jobs, self.rows, self.seconds = (
            self.jobs + jobs,
            self.rows + rows,
            self.seconds + seconds,
        )

    def came(self, source: str, watermark: int | None, at: float) -> None:
        """Note that a source's watermark is known, though not committed."""
        if watermark is not None:
            self.arrived[source] = watermark, at

    def read(self, container: Container, at: float) -> None:
        """Learn from an epoch that was cut at that moment, and is to be committed."""
        heads, source = container.heads, container.source
        if heads is None or container.before is None or container.after is None:
            return
        before = container.before.times[source].watermark
        after = container.after.times[source].watermark
        if before is not None and after not in (None, END_OF_TIME):
            self.known = self.known.dense(sum(heads.rows.values()), ((after or 0) - before) / 1e6)
        times = [time / 1e6 for time in heads.greatest.values() if time is not None]
        live, known = source not in self.known.replays, self.known.read(source, times, at)
        if container.offer.more and source not in known.replays:
            return  # what was left had come before: how late it is says how long it waited here
        self.known = known
        if live and source in self.known.replays:
            _LOG.info("event times of %s are not of now: nothing is expected by them", source)
        for wait in self._waits(source):
            due = _due(wait, source, before)
            if due is not None and after is not None and due <= after != END_OF_TIME:
                # As late as the newest that has come: what is older may have waited for a turn.
                self.known = self.known.swept(source, after / 1e6, at)

    def committed(self, times: Mapping[str, SourceTime], now: float) -> list[float]:
        """Note a commit; the seconds that windows which it made fire took from their ends."""
        found = list[float]()
        for wait in self.shape.waits:
            before, after = (
                wait.watermark({name: known.get(name) for name in wait.lags})[0]
                for known in (self.watermarks, {n: each.watermark for n, each in times.items()})
            )
            found += _firings(wait, before, after, now)
        self.watermarks = {name: each.watermark for name, each in times.items()}
        live = [each for each in found if not self.known.replays]
        self._count(live)
        return live

    def _count(self, latencies: Sequence[float]) -> None:
        self.fired += len(latencies)
        if self.goal is not None:
            self.missed += sum(each > self.goal for each in latencies)

    def count_rows(self, latencies: Sequence[float]) -> None:
        """Note how long epochs took, where a goal is about rows: there are no windows."""
        if not self.shape.waits:
            self._count(latencies)

    def gave(self, taken: int, given: int) -> None:
        """Learn from what a commit brought."""
        self.known = self.known.gave(taken, given)

    def expected(self) -> Estimate | None:
        """When a window fires next: when the last of its inputs has come."""
        _, found = self._next()
        return max(found, key=lambda each: each.at, default=None)

    def prospect(self, backlog: Backlog, now: float) -> Prospect:
        """What it can say of itself."""
        rows = backlog.unread + backlog.read
        due, expected = self._next()
        gives = self.known.gives
        return Prospect(
            now,
            rows,
            self.known.cost(self._before(due, rows)),
            gives,
            backlog.oldest,
            None if due is None else due / 1e6,
            expected,
            self.goal,
            backlog.held,
            (Waiting(backlog.read, self.known.row, min(1.0, gives)),),
        )

    def _before(self, due: int | None, rows: int) -> int:
        """How many of the rows that wait have to be worked off before a window can fire."""
        marks = [mark for mark in self.watermarks.values() if mark not in (None, END_OF_TIME)]
        if due is None or not marks or self.known.replays:
            return rows
        return self.known.rows_within((due - min(mark or 0 for mark in marks)) / 1e6, rows)

    def fires(self) -> bool:
        """Whether all has come that the next window waits for, so that it only has to be done."""
        due, _ = self._next()
        if due is None or self.known.replays:
            return False
        return all(
            (self.watermarks.get(source) or 0) >= due + lag
            or self.arrived.get(source, (0, 0.0))[0] >= due + lag
            for wait in self.shape.waits
            if self._end(wait) == due
            for source, lag in wait.lags.items()
        )

    def _next(self) -> tuple[int | None, tuple[Estimate, ...]]:
        """The end of the window that fires next, and when its watermark comes, of each input."""
        ends = [(end, wait) for wait in self.shape.waits if (end := self._end(wait)) is not None]
        if not ends:
            return None, ()
        first = min(end for end, _ in ends)
        expected = list[Estimate]()
        for end, wait in ends:
            if end == first:
                expected += [
                    found
                    for source, lag in wait.lags.items()
                    if (found := self._expected(source, end + lag)) is not None
                ]
        return first, tuple(expected)

    def _end(self, wait: Wait) -> int | None:
        at, _ = wait.watermark({name: self.watermarks.get(name) for name in wait.lags})
        return None if at is None or at == END_OF_TIME else wait.next_end(at)

    def _expected(self, source: str, due: int) -> Estimate | None:
        if (passed := self.watermarks.get(source)) is not None and passed >= due:
            return None  # it is not this one that is waited for
        watermark, at = self.arrived.get(source, (None, 0.0))
        if watermark is not None and watermark >= due:
            return Estimate(at, 0.0)
        return self.known.next(source, due / 1e6)

    def _waits(self, source: str) -> list[Wait]:
        return [wait for wait in self.shape.waits if source in wait.lags]


def _due(wait: Wait, source: str, watermark: int | None) -> int | None:
    """The watermark of a source at which an operator fires next."""
    if watermark is None or watermark == END_OF_TIME:
        return None
    lag = wait.lags[source]
    end = wait.next_end(watermark - lag)
    return None if end is None else end + lag


def _firings(wait: Wait, before: int | None, after: int | None, now: float) -> list[float]:
    """How long ago windows ended that fire between two watermarks, in seconds."""
    if before is None or after in (None, END_OF_TIME) or before == END_OF_TIME:
        return []
    found, end = list[float](), wait.next_end(before)
    while end is not None and end <= (after or 0) and len(found) < MOST_FIRINGS:
        found.append(now - end / 1e6)
        end = wait.next_end(end)
    return found
