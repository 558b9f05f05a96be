"""The shapes: how a workload's epochs become Spark jobs. At most one task a lane in all of them."""

from __future__ import annotations

import functools
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from anabranch.runtime.exchange import clear_epochs
from anabranch.spark.lanes import Lanes
from anabranch.spark.private import Rdd, Spark
from bench.shapes import body
from bench.shapes.body import HEAD_ITEMS, LANE_ITEMS, LANES
from bench.shapes.workload import PARTITIONS, Place, Workload


@dataclass(slots=True)
class Measured:
    """One run: how long, and how long each epoch from the start of its heads to its commit."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    counted: int = 0

    def committed(self, begun: float, results: Sequence[dict[str, Any]]) -> None:
        self.latencies.append(time.perf_counter() - begun)
        self.counted = sum(each["counted"] for each in results)


class Shape(Protocol):
    """A way to run epochs."""

    def run(self, work: Workload, place: Place) -> Measured:
        """Run all epochs."""


class Shuffled:
    """What shapes over Spark's shuffle share: map side made once, reduce side anew for each."""

    def __init__(self, sc: Any) -> None:
        self.spark = Spark(sc)
        spark = self.spark
        there = spark.executors()
        self._pins = [
            spark.source_at(b".", there[lane % len(there)]) for lane in range(LANES) if there
        ]
        self._picks = [spark.pick(lane) for lane in range(LANES)]
        self._takers = [
            spark.function(functools.partial(body.reduce_task, lane), {"SHAPE_LANE": f"{lane}"})
            for lane in range(LANES)
        ]
        spread = spark.function(body.map_task, {"SHAPE_HEAD": "0"})
        self._mapped = spark.apply(spark.source([b"."] * PARTITIONS), spread)

    def mapped(self, work: Workload, epoch: int, queries: Sequence[int]) -> Rdd:
        """A new shuffle, with what its map side is to do set for the jobs of this thread."""
        items = [work.heads(epoch, query) for query in queries]
        by_partition = [[each[partition] for each in items] for partition in range(PARTITIONS)]
        self.spark.set_property(HEAD_ITEMS, json.dumps(by_partition))
        return self.spark.shuffle(self._mapped, LANES)

    def submit_map_stage(self, moved: Rdd) -> None:
        """Start the map side alone; the job that reads it later waits for it."""
        behind: Any = moved
        while "Shuffled" not in behind.getClass().getSimpleName():
            behind = behind.dependencies().apply(0).rdd()
        self.spark.sc._jsc.sc().submitMapStage(behind.dependencies().apply(0))  # noqa: SLF001

    def reduced(self, moved: Rdd, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run the lanes on what was moved."""
        spark = self.spark
        spark.set_property(LANE_ITEMS, json.dumps(items))
        taken = [spark.only(moved, pick) for pick in self._picks]
        if self._pins:
            taken = [spark.beside(pin, rdd) for pin, rdd in zip(self._pins, taken, strict=True)]
        job = spark.union([spark.apply(*each) for each in zip(taken, self._takers, strict=True)])
        found = [answer for each in spark.collect(job) for answer in json.loads(each)]
        spark.forget_shuffles(moved)
        return found


class TwoStages(Shuffled):
    """(a) One two-stage job a cycle, one in flight; or with the next map side overlapping."""

    def __init__(self, sc: Any, *, overlapping: bool) -> None:
        super().__init__(sc)
        self._overlapping = overlapping

    def run(self, work: Workload, place: Place) -> Measured:
        measured, began = Measured(), time.perf_counter()
        queries = range(work.queries)
        ahead: deque[tuple[float, Rdd]] = deque()
        for epoch in range(work.epochs):
            for each in range(epoch + len(ahead), min(work.epochs, epoch + 1 + self._overlapping)):
                ahead.append((time.perf_counter(), self.mapped(work, each, queries)))
                if self._overlapping:
                    self.submit_map_stage(ahead[-1][1])
            begun, moved = ahead.popleft()
            results = self.reduced(moved, [place.lane_item(epoch, query) for query in queries])
            for query in queries:
                place.commit(epoch, query, [each for each in results if each["q"] == query])
            measured.committed(begun, results)
        measured.seconds = time.perf_counter() - began
        return measured


class JobEach(Shuffled):
    """(b) One two-stage job an epoch and query; map sides of later ones in flight meanwhile."""

    def __init__(self, sc: Any, *, in_flight: int) -> None:
        super().__init__(sc)
        self._in_flight = in_flight

    def run(self, work: Workload, place: Place) -> Measured:
        measured, began = Measured(), time.perf_counter()
        todo = [(epoch, query) for epoch in range(work.epochs) for query in range(work.queries)]
        begun = [0.0] * work.epochs
        ahead: deque[Rdd] = deque()
        latest: dict[int, list[dict[str, Any]]] = {}
        for at, (epoch, query) in enumerate(todo):
            for ahead_epoch, ahead_query in todo[at + len(ahead) : at + self._in_flight]:
                begun[ahead_epoch] = begun[ahead_epoch] or time.perf_counter()
                ahead.append(self.mapped(work, ahead_epoch, [ahead_query]))
                self.submit_map_stage(ahead[-1])
            latest[query] = self.reduced(ahead.popleft(), [place.lane_item(epoch, query)])
            place.commit(epoch, query, latest[query])
            if query == work.queries - 1:
                measured.committed(begun[epoch], [x for each in latest.values() for x in each])
        measured.seconds = time.perf_counter() - began
        return measured


class OneStage:
    """(c) One single-stage job a cycle, exchange through files: lanes of n with heads of n + 1."""

    def __init__(self, sc: Any, exchange: Path, *, together: bool) -> None:
        self._lanes = Lanes(sc, LANES, lane=body.lane_work, head=body.head_work)
        self._exchange, self._together = exchange, together
        self._lanes.warm_up()

    def run(self, work: Workload, place: Place) -> Measured:
        measured, began = Measured(), time.perf_counter()
        for epoch, begun, results in self._epochs(work, place):
            for query in range(work.queries):
                place.commit(epoch, query, [each for each in results if each["q"] == query])
            measured.committed(begun, results)
            clear_epochs(self._exchange, epoch + 1)
        measured.seconds = time.perf_counter() - began
        return measured

    def _epochs(
        self, work: Workload, place: Place
    ) -> Iterator[tuple[int, float, list[dict[str, Any]]]]:
        begun, heads = time.perf_counter(), self._heads(work, place, 0)
        _, answers = self._lanes.run({}, heads)
        for epoch in range(work.epochs):
            lanes = self._lane_payloads(work, place, epoch, answers)
            last = epoch + 1 == work.epochs
            next_heads = [] if last else self._heads(work, place, epoch + 1)
            next_begun = time.perf_counter()
            results, answers = self._lanes.run(lanes, next_heads if self._together else [])
            found = [each for each in results.values() if each is not None]
            assert len(found) == len(lanes), "a lane died"
            yield epoch, begun, [each for told in found for each in json.loads(told)]
            begun = next_begun if self._together else time.perf_counter()
            if not self._together and not last:
                _, answers = self._lanes.run({}, next_heads)

    def _heads(self, work: Workload, place: Place, epoch: int) -> list[bytes]:
        items = [work.heads(epoch, query) for query in range(work.queries)]
        return [
            json.dumps(
                {
                    "run": place.run,
                    "exchange": str(self._exchange),
                    "items": [each[partition] for each in items],
                }
            ).encode()
            for partition in range(PARTITIONS)
        ]

    def _lane_payloads(
        self, work: Workload, place: Place, epoch: int, answers: Sequence[bytes]
    ) -> dict[int, bytes]:
        parts: dict[int, list[Any]] = {}
        for answer in answers:
            for each in json.loads(answer):
                parts.setdefault(each["q"], []).append(each["reference"])
        items = [
            {**place.lane_item(epoch, query), "parts": parts[query]}
            for query in range(work.queries)
        ]
        return dict.fromkeys(range(LANES), json.dumps(items).encode())
