"""The same machines under a clock that is only imagined: how a query would do, in no time at all.

Rows arrive at a rate, cycles take what a model of costs says, and the machines decide as they do on
Spark. Nothing is read or computed, so that hours of a query take milliseconds to look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.epoch.machine import Known, Machine, Rules
from anabranch.epoch.protocol import (
    Committed,
    Event,
    HeadsDone,
    LanesDone,
    Offer,
    Offered,
    PlanEpoch,
    Planned,
)
from anabranch.epoch.watermarks import SourceTime
from anabranch.scheduling.session_machine import Cycle, First, SessionMachine

MICROSECONDS = 1_000_000
SOURCE = "read-1"
"""The one source: tickets are epochs."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What things take, in seconds; the defaults are of the order measured on two cores."""

    job: float = 0.025
    head_row: float = 1 / 15_000_000
    lane_epoch: float = 0.003
    commit: float = 0.002


@dataclass(frozen=True, slots=True)
class Load:
    """Rows a second, for so many seconds; event time is arrival time."""

    rate: float
    seconds: float
    max_rows: int | None = None


@dataclass(slots=True)
class Report:
    """What came of it."""

    latencies: list[float] = field(default_factory=list)
    """Of each epoch, from its cut to its commit."""
    cycles: int = 0
    rows: int = 0
    ended: float = 0.0

    @property
    def median_latency(self) -> float:
        """The middle one."""
        return sorted(self.latencies)[len(self.latencies) // 2]


class Simulation:
    """One query in virtual time."""

    def __init__(
        self,
        rules: Rules,
        load: Load,
        costs: Costs,
        slots: int = 2,
        first: First = First.LANES,
    ) -> None:
        """Begin at second 0."""
        self._load, self._costs, self._slots = load, costs, slots
        self._machine = Machine(rules, Known({SOURCE: SourceTime((0,), lateness=0)}, {}, {}))
        self._session = SessionMachine(slots, first=first)
        self._now, self._at = 0.0, 0
        self._cut_at: dict[int, float] = {}
        self.report = Report()

    def run(self) -> Report:
        """Go on until all rows have come and are committed."""
        while not self._over:
            self._plan()
            cycle = self._session.choose(self._machine.ready())
            if not cycle:
                self._wait()
                continue
            self._machine.take(*cycle.works)
            self._cycle(cycle)
        self.report.ended = self._now
        return self.report

    @property
    def _over(self) -> bool:
        return self._now > self._load.seconds and self._machine.idle and self._at >= self._arrived

    @property
    def _arrived(self) -> int:
        return int(self._load.rate * min(self._now, self._load.seconds))

    def _plan(self) -> None:
        while self._machine.wants_offer(SOURCE):
            end = self._arrived
            if self._load.max_rows is not None:
                end = min(end, self._at + self._load.max_rows)
            offer = Offer({0: (self._at, end)}, frozenset(), None, more=end < self._arrived)
            planned = [
                c for c in self._tell(Offered(offer, self._now, SOURCE)) if isinstance(c, PlanEpoch)
            ]
            if not planned:
                return
            self._at = end
            for command in planned:
                self._cut_at[command.epoch] = self._now
                self._tell(Planned(command.epoch))

    def _wait(self) -> None:
        """Nothing to do before the next epoch is due."""
        due = self._machine.next_cut
        self._now = max(self._now + 0.001, due if due is not None else 0.0)

    def _cycle(self, cycle: Cycle) -> None:
        costs = self._costs
        rows = {work.ticket: self._rows(work.ticket) for work in cycle.heads}
        heads = sum(rows.values()) * costs.head_row / min(self._slots, max(len(rows), 1))
        taken = costs.job + heads + len(cycle.lanes) * costs.lane_epoch
        self._now += taken
        self.report.cycles += 1
        for work in cycle.heads:
            time = int(self._now * MICROSECONDS)
            self._tell(HeadsDone(work.ticket, {0: time}, {0: rows[work.ticket]}))
        if cycle.lanes:
            self._commit(tuple(work.epoch for work in cycle.lanes))
        waiting = sum(1 for _ in self._machine.ready())
        self._session = self._session.learn(cycle, taken, waiting)

    def _commit(self, epochs: tuple[int, ...]) -> None:
        self._tell(LanesDone(epochs))
        self._now += self._costs.commit
        for epoch in epochs:
            self.report.latencies.append(self._now - self._cut_at.pop(epoch))
            self.report.rows += self._rows(epoch)
        self._tell(Committed(epochs[-1]))

    def _rows(self, epoch: int) -> int:
        start, end = self._machine.container(epoch).offer.offsets[0]
        return int(end - start)

    def _tell(self, event: Event) -> list[object]:
        commands = self._machine.handle(event)
        self._machine.validate()
        return list(commands)
