"""How large the state is, by operator: the files that it would be made of again, and in lanes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from anabranch.errors import RunError
from anabranch.runtime.payload import LaneDone
from anabranch.state.layout import STATE
from anabranch.state.stores import Place, store_at

_LOG = logging.getLogger("anabranch")
_CROWDED = (
    "state that is too much for the memory of lanes stays in it: %s; make room there, or let "
    "ANABRANCH_STATE_DIRECTORY name a directory with more"
)


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of an operator's state in its lanes."""

    memory: int = 0
    disk: int = 0
    """On the local disks of those who run them."""


class StateSizes:
    """Sizes of the files of a checkpoint. A file never changes, so each is asked for once.

    Those of this run are told by who wrote them; the store is asked for older ones, all at once.
    """

    def __init__(self, place: Place) -> None:
        """Begin with none known; `place` is that of the checkpoint."""
        self._store = store_at(place)
        self._known: dict[str, int] = {}
        self._held: dict[tuple[str, int], Held] = {}
        """By operator and lane."""
        self._crowded = False

    def note(self, lane: LaneDone) -> None:
        """Take what a lane wrote, and has."""
        for done in lane.stages:
            self._known.update({path: done.sizes[name] for name, path in done.deltas.items()})
            self._known.update({each.path: each.size for each in done.snapshots})
            for name, memory in done.memory.items():
                self._held[name, lane.lane] = Held(memory, done.disk[name])
        if lane.crowded and not self._crowded:
            # Once: it is the same for all lanes, and nothing is wrong but that memory may run out.
            self._crowded = True
            _LOG.warning(_CROWDED, lane.crowded)

    def held(self, lanes: int) -> dict[str, Held]:
        """What lanes have, by operator, where there are so many."""
        found: dict[str, Held] = {}
        for (name, lane), each in self._held.items():
            if lane < lanes:
                known = found.get(name, Held())
                found[name] = Held(known.memory + each.memory, known.disk + each.disk)
        return found

    def of(self, files: Mapping[str, frozenset[str]]) -> dict[str, int]:
        """Bytes by operator of these files; all others are forgotten."""
        named = frozenset[str]().union(*files.values())
        if not named <= self._known.keys():
            with suppress(RunError):  # a figure is not worth a query
                self._known = self._store.sizes(STATE) | self._known
        self._known = {path: self._known.get(path, 0) for path in named}
        return {
            operator: sum(self._known[path] for path in paths) for operator, paths in files.items()
        }
