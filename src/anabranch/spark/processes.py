"""The worker processes of a set of lanes: how they are named, where they are, when they are left.

Spark's pools of workers are keyed by the environment, and each lane has a variable of its own: so
a lane is one process for as long as at most one of its tasks is under way. After a job that did not
end well, some task of which may run on unseen, a lane goes on in another process: its *generation*
is part of its name.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from anabranch.runtime.ground import Ground
from anabranch.spark.departures import Departures
from anabranch.spark.private import Executor, Rdd, Spark

LANE = "ANABRANCH_LANE"
HEAD = "ANABRANCH_HEAD"


class Processes:
    """Names and places of some lanes and any number of heads on one SparkContext."""

    def __init__(self, spark: Spark, lanes: int) -> None:
        """Take names that no other set of lanes has."""
        if lanes < 1:
            message = f"at least one lane is needed, got {lanes}"
            raise ValueError(message)
        self.count = lanes
        self._spark = spark
        self._token, left = _Free.take(spark.sc)
        fresh = range(len(left), lanes)
        self._left = [*left, *(_Left(number) for number in fresh)]
        places = enumerate(each.where for each in self._left[:lanes])
        self.where: Mapping[int, Executor] = {lane: at for lane, at in places if at is not None}
        self._departures = Departures.of(spark.sc)
        self._departures.enter(self)
        self.pids: dict[int, int] = {}
        self._there: str | None = None
        self._alive: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """What their jobs are cancelled by."""
        return f"anabranch-{self._token}"

    @property
    def generation(self) -> int:
        """How often the lane that was left most was left."""
        return max(each.generation for each in self._left)

    @property
    def heads(self) -> dict[str, str]:
        """The environment of heads."""
        return {HEAD: self._token}

    def lane(self, lane: int) -> dict[str, str]:
        """The environment of a lane."""
        mine = self._left[lane]
        return {LANE: f"{self._token}-{mine.number}-{mine.generation}"}

    def place(self) -> bool:
        """Find a place for every lane if executors have come or gone; says whether they have."""
        ids = self._spark.executor_ids()
        if ids == self._there:
            return False
        # What is known of executors lags behind. A lane that wants to be on one that is gone would
        # be kept waiting; one that has come, or has no address yet, is looked at again next time.
        alive = set(filter(None, ids.split(",")))
        there = {each.id: each for each in self._spark.executors() if each.id in alive}
        self._alive = tuple(there)
        whole = len(there) == len(alive) and all(each.host for each in there.values())
        self._there = ids if whole else None
        before = {lane: there.get(where.id, where) for lane, where in self.where.items()}
        leaving = self._departures.leaving
        self.where = places(self.count, list(there.values()), before, leaving)
        return True

    def ground(self) -> Ground:
        """Who is there, and where lanes are."""
        of = {lane: where.id for lane, where in self.where.items()}
        return Ground(self._alive, of, self._departures.leaving & {*self._alive})

    def resize(self, lanes: int) -> None:
        """Have so many lanes: those that were there stay where they are, in their processes."""
        self.count = lanes
        self._left += [_Left(number) for number in range(len(self._left), lanes)]
        self.pids = {lane: pid for lane, pid in self.pids.items() if lane < lanes}
        self.where = {lane: where for lane, where in self.where.items() if lane < lanes}
        self._there = None
        self.place()

    def source(self, lane: int, item: bytes) -> Rdd:
        """One item for a lane, at its place."""
        if lane in self.where:
            return self._spark.source_at(item, self.where[lane])
        return self._spark.source([item])

    def leave(self, lanes: Iterable[int]) -> None:
        """Leave the processes of these lanes: one of their tasks may still be running there."""
        for lane in lanes:
            pid = self.pids.pop(lane, None)
            if pid is not None and self._spark.local:
                _end_process(pid, f"{LANE}={self._token}-{self._left[lane].number}-")
            mine = self._left[lane]
            self._left[lane] = replace(mine, generation=mine.generation + 1)

    def renumber(self, was: Sequence[int]) -> None:
        """Let each lane be another's process: `was` has for each which one's."""
        spare = [at for at in range(len(self._left)) if at not in was]
        self._left = [self._left[at] for at in (*was, *spare)]
        self.where = {lane: self.where[at] for lane, at in enumerate(was) if at in self.where}
        self.pids = {lane: self.pids[at] for lane, at in enumerate(was) if at in self.pids}
        self.count = len(was)

    def close(self) -> None:
        """Leave the names, with the processes, to whoever comes next."""
        self._departures.leave(self)
        left = [
            replace(each, where=self.where.get(lane) if lane < self.count else None)
            for lane, each in enumerate(self._left)
        ]
        _Free.give_back(self._spark.sc, self._token, left)


@dataclass(frozen=True, slots=True)
class _Left:
    """A lane's process as whoever comes next finds it."""

    number: int
    generation: int = 0
    where: Executor | None = None


class _Free:
    """The names of processes that nobody uses now, by SparkContext."""

    _lock = threading.Lock()
    _names: ClassVar[WeakKeyDictionary[Any, list[tuple[str, list[_Left]]]]] = WeakKeyDictionary()

    @classmethod
    def take(cls, sc: Any) -> tuple[str, list[_Left]]:
        """A name that no other set of lanes has, with the processes of its lanes."""
        with cls._lock:
            free = cls._names.get(sc)
            return free.pop() if free else (secrets.token_hex(4), [])

    @classmethod
    def give_back(cls, sc: Any, name: str, left: list[_Left]) -> None:
        """Let another set of lanes have it."""
        with cls._lock:
            cls._names.setdefault(sc, []).append((name, left))


def places(
    lanes: int,
    there: Sequence[Executor],
    before: Mapping[int, Executor],
    leaving: Collection[str] = (),
) -> dict[int, Executor]:
    """Where lanes should be: where they were, if that is still there, else where fewest are.

    Nobody is put where they are to leave, unless everybody is. A lane that would better be
    elsewhere stays all the same: it takes its state along when it goes, and knows when.

    >>> a, b, c = (Executor(each, "h") for each in "abc")
    >>> [each.id for each in places(4, [a, b], {}).values()]
    ['a', 'b', 'a', 'b']
    >>> [each.id for each in places(4, [b, c], {0: a, 1: b, 2: a, 3: b}).values()]
    ['c', 'b', 'c', 'b']
    >>> [each.id for each in places(3, [a, b], {0: a}, leaving=["a"]).values()]
    ['a', 'b', 'b']
    """
    if not there:
        return {}
    staying = [each for each in there if each.id not in leaving] or there
    kept = {lane: where for lane, where in before.items() if where in there and lane < lanes}
    load = {each: sum(where == each for where in kept.values()) for each in there}
    for lane in sorted(set(range(lanes)) - set(kept)):
        kept[lane] = min(staying, key=load.__getitem__)
        load[kept[lane]] += 1
    return dict(sorted(kept.items()))


def _end_process(pid: int, variable: str) -> None:
    """End a worker of ours, if it is still the one we mean: ids of processes are used again.

    A worker is in the process group of the daemon that brought it, and that has the variable from
    its beginning; a worker from the nursery has not.
    """
    try:
        if variable.encode() in Path(f"/proc/{os.getpgid(pid)}/environ").read_bytes():
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
