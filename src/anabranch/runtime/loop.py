"""A query from cycle to cycle: look, plan, run, commit; the machines decide, this does.

While a cycle's job runs, what the one before it brought is committed and published. When nothing
more is ready, it is committed at once. Whatever fails, nothing counts that was not committed, and
what was planned is run again with the same offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any

from anabranch.clock import Clock
from anabranch.connectors.base import Interruption
from anabranch.epoch.bundles import Bundles, EvenBundles
from anabranch.epoch.machine import Machine
from anabranch.epoch.protocol import (
    Command,
    Committed,
    Cut,
    Event,
    Fail,
    Finish,
    LanesDone,
    LaneWork,
    Offer,
    Offered,
    PlanEpoch,
    Planned,
    ReadAgain,
    StopAsked,
    WorkFailed,
)
from anabranch.epoch.row_limit import RowLimit
from anabranch.errors import RunError
from anabranch.ids import Partition
from anabranch.kernels.failures import as_json
from anabranch.kernels.stateless.python_rows import records_of
from anabranch.observe.checkpoint import COMMITTED_AT, SESSION
from anabranch.observe.facts import Facts, Firing, Look
from anabranch.observe.waits import Shape as Waits
from anabranch.runtime.advice import advice
from anabranch.runtime.blame import Blame
from anabranch.runtime.deployment import Deployment, Input
from anabranch.runtime.elasticity import Elasticity, Seen
from anabranch.runtime.executor import CycleResult, Executor, JobFailed
from anabranch.runtime.intake import Intake
from anabranch.runtime.isolation import Poison, poison_in_heads, poison_in_lanes
from anabranch.runtime.merging import MERGE_ABOVE, Merging
from anabranch.runtime.payload import Chain, HeadDone, HeadItem, LaneDone, LaneJob, MergeItem
from anabranch.runtime.progress import Brought, Job, progress_of
from anabranch.runtime.prospects import Backlog, Prospects
from anabranch.runtime.shape import Shape
from anabranch.runtime.standing import among_others, with_goal
from anabranch.runtime.state_sizes import StateSizes
from anabranch.runtime.stopwatch import Stopwatch
from anabranch.runtime.tables import Tables
from anabranch.runtime.turns import Alone, Seat
from anabranch.runtime.under_way import EpochUnderWay, Group, UnderWay
from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.session_machine import Cycle, First, SessionMachine
from anabranch.scheduling.slack import CONFIDENCE
from anabranch.state.commits import Commits
from anabranch.state.envelope import Json
from anabranch.state.layout import Commit, EpochPlan
from anabranch.state.stores import Place

ISOLATE_AFTER = 2
"""Deaths in a row after which it is asked whether a record is why: one may be an accident."""

HEARTBEAT_S = 45.0
"""How long lanes are left without work: Spark ends worker processes that were idle for 60 s."""

MOST_LEVELS = 4
"""Jobs in one turn behind the one that read, for windows behind windows."""

KILL = Interruption("kill")

_TOLD = 20
"""Lines of the machine's story in an error."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How a loop goes about its work; no output shows any of it."""

    bundles: Bundles | None = None
    """None: as few as keep all slots busy."""
    first: First = First.LANES
    merge_above: int = MERGE_ABOVE
    job_timeout: float | None = None
    every: float = 0.0
    """Seconds between two epochs."""
    auto: bool = False
    """Whether the width follows the load."""
    seat: Seat = field(default_factory=Alone)
    """Its place among other queries."""
    goal: float | None = None
    """Seconds in which what it gives is to be there."""
    cycle: float | None = None
    """Seconds that a cycle should take at most; None: as long as one query has for itself."""


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
        tables: Tables,
        ways: Ways,
        blame: Blame,
        waits: Waits = Waits(),  # noqa: B008 - a frozen value
    ) -> None:
        """Everything is given: nothing here decides."""
        self._executor, self._commits = executor, commits
        self._machine, self._intakes, self._clock, self._blame = machine, intakes, clock, blame
        self._session = SessionMachine.of(executor.slots, ways.first, ways.cycle)
        self._seat, self._prospects = ways.seat, Prospects.of(waits, ways.goal, machine.times)
        self._bundles, self._tables = ways.bundles or EvenBundles(executor.slots), tables
        self._row_limit, self._even_bundles = RowLimit.within(ways.cycle), ways.bundles is None
        self._under_way, self._waiting = UnderWay(deployment), list[Group]()
        self._sizes, self._deaths = StateSizes(deployment.checkpoint), 0
        self._merging = Merging(self._under_way, ways.merge_above)
        self._job_timeout = ways.job_timeout
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="anabranch-job")
        elastic = Elasticity(ways.every, executor.slots, auto=ways.auto)
        self._shape = Shape(deployment, executor, self._under_way, elastic)
        self._forced, self._at = False, _Moments(clock.elapsed(), clock.elapsed())
        self._cut_at = dict[int, float]()
        """By ticket."""
        self._watch, self._tasks = Stopwatch(clock), Stopwatch(clock)
        self._looks: dict[str, Look] = dict.fromkeys(intakes, Look())
        self._jobs, self._fetched = 0, Counter[str]()
        """Since the last commit; and bytes, by where tasks got them from."""
        self._seen = self._facts()
        self._deadly: str | None = None
        """The source whose next cut is one at which the run dies."""
        self._doomed: int | None = None
        """The ticket before whose commit it does."""
        # Whom to tell of the first commit at the width that was asked for last.
        self._asking = list[Callable[[], None]]()
        self._catching_up = list[tuple[int, Callable[[], None]]]()
        self.over = False
        self.on_progress: Callable[[dict[str, Any]], None] = lambda _: None

    @property
    def _deployment(self) -> Deployment:
        return self._shape.deployment

    @property
    def checkpoint(self) -> Place:
        """Where its checkpoint is."""
        return self._deployment.checkpoint

    @property
    def slices(self) -> int:
        """Into how many its state is divided: the most lanes that it can have."""
        return self._deployment.owners.slices

    def refuse_width(self, lanes: int) -> None:
        """Refuse no width: lanes that find no slot take turns with others."""

    def resume(
        self,
        plans: Mapping[int, tuple[str, Offer]],
        chain: Chain,
        tables: Mapping[int, Mapping[str, str]] | None = None,
        version: int = 0,
    ) -> None:
        """Go on from a checkpoint: its planned epochs, and the files that its state is made of.

        `tables` are the versions of lookup tables that hold for the planned epochs, `version` is
        that of the last configuration.
        """
        self._shape.resume(version)
        for epoch, (source, offer) in plans.items():
            self._under_way.cut(epoch, source, offer, (tables or {}).get(epoch, {}))
        self._under_way.resume(chain)
        self._cut_at = dict.fromkeys(plans, self._clock.elapsed())
        self._seen = self._facts()

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
        self._forced |= self._shape.look(self._at_rest, self._is_idle)
        planned = self._plan()
        cycle = self._session.choose(self._machine.ready())
        if not cycle and not self._merging.pending and not self._shape.beside:
            done = self._commit_waiting() or planned
            if not done:
                self._refuse_standstill()
            return done
        with self._seat.turn(self._prospect, self._commit_waiting) as turn:
            if turn.none:
                return True  # it will be told to stop
            began = self._clock.elapsed()
            if turn.waited:
                planned |= self._plan()
                cycle = self._session.choose(self._machine.ready())
            if not turn.read and cycle.lanes:
                cycle = replace(cycle, heads=())
            self._machine.take(*cycle.works)
            self._run(cycle)
            self._fire(cycle)
            self._prospects.turned(self._clock.elapsed() - began)
        self._refuse_standstill()
        # For replicas and copies alone there is no hurry: they need the cores themselves.
        return bool(cycle or planned or self._merging.pending or self._shape.turning)

    def _fire(self, cycle: Cycle) -> None:
        """Do what a window waits for whose watermark has just been read, with the same turn."""
        if self._seat.alone or not cycle.heads or self.over:
            return
        for _ in range(MOST_LEVELS):
            rest = replace(self._session.choose(self._machine.ready()), heads=())
            if not rest.lanes or not self._prospects.fires():
                return
            self._machine.take(*rest.works)
            self._run(rest)

    def _run(self, cycle: Cycle) -> None:
        """One cycle's job; while it runs, what the one before it brought is committed."""
        began = self._at.job = self._clock.elapsed()
        self._look_round()
        items = self._under_way.head_items(cycle.heads, self._intakes, self._bundles)
        heads = _divided(items, self._executor.slots)
        lanes = self._under_way.lane_jobs(cycle.lanes, self._rows_before(cycle.lanes))
        lanes = self._shape.jobs(lanes)
        pending = self._submit(heads, lanes, self._merging.pending)
        self._seen = self._facts()
        self._commit_waiting()
        with self._watch("waiting for the job"):
            outcome = self._outcome(pending)
        took = self._clock.elapsed() - began
        self._watch.add("addBatch", took)
        self._at.job = None
        if cycle.lanes or not self._deployment.stages:
            self._at.worked = self._clock.elapsed()
        self._absorb(cycle, outcome, Job(heads, took))
        if cycle.lanes and isinstance(outcome, CycleResult):
            self._stretch(outcome, took)
        rows = [self._rows(work.ticket) for work in cycle.heads]
        if not self._seat.alone:
            self._learn(cycle, sum(rows), took)
        self._bundles = self._bundles.learn(sum(rows), self._clock.elapsed() - began)
        self._row_limit = self._row_limit.learn(max(rows, default=0), sum(rows), took)
        waiting = sum(1 for work in self._machine.ready() if not isinstance(work, LaneWork))
        self._session = self._session.learn(cycle, self._clock.elapsed() - began, waiting)

    def _prospect(self) -> Prospect:
        """What can be expected of it, for who decides whose turn it is."""
        now, elapsed = self._clock.now(), self._clock.elapsed()
        cut = [self._cut_at[ticket] for ticket in self._machine.tickets if ticket in self._cut_at]
        backlog = Backlog(
            sum(look.waiting for look in self._looks.values()) + self._unread(),
            sum(self._rows(ticket) for ticket in self._machine.tickets),
            self._machine.held,
            now - (elapsed - min(cut, default=elapsed)),
        )
        return self._prospects.prospect(backlog, now)

    def _unread(self) -> int:
        """Rows of epochs that are cut and not read, as far as offsets count them."""
        offers = [self._under_way[ticket] for ticket in self._machine.tickets]
        return sum(each.offer.rows or 0 for each in offers if not each.heads)

    def _stretch(self, outcome: CycleResult, took: float) -> None:
        """Have slices change lanes, or lanes come or go, where the last cycles say so."""
        backlog = sum(self._rows(ticket) for ticket in self._machine.tickets)
        rows = sum(done.rows for done in outcome.heads)
        more = any(look.rows for look in self._looks.values())
        heads = sum(sum(done.spent.values()) for done in outcome.heads)
        seen = Seen(outcome.lanes, took, rows, backlog, more, heads)
        if not self.over:
            self._shape.learn(seen)

    def _learn(self, cycle: Cycle, rows: int, took: float) -> None:
        """What a turn cost, and which watermarks it has brought."""
        self._prospects.worked(rows, took)
        for work in cycle.heads:
            container = self._machine.container(work.ticket)
            if container.after is not None:
                time = container.after.times[container.source]
                self._prospects.came(container.source, time.watermark, self._cut(work.ticket))

    def _cut(self, ticket: int) -> float:
        """When an epoch was cut, by the wall clock."""
        return self._clock.now() - (self._clock.elapsed() - self._cut_at[ticket])

    def _look_round(self) -> None:
        """See how many slots there are now: executors come and go."""
        slots = self._shape.slots()
        if slots != self._session.slots:
            self._session = replace(self._session, slots=slots)
            if self._even_bundles:
                self._bundles = EvenBundles(slots)

    def facts(self) -> Facts:
        """What is known of the query now; safe from any thread, and never waits."""
        now, standing = self._clock.elapsed(), self._seat.standing()
        if standing is None:
            return replace(self._seen, now=now)
        since = standing.waiting_since
        return replace(
            self._seen,
            now=now,
            turn_since=None if since is None else now - (self._clock.now() - since),
            at_work=standing.at_work,
            memory_short=standing.short,
        )

    def _facts(self) -> Facts:
        found = Facts.of(
            self._deployment.program,
            self._machine.statistics(),
            self._looks,
            self._cut_at,
            self._clock.elapsed(),
        )
        return replace(
            found,
            committed_at=self._at.committed,
            job_since=self._at.job,
            firing=self._firing(found.now),
        )

    def _firing(self, now: float) -> Firing | None:
        """When a window is expected to fire next, in seconds of the query's clock."""
        if self._seat.alone:
            return None
        expected = self._prospects.expected()
        if expected is None:
            return None
        since = now - self._clock.now()
        low, high = expected.within(CONFIDENCE)
        return Firing(expected.at + since, low + since, high + since, CONFIDENCE)

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

    def rescale(self, lanes: int, reached: Callable[[], None], *, drained: bool = False) -> None:
        """Go on with so many lanes as soon as it can be; call at the first commit there.

        That is when those who are to get slices have most of their state. Who asks while a change
        is under way has the last word; those who asked before him are told when he is. `drained`,
        it is from the first epoch on that is not planned yet: no other is planned before it holds.
        """
        self._shape.rescale(lanes, reached, drained=drained)

    def when_caught_up(self, reached: Callable[[], None]) -> None:
        """Call when all that the source holds at the next look is committed."""
        self._asking.append(reached)

    def abandon(self) -> None:
        """Ask the executor to give up the job under way; safe from any thread."""
        self._seat.leave()
        self._executor.cancel()

    def close(self) -> None:
        """Let go of the thread that waits for jobs, and of the seat among others."""
        self._seat.leave()
        self._pool.shutdown(wait=False)

    # Planning

    def _plan(self) -> bool:
        if self._shape.turning:
            return False  # it is over in a cycle or two
        found = [self._plan_from(name) for name in self._intakes]
        if all(caught_up for _, caught_up in found):
            self._promise()
        return any(planned for planned, _ in found)

    def _plan_from(self, source: str) -> tuple[bool, bool]:
        """Cut what a source has, as far as there is room: whether something was, and all of it."""
        planned, caught_up = False, self._machine.at_end(source)
        while self._machine.wants_offer(source):
            with self._watch("latestOffset"):
                offer = self._intakes[source].look(self._clock.elapsed(), self._row_limit)
            self._looks[source] = self._looks[source].then(offer, self._clock.elapsed())
            forced = self._forced if not self._asking else not offer.empty
            caught_up = not offer.more
            if self._must_wait(source, offer):
                break
            given = Offered(replace(offer, forced=forced), self._clock.elapsed(), source)
            if not any(isinstance(command, Cut) for command in self._tell(given)):
                break
            planned, self._forced = True, False
            self._interrupt(source, offer)
        return planned, caught_up

    def _must_wait(self, source: str, offer: Offer) -> bool:
        """Whether a cut has to wait for an epoch at which the run dies.

        All that is cut before it is to be committed, and nothing is cut behind it.
        """
        if self._deadly is None and self._intakes[source].interruption(offer) == KILL:
            self._deadly = source
        if self._deadly is None:
            return False
        return source != self._deadly or self._doomed is not None or bool(self._machine.tickets)

    def _interrupt(self, source: str, offer: Offer) -> None:
        """Have a source end the run, kill it or keep it waiting, where it is one that does."""
        intake = self._intakes[source]
        match intake.interruption(offer):
            case Interruption("end"):
                self.stop(drain=True)
            case Interruption("kill"):
                assert self._deadly == source
                self._doomed = self._machine.last_cut
            case Interruption("wait", seconds):
                intake.pause(self._clock.elapsed() + seconds)

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

    def _at_rest(self) -> bool:
        """Commit what can be; whether nothing is left that was done."""
        self._commit_waiting()
        return not self._waiting

    def _is_idle(self) -> bool:
        return self._machine.idle and not self._waiting

    def _tell(self, *events: Event) -> list[Command]:
        commands = self._machine.handle(*events)
        for command in commands:
            match command:
                case Cut(ticket, source, offer):
                    self._intakes[source].take(offer)
                    self._looks[source] = self._looks[source].taken()
                    tables = self._tables.current(self._under_way.tables())
                    self._under_way.cut(ticket, source, offer, tables)
                    self._cut_at[ticket] = self._clock.elapsed()
                case PlanEpoch(epoch, ticket, source, offer):
                    tables = self._under_way[ticket].tables
                    with self._watch("walCommit"):
                        self._commits.plan(self._plan_of(epoch, source, offer, tables))
                    self._tell(Planned(epoch))
                case Finish():
                    self.over = True
                case Fail(reason, attempts):
                    message = f"the query failed {attempts} times in a row"
                    raise RunError(message, why=reason, so=advice(reason))
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
            owners=self._shape.configuration.version,
            memory=self._deployment.inputs[self._deployment.number(source)].source.memory(),
            tables=tables,
        )

    # Running

    def _submit(
        self,
        tasks: Sequence[Sequence[HeadItem]],
        lanes: Mapping[int, LaneJob],
        merges: Sequence[MergeItem],
    ) -> Future[CycleResult]:
        if not tasks and not lanes and not merges:
            nothing: Future[CycleResult] = Future()
            nothing.set_result(CycleResult((), {}))
            return nothing
        self._jobs += 1
        return self._pool.submit(self._executor.run, tasks, lanes, merges)

    def _rows_before(self, works: Iterable[LaneWork]) -> dict[int, Mapping[Partition, int]]:
        """How many rows each partition of an epoch's source had given before it, by ticket."""
        rows = {}
        for work in works:
            container = self._machine.container(work.ticket)
            assert container.before is not None
            rows[work.ticket] = container.before.rows.get(container.source, {})
        return rows

    # What came back

    def _outcome(self, pending: Future[CycleResult]) -> CycleResult | JobFailed:
        """Wait for a job; one that takes too long is given up, and its processes end."""
        if not wait([pending], self._job_timeout).done:
            self._executor.cancel()
            with suppress(JobFailed):
                return pending.result()
            return JobFailed(f"the job did not end within {self._job_timeout} s", died=True)
        try:
            return pending.result()
        except JobFailed as failure:
            return failure

    def _absorb(self, cycle: Cycle, result: CycleResult | JobFailed, job: Job) -> None:
        if isinstance(result, JobFailed):
            self._shape.failed()
            self._again(cycle, str(result))
            self._mind_death(cycle, result)
            return
        self._shape.take(result)
        self._refuse_errors(result)
        self._count("head", result.heads)
        self._count("lane", list(result.lanes.values()))
        for each in [done.fetched for done in result.lanes.values()]:
            self._fetched.update(each)
        for each in [done.fetched for done in result.merges]:
            self._fetched.update(each)
        self._watch.add("spark", job.overhead(result, self._executor.slots))
        self._merging.take(result.merges)
        if self._under_way.lost(result.lanes) or result.died:
            self._take_heads(cycle, result.heads)
            self._lanes_again(cycle, result)
            return
        self._deaths = 0
        self._take_lanes(cycle, result.lanes)
        self._take_heads(cycle, result.heads)
        self._shape.agree(result)

    def _lanes_again(self, cycle: Cycle, result: CycleResult) -> None:
        """Have lanes take their epochs again: some did not have their state, or died."""
        lanes = tuple(work.epoch for work in cycle.lanes)
        why = "a lane's process ended" if result.died else "a process lost its state"
        self._tell(WorkFailed((), lanes, why, counts=result.died))
        if result.died:
            self._mind_death(replace(cycle, heads=()), JobFailed(why, died=True))

    def _mind_death(self, cycle: Cycle, failure: JobFailed) -> None:
        """Ask whether a record is why, where processes end again and again."""
        self._deaths = self._deaths + 1 if failure.died else 0
        if self._deaths == ISOLATE_AFTER:
            self._isolate(cycle, failure)
            self._deaths = 0

    def _rows(self, ticket: int) -> int:
        return sum(done.rows for done in self._under_way[ticket].heads.values())

    def _count(self, kind: str, dones: Sequence[HeadDone | LaneDone]) -> None:
        for done in dones:
            for name, seconds in done.spent.items():
                self._tasks.add(f"{kind} {name}", seconds)

    def _again(self, cycle: Cycle, reason: str) -> None:
        heads = tuple(work.ticket for work in cycle.heads)
        lanes = tuple(work.epoch for work in cycle.lanes)
        self._tell(WorkFailed(heads, lanes, reason))

    def _isolate(self, cycle: Cycle, failure: JobFailed) -> None:
        """Look for a record at which processes end; if there is one, pass it over or name it."""
        with suppress(JobFailed):
            items = self._under_way.head_items(cycle.heads, self._intakes, self._bundles)
            found = poison_in_heads(items, self._trial)
            if found is None:
                works = [work for work in cycle.lanes if work.level == 1]
                read = {work.ticket: self._under_way[work.ticket].in_order for work in works}
                jobs = self._under_way.lane_jobs(works, self._rows_before(works), anywhere=True)
                found = poison_in_lanes(jobs, read, self._trial)
            if found is not None:
                self._pass_over(found, failure)

    def _trial(self, heads: list[HeadItem], lanes: dict[int, LaneJob]) -> CycleResult | None:
        outcome = self._outcome(self._submit([heads] if heads else [], lanes, ()))
        if not isinstance(outcome, JobFailed):
            return None if outcome.died else outcome
        if not outcome.died:
            raise outcome
        return None

    def _pass_over(self, found: Poison, failure: JobFailed) -> None:
        known = self._under_way[found.ticket]
        given = self._deployment.inputs[known.source]
        if given.head.entrance.on_error == "fail":
            raise _poisoned(given, known, found) from failure
        self._under_way.pass_over(found.ticket, found.split, found.row)
        self._tell(ReadAgain(found.ticket))

    def _take_heads(self, cycle: Cycle, heads: Sequence[HeadDone]) -> None:
        for done in self._under_way.take_heads(cycle.heads, heads):
            self._tell(done)

    def _take_lanes(self, cycle: Cycle, lanes: Mapping[int, LaneDone]) -> None:
        if not cycle.lanes:
            return
        for done in lanes.values():
            self._sizes.note(done)
        for group in self._under_way.take_lanes(cycle.lanes, lanes):
            self._waiting.append(group)
            self._merging.begin(group)
        self._tell(LanesDone(tuple(work.epoch for work in cycle.lanes)))

    def _refuse_errors(self, result: CycleResult) -> None:
        dones: list[HeadDone | LaneDone] = [*result.heads, *result.lanes.values()]
        for done in dones:
            if done.error is not None:
                raise self._blame.error(done.error)

    # Committing

    def _commit_waiting(self) -> bool:
        """Commit what is done, in order, up to what is still being put into one."""
        done = list(takewhile(self._merging.done, self._waiting))
        self._waiting = self._waiting[len(done) :]
        for group in done:
            self._refuse_doomed(group)
            self._commit(group)
        return bool(done)

    def _refuse_doomed(self, group: Group) -> None:
        """Die, if a source has said so, when all is done but for the commit."""
        if any(work.ticket == self._doomed for work in group.works):
            message = (
                f"the run was killed by its source before epoch {group.epochs[-1]} was committed"
            )
            why = "the source holds an item that does so, once (ABORT)"
            raise RunError(message, why=why, so="start it again: it goes on behind its last commit")

    def _commit(self, group: Group) -> None:
        deployment = self._deployment
        known = self._machine.container(group.works[-1].ticket).after
        assert known is not None
        with self._watch("merge"):
            staged = {name: self._merging.staged(name, group) for name in deployment.outputs}
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
            snapshots={operator: dict(paths) for operator, paths in group.snapshots.items()},
            staged=staged,
            statistics=self._statistics(),
            quarantined=self._quarantined(group),
            undivided=deployment.undivided,
            version=self._shape.configuration.version if deployment.stages else 0,
        )
        with self._watch("commitOffsets"):
            self._commits.commit(commit)
        now = self._clock.elapsed()
        for work in group.works:
            self._prospects.read(self._machine.container(work.ticket), self._cut(work.ticket))
        latencies = [now - self._cut_at.pop(work.ticket) for work in group.works]
        with self._watch("publish"):
            self._commits.publish()
        firings = self._prospects.committed(known.times, self._clock.now())
        self._prospects.count_rows(latencies)
        self.on_progress(self._progress(group, commit, latencies, firings))
        self._merging.forget(group)
        self._under_way.forget(work.ticket for work in group.works)
        self._tell(Committed(group.epochs[-1]))
        oldest = min(self._machine.tickets, default=self._machine.last_cut + 1)
        deployment.clean(before=oldest)
        self._executor.forget(oldest)
        self._keep_promises()
        self._shape.committed()

    def _statistics(self) -> dict[str, Json]:
        """What is told of a commit to who looks into the checkpoint."""
        at: dict[str, Json] = {COMMITTED_AT: int(self._clock.now() * 1_000_000)}
        return at if self._seat.alone else {**at, SESSION: self._among_others()}

    def _among_others(self) -> dict[str, Any]:
        """How it stands in its session; nothing where it is alone."""
        standing = self._seat.standing()
        if standing is None:
            return {} if self._prospects.goal is None else with_goal(self._prospects)
        return among_others(standing, self._prospect(), self._prospects, self._clock.now())

    def _quarantined(self, group: Group) -> dict[str, dict[Partition, tuple[int, ...]]]:
        """The records that were passed over in these epochs, by source and partition."""
        found: dict[str, dict[Partition, tuple[int, ...]]] = {}
        for ticket, before in self._rows_before(group.works).items():
            source = self._machine.container(ticket).source
            for name, rows in self._under_way.passed_over(ticket, before).items():
                mine = found.setdefault(source, {})
                mine[name] = (*mine.get(name, ()), *rows)
        return found

    def _progress(
        self,
        group: Group,
        commit: Commit,
        latencies: Sequence[float],
        firings: Sequence[float],
    ) -> dict[str, Any]:
        self._at.committed = now = self._clock.elapsed()
        seconds, self._at.told = now - self._at.told, now
        jobs, self._jobs = self._jobs, 0
        containers = [self._machine.container(work.ticket) for work in group.works]
        epochs = [self._under_way[work.ticket] for work in group.works]
        dones = [done for epoch in epochs for done in epoch.lanes.values()]
        read = [done for epoch in epochs for done in epoch.heads.values()]
        in_lanes = all(output.stage is not None for output in self._deployment.outputs.values())
        brought = Brought(
            at=self._clock.now(),
            epochs=containers,
            given=sum(done.rows for done in dones) if in_lanes else None,
            late=sum(done.late for done in dones),
            letters=sum(done.letters for done in dones) + sum(done.letters for done in read),
            changed=group.changed,
            origins=group.origins,
            scaling=self._shape.because,
            backups=self._shape.backups,
            written=group.written,
            state=self._sizes.of(self._under_way.files()),
            held=self._sizes.held(self._deployment.lanes),
            seconds=seconds,
            latencies=latencies,
            spent=self._watch.take(),
            tasks=self._tasks.take(),
            jobs=jobs,
            under_way=len(self._machine.tickets) - len(group.works),
            failures=self._machine.statistics().failures,
            sources=self._facts().sources,
            fetched=dict(self._fetched),
            firings=firings,
            session=self._among_others(),
        )
        if in_lanes:
            self._prospects.gave(sum(brought.rows.values()), brought.given or 0)
        self._fetched.clear()
        return progress_of(self._deployment, commit, brought)


def _divided(items: Sequence[HeadItem], tasks: int) -> list[list[HeadItem]]:
    """Splits for so many tasks, each about as many, neighbours together.

    Of many splits smaller tasks are made, so that a core which is done early takes another.
    """
    count = min(2 * tasks if len(items) >= 4 * tasks else tasks, len(items))
    bounds = [len(items) * at // count for at in range(count + 1)] if count else [0]
    return [list(items[low:high]) for low, high in pairwise(bounds)]


def _poisoned(given: Input, known: EpochUnderWay, found: Poison) -> RunError:
    """The error that names a record at which processes end."""
    assert known.splits is not None
    partition, split = known.splits[found.split]
    name = list(given.source.partitions())[partition]
    frame = given.source.frame(split, given.head.columns).slice(found.row, 1)
    (record,) = records_of(frame, frame.columns)
    message = f"{given.name}: a record ends every process that works on it: {as_json(record)}"
    have = f"partition {name!r}, row {found.row} of {split!r}"
    so = 'mend the function that takes it, or pass on_error="skip" or "dead_letter" to read(...)'
    return RunError(message, have=have, so=so)
