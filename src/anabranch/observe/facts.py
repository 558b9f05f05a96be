"""What is known of a query at a moment: values only, made by whoever runs it.

Moments are seconds of the query's clock; event times and watermarks are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from anabranch.epoch.machine import Container, MachineStatistics, Stage
from anabranch.epoch.protocol import Offer
from anabranch.epoch.watermarks import END_OF_TIME, SourceTime
from anabranch.ids import Partition


@dataclass(frozen=True, slots=True)
class Look:
    """What looks at a source have shown.

    >>> look = Look().then(Offer({0: (0, 5), 1: (3, 3)}, frozenset(), None, False), at=10.0)
    >>> dict(look.quiet_since), look.rows
    ({1: 10.0}, True)
    """

    offer: Offer | None = None
    """The last one, cut or not."""
    quiet_since: Mapping[Partition, float] = field(default_factory=dict)
    """The look at which a partition was first found with nothing new, by partition."""

    @property
    def rows(self) -> bool:
        """Whether the last look has shown rows that no epoch had yet."""
        return self.offer is not None and not self.offer.empty

    @property
    def waiting(self) -> int:
        """How many of those, as far as offsets count them."""
        return 0 if self.offer is None else self.offer.rows or 0

    def then(self, offer: Offer, at: float) -> Self:
        """What is known after one more look."""
        empty = [partition for partition, (start, end) in offer.offsets.items() if start == end]
        since = {partition: self.quiet_since.get(partition, at) for partition in empty}
        return replace(self, offer=offer, quiet_since=since)

    def taken(self) -> Self:
        """What is known once its offer was cut into an epoch: nothing that is not cut."""
        return replace(self, offer=None)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """How far a source is, and what holds its watermark."""

    name: str
    time: SourceTime
    """Behind the last epoch that has its place in the log."""
    idle: frozenset[Partition] = frozenset()
    quiet_since: Mapping[Partition, float] = field(default_factory=dict)
    rows: bool = False
    """Whether it has rows that no epoch holds yet."""
    at_end: bool = False
    """Whether nothing more will be read from it."""
    due: float | None = None
    """When its next epoch may be cut."""

    @property
    def finished(self) -> bool:
        """Whether all of its partitions are at their end."""
        return self.time.watermark == END_OF_TIME

    @property
    def live(self) -> tuple[Partition, ...]:
        """The partitions that count: neither idle nor finished (M4)."""
        gone = self.idle | self.time.finished
        return tuple(each for each in self.time.partitions if each not in gone)

    @property
    def silent(self) -> tuple[Partition, ...]:
        """Those of them that never gave an event time."""
        return tuple(each for each in self.live if each not in self.time.greatest)

    @property
    def holders(self) -> tuple[Partition, ...]:
        """Whom the watermark waits for: those that never spoke, else those furthest behind.

        >>> time = SourceTime((0, 1, 2), lateness=0, greatest={0: 30, 1: 20, 2: 10})
        >>> SourceFacts("clicks", time).holders, SourceFacts("clicks", time, frozenset({2})).holders
        ((2,), (1,))
        """
        if self.silent or not self.live:
            return self.silent
        least = min(self.time.greatest[each] for each in self.live)
        return tuple(each for each in self.live if self.time.greatest[each] == least)


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """How far an epoch is that is not committed."""

    number: int
    """Its place in the log, or its ticket while it has none."""
    placed: bool
    source: str
    stage: Stage
    level: int = 0
    """The levels it has behind it."""
    attempt: int = 0
    since: float | None = None
    """When it was cut."""

    @classmethod
    def of(cls, container: Container, since: float | None) -> Self:
        """How far a container is."""
        number = container.ticket if container.epoch is None else container.epoch
        return cls(
            number,
            container.epoch is not None,
            container.source,
            container.stage,
            container.level,
            container.attempt,
            since,
        )


@dataclass(frozen=True, slots=True)
class Firing:
    """When a window is expected to fire, and between which moments it does with a probability."""

    at: float
    low: float
    high: float
    sure: float


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of a query at the moment `now`."""

    program: str
    sources: tuple[SourceFacts, ...] = ()
    """In the order of the `read` calls."""
    epochs: tuple[EpochFacts, ...] = ()
    """Those under way, the oldest first."""
    committed: int = -1
    """The newest epoch that is durable; -1: none."""
    committed_at: float | None = None
    levels: int = 1
    failures: int = 0
    """How often its work has failed in a row."""
    attempts: int = 5
    """How often it may."""
    failure: str | None = None
    """What failed last."""
    job_since: float | None = None
    """When the job under way began, if one is."""
    unplaced_since: float | None = None
    """When its task was given to Spark, if Spark has not begun it."""
    turn_since: float | None = None
    """When it asked for a turn, if it waits for one: others share its Spark."""
    at_work: tuple[str, ...] = ()
    """Which of those have a turn."""
    memory_short: bool = False
    """Whether what they hold together has reached the session's limit."""
    firing: Firing | None = None
    """When a window is expected to fire next, if that is known."""
    stopping: bool = False
    ended: bool = False
    error: str | None = None
    """Why it ended, if something went wrong."""
    live: bool = True
    """Whether the query itself says so; else its checkpoint does."""
    now: float = 0.0

    @classmethod
    def of(
        cls,
        program: str,
        machine: MachineStatistics,
        looks: Mapping[str, Look],
        since: Mapping[int, float],
        now: float,
    ) -> Self:
        """What a machine and the looks at its sources say; `since`: when tickets were cut."""
        return cls(
            program,
            tuple(_source(name, machine, looks.get(name, Look())) for name in machine.known.times),
            tuple(EpochFacts.of(each, since.get(each.ticket)) for each in machine.containers),
            machine.committed,
            levels=machine.rules.levels,
            failures=machine.failures,
            attempts=machine.rules.attempts,
            failure=machine.failure,
            stopping=machine.stopping,
            now=now,
        )


def _source(name: str, machine: MachineStatistics, look: Look) -> SourceFacts:
    return SourceFacts(
        name,
        machine.known.times[name],
        machine.idle[name] if look.offer is None else look.offer.idle,
        look.quiet_since,
        look.rows,
        name in machine.at_end,
        machine.due[name],
    )
