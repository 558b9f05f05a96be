"""Turns of queries that share a Spark: the machine of `scheduling/turns.py` with a lock around it.

A query alone has every turn at once. Who asks waits in his own thread until he is told; what he can
do meanwhile he does first. Whoever asks, or ends a turn, makes the machine decide.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from anabranch.clock import Clock
from anabranch.scheduling.memory_mode import MemoryMode
from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.query_view import Policy
from anabranch.scheduling.turns import Granted, Turns


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that a query has."""

    waited: bool = False
    """Whether it was not given at once: there may be more to do by now."""
    read: bool = True
    """Whether more may be read."""
    none: bool = False
    """Whether there is none: who gave up his seat is told at once, and is about to end."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a query stands among others, as of its last turn; moments are the wall clock's."""

    policy: str
    queries: int
    """That share the Spark."""
    rank: int
    asking: int
    waited: float
    """Seconds for that turn."""
    waiting_since: float | None
    """When it asked for the turn that it waits for, if it does."""
    at_work: tuple[str, ...]
    """Who has a turn."""
    short: bool
    """Whether memory is short."""
    held: int
    """Bytes of rows that it has read and not committed."""


class Seat(Protocol):
    """A query's place among others."""

    @property
    def alone(self) -> bool:
        """Whether there are none: nobody asks what can be expected of it."""
        ...

    def turn(
        self, prospect: Callable[[], Prospect], meanwhile: Callable[[], object]
    ) -> AbstractContextManager[Turn]:
        """Wait for a turn, which is over when the block is; who has to wait does something else."""
        ...

    def standing(self) -> Standing | None:
        """How it stands among the others; safe from any thread."""
        ...

    def leave(self) -> None:
        """Take part no more: who waits for a turn goes on at once. Safe from any thread."""
        ...


class Alone:
    """The seat of a query that shares nothing."""

    alone = True

    @contextmanager
    def turn(
        self, prospect: Callable[[], Prospect], meanwhile: Callable[[], object]
    ) -> Iterator[Turn]:
        """At once."""
        del prospect, meanwhile
        yield _AT_ONCE

    def standing(self) -> Standing | None:
        """There are no others."""
        return None

    def leave(self) -> None:
        """Nobody notices."""


_AT_ONCE = Turn()


@dataclass(slots=True)
class _Sitting:
    """What is known of who has a seat."""

    name: str
    told: threading.Event = field(default_factory=threading.Event)
    granted: Granted | None = None
    asked: float | None = None
    waited: float = 0.0


class SharedTurns:
    """The turns of one session; safe from any thread."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        slots: int,
        clock: Clock,
        memory_limit: int | None = None,
    ) -> None:
        """So many at a time, by this policy; above the limit what frees memory goes first."""
        self._name, self._clock = name, clock
        memory = None if memory_limit is None else MemoryMode(memory_limit)
        self._turns = Turns(policy, slots, memory)
        self._lock = threading.Lock()
        self._sitting: dict[int, _Sitting] = {}
        self._places = 0
        self.decisions, self.deciding = 0, 0.0
        """How many were made, and seconds that they took."""
        self.most_held = 0
        """Bytes, at the worst moment."""

    def enter(self, name: str) -> TakenSeat:
        """A seat for one query more."""
        with self._lock:
            place, self._places = self._places, self._places + 1
            self._sitting[place] = _Sitting(name)
            self._turns = self._turns.enter(place, self._clock.now())
        return TakenSeat(self, place)

    def fit(self, slots: int) -> None:
        """There are so many slots now."""
        with self._lock:
            if slots != self._turns.slots:
                self._turns = replace(self._turns, slots=max(1, slots))
                self._decide()

    @property
    def memory_modes(self) -> int:
        """How often memory was short."""
        memory = self._turns.memory
        return 0 if memory is None else memory.times

    def leave(self, place: int) -> None:
        """Let go of a seat; who waits there is told at once, and has no turn."""
        with self._lock:
            if place not in self._sitting:
                return
            self._sitting.pop(place).told.set()
            self._turns = self._turns.leave(place)
            self._decide()

    def ask(self, place: int, prospect: Prospect) -> bool:
        """Ask for a turn; whether it is there at once."""
        with self._lock:
            sitting = self._sitting.get(place)
            if sitting is None:
                return True
            sitting.told.clear()
            sitting.asked, sitting.granted = self._clock.now(), None
            self._turns = self._turns.ask(place, prospect)
            self._decide()
            return sitting.told.is_set()

    def wait(self, place: int) -> Granted | None:
        """Wait for the turn that was asked for; None: the seat is gone."""
        sitting = self._sitting.get(place)
        if sitting is None:
            return None
        sitting.told.wait()
        return sitting.granted

    def end(self, place: int, held: int) -> None:
        """A turn is over."""
        with self._lock:
            self._turns = self._turns.end(place, self._clock.now(), held)
            self._decide()

    def standing(self, place: int) -> Standing | None:
        """How one stands among the others."""
        with self._lock:
            sitting = self._sitting.get(place)
            if sitting is None:
                return None
            turns, granted = self._turns, sitting.granted
            at_work = [self._sitting[each].name for each in turns.at_work if each != place]
            return Standing(
                self._name,
                len(self._sitting),
                0 if granted is None else granted.rank,
                len(turns.asking),
                sitting.waited,
                sitting.asked,
                tuple(sorted(at_work)),
                turns.memory is not None and turns.memory.on,
                turns.held.get(place, 0),
            )

    def _decide(self) -> None:
        began, now = self._clock.elapsed(), self._clock.now()
        self.most_held = max(self.most_held, self._turns.total)
        self._turns, granted = self._turns.next(now)
        for each in granted:
            sitting = self._sitting[each.place]
            if sitting.asked is not None:
                sitting.waited = max(0.0, now - sitting.asked)
            sitting.granted, sitting.asked = each, None
            sitting.told.set()
        self.decisions += 1
        self.deciding += self._clock.elapsed() - began


class TakenSeat:
    """The seat of one query in a session."""

    alone = False

    def __init__(self, turns: SharedTurns, place: int) -> None:
        """It is `place`."""
        self._turns, self.place = turns, place

    @contextmanager
    def turn(
        self, prospect: Callable[[], Prospect], meanwhile: Callable[[], object]
    ) -> Iterator[Turn]:
        """Wait for a turn; it is over when the block is."""
        at_once = self._turns.ask(self.place, prospect())
        if not at_once:
            meanwhile()
        granted = self._turns.wait(self.place)
        try:
            yield Turn(not at_once, granted is None or granted.read, none=granted is None)
        finally:
            self._turns.end(self.place, prospect().held)

    def standing(self) -> Standing | None:
        """How its query stands."""
        return self._turns.standing(self.place)

    def leave(self) -> None:
        """Take part no more."""
        self._turns.leave(self.place)
