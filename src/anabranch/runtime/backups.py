"""Which lane keeps copies of which slices for when an executor is lost, and who takes them over.

The placement is the paper's chained backup (`state/placement.py`), over executors; on each the
copies are divided among its lanes, and the lane that has the copies of a slice is its heir. Copies
are pulled: each cycle a lane is told which files it lacks, and fetches them beside its work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anabranch.runtime.ground import Ground
from anabranch.runtime.payload import Backup, LaneDone, LaneJob
from anabranch.runtime.under_way import UnderWay
from anabranch.state.placement import backups, recovery
from anabranch.state.slices import Owners

AT_A_TIME = 16
"""Files that a lane is asked to copy in a cycle: the first copies of a large state are many."""
PATIENCE = 64
"""So many cycles in a row may bring no copy before no cycle is run for copies alone."""


_NONE: frozenset[int] = frozenset()


class Backups:
    """What the lanes of one query keep for each other. None is kept where there is one place."""

    def __init__(self) -> None:
        """Begin without lanes."""
        self._slices: dict[int, frozenset[int]] = {}
        """What each lane is to keep for others."""
        self._has: dict[int, dict[str, frozenset[int]]] = {}
        """The files that it has copies of, each with the slices that are in the copy."""
        self._asked: dict[int, Backup] = {}
        self._lacking = 0
        self._fruitless = 0
        self._stale = False
        """Whether lanes have written since it was seen what lacks."""

    def place(self, owners: Owners, ground: Ground) -> None:
        """Have copies where they belong, now that lanes or slices are elsewhere."""
        found: dict[int, set[int]] = {}
        if len(ground.executors) > 1 and len(ground.of) >= owners.lanes:
            lanes = {name: _lanes_of(name, ground, owners.lanes) for name in ground.executors}
            mine = {
                name: [number for number, lane in enumerate(owners.of) if lane in lanes[name]]
                for name in ground.executors
                if lanes[name]
            }
            for number, (name, *_) in _placed(mine):
                among = lanes[name]
                found.setdefault(among[number % len(among)], set()).add(number)
        self._slices = {lane: frozenset(slices) for lane, slices in found.items()}
        # A lane that is not there any more cannot be told to let go of what it has.
        self._has = {lane: has for lane, has in self._has.items() if lane < owners.lanes}
        self._fruitless = 0

    def lost(self, lanes: Iterable[int]) -> None:
        """The processes of these lanes are gone, and so are their copies."""
        for lane in lanes:
            self._has.pop(lane, None)
            self._asked.pop(lane, None)

    def renumbered(self, was: tuple[int, ...]) -> None:
        """Lanes have other numbers now."""
        self._has = {lane: self._has[old] for lane, old in enumerate(was) if old in self._has}
        self._asked = {}

    @property
    def pending(self) -> bool:
        """Whether a cycle is worth running for copies alone."""
        return (self._stale or self._lacking > 0) and self._fruitless < PATIENCE

    @property
    def facts(self) -> dict[str, int]:
        """How many copies there are, and how many are still to be made."""
        behind = max(self._lacking, int(self._stale))
        return {"files": sum(map(len, self._has.values())), "behind": behind}

    def jobs(
        self, lanes: Mapping[int, LaneJob], now: UnderWay, cold: frozenset[int] = frozenset()
    ) -> dict[int, LaneJob]:
        """A cycle's jobs, with what their processes are to copy besides; not yet `cold` ones."""
        found, self._asked, self._lacking, self._stale = dict(lanes), {}, 0, False
        for lane in sorted(self._slices.keys() | self._has.keys()):
            wanted, has = now.files_of(self._slices.get(lane, frozenset())), self._has.get(lane, {})
            lacking = [path for path, some in wanted.items() if not some <= has.get(path, _NONE)]
            drop = tuple(path for path in has if path not in wanted)
            self._lacking += len(lacking)
            # A lane that has yet to take slices over may make them of the copies it has.
            if (lacking or drop) and lane not in cold and not now.unsettled(lane):
                keep = {path: wanted[path] for path in lacking[:AT_A_TIME]}
                self._asked[lane] = Backup(keep, drop)
                job = found.get(lane, LaneJob(lane, ()))
                found[lane] = replace(job, backup=self._asked[lane])
        return found

    def take(self, lanes: Mapping[int, LaneDone]) -> None:
        """Learn what has been copied; a lane that died, or did not answer, has nothing."""
        self._stale = bool(self._slices) and any(done.stages for done in lanes.values())
        came = False
        for lane, asked in self._asked.items():
            done = lanes.get(lane)
            if done is None or done.died or done.missing:
                # Another process than it was, maybe: one that has a copy says so when it is asked.
                self._has.pop(lane, None)
                continue
            has = self._has.setdefault(lane, {})
            for path in done.backed.dropped:
                has.pop(path, None)
            for path in done.backed.kept:
                has[path] = asked.keep[path]
                self._lacking -= 1
                came = True
        self._fruitless = 0 if came or self._stale else self._fruitless + 1

    def heirs(self, gone: frozenset[int], owners: Owners) -> Owners:
        """The owners when these lanes are lost: whoever keeps a slice gets it, all of them some."""
        left = [lane for lane in range(owners.lanes) if lane not in gone]
        keepers: dict[int, list[str]] = {}
        for lane in left:
            for number in self._slices.get(lane, ()):
                keepers.setdefault(number, []).append(str(lane))
        lost = [number for number, lane in enumerate(owners.of) if lane in gone]
        of = list(owners.of)
        for heir, slices in recovery(lost, keepers, map(str, left)).items():
            for number in slices:
                of[number] = int(heir)
        return Owners(owners.slices, owners.lanes, tuple(of))


def _lanes_of(executor: str, ground: Ground, lanes: int) -> list[int]:
    return [lane for lane in range(lanes) if ground.of.get(lane) == executor]


def _placed(mine: Mapping[str, list[int]]) -> Iterable[tuple[int, tuple[str, ...]]]:
    """The slices that have a backup, each with who has it."""
    return ((number, names) for number, names in backups(mine).items() if names)
