"""A program at work in one long task: cut, tell, show, and now and then write down.

One thread looks at sources and cuts epochs; workers take them through the pipeline; what leaves is
shown at once to sinks that are early, and kept for the next commit for the others. At a barrier
every partition gives what has changed, which is written beside the work that goes on.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from uuid import uuid4

import polars as pl

from anabranch.clock import Clock
from anabranch.connectors.base import Interruption, Sink
from anabranch.engine.core import Core
from anabranch.engine.evaluators import Evaluators
from anabranch.engine.interpreter import free_threaded
from anabranch.engine.resident import (
    Barrier,
    Beginning,
    Epoch,
    EpochToRead,
    Heads,
    Here,
    Places,
    Program,
    TaskFailedError,
    fragments_of,
    works_of,
)
from anabranch.engine.threads import Threads
from anabranch.epoch.machine import Known
from anabranch.epoch.protocol import Offer
from anabranch.runtime.continuous.channel import Channel, ChannelClosed
from anabranch.runtime.continuous.epoch_size import EpochSize
from anabranch.runtime.continuous.messages import (
    CatchUp,
    CaughtUp,
    Checkpoint,
    CommittedUpTo,
    Ended,
    Failed,
    FromDriver,
    Hello,
    Orders,
    Planned,
    Positions,
    Several,
    Shown,
    Stop,
    Told,
    Totals,
)
from anabranch.runtime.continuous.plain_python import Divided
from anabranch.runtime.continuous.sources import Sources
from anabranch.runtime.continuous.writer import Writer, restore
from anabranch.runtime.memory import keep_freed
from anabranch.runtime.offers import offer_of
from anabranch.scheduling.pipeline_policies import PIPELINE_POLICIES
from anabranch.state.envelope import Json
from anabranch.state.stores import store_at

POLL_S = 0.0005
"""How long sources that had nothing are left alone."""
TOLD_S = 0.1
"""How often it is told how things are."""
HEARD_S = 10.0
"""How long the driver has to hear what was said last."""
SAMPLED = 256
"""Epochs of a commit whose latency is told."""

FEW, SHORT_S = 4096, 0.005
"""Rows of an epoch that is done by who cuts it, and seconds, if the one before had no more."""

KILL = Interruption("kill")


class Orphaned(Exception):
    """The driver is gone: nobody will commit what is done here."""


@dataclass(frozen=True, slots=True)
class _Barrier:
    """An epoch behind which all is written down."""

    first: int
    """The first epoch behind the barrier before."""
    last: int
    positions: Positions


@dataclass(slots=True)
class _Left:
    """What has left the pipeline since the last barrier."""

    staged: dict[str, list[tuple[int, tuple[Json, ...]]]] = field(default_factory=dict)
    gathered: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    given: int = 0
    late: int = 0
    letters: int = 0
    latencies: list[float] = field(default_factory=list)
    more: int = 0
    at_work: float = 0.0

    def count(self, source: str, epoch: Epoch, seconds: float, alone: float) -> None:
        """Count an epoch that left so many seconds behind its cut, or behind the one before."""
        self.rows[source] = self.rows.get(source, 0) + epoch.rows
        self.late += epoch.late
        self.letters += epoch.letters
        if epoch.rows:
            self.latencies.append(seconds)
            self.more += epoch.read.offer.more
            self.at_work += alone

    def totals(self) -> Totals:
        """What happened, to be told."""
        step = max(1, len(self.latencies) // SAMPLED)
        shown = sorted(self.latencies)[::step]
        return Totals(
            dict(self.rows),
            self.given,
            self.late,
            self.letters,
            tuple(shown),
            len(self.latencies),
            self.more,
            self.at_work,
        )


@dataclass(slots=True)
class _Log:
    """How far epochs are, by their numbers; each is the next one of which it is not so yet."""

    cut: int
    gone: int
    """Through the pipeline."""
    before_barrier: int
    """Before the last barrier that was cut."""
    committed: int

    @classmethod
    def at(cls, first: int) -> _Log:
        """Behind the last commit."""
        return cls(first, first, first, first)


@dataclass(slots=True)
class _Asked:
    """What is wanted of the task."""

    barrier: bool = False
    stop: bool = False
    catch_up: list[int] = field(default_factory=list)
    """Who wants to know when all that there is now is committed."""
    promised: list[tuple[int, int]] = field(default_factory=list)
    """Those for whom it is known: each with the first epoch that need not be."""
    deadly: str | None = None
    """The source whose next epoch is one at which the run dies."""
    doomed: int | None = None
    """That epoch, once it is cut."""


class ResidentTask:
    """One resident task, from its orders to its end."""

    def __init__(self, orders: Orders, channel: Channel, clock: Clock) -> None:
        """Make all that was, behind the last commit; nothing is read yet."""
        deployment = orders.deployment
        self._orders, self._channel, self._clock = orders, channel, clock
        self._deployment = deployment
        store = store_at(deployment.checkpoint, deployment.durability)
        program = Program(
            [(each.name, each.source, each.head) for each in deployment.inputs],
            [(stage.task, stage.key is not None) for stage in deployment.stages],
            deployment.links,
            deployment.owners,
        )
        self._evaluators, known = self._started(), orders.known
        beginning = Beginning(known.times, orders.first, known.rows)
        works = works_of(program, beginning, self._places(program))
        with self._or_none():
            restore(program, works, store, orders.chain)
        assert isinstance(works[0], Heads)
        self._times = works[0].times
        """Of each source, behind the last epoch that was read."""
        self._sources = Sources(orders)
        self._states = Writer(deployment, program, store, orders.turns)
        self._log, self._asked = _Log.at(orders.first), _Asked()
        self._left, self._barrier = _Left(), deque[_Barrier]()
        self._size, self._left_at, self._last = EpochSize(), 0.0, (0, 0.0)
        self._told: list[Planned | Shown] | None = None
        """What is told of an epoch at its end; None: at once."""
        self._inbox: deque[FromDriver] = deque()
        self._wake, self._orphaned = threading.Event(), False
        self._writing: deque[Future[None]] = deque()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="anabranch-writer")
        workers = deployment.lanes
        self._room = workers + 1
        """Epochs that may be on their way: more would wait in queues instead of in the source."""
        self._threads = self._working(Core(works, self._leave), workers)

    def _working(self, core: Core, workers: int) -> Threads:
        choose = PIPELINE_POLICIES[self._orders.policy]
        return Threads(core, choose, workers, self._clock, size=lambda _: 1)

    def _started(self) -> Evaluators | None:
        tasks = self._orders.tasks
        if tasks is None or not self._orders.plain or free_threaded():
            return None
        if self._deployment.lanes == 1:
            return None  # nobody else wants the interpreter's lock
        return Evaluators(self._deployment.lanes, tasks)

    @contextmanager
    def _or_none(self) -> Iterator[None]:
        """Leave no evaluator behind where something fails: this process may live on."""
        try:
            yield
        except BaseException:
            self._close_evaluators()
            raise

    def _close_evaluators(self) -> None:
        if self._evaluators is not None:
            self._evaluators.close()

    def _places(self, program: Program) -> Places:
        here = Here(program)
        if self._evaluators is None:
            return here
        return Divided(here, self._evaluators, self._orders.plain)

    # The whole

    def run(self) -> None:
        """Work until there is nothing more to come, or it is told to stop.

        Raises:
            Orphaned: The driver is gone.
        """
        receiving = threading.Thread(target=self._receive, name="anabranch-orders", daemon=True)
        try:
            self._channel.send(Hello(self._orders.attempt, os.getpid()))
            receiving.start()
            self._live()
        except TaskFailedError as failed:
            self._channel.send(Failed(asdict(failed.error)))
        except ChannelClosed as closed:
            raise Orphaned(str(closed)) from closed
        finally:
            self._threads.close()
            self._writer.shutdown(wait=True)
            self._close_evaluators()
        self._channel.finish()
        receiving.join(HEARD_S)  # until the driver has heard all, and closes

    def _live(self) -> None:
        for plan in self._orders.plans:
            assert plan.epoch == self._log.cut
            self._add(plan.source, offer_of(plan), self._clock.elapsed())
        checkpoint = told = self._clock.elapsed()
        while True:
            moved = self._obey()
            self._refuse_errors()
            now = self._clock.elapsed()
            moved |= self._cut_round(now)
            if now - checkpoint >= self._orders.checkpoint_every:
                checkpoint = now
                self._asked.barrier |= self._log.cut > self._log.before_barrier
            self._place_barrier(now)
            if now - told >= TOLD_S:
                told = now
                under_way = self._log.cut - self._log.gone
                self._channel.send(Told(self._sources.facts(self._times), under_way))
            if (ended := self._over()) is not None:
                self._channel.send(ended)
                return
            if not moved:
                self._wake.wait(POLL_S)
                self._wake.clear()

    def _over(self) -> Ended | Failed | None:
        """What to say at the end, if this is it."""
        log, asked = self._log, self._asked
        if asked.doomed is not None and log.gone > asked.doomed:
            text = f"the run was killed by its source before epoch {asked.doomed} was committed"
            why = "the source holds an item that does so, once (ABORT)"
            so = "start it again: it goes on behind its last commit"
            return Failed(text=text, why=why, so=so)
        finished = self._sources.at_end
        if not (asked.stop or finished) or asked.promised:
            return None
        if asked.catch_up and not asked.stop:
            return None
        if log.committed == log.cut:
            return Ended(finished)
        asked.barrier = asked.doomed is None
        return None

    # Messages

    def _receive(self) -> None:
        try:
            while True:
                self._inbox.append(self._channel.receive())
                self._wake.set()
        except ChannelClosed:
            self._orphaned = True
            self._wake.set()

    def _obey(self) -> bool:
        if self._orphaned:
            message = "the driver is gone"
            raise Orphaned(message)
        moved = False
        while self._inbox:
            moved = True
            match self._inbox.popleft():
                case Stop():
                    self._asked.stop = True
                case CatchUp(number):
                    self._asked.catch_up.append(number)
                case CommittedUpTo(last):
                    self._log.committed = last + 1
                    self._keep_promises()
        return moved

    def _keep_promises(self) -> None:
        promised, committed = self._asked.promised, self._log.committed
        self._asked.promised = [each for each in promised if each[1] > committed]
        for number, up_to in promised:
            if up_to <= committed:
                self._channel.send(CaughtUp(number))

    def _refuse_errors(self) -> None:
        self._threads.refuse()
        while self._writing and self._writing[0].done():
            self._writing.popleft().result()

    # Cutting

    def _cut_round(self, now: float) -> bool:
        """Cut an epoch of each source that has something, as far as there is room."""
        moved, caught_up = False, True
        if self._asked.stop:
            return moved  # who waits for what there is asks the next task
        for name in self._sources.in_turn(self._times):
            if self._log.cut - self._log.gone >= (1 if self._small() else self._room):
                caught_up = False
                break
            offer = self._sources.look(name, now, self._size)
            caught_up &= not offer.more
            if not self._sources.brings(name, offer):
                continue
            if self._must_wait(name, offer):
                caught_up = False
                continue
            self._cut(name, offer, now)
            moved = True
        if caught_up and self._asked.catch_up:
            self._promise()
        return moved

    def _promise(self) -> None:
        """All that sources held is cut: note up to where it has to be committed."""
        self._asked.promised += [(number, self._log.cut) for number in self._asked.catch_up]
        self._asked.catch_up = []
        self._asked.barrier |= self._log.cut > self._log.committed
        self._keep_promises()

    def _must_wait(self, name: str, offer: Offer) -> bool:
        """Whether a cut has to wait for an epoch at which the run dies.

        All that is cut before it is to be committed, and nothing is cut behind it.
        """
        asked = self._asked
        if asked.deadly is None and self._sources.interruption(name, offer) == KILL:
            asked.deadly = name
        if asked.deadly is None:
            return False
        if asked.doomed is not None or name != asked.deadly:
            return True
        asked.barrier = self._log.committed < self._log.cut
        return asked.barrier

    def _cut(self, name: str, offer: Offer, now: float, barrier: Barrier | None = None) -> None:
        """Cut an epoch, and tell of it before anything of it can be shown."""
        epoch, asked = self._log.cut, self._asked
        plan = self._sources.plan(epoch, name, offer, self._deployment.lanes)
        # Who writes down what is behind a barrier tells it by himself: its plan is told before.
        with self._at_once() if barrier is None else nullcontext():
            self._say(Planned(plan, barrier is not None))
            if asked.deadly == name and barrier is None:
                asked.doomed = epoch
            self._add(name, offer, now, barrier)
        match None if offer.empty else self._sources.interruption(name, offer):
            case Interruption("end"):
                asked.stop = True
            case Interruption("wait", seconds):
                self._sources.pause(name, now + seconds)

    def _add(self, name: str, offer: Offer, now: float, barrier: Barrier | None = None) -> None:
        splits = self._sources.take(name, offer)
        number, here = self._deployment.number(name), self._here()
        self._log.cut += 1
        epoch = fragments_of(EpochToRead(number, offer, splits, barrier, now))
        if here:
            self._threads.do(epoch)
        else:
            self._threads.add(epoch)

    def _small(self) -> bool:
        """Whether epochs are so small that who cuts them does their work, one after the other."""
        rows, took = self._last
        if self._evaluators is not None or rows > FEW:
            return False  # evaluators are asked by several workers: one would ask one by one
        return took <= SHORT_S or self._deployment.lanes == 1

    def _here(self) -> bool:
        """Whether the next epoch is done by who cuts it: nobody else is at work, too."""
        return self._small() and self._log.cut == self._log.gone

    def _say(self, message: Planned | Shown) -> None:
        """Tell the driver, now or with what else is told of the same epoch."""
        if self._told is None:
            self._channel.send(message)
        else:
            self._told.append(message)

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """Tell what is said of an epoch that is done here as one message."""
        if not self._here():
            yield
            return
        self._told = []
        try:
            yield
        finally:
            told, self._told = tuple(self._told), None
            if told:
                self._channel.send(told[0] if len(told) == 1 else Several(told))

    def _place_barrier(self, now: float) -> None:
        """Cut an epoch of nothing behind which all is written down, if that is wanted.

        It is an epoch of its own, so that no row waits for it. The next one has to wait until this
        one is committed.
        """
        log = self._log
        if not self._asked.barrier or log.committed < log.before_barrier:
            return
        if self._asked.doomed is not None:
            return  # the run dies before what is cut is committed
        self._asked.barrier = False
        if log.cut == log.committed:
            return
        self._barrier.append(_Barrier(log.before_barrier, log.cut, self._sources.positions()))
        log.before_barrier = log.cut + 1
        self._cut(*self._sources.nothing(), now, self._states.barrier())

    # What leaves

    def _leave(self, serial: int, bundle: Mapping[int, Epoch]) -> None:
        """Show an epoch's rows, or keep them for the commit. In the order of epochs."""
        del serial
        epoch, left = bundle[0], self._left
        source = self._deployment.inputs[epoch.read.source].name
        for name, output in self._deployment.outputs.items():
            rows = epoch.output(name)
            if rows is not None and rows.height:
                left.given += rows.height
                self._give(name, output.sink, rows, epoch.number)
        now = self._clock.elapsed()
        alone = now - max(epoch.read.at, self._left_at)
        left.count(source, epoch, now - epoch.read.at, alone)
        self._size = self._size.learn(epoch.rows, alone)
        # Since its cut: of two that were done beside each other the second left at once.
        self._left_at, self._last = now, (epoch.rows, now - epoch.read.at)
        if epoch.read.barrier is not None:
            self._left = _Left()
            barrier = self._barrier.popleft()
            self._writing.append(self._writer.submit(self._write_down, barrier, epoch, left))
        self._log.gone = epoch.number + 1
        self._wake.set()

    def _give(self, name: str, sink: Sink, rows: pl.DataFrame, epoch: int) -> None:
        if sink.visible == "early":
            self._say(Shown(name, epoch, self._written(sink, rows, epoch)))
        elif sink.gathers:
            self._left.gathered.setdefault(name, []).append(rows)
        else:
            entry = (epoch, (self._written(sink, rows, epoch),))
            self._left.staged.setdefault(name, []).append(entry)

    def _written(self, sink: Sink, rows: pl.DataFrame, epoch: int) -> Json:
        attempt = f"{self._deployment.run}-{self._orders.attempt}-{uuid4().hex[:8]}"
        message: Json = sink.write(rows.to_arrow().to_batches(), epoch, attempt)
        return message

    # Writing down

    def _write_down(self, barrier: _Barrier, epoch: Epoch, left: _Left) -> None:
        """Write what has changed and what is staged, and tell the driver."""
        written = self._states.write(epoch, barrier.first)
        for name, frames in left.gathered.items():
            sink = self._deployment.outputs[name].sink
            message = self._written(sink, pl.concat(frames), barrier.last)
            left.staged[name] = [(barrier.last, (message,))]
        assert epoch.reached is not None
        told = Checkpoint(
            barrier.first,
            barrier.last,
            Known(epoch.reached.times, barrier.positions, epoch.reached.rows),
            written.deltas,
            written.snapshots,
            dict(self._states.turns),
            {sink: tuple(entries) for sink, entries in left.staged.items()},
            left.totals(),
            written.changed,
            written.size,
        )
        with suppress(ChannelClosed):  # who cuts epochs notices, and tells
            self._channel.send(told)


def reside(orders: Orders, channel: Channel, clock: Clock) -> None:
    """Do as ordered, until the end."""
    keep_freed()
    ResidentTask(orders, channel, clock).run()
