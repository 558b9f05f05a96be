"""What only several executors show: one of them lost, state in lanes' memory, a lane elsewhere.

Each executor has one core, and one lane of the query. All of them are on this machine: more of them
are no more work that it can do, but more that take a part of what is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

from anabranch.runtime import under_way
from anabranch.runtime.backups import Backups
from anabranch.runtime.elasticity import Elasticity
from anabranch.runtime.ground import Ground as Places
from anabranch.spark.executor import SparkExecutor
from anabranch.state.slices import Owners
from bench.elastic import rescale
from bench.elastic.ground import Ground, Scale, in_turns
from bench.elastic.remote import READ_MS, remote
from bench.elastic.watched import Watched, origins
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

MEMORY_MB = 768
"""Of an executor."""
FAR_MS = 30
"""How long a read from an object store takes."""
LATE = 2
"""Cycles whose files may still be to copy when an executor is killed."""
PLACES = ("memory", "backup", "checkpoint")
"""Where state comes from when an executor is lost."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case and the executors that it needs."""

    name: str
    executors: int
    measure: Callable[[Stand, Ground, Case], list[Row]]
    far: bool = False
    """Whether the checkpoint is."""

    @property
    def master(self) -> str:
        return f"local-cluster[{self.executors},1,{MEMORY_MB}]"

    @property
    def conf(self) -> dict[str, str]:
        return {f"spark.executorEnv.{READ_MS}": str(FAR_MS)} if self.far else {}


def named(name: str) -> Case | None:
    """The case of a name; None: it is none of these.

    >>> case = named("recover-executor-3-remote")
    >>> case.executors, case.far, case.master
    (4, True, 'local-cluster[4,1,768]')
    >>> named("recover-8mb") is None
    True
    """
    if found := re.fullmatch(r"recover-executor-([1-9]\d*)(-remote)?", name):
        return Case(name, int(found[1]) + 1, recover, far=found[2] is not None)
    if found := re.fullmatch(r"memory-([1-9]\d*)", name):
        return Case(name, int(found[1]), memory)
    return Case(name, 2, elsewhere) if name == "rescale-cluster" else None


def names(scale: Scale) -> list[str]:
    """All of them that are run if nobody chooses."""
    lost = [f"recover-executor-{left}{far}" for far in ("", "-remote") for left in scale.survivors]
    return [*lost, "memory-2", "rescale-cluster"]


# An executor is lost


@dataclass(frozen=True, slots=True)
class Loss:
    """An executor was lost."""

    seconds: float
    """Until the first commit with a row that came after that."""
    origins: Mapping[str, int]
    """Slices by where their state came from, until then."""


def recover(stand: Stand, here: Ground, case: Case) -> list[Row]:
    """One query; executors of its lanes are killed in turn, with copies on others and without."""
    executing = remote if case.far else SparkExecutor
    size, lanes = here.scale.recover[0], case.executors
    with _evenly(), here.sized(size, lanes=lanes, executing=executing) as query:
        state, rate = query.state, here.rate(query)
        query.settle(rate)
        victims = cycle(range(1, lanes))

        def one(*, copies: bool) -> Loss:
            with _copies(query, kept=copies):
                return _lost(query, rate, next(victims), copies=copies)

        systems = {
            "anabranch": partial(one, copies=True),
            "durable-only": partial(one, copies=False),
        }
        runs, _ = in_turns(stand, case.name, systems)
        query.finish()
    return [
        *rows_of(case.name, runs),
        bare(Metric(case.name, "state", "MB"), "anabranch", [state / 1e6]),
    ]


def rows_of(case: str, runs: Mapping[str, Sequence[Loss]]) -> list[Row]:
    """Times, and where state came from; a run that came by it in another way is no run."""
    used = {
        name: sum(each.origins.get("backup", 0) for each in some) for name, some in runs.items()
    }
    if not used["anabranch"] or used["durable-only"]:
        message = f"{case}: slices came from copies where they should not, or not at all: {used}"
        raise RuntimeError(message)
    seconds = {name: [each.seconds for each in some] for name, some in runs.items()}
    rows = compared(Metric(case, "recovery_time", "s"), seconds, [("anabranch", "durable-only")])
    for place in PLACES:
        metric = Metric(case, f"slices_from_{place}", "slices")
        rows += [
            bare(metric, name, [each.origins.get(place, 0) for each in some])
            for name, some in runs.items()
        ]
    return rows


def _lost(query: Watched, rate: float, lane: int, *, copies: bool) -> Loss:
    query.wait(lambda: _spread(query))
    query.catch_up(rate)
    query.await_commits(under_way.ROUND * 3 // 2)
    query.wait(lambda: _spread(query) and _kept(query, copies=copies))
    return Loss(*query.kill_executor(lane))


def _spread(query: Watched) -> bool:
    """Whether all executors are there, each with a lane that has slices, and nothing changes."""
    shape, lanes = query.shape, query.shape.deployment.lanes
    places, owners = shape._ground, shape.deployment.owners  # noqa: SLF001 - nobody else asks
    there = {places.of.get(lane) for lane in range(lanes)} & {*places.executors}
    return shape._rescaling is None and len(there) == lanes == len({*owners.of})  # noqa: SLF001


def _kept(query: Watched, *, copies: bool) -> bool:
    """Whether there are all copies but for what the last cycles wrote, or none at all.

    Rows keep coming, so there is always a file that was written just now. In a cycle a lane writes
    a delta and a snapshot, and each of the others copies its part of both.
    """
    found, lanes = query.shape.backups, query.shape.deployment.lanes
    if not copies:
        return found["files"] == 0
    return found["files"] > 0 and found["behind"] <= LATE * 2 * lanes * (lanes - 1)


@contextmanager
def _evenly() -> Iterator[None]:
    """Have lanes get as many slices each, whatever they cost: then as many are lost each time."""
    usual = Elasticity.learn
    try:
        Elasticity.learn = lambda *_: None  # type: ignore[method-assign]
        yield
    finally:
        Elasticity.learn = usual  # type: ignore[method-assign]


@contextmanager
def _copies(query: Watched, *, kept: bool) -> Iterator[None]:
    """Have lanes keep copies, or none, for a while; it is the driver that says so."""
    usual = Backups.place

    def none(self: Backups, owners: Owners, _: Places) -> None:
        usual(self, owners, Places())  # as where there is one place only

    changed: Any = usual if kept else none
    try:
        _place(query, changed)
        yield
    finally:
        _place(query, usual)


def _place(query: Watched, how: Any) -> None:
    """Have copies placed in another way, from now on."""
    Backups.place = how  # type: ignore[method-assign]
    shape = query.shape
    shape._backups.place(shape.deployment.owners, shape._ground)  # noqa: SLF001 - it was before


# Nothing is lost


def memory(stand: Stand, here: Ground, case: Case) -> list[Row]:
    """The share of slices whose state lanes had in memory, where nothing changes."""
    with here.sized(here.scale.recover[0], lanes=case.executors) as query:
        rate = here.rate(query)
        query.settle(rate)
        found = stand.race(case.name, {"anabranch": lambda: _share(query, here.scale.commits)})
        query.finish()
    return [bare(Metric(case.name, "memory_share", "ratio"), "anabranch", found["anabranch"])]


def _share(query: Watched, commits: int) -> float:
    known = len(query.commits)
    query.await_commits(commits)
    return in_memory(origins(query.commits[known:]))


def in_memory(found: Counter[str]) -> float:
    """Of all slices the share that were in memory.

    >>> in_memory(Counter(memory=95, replica=1, backup=0, checkpoint=4))
    0.95
    """
    return found["memory"] / found.total()


def elsewhere(stand: Stand, here: Ground, case: Case) -> list[Row]:
    """One lane to two and back, of which the second is on another executor."""
    seen = rescale.changes(stand, here, case.name, here.scale.recover[0])
    require_apart(case, seen)
    return [*rescale.rows_of(case.name, seen.runs), *rescale.facts(case.name, seen)]


def require_apart(case: Case, seen: rescale.Seen) -> None:
    """Refuse runs in which the new lane came to be where the old one is."""
    there = {run.up.executors for some in seen.runs.values() for run in some}
    if there != {case.executors}:
        message = f"{case.name}: at full width lanes were on {there} executors"
        raise RuntimeError(message)
