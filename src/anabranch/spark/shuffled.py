"""Lanes whose rows come to them through Spark's shuffle: on any number of hosts.

Heads are the map side of a shuffle with a partition for each lane and one more: there each head
task puts its small result, and a job on that partition alone runs them all. What is for the lanes
stays where it was made until a later job's lane tasks take it, each its partitions, from any number
of shuffles. So a cycle is two jobs at a time: the lanes of some epochs, the heads of others. Lanes
come and go, plans follow each other: a shuffle stays what it was, for as many lanes as there were.

Holds by construction: at most one task of a lane is under way, as with `Lanes`. Spark may run a
head task again whose output was lost with its host: it has all it needs in its item and in a
broadcast, which is kept as long as what was made by it. So what heads cannot do for want of disk is
told by Spark itself. A lane's task that Spark runs again does nothing but say so. A stage that it
runs again, as it may where `spark.stage.maxConsecutiveAttempts` is not ours, cannot be told from
the first; that costs no more than time, since state and staged rows have names of their own.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.errors import AnabranchError
from anabranch.runtime.aside import InThread
from anabranch.runtime.exchange import PartError
from anabranch.runtime.ground import Ground
from anabranch.spark.garbage import settle
from anabranch.spark.private import (
    Function,
    JobFailed,
    Pick,
    Rdd,
    Spark,
    is_repeated,
    pack_partition,
)
from anabranch.spark.processes import Processes
from anabranch.spark.shipped_plans import Plan, Shipped, ShippedPlans

ASK_AGAIN_S = 0.1

# The first byte of an answer; those of lost parts and of refusals are followed by JSON or text.
_DONE, _FAILED, _LOST, _UNFIT, _REPEATED = b"d", b"f", b"p", b"u", b"r"
# How the payload begins among the pieces that a lane's task is given: those begin with a digest.
_PAYLOAD = b"anabranch lane work 1\n"


class PartsLost(JobFailed):
    """What a lane's task was given is not what the heads said: their work is to be done again."""


class Unfit(AnabranchError):
    """Raised by work that no attempt can do: the run ends with these words."""


HeadWork: TypeAlias = Callable[[Shipped, bytes], tuple[bytes, Mapping[int, Sequence[bytes]]]]
"""What a head task does with its payload: its result, and pieces by lane. Importable."""

LaneWork: TypeAlias = Callable[[Shipped, bytes, Sequence[bytes]], bytes]
"""What a lane's task does with its payload and the pieces that have come for it. Importable."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """What heads have made, kept by Spark until it is forgotten."""

    rdd: Rdd
    executors: frozenset[str]
    """Who was there then: when one of them is gone, some of it may be."""
    plan: str
    """The id of the plan by which it was made."""


@dataclass(frozen=True, slots=True)
class Take:
    """What a lane's task takes of a shuffle: the partitions of some lanes of that time."""

    shuffle: Shuffle
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Headed:
    """What heads have made, and their results in the order of payloads."""

    shuffle: Shuffle
    results: list[bytes]


class ShuffledLanes:
    """Some lanes and any number of heads on one SparkContext.

    One thread at a time may `run`; `cancel` and `forget` may be called from any.
    """

    def __init__(self, sc: Any, lanes: int, *, lane: LaneWork, head: HeadWork) -> None:
        self._spark = Spark(sc)
        self._processes = Processes(self._spark, lanes)
        self._lane_work, self._head_work = lane, head
        self._picks: dict[tuple[int, ...], Pick] = {}
        self._plans = ShippedPlans(self._spark)
        self._lanes: list[Function] = []
        self._starter, self._starting = InThread(), dict[int, Future[None]]()
        self._busy = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="anabranch-heads")
        self._label = ""

    @property
    def count(self) -> int:
        """How many lanes there are; heads make rows for those of their plan."""
        return self._processes.count

    @property
    def plans(self) -> frozenset[str]:
        """The plans that hosts still have: the deployed one, and those of kept shuffles."""
        return self._plans.ids

    def deploy(self, plan_id: str, plan: bytes, lanes: int | None = None) -> None:
        """Have a (cloud)pickled plan at hand in all tasks from the next job on.

        From then on there are as many lanes as it is for; without a number, as there were.
        """
        count = self.count if lanes is None else lanes
        broadcast, number = self._spark.broadcast(plan)
        shipped = Shipped(plan_id, number)
        task = functools.partial(_head_task, self._head_work, shipped, count)
        head = self._spark.function(task, self._processes.heads, [broadcast])
        self._plans.deploy(Plan(shipped, broadcast, count, head))
        self._resize(count)

    def reserve(self, lanes: int) -> None:
        """Have so many lanes or more, whatever the plan is for."""
        if lanes > self.count:
            self._resize(lanes)

    def start(self, lanes: Sequence[int]) -> Future[None]:
        """Start the workers of lanes in which nothing runs, where they are to be, beside a job."""
        self._await(
            [each for each in lanes if each in self._starting and self._starting[each].done()]
        )
        new = [lane for lane in lanes if lane not in self._starting]
        job = self._lane_job(dict.fromkeys(new, b""), {}) if new else None
        starting = self._starter.submit(functools.partial(self._start, job))
        self._starting |= dict.fromkeys(new, starting)
        return starting  # behind those that were begun before: it is one after the other

    def run(
        self,
        lanes: Mapping[int, bytes],
        takes: Mapping[int, Sequence[Take]],
        heads: Sequence[bytes],
        *,
        plan: str | None = None,
        label: str = "anabranch: one cycle",
    ) -> tuple[dict[int, bytes | None], Headed | None]:
        """Run lanes, each with what it takes of shuffles, and heads, at the same time.

        An empty payload is no work: its worker is started, or kept, and the result is empty. A
        lane whose process died has None, though parts of its work may have been done.
        `plan` is the one that heads work by, if it is not the deployed one. `label` is what
        Spark's pages call the jobs, with whose they are.

        Raises:
            JobFailed: One of the jobs failed. What heads have made by then is forgotten.
            Unfit: As the work said.
        """
        if not self._busy.acquire(blocking=False):
            message = "one cycle at a time: a lane has at most one task under way"
            raise RuntimeError(message)
        self._idle.clear()
        try:
            self._label = label
            return self._run(dict(sorted(lanes.items())), takes, list(heads), plan)
        finally:
            self._idle.set()
            self._busy.release()

    def forget(self, shuffle: Shuffle) -> None:
        """Remove what heads have made, on all hosts."""
        self._spark.forget_shuffles(shuffle.rdd)
        self._plans.release(shuffle.plan)

    def whole(self, shuffle: Shuffle) -> bool:
        """Whether everybody is still there who was when it was made."""
        return shuffle.executors <= self._executors()

    def warm_up(self) -> None:
        """Start all workers, or keep them from being ended: Spark ends the idle after 60 s."""
        lanes, heads = dict.fromkeys(range(self.count), b""), [b""] * self._spark.slots()
        _, made = self.run(lanes, {}, heads, label="anabranch: keeping lanes warm")
        if made is not None:
            self.forget(made.shuffle)

    def cancel(self) -> None:
        """Cancel the jobs under way, if there are any, and wait for their end: `run` raises.

        Asks again and again: Spark knows nothing of a job that it has not quite been given yet.
        """
        while not self._idle.is_set():
            self._spark.cancel(self._processes.tag)
            self._idle.wait(ASK_AGAIN_S)

    def close(self) -> None:
        """Leave the processes to whoever comes next; not those where a job is under way."""
        if self._busy.acquire(blocking=False):  # and never released: there are no more jobs
            self._await(list(self._starting))
            self._processes.close()
            self._beside.shutdown(wait=False)
            self._plans.close()

    def ground(self) -> Ground:
        """Who is there, and where lanes are from the next job on."""
        if self._processes.place():
            self._make()
        return self._processes.ground()

    def renumber(self, was: Sequence[int]) -> None:
        """Let each lane be another's process: `was` has for each which one's."""
        self._await(list(self._starting))
        self._processes.renumber(was)

    def pids(self) -> dict[int, int]:
        """The process of each lane that has run, as of its last task."""
        return dict(self._processes.pids)

    # --- jobs ------------------------------------------------------------------------------------

    def _run(
        self,
        lanes: dict[int, bytes],
        takes: Mapping[int, Sequence[Take]],
        heads: list[bytes],
        plan: str | None,
    ) -> tuple[dict[int, bytes | None], Headed | None]:
        self._await(lanes)
        if self._processes.place():
            self._make()
        # Made before the other thread begins, so that Spark is given the lanes first.
        job = self._lane_job(lanes, takes) if lanes else None
        heading = self._beside.submit(self._run_heads, heads, plan) if heads else None
        try:
            taken = self._run_lanes(lanes, job) if job is not None else {}
        except BaseException:
            if heading is not None and heading.exception() is None:
                self.forget(heading.result().shuffle)
            raise
        return taken, None if heading is None else heading.result()

    def _run_lanes(self, lanes: Mapping[int, bytes], job: Rdd) -> dict[int, bytes | None]:
        self._spark.label(self._processes.tag, f"{self._label}: lanes")
        try:
            found = self._spark.collect(job)
        except JobFailed:
            self._leave(lanes)
            raise
        answers = dict(zip(lanes, map(_Answer.of, found), strict=True))
        self._processes.pids |= {lane: answer.pid for lane, answer in answers.items()}
        return {
            lane: None if answer.kind == _REPEATED else answer.result()
            for lane, answer in answers.items()
        }

    def _start(self, job: Rdd | None) -> None:
        if job is None:
            return
        self._spark.label(self._processes.tag, "anabranch: starting lanes")
        self._spark.collect(job)

    def _await(self, lanes: Iterable[int]) -> None:
        """Wait until these lanes have started; one that has not may still be at it, unseen."""
        starting = {each: self._starting.pop(each) for each in lanes if each in self._starting}
        wait(starting.values())
        if failed := [lane for lane, started in starting.items() if started.exception()]:
            self._leave(failed)

    def _run_heads(self, heads: list[bytes], plan_id: str | None) -> Headed:
        spark, plan = self._spark, self._plans.hold(plan_id)
        spark.label(self._processes.tag, f"{self._label}: heads")
        executors = self._executors()
        items = [pickle.dumps(each) for each in enumerate(heads)]
        moved = spark.shuffle(spark.apply(spark.source(items), plan.head), plan.lanes + 1)
        made = Shuffle(moved, executors, plan.id)
        try:
            found = dict(map(_numbered, spark.collect(moved, [plan.lanes])))
            results = [found[number].result() for number in range(len(heads))]
        except BaseException:
            self.forget(made)
            raise
        return Headed(made, results)

    def _lane_job(self, lanes: Mapping[int, bytes], takes: Mapping[int, Sequence[Take]]) -> Rdd:
        spark = self._spark
        rdds = []
        for lane, payload in lanes.items():
            given = self._processes.source(lane, _PAYLOAD + payload)
            if taken := takes.get(lane, ()):
                pieces = [spark.only(x.shuffle.rdd, self._pick(x.partitions)) for x in taken]
                pin, given = given, spark.together([given, *pieces])
                given = spark.beside(pin, given) if self._processes.where else given
            rdds.append(spark.apply(given, self._lanes[lane]))
        return spark.union(rdds)

    # --- making ----------------------------------------------------------------------------------

    def _resize(self, lanes: int) -> None:
        self._processes.resize(lanes)
        self._picks = {}
        self._make()

    def _leave(self, lanes: Iterable[int]) -> None:
        self._processes.leave(lanes)
        self._processes.place()
        self._make()

    def _make(self) -> None:
        spark, plan = self._spark, self._plans.deployed
        lane = functools.partial(_lane_task, self._lane_work, plan.shipped)
        environments = [self._processes.lane(at) for at in range(self.count)]
        self._lanes = [spark.function(lane, each, [plan.broadcast]) for each in environments]

    def _pick(self, partitions: tuple[int, ...]) -> Pick:
        if partitions not in self._picks:
            self._picks[partitions] = self._spark.pick(*partitions)
        return self._picks[partitions]

    def _executors(self) -> frozenset[str]:
        return frozenset(self._spark.executor_ids().split(","))


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a task said: one byte, the process, then its result, or why there is none."""

    kind: bytes
    pid: int
    rest: bytes

    @classmethod
    def of(cls, answer: bytes) -> _Answer:
        return cls(answer[:1], int.from_bytes(answer[1:9], "big"), answer[9:])

    def result(self) -> bytes:
        if self.kind == _DONE:
            return self.rest
        if self.kind == _UNFIT:
            raise Unfit(**json.loads(self.rest))
        raise (PartsLost if self.kind == _LOST else JobFailed)(self.rest.decode())


def _numbered(data: bytes) -> tuple[int, _Answer]:
    return int.from_bytes(data[:4], "big"), _Answer.of(data[4:])


# --- in a worker ---------------------------------------------------------------------------------


def _head_task(
    work: HeadWork, plan: Shipped, lanes: int, _split: int, items: Iterator[bytes]
) -> Iterator[bytes]:
    """Pieces for lanes, and the answer for the partition behind them."""
    (item,) = list(items)  # all of them, or Spark would throw the worker away
    number, payload = pickle.loads(item)  # noqa: S301 - the driver's own
    pieces: Mapping[int, Sequence[bytes]] = {}

    def do() -> bytes:
        nonlocal pieces
        result, pieces = work(plan, payload)
        return result

    answer = _answered(do) if payload else _said(_DONE)
    settle()
    for lane, some in pieces.items():
        for piece in some:
            yield pack_partition(lane)
            yield piece
    yield pack_partition(lanes)
    yield number.to_bytes(4, "big") + answer


def _lane_task(
    work: LaneWork, plan: Shipped, _split: int, items: Iterator[bytes]
) -> Iterator[bytes]:
    """One answer, whatever the work does: the process lives on."""
    given = list(items)  # all of them, or Spark would throw the worker away
    if is_repeated():
        yield _said(_REPEATED)
        return
    at = next(at for at, item in enumerate(given) if item.startswith(_PAYLOAD))
    payload = given.pop(at).removeprefix(_PAYLOAD)
    answer = _answered(lambda: work(plan, payload, given)) if payload else _said(_DONE)
    settle()
    yield answer


def _answered(do: Callable[[], bytes]) -> bytes:
    try:
        return _said(_DONE, do())
    except Unfit as error:
        told = {"what": error.what, "why": error.why, "so": error.so}
        return _said(_UNFIT, json.dumps(told).encode())
    except PartError as error:
        return _said(_LOST, str(error).encode())
    except Exception:  # noqa: BLE001 - an error must not end the process, which holds state
        return _said(_FAILED, traceback.format_exc().encode())


def _said(kind: bytes, rest: bytes = b"") -> bytes:
    return kind + os.getpid().to_bytes(8, "big") + rest
