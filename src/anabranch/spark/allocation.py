"""Executors that come and go as a query needs them: what may be had, what is wanted, who goes.

The user says it in Spark's own words: `spark.dynamicAllocation.minExecutors` and `maxExecutors` are
how few and how many there may be. Without them nothing is asked for and nobody is sent away. Who
decides is the query (`scheduling/autoscaler.py`), not Spark: its dynamic allocation goes by tasks
that wait and executors that are idle, and knows nothing of the state that lanes hold there.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from anabranch.errors import AnabranchError
from anabranch.spark.departures import Departures
from anabranch.spark.private import Spark

_DYNAMIC = "spark.dynamicAllocation."
ENABLED = f"{_DYNAMIC}enabled"
FEWEST, MOST, INITIAL = (f"{_DYNAMIC}{each}Executors" for each in ("min", "max", "initial"))
INSTANCES, CORES = "spark.executor.instances", "spark.executor.cores"
ALL_CORES, TASK_CORES = "spark.cores.max", "spark.task.cpus"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many executors there may be, and with how many a query begins."""

    fewest: int
    most: int
    initial: int

    @classmethod
    def of(cls, conf: Mapping[str, str], cores: int) -> Bounds | None:
        """By Spark's settings, for executors of so many cores; None: as many as Spark has.

        >>> Bounds.of({MOST: "8", ALL_CORES: "12"}, cores=2)
        Bounds(fewest=1, most=6, initial=1)
        >>> Bounds.of({FEWEST: "2", INSTANCES: "3"}, cores=1).initial
        3
        >>> Bounds.of({INSTANCES: "3"}, cores=1)

        Raises:
            AnabranchError: They make no sense.
        """
        if FEWEST not in conf and MOST not in conf:
            return None
        fewest = max(1, _whole(conf, FEWEST, 0))
        most = _whole(conf, MOST, sys.maxsize)
        if fewest > most:
            message = f"{FEWEST} is {fewest} and {MOST} is {most}: there is no number between them"
            raise AnabranchError(message, so=f"set {MOST} to {fewest} or more")
        most = max(fewest, min(most, _whole(conf, ALL_CORES, sys.maxsize) // cores))
        initial = max(_whole(conf, INITIAL, 0), _whole(conf, INSTANCES, 0))
        return cls(fewest, most, min(max(fewest, initial), most))

    def executors(self, slots: int, each: int) -> int:
        """How many are needed for so many slots, of what may be had.

        >>> Bounds(1, 4, 1).executors(5, each=2), Bounds(2, 4, 2).executors(1, each=2)
        (3, 2)
        """
        return min(max(ceil(slots / each), self.fewest), self.most)


def decided_here(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a Spark of ours: its dynamic allocation is off, what it may have is ours.

    >>> decided_here({ENABLED: "true", MOST: "4"})[INSTANCES]
    '1'
    >>> decided_here({MOST: "4"})
    {'spark.dynamicAllocation.maxExecutors': '4'}
    """
    if conf.get(ENABLED) != "true":
        return dict(conf)
    chosen = {FEWEST: "1", **conf, ENABLED: "false"}
    bounds = Bounds.of(chosen, cores=max(1, _whole(conf, CORES, 1)))
    assert bounds is not None
    # Where the master gives all it has, the rest is let go at once.
    return {**chosen, INSTANCES: str(bounds.initial)}


class Allocation:
    """The executors of one SparkContext; shared by all queries on it. Safe from any thread."""

    _lock = threading.Lock()
    _known: ClassVar[WeakValueDictionary[int, Allocation]] = WeakValueDictionary()
    """By the id of the context, which lives for as long as its value does."""

    def __init__(self, spark: Spark, ask: Callable[[Callable[[], None]], None]) -> None:
        """`ask` does what may have to wait for the master."""
        self._spark, self._ask = spark, ask
        self._mutex, self._asking = threading.RLock(), threading.Lock()
        self._departures = Departures.of(spark.sc)
        self._wants: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._conf = dict(spark.sc.getConf().getAll())
        self._seen: tuple[str, frozenset[str]] | None = None
        self._slots = spark.slots()
        self._sent: frozenset[str] = frozenset()
        cores = _whole(self._conf, CORES, 0)
        self._each = int(cores / float(self._conf.get(TASK_CORES, "1")))
        ours = spark.grants and not spark.allocates
        self.bounds = Bounds.of(self._conf, max(1, cores or self.each)) if ours else None
        self._target: int | None = None
        if self.bounds is not None:
            self._aim(self.bounds.initial)

    @classmethod
    def of(cls, spark: Spark) -> Allocation:
        """That of a SparkContext."""
        with cls._lock:
            found = cls._known.get(id(spark.sc))
            if found is None:
                found = cls._known[id(spark.sc)] = cls(spark, _in_thread)
            return found

    @property
    def each(self) -> int:
        """The slots of an executor."""
        if not self._each:
            self._each = min(self._spark.slots_by_executor().values(), default=0)
        return max(1, self._each)

    @property
    def slots(self) -> int:
        """How many tasks can run at a time now, on executors that stay."""
        with self._mutex:
            seen = (self._spark.executor_ids(), self._departures.leaving)
            while seen != self._seen and not self._spark.local:
                self._count()
                self._seen = (seen[0], self._departures.leaving)
                seen = (self._spark.executor_ids(), self._departures.leaving)
            return self._slots

    @property
    def most_slots(self) -> int:
        """How many could be had, by asking."""
        return self.slots if self.bounds is None else self.bounds.most * self.each

    @property
    def fewest_slots(self) -> int:
        """How many there are at the least."""
        return self.slots if self.bounds is None else self.bounds.fewest * self.each

    def want(self, who: object, slots: int) -> bool:
        """Have executors for so many slots, and for what others want; says whether one can ask.

        They come later, or never. When fewer are wanted, some go, once no lane is on them.
        """
        if self.bounds is None:
            return False
        with self._mutex:
            self._wants[who] = slots
            self._aim(self.bounds.executors(max(self._wants.values()), self.each))
        return True

    def need(self, who: object, slots: int) -> None:
        """Have executors for no fewer slots than these."""
        if self.bounds is None or slots <= self._wants.get(who, 0):
            return
        with self._mutex:
            self._wants[who] = slots
            wanted = self.bounds.executors(max(self._wants.values()), self.each)
            self._aim(max(wanted, self._target or 0))

    def forget(self, who: object) -> None:
        """Heed what it wants no more."""
        with self._mutex:
            known = self._wants.pop(who, None)
            if self.bounds is not None and known is not None:
                most = max(self._wants.values(), default=0)
                self._aim(max(self.bounds.executors(most, self.each), self.bounds.initial))
        self.let_go()

    def let_go(self) -> None:
        """Send those away who are to go and have no lanes."""
        if not self._departures.leaving:
            return
        with self._mutex:
            alive = set(self._spark.executor_ids().split(","))
            self._departures.announce(self._departures.leaving & alive)
            lanes = self._departures.lanes()
            ready = sorted(self._departures.leaving - self._sent - set(lanes))
            if ready:
                self._sent |= set(ready)
                self._ask(lambda: self._send(ready))

    # How it is done

    def _aim(self, executors: int) -> None:
        if executors == self._target:
            return
        self._target = executors
        self._ask(self._request)
        self._trim()
        self.let_go()

    def _trim(self) -> None:
        """Have go who is too many: those with fewest lanes, the newest of them first."""
        assert self._target is not None
        lanes = self._departures.lanes()
        there = [each for each in self._spark.executor_ids().split(",") if each]
        free = [each for each in there if each not in self._sent]
        self._departures.announce({*surplus(free, lanes, self._target), *self._sent} & {*there})

    def _count(self) -> None:
        """Count slots anew; executors may have come late, and too many."""
        if self._target is not None:
            self._trim()
        nobody = not self._spark.executor_ids()
        if nobody and self.bounds is not None:
            self._slots = self.bounds.initial * self.each  # they are on their way
        else:
            self._slots = max(1, self._spark.slots() - self._departing())

    def _departing(self) -> int:
        """The slots of those who are to go, and whom Spark takes for staying."""
        alive = set(self._spark.executor_ids().split(","))
        by_executor = self._spark.slots_by_executor()
        return sum(by_executor.get(each, 0) for each in self._departures.leaving & alive)

    def _request(self) -> None:
        with self._asking:  # what was said last is what was wanted last
            assert self._target is not None
            self._spark.request(self._target)

    def _send(self, ids: Sequence[str]) -> None:
        # How many are wanted is said first: who goes must not be replaced.
        self._request()
        if not self._spark.let_go(ids):
            with self._mutex:  # they are used again
                self._sent -= set(ids)
                self._departures.announce(self._departures.leaving - set(ids))


def surplus(there: Sequence[str], lanes: Mapping[str, int], target: int) -> list[str]:
    """Who is to go that so many are left.

    >>> surplus(["0", "1", "2", "10"], {"0": 1, "10": 1}, target=2)
    ['1', '2']
    >>> surplus(["0", "1", "2", "10"], {}, target=3)
    ['10']
    """
    by_lanes = sorted(there, key=lambda each: (-lanes.get(each, 0), len(each), each))
    return sorted(by_lanes[target:], key=lambda each: (len(each), each))


def _whole(conf: Mapping[str, str], name: str, default: int) -> int:
    value = conf.get(name)
    if value is None:
        return default
    if not value.strip().isdecimal():
        message = f"{name} is {value!r}"
        raise AnabranchError(message, so="give a whole number")
    return int(value)


def _in_thread(work: Callable[[], None]) -> None:
    """Beside the query: a master that does not answer, or fails, keeps nobody waiting.

    What was asked for does not come then, and the query goes on with what there is.
    """

    def quietly() -> None:
        with suppress(Exception):
            work()

    threading.Thread(target=quietly, name="anabranch-allocation", daemon=True).start()
