"""The commit protocol, decided: who owns a checkpoint, what may run, what is durable and shown.

    NEW -> FINDING -> TAKING -> READING -> OPENING -> OPEN -> CLOSED
                                   ^----------+
    any of these -> STOPPED, when fenced, or when the store or a sink failed

A run takes the next lease, reads, and makes a commit without epochs: with it the log is closed to
every older run, since commits are numbered and each number is made once. Then:

- *Describe*: what the program keeps state for, before its first epoch, for those who go on later.
- *Plan*: an epoch's work starts when its plan, and those before it, are durable. Plans of many
  epochs that are about to be committed may be folded into one file.
- *Commit*: groups of consecutive epochs in order, one being written at a time, any number waiting.
  Each looks for a newer lease before, to stop in time, and after: the file of a number could be
  made again once a newer run has let go of it, but not without seeing that run's lease.
- *Publish*: committed output in log order, each sink on its own, one epoch at a time; then an
  acknowledgement. Until that is durable, output is published again by the next run.
- *Retain*: what the last commits need stays, all else goes.

The machine never waits, reads no clock and touches no file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, TypeAlias

from anabranch.errors import AnabranchError, CheckpointError, RunError
from anabranch.state.layout import (
    FORMAT,
    Acknowledgement,
    Commit,
    EpochPlan,
    Lease,
    commit_path,
    lease_path,
    plan_of,
    published_path,
)
from anabranch.state.outbox import Outbox
from anabranch.state.protocol import (
    Abort,
    Acknowledge,
    Acknowledged,
    Close,
    Command,
    CommitRefused,
    Committed,
    CommitWritten,
    ContentsRead,
    ContentsUnreadable,
    CreateLease,
    Delete,
    Describe,
    DescriptionRefused,
    DescriptionWritten,
    Event,
    Failed,
    Fenced,
    FindMetadata,
    Fold,
    Halt,
    IllegalMove,
    LeaseCreated,
    LeaseRefused,
    LeasesListed,
    ListLeases,
    Lost,
    MetadataFound,
    Open,
    Opened,
    Plan,
    PlanRefused,
    PlanWritten,
    Propose,
    Publish,
    Published,
    PublishFailed,
    ReadContents,
    Request,
    Rewind,
    Start,
    WriteCommit,
    WriteDescription,
    WritePlan,
)
from anabranch.state.recovery import Recovered
from anabranch.state.retention import Retention

STORY = 200
"""Moves that are remembered for error messages."""


class Phase(Enum):
    """Where a run is."""

    NEW = "new"
    FINDING = "finding the metadata"
    TAKING = "taking a lease"
    READING = "reading the checkpoint"
    OPENING = "closing the log to older runs"
    OPEN = "open"
    STOPPED = "stopped"
    CLOSED = "closed"


class Step(Enum):
    """Where the one commit is that is being written."""

    CHECKING = "looking for a newer lease"
    WRITING = "writing the record"
    VERIFYING = "looking again"


@dataclass(frozen=True, slots=True)
class CommitStatistics:
    """What a run has committed and published so far."""

    phase: str
    run: int | None
    last_epoch: int
    last_commit: int | None
    waiting: int
    unpublished: int
    acknowledged: int | None


_Handler: TypeAlias = Callable[["CommitMachine", Any], list[Command]]


class CommitMachine:
    """Events in, commands out. `keep` commits can be gone back to; None: all.

    >>> from anabranch.state.layout import Metadata
    >>> machine = CommitMachine()
    >>> machine.handle(Open(Metadata("q", "views", 0), "r", "me"))
    [FindMetadata(metadata=Metadata(id='q', program='views', created=0, format=1))]
    """

    def __init__(self, *, keep: int | None = 100) -> None:
        """Begin before the beginning: the first event is `Open`."""
        self.phase = Phase.NEW
        self._keep = keep
        self._opening: Open | None = None
        self._run: int | None = None
        self._recovered: Recovered | None = None
        self._retention = Retention(keep)
        self._plans: dict[int, str] = {}
        self._sources: dict[int, str] = {}
        self._latest: dict[str, str] = {}
        self._dropped: tuple[str, ...] = ()
        self._begun = False
        self._refused: int | None = None
        self._floor = 0
        self._doubt: CheckpointError | None = None
        self._unwritten: set[int] = set()
        """The first epochs of files of plans that are being written."""
        self._folded: dict[str, int] = {}
        """Files of plans that are in others too, each with the epoch whose commit says so."""
        self._planned = self._started = self._proposed = self._committed = -1
        self._queue: deque[Commit] = deque()
        self._writing: tuple[Commit, Step] | None = None
        self._outbox = Outbox()
        self._lost: dict[int, set[str]] = {}
        self._error: RunError | CheckpointError | None = None
        self._story: deque[str] = deque(maxlen=STORY)

    # ---- The outside ------------------------------------------------------------------------

    def handle(self, *events: Event) -> list[Command]:
        """Take what happened; return what to do next, in this order."""
        commands: list[Command] = []
        for event in events:
            answer = self._move(event)
            self._story.append(_line(self.phase, event, answer))
            commands += answer
        return commands

    def story(self) -> list[str]:
        """The last moves, oldest first: the event, the phase after it, the commands."""
        return list(self._story)

    @property
    def run(self) -> int | None:
        """The number of this run's lease, once it has one."""
        return self._run

    def statistics(self) -> CommitStatistics:
        """How far the run is."""
        newest = self._retention.newest
        return CommitStatistics(
            phase=self.phase.value,
            run=self._run,
            last_epoch=self._committed,
            last_commit=newest.number if newest else None,
            waiting=len(self._queue) + (self._writing is not None),
            unpublished=self._outbox.waiting,
            acknowledged=self._outbox.acknowledged,
        )

    def validate(self) -> None:
        """Assert what always holds; for tests, after every move."""
        if self.phase in (Phase.READING, Phase.OPENING, Phase.OPEN):
            assert self._run is not None
        assert self._committed <= self._proposed <= self._started <= self._planned
        numbers = [each.number for each in self._retention.commits]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        in_flight = [self._writing[0]] if self._writing else []
        expected = self._committed + 1
        for commit in (*in_flight, *self._queue):
            assert commit.first == expected
            expected = commit.last + 1
        assert expected == self._proposed + 1
        assert self._writing is not None or not self._queue or self.phase is not Phase.OPEN
        self._outbox.validate()

    # ---- Moving -----------------------------------------------------------------------------

    def _move(self, event: Event) -> list[Command]:
        if self.phase in (Phase.STOPPED, Phase.CLOSED):
            return self._after_the_end(event)
        handler = self.TRANSITIONS.get((self.phase, type(event))) or self.ALWAYS.get(type(event))
        if handler is None:
            what = f"{type(event).__name__} while {self.phase.value}"
            raise self._illegal(what)
        return handler(self, event)

    def _after_the_end(self, event: Event) -> list[Command]:
        """What became of old commands no longer matters; new requests are refused."""
        if isinstance(event, Request) and not isinstance(event, Close):
            raise self._error or self._illegal(f"{type(event).__name__} while {self.phase.value}")
        return []

    def _illegal(self, what: str) -> IllegalMove:
        story = " | ".join([*self._story][-6:])
        return IllegalMove(f"the commit protocol does not allow this: {what}", have=story)

    def _stop(
        self, error: RunError | CheckpointError, cause: BaseException | None = None
    ) -> list[Command]:
        self.phase, self._error = Phase.STOPPED, error
        return [Halt(error, cause)]

    def _fence(self, newer: int | None, why: str) -> list[Command]:
        message = f"run {self._run} of this query was stopped: another run owns its checkpoint"
        told = f"; {lease_path(newer)} says who it is" if newer else ""
        so = f"run the query once at a time{told}. Nothing was lost or written twice"
        return self._stop(Fenced(message, why=why, so=so))

    def _fenced_by(self, highest: int) -> list[Command] | None:
        if self._run is None or highest <= self._run:
            return None
        return self._fence(highest, f"run {highest} has taken the lease")

    # ---- Opening ----------------------------------------------------------------------------

    def _open(self, event: Open) -> list[Command]:
        self._opening, self.phase = event, Phase.FINDING
        return [FindMetadata(event.metadata)]

    def _found(self, event: MetadataFound) -> list[Command]:
        assert self._opening is not None
        wanted, found = self._opening.metadata, event.metadata
        if found.format > FORMAT:
            message = "the checkpoint was written by a newer version of Anabranch"
            why = f"its format is {found.format}, this version reads {FORMAT}"
            return self._stop(CheckpointError(message, why=why, so="run that version"))
        if found.program != wanted.program:
            message = f"the checkpoint belongs to program {found.program!r}, not {wanted.program!r}"
            so = "choose another checkpoint=, or give the program its old name"
            return self._stop(CheckpointError(message, so=so))
        self.phase = Phase.TAKING
        return [ListLeases("take")]

    def _take(self, event: LeasesListed) -> list[Command]:
        """Take the number after the highest; having it, see that it is the highest."""
        assert self._opening is not None
        if self._run is None:
            opening, number = self._opening, max(event.highest, self._floor) + 1
            if number == self._refused:
                return self._obstructed(lease_path(number))
            return [CreateLease(Lease(number, opening.run_id, opening.holder))]
        if fenced := self._fenced_by(event.highest):
            return fenced
        self.phase, self._refused = Phase.READING, None
        return [ReadContents(self._keep)]

    def _taken(self, event: LeaseCreated) -> list[Command]:
        self._run = event.number
        return [ListLeases("take")]

    def _take_again(self, event: LeaseRefused) -> list[Command]:
        self._refused = event.number
        return [ListLeases("take")]

    def _obstructed(self, path: str) -> list[Command]:
        """A name is taken and yet not listed: without this the two would be tried for ever."""
        message = f"{path} of the checkpoint is there and is no file"
        so = "see who put it there, and remove it, or choose another checkpoint="
        return self._stop(CheckpointError(message, so=so))

    def _read(self, event: ContentsRead) -> list[Command]:
        newest = event.recovered.history[-1] if event.recovered.history else None
        if newest is not None and self._run is not None and newest.run >= self._run:
            return self._take_above(newest.run)
        self._recovered, self.phase = event.recovered, Phase.OPENING
        self._retention = Retention(self._keep)
        for commit in event.recovered.history:
            self._retention.add(_light(commit))
        # What this lets go of is among the garbage that was found.
        self._retention.expire(event.recovered.published_up_to)
        self._committed = self._proposed = newest.last if newest else -1
        self._plans = {plan.epoch: plan.path for plan in event.recovered.plans}
        self._sources = {plan.epoch: plan.source for plan in event.recovered.plans}
        self._latest = {name: plan.path for name, plan in event.recovered.latest.items()}
        self._planned = self._started = max(self._plans, default=self._committed)
        number = newest.number + 1 if newest else 1
        if number == self._refused:
            return self._obstructed(commit_path(number))
        return self._write_next(_opening_commit(newest))

    def _unreadable(self, event: ContentsUnreadable) -> list[Command]:
        """Look whether a newer run is clearing away already, and try once more before giving up."""
        if str(event.error) == str(self._doubt):
            return self._stop(event.error)
        self.phase, self._doubt = Phase.TAKING, event.error
        return [ListLeases("take")]

    def _take_above(self, run: int) -> list[Command]:
        """Take a lease above all runs: leases were lost, or are not part of a savepoint."""
        self.phase, self._run, self._floor = Phase.TAKING, None, run
        return [ListLeases("take")]

    def _read_again(self, event: CommitRefused) -> list[Command]:
        """An older run was quicker; its commit is as good as any, and the last it makes."""
        self.phase, self._writing, self._refused = Phase.READING, None, event.number
        return [ReadContents(self._keep)]

    def _opened(self, commit: Commit) -> list[Command]:
        assert self._recovered is not None
        recovered, self.phase = self._recovered, Phase.OPEN
        for each in recovered.unpublished:
            self._outbox.put(each.number, each.sink, each.epoch, each.messages)
        self._outbox.acknowledged = recovered.acknowledged
        self._recovered = None
        rewind = [Rewind(commit.last)] if recovered.commit or recovered.plans else []
        garbage = [Delete(recovered.garbage)] if recovered.garbage else []
        return [*rewind, Opened(recovered), *self._pump(), *garbage]

    # ---- Planning ---------------------------------------------------------------------------

    def _describe(self, event: Describe) -> list[Command]:
        if self._begun:
            what = "describing the program behind its first plan or commit"
            raise self._illegal(what)
        assert self._run is not None
        self._dropped = event.dropped
        return [WriteDescription(self._run, event.description)]

    def _description_written(self, event: DescriptionWritten) -> list[Command]:  # noqa: ARG002
        return []

    def _description_refused(self, event: DescriptionRefused) -> list[Command]:
        return self._fence(None, f"another process described its program as run {event.run}")

    def _plan(self, event: Plan) -> list[Command]:
        first, following = self._own(event.plan), tuple(map(self._own, event.following))
        for plan in (first, *following):
            if plan.epoch != self._planned + 1:
                what = f"planning epoch {plan.epoch} after {self._planned}"
                raise self._illegal(what)
            self._planned = plan.epoch
            self._plans[plan.epoch] = first.path
            self._sources[plan.epoch] = plan.source
        self._begun = True
        self._unwritten.add(first.epoch)
        return [WritePlan(first, tuple(replace(each, file=first.epoch) for each in following))]

    def _fold(self, event: Fold) -> list[Command]:
        """Have one file instead of many; those go when it is committed which one counts."""
        plans = [replace(self._own(each), file=None) for each in (event.plan, *event.following)]
        first, last = plans[0].epoch, plans[-1].epoch
        if first != self._proposed + 1 or last > self._started or self._unwritten:
            what = f"folding the plans of epochs {first} to {last}"
            what += f" when {self._proposed} is proposed and {self._started} started"
            raise self._illegal(what)
        behind = tuple(replace(each, file=first, last=last) for each in plans[1:])
        head = replace(plans[0], last=last)
        for each in (head, *behind):
            self._folded[self._plans[each.epoch]] = last
            self._plans[each.epoch] = head.path
        self._unwritten.add(first)
        return [WritePlan(head, behind)]

    def _own(self, plan: EpochPlan) -> EpochPlan:
        assert self._run is not None
        return replace(plan, run=self._run)

    def _plan_written(self, event: PlanWritten) -> list[Command]:
        """Start what is durable with all before it: after a crash a gap would end the log."""
        self._unwritten.discard(event.epoch)
        begin = self._started + 1
        self._started = min(self._unwritten, default=self._planned + 1) - 1
        return [Start(epoch) for epoch in range(begin, self._started + 1)]

    def _plan_refused(self, event: PlanRefused) -> list[Command]:
        return self._fence(None, f"another process planned epoch {event.epoch} as this very run")

    # ---- Committing -------------------------------------------------------------------------

    def _propose(self, event: Propose) -> list[Command]:
        commit = event.commit
        if self._is_repeated(commit):
            return []
        if commit.is_opening or commit.first != self._proposed + 1 or commit.last > self._started:
            what = f"committing epochs {commit.first} to {commit.last}"
            what += f" when {self._proposed} is proposed and {self._started} started"
            raise self._illegal(what)
        if named := self._lost_in(commit):
            what = f"committing what an attempt that lost wrote: {named}"
            raise self._illegal(what)
        self._begun = True
        self._proposed = commit.last
        if self._writing is None:
            return self._write_next(commit)
        self._queue.append(commit)
        return []

    def _is_repeated(self, commit: Commit) -> bool:
        """Whether a group was proposed before, as when a message comes twice."""
        if commit.first > self._proposed or commit.is_opening:
            return False
        writing = [self._writing[0]] if self._writing else []
        return any(
            (each.first, each.last, each.deltas) == (commit.first, commit.last, commit.deltas)
            for each in (*self._retention.commits, *writing, *self._queue)
        )

    def _lost_in(self, commit: Commit) -> set[str]:
        lost = {
            path
            for epoch in range(commit.first, commit.last + 1)
            for path in self._lost.get(epoch, ())
        }
        return lost & set(commit.delta_paths)

    def _write_next(self, commit: Commit) -> list[Command]:
        self._writing = self._sealed(commit), Step.CHECKING
        return [ListLeases("commit")]

    def _sealed(self, commit: Commit) -> Commit:
        """The commit with what only its place in the log tells."""
        assert self._run is not None
        newest = self._retention.newest
        number = newest.number + 1 if newest else 1
        behind = [path for epoch, path in sorted(self._plans.items()) if epoch > commit.last]
        epochs = range(commit.first, commit.last + 1)
        self._latest |= {self._sources[each]: self._plans[each] for each in epochs}
        dropped = () if commit.is_opening else self._dropped
        self._dropped = self._dropped if commit.is_opening else ()
        sealed = replace(
            commit,
            number=number,
            run=self._run,
            parent=newest.number if newest else None,
            plans=tuple(dict.fromkeys(self._plans[each] for each in epochs)),
            adopted=tuple(dict.fromkeys(path for path in behind if self._is_adopted(path))),
            latest=dict(self._latest),
            dropped=dropped,
        )
        return replace(sealed, state_from=self._retention.state_from(sealed))

    def _is_adopted(self, path: str) -> bool:
        parts = plan_of(path)
        return parts is not None and parts[1] != self._run

    def _leases_listed(self, event: LeasesListed) -> list[Command]:
        if fenced := self._fenced_by(event.highest):
            return fenced
        if event.purpose == "publish":
            self._outbox.clear()
            return self._pump()
        if event.purpose == "verify":
            return self._verified()
        return [WriteCommit(self._advance(Step.CHECKING, Step.WRITING))]

    def _commit_written(self, event: CommitWritten) -> list[Command]:
        self._expect(event.number)
        self._advance(Step.WRITING, Step.VERIFYING)
        return [ListLeases("verify")]

    def _commit_refused(self, event: CommitRefused) -> list[Command]:
        self._expect(event.number)
        return self._fence(None, f"another run has made commit {event.number}")

    def _verified(self) -> list[Command]:
        commit = self._advance(Step.VERIFYING, Step.VERIFYING)
        self._writing = None
        self._retention.add(_light(commit))
        self._committed = commit.last
        if self.phase is Phase.OPENING:
            return self._opened(commit)
        return [Committed(commit), *self._after_commit(commit)]

    def _after_commit(self, commit: Commit) -> list[Command]:
        for epoch in range(commit.first, commit.last + 1):
            self._plans.pop(epoch, None)
            self._sources.pop(epoch, None)
            self._lost.pop(epoch, None)
        for sink, entries in commit.staged.items():
            for epoch, messages in entries:
                self._outbox.put(commit.number, sink, epoch, messages)
        following = self._write_next(self._queue.popleft()) if self._queue else []
        # A file of an older run may have plans of epochs that are still to come.
        needed = set(self._plans.values())
        gone = tuple(
            path
            for path, last in self._folded.items()
            if last <= commit.last and path not in needed
        )
        self._folded = {path: at for path, at in self._folded.items() if path not in gone}
        folded = [Delete(gone)] if gone else []
        return [*following, *self._pump(), *folded, *self._retain()]

    def _advance(self, before: Step, after: Step) -> Commit:
        if self._writing is None or self._writing[1] is not before:
            at = self._writing[1].value if self._writing else "not writing a commit"
            what = f"an outcome of {before.value} while {at}"
            raise self._illegal(what)
        self._writing = self._writing[0], after
        return self._writing[0]

    def _expect(self, number: int) -> None:
        if self._writing is None or self._writing[0].number != number:
            what = f"an outcome of commit {number}, which is not being written"
            raise self._illegal(what)

    # ---- Publishing -------------------------------------------------------------------------

    def _pump(self) -> list[Command]:
        """Whatever the outbox can do next: ask whether we may, publish, acknowledge."""
        commands: list[Command] = []
        if self._outbox.ask():
            commands.append(ListLeases("publish"))
        commands += (Publish(*each) for each in self._outbox.take())
        if (number := self._outbox.to_acknowledge()) is not None:
            assert self._run is not None
            commands.append(Acknowledge(Acknowledgement(number, self._run)))
        return commands

    def _published(self, event: Published) -> list[Command]:
        if not self._outbox.published(event.sink, event.epoch):
            return []
        return self._pump()

    def _publish_failed(self, event: PublishFailed) -> list[Command]:
        message = f"sink {event.sink!r} could not publish epoch {event.epoch}"
        so = "mend the sink and start again: the epoch is committed and is published first"
        error = event.error
        why, site = str(error) or type(error).__name__, None
        if isinstance(error, AnabranchError):
            why, site = "; ".join(filter(None, (error.what, error.why))), error.site
        return self._stop(RunError(message, site=site, why=why, so=so), event.error)

    def _acknowledged(self, event: Acknowledged) -> list[Command]:
        if not self._outbox.was_acknowledged(event.number):
            return []
        return [*self._pump(), *self._retain()]

    def _retain(self) -> list[Command]:
        newest = self._retention.newest
        published = self._outbox.published_up_to(newest.number if newest else 0)
        old = [published_path(number) for number in self._outbox.superseded()]
        paths = (*self._retention.expire(published), *old)
        return [Delete(paths)] if paths else []

    # ---- Losing, failing, closing -----------------------------------------------------------

    def _abort(self, event: Lost) -> list[Command]:
        """Let go of what a losing attempt left, never of what a commit names."""
        named = set(self._named())
        paths = tuple(path for path in event.deltas if path not in named)
        if event.epoch > self._committed:
            self._lost.setdefault(event.epoch, set()).update(paths)
        aborts = (
            Abort(sink, event.epoch, left)
            for sink, messages in event.staged.items()
            if (left := self._unnamed(sink, event.epoch, messages))
        )
        return [*aborts, *([Delete(paths)] if paths else [])]

    def _named(self) -> Iterator[str]:
        for commit in (*self._retention.commits, *self._queue):
            yield from commit.delta_paths
        if self._writing is not None:
            yield from self._writing[0].delta_paths

    def _unnamed(self, sink: str, epoch: int, messages: tuple[Any, ...]) -> tuple[Any, ...]:
        winners = list(self._outbox.messages(sink, epoch))
        for commit in (*self._queue, *([self._writing[0]] if self._writing else [])):
            winners += (
                message
                for each, staged in commit.staged.get(sink, ())
                if each == epoch
                for message in staged
            )
        return tuple(message for message in messages if message not in winners)

    def _fail(self, event: Failed) -> list[Command]:
        error = event.error
        known = error if isinstance(error, RunError | CheckpointError) else RunError(str(error))
        return self._stop(known)

    def _close(self, event: Close) -> list[Command]:  # noqa: ARG002
        self.phase = Phase.CLOSED
        return []

    # ---- The table --------------------------------------------------------------------------

    TRANSITIONS: ClassVar[Mapping[tuple[Phase, type], _Handler]] = {
        (Phase.NEW, Open): _open,
        (Phase.FINDING, MetadataFound): _found,
        (Phase.TAKING, LeasesListed): _take,
        (Phase.TAKING, LeaseCreated): _taken,
        (Phase.TAKING, LeaseRefused): _take_again,
        (Phase.READING, ContentsRead): _read,
        (Phase.READING, ContentsUnreadable): _unreadable,
        (Phase.OPENING, LeasesListed): _leases_listed,
        (Phase.OPENING, CommitWritten): _commit_written,
        (Phase.OPENING, CommitRefused): _read_again,
        (Phase.OPEN, LeasesListed): _leases_listed,
        (Phase.OPEN, Describe): _describe,
        (Phase.OPEN, DescriptionWritten): _description_written,
        (Phase.OPEN, DescriptionRefused): _description_refused,
        (Phase.OPEN, Plan): _plan,
        (Phase.OPEN, Fold): _fold,
        (Phase.OPEN, PlanWritten): _plan_written,
        (Phase.OPEN, PlanRefused): _plan_refused,
        (Phase.OPEN, Propose): _propose,
        (Phase.OPEN, CommitWritten): _commit_written,
        (Phase.OPEN, CommitRefused): _commit_refused,
        (Phase.OPEN, Published): _published,
        (Phase.OPEN, PublishFailed): _publish_failed,
        (Phase.OPEN, Acknowledged): _acknowledged,
        (Phase.OPEN, Lost): _abort,
    }
    ALWAYS: ClassVar[Mapping[type, _Handler]] = {Failed: _fail, Close: _close}


def _opening_commit(newest: Commit | None) -> Commit:
    """A commit without epochs, that says again where the log is."""
    if newest is None:
        return Commit(first=0, last=-1)
    without: dict[str, Any] = {"deltas": {}, "snapshots": {}, "staged": {}, "statistics": {}}
    return replace(newest, first=newest.last + 1, dropped=(), **without)


def _light(commit: Commit) -> Commit:
    """What retention looks at: messages may be large, and old ones are published."""
    return replace(commit, staged={}, statistics={})


def _line(phase: Phase, event: Event, commands: list[Command]) -> str:
    told = ", ".join(type(command).__name__ for command in commands)
    return f"{_short(event)} -> {phase.name}: {told or '-'}"


def _short(event: Event) -> str:
    """An event with the numbers that tell it apart."""
    match event:
        case Plan(plan):
            return f"Plan({plan.epoch})"
        case Propose(commit):
            return f"Propose({commit.first}..{commit.last})"
        case LeasesListed(purpose, highest):
            return f"LeasesListed({purpose}, {highest})"
        case Published(sink, epoch):
            return f"Published({sink}, {epoch})"
    numbers = (getattr(event, name, None) for name in ("number", "epoch", "highest"))
    return f"{type(event).__name__}({next((str(n) for n in numbers if n is not None), '')})"
