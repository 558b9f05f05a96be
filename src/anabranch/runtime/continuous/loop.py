"""The driver of a continuous query: it has the log and the commits, and a task to watch.

What the task cuts is told here at once and written to the log every so often; what it shows early
is handed to sinks as it comes, by a thread of its own. A task that ends before it should is started
again behind the last commit, with the epochs that were cut since: nothing is lost, the order is
kept, and sinks that have shown rows early are told which come again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from anabranch.clock import Clock
from anabranch.config import PipelinePolicy
from anabranch.connectors.base import Sink
from anabranch.epoch.machine import Container, Known, Stage
from anabranch.epoch.protocol import HeadsDone, Offer
from anabranch.errors import AnabranchError, RunError, raising_site
from anabranch.observe.checkpoint import COMMITTED_AT
from anabranch.observe.facts import Facts, SourceFacts
from anabranch.program.operators.edges import Read
from anabranch.runtime.advice import advice
from anabranch.runtime.blame import Blame
from anabranch.runtime.continuous.channel import Channel, ChannelClosed, Reception
from anabranch.runtime.continuous.messages import (
    CatchUp,
    CaughtUp,
    Checkpoint,
    CommittedUpTo,
    Ended,
    Failed,
    FromTask,
    Hello,
    Orders,
    Planned,
    Several,
    Shown,
    Stop,
    Told,
)
from anabranch.runtime.continuous.placing import SPREAD, Placer, refuse_too_wide
from anabranch.runtime.continuous.plain_python import PlainPython
from anabranch.runtime.continuous.width import Width
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import JobFailed
from anabranch.runtime.payload import Chain
from anabranch.runtime.progress import Brought, progress_of
from anabranch.state.chain import Kept, parts_of
from anabranch.state.commits import Commits
from anabranch.state.envelope import Json
from anabranch.state.layout import Commit, EpochPlan
from anabranch.state.stores import Place

ATTEMPTS = 5
"""How often a task may end before its time without a commit in between."""
WAIT_S = 0.02
"""The longest that a step waits for something to happen."""
LAST_WORDS_S = 10.0
"""How long to wait for the end of what a task said that is over."""
UNPLACED_S = 10.0
"""After which it is said that a task has not begun."""
SILENT_S = 30.0
"""After which a task that says nothing is taken for dead: it tells how things are all the time."""

_LOG = logging.getLogger("anabranch")
_UNPLACED = (
    "%s: its task has waited for one of Spark's slots for %g s: other work has them all; stop a "
    'query, or give Spark more (master="local[4]", more executors)'
)


@dataclass(frozen=True, slots=True)
class Past:
    """Where a run begins: behind the last commit of the one before."""

    first: int
    known: Known
    plans: tuple[EpochPlan, ...]
    memory: Mapping[str, Json]
    chain: Chain


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things are written, in seconds; and by what workers go to operators."""

    every: float
    """What was cut, to the log."""
    checkpoint_every: float
    policy: PipelinePolicy = "lp"


@dataclass(slots=True)
class _Behind:
    """What a task would go on from that is started now."""

    first: int
    """The epoch behind the last commit."""
    known: Known
    plans: list[EpochPlan]
    """Of the epochs behind the last commit."""
    memory: dict[str, Json]
    chain: dict[str, Kept]
    turns: dict[tuple[int, int], float]

    @classmethod
    def of(cls, past: Past) -> _Behind:
        chain = {operator: Kept(parts) for operator, parts in past.chain.items()}
        return cls(past.first, past.known, list(past.plans), dict(past.memory), chain, {})

    def plan(self, plan: EpochPlan) -> None:
        """Note an epoch that is cut."""
        self.plans.append(plan)
        self.memory[plan.source] = plan.memory

    def commit(self, told: Checkpoint, commit: Commit) -> None:
        """Note a commit."""
        for operator, part in parts_of(commit):
            self.chain.setdefault(operator, Kept()).add(part)
        self.known, self.turns = told.known, dict(told.turns)
        self.plans = [plan for plan in self.plans if plan.epoch > told.last]
        self.first = told.last + 1


@dataclass(slots=True)
class _Log:
    """How far the log is written."""

    next: int
    """The first epoch that is not in it."""
    at: float
    """When it was last looked whether there is more."""


@dataclass(slots=True)
class _Asked:
    """What users wait for."""

    number: int = 0
    caught_up: dict[int, Callable[[], None]] = field(default_factory=dict)
    width: tuple[int, list[Callable[[], None]]] | None = None
    """The width that was asked for last, and who waits for it."""
    committed: list[Callable[[], None]] = field(default_factory=list)
    """Who waits for the next commit."""

    def all(self) -> list[Callable[[], None]]:
        """Everybody."""
        for_width = [] if self.width is None else self.width[1]
        return [*self.committed, *for_width, *self.caught_up.values()]


class ContinuousLoop:
    """One continuous query's life. Used by one thread at a time, but for what is shown early."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a loop is made of
        self,
        deployment: Deployment,
        placer: Placer,
        commits: Commits,
        sinks: Mapping[str, Sink],
        reads: Sequence[Read],
        past: Past,
        pace: Pace,
        clock: Clock,
        blame: Blame,
        plain: PlainPython,
        width: Width | None = None,
    ) -> None:
        """Everything is given; the task is started by `warm_up`. `width` is ours to choose."""
        self._deployment, self._placer, self._commits = deployment, placer, commits
        self._sinks, self._reads, self._pace, self._clock = sinks, tuple(reads), pace, clock
        self._blame, self._behind = blame, _Behind.of(past)
        self._plain, self._width = plain, width
        self._log = _Log(past.first + len(past.plans), clock.elapsed())
        self._messages: queue.SimpleQueue[tuple[Channel, FromTask]] = queue.SimpleQueue()
        self._reception = Reception(placer.host, self._serve)
        self._channel: Channel | None = None
        self._served = threading.Event()
        """Nothing more comes over the channel."""
        self._task: Future[None] | None = None
        self._attempt = self._failures = 0
        self._heard = self._told = self._placed = clock.elapsed()
        """The task said something; progress was told; the task was given to Spark."""
        sources = tuple(SourceFacts(name, time) for name, time in past.known.times.items())
        self._seen = Told(sources, 0)
        self._committed_at: float | None = None
        self._asked, self._stopping = _Asked(), False
        self._abandoned = self._showing = self._warned = False
        """Somebody wants it to end at once; a sink is being shown rows; a wait was told of."""
        self._ended: Ended | None = None
        self._failure: str | None = None
        """Why the task was given up, if it was."""
        self._broken: Exception | None = None
        """What a sink has raised that shows rows early."""
        self.over = False
        self.pid: int | None = None
        """The process that the task was last in."""
        self.on_progress: Callable[[dict[str, Any]], None] = lambda _: None

    @property
    def checkpoint(self) -> Place:
        """Where its checkpoint is."""
        return self._deployment.checkpoint

    @property
    def slices(self) -> int:
        """Into how many its state is divided."""
        return self._deployment.owners.slices

    def warm_up(self) -> None:
        """Start the task."""
        if self._task is None:
            self._place()

    def step(self) -> bool:
        """Wait a little for what the task says, and do what follows from it."""
        self.warm_up()
        self._take(min(WAIT_S, self._pace.every))
        if self._broken is not None:
            raise self._broken
        if self.over:
            return True
        if self._clock.elapsed() - self._log.at >= self._pace.every:
            self._write_log()
        self._watch()
        return True

    def facts(self) -> Facts:
        """What is known of the query now; safe from any thread, and never waits."""
        return Facts(
            self._deployment.program,
            self._seen.sources,
            (),
            committed=self._behind.first - 1,
            committed_at=self._committed_at,
            failures=self._failures,
            attempts=ATTEMPTS,
            unplaced_since=self._placed if self._channel is None else None,
            stopping=self._stopping,
            now=self._clock.elapsed(),
        )

    def stop(self, *, drain: bool) -> None:
        """Cut nothing more; with `drain` commit what is cut."""
        self._stopping = True
        if drain:
            self._send(Stop())
        else:
            self.over = True

    def abandon(self) -> None:
        """End the task; safe from any thread."""
        self._abandoned = True
        self._placer.cancel()

    def refuse_width(self, lanes: int) -> None:
        """Refuse more workers than a node has room for.

        Raises:
            RunError: It says what to use instead.
        """
        refuse_too_wide(lanes, self._placer, RunError, "rescale")

    def rescale(self, lanes: int, reached: Callable[[], None], *, drained: bool = False) -> None:
        """Go on with so many evaluators; call at the first commit there.

        The task ends behind a commit, and another begins with the same state in other partitions.
        """
        del drained
        if self._stopping:
            reached()
            return
        waiting = [] if self._asked.width is None else self._asked.width[1]
        self._asked.width = lanes, [*waiting, reached]
        self._send(Stop())

    def when_caught_up(self, reached: Callable[[], None]) -> None:
        """Call when all that sources hold now is committed."""
        self._asked.number += 1
        self._asked.caught_up[self._asked.number] = reached
        self._send(CatchUp(self._asked.number))

    def close(self) -> None:
        """Let go of the task, and of who listens for it."""
        self._placer.cancel()
        self._reception.close()
        if self._channel is not None:
            self._channel.close()
        self._placer.close()

    # The task

    def _place(self) -> None:
        self._attempt += 1
        self._ended = None
        self._heard = self._placed = self._clock.elapsed()
        self._warned = False
        behind = self._behind
        orders = Orders(
            self._attempt,
            self._deployment,
            self._reads,
            behind.first,
            behind.known,
            tuple(behind.plans),
            dict(behind.memory),
            {operator: tuple(kept) for operator, kept in behind.chain.items()},
            dict(behind.turns),
            self._pace.checkpoint_every,
            self._plain,
            self._pace.policy,
        )
        self._task = self._placer.place(orders, self._reception.address)

    def _serve(self, channel: Channel) -> None:
        """Take what comes over one connection, until there is no more.

        A thread of its own; of tasks that were given up nothing counts.
        """
        try:
            hello = channel.receive()
            if isinstance(hello, Hello) and hello.attempt == self._attempt:
                self._channel = channel
                self._served.clear()
                self._messages.put((channel, hello))
                self._listen(channel)
        except ChannelClosed:
            pass
        except Exception as error:  # noqa: BLE001 - what a sink raises ends the query, not a thread
            self._broken = error
        finally:
            channel.close()
            if channel is self._channel:
                self._served.set()

    def _listen(self, channel: Channel) -> None:
        """Show rows at once that are to be seen early, and keep all else for the next step."""
        while channel is self._channel:
            message = channel.receive()
            for each in message.messages if isinstance(message, Several) else (message,):
                self._listen_to(channel, each)

    def _listen_to(self, channel: Channel, message: FromTask) -> None:
        if isinstance(message, Shown):
            self._showing = True
            self._show(message)
            self._heard, self._showing = self._clock.elapsed(), False
        else:
            self._messages.put((channel, message))

    def _show(self, shown: Shown) -> None:
        try:
            self._sinks[shown.sink].publish([shown.message], shown.epoch)
        except AnabranchError:
            raise
        except Exception as error:
            message = f"sink {shown.sink!r} could not show epoch {shown.epoch}"
            why = str(error) or type(error).__name__
            so = "mend the sink and start again: it goes on behind its last commit"
            raise RunError(message, site=raising_site(error), why=why, so=so) from error

    def _send(self, message: object) -> None:
        """Tell the task, if there is one: a new one is told when it says that it is there."""
        if self._channel is not None:
            try:
                self._channel.send(message)
            except ChannelClosed:
                return

    def _watch(self) -> None:
        """See whether the task is at work; start another where it is not and should be."""
        assert self._task is not None
        if self._task.done():
            # What it said last may still be on its way here, when it is known that it is over.
            # A sink that is slow is waited for: what it shows must not come behind a rewind.
            while self._channel is not None and not self._served.wait(LAST_WORDS_S):
                if not self._showing:
                    break
            self._take(0.0)
            if not self.over:
                self._over_or_again(self._task)
        elif self._silent():
            self._failure = f"the resident task has said nothing for {SILENT_S:g} s"
            self._placer.cancel()
            self._heard = self._clock.elapsed()
        elif self._channel is None and not self._warned:
            self._warn()

    def _warn(self) -> None:
        """Say that the task waits for a slot, once: it takes one for as long as the query runs."""
        if self._clock.elapsed() - self._placed > UNPLACED_S:
            self._warned = True
            _LOG.warning(_UNPLACED, self._deployment.program, UNPLACED_S)

    def _silent(self) -> bool:
        """Whether the task has said nothing for too long; while a sink is slow it cannot."""
        if self._channel is None or self._showing:
            return False
        return self._clock.elapsed() - self._heard > SILENT_S

    def _over_or_again(self, task: Future[None]) -> None:
        if self._ended is not None:
            if self._asked.width is None or self._ended.finished or self._stopping:
                self._finish()
            else:
                self._widen(*self._asked.width)
            return
        if self._abandoned:
            return  # it will be told to stop
        error = task.exception()
        if error is not None and not isinstance(error, JobFailed):
            raise error
        why = self._failure or (str(error) if error is not None else "the resident task ended")
        self._failure = None
        self._failures += 1
        if self._failures >= ATTEMPTS:
            message = f"the resident task ended {self._failures} times in a row"
            died = isinstance(error, JobFailed) and error.died
            larger = f"where its state has outgrown the node: {SPREAD}" if died else None
            raise RunError(message, why=why, so=advice(why) or larger)
        self._again()

    def _again(self) -> None:
        """Start another task behind the last commit."""
        self._channel = None
        self._write_log()
        for sink in self._sinks.values():
            if sink.visible == "early":
                sink.rewind(self._behind.first - 1)
        self._place()

    def _widen(self, lanes: int, reached: list[Callable[[], None]]) -> None:
        self._asked.width = None
        self._asked.committed += reached
        self._deployment = self._deployment.with_lanes(lanes)
        self._behind.turns = {}
        self._again()

    def _finish(self) -> None:
        self.over = True
        for reached in self._asked.all():
            reached()

    # What it says

    def _take(self, seconds: float) -> None:
        try:
            channel, message = self._messages.get(timeout=seconds) if seconds else self._now()
            while True:
                if channel is self._channel:
                    self._heard = self._clock.elapsed()
                    self._hear(message)
                channel, message = self._now()
        except queue.Empty:
            return

    def _now(self) -> tuple[Channel, FromTask]:
        return self._messages.get_nowait()

    def _hear(self, message: FromTask) -> None:
        match message:
            case Planned(plan, barrier):
                self._behind.plan(plan)
                if barrier:
                    # A file of plans ends where a commit does: so none is of two commits.
                    self._write_log()
            case Checkpoint():
                self._commit(message)
            case Told():
                self._seen = message
            case CaughtUp(number):
                self._asked.caught_up.pop(number, lambda: None)()
            case Ended():
                self._ended = message
            case Failed():
                raise self._error(message)
            case Hello(_, pid):
                self.pid = pid
                self._ask_again()

    def _error(self, failed: Failed) -> RunError:
        if failed.error is not None:
            return self._blame.error(failed.error)
        return RunError(failed.text, why=failed.why, so=failed.so)

    def _ask_again(self) -> None:
        """Tell a task that has just come what was asked when nobody was there."""
        for number in self._asked.caught_up:
            self._send(CatchUp(number))
        if self._stopping or self._asked.width is not None:
            self._send(Stop())

    def _write_log(self) -> None:
        """Write what was cut to the log, in one file."""
        self._log.at = self._clock.elapsed()
        new = [plan for plan in self._behind.plans if plan.epoch >= self._log.next]
        if new:
            self._commits.plan(*new)
            self._log.next = new[-1].epoch + 1

    def _commit(self, told: Checkpoint) -> None:
        deployment, known = self._deployment, told.known
        owners = deployment.owners.of if deployment.stages else ()
        commit = Commit(
            told.first,
            told.last,
            watermarks={name: time.watermark for name, time in known.times.items()},
            positions=known.positions,
            row_numbers=known.rows,
            greatest_times={name: dict(time.greatest) for name, time in known.times.items()},
            owners=owners,
            lanes=deployment.lanes if deployment.stages else 0,
            deltas=told.deltas,
            snapshots=told.snapshots,
            staged=told.staged,
            statistics={COMMITTED_AT: int(self._clock.now() * 1_000_000)},
            undivided=deployment.undivided,
        )
        plans = [plan for plan in self._behind.plans if plan.epoch <= told.last]
        if len(plans) > 1:
            self._commits.fold(*plans)
        sealed = self._commits.commit(commit)
        self._commits.publish()
        starts = _starts(self._behind.plans, told.last)
        self._behind.commit(told, sealed)
        now = self._clock.elapsed()
        seconds = now - max(self._placed, self._committed_at or 0.0)
        self._failures, self._committed_at = 0, now
        self._send(CommittedUpTo(told.last))
        self.on_progress(self._progress(told, sealed, starts))
        self._stretch(told, seconds)
        reached, self._asked.committed = self._asked.committed, []
        for each in reached:
            each()

    def _stretch(self, told: Checkpoint, seconds: float) -> None:
        """Go on with more workers, or with fewer, where the last commits say so."""
        if self._width is None or self._asked.width is not None or self._stopping:
            return
        workers = self._width.learn(self._deployment.lanes, told.totals, seconds)
        if workers != self._deployment.lanes:
            self.rescale(workers, lambda: None)

    def _progress(
        self, told: Checkpoint, commit: Commit, starts: Mapping[str, Offer]
    ) -> dict[str, Any]:
        now = self._clock.elapsed()
        seconds, self._told = now - self._told, now
        containers = [
            Container(
                told.first,
                source,
                offer,
                Stage.DONE,
                heads=HeadsDone(
                    told.first,
                    dict(told.known.times[source].greatest),
                    {"": told.totals.rows.get(source, 0)},
                ),
            )
            for source, offer in starts.items()
        ]
        brought = Brought(
            at=self._clock.now(),
            epochs=containers,
            given=told.totals.given,
            late=told.totals.late,
            letters=told.totals.letters,
            changed=told.changed,
            origins={},
            scaling="" if self._width is None else self._width.because,
            written=told.written,
            state={},
            held={},
            seconds=seconds,
            latencies=told.totals.latencies,
            spent={},
            tasks={},
            backups={},
            jobs=1,
            under_way=self._seen.under_way,
            failures=self._failures,
            sources=self._seen.sources,
        )
        return progress_of(self._deployment, commit, brought)


def _starts(plans: Sequence[EpochPlan], last: int) -> dict[str, Offer]:
    """Of each source its first offer among the epochs up to the last."""
    found: dict[str, Offer] = {}
    for plan in plans:
        if plan.epoch <= last and plan.source not in found:
            found[plan.source] = Offer(plan.offsets, frozenset(), None, more=False)
    return found
