"""A program run by the whole runtime, from its first row to its last, through any crashes.

A *life* is one run of the driver. It ends in the crash that it was set to, or with the input. The
next one goes on from the checkpoint, as a new process would: with sources as they were written, and
with what the checkpoint says. Rows go into sinks of the kit's own, which outlive all lives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch import config
from anabranch.clock import Clock, SystemClock
from anabranch.connectors.base import Sink, Source
from anabranch.connectors.messages import from_message, to_message
from anabranch.epoch.triggers import Trigger
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import Operator
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.continuous.loop import ContinuousLoop
from anabranch.runtime.continuous.placing import Placer
from anabranch.runtime.deployment import Durability
from anabranch.runtime.loop import Loop
from anabranch.runtime.turns import Alone, Seat
from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.simulate.contested import ContestedSeat
from anabranch.simulate.inline import KIND, Mischief
from anabranch.simulate.residence import ThreadPlacer
from anabranch.testing.clock import MockClock
from anabranch.testing.faults import (
    Crash,
    FaultPoint,
    Fuse,
    FusedExecutor,
    FusedInline,
    FusedStore,
    History,
)

if TYPE_CHECKING:
    import pyarrow as pa

SLICES = 16
"""Few, so that a few keys are in several of them and several in one."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a program is run."""

    lanes: int
    trigger: Trigger
    crashes: tuple[FaultPoint, ...] = ()
    """One a life, in this order."""
    rescale: Mapping[int, int] = field(default_factory=dict)
    """Epochs from which on there are so many lanes."""
    seed: int = 0
    mischief: Mischief = KIND
    """What goes wrong where tasks run in this process."""
    in_flight: int = 16
    policy: str | None = None
    """By which it takes turns with a rival; None: it has none."""

    def up_to(self, last: int) -> Schedule:
        """The same where there is no epoch behind this one: what was to come later comes there."""

        def reached(epoch: int) -> int:
            return min(epoch, max(last, 0))

        crashes = tuple(
            point if point.epoch is None else replace(point, epoch=reached(point.epoch))
            for point in self.crashes
        )
        rescale = {reached(epoch): lanes for epoch, lanes in sorted(self.rescale.items())}
        return replace(
            self,
            crashes=tuple(sorted(crashes, key=lambda point: point.place)),
            rescale=rescale,
        )


@dataclass(slots=True)
class Shelf:
    """What a sink has shown, and to how many lives it may be put down."""

    history: History
    epochs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """What no sink may be told: the wrong order, other rows, rows once more than is allowed."""
    _this_life: list[int] = field(default_factory=list)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, in order; what was shown again is there once."""
        return [row for epoch in sorted(self.epochs) for row in self.epochs[epoch]]

    def begin_life(self) -> None:
        """From now on epochs may come again whose rows were not noted as shown."""
        self._this_life = []

    def show(self, epoch: int, rows: list[dict[str, Any]]) -> None:
        """Take an epoch's rows."""
        before = self.epochs.setdefault(epoch, rows)
        if epoch in self._this_life:
            self.faults.append(f"epoch {epoch} was published twice in one run")
        elif self._this_life and epoch < self._this_life[-1]:
            self.faults.append(f"epoch {epoch} was published after epoch {self._this_life[-1]}")
        elif epoch <= self.history.acknowledged:
            self.faults.append(f"epoch {epoch} was published again, though that it was is noted")
        elif repr(before) != repr(rows):
            self.faults.append(f"epoch {epoch} was published again with other rows")
        self._this_life.append(epoch)


class ShelfSink(Sink):
    """Rows onto a shelf, with a fuse in what is published; tasks get neither."""

    def __init__(self, shelf: Shelf, fuse: Fuse) -> None:
        """Begin a life of the sink."""
        self._shelf: Shelf | None = shelf
        self._fuse: Fuse | None = fuse

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: nothing."""
        return {"_shelf": None, "_fuse": None}

    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> str:  # noqa: ARG002
        """Carry the rows in the message itself."""
        return to_message(batches)

    def publish(self, messages: Sequence[str], epoch: int) -> None:
        """Put an epoch's rows on the shelf."""
        assert self._shelf is not None, "a sink that has travelled to a task publishes nothing"
        assert self._fuse is not None
        frames = [from_message(each, "ShelfSink") for each in messages if each != ""]
        with self._fuse.around("publish", (epoch,)):
            self._shelf.show(epoch, [row for each in frames for row in each.rows(named=True)])


class Lives:
    """A program under a schedule, on a checkpoint."""

    def __init__(self, graph: Graph, schedule: Schedule, checkpoint: Path, sc: Any = None) -> None:
        """Begin with an empty checkpoint; without a SparkContext tasks run in this process."""
        self._graph, self._schedule = graph, schedule
        self._checkpoint, self._sc = checkpoint, sc
        self._lanes = schedule.lanes
        self._widths = dict(sorted(schedule.rescale.items()))
        self._crashes = list(schedule.crashes)
        self.history = History()
        self.shelves = {write.name: Shelf(self.history) for write in graph.sinks}

    @property
    def silent(self) -> bool:
        """Whether it never came to a publication because there are no rows to be shown."""
        last = max((max(shelf.epochs, default=-1) for shelf in self.shelves.values()), default=-1)
        waiting = self._crashes[0] if self._crashes else None
        return waiting is not None and waiting.step == "publish" and last < (waiting.epoch or 0)

    @property
    def unreached(self) -> list[str]:
        """The crashes and changes of width that never came."""
        crashes = [f"crash_at: {point}" for point in self._crashes]
        return crashes + [f"rescale_at: epoch {epoch}" for epoch in self._widths]

    def run(self) -> None:
        """Live until the input is over."""
        number = 0
        while not self._live(number):
            del self._crashes[0]
            number += 1

    def _live(self, number: int) -> bool:
        """One life; whether it came to the end of the input."""
        fuse = Fuse(self._crashes[0] if self._crashes else None)
        for shelf in self.shelves.values():
            shelf.begin_life()
        graph, clock = self._graph_for(fuse), MockClock()
        try:
            assembled = assemble(
                graph,
                self._settings(),
                self._executor(graph, fuse, number, clock),
                clock,
                self._opener(fuse),
            )
        except Crash:
            return False
        try:
            self._drive(assembled.loop, clock)
        except Crash:
            return False
        finally:
            assembled.loop.close()
            assembled.close()
        return True

    def _drive(self, loop: Loop | ContinuousLoop, clock: MockClock) -> None:
        every = self._schedule.trigger.every / 1_000_000
        if not self._schedule.trigger.bounded:
            # A trigger without an end: it is stopped when what is there has been taken.
            loop.when_caught_up(lambda: loop.stop(drain=True))
        while not loop.over:
            self._perhaps_widen(loop)
            # A resident task works while nobody steps: it is time that passes between two steps.
            if not loop.step() or isinstance(loop, ContinuousLoop):
                clock.advance(every or 1.0)

    def _perhaps_widen(self, loop: Loop | ContinuousLoop) -> None:
        """Ask for another width when the next epoch to be cut is the one that is to have it."""
        facts = loop.facts()
        following = facts.committed + 1 + len(facts.epochs)
        # Epochs of a resident task come and go unseen: there it is asked for at the beginning.
        at_once = isinstance(loop, ContinuousLoop)
        due = [epoch for epoch in self._widths if at_once or epoch <= following]
        # What is asked for and not yet had is also what a next life begins with.
        if due and not all(source.at_end for source in facts.sources):
            self._lanes = [self._widths.pop(epoch) for epoch in due][-1]
            loop.rescale(self._lanes, lambda: None, drained=True)

    def _graph_for(self, fuse: Fuse) -> Graph:
        return with_edges(
            self._graph,
            source_of=lambda read: as_written(read.source),
            sink_of=lambda write: ShelfSink(self.shelves[write.name], fuse),
        )

    def _settings(self) -> Settings:
        schedule = self._schedule
        return Settings(
            schedule.trigger,
            self._checkpoint,
            self._lanes,
            SLICES,
            keep=None,
            in_flight=schedule.in_flight,
            pipeline=config.pipeline_policy(),
            seat=self._seat(),
        )

    def _seat(self) -> Seat:
        policy = self._schedule.policy
        if policy is None:
            return Alone()
        return ContestedSeat(policy, QUERY_POLICIES[policy], SystemClock())

    def _executor(
        self, graph: Graph, fuse: Fuse, number: int, clock: Clock
    ) -> FusedExecutor | Placer:
        schedule = self._schedule
        if schedule.trigger.checkpoint_every is not None:
            return self._placer(graph, clock)
        if self._sc is not None:
            from anabranch.spark.executor import SparkExecutor

            return FusedExecutor(SparkExecutor(self._sc, graph), fuse, tasks_too=True)
        # Each life is as unkind as the one before, in another way.
        seed = schedule.seed * 1_000 + number
        inline = FusedInline(fuse, seed, schedule.mischief, slots=self._lanes)
        return FusedExecutor(inline, fuse, tasks_too=False)

    def _placer(self, graph: Graph, clock: Clock) -> Placer:
        if self._sc is None:
            return ThreadPlacer(clock, slots=self._lanes)
        from anabranch.spark.long_task import LongTask

        return LongTask(self._sc, graph)

    def _opener(self, fuse: Fuse) -> Callable[[Path, Durability], FusedStore]:
        return lambda root, durability: FusedStore(root, durability, fuse, self.history)


def with_edges(
    graph: Graph, *, source_of: Callable[[Read], Source], sink_of: Callable[[Write], Sink]
) -> Graph:
    """The same graph with other sources and sinks of the same schemas."""

    def changed(op: Operator) -> Operator:
        match op:
            case Read():
                return replace(op, source=source_of(op))
            case Write():
                return replace(op, sink=sink_of(op))
        return op

    return replace(graph, operators=tuple(changed(op) for op in graph.operators))


def as_written(source: Source) -> Source:
    """A copy of a source that no run has touched, as the next process would make it.

    One that cannot be copied, such as one with an open connection, is given itself.
    """
    try:
        return copy.deepcopy(source)
    except Exception:  # noqa: BLE001 - whatever a user's source holds
        return source
