"""What goes into the next cycle: one Spark job's worth of ready work.

A cycle costs some tens of milliseconds whatever is in it, so a backlog is taken in larger bites:
the number of heads in a cycle grows while cycles are short and shrinks when they become long. Work
of lanes is all taken, in log order: it is what frees memory and brings results. That it does not
wait for heads is a priority; without it results come later, and are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from anabranch.epoch.protocol import HeadWork, LaneWork, Work

SHORT_S, LONG_S = 0.3, 0.8
"""Below the first a backlog is taken in larger bites, above the second in smaller ones.

Chosen, not found: on two cores no effect of them on throughput could be told from noise.
"""


class First(Enum):
    """Whose work goes first; no output shows it, latencies do."""

    LANES = "lanes"
    """What watermarks caused goes into every cycle, and heads beside it."""
    HEADS = "heads"
    """No priority: one place is drained before the next, as StreamBox's evaluators do without.

    Lanes get their turn all the same: while they wait nothing is committed, and of what is not
    committed only so much is cut.
    """


@dataclass(frozen=True, slots=True)
class Cycle:
    """The work of one job."""

    heads: tuple[HeadWork, ...]
    lanes: tuple[LaneWork, ...]

    def __bool__(self) -> bool:
        """Whether there is anything to run."""
        return bool(self.heads or self.lanes)

    @property
    def works(self) -> tuple[Work, ...]:
        """All of it."""
        return (*self.lanes, *self.heads)


@dataclass(frozen=True, slots=True)
class SessionMachine:
    """First come, first served, over one query; a value: each step gives the next one."""

    slots: int
    heads: int = 1
    first: First = First.LANES
    short: float = SHORT_S
    long: float = LONG_S

    @classmethod
    def of(cls, slots: int, first: First, cycle: float | None = None) -> SessionMachine:
        """The machine of a query that begins; its cycles should take no longer than is said."""
        if cycle is None:
            return cls(slots, slots, first)
        return cls(slots, slots, first, cycle / 2, cycle)

    def choose(self, ready: Sequence[Work]) -> Cycle:
        """The next cycle, oldest epochs first.

        >>> machine = SessionMachine(slots=2, heads=2)
        >>> ready = [LaneWork(4, 4, 0, {}), HeadWork(5, 0), HeadWork(6, 0), HeadWork(7, 0)]
        >>> [work.ticket for work in machine.choose(ready).works]
        [4, 5, 6]
        >>> [work.ticket for work in replace(machine, first=First.HEADS).choose(ready).works]
        [5, 6]
        """
        heads = [work for work in ready if isinstance(work, HeadWork)]
        lanes = [work for work in ready if isinstance(work, LaneWork)]
        if self.first is First.HEADS and heads:
            lanes = []
        return Cycle(tuple(heads[: self.heads]), tuple(lanes))

    def learn(self, cycle: Cycle, seconds: float, waiting: int) -> SessionMachine:
        """The machine after a cycle that took so long, with so many heads still waiting."""
        if cycle.heads and seconds > self.long:
            return replace(self, heads=max(1, self.heads // 2))
        if waiting and len(cycle.heads) == self.heads and seconds < self.short:
            return replace(self, heads=min(2 * self.heads, 32 * self.slots))
        return self
