"""A query from cycle to cycle: look, plan, run, commit; the machines decide, this does.

While a cycle's job runs, what the one before it brought is committed and published. When nothing
more is ready, it is committed at once. Whatever fails, nothing counts that was not committed, and
what was planned is run again with the same offsets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

from anabranch.clock import Clock
from anabranch.epoch.bundles import Bundles, EvenBundles
from anabranch.epoch.machine import Machine
from anabranch.epoch.protocol import (
    Command,
    Committed,
    Cut,
    Event,
    Fail,
    Finish,
    HeadsDone,
    LanesDone,
    LaneWork,
    Offer,
    Offered,
    PlanEpoch,
    Planned,
    StopAsked,
    WorkFailed,
)
from anabranch.errors import RunError
from anabranch.kernels.letters import Origins, Split
from anabranch.observe.checkpoint import COMMITTED_AT
from anabranch.observe.facts import Facts, Look
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
    StageDone,
    StageJob,
    Strand,
    Strands,
)
from anabranch.runtime.progress import Brought, Job, progress_of
from anabranch.runtime.stopwatch import Stopwatch
from anabranch.runtime.tables import Tables
from anabranch.runtime.tasks import BEGIN, SPLIT_ROWS, merge
from anabranch.scheduling.session_machine import Cycle, SessionMachine
from anabranch.state.commits import Commits
from anabranch.state.layout import Commit, EpochPlan

SNAPSHOT_AFTER = 32
"""Deltas of a lane before its whole state is written: as many files are read at a recovery."""

HEARTBEAT_S = 45.0
"""How long lanes are left without work: Spark ends worker processes that were idle for 60 s."""

_TOLD = 20
"""Lines of the machine's story in an error."""


@dataclass(slots=True)
class _Epoch:
    """What the driver knows of an epoch under way."""

    source: int
    """Its source's number."""
    offer: Offer
    tables: Mapping[str, str] = field(default_factory=dict)
    """The versions of lookup tables that hold for it."""
    splits: tuple[tuple[int, Any], ...] | None = None
    """Each with the index of its partition, once they are planned."""
    heads: dict[int, HeadDone] = field(default_factory=dict)
    """By split."""
    lanes: dict[tuple[int, int], EpochDone] = field(default_factory=dict)
    """By stage and lane."""


@dataclass(slots=True)
class _Lane:
    """The state of a stage in a lane: its version, and the files it can be made of again."""

    version: str = BEGIN
    strands: dict[str, Strands] = field(default_factory=dict)
    """By operator."""
    send_chain: bool = False
    moved: bool = False
    """Whether its slices are in files that other lanes wrote: then it writes all it has, once."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive epochs whose work is done, waiting for their commit."""

    works: tuple[LaneWork, ...]
    deltas: Mapping[str, Mapping[int, str]]
    changed: Mapping[str, int] = field(default_factory=dict)
    """Rows of state, by operator."""

    @property
    def epochs(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(work.epoch for work in self.works)


@dataclass(slots=True)
class _Moments:
    """When things happened, in seconds of the clock."""

    told: float
    """Progress was told last: what it tells next is counted from here."""
    worked: float
    """The lanes' processes last had something to do."""
    committed: float | None = None
    """This run has made its last commit, if it has made one."""
    job: float | None = None
    """The job under way began, if one is."""
    rest: float | None = None
    """There was nothing more to do, if that is so."""


class Loop:
    """One query's life on one executor. Used by one thread at a time."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a loop is made of
        self,
        deployment: Deployment,
        executor: Executor,
        commits: Commits,
        machine: Machine,
        intakes: Mapping[str, Intake],
        clock: Clock,
        bundles: Bundles | None = None,
        tables: Tables | None = None,
    ) -> None:
        """Everything is given: nothing here decides."""
        self._deployment, self._executor, self._commits = deployment, executor, commits
        self._machine, self._intakes, self._clock = machine, intakes, clock
        self._session = SessionMachine(executor.slots, heads=executor.slots)
        self._bundles, self._tables = bundles or EvenBundles(executor.slots), tables
        self._epochs: dict[int, _Epoch] = {}
        """By ticket."""
        self._lanes = {place: _Lane() for place in self._places()}
        """By stage and lane."""
        self._deltas: dict[int, dict[str, dict[int, str]]] = {}
        """What the stages behind them have written, by the first epoch of a group."""
        self._changed: dict[int, Counter[str]] = defaultdict(Counter)
        """How many rows of state they have changed, likewise."""
        self._waiting: list[Group] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="anabranch-job")
        self._width: int | None = None
        self._forced = False
        self._at = _Moments(clock.elapsed(), clock.elapsed())
        self._cut_at: dict[int, float] = {}
        """By ticket."""
        self._watch, self._tasks = Stopwatch(clock), Stopwatch(clock)
        self._looks: dict[str, Look] = dict.fromkeys(intakes, Look())
        self._jobs = 0
        """Since the last commit."""
        self._seen = self._facts()
        self._rescaled: Callable[[], None] | None = None
        self._asking: list[Callable[[], None]] = []
        self._catching_up: list[tuple[int, Callable[[], None]]] = []
        self.over = False
        self.on_progress: Callable[[dict[str, Any]], None] = lambda _: None

    @property
    def checkpoint(self) -> Path:
        """Where its checkpoint is."""
        return self._deployment.checkpoint

    def resume(
        self,
        plans: Mapping[int, tuple[str, Offer]],
        strands: Mapping[int, Mapping[str, Strand]],
        *,
        same: bool,
        tables: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Go on from a checkpoint: its planned epochs, and its state as files by lane.

        At the same width every lane takes its own files; at another all take from all. `tables`
        are the versions of lookup tables that hold for the planned epochs.
        """
        self._epochs = {
            epoch: _Epoch(self._number(source), offer, (tables or {}).get(epoch, {}))
            for epoch, (source, offer) in plans.items()
        }
        self._cut_at = dict.fromkeys(plans, self._clock.elapsed())
        self._seen = self._facts()
        if not strands:
            return
        for (stage, lane), known in self._lanes.items():
            mine = [strands.get(lane, {})] if same else strands.values()
            operators = self._deployment.stages[stage].task.operators
            known.strands = _of_all(
                {name: strand for name, strand in each.items() if name in operators}
                for each in mine
            )
            known.version, known.send_chain, known.moved = uuid4().hex, True, not same

    def step(self) -> bool:
        """Do what can be done now, at most one cycle of it; says whether there was anything."""
        if self._at.rest is not None:
            self._watch.add("idle", self._clock.elapsed() - self._at.rest)
        done = self._step()
        self._at.rest = None if done else self._clock.elapsed()
        self._seen = self._facts()
        if not done:
            self._keep_warm()
        return done

    def _step(self) -> bool:
        self._tell()
        if self.over:
            return True
        if self._width is not None and self._machine.idle and not self._waiting:
            self._widen(self._width)
        planned = self._plan()
        cycle = self._session.choose(self._machine.ready())
        if not cycle:
            done = self._commit_waiting() or planned
            if not done:
                self._refuse_standstill()
            return done
        self._machine.take(*cycle.works)
        self._run(cycle)
        self._refuse_standstill()
        return True

    def _run(self, cycle: Cycle) -> None:
        """One cycle's job; while it runs, what the one before it brought is committed."""
        began = self._at.job = self._clock.elapsed()
        heads = _divided(self._head_items(cycle), self._executor.slots)
        pending = self._submit(heads, self._lane_jobs(cycle))
        self._seen = self._facts()
        self._commit_waiting()
        with self._watch("waiting for the job"):
            wait([pending])
        took = self._clock.elapsed() - began
        self._watch.add("addBatch", took)
        self._at.job = None
        if cycle.lanes or not self._deployment.stages:
            self._at.worked = self._clock.elapsed()
        self._absorb(cycle, pending, Job(heads, took))
        rows = sum(self._rows(work.ticket) for work in cycle.heads)
        self._bundles = self._bundles.learn(rows, self._clock.elapsed() - began)
        waiting = sum(1 for work in self._machine.ready() if not isinstance(work, LaneWork))
        self._session = self._session.learn(cycle, self._clock.elapsed() - began, waiting)

    def facts(self) -> Facts:
        """What is known of the query now; safe from any thread, and never waits."""
        return replace(self._seen, now=self._clock.elapsed())

    def _facts(self) -> Facts:
        found = Facts.of(
            self._deployment.program,
            self._machine.statistics(),
            self._looks,
            self._cut_at,
            self._clock.elapsed(),
        )
        return replace(found, committed_at=self._at.committed, job_since=self._at.job)

    def _keep_warm(self) -> None:
        """Let the lanes' processes do something before Spark takes them for idle."""
        if not self.over and self._clock.elapsed() - self._at.worked >= HEARTBEAT_S:
            self.warm_up()

    def _refuse_standstill(self) -> None:
        """Fail where cycle follows cycle and nothing moves: a fault must not look like work."""
        if (stall := self._machine.cycle_over()) is None:
            return
        message = f"the query makes no progress: epoch {stall.epoch} has not moved"
        last = "" if stall.failure is None else f"; what failed last: {stall.failure}"
        why = f"it was {stall.stage.value} after each of {stall.cycles} cycles{last}"
        have = "\n        ".join(self._machine.story().splitlines()[-_TOLD:])
        so = "report it with these lines; started again, it goes on behind its last commit"
        raise RunError(message, why=why, have=have, so=so)

    def warm_up(self) -> None:
        """Start what the first cycle will need; if that fails, the cycle will tell."""
        with suppress(JobFailed):
            self._executor.warm_up()
        self._at.worked = self._clock.elapsed()

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
        if self._width is not None:
            return False
        found = [self._plan_from(name) for name in self._intakes]
        if all(caught_up for _, caught_up in found):
            self._promise()
        return any(planned for planned, _ in found)

    def _plan_from(self, source: str) -> tuple[bool, bool]:
        """Cut what a source has, as far as there is room: whether something was, and all of it."""
        planned, caught_up = False, self._machine.at_end(source)
        while self._machine.wants_offer(source):
            with self._watch("latestOffset"):
                offer = self._intakes[source].look(self._clock.elapsed())
            self._looks[source] = self._looks[source].then(offer, self._clock.elapsed())
            forced = self._forced if not self._asking else not offer.empty
            caught_up = not offer.more
            given = Offered(replace(offer, forced=forced), self._clock.elapsed(), source)
            if not any(isinstance(command, Cut) for command in self._tell(given)):
                break
            planned, self._forced = True, False
        return planned, caught_up

    def _promise(self) -> None:
        """All that the source held is planned: those who asked are told when it is committed."""
        self._catching_up += [(self._machine.last_cut, reached) for reached in self._asking]
        self._asking = []
        self._keep_promises()

    def _keep_promises(self) -> None:
        oldest = min(self._machine.tickets, default=self._machine.last_cut + 1)
        kept = [each for each in self._catching_up if each[0] < oldest]
        self._catching_up = [each for each in self._catching_up if each not in kept]
        for _, reached in kept:
            reached()

    def _widen(self, lanes: int) -> None:
        """Change the width between epochs: every new lane takes its slices from all old ones."""
        before = self._lanes
        self._deployment = self._deployment.with_lanes(lanes)
        self._executor.deploy(self._deployment)
        self._lanes = {}
        for stage, lane in self._places():
            old = [known for (number, _), known in before.items() if number == stage]
            begun = any(known.version != BEGIN for known in old)
            strands = _joined(known.strands for known in old)
            fresh = _Lane(uuid4().hex, strands, send_chain=True, moved=True)
            self._lanes[stage, lane] = fresh if begun else _Lane()
        self._width, self._forced = None, True

    def _places(self) -> Iterator[tuple[int, int]]:
        """Every stage in every lane that it runs in."""
        width = self._deployment.lanes
        for number, stage in enumerate(self._deployment.stages):
            yield from ((number, lane) for lane in stage.lanes(width))

    def _number(self, source: str) -> int:
        names = [each.name for each in self._deployment.inputs]
        return names.index(source)

    def _tell(self, *events: Event) -> list[Command]:
        commands = self._machine.handle(*events)
        for command in commands:
            match command:
                case Cut(ticket, source, offer):
                    self._intakes[source].take(offer)
                    self._looks[source] = self._looks[source].taken()
                    tables = self._tables.current() if self._tables is not None else {}
                    self._epochs[ticket] = _Epoch(self._number(source), offer, tables)
                    self._cut_at[ticket] = self._clock.elapsed()
                case PlanEpoch(epoch, ticket, source, offer):
                    tables = self._epochs[ticket].tables
                    with self._watch("walCommit"):
                        self._commits.plan(self._plan_of(epoch, source, offer, tables))
                    self._tell(Planned(epoch))
                case Finish():
                    self.over = True
                case Fail(reason, attempts):
                    message = f"the query failed {attempts} times in a row"
                    raise RunError(message, why=reason)
        return commands

    def _plan_of(
        self, epoch: int, source: str, offer: Offer, tables: Mapping[str, str]
    ) -> EpochPlan:
        return EpochPlan(
            epoch,
            source,
            offer.offsets,
            idle=tuple(offer.idle),
            finished=tuple(offer.finished),
            hint=offer.hint,
            lanes=self._deployment.lanes,
            memory=self._deployment.inputs[self._number(source)].source.memory(),
            tables=tables,
        )

    # Running

    def _submit(
        self, tasks: Sequence[Sequence[HeadItem]], lanes: Mapping[int, LaneJob]
    ) -> Future[CycleResult]:
        if not tasks and not lanes:
            nothing: Future[CycleResult] = Future()
            nothing.set_result(CycleResult((), {}))
            return nothing
        self._jobs += 1
        return self._pool.submit(self._executor.run, tasks, lanes)

    def _head_items(self, cycle: Cycle) -> list[HeadItem]:
        items = []
        for work in cycle.heads:
            known = self._epochs[work.ticket]
            if known.splits is None:
                # Once: rows are ordered by their split, and repeated work must give the same.
                intake = self._intakes[self._deployment.inputs[known.source].name]
                known.splits = tuple(intake.splits(known.offer, self._bundles))
            items += [
                HeadItem(
                    known.source,
                    work.ticket,
                    work.attempt,
                    number,
                    partition,
                    split,
                    known.tables,
                )
                for number, (partition, split) in enumerate(known.splits)
            ]
        return items

    def _lane_jobs(self, cycle: Cycle) -> dict[int, LaneJob]:
        """For each lane all stages that have something to do, each at its level."""
        jobs: dict[int, list[StageJob]] = defaultdict(list)
        for (stage, lane), known in self._lanes.items():
            level = self._deployment.stages[stage].level
            works = [work for work in cycle.lanes if work.level == level]
            if works:
                jobs[lane].append(self._stage_job(stage, known, works))
        return {lane: LaneJob(lane, tuple(found)) for lane, found in sorted(jobs.items())}

    def _stage_job(self, stage: int, known: _Lane, works: Sequence[LaneWork]) -> StageJob:
        items = tuple(
            LaneItem(
                work.epoch,
                work.ticket,
                work.attempt,
                self._parts(work.ticket, stage),
                work.marks,
                self._origins(work) if self._deployment.letters else None,
                self._epochs[work.ticket].tables,
            )
            for work in works
        )
        lengths = [sum(map(len, strands)) for strands in known.strands.values()]
        long = max(lengths, default=0) >= SNAPSHOT_AFTER
        chain = known.strands if known.send_chain else None
        return StageJob(stage, known.version, items, chain, snapshot=long or known.moved)

    def _parts(self, ticket: int, stage: int) -> dict[int, tuple[Any, ...]]:
        """Where a stage's rows of an epoch lie, by its entries."""
        known, found = self._epochs[ticket], dict[int, tuple[Any, ...]]()
        for link in self._deployment.links:
            if link.to != stage:
                continue
            made: list[HeadDone | EpochDone] = []
            if link.head == known.source:
                made = [known.heads[number] for number in sorted(known.heads)]
            elif link.stage is not None:
                made = [done for (at, _), done in sorted(known.lanes.items()) if at == link.stage]
            parts = tuple(done.parts[link.exit] for done in made if link.exit in done.parts)
            if parts:
                found[link.entry] = parts
        return found

    def _origins(self, work: LaneWork) -> Origins:
        """Which record each of an epoch's rows is."""
        known, container = self._epochs[work.ticket], self._machine.container(work.ticket)
        given = self._deployment.inputs[known.source]
        assert container.before is not None
        rows = dict(container.before.rows.get(given.name, {}))
        names, splits = list(given.source.partitions()), []
        for number in sorted(known.heads):
            done = known.heads[number]
            name = names[done.partition]
            first = rows.get(name, 0)
            splits.append(Split(done.partition, number * SPLIT_ROWS, str(name), first))
            rows[name] = first + done.rows
        return Origins(work.epoch, given.name, tuple(splits))

    # What came back

    def _absorb(self, cycle: Cycle, pending: Future[CycleResult], job: Job) -> None:
        try:
            result = pending.result()
        except JobFailed as failure:
            self._again(cycle, str(failure))
            return
        self._refuse_errors(result)
        self._count("head", result.heads)
        self._count("lane", list(result.lanes.values()))
        self._watch.add("spark", job.overhead(result, self._executor.slots))
        if any(done.missing for done in result.lanes.values()):
            for lane, done in result.lanes.items():
                for stage in done.missing:
                    self._lanes[stage, lane].send_chain = True
            self._take_heads(cycle, result.heads)
            lanes = tuple(work.epoch for work in cycle.lanes)
            self._tell(WorkFailed((), lanes, "a process lost its state", counts=False))
            return
        self._take_lanes(cycle, result.lanes)
        self._take_heads(cycle, result.heads)

    def _rows(self, ticket: int) -> int:
        return sum(done.rows for done in self._epochs[ticket].heads.values())

    def _count(self, kind: str, dones: Sequence[HeadDone | LaneDone]) -> None:
        for done in dones:
            for name, seconds in done.spent.items():
                self._tasks.add(f"{kind} {name}", seconds)

    def _again(self, cycle: Cycle, reason: str) -> None:
        heads = tuple(work.ticket for work in cycle.heads)
        lanes = tuple(work.epoch for work in cycle.lanes)
        self._tell(WorkFailed(heads, lanes, reason))

    def _take_heads(self, cycle: Cycle, heads: Sequence[HeadDone]) -> None:
        by_ticket: dict[int, dict[int, HeadDone]] = defaultdict(dict)
        for done in heads:
            by_ticket[done.ticket][done.number] = done
        for work in cycle.heads:
            known, mine = self._epochs[work.ticket], by_ticket[work.ticket]
            known.heads = mine
            names = list(self._deployment.inputs[known.source].source.partitions())
            greatest: dict[Any, int | None] = {}
            rows: dict[Any, int] = {}
            for done in mine.values():
                name = names[done.partition]
                seen = [each for each in (greatest.get(name), done.greatest) if each is not None]
                greatest[name] = max(seen, default=None)
                rows[name] = rows.get(name, 0) + done.rows
            self._tell(HeadsDone(work.ticket, greatest, rows))

    def _take_lanes(self, cycle: Cycle, lanes: Mapping[int, LaneDone]) -> None:
        if not cycle.lanes:
            return
        by_level: dict[int, list[LaneWork]] = defaultdict(list)
        for work in cycle.lanes:
            by_level[work.level].append(work)
        tickets = {work.epoch: work.ticket for work in cycle.lanes}
        for lane, done in lanes.items():
            for each in done.stages:
                self._take_stage(lane, each, by_level, tickets)
        for level, works in sorted(by_level.items(), reverse=True):
            if level == self._deployment.levels:
                deltas = self._deltas.pop(works[0].epoch, {})
                changed = self._changed.pop(works[0].epoch, Counter())
                self._waiting.append(Group(tuple(works), deltas, changed))
        self._tell(LanesDone(tuple(work.epoch for work in cycle.lanes)))

    def _take_stage(
        self,
        lane: int,
        done: StageDone,
        by_level: Mapping[int, Sequence[LaneWork]],
        tickets: Mapping[int, int],
    ) -> None:
        known = self._lanes[done.stage, lane]
        known.send_chain = known.moved = False
        known.version = done.version
        for epoch in done.epochs:
            self._epochs[tickets[epoch.epoch]].lanes[done.stage, lane] = epoch
        # Epochs that are together stay together: the first one names them at every level.
        first = by_level[self._deployment.stages[done.stage].level][0].epoch
        deltas = self._deltas.setdefault(first, {})
        self._changed[first].update(done.changed)
        for operator, path in done.deltas.items():
            deltas.setdefault(operator, {})[lane] = path
            before = () if done.snapshot else (known.strands.get(operator) or ((),))[0]
            known.strands[operator] = ((*before, path),)

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
        deployment = self._deployment
        known = self._machine.container(group.works[-1].ticket).after
        assert known is not None
        with self._watch("merge"):
            staged = {name: self._staged(name, group) for name in deployment.outputs}
        commit = Commit(
            group.epochs[0],
            group.epochs[-1],
            watermarks={name: time.watermark for name, time in known.times.items()},
            positions=known.positions,
            row_numbers=known.rows,
            greatest_times={name: dict(time.greatest) for name, time in known.times.items()},
            owners=deployment.owners.of if deployment.stages else (),
            lanes=deployment.lanes if deployment.stages else 0,
            deltas={operator: dict(lanes) for operator, lanes in group.deltas.items()},
            staged=staged,
            statistics={COMMITTED_AT: int(self._clock.now() * 1_000_000)},
        )
        with self._watch("commitOffsets"):
            self._commits.commit(commit)
        now = self._clock.elapsed()
        latencies = [now - self._cut_at.pop(work.ticket) for work in group.works]
        with self._watch("publish"):
            self._commits.publish()
        self.on_progress(self._progress(group, commit, latencies))
        for work in group.works:
            del self._epochs[work.ticket]
        self._tell(Committed(group.epochs[-1]))
        oldest = min(self._machine.tickets, default=self._machine.last_cut + 1)
        deployment.clean(before=oldest)
        self._executor.forget(oldest)
        self._keep_promises()
        if self._rescaled is not None and self._width is None:
            self._rescaled()
            self._rescaled = None

    def _progress(self, group: Group, commit: Commit, latencies: Sequence[float]) -> dict[str, Any]:
        self._at.committed = now = self._clock.elapsed()
        seconds, self._at.told = now - self._at.told, now
        jobs, self._jobs = self._jobs, 0
        containers = [self._machine.container(work.ticket) for work in group.works]
        dones = [done for work in group.works for done in self._epochs[work.ticket].lanes.values()]
        read = [done for work in group.works for done in self._epochs[work.ticket].heads.values()]
        in_lanes = all(output.stage is not None for output in self._deployment.outputs.values())
        brought = Brought(
            at=self._clock.now(),
            epochs=containers,
            given=sum(done.rows for done in dones) if in_lanes else None,
            late=sum(done.late for done in dones),
            letters=sum(done.letters for done in dones) + sum(done.letters for done in read),
            changed=group.changed,
            seconds=seconds,
            latencies=latencies,
            spent=self._watch.take(),
            tasks=self._tasks.take(),
            jobs=jobs,
            under_way=len(self._machine.tickets) - len(group.works),
            failures=self._machine.statistics().failures,
            sources=self._facts().sources,
        )
        return progress_of(self._deployment, commit, brought)

    def _staged(self, sink: str, group: Group) -> tuple[tuple[int, tuple[Any, ...]], ...]:
        """The messages of a sink's rows, epoch by epoch, each in the order of its rows."""
        found = ((work.epoch, self._messages(sink, work)) for work in group.works)
        return tuple((epoch, messages) for epoch, messages in found if messages)

    def _messages(self, sink: str, work: LaneWork) -> tuple[Any, ...]:
        known, stage = self._epochs[work.ticket], self._deployment.outputs[sink].stage
        if stage is None:
            heads = (known.heads[number] for number in sorted(known.heads))
            return tuple(done.staged[sink] for done in heads if sink in done.staged)
        mine = [done for (at, _), done in sorted(known.lanes.items()) if at == stage]
        if not self._deployment.merged(sink):
            return tuple(done.staged[sink] for done in mine if sink in done.staged)
        exits = self._deployment.stages[stage].task.exits
        (number,) = [at for at, each in enumerate(exits) if each.sink == sink]
        parts = [done.parts[number] for done in mine if number in done.parts]
        if not parts:
            return ()
        return (merge(self._deployment, sink, parts, work.epoch, uuid4().hex),)


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
