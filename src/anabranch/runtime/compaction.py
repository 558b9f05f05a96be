"""Slices written anew beside a lane's work: whoever recovers need not read all that ever changed.

A snapshot that is late, or never comes, costs nothing but the time of a recovery.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from anabranch.runtime.aside import Aside
from anabranch.runtime.payload import Snapshot

Place: TypeAlias = tuple[int, int]
"""A stage and a lane."""

MOST_WAITING = 4
"""Of a process: a state that waits to be written is kept in memory."""


class Compaction:
    """The snapshots that a process is writing, or has written and not told of."""

    def __init__(self, aside: Aside) -> None:
        """Begin with none."""
        self._aside = aside
        self._begun: dict[Place, list[Future[Sequence[Snapshot]]]] = defaultdict(list)

    def begin(self, place: Place, write: Callable[[], Sequence[Snapshot]]) -> None:
        """Have some written, unless too many wait: then those slices wait for their next turn."""
        waiting = sum(not each.done() for some in self._begun.values() for each in some)
        if waiting < MOST_WAITING:
            self._begun[place].append(self._aside.submit(write))

    def done(self, place: Place) -> tuple[Snapshot, ...]:
        """Those that are written since the last time; one that could not be is left out."""
        mine = self._begun.pop(place, [])
        if under_way := [each for each in mine if not each.done()]:
            self._begun[place] = under_way
        ended = [each for each in mine if each.done() and each.exception() is None]
        return tuple(snapshot for each in ended for snapshot in each.result())
