"""Lanes: Python worker processes that Spark keeps for us, and the one job that uses them.

A *lane* is one process, which keeps what it holds from job to job: Spark's pools of workers are
keyed by the environment, and each lane has a variable of its own. *Heads* are ordinary workers, any
of which may run any head task. A cycle is one single-stage job of lane tasks and head tasks, each
with one payload, each with one result.

Holds by construction: at most one task of a lane is under way. `run` is one job at a time with one
task a lane; what Spark runs again does nothing but say so; and after a job that did not end well,
some task of which may run on unseen, its lanes go on in new processes. A process that dies, or an
executor that is lost, takes with it what it had and no more: Spark runs its task again elsewhere,
which says that it is lost, and the others' results stand.

Correctness never rests on a lane being the process it was: it may die, and Spark ends workers that
were idle for a minute. Who works in a lane notices by what it holds.

The job is made once of JVM objects and run again and again for any subset of its tasks: making it
anew for each cycle nearly doubles its time. What differs from job to job travels as a property of
the job.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from anabranch.runtime.ground import Ground
from anabranch.spark.garbage import settle
from anabranch.spark.private import (
    Executor,
    Function,
    JobFailed,
    Rdd,
    Spark,
    is_repeated,
    task_property,
)
from anabranch.spark.processes import Processes

Plans: TypeAlias = Mapping[str, Any]
"""What was deployed, by id, unpickled."""

Work: TypeAlias = Callable[[Plans, int, Iterator[bytes]], Iterator[bytes]]
"""What runs in a lane or head: an importable function of (plans, its number, payloads)."""

PAYLOADS = "anabranch.payloads"
PLANS = "anabranch.plans"

# A job's properties go to every one of its tasks; beyond this it is cheaper to send each its own.
MOST_IN_PROPERTIES = 64_000
# Head tasks of one job that is made beforehand; larger jobs are made anew.
HEADS_READY = 64

ASK_AGAIN_S = 0.1

_DONE, _FAILED, _LACKING, _LOST = b"d", b"f", b"l", b"r"
_DIED = "a worker process ended while it was at it"


@dataclass(frozen=True, slots=True)
class LanesStatistics:
    """How a set of lanes does."""

    jobs: int
    jobs_made_anew: int
    tasks_sent_plans: int
    failures: int
    generation: int
    pids: Mapping[int, int]


class Lanes:
    """Some lanes and any number of heads on one SparkContext.

    One thread at a time may `run`; `cancel` may be called from any. Close it when it is done with:
    the next one on the same SparkContext then finds its processes running. Spark ends workers that
    are idle for a minute, but the process that forks them only at its own end.
    """

    def __init__(self, sc: Any, lanes: int, *, lane: Work, head: Work) -> None:
        self._spark = Spark(sc)
        # Two sets of lanes at a time share no process.
        self._processes = Processes(self._spark, lanes)
        self.count = lanes
        self._lane = lane
        self._plans: dict[str, bytes] = {}
        self._busy = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._seen = LanesStatistics(0, 0, 0, 0, 0, {})
        self._label = ""
        self._head = self._spark.function(functools.partial(_task, head), self._processes.heads)
        self._heads = self._spark.apply(
            self._spark.source([f"h{at}".encode() for at in range(HEADS_READY)]), self._head
        )
        self._processes.place()
        self._make()

    # --- public ----------------------------------------------------------------------------------

    def deploy(self, plan_id: str, plan: bytes) -> None:
        """Have a (cloud)pickled plan at hand in all workers from the next job on.

        Each worker is sent it once, when it first lacks it, and unpickles it once.
        """
        if self._plans.get(plan_id, plan) != plan:
            message = f"another plan is deployed as {plan_id!r}: ids are hashes of plans"
            raise ValueError(message)
        self._plans[plan_id] = plan

    def withdraw(self, plan_id: str) -> None:
        """Forget a plan, here and in all workers."""
        self._plans.pop(plan_id, None)

    def run(
        self,
        lanes: Mapping[int, bytes],
        heads: Sequence[bytes] = (),
        *,
        label: str = "anabranch: one cycle",
    ) -> tuple[dict[int, bytes | None], list[bytes]]:
        """Run one job with these payloads; returns each task's result.

        An empty payload is no work: its worker is started, or kept, and the result is empty.
        `label` is what Spark's pages call the job. A lane whose process died has None, though
        parts of its work may have been done.

        Raises:
            JobFailed: A task failed, or a head's process died. Nothing of the job's results is
                known then, though parts of it may have been done.
        """
        if not self._busy.acquire(blocking=False):
            message = "one job at a time: a lane has at most one task under way"
            raise RuntimeError(message)
        self._idle.clear()
        try:
            self._label = label
            return self._run(dict(sorted(lanes.items())), list(heads))
        finally:
            self._idle.set()
            self._busy.release()

    def start(self, lanes: Iterable[int]) -> None:
        """Start the workers of lanes in which nothing runs, beside a job of others.

        Safe from any thread, but for one that runs a job of the same lanes.
        """
        names = [f"l{lane}" for lane in lanes]
        self._spark.label(self._processes.tag, "anabranch: starting lanes")
        self._spark.set_property(PLANS, "[]")
        self._spark.set_property(PAYLOADS, json.dumps(dict.fromkeys(names, "")))
        self._spark.collect(self._ready, [self._partition(name) for name in names])

    def warm_up(self) -> None:
        """Start all workers, or keep them from being ended: Spark ends the idle after 60 s."""
        lanes, heads = dict.fromkeys(range(self.count), b""), [b""] * self._spark.slots()
        self.run(lanes, heads, label="anabranch: keeping lanes warm")

    def close(self) -> None:
        """Leave the processes to whoever comes next; not those where a job is under way."""
        if self._busy.acquire(blocking=False):  # and never released: there are no more jobs
            self._processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cancel(self) -> None:
        """Cancel the job under way, if there is one, and wait for its end: its `run` raises.

        Asks again and again: Spark knows nothing of a job that it has not quite been given yet.
        """
        while not self._idle.is_set():
            self._spark.cancel(self._processes.tag)
            self._idle.wait(ASK_AGAIN_S)

    def pids(self) -> dict[int, int]:
        """The process of each lane that has run, as of its last task."""
        return dict(self._processes.pids)

    def executors(self) -> dict[int, Executor]:
        """Where each lane wants to be; empty if there is only one place."""
        return dict(self._processes.where)

    def ground(self) -> Ground:
        """Who is there, and where lanes are from the next job on."""
        if self._processes.place():
            self._make()
        return self._processes.ground()

    def resize(self, lanes: int) -> None:
        """Have so many lanes: those that were there stay where they are, in their processes."""
        if lanes != self.count:
            self._processes.resize(lanes)
            self.count = lanes
            self._make()

    def leave(self, lanes: Iterable[int]) -> None:
        """Go on in other processes: a task of these lanes may still be under way, unseen."""
        self._processes.leave(lanes)
        self._make()

    def renumber(self, was: Sequence[int]) -> None:
        """Let each lane be another's process: `was` has for each which one's."""
        self._processes.renumber(was)
        self.count = len(was)
        self._make()

    def statistics(self) -> LanesStatistics:
        """How things are."""
        return replace(self._seen, generation=self._processes.generation, pids=self.pids())

    # --- one job ---------------------------------------------------------------------------------

    def _run(
        self, lanes: dict[int, bytes], heads: list[bytes]
    ) -> tuple[dict[int, bytes | None], list[bytes]]:
        if not lanes and not heads:
            return {}, []
        if self._processes.place():
            self._make()
        tasks = {f"l{lane}": payload for lane, payload in lanes.items()}
        tasks |= {f"h{at}": payload for at, payload in enumerate(heads)}
        try:
            # At the first job nobody has a plan: to ask who lacks one would be a job for nothing.
            first = bool(self._plans) and self._seen.jobs == 0
            answers = self._answers(tasks, plans=first)
            self._count(tasks_sent_plans=len(tasks) if first else 0)
            lacking = [name for name, answer in answers.items() if answer.lacks]
            if lacking:
                again = {name: tasks[name] for name in lacking}
                answers |= self._answers(again, plans=True)
                self._count(tasks_sent_plans=len(lacking))
        except JobFailed:
            self._abandon(lanes)
            raise
        self._processes.pids |= {lane: answers[f"l{lane}"].pid for lane in lanes}
        for name in tasks:
            if error := answers[name].error:
                self._count(failures=1)
                raise JobFailed(error)
        if any(answers[name].lost for name in tasks):
            self._count(failures=1)
        if any(answers[f"h{at}"].lost for at in range(len(heads))):
            raise JobFailed(_DIED, died=True)
        results = {name: None if found.lost else found.result for name, found in answers.items()}
        return (
            {lane: results[f"l{lane}"] for lane in lanes},
            [results[f"h{at}"] or b"" for at in range(len(heads))],
        )

    def _answers(self, tasks: Mapping[str, bytes], *, plans: bool) -> dict[str, _Answer]:
        spark = self._spark
        spark.label(self._processes.tag, self._label)
        spark.set_property(PLANS, json.dumps(list(self._plans)))
        heads = sum(name[0] == "h" for name in tasks)
        size = sum(map(len, tasks.values()))
        self._count(jobs=1)
        if plans or size > MOST_IN_PROPERTIES or heads > HEADS_READY:
            spark.set_property(PAYLOADS, None)
            found = spark.collect(self._made_anew(tasks, self._plans if plans else {}))
            self._count(jobs_made_anew=1)
        else:
            texts = {name: base64.b64encode(each).decode() for name, each in tasks.items()}
            spark.set_property(PAYLOADS, json.dumps(texts))
            found = spark.collect(self._ready, [self._partition(name) for name in tasks])
        return {name: _Answer.of(answer) for name, answer in zip(tasks, found, strict=True)}

    def _made_anew(self, tasks: Mapping[str, bytes], plans: Mapping[str, bytes]) -> Rdd:
        """A job whose tasks carry their own payloads, and plans."""
        rdds = []
        heads = []
        for name, payload in tasks.items():
            item = pickle.dumps((name, payload, dict(plans)))
            if name[0] == "l":
                lane = int(name[1:])
                rdds.append(
                    self._spark.apply(self._processes.source(lane, item), self._lanes[lane])
                )
            else:
                heads.append(item)
        if heads:
            rdds.append(self._spark.apply(self._spark.source(heads), self._head))
        return self._spark.union(rdds)

    # --- making ----------------------------------------------------------------------------------

    def _make(self) -> None:
        """Make the job: lanes at their places, in processes of their own, and heads."""
        spark, processes = self._spark, self._processes
        work = functools.partial(_task, self._lane)
        self._lanes: list[Function] = [
            spark.function(work, processes.lane(lane)) for lane in range(self.count)
        ]
        lanes = [
            spark.apply(processes.source(lane, f"l{lane}".encode()), self._lanes[lane])
            for lane in range(self.count)
        ]
        self._ready = spark.union([*lanes, self._heads])

    def _partition(self, name: str) -> int:
        at = int(name[1:])
        return at if name[0] == "l" else self.count + at

    def _abandon(self, lanes: Mapping[int, bytes]) -> None:
        self._count(failures=1)
        self._processes.leave(lanes)
        self._processes.place()
        self._make()

    def _count(self, **more: int) -> None:
        changed = {name: getattr(self._seen, name) + by for name, by in more.items()}
        self._seen = replace(self._seen, **changed)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a task said: one byte, the process, then its result, or its error's text."""

    lacks: bool
    error: str | None
    result: bytes
    pid: int
    lost: bool
    """Whether it is not the first: that one died."""

    @classmethod
    def of(cls, answer: bytes) -> _Answer:
        kind, pid, rest = answer[:1], int.from_bytes(answer[1:9], "big"), answer[9:]
        error = rest.decode() if kind == _FAILED else None
        done = rest if kind == _DONE else b""
        return cls(kind == _LACKING, error, done, pid, kind == _LOST)


# --- in a worker ---------------------------------------------------------------------------------

_plans: dict[str, Any] = {}


def _task(work: Work, _split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """One task: whatever the work does, the worker lives on and there is one answer."""
    (item,) = list(items)  # all of them, or Spark would throw the worker away
    if is_repeated():
        yield _LOST + os.getpid().to_bytes(8, "big")
        return
    answer = _answer(work, item)
    settle()
    yield answer


def _answer(work: Work, item: bytes) -> bytes:
    me = os.getpid().to_bytes(8, "big")
    wanted = json.loads(task_property(PLANS) or "[]")
    name, payload, plans = _told(item)
    for gone in set(_plans) - set(wanted):
        del _plans[gone]
    try:
        for plan in wanted:
            if plan not in _plans:
                if plan not in plans:
                    return _LACKING + me
                _plans[plan] = pickle.loads(plans[plan])  # noqa: S301 - the driver's own
        result = b"".join(work(_plans, int(name[1:]), iter((payload,)))) if payload else b""
    except Exception:  # noqa: BLE001 - an error must not end the process, which holds state
        return _FAILED + me + traceback.format_exc().encode()
    return _DONE + me + result


def _told(item: bytes) -> tuple[str, bytes, Mapping[str, bytes]]:
    """The task's name, payload and plans: from the job's properties or from the item itself."""
    payloads = task_property(PAYLOADS)
    if payloads is None:
        name, payload, plans = pickle.loads(item)  # noqa: S301 - the driver's own
        return name, payload, plans
    name = item.decode()
    return name, base64.b64decode(json.loads(payloads)[name]), {}
