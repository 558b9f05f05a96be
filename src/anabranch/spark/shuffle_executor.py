"""A query's cycles on Spark, rows through its shuffle: on any number of hosts.

What the heads of some epochs made is one *shipment*. It is kept until the lanes have taken all of
its epochs, and made again from the same splits when it may have been lost: an executor that was
there is gone, or a lane did not get what the heads had said. Lanes of one epoch all read it in one
job, so they never see one shipment and another.

A shipment outlives a change of width. Lanes of another width take their slices' rows from it, out
of the partitions of the lanes for which it was made; and it is made again as it was, by the plan of
that time, since what is known of it is of that time.
"""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import uuid4

from anabranch import config
from anabranch.errors import RunError
from anabranch.program.graph import Graph
from anabranch.runtime.aside import AtOnce, InThread
from anabranch.runtime.carried import (
    CarriedExchange,
    lane_with_parts_from_bytes,
    lane_with_parts_to_bytes,
)
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.exchange import BLOB
from anabranch.runtime.executor import CycleResult
from anabranch.runtime.ground import Ground
from anabranch.runtime.locality import NODE, made_on
from anabranch.runtime.payload import (
    Dual,
    HeadDone,
    HeadItem,
    LaneDone,
    LaneItem,
    LaneJob,
    MergeItem,
    StageJob,
    heads_from_bytes,
    heads_to_bytes,
)
from anabranch.runtime.tasks import Worker
from anabranch.spark.labels import label_of
from anabranch.spark.private import JobFailed
from anabranch.spark.shipped_plans import Shipped
from anabranch.spark.shipping import shipped
from anabranch.spark.shuffled import Headed, PartsLost, Shuffle, ShuffledLanes, Take, Unfit
from anabranch.state.layout import lease_path
from anabranch.state.store import Missing
from anabranch.state.stores import checkpoint_at, store_at


@dataclass(frozen=True, slots=True)
class Shipment:
    """What heads made of some epochs, and what it was made of."""

    tasks: tuple[tuple[HeadItem, ...], ...]
    shuffle: Shuffle
    lost: bool = False

    @property
    def newest(self) -> int:
        """The newest ticket in it."""
        return max((item.ticket for items in self.tasks for item in items), default=-1)


_Name: TypeAlias = tuple[int, int, str]


def _name(part: Mapping[str, Any]) -> _Name:
    """Whose part it is: made again from the same rows it has the same name."""
    return (part["epoch"], part["map"], part["attempt"])


class ShuffleExecutor:
    """Lanes on one SparkContext, for one query, on any hosts that see its checkpoint."""

    def __init__(self, sc: Any, graph: Graph) -> None:
        """Use this context; the graph says whose functions travel by value."""
        self._sc, self._graph = sc, graph
        self._lanes: ShuffledLanes | None = None
        self._deployed: Deployment | None = None
        self._shipments: dict[str, Shipment] = {}
        self._remade: dict[_Name, Any] = {}
        """The parts of heads that were run again, unknown to the driver's loop."""
        self._lock = threading.Lock()
        """Of both: the loop forgets old shipments while a cycle brings new ones."""
        self.elastic = True

    def ground(self) -> Ground:
        """Where lanes are now."""
        assert self._lanes is not None
        return self._lanes.ground()

    def deploy(self, deployment: Deployment, was: Sequence[int] | None = None) -> None:
        """Have the deployment in all workers from the next cycle on, at its width.

        Shipments of the one before it stay, with all that it takes to make them again.
        """
        if self._lanes is not None and was is not None:
            self._lanes.renumber(was)
        if self._lanes is None:
            self._lanes = ShuffledLanes(self._sc, deployment.lanes, lane=run_lane, head=run_heads)
        token = store_at(deployment.checkpoint).read(lease_path(deployment.run))
        plan = pickle.dumps((shipped(deployment, self._graph), token))
        self._lanes.deploy(deployment.id, plan, deployment.lanes)
        self._deployed = deployment

    def reserve(self, lanes: int) -> bool:
        """Have so many lanes at hand, in the processes that are there and in new ones."""
        assert self._lanes is not None
        self._lanes.reserve(lanes)
        return True

    def start(self, lanes: Sequence[int]) -> Future[None]:
        """Start the processes of lanes that were reserved, beside what runs."""
        assert self._lanes is not None
        return self._lanes.start(lanes) if lanes else AtOnce().submit(lambda: None)

    def warm_up(self) -> None:
        """Start all processes before the first epoch."""
        assert self._lanes is not None
        self._lanes.warm_up()

    def close(self) -> None:
        """Leave the lanes' processes to whoever comes next on this Spark, and nothing else."""
        if self._lanes is not None:
            with suppress(Exception):  # Spark may be gone, and all there was with it
                self._forget(*self._shipments)
                self._lanes.close()
        self._lanes, self._shipments, self._remade = None, {}, {}

    def cancel(self) -> None:
        """Give up the jobs under way."""
        if self._lanes is not None:
            self._lanes.cancel()

    def run(
        self,
        heads: Sequence[Sequence[HeadItem]],
        lanes: Mapping[int, LaneJob],
        merges: Sequence[MergeItem] = (),
    ) -> CycleResult:
        """Two Spark jobs at a time; before them one more for what was lost.

        There are no merges to run: parts for a sink come to the driver with the lanes' results.
        """
        assert not merges
        assert self._lanes is not None
        assert self._deployed is not None
        self._remake(self._wanted(lanes))
        jobs = {lane: self._current(job) for lane, job in lanes.items()}
        wanted = self._wanted(jobs)
        name, tasks = uuid4().hex, tuple(tuple(items) for items in heads)
        try:
            by_lane, made = self._lanes.run(
                {lane: pickle.dumps(job) for lane, job in jobs.items()},
                {lane: self._takes(job) for lane, job in jobs.items()},
                _payloads(name, tasks),
                label=label_of(self._deployed, heads, lanes),
            )
            taken = {
                lane: LaneDone.gone(lanes[lane])
                if data is None
                else lane_with_parts_from_bytes(data)
                for lane, data in by_lane.items()
            }
        except PartsLost:
            with self._lock:
                for each in wanted:
                    self._shipments[each] = replace(self._shipments[each], lost=True)
            raise
        return CycleResult(self._keep(name, tasks, made) if made else (), taken)

    # Shipments

    def _wanted(self, lanes: Mapping[int, LaneJob]) -> list[str]:
        """The shipments that hold what the lanes are to take."""
        items = (item for job in lanes.values() for each in job.stages for item in each.items)
        parts = (part for item in items for some in item.parts.values() for part in some)
        return sorted({self._current_part(part)["shipment"] for part in parts if BLOB not in part})

    def _current_part(self, part: Any) -> Any:
        return self._remade.get(_name(part), part)

    def _current(self, job: LaneJob) -> LaneJob:
        """The job with parts as they are now; of what the driver carries only the lane's own."""

        def part_of(part: Any, lanes: tuple[int, ...]) -> Any:
            if BLOB in part:
                mine = {lane: part[BLOB][lane] for lane in lanes if lane in part[BLOB]}
                return {BLOB: mine, NODE: made_on(part)}
            return self._current_part(part)

        def items_of(each: StageJob | Dual) -> tuple[LaneItem, ...]:
            items = []
            for item, lanes in self._items(job.lane, each):
                parts = {
                    at: tuple(part_of(part, lanes) for part in some)
                    for at, some in item.parts.items()
                }
                items.append(replace(item, parts=parts))
            return tuple(items)

        return replace(
            job,
            stages=tuple(replace(each, items=items_of(each)) for each in job.stages),
            dual=tuple(replace(each, items=items_of(each)) for each in job.dual),
        )

    def _takes(self, job: LaneJob) -> list[Take]:
        """What a lane's task is given: of each shipment the partitions with rows of its slices."""
        found: dict[str, set[int]] = defaultdict(set)
        works: tuple[StageJob | Dual, ...] = (*job.stages, *job.dual)
        for item, lanes in (each for work in works for each in self._items(job.lane, work)):
            for part in (part for some in item.parts.values() for part in some):
                if BLOB not in part:
                    found[part["shipment"]].update(lanes)
        return [
            Take(self._shipments[name].shuffle, tuple(sorted(lanes)))
            for name, lanes in sorted(found.items())
        ]

    def _items(self, lane: int, job: StageJob | Dual) -> Iterator[tuple[LaneItem, tuple[int, ...]]]:
        """A lane's epochs of a stage, each with the lanes for which its rows were made."""
        assert self._deployed is not None
        if isinstance(job, Dual):
            slices: frozenset[int] | None = job.slices
        else:
            slices = self._deployed.slices_of(self._deployed.stages[job.stage], lane)
        for item in job.items:
            yield item, item.made_for(lane, slices)

    def forget(self, before: int) -> None:
        """Let go of shipments of which nothing is asked for any more."""
        if self._lanes is None:
            return
        with self._lock:
            self._remade = {name: part for name, part in self._remade.items() if name[0] >= before}
            old = [name for name, each in self._shipments.items() if each.newest < before]
        self._forget(*old)

    def _keep(
        self, name: str, tasks: tuple[tuple[HeadItem, ...], ...], made: Headed
    ) -> list[HeadDone]:
        """Keep a shipment for the lanes if there is something in it; returns what heads said."""
        dones: list[HeadDone] = [each for data in made.results for each in heads_from_bytes(data)]
        with self._lock:
            self._shipments[name] = Shipment(tasks, made.shuffle)
        if not any(done.parts for done in dones):
            self._forget(name)
        return dones

    def _remake(self, wanted: Sequence[str]) -> None:
        """Run heads again whose work may be lost."""
        assert self._lanes is not None
        assert self._deployed is not None
        for old in wanted:
            shipment = self._shipments[old]
            if not shipment.lost and self._lanes.whole(shipment.shuffle):
                continue
            name = uuid4().hex
            again = f"{label_of(self._deployed, shipment.tasks, {})} again"
            payloads, plan = _payloads(name, shipment.tasks), shipment.shuffle.plan
            _, made = self._lanes.run({}, {}, payloads, plan=plan, label=again)
            assert made is not None
            dones = self._keep(name, shipment.tasks, made)
            self._replace(old, dones)

    def _replace(self, old: str, dones: Sequence[HeadDone]) -> None:
        """Take the parts of these heads instead of those of an older shipment."""
        if error := next((done.error for done in dones if done.error), None):
            message = f"what succeeded before failed when it was repeated: {error['text']}"
            raise JobFailed(message)
        with self._lock:
            for part in (part for done in dones for part in done.parts.values()):
                self._remade[_name(part)] = part
        self._forget(old)

    def _forget(self, *names: str) -> None:
        assert self._lanes is not None
        for name in names:
            with self._lock:
                shipment = self._shipments.pop(name)
            self._lanes.forget(shipment.shuffle)


def _payloads(name: str, tasks: Sequence[Sequence[HeadItem]]) -> list[bytes]:
    return [pickle.dumps((name, list(items))) for items in tasks if items]


# In a worker

_workers: dict[str, tuple[Worker, CarriedExchange]] = {}


def run_heads(plan: Shipped, payload: bytes) -> tuple[bytes, dict[int, list[bytes]]]:
    """A head task: some splits."""
    shipment, items = pickle.loads(payload)  # noqa: S301 - the driver's own
    worker, exchange = _worker(plan)
    exchange.begin(shipment)
    return heads_to_bytes(worker.heads(items)), exchange.written()


def run_lane(plan: Shipped, payload: bytes, pieces: Sequence[bytes]) -> bytes:
    """A lane's task: its epochs in order."""
    job = pickle.loads(payload)  # noqa: S301 - the driver's own
    worker, exchange = _worker(plan)
    exchange.begin(arrived=pieces)
    done = worker.lane(job)
    told = lane_with_parts_to_bytes(done, exchange.written())
    exchange.begin()
    return told


def _worker(plan: Shipped) -> tuple[Worker, CarriedExchange]:
    if plan.id not in _workers:
        data, token = plan.load()
        deployment: Deployment = pickle.loads(data)  # noqa: S301 - the driver's own
        before = next((each for each in _workers.values() if each[0].is_of(deployment)), None)
        if before is None:
            for other, _ in _workers.values():
                other.close()
        _workers.clear()  # one query a set of lanes, and one width at a time
        if before is None:
            _require_checkpoint(deployment, token)
            exchange = CarriedExchange()
            node = config.node()
            worker = Worker(deployment, exchange=exchange, aside=InThread, node=node)
            _workers[plan.id] = worker, exchange
        else:
            worker, exchange = before
            _workers[plan.id] = worker.moved(deployment), exchange
    return _workers[plan.id]


def _require_checkpoint(deployment: Deployment, token: bytes) -> None:
    """Refuse to work where the checkpoint is not the one that the driver sees."""
    path, why = lease_path(deployment.run), None
    try:
        store = checkpoint_at(deployment.checkpoint)
        if store is None or store.read(path) != token:
            why = f"{path} is not what the driver wrote there"
    except Missing:
        why = f"it has no {path}"
    except RunError as error:
        why = f"{error.what}: {error.why}"
    if why is not None:
        import socket

        message = f"host {socket.gethostname()} does not see the checkpoint {deployment.checkpoint}"
        so = "give a checkpoint= (and files to read and write) on a file system that all hosts see"
        raise Unfit(message, why=why, so=so)
