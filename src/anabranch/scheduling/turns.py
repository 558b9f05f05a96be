"""Whose turn it is: the machine of a session.

A turn is one cycle of a query: a Spark job. At most as many are under way as tasks run at a time,
so that Spark, which serves jobs in the order in which they came, has nothing left to decide: on
every executor tasks are in the order of the policy. Pure: a value, each step gives the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from anabranch.scheduling.guard import guarded
from anabranch.scheduling.memory_mode import MemoryMode, frees_most
from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.query_view import Policy

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Granted:
    """A turn that somebody has."""

    place: int
    rank: int
    """How many who asked for one were before him."""
    asking: int
    """How many asked."""
    read: bool = True
    """Whether he may read more; else memory is short, and what is there is to be worked off."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Who asks, who has a turn, and who goes first."""

    policy: Policy
    slots: int
    memory: MemoryMode | None = None
    asking: Mapping[int, Prospect] = field(default_factory=dict)
    """By place."""
    at_work: frozenset[int] = frozenset()
    served: Mapping[int, float] = field(default_factory=dict)
    """When each had his last turn, or came."""
    held: Mapping[int, int] = field(default_factory=dict)
    """Bytes, as each said last."""

    def enter(self, place: int, now: float) -> Turns:
        """One more takes part."""
        return replace(self, served={**self.served, place: now})

    def leave(self, place: int) -> Turns:
        """One takes part no more, whatever he asked for or has."""
        return replace(
            self,
            asking=_without(self.asking, place),
            at_work=self.at_work - {place},
            served=_without(self.served, place),
            held=_without(self.held, place),
        )

    def ask(self, place: int, prospect: Prospect) -> Turns:
        """He has something to do."""
        assert place in self.served, f"{place} takes no part"
        assert place not in self.at_work, f"{place} has a turn"
        return replace(
            self,
            asking={**self.asking, place: prospect},
            held={**self.held, place: prospect.held},
        )

    def end(self, place: int, now: float, held: int = 0) -> Turns:
        """His turn is over; he holds so much."""
        if place not in self.served:
            return self
        return replace(
            self,
            at_work=self.at_work - {place},
            served={**self.served, place: now},
            held={**self.held, place: held},
        )

    def next(self, now: float) -> tuple[Turns, tuple[Granted, ...]]:
        """Give turns to those who go first, as far as there are slots."""
        free = self.slots - len(self.at_work)
        if free <= 0 or not self.asking:
            return self, ()
        memory = None if self.memory is None else self.memory.seen(self.total, now)
        short = memory is not None and memory.on
        rank = guarded(frees_most if short else self.policy)
        views = [each.view(at, now, self.served[at]) for at, each in self.asking.items()]
        ranked = sorted(views, key=rank)
        chosen = ranked[:free]
        if short:
            # Who holds nothing only reads: that he does when nobody else can go, one at a time. He
            # is passed over for no longer than others have something to work off: none of them
            # reads.
            holding = [view for view in ranked if self.asking[view.place].held]
            chosen = holding[:free] or (ranked[:1] if not self.at_work else [])
        granted = [
            Granted(view.place, ranked.index(view), len(ranked), read=not short) for view in chosen
        ]
        gone = frozenset(each.place for each in granted)
        left = {place: each for place, each in self.asking.items() if place not in gone}
        return (
            replace(self, asking=left, at_work=self.at_work | gone, memory=memory),
            tuple(granted),
        )

    @property
    def total(self) -> int:
        """Bytes that all hold."""
        return sum(self.held.values())


def _without(some: Mapping[int, _T], place: int) -> dict[int, _T]:
    return {at: each for at, each in some.items() if at != place}
