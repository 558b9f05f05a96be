"""One query's epochs: when they are cut, what of them is ready, in which order they count.

Pure: events in, commands out; no clock, no data, no waiting. Every epoch is a container that goes
through the stages of `TRANSITIONS`; stateless work of later epochs may overtake, the lanes take
epochs in order, and so do commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from anabranch.epoch.protocol import (
    Command,
    Committed,
    Event,
    Fail,
    Finish,
    HeadsDone,
    HeadWork,
    LanesDone,
    LaneWork,
    Offer,
    Offered,
    PlanEpoch,
    Planned,
    StopAsked,
    Story,
    Work,
    WorkFailed,
)
from anabranch.epoch.watermarks import SourceTime


class Stage(Enum):
    """How far an epoch is."""

    PLANNING = "planning"
    OPEN = "open"
    READING = "reading"
    PLACED = "placed"
    IN_LANES = "in lanes"
    DONE = "done"


TRANSITIONS: frozenset[tuple[Stage, Stage]] = frozenset(
    {
        (Stage.PLANNING, Stage.OPEN),  # its plan is durable
        (Stage.OPEN, Stage.READING),  # its heads were taken into a cycle
        (Stage.READING, Stage.PLACED),  # its end watermark is known, so is its place in the log
        (Stage.READING, Stage.OPEN),  # its heads failed and may be repeated
        (Stage.PLACED, Stage.IN_LANES),
        (Stage.IN_LANES, Stage.DONE),
        (Stage.IN_LANES, Stage.PLACED),  # its lanes failed, or those of an epoch before it
    }
)


@dataclass(frozen=True, slots=True)
class Rules:
    """When epochs are cut and how many may be under way.

    `every` is in seconds, 0: as soon as there is something. A bounded run ends when its source has
    no more; what is there when it begins is all it reads.
    """

    every: float = 1.0
    bounded: bool = False
    in_flight: int = 16
    attempts: int = 5


@dataclass(frozen=True, slots=True)
class Container:
    """One epoch under way."""

    epoch: int
    offer: Offer
    stage: Stage = Stage.PLANNING
    attempt: int = 0
    time: SourceTime | None = None
    before: int | None = None
    rows: int = 0


class Machine:
    """The epochs of one query over one source."""

    def __init__(self, rules: Rules, time: SourceTime, *, first: int = 0) -> None:
        """Begin behind the last commit: `first` is the next epoch, `time` the source's by then."""
        self._rules = rules
        self._time = time
        self._next = first
        self._committed = first - 1
        self._containers: dict[int, Container] = {}
        self._heads: dict[int, HeadsDone] = {}
        self._due: float | None = None
        self._exhausted = self._stopping = self._over = False
        self._failures = 0
        self._story: Story = []
        self._handlers: dict[type, Callable[..., list[Command]]] = {
            Offered: self._offered,
            Planned: self._planned,
            HeadsDone: self._heads_done,
            LanesDone: self._lanes_done,
            Committed: self._was_committed,
            WorkFailed: self._failed,
            StopAsked: self._stop,
        }

    def handle(self, *events: Event) -> list[Command]:
        """Take what happened; return what to do next. Never waits."""
        commands: list[Command] = []
        for event in events:
            self._story.append((event,))
            commands += self._handlers[type(event)](event)
        if self._ended() and not self._over:
            self._over = True
            commands.append(Finish())
        self._story += [(command,) for command in commands]
        return commands

    def ready(self) -> list[Work]:
        """The work that may run now, in log order: heads of any epoch, lanes from the first on."""
        lanes: list[Work] = []
        for each in self._in_order():
            if each.stage in (Stage.IN_LANES, Stage.DONE):
                continue
            if each.stage is not Stage.PLACED:
                break
            assert each.time is not None
            after = each.time.watermark
            lanes.append(LaneWork(each.epoch, each.attempt, each.before, after))
        heads: list[Work] = [
            HeadWork(each.epoch, each.attempt)
            for each in self._in_order()
            if each.stage is Stage.OPEN
        ]
        return lanes + heads

    def adopt(self, offers: Mapping[int, Offer]) -> None:
        """Take over epochs that an earlier run planned and did not commit."""
        for epoch in sorted(offers):
            assert epoch == self._next, f"epoch {epoch} after {self._next - 1}"
            self._next += 1
            self._containers[epoch] = Container(epoch, offers[epoch], Stage.OPEN)

    @property
    def last_planned(self) -> int:
        """The newest epoch; the one before the first, if there is none."""
        return self._next - 1

    @property
    def last_committed(self) -> int:
        """The newest epoch that is durable."""
        return self._committed

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._containers

    def take(self, *works: Work) -> None:
        """Note that this work is running."""
        for work in works:
            stage = Stage.READING if isinstance(work, HeadWork) else Stage.IN_LANES
            self._move(work.epoch, stage)

    @property
    def wants_offer(self) -> bool:
        """Whether looking at the source could lead to another epoch."""
        room = len(self._containers) < self._rules.in_flight
        return room and not (self._stopping or self._exhausted or self._over or self._at_its_end)

    @property
    def next_cut(self) -> float | None:
        """When the next epoch is due (seconds of the clock), where that is a matter of time."""
        return self._due

    @property
    def time(self) -> SourceTime:
        """The source's time at the end of the last placed epoch."""
        return self._time

    def container(self, epoch: int) -> Container:
        """How far an epoch is that is not committed."""
        return self._containers[epoch]

    def story(self) -> str:
        """What happened, for people who look for a fault."""
        return "\n".join(str(entry[0]) for entry in self._story[-200:])

    def validate(self) -> None:
        """What holds between any two calls."""
        epochs = sorted(self._containers)
        assert epochs == list(range(self._committed + 1, self._next)), self.story()
        stages = [self._containers[epoch].stage for epoch in epochs]
        taken = [stage in (Stage.IN_LANES, Stage.DONE) for stage in stages]
        assert taken == sorted(taken, reverse=True), self.story()
        placed = [stage in (Stage.PLACED, Stage.IN_LANES, Stage.DONE) for stage in stages]
        assert placed == sorted(placed, reverse=True), self.story()

    def _offered(self, event: Offered) -> list[Command]:
        if not self.wants_offer:
            return []
        if self._due is None:
            self._due = event.at
        offer = event.offer
        finishes = not offer.finished <= self._time_planned().finished
        news = offer.forced or not offer.empty or finishes
        nothing = self._rules.bounded and not news
        if nothing:
            self._exhausted = True
            return []
        if not news or (event.at < self._due and not (offer.more or offer.forced)):
            return []
        # Behind schedule there is no catching up of missed ticks: the next one is a period away.
        self._due = max(self._due + self._rules.every, event.at)
        epoch, self._next = self._next, self._next + 1
        self._containers[epoch] = Container(epoch, offer)
        return [PlanEpoch(epoch, offer)]

    def _planned(self, event: Planned) -> list[Command]:
        self._move(event.epoch, Stage.OPEN)
        return []

    def _heads_done(self, event: HeadsDone) -> list[Command]:
        """Place epochs in the order of the log, as far as their end watermarks are known."""
        self._heads[event.epoch] = event
        for each in self._in_order():
            if each.stage in (Stage.PLACED, Stage.IN_LANES, Stage.DONE):
                continue
            done = self._heads.pop(each.epoch, None)
            if done is None:
                break
            before = self._time.watermark
            self._time = self._time.after(
                done.greatest, finished=each.offer.finished, hint=each.offer.hint
            )
            self._move(each.epoch, Stage.PLACED)
            placed = self._containers[each.epoch]
            self._containers[each.epoch] = replace(
                placed, time=self._time, before=before, rows=done.rows
            )
        return []

    def _lanes_done(self, event: LanesDone) -> list[Command]:
        for epoch in event.epochs:
            self._move(epoch, Stage.DONE)
        self._failures = 0
        return []

    def _was_committed(self, event: Committed) -> list[Command]:
        for epoch in range(self._committed + 1, event.last + 1):
            assert self._containers[epoch].stage is Stage.DONE, self.story()
            del self._containers[epoch]
        self._committed = event.last
        return []

    def _failed(self, event: WorkFailed) -> list[Command]:
        """Repeat what failed; lanes go back together with all that came behind them."""
        self._failures += event.counts
        if self._failures >= self._rules.attempts:
            self._over = True
            return [Fail(event.reason, self._failures)]
        for epoch in event.heads:
            self._again(epoch, Stage.OPEN)
        for epoch in event.lanes:
            self._again(epoch, Stage.PLACED)
        return []

    def _stop(self, event: StopAsked) -> list[Command]:
        self._stopping = True
        if not event.drain:
            self._over = True
            return [Finish()]
        return []

    def _again(self, epoch: int, stage: Stage) -> None:
        self._move(epoch, stage)
        each = self._containers[epoch]
        self._containers[epoch] = replace(each, attempt=each.attempt + 1)

    def _move(self, epoch: int, stage: Stage) -> None:
        each = self._containers[epoch]
        assert (each.stage, stage) in TRANSITIONS, f"{each} to {stage}\n{self.story()}"
        self._containers[epoch] = replace(each, stage=stage)

    def _in_order(self) -> list[Container]:
        return [self._containers[epoch] for epoch in sorted(self._containers)]

    def _time_planned(self) -> SourceTime:
        """The source's time with what the planned epochs say of its end."""
        finished = self._time.finished.union(*(c.offer.finished for c in self._containers.values()))
        return replace(self._time, finished=finished)

    @property
    def _at_its_end(self) -> bool:
        """Whether all that the source will ever hold is planned."""
        return self._time_planned().finished.issuperset(self._time.partitions)

    def _ended(self) -> bool:
        over = self._exhausted or self._stopping or self._at_its_end
        return over and not self._containers
