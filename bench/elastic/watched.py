"""A query whose commits are written down as they come, and what they say of a stretch of time."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.api.query import Query
from anabranch.api.starting import start
from anabranch.config import StateMemory
from anabranch.runtime.assembly import Settings
from anabranch.runtime.shape import Shape
from anabranch.spark.executor import SparkExecutor
from bench.elastic.arriving import Arriving, program, require_right

EVERY = "100 ms"
FLOOD = 50_000
"""Rows of an epoch of a backlog."""
PATIENCE_S = 300.0
LOOK_S = 0.01
BEFORE_S = 2.0
"""How much of what was before a change or a fault is shown."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as it was told."""

    at: float
    """Seconds of the monotonic clock."""
    lanes: int
    rows: int
    end: int = 0
    """Rows that are committed with it."""
    epochs: int = 1
    written: int = 0
    """Bytes of state."""
    state: int = 0
    """Bytes of all files that the state is made of."""
    latencies: Sequence[float] = ()
    """Of each epoch, seconds from its cut."""
    where: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds since the commit before, by what they went into."""
    tasks: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of all tasks together, by what they went into."""
    jobs: int = 0
    origins: Mapping[str, int] = field(default_factory=dict)
    """Slices whose state was gone on from, by where it came from."""
    arrived: int = 0
    """Rows that had come by then, committed or not."""

    @classmethod
    def of(cls, told: Mapping[str, Any], at: float) -> Commit:
        ours = told["anabranch"]
        files = [each["customMetrics"] for each in told["stateOperators"]]
        ((_, end),) = told["sources"][0]["endOffset"]
        return cls(
            at,
            ours["lanes"],
            told["numInputRows"],
            end,
            len(ours["latencyMs"]),
            sum(each["writtenBytes"] for each in files),
            sum(each["stateBytes"] for each in files),
            tuple(each / 1000 for each in ours["latencyMs"]),
            ours["timeMs"],
            ours["tasksMs"],
            ours["jobs"],
            ours["slicesFrom"],
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two commits."""

    begin: float
    end: Commit

    @property
    def seconds(self) -> float:
        return self.end.at - self.begin


def longest(commits: Sequence[Commit], begin: float, end: float) -> Gap:
    """The longest time without a commit that touches a stretch.

    >>> commits = [Commit(at, 1, 0) for at in (0.0, 1.0, 5.0, 6.0, 9.0)]
    >>> longest(commits, 5.5, 7.0).seconds, longest(commits, 4.5, 5.5).seconds
    (3.0, 4.0)
    """
    gaps = [Gap(one.at, two) for one, two in pairwise(commits) if two.at > begin and one.at < end]
    return max(gaps, key=lambda gap: gap.seconds)


def origins(commits: Iterable[Commit]) -> Counter[str]:
    """Where the state came from that some commits went on from: how many slices, by place.

    >>> from_memory = Commit(0.0, 1, 0, origins={"memory": 4, "backup": 0})
    >>> origins([from_memory, from_memory, Commit(1.0, 1, 0, origins={"backup": 2})])
    Counter({'memory': 8, 'backup': 2})
    """
    found = Counter[str]()
    for each in commits:
        found.update(each.origins)
    return found


def throughput(commits: Sequence[Commit], begin: float, end: float) -> float:
    """Rows a second between the first and the last commit of a stretch.

    >>> throughput([Commit(at, 1, 10) for at in (0.0, 1.0, 2.0, 4.0)], 0.5, 9.0)
    6.666666666666667
    """
    some = [each for each in commits if begin <= each.at <= end]
    if len(some) < 2:
        message = f"{len(some)} commits in {end - begin:.1f} s are too few to tell a rate"
        raise RuntimeError(message)
    return sum(each.rows for each in some[1:]) / (some[-1].at - some[0].at)


Executing = Callable[[Any, Any], Any]
"""An executor for a query, given Spark and the program's graph."""


@dataclass(slots=True)
class Watched:
    """One query through all its runs."""

    sc: Any
    home: Path
    keys: int
    slices: int = 128
    executing: Executing = SparkExecutor
    name: str = "elastic"
    memory: int | None = None
    """Bytes of its state that a lane may have in memory; None: as many as lanes have."""
    commits: list[Commit] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)
    """When something of it was killed, by the clock of commits."""
    source: Arriving = field(init=False)
    _query: Query = field(init=False)

    def __post_init__(self) -> None:
        self.source = Arriving(self.keys)

    # Its life

    def start(self, lanes: int) -> None:
        """Begin, or go on from the checkpoint."""
        graph = program(self.source, self.home, self.name).freeze()
        settings = Settings(
            ab.epochs(EVERY, max_rows=max(self.keys, 10 * FLOOD)),
            self.home / "checkpoint",
            lanes,
            self.slices,
            state=StateMemory(self.memory),
        )
        self._query = start(graph, settings, self.executing(self.sc, graph))
        loop = self._query._loop  # noqa: SLF001 - who is told first
        told = loop.on_progress

        def note(progress: dict[str, Any]) -> None:
            now = time.monotonic()
            arrived = self.source.arrived(now)  # later it says no more how many there were now
            self.commits.append(replace(Commit.of(progress, now), arrived=arrived))
            told(progress)

        loop.on_progress = note

    def load(self, lanes: int) -> None:
        """Begin, with the state of all keys."""
        self.start(lanes)
        self.wait(lambda: self.committed >= self.keys)

    def rescale(self, lanes: int) -> float:
        """Change the width while it runs; seconds until the first commit at the new one."""
        asked = time.monotonic()
        self._query.rescale(lanes)
        return time.monotonic() - asked

    def migrate(self, lanes: int) -> float:
        """Stop it and start it again from its checkpoint; seconds until its first commit."""
        asked = time.monotonic()
        self._query.stop()
        self.start(lanes)
        known = len(self.commits)
        self.wait(lambda: len(self.commits) > known)
        return time.monotonic() - asked

    def finish(self) -> None:
        """Let the window close, and compare what comes out."""
        self.source.finish()
        self._query.await_termination()
        require_right(self.home, self.source.arrived(0.0), self.keys)

    def end(self) -> None:
        """Make sure that it is over."""
        if self._query.is_active:
            self._query.stop(drain=False)

    # Its input

    def flood(self, seconds: float, rows: int = FLOOD) -> tuple[float, float]:
        """Work off a backlog for so long, or some commits if that takes longer; from when to when.

        Its first commits are not counted: epochs under way have to fill up.
        """
        self.source.flood(rows)
        self.await_commits(4)
        begin = time.monotonic()
        time.sleep(seconds)
        self.await_commits(2)
        end = time.monotonic()
        self.rest()
        return begin, end

    def rest(self) -> None:
        """Let no more rows come, and commit all that came."""
        self.source.flood(0)
        self._query.process_all_available()

    def settle(self, rate: float) -> None:
        """Let rows come at a rate, and wait until the query keeps up."""
        self.source.pace(rate)
        self.catch_up(rate)

    def catch_up(self, rate: float) -> None:
        """Wait until what came a second ago is committed, but not for ever."""
        until = time.monotonic() + PATIENCE_S / 10
        self.wait(lambda: self.lag() < rate or time.monotonic() > until)

    def await_commits(self, count: int) -> None:
        """Wait for so many more."""
        known = len(self.commits)
        self.wait(lambda: len(self.commits) >= known + count)

    def lag(self) -> float:
        """Rows that have come and are not committed."""
        return self.source.arrived(time.monotonic()) - self.committed

    @property
    def committed(self) -> int:
        """Rows that are committed."""
        return self.commits[-1].end if self.commits else 0

    def behind(self, moment: float, until: float, rate: float) -> tuple[tuple[float, float], ...]:
        """Commits around a moment: when, counted from it, and how long their oldest row waited."""
        return tuple(
            (
                round(two.at - moment, 4),
                round((two.arrived - one.end) / rate, 4),
            )
            for one, two in pairwise(list(self.commits))
            if moment - BEFORE_S <= two.at <= until
        )

    # Its processes

    def pids(self) -> dict[int, int]:
        """The process of each lane."""
        lanes = self._loop._executor._inner._lanes  # noqa: SLF001 - whom to kill
        return {} if lanes is None else dict(lanes.pids())

    def kill(self, lane: int) -> float:
        """Kill a lane's process: seconds until the first commit with a row that came after it."""
        return self._killed(self.pids()[lane])[0]

    def kill_executor(self, lane: int) -> tuple[float, Counter[str]]:
        """Kill the executor of a lane, and with it all that is there.

        Says how many seconds it was until the first commit with a row that came after it, and where
        the state came from until then.
        """
        # Who forks Spark's Python workers is the executor's own child.
        return self._killed(_parent(_parent(self.pids()[lane])))

    def _killed(self, pid: int) -> tuple[float, Counter[str]]:
        known, fault = len(self.commits), time.monotonic()
        self.faults.append(fault)
        there = self.source.arrived(fault)
        os.kill(pid, signal.SIGKILL)
        self.wait(lambda: self.committed > there)
        at = next(at for at, each in enumerate(self.commits) if each.end > there)
        return self.commits[at].at - fault, origins(self.commits[known : at + 1])

    @property
    def shape(self) -> Shape:
        """Who works where."""
        found: Shape = self._loop._shape  # noqa: SLF001 - to see it settle
        return found

    @property
    def _loop(self) -> Any:
        return self._query._loop  # noqa: SLF001 - it has what nobody else need know

    @property
    def executors(self) -> int:
        """How many executors its lanes are on."""
        where = self.shape._ground.of  # noqa: SLF001 - to see who is where
        return len({*where.values()}) or 1

    @property
    def state(self) -> int:
        """Bytes of the files that the state is made of."""
        return self.commits[-1].state

    def wait(self, reached: Callable[[], bool]) -> None:
        """Wait for something that is bound to come, as long as the query runs."""
        until = time.monotonic() + PATIENCE_S
        while not reached():
            if (error := self._query.exception()) is not None:
                raise error
            if time.monotonic() > until:
                message = f"{self.name}: nothing came of it within {PATIENCE_S:.0f} s"
                raise RuntimeError(message)
            time.sleep(LOOK_S)


def _parent(pid: int) -> int:
    """The process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
