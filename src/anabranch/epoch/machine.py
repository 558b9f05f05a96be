"""One query's epochs: when they are cut, what of them is ready, in which order they count.

Pure: events in, commands out; no clock, no data, no waiting. Every epoch is a container that goes
through the stages of `TRANSITIONS`.

An epoch has a *ticket* from when it is cut, and a place in the log, which is its number, from when
its end watermark is known: of the epochs of several sources of which it is known, the one with the
least goes first (M3). Until then it is the paper's unordered container: its stateless work runs,
and nothing waits for it. Where there is one source, the place is known when it is cut.

Behind its heads an epoch goes through the levels of the plan. At every level the lanes take epochs
in order. Epochs that were taken together at the first level stay together, so that what a commit
holds is the same at all of them; so do commits follow the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from anabranch.epoch.protocol import (
    Command,
    Committed,
    Cut,
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
    ReadAgain,
    StopAsked,
    Story,
    Work,
    WorkFailed,
)
from anabranch.epoch.watermarks import SourceTime
from anabranch.ids import Marks, Offset, Partition

_TOLD = 200
"""Events and commands that a machine remembers: its story."""


class Stage(Enum):
    """How far an epoch is."""

    OPEN = "open"
    READING = "reading"
    READ = "read"
    PLANNING = "planning"
    PLACED = "placed"
    IN_LANES = "in lanes"
    DONE = "done"


TRANSITIONS: frozenset[tuple[Stage, Stage]] = frozenset(
    {
        (Stage.PLANNING, Stage.OPEN),  # its place was known before it was read
        (Stage.OPEN, Stage.READING),  # its heads were taken into a cycle
        (Stage.READING, Stage.READ),  # its greatest times are known
        (Stage.READING, Stage.OPEN),  # its heads failed and may be repeated
        (Stage.READ, Stage.PLACED),  # its end watermark is known, its plan was written before
        (Stage.READ, Stage.PLANNING),  # its end watermark is known, and so its place in the log
        (Stage.PLANNING, Stage.PLACED),
        (Stage.PLACED, Stage.IN_LANES),
        (Stage.PLACED, Stage.OPEN),  # it is read again, without a record
        (Stage.PLACED, Stage.READ),  # one before it is: its own watermark is known only behind it
        (Stage.IN_LANES, Stage.PLACED),  # to the next level; or its lanes failed, to the same one
        (Stage.IN_LANES, Stage.DONE),
    }
)


_FREEING = frozenset({Stage.READING, Stage.PLANNING, Stage.PLACED, Stage.IN_LANES, Stage.DONE})
"""Whatever becomes of epochs in these stages, it frees room or makes way for what does."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When epochs are cut and how many may be under way.

    `every` is in seconds, 0: as soon as there is something. A bounded run ends when its sources
    have no more; what is there when it begins is all it reads. `in_flight` is for each source.
    """

    every: float = 1.0
    bounded: bool = False
    in_flight: int = 64
    bytes_in_flight: int = 1 << 30
    """Of rows that were read and are not committed; what is read next is taken for as large."""
    attempts: int = 5
    levels: int = 1
    patience: int = 50
    """Cycles in a row after each of which the oldest epoch may be where it was."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of all sources at a place in the log, by their names."""

    times: Mapping[str, SourceTime]
    positions: Mapping[str, Mapping[Partition, Offset]]
    rows: Mapping[str, Mapping[Partition, int]]
    """How many rows each partition has given."""

    def after(self, source: str, time: SourceTime, offer: Offer, done: HeadsDone) -> Known:
        """What is known behind an epoch of a source."""
        ends = {partition: end for partition, (_, end) in offer.offsets.items()}
        rows = dict(self.rows.get(source, {}))
        for partition, count in done.rows.items():
            rows[partition] = rows.get(partition, 0) + count
        return Known(
            {**self.times, source: time},
            {**self.positions, source: {**self.positions.get(source, {}), **ends}},
            {**self.rows, source: rows},
        )


@dataclass(frozen=True, slots=True)
class Container:
    """One epoch under way."""

    ticket: int
    source: str
    offer: Offer
    stage: Stage
    epoch: int | None = None
    """Its place in the log, once it is settled."""
    attempt: int = 0
    level: int = 0
    """The levels it has behind it."""
    group: int = 0
    """The first of the epochs that went through the first level together."""
    heads: HeadsDone | None = None
    before: Known | None = None
    after: Known | None = None

    @property
    def rows(self) -> int:
        """How many it holds, once they are read."""
        return 0 if self.heads is None else sum(self.heads.rows.values())

    @property
    def marks(self) -> Marks:
        """The sources' watermarks around it."""
        assert self.before is not None
        assert self.after is not None
        before, after = self.before.times, self.after.times
        return {name: (before[name].watermark, after[name].watermark) for name in after}


@dataclass(frozen=True, slots=True)
class Guard:
    """Counts the cycles after which all is where it was; a value: each step gives the next one.

    >>> guard = Guard(2).saw("here").saw("here")
    >>> guard.tripped, guard.saw("here").tripped, guard.saw("there").tripped
    (False, True, False)
    """

    patience: int
    place: object = None
    cycles: int = 0
    """In a row that ended in the same place."""

    def saw(self, place: object) -> Guard:
        """What is known after a cycle that ended here."""
        return replace(self, place=place, cycles=self.cycles + 1 if place == self.place else 0)

    @property
    def tripped(self) -> bool:
        """Whether it has been the same place for longer than there is patience for."""
        return self.cycles >= self.patience


@dataclass(frozen=True, slots=True)
class Stall:
    """The oldest epoch does not move, though nothing counts as a failure."""

    epoch: int
    stage: Stage
    cycles: int
    """After each of so many it was where it is."""
    failure: str | None
    """What went wrong last, though it did not count."""


@dataclass(frozen=True, slots=True)
class MachineStatistics:
    """How a query's epochs are at a moment; by source where there are several values."""

    rules: Rules
    containers: tuple[Container, ...]
    """What is not committed: those with a place in the log in its order, then as they were cut."""
    known: Known
    """At the end of the last epoch that has its place."""
    committed: int
    idle: Mapping[str, frozenset[Partition]]
    """As the last epoch that was cut has it."""
    due: Mapping[str, float | None]
    """When the next epoch may be cut; None: nobody has looked yet."""
    at_end: frozenset[str]
    """The sources of which nothing more will be cut."""
    failures: int
    """In a row."""
    failure: str | None
    """What went wrong last."""
    stopping: bool


@dataclass(slots=True)
class _Source:
    """How far a source has been cut."""

    name: str
    finished: frozenset[Partition]
    idle: frozenset[Partition] = frozenset()
    """As the last epoch that was cut has it."""
    due: float | None = None
    exhausted: bool = False
    size: int = 0
    """Bytes of the epoch that was read last."""
    partitions: tuple[Partition, ...] = field(default=())

    @property
    def at_its_end(self) -> bool:
        """Whether all that it will ever hold has been cut."""
        return self.finished.issuperset(self.partitions)


class Machine:
    """The epochs of one query."""

    def __init__(self, rules: Rules, known: Known, *, first: int = 0) -> None:
        """Begin behind the last commit: `first` is the next epoch, `known` what is so by then.

        The sources are in the order of the `read` calls.
        """
        self._rules, self._known = rules, known
        self._sources = {
            name: _Source(name, time.finished, partitions=time.partitions)
            for name, time in known.times.items()
        }
        self._tickets = self._next = first
        self._committed = first - 1
        self._containers: dict[int, Container] = {}
        """By ticket."""
        self._stopping = self._over = False
        self._failures = 0
        self._failure: str | None = None
        self._guard = Guard(rules.patience)
        self._story: Story = []
        self._handlers: dict[type, Callable[..., list[Command]]] = {
            Offered: self._offered,
            Planned: self._planned,
            HeadsDone: self._heads_done,
            LanesDone: self._lanes_done,
            Committed: self._was_committed,
            WorkFailed: self._failed,
            ReadAgain: self._read_again,
            StopAsked: self._stop,
        }

    def handle(self, *events: Event) -> list[Command]:
        """Take what happened; return what to do next. Never waits."""
        commands: list[Command] = []
        for event in events:
            self._story.append((event,))
            found = self._handlers[type(event)](event)
            if isinstance(event, Offered) and not found:
                # Looks that lead to nothing come fifty times a second, and would be all there is.
                self._story.pop()
            commands += found
        if self._ended() and not self._over:
            self._over = True
            commands.append(Finish())
        self._story += [(command,) for command in commands]
        del self._story[:-_TOLD]
        return commands

    def ready(self) -> list[Work]:
        """The work that may run now: lanes in log order, then heads in the order they were cut."""
        heads = (HeadWork(each.ticket, each.attempt) for each in self._ready_heads())
        return [*self._ready_lanes(), *heads]

    @property
    def times(self) -> Mapping[str, SourceTime]:
        """Of all sources, at the end of the last epoch that has its place."""
        return self._known.times

    @property
    def held(self) -> int:
        """Bytes of rows that were read and are not committed."""
        under_way = self._containers.values()
        return sum(each.heads.size for each in under_way if each.heads is not None)

    def _ready_heads(self) -> Iterator[Container]:
        """Those that may be read, as long as there is room for what they bring.

        The first may be read in any case if nothing else would free any.
        """
        under_way = self._containers.values()
        held = self.held + sum(
            self._sources[c.source].size for c in under_way if c.stage is Stage.READING
        )
        stuck = not any(each.stage in _FREEING for each in under_way)
        for each in (each for each in under_way if each.stage is Stage.OPEN):
            held += self._sources[each.source].size
            if held > self._rules.bytes_in_flight and not stuck:
                return
            stuck = False
            yield each

    def _ready_lanes(self) -> list[Work]:
        """At the first level all that follow one another, at the others one group each."""
        found: list[Work] = []
        taking: dict[int, int] = {}
        """The group that each of the later levels will take."""
        reached = self._rules.levels
        """The level that every epoch before has reached, once what is found here is taken."""
        for each in self._placed():
            level = each.level + 1
            if each.stage is Stage.IN_LANES:
                # While a level has a group in hand it takes no other.
                taking[level] = each.group
            elif each.stage is Stage.PLACED and level <= reached:
                if level == 1 or taking.setdefault(level, each.group) == each.group:
                    assert each.epoch is not None
                    work = LaneWork(each.epoch, each.ticket, each.attempt, each.marks, level)
                    found.append(work)
                else:
                    level = each.level
            else:
                level = each.level
            if each.stage is not Stage.DONE:
                reached = min(reached, level)
        return found

    def adopt(self, plans: Mapping[int, tuple[str, Offer]]) -> None:
        """Take over epochs that an earlier run planned and did not commit."""
        for epoch in sorted(plans):
            assert epoch == self._next, f"epoch {epoch} after {self._next - 1}"
            self._next, self._tickets = epoch + 1, epoch + 1
            source, offer = plans[epoch]
            self._containers[epoch] = Container(epoch, source, offer, Stage.OPEN, epoch)
            self._cut(source, offer)

    @property
    def last_cut(self) -> int:
        """The newest ticket; the one before the first, if there is none."""
        return self._tickets - 1

    @property
    def last_committed(self) -> int:
        """The newest epoch that is durable."""
        return self._committed

    @property
    def tickets(self) -> frozenset[int]:
        """What is under way."""
        return frozenset(self._containers)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._containers

    def take(self, *works: Work) -> None:
        """Note that this work is running."""
        first = min((w.epoch for w in works if isinstance(w, LaneWork) and w.level == 1), default=0)
        for work in works:
            if isinstance(work, HeadWork):
                self._move(work.ticket, Stage.READING)
                continue
            each = self._move(work.ticket, Stage.IN_LANES)
            if work.level == 1:
                self._containers[work.ticket] = replace(each, group=first)

    def wants_offer(self, source: str) -> bool:
        """Whether looking at a source could lead to another epoch."""
        if self._stopping or self._over:
            return False
        mine = sum(each.source == source for each in self._containers.values())
        return mine < self._rules.in_flight and not self.at_end(source)

    def at_end(self, source: str) -> bool:
        """Whether nothing more will be cut from a source."""
        known = self._sources[source]
        return known.exhausted or known.at_its_end

    @property
    def next_cut(self) -> float | None:
        """When the next epoch is due (seconds of the clock), where that is a matter of time."""
        return min((s.due for s in self._sources.values() if s.due is not None), default=None)

    @property
    def known(self) -> Known:
        """What is known at the end of the last epoch that has its place."""
        return self._known

    def container(self, ticket: int) -> Container:
        """How far an epoch is that is not committed."""
        return self._containers[ticket]

    def statistics(self) -> MachineStatistics:
        """How things are."""
        unplaced = [each for each in self._containers.values() if each.epoch is None]
        return MachineStatistics(
            self._rules,
            (*self._placed(), *unplaced),
            self._known,
            self._committed,
            {name: source.idle for name, source in self._sources.items()},
            {name: source.due for name, source in self._sources.items()},
            frozenset(name for name in self._sources if self.at_end(name)),
            self._failures,
            self._failure,
            self._stopping,
        )

    def cycle_over(self) -> Stall | None:
        """Note that a cycle is over, or that there was nothing to run; says if all stands still.

        Every cycle that does not fail takes the oldest epoch further, and failures are counted. So
        a query that goes round without moving has a fault of ours, and must not hide it.
        """
        first = next(iter(self.statistics().containers), None)
        if first is None:
            self._guard = Guard(self._rules.patience)
            return None
        self._guard = self._guard.saw((first.ticket, first.stage.value, first.level))
        if not self._guard.tripped:
            return None
        epoch = first.ticket if first.epoch is None else first.epoch
        return Stall(epoch, first.stage, self._guard.cycles, self._failure)

    def story(self) -> str:
        """What happened, for people who look for a fault."""
        return "\n".join(str(entry[0]) for entry in self._story)

    def validate(self) -> None:
        """What holds between any two calls."""
        placed = [each for each in self._placed() if each.after is not None]
        epochs = [each.epoch for each in self._placed()]
        assert epochs == list(range(self._committed + 1, self._next)), self.story()
        reached = [self._reached(each) for each in self._placed()]
        assert reached == sorted(reached, reverse=True), self.story()
        assert [each.epoch for each in placed] == epochs[: len(placed)], self.story()

    def _reached(self, each: Container) -> int:
        """How far an epoch is: levels behind it, and the one that it is in."""
        if each.after is None:
            return -1
        return each.level + (each.stage in (Stage.IN_LANES, Stage.DONE))

    # Cutting

    def _offered(self, event: Offered) -> list[Command]:
        if not self.wants_offer(event.source):
            return []
        source, offer = self._sources[event.source], event.offer
        if source.due is None:
            source.due = event.at
        ends = not offer.finished <= source.finished
        news = offer.forced or not offer.empty or ends or not offer.idle <= source.idle
        if self._rules.bounded and not news and not offer.more:
            source.exhausted = True
            return []
        if not news or (event.at < source.due and not (offer.more or offer.forced)):
            return []
        # Behind schedule there is no catching up of missed ticks: the next one is a period away.
        source.due = max(source.due + self._rules.every, event.at)
        ticket, self._tickets = self._tickets, self._tickets + 1
        self._cut(event.source, offer)
        cut = Cut(ticket, event.source, offer)
        if len(self._sources) > 1:
            self._containers[ticket] = Container(ticket, event.source, offer, Stage.OPEN)
            return [cut]
        # Nobody else's epoch can come before it: its plan is written before it is read.
        assert ticket == self._next
        self._next += 1
        self._containers[ticket] = Container(ticket, event.source, offer, Stage.PLANNING, ticket)
        return [cut, PlanEpoch(ticket, ticket, event.source, offer)]

    def _cut(self, name: str, offer: Offer) -> None:
        self._sources[name].finished |= offer.finished
        self._sources[name].idle = offer.idle

    def _planned(self, event: Planned) -> list[Command]:
        (each,) = [c for c in self._containers.values() if c.epoch == event.epoch]
        self._move(each.ticket, Stage.OPEN if each.heads is None else Stage.PLACED)
        return []

    # Placing

    def _heads_done(self, event: HeadsDone) -> list[Command]:
        each = self._move(event.ticket, Stage.READ)
        self._sources[each.source].size = event.size
        self._containers[event.ticket] = replace(each, heads=event)
        commands: list[Command] = []
        while (found := self._next_in_log()) is not None:
            commands += self._place(found)
        return commands

    def _next_in_log(self) -> Container | None:
        """Whose place is next, of those whose end watermark is known; None: nobody's."""
        waiting = [each for each in self._containers.values() if each.after is None]
        settled = [each for each in waiting if each.epoch is not None]
        if settled:
            first = min(settled, key=lambda each: each.epoch or 0)
            return first if first.stage is Stage.READ else None
        first_of: dict[str, Container] = {}
        for each in waiting:
            first_of.setdefault(each.source, each)
        known = [
            (_order(self._time_after(first_of[name]).watermark), at, first_of[name])
            for at, name in enumerate(self._sources)
            if name in first_of and first_of[name].stage is Stage.READ
        ]
        return min(known, key=lambda each: each[:2])[2] if known else None

    def _place(self, each: Container) -> list[Command]:
        assert each.heads is not None
        before, time = self._known, self._time_after(each)
        self._known = before.after(each.source, time, each.offer, each.heads)
        was_planned = each.epoch is not None
        epoch = each.epoch if each.epoch is not None else self._next
        stage = Stage.PLACED if was_planned else Stage.PLANNING
        moved = self._move(each.ticket, stage)
        placed = replace(moved, epoch=epoch, before=before, after=self._known)
        self._containers[each.ticket] = placed
        if was_planned:
            return []
        self._next += 1
        return [PlanEpoch(epoch, each.ticket, each.source, each.offer)]

    def _time_after(self, each: Container) -> SourceTime:
        assert each.heads is not None
        return self._known.times[each.source].after(
            each.heads.greatest,
            idle=each.offer.idle,
            finished=each.offer.finished,
            hint=each.offer.hint,
        )

    # Lanes and commits

    def _lanes_done(self, event: LanesDone) -> list[Command]:
        for each in self._of(event.epochs):
            level = each.level + 1
            stage = Stage.DONE if level >= self._rules.levels else Stage.PLACED
            moved = self._move(each.ticket, stage)
            self._containers[each.ticket] = replace(moved, level=level)
        self._failures = 0
        return []

    def _was_committed(self, event: Committed) -> list[Command]:
        for each in self._placed():
            if each.epoch is not None and each.epoch <= event.last:
                assert each.stage is Stage.DONE, self.story()
                del self._containers[each.ticket]
        self._committed = event.last
        return []

    def _failed(self, event: WorkFailed) -> list[Command]:
        """Repeat what failed; lanes go back together with all that came behind them."""
        self._failures += event.counts
        self._failure = event.reason
        if self._failures >= self._rules.attempts:
            self._over = True
            return [Fail(event.reason, self._failures)]
        for ticket in event.heads:
            self._again(ticket, Stage.OPEN)
        for each in self._of(event.lanes):
            self._again(each.ticket, Stage.PLACED)
        return []

    def _read_again(self, event: ReadAgain) -> list[Command]:
        """Undo what was known of an epoch; those behind it keep their places, not their times."""
        each = self._containers[event.ticket]
        self._failures = 0  # what failed will not be repeated as it was
        if each.stage is Stage.OPEN:
            return []
        assert each.level == 0, self.story()
        assert each.before is not None
        self._known = each.before
        for other in self._placed():
            if other.after is None or (other.epoch or 0) < (each.epoch or 0):
                continue
            moved = self._move(other.ticket, Stage.OPEN if other is each else Stage.READ)
            heads = None if other is each else other.heads
            self._containers[other.ticket] = replace(moved, before=None, after=None, heads=heads)
        return []

    def _stop(self, event: StopAsked) -> list[Command]:
        self._stopping = True
        if not event.drain:
            self._over = True
            return [Finish()]
        return []

    def _again(self, ticket: int, stage: Stage) -> None:
        each = self._move(ticket, stage)
        self._containers[ticket] = replace(each, attempt=each.attempt + 1)

    def _move(self, ticket: int, stage: Stage) -> Container:
        each = self._containers[ticket]
        assert (each.stage, stage) in TRANSITIONS, f"{each} to {stage}\n{self.story()}"
        self._containers[ticket] = replace(each, stage=stage)
        return self._containers[ticket]

    def _placed(self) -> list[Container]:
        """Those that have a place in the log, in its order."""
        found = [each for each in self._containers.values() if each.epoch is not None]
        return sorted(found, key=lambda each: each.epoch or 0)

    def _of(self, epochs: tuple[int, ...]) -> list[Container]:
        return [each for each in self._placed() if each.epoch in epochs]

    def _ended(self) -> bool:
        over = self._stopping or all(self.at_end(source) for source in self._sources)
        return over and not self._containers


def _order(watermark: int | None) -> tuple[bool, int]:
    """Watermarks in order: the one before all time is the least."""
    return (watermark is not None, watermark or 0)
