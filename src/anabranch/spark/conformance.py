"""Whether this Spark does what Anabranch relies on and Spark does not promise.

One check a reliance; `anabranch doctor` runs them on any SparkContext, the tests on real ones. They
take a few seconds together, and leave nothing behind but a few idle workers.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from anabranch.spark.lanes import Lanes, Plans
from anabranch.spark.private import Executor, JobFailed, Spark, pack_partition
from anabranch.spark.processes import LANE
from anabranch.spark.shipped_plans import Shipped
from anabranch.spark.shuffled import Headed, ShuffledLanes, Take

JOBS = 30


@dataclass(frozen=True, slots=True)
class Checked:
    """One thing that was looked at."""

    name: str
    good: bool
    text: str


class Unmet(Exception):
    """What is other than expected."""


def run_checks(sc: Any) -> list[Checked]:
    """Look at everything; a check that fails hides no other."""
    return [_checked(name, check, sc) for name, check in CHECKS.items()]


def lane_keeps_its_process(sc: Any) -> str:
    """State stays where it is."""
    lanes = Lanes(sc, 2, lane=tell_process, head=tell_process)
    seen = {tuple(lanes.run({0: b"?", 1: b"?"}, [b"?"])[0].values()) for _ in range(JOBS)}
    (pair,) = _exactly(1, seen, f"pairs of processes in {JOBS} jobs")
    _exactly(2, set(pair), "processes of two lanes")
    return f"2 lanes, 2 processes, {JOBS} jobs"


def heads_use_workers_again(sc: Any) -> str:
    """A task does not cost the start of a process."""
    lanes = Lanes(sc, 1, lane=tell_process, head=tell_process)
    seen = {each for _ in range(JOBS) for each in lanes.run({}, [b"?", b"?"])[1]}
    # Two tasks at once need two workers on each executor; a few may be started beside them.
    most = 3 + 2 * max(1, len(Spark(sc).executors()))
    if len(seen) > most:
        problem = f"{len(seen)} processes for {2 * JOBS} tasks"
        raise Unmet(problem)
    return f"{len(seen)} processes for {2 * JOBS} tasks"


def no_accumulator_round_trip(sc: Any) -> str:
    """Spark's scheduler does not wait for this process after each task."""
    spark = Spark(sc)
    function = spark.function(echo, {})
    with _counted_updates() as updates:
        spark.collect(spark.apply(spark.source([b"a", b"b"]), function))
    if updates:
        problem = f"{len(updates)} calls back into the driver for 2 tasks"
        raise Unmet(problem)
    return "none for 2 tasks"


def shuffle_reaches_its_lane(sc: Any) -> str:
    """What a shuffle moves is taken by the process of its lane."""
    spark = Spark(sc)
    there = spark.executors()
    spread = spark.function(scatter, {})
    takers = [spark.function(gather, {LANE: f"conformance-{lane}"}) for lane in range(2)]
    picks = [spark.pick(lane) for lane in range(2)]
    pins = [spark.source_at(b".", there[lane % len(there)]) for lane in range(2)] if there else []
    seen = set()
    for _ in range(5):
        moved = spark.shuffle(spark.apply(spark.source([b"1000", b"2000"]), spread), 2)
        taken = [spark.only(moved, pick) for pick in picks]
        if pins:
            taken = [spark.beside(pin, rdd) for pin, rdd in zip(pins, taken, strict=True)]
        job = spark.union([spark.apply(*each) for each in zip(taken, takers, strict=True)])
        seen.add(tuple(spark.collect(job)))
        spark.forget_shuffles(moved)
    (pair,) = _exactly(1, seen, "answers of two lanes in 5 jobs")
    for lane, answer in enumerate(pair):
        if not answer.startswith(b"conformance-%d 3000 " % lane):
            problem = f"lane {lane} answered {answer!r}"
            raise Unmet(problem)
    return "2 lanes, 3000 bytes each, 5 jobs"


def heads_reach_lanes(sc: Any) -> str:
    """What heads made in earlier jobs is taken by lanes, each in its process, then forgotten."""
    lanes = ShuffledLanes(sc, 2, lane=weigh, head=pack)
    try:
        lanes.deploy("conformance", pickle.dumps(1000))
        waiting: list[Headed] = []
        seen = set()
        for _ in range(5):
            takes = {
                lane: [Take(each.shuffle, (lane,)) for each in waiting[-2:]] for lane in range(2)
            }
            taken, made = lanes.run({0: b"?", 1: b"?"}, takes, [b"1", b"2"])
            assert made is not None
            _expect([b"1", b"2"], made.results)
            expected = str(3000 * len(waiting[-2:])).encode()
            _expect({0: expected, 1: expected}, taken)
            waiting.append(made)
            seen.add(tuple(lanes.pids().values()))
        for each in waiting:
            lanes.forget(each.shuffle)
    finally:
        lanes.close()
    _exactly(1, seen, "pairs of processes in 5 jobs")
    return "2 lanes, 3000 bytes each from each of 5 shuffles"


def lanes_are_where_they_want(sc: Any) -> str:
    """A preference for an executor is followed."""
    spark = Spark(sc)
    there = spark.executors()
    if len(there) < 2:
        return "one executor: nothing to choose"
    function = spark.function(tell_parents, {LANE: "conformance-place"})
    first = _jvms(spark, function, there)
    _exactly(len(there), set(first), "JVMs of as many executors")
    if _jvms(spark, function, there[::-1]) != first[::-1]:
        problem = "tasks did not move when they were asked to be elsewhere"
        raise Unmet(problem)
    return f"{len(there)} executors, asked for in both orders"


def failure_tells_why(sc: Any) -> str:
    """A task that raises fails its job with its own words, and no other."""
    spark = Spark(sc)
    job = spark.apply(spark.source([b"a"]), spark.function(fail, {}))
    try:
        spark.collect(job)
    except JobFailed as failed:
        if failed.died or "as it should" not in failed.text:
            problem = f"the reason is {failed.text!r}"
            raise Unmet(problem) from failed
    else:
        problem = "a job with a failing task succeeded"
        raise Unmet(problem)
    _expect([b"a"], spark.collect(spark.apply(spark.source([b"a"]), spark.function(echo, {}))))
    return "its error's text, and the next job succeeds"


def error_leaves_the_lane_alive(sc: Any) -> str:
    """An error of the work costs no process."""
    lanes = Lanes(sc, 1, lane=fail_if_told, head=tell_process)
    before = lanes.run({0: b"?"})[0][0]
    try:
        lanes.run({0: b"fail"})
    except JobFailed as failed:
        if "as it should" not in failed.text:
            problem = f"the reason is {failed.text!r}"
            raise Unmet(problem) from failed
    _expect(before, lanes.run({0: b"?"})[0][0])
    return "the same process before and after"


def killed_lane_comes_back(sc: Any) -> str:
    """After `kill -9` the lane is there again, in another process."""
    lanes = Lanes(sc, 1, lane=die_if_told, head=tell_process)
    before = lanes.run({0: b"?"})[0][0]
    try:
        lanes.run({0: b"die"})
    except JobFailed as failed:
        if not failed.died:
            problem = f"death was reported as {failed.text!r}"
            raise Unmet(problem) from failed
    after = lanes.run({0: b"?"})[0][0]
    if before == after:
        problem = f"it is process {after!r} again"
        raise Unmet(problem)
    return "a new process"


def payloads_arrive(sc: Any) -> str:
    """Small payloads travel with the job's properties, large ones in the tasks."""
    lanes = Lanes(sc, 2, lane=echo_work, head=echo_work)
    for size in (1, 1_000, 300_000):
        payloads = {0: os.urandom(size), 1: os.urandom(size)}
        _expect((payloads, [payloads[1]]), lanes.run(payloads, [payloads[1]]))
    return "1 byte to 300 kB"


def slots_are_known(sc: Any) -> str:
    """Executors say how many tasks each of them takes, and all together."""
    spark = Spark(sc)
    if spark.local:
        return f"{spark.slots()}, in one process"
    there = spark.executors()  # waits until all is known that was told
    by_executor = spark.slots_by_executor()
    _expect({each.id for each in there}, set(by_executor))
    _expect(sum(by_executor.values()), spark.slots())
    return f"{spark.slots()} on {len(there)} executors"


def executors_can_be_asked_for(sc: Any) -> str:
    """The master takes a request for as many as there are; a local one has nobody to give."""
    spark = Spark(sc)
    if not spark.grants:
        _expect(expected=True, actual=spark.local)
        return "one process: nobody to ask for"
    if spark.allocates:
        return "not by us: spark.dynamicAllocation.enabled has Spark do it"
    there = len(spark.executors())
    _expect(expected=True, actual=spark.request(there))
    return f"asked for the {there} that there are"


def executors_can_be_let_go(sc: Any) -> str:
    """The calls are there, on any master; nobody goes for this, and all who are there stay."""
    spark = Spark(sc)
    _expect([], spark.lacking())
    _expect([each.id for each in spark.executors()], _sorted(spark.executor_ids()))
    return "the calls are there, and say who stays"


CHECKS: dict[str, Callable[[Any], str]] = {
    "a lane keeps its process": lane_keeps_its_process,
    "heads use workers again": heads_use_workers_again,
    "no accumulator round trip": no_accumulator_round_trip,
    "a shuffle reaches its lane": shuffle_reaches_its_lane,
    "heads reach lanes": heads_reach_lanes,
    "lanes are where they want": lanes_are_where_they_want,
    "a failure tells why": failure_tells_why,
    "an error leaves the lane alive": error_leaves_the_lane_alive,
    "a killed lane comes back": killed_lane_comes_back,
    "payloads arrive": payloads_arrive,
    "slots are known": slots_are_known,
    "executors can be asked for": executors_can_be_asked_for,
    "executors can be let go": executors_can_be_let_go,
}


def _checked(name: str, check: Callable[[Any], str], sc: Any) -> Checked:
    try:
        return Checked(name, good=True, text=check(sc))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the finding
        text = str(error) if isinstance(error, Unmet) else f"{type(error).__name__}: {error}"
        return Checked(name, good=False, text=text)


def _exactly(count: int, found: set[Any], what: str) -> list[Any]:
    if len(found) != count:
        problem = f"{len(found)} instead of {count} {what}"
        raise Unmet(problem)
    return list(found)


def _expect(expected: object, actual: object) -> None:
    if expected != actual:
        problem = f"{actual!r:.80} instead of {expected!r:.80}"
        raise Unmet(problem)


def _sorted(ids: str) -> list[str]:
    return sorted(filter(None, ids.split(",")), key=lambda each: (len(each), each))


def _jvms(spark: Spark, function: Any, executors: Sequence[Executor]) -> list[bytes]:
    """Which JVM each task was run by, when asked to be on these executors."""
    rdds = [spark.apply(spark.source_at(b".", each), function) for each in executors]
    return spark.collect(spark.union(rdds))


@contextmanager
def _counted_updates() -> Iterator[list[int]]:
    """A list that grows whenever Spark sends updates of accumulators to this process."""
    from pyspark import accumulators

    updates: list[int] = []
    original = accumulators.read_int

    def counting(stream: Any) -> int:
        updates.append(1)
        return int(original(stream))

    accumulators.read_int = counting
    try:
        yield updates
    finally:
        accumulators.read_int = original


# --- in a worker ---------------------------------------------------------------------------------


def tell_process(_plans: Plans, _index: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """Which process this is."""
    for _ in items:
        yield str(os.getpid()).encode()


def echo_work(_plans: Plans, _index: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """What it was given."""
    yield from items


def fail_if_told(plans: Plans, index: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """Raise if the payload says so."""
    for item in items:
        if item == b"fail":
            _raise()
        yield from tell_process(plans, index, iter((item,)))


def die_if_told(plans: Plans, index: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """End the process if the payload says so."""
    for item in items:
        if item == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        yield from tell_process(plans, index, iter((item,)))


def echo(_split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """What it was given."""
    yield from items


def fail(_split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """Raise."""
    list(items)
    _raise()
    yield b""


def tell_parents(_split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """The JVM: the worker's parent is the daemon, whose parent it is."""
    list(items)
    with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as file:  # noqa: PTH123 - in /proc
        yield file.read().rpartition(")")[2].split()[1].encode()


def scatter(_split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """A blob of as many bytes as the item says, for each of two lanes."""
    for item in items:
        for lane in range(2):
            yield pack_partition(lane)
            yield bytes(int(item))


def gather(_split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """Which lane and process this is, and how much it got."""
    size = sum(map(len, items))
    lane = os.environ[LANE]  # noqa: TID251 - what is looked at is whether it is there
    yield f"{lane} {size} {os.getpid()}".encode()


def pack(plan: Shipped, payload: bytes) -> tuple[bytes, dict[int, list[bytes]]]:
    """As many times the plan's bytes as the payload says, for each of two lanes."""
    return payload, {lane: [bytes(int(payload) * plan.load())] for lane in range(2)}


def weigh(_plan: Shipped, _payload: bytes, pieces: Sequence[bytes]) -> bytes:
    """How much it got."""
    return str(sum(map(len, pieces))).encode()


def _raise() -> None:
    message = "as it should"
    raise ValueError(message)
