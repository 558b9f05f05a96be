"""States of slices that are in other lanes, made ready in the process where they are to go.

The paper upgrades a slice's backup at its destination while its source goes on (ChronoStream,
III.C, phase 1). Here the log of deltas is the backup: a replica is made of the files of some
slices, and follows the lane that has them by what that one writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.kernels.lane_task import LaneState
from anabranch.runtime.aside import Aside
from anabranch.runtime.payload import Origin, Replica

Make: TypeAlias = Callable[[Replica, LaneState | None], tuple[LaneState, Origin]]
"""The state that a replica is to have, from an older one on or anew; and how it began."""


@dataclass(frozen=True, slots=True)
class _Made:
    version: str
    slices: frozenset[int]
    state: LaneState
    origin: Origin


_Place: TypeAlias = tuple[int, frozenset[int]]
"""A stage, and slices of it."""


class Replicas:
    """The replicas of one process: of each the two newest that are made, and the next under way.

    Two, since whoever asks for one knows of those that were there when he was last told.
    """

    def __init__(self, aside: Aside, make: Make) -> None:
        """Begin with none."""
        self._aside, self._make = aside, make
        self._made: dict[_Place, deque[_Made]] = {}
        self._next: dict[_Place, Future[_Made]] = {}
        self._failed = 0

    def follow(self, wanted: tuple[Replica, ...], kept: Iterable[_Place] = ()) -> tuple[str, ...]:
        """Have these and no others, each as soon as can be; says which versions are there.

        One that is under way is waited for before a newer one is begun. What is `kept` stays as it
        is: nothing newer is begun.
        """
        asked = {(each.stage, each.slices): each for each in wanted}
        places = {*asked, *kept}
        self._made = {place: each for place, each in self._made.items() if place in places}
        self._next = {place: each for place, each in self._next.items() if place in places}
        self._look()
        for place, replica in asked.items():
            known = self._made.get(place, ())
            if place not in self._next and replica.version not in [x.version for x in known]:
                self._begin(place, replica, known)
        self._look()
        return tuple(each.version for some in self._made.values() for each in some)

    @property
    def making(self) -> int:
        """How many are being made."""
        return len(self._next)

    def failed(self) -> int:
        """How many could not be made since this was asked last."""
        found, self._failed = self._failed, 0
        return found

    def get(self, version: str, slices: frozenset[int]) -> tuple[LaneState, Origin] | None:
        """The state of some slices at a version, if it is there, and how it began."""
        for made in (each for some in self._made.values() for each in some):
            if made.version == version and made.slices == slices:
                return made.state, made.origin
        return None

    def add(
        self, stage: int, slices: frozenset[int], since: str, made: tuple[str, LaneState]
    ) -> None:
        """Have a newer one, made of the one `since`, which stays: the newer may not count."""
        place = (stage, slices)
        known = [each for each in self._made.get(place, ()) if each.version == since]
        origin = known[0].origin if known else "replica"
        self._made[place] = deque([*known, _Made(made[0], slices, made[1], origin)], maxlen=2)

    def forget(self, stages: Iterable[int]) -> None:
        """Let go of all that are of these stages."""
        gone = set(stages)
        self._made = {place: each for place, each in self._made.items() if place[0] not in gone}
        self._next = {place: each for place, each in self._next.items() if place[0] not in gone}

    def _begin(self, place: _Place, replica: Replica, known: Iterable[_Made]) -> None:
        older = next((each for each in known if each.version == replica.since), None)
        if replica.since is not None and older is None:
            # It was to go on from one that is not here: whoever asked will see that and ask anew.
            return

        def make() -> _Made:
            state, origin = self._make(replica, None if older is None else older.state)
            origin = origin if older is None else older.origin
            return _Made(replica.version, replica.slices, state, origin)

        self._next[place] = self._aside.submit(make)

    def _look(self) -> None:
        """Take what is made; what could not be is begun anew when it is asked for again."""
        for place in [place for place, each in self._next.items() if each.done()]:
            ended = self._next.pop(place)
            if ended.exception() is not None:
                self._failed += 1
            else:
                self._made.setdefault(place, deque(maxlen=2)).append(ended.result())
