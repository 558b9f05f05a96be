"""A query from cycle to cycle: look, plan, run, commit; the machines decide, this does.

While a cycle's job runs, what the one before it brought is committed and published. When nothing
more is ready, it is committed at once. Whatever fails, nothing counts that was not committed, and
what was planned is run again with the same offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from uuid import uuid4

from anabranch.clock import Clock
from anabranch.epoch.machine import Machine
from anabranch.epoch.protocol import (
    Command,
    Committed,
    Event,
    Fail,
    Finish,
    HeadsDone,
    LanesDone,
    Offer,
    Offered,
    PlanEpoch,
    Planned,
    StopAsked,
    WorkFailed,
)
from anabranch.errors import RunError
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult, Executor, JobFailed
from anabranch.runtime.intake import Intake
from anabranch.runtime.payload import (
    EpochDone,
    HeadDone,
    HeadItem,
    LaneDone,
    LaneItem,
    LaneJob,
    Strand,
    Strands,
)
from anabranch.runtime.progress import progress_of
from anabranch.runtime.stopwatch import Stopwatch
from anabranch.runtime.tasks import BEGIN, merge
from anabranch.scheduling.session_machine import Cycle, SessionMachine
from anabranch.state.commits import Commits
from anabranch.state.layout import Commit, EpochPlan

SNAPSHOT_AFTER = 32
"""Deltas of a lane before its whole state is written: as many files are read at a recovery."""


@dataclass(slots=True)
class _Epoch:
    """What the driver knows of an epoch under way."""

    offer: Offer
    heads: dict[int, HeadDone] = field(default_factory=dict)
    lanes: dict[int, EpochDone] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """A lane's state: its version, and the files it can be made of again."""

    version: str = BEGIN
    strands: dict[str, Strands] = field(default_factory=dict)
    """By operator."""
    send_chain: bool = False
    moved: bool = False
    """Whether its slices are in files that other lanes wrote: then it writes all it has, once."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive epochs whose work is done, waiting for their commit."""

    epochs: tuple[int, ...]
    deltas: Mapping[str, Mapping[int, str]]


class Loop:
    """One query's life on one executor. Used by one thread at a time."""

    def __init__(
        self,
        deployment: Deployment,
        executor: Executor,
        commits: Commits,
        machine: Machine,
        intake: Intake,
        clock: Clock,
    ) -> None:
        """Everything is given: nothing here decides."""
        self._deployment, self._executor, self._commits = deployment, executor, commits
        self._machine, self._intake, self._clock = machine, intake, clock
        self._session = SessionMachine(executor.slots, heads=executor.slots)
        self._epochs: dict[int, _Epoch] = {}
        self._lanes = {lane: _Lane() for lane in range(deployment.lanes)}
        self._waiting: list[Group] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="anabranch-job")
        self._width: int | None = None
        self._forced = False
        self._last_commit = clock.elapsed()
        self._cut_at: dict[int, float] = {}
        self._latencies: dict[int, float] = {}
        self._watch, self._tasks = Stopwatch(clock), Stopwatch(clock)
        self._rescaled: Callable[[], None] | None = None
        self._asking: list[Callable[[], None]] = []
        self._catching_up: list[tuple[int, Callable[[], None]]] = []
        self.over = False
        self.on_progress: Callable[[dict[str, Any]], None] = lambda _: None

    def resume(
        self,
        offers: Mapping[int, Offer],
        strands: Mapping[int, Mapping[str, Strand]],
        *,
        same: bool,
    ) -> None:
        """Go on from a checkpoint: its planned epochs, and its state as files by lane.

        At the same width every lane takes its own files; at another all take from all.
        """
        self._epochs = {epoch: _Epoch(offer) for epoch, offer in offers.items()}
        self._cut_at = dict.fromkeys(offers, self._clock.elapsed())
        if not strands:
            return
        for lane, known in self._lanes.items():
            known.strands = _of_all([strands.get(lane, {})] if same else strands.values())
            known.version, known.send_chain, known.moved = uuid4().hex, True, not same

    def step(self) -> bool:
        """Do what can be done now, at most one cycle of it; says whether there was anything."""
        self._tell()
        if self.over:
            return True
        if self._width is not None and self._machine.idle and not self._waiting:
            self._widen(self._width)
        planned = self._plan()
        cycle = self._session.choose(self._machine.ready())
        if not cycle:
            return self._commit_waiting() or planned
        self._machine.take(*cycle.works)
        began = self._clock.elapsed()
        pending = self._submit(cycle)
        self._commit_waiting()
        with self._watch("waiting for the job"):
            wait([pending])
        self._watch.add("job", self._clock.elapsed() - began)
        self._absorb(cycle, pending)
        waiting = sum(1 for work in self._machine.ready() if not hasattr(work, "after"))
        self._session = self._session.learn(cycle, self._clock.elapsed() - began, waiting)
        return True

    def warm_up(self) -> None:
        """Start what the first cycle will need; if that fails, the cycle will tell."""
        with suppress(JobFailed):
            self._executor.warm_up()

    def stop(self, *, drain: bool) -> None:
        """Plan nothing more; with `drain` finish what is planned."""
        self._tell(StopAsked(drain))

    def rescale(self, lanes: int, reached: Callable[[], None]) -> None:
        """Go on with so many lanes from the first epoch not yet planned; call at its commit."""
        self._width, self._rescaled = lanes, reached

    def when_caught_up(self, reached: Callable[[], None]) -> None:
        """Call when all that the source holds at the next look is committed."""
        self._asking.append(reached)

    def abandon(self) -> None:
        """Ask the executor to give up the job under way; safe from any thread."""
        self._executor.cancel()

    def close(self) -> None:
        """Let go of the thread that waits for jobs."""
        self._pool.shutdown(wait=False)

    # Planning

    def _plan(self) -> bool:
        planned = False
        while self._machine.wants_offer and self._width is None:
            with self._watch("latestOffset"):
                offer = replace(self._intake.look(), forced=self._forced)
            forced = offer if not self._asking else replace(offer, forced=not offer.empty)
            commands = self._tell(Offered(forced, self._clock.elapsed()))
            if not offer.more:
                self._promise()
            if not any(isinstance(command, PlanEpoch) for command in commands):
                break
            planned, self._forced = True, False
        return planned

    def _promise(self) -> None:
        """All that the source held is planned: those who asked are told when it is committed."""
        self._catching_up += [(self._machine.last_planned, reached) for reached in self._asking]
        self._asking = []
        self._keep_promises()

    def _keep_promises(self) -> None:
        kept = [each for each in self._catching_up if each[0] <= self._machine.last_committed]
        self._catching_up = [each for each in self._catching_up if each not in kept]
        for _, reached in kept:
            reached()

    def _widen(self, lanes: int) -> None:
        """Change the width between epochs: every new lane takes its slices from all old ones."""
        strands = _joined(known.strands for known in self._lanes.values())
        self._deployment = self._deployment.with_lanes(lanes)
        self._executor.deploy(self._deployment)
        begun = any(known.version != BEGIN for known in self._lanes.values())
        self._lanes = {
            lane: _Lane(uuid4().hex, dict(strands), send_chain=True, moved=True)
            if begun
            else _Lane()
            for lane in range(lanes)
        }
        self._width, self._forced = None, True

    def _tell(self, *events: Event) -> list[Command]:
        commands = self._machine.handle(*events)
        for command in commands:
            match command:
                case PlanEpoch(epoch, offer):
                    with self._watch("walCommit"):
                        self._commits.plan(self._plan_of(epoch, offer))
                    self._intake.take(offer)
                    self._epochs[epoch] = _Epoch(offer)
                    self._cut_at[epoch] = self._clock.elapsed()
                    self._tell(Planned(epoch))
                case Finish():
                    self.over = True
                case Fail(reason, attempts):
                    message = f"the query failed {attempts} times in a row"
                    raise RunError(message, why=reason)
        return commands

    def _plan_of(self, epoch: int, offer: Offer) -> EpochPlan:
        return EpochPlan(
            epoch,
            self._deployment.source_name,
            offer.offsets,
            finished=tuple(offer.finished),
            hint=offer.hint,
            lanes=self._deployment.lanes,
            memory=self._deployment.source.memory(),
        )

    # Running

    def _submit(self, cycle: Cycle) -> Future[CycleResult]:
        heads = self._head_items(cycle)
        lanes = self._lane_jobs(cycle) if self._deployment.lane is not None else {}
        tasks = _divided(heads, self._executor.slots)
        if not tasks and not lanes:
            nothing: Future[CycleResult] = Future()
            nothing.set_result(CycleResult((), {}))
            return nothing
        return self._pool.submit(self._executor.run, tasks, lanes)

    def _head_items(self, cycle: Cycle) -> list[HeadItem]:
        items = []
        for work in cycle.heads:
            splits = self._intake.splits(self._epochs[work.epoch].offer)
            items += [
                HeadItem(work.epoch, work.attempt, number, partition, split)
                for number, (partition, split) in enumerate(splits)
            ]
        return items

    def _lane_jobs(self, cycle: Cycle) -> dict[int, LaneJob]:
        if not cycle.lanes:
            return {}
        return {lane: self._lane_job(lane, known, cycle) for lane, known in self._lanes.items()}

    def _lane_job(self, lane: int, known: _Lane, cycle: Cycle) -> LaneJob:
        items = tuple(
            LaneItem(work.epoch, work.attempt, self._parts(work.epoch), work.before, work.after)
            for work in cycle.lanes
        )
        lengths = [sum(map(len, strands)) for strands in known.strands.values()]
        long = max(lengths, default=0) >= SNAPSHOT_AFTER
        snapshot = long or known.moved
        chain = known.strands if known.send_chain else None
        return LaneJob(lane, known.version, items, chain, snapshot)

    def _parts(self, epoch: int) -> tuple[Any, ...]:
        heads = self._epochs[epoch].heads
        return tuple(heads[at].part for at in sorted(heads) if heads[at].part is not None)

    # What came back

    def _absorb(self, cycle: Cycle, pending: Future[CycleResult]) -> None:
        try:
            result = pending.result()
        except JobFailed as failure:
            self._again(cycle, str(failure))
            return
        self._refuse_errors(result)
        self._count("head", result.heads)
        self._count("lane", list(result.lanes.values()))
        if any(done.missing for done in result.lanes.values()):
            for lane, done in result.lanes.items():
                self._lanes[lane].send_chain = done.missing
            self._take_heads(cycle, result.heads)
            lanes = tuple(work.epoch for work in cycle.lanes)
            self._tell(WorkFailed((), lanes, "a process lost its state", counts=False))
            return
        self._take_lanes(cycle, result.lanes)
        self._take_heads(cycle, result.heads)

    def _count(self, kind: str, dones: Sequence[HeadDone | LaneDone]) -> None:
        for done in dones:
            for name, seconds in done.spent.items():
                self._tasks.add(f"{kind} {name}", seconds)

    def _again(self, cycle: Cycle, reason: str) -> None:
        heads = tuple(work.epoch for work in cycle.heads)
        lanes = tuple(work.epoch for work in cycle.lanes)
        self._tell(WorkFailed(heads, lanes, reason))

    def _take_heads(self, cycle: Cycle, heads: Sequence[HeadDone]) -> None:
        by_epoch: dict[int, dict[int, HeadDone]] = defaultdict(dict)
        for done in heads:
            by_epoch[done.epoch][done.number] = done
        names = list(self._deployment.source.partitions())
        for work in cycle.heads:
            mine = by_epoch[work.epoch]
            self._epochs[work.epoch].heads = mine
            greatest: dict[Any, int | None] = {}
            for done in mine.values():
                name = names[done.partition]
                seen = [each for each in (greatest.get(name), done.greatest) if each is not None]
                greatest[name] = max(seen, default=None)
            rows = sum(done.rows for done in mine.values())
            self._tell(HeadsDone(work.epoch, greatest, rows))

    def _take_lanes(self, cycle: Cycle, lanes: Mapping[int, LaneDone]) -> None:
        if not cycle.lanes:
            return
        deltas: dict[str, dict[int, str]] = {}
        for lane, done in lanes.items():
            known = self._lanes[lane]
            known.send_chain = known.moved = False
            known.version = done.version
            for epoch in done.epochs:
                self._epochs[epoch.epoch].lanes[lane] = epoch
            for operator, path in done.deltas.items():
                deltas.setdefault(operator, {})[lane] = path
                before = () if done.snapshot else (known.strands.get(operator) or ((),))[0]
                known.strands[operator] = ((*before, path),)
        epochs = tuple(work.epoch for work in cycle.lanes)
        self._waiting.append(Group(epochs, deltas))
        self._tell(LanesDone(epochs))

    def _refuse_errors(self, result: CycleResult) -> None:
        dones: list[HeadDone | LaneDone] = [*result.heads, *result.lanes.values()]
        for done in dones:
            if done.error is not None:
                raise _user_error(done.error)

    # Committing

    def _commit_waiting(self) -> bool:
        waiting, self._waiting = self._waiting, []
        for group in waiting:
            self._commit(group)
        return bool(waiting)

    def _commit(self, group: Group) -> None:
        deployment, last = self._deployment, self._machine.container(group.epochs[-1])
        assert last.time is not None
        with self._watch("merge"):
            staged = tuple((epoch, self._staged(epoch)) for epoch in group.epochs)
        source = deployment.source_name
        commit = Commit(
            group.epochs[0],
            group.epochs[-1],
            watermarks={source: last.time.watermark},
            positions={source: {p: end for p, (_, end) in last.offer.offsets.items()}},
            greatest_times={source: dict(last.time.greatest)},
            owners=deployment.owners if deployment.lane is not None else (),
            lanes=deployment.lanes if deployment.lane is not None else 0,
            deltas={operator: dict(lanes) for operator, lanes in group.deltas.items()},
            staged={deployment.sink_name: tuple(each for each in staged if each[1])},
        )
        with self._watch("commitOffsets"):
            self._commits.commit(commit)
        self._latencies = {e: self._clock.elapsed() - self._cut_at.pop(e) for e in group.epochs}
        with self._watch("publish"):
            self._commits.publish()
        for epoch in group.epochs:
            del self._epochs[epoch]
        self._deployment.clean(before=group.epochs[-1] + 1)
        self.on_progress(self._progress(group, commit))
        self._tell(Committed(group.epochs[-1]))
        self._keep_promises()
        if self._rescaled is not None and self._width is None:
            self._rescaled()
            self._rescaled = None

    def _progress(self, group: Group, commit: Commit) -> dict[str, Any]:
        now = self._clock.elapsed()
        seconds, self._last_commit = now - self._last_commit, now
        return progress_of(
            self._deployment,
            commit,
            rows=sum(self._machine.container(epoch).rows for epoch in group.epochs),
            seconds=seconds,
            latencies=[self._latencies[epoch] for epoch in group.epochs],
            spent=self._watch.take(),
            tasks=self._tasks.take(),
        )

    def _staged(self, epoch: int) -> tuple[Any, ...]:
        """The messages of an epoch's output, in the order of its rows."""
        known = self._epochs[epoch]
        if self._deployment.lane is None:
            messages = [known.heads[at].staged for at in sorted(known.heads)]
        elif self._deployment.merged:
            parts = [done.part for done in known.lanes.values() if done.part is not None]
            messages = [merge(self._deployment, parts, epoch, uuid4().hex)] if parts else []
        else:
            messages = [known.lanes[lane].staged for lane in sorted(known.lanes)]
        return tuple(message for message in messages if message is not None)


def _of_all(found: Iterable[Mapping[str, Strand]]) -> dict[str, Strands]:
    """Strands of some lanes, by operator."""
    return _joined({name: (strand,) for name, strand in each.items()} for each in found)


def _joined(found: Iterable[Mapping[str, Strands]]) -> dict[str, Strands]:
    """All strands of some lanes, by operator."""
    joined: dict[str, Strands] = {}
    for each in found:
        for name, strands in each.items():
            joined[name] = (*joined.get(name, ()), *strands)
    return joined


def _divided(items: Sequence[HeadItem], tasks: int) -> list[list[HeadItem]]:
    """Splits for so many tasks, each about as many, neighbours together.

    Of many splits smaller tasks are made, so that a core which is done early takes another.
    """
    count = min(2 * tasks if len(items) >= 4 * tasks else tasks, len(items))
    bounds = [len(items) * at // count for at in range(count + 1)] if count else [0]
    return [list(items[low:high]) for low, high in pairwise(bounds)]


def _user_error(told: Mapping[str, Any]) -> RunError:
    record = f" on {told['record']}" if told.get("record") else ""
    message = f"{told['operator']} failed{record}: {told['text']}"
    why = "\n        ".join(told.get("traceback") or ()) or None
    so = 'mend the function, or pass on_error="skip"'
    return RunError(message, why=why, so=so)
