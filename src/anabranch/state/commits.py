"""The commit protocol, done: carries out the commit machine's commands on a store and on sinks.

It decides nothing. Whoever uses it calls from one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from anabranch.connectors.base import Sink
from anabranch.errors import AnabranchError, CheckpointError
from anabranch.state.commit import CommitMachine, CommitStatistics
from anabranch.state.description import Description
from anabranch.state.envelope import Json
from anabranch.state.layout import (
    LEASES,
    METADATA,
    Commit,
    EpochPlan,
    Metadata,
    lease_path,
    number_of,
    program_path,
    published_path,
)
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
    FindMetadata,
    Fold,
    Halt,
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
    Rewind,
    Start,
    WriteCommit,
    WriteDescription,
    WritePlan,
)
from anabranch.state.recovery import Recovered, read_plans, recover
from anabranch.state.store import AlreadyThere, Missing, Store


class Commits:
    """A run's checkpoint: opened, then planned and committed to, epoch by epoch.

    `plan` and `commit` return when what they were given is durable. What they cause besides,
    publishing, acknowledging and clearing away, is done by `publish`, so that it need not delay the
    next epoch.
    """

    def __init__(
        self, store: Store, sinks: Mapping[str, Sink], machine: CommitMachine | None = None
    ) -> None:
        """Use a store, and the program's sinks by name."""
        self._store = store
        self._sinks = dict(sinks)
        self._machine = machine or CommitMachine()
        self._later: deque[Command] = deque()
        self._metadata: Metadata | None = None
        self._recovered: Recovered | None = None
        self._sealed: Commit | None = None

    @property
    def run(self) -> int:
        """The number of this run's lease."""
        assert self._machine.run is not None, "open it first"
        return self._machine.run

    @property
    def identity(self) -> str:
        """The checkpoint's, from when it was begun: it is the same in every run of the query."""
        assert self._metadata is not None, "open it first"
        return self._metadata.id

    def open(
        self, program: str, *, holder: str, created: int, run_id: str | None = None
    ) -> Recovered:
        """Take the checkpoint over, or begin it; say where to go on.

        `created` is now, in microseconds since 1970; `holder` is told to whoever finds the
        checkpoint taken, as in "host:process".
        """
        metadata = Metadata(uuid4().hex, program, created)
        self._run(Open(metadata, run_id or uuid4().hex, holder))
        assert self._recovered is not None
        return self._recovered

    def describe(self, description: Description, dropped: Sequence[str] = ()) -> None:
        """Write down what the program keeps state for, before its first epoch is planned.

        The state of the operators in `dropped` ends with the first commit of this run that has
        epochs: until then the program before can still go on with it.
        """
        self._run(Describe(description, tuple(dropped)))

    def read_plans(self, path: str) -> tuple[EpochPlan, ...]:
        """The plans of a file that a commit names."""
        return read_plans(self._store, path)

    def plan(self, plan: EpochPlan, *following: EpochPlan) -> None:
        """Write down what an epoch will read, and maybe those behind it; then they may be read."""
        self._run(Plan(plan, following))

    def fold(self, plan: EpochPlan, *following: EpochPlan) -> None:
        """Have the plans of all epochs that are committed next in one file, instead of many."""
        self._run(Fold(plan, following))

    def commit(self, commit: Commit) -> Commit:
        """Commit a group of epochs that are done; returns it as it was written."""
        self._run(Propose(commit))
        assert self._sealed is not None
        return self._sealed

    def abort(
        self, epoch: int, staged: Mapping[str, Sequence[Json]], deltas: Sequence[str] = ()
    ) -> None:
        """Let go of what an attempt left that lost."""
        messages = {sink: tuple(each) for sink, each in staged.items()}
        self._run(Lost(epoch, messages, tuple(deltas)))

    def publish(self) -> None:
        """Publish all that is committed, acknowledge it, and clear away what is not needed."""
        while self._later:
            self._drain(self._perform(self._later.popleft()))

    def close(self) -> None:
        """End the run; what is committed and not published is published by the next."""
        self._run(Close())
        self._later.clear()

    def statistics(self) -> CommitStatistics:
        """How far the run is."""
        return self._machine.statistics()

    def story(self) -> list[str]:
        """The machine's last moves."""
        return self._machine.story()

    def _run(self, event: Event) -> None:
        self._drain(self._machine.handle(event))

    def _drain(self, commands: Sequence[Command]) -> None:
        """Do what cannot wait, and what follows from it; put the rest off."""
        left = deque(commands)
        while left:
            command = left.popleft()
            if _can_wait(command):
                self._later.append(command)
            else:
                left.extend(self._perform(command))

    def _perform(self, command: Command) -> list[Command]:
        """Do one command, tell the machine, return what it wants next."""
        if isinstance(command, Halt):
            self._later.clear()
            raise command.error from command.cause
        try:
            event = self.DOING[type(command)](self, command)
        except AnabranchError as error:
            self._machine.handle(Failed(error))
            self._later.clear()
            raise
        return self._machine.handle(event) if event is not None else []

    def _find_metadata(self, command: FindMetadata) -> Event:
        made = self._created(METADATA, command.metadata.to_bytes())
        data = None if made else self._store.read(METADATA)
        self._metadata = command.metadata if data is None else Metadata.from_bytes(METADATA, data)
        return MetadataFound(self._metadata)

    def _list_leases(self, command: ListLeases) -> Event:
        numbers = map(number_of, self._store.list(LEASES))
        highest = max((number for number in numbers if number is not None), default=0)
        return LeasesListed(command.purpose, highest)

    def _create_lease(self, command: CreateLease) -> Event:
        lease = command.lease
        taken = self._created(lease_path(lease.number), lease.to_bytes())
        return LeaseCreated(lease.number) if taken else LeaseRefused(lease.number)

    def _read_contents(self, command: ReadContents) -> Event:
        self._store.sweep()
        try:
            return ContentsRead(recover(self._store, command.keep))
        except CheckpointError as error:
            return ContentsUnreadable(error)
        except Missing as error:
            message = f"checkpoint file {error} went away while it was read"
            return ContentsUnreadable(CheckpointError(message, so="run the query once at a time"))

    def _write_description(self, command: WriteDescription) -> Event:
        run = command.run
        written = self._created(program_path(run), command.description.to_bytes())
        return DescriptionWritten(run) if written else DescriptionRefused(run)

    def _write_plan(self, command: WritePlan) -> Event:
        plan = command.plan
        written = self._created(plan.path, plan.to_bytes(command.following))
        return PlanWritten(plan.epoch) if written else PlanRefused(plan.epoch)

    def _write_commit(self, command: WriteCommit) -> Event:
        commit = command.commit
        written = self._created(commit.path, commit.to_bytes())
        return CommitWritten(commit.number) if written else CommitRefused(commit.number)

    def _publish(self, command: Publish) -> Event:
        sink = self._sinks.get(command.sink)
        if sink is None:
            message = f"the program no longer writes to sink {command.sink!r}"
            why = f"its output of epoch {command.epoch} is committed and not published"
            raise CheckpointError(message, why=why, so="run the old program once more to its end")
        try:
            sink.publish(command.messages, command.epoch)
        except Exception as error:  # noqa: BLE001 - whatever a user's sink raises ends the run
            return PublishFailed(command.sink, command.epoch, error)
        return Published(command.sink, command.epoch)

    def _acknowledge(self, command: Acknowledge) -> Event:
        acknowledgement = command.acknowledgement
        # That it is there already is as good: somebody published the same before us.
        self._created(published_path(acknowledgement.number), acknowledgement.to_bytes())
        return Acknowledged(acknowledgement.number)

    def _note_opened(self, command: Opened) -> None:
        self._recovered = command.recovered

    def _note_committed(self, command: Committed) -> None:
        self._sealed = command.commit

    def _note_started(self, command: Start) -> None:
        """Whoever called `plan` knows by its return."""

    def _rewind(self, command: Rewind) -> None:
        for sink in self._sinks.values():
            if sink.visible == "early":
                sink.rewind(command.after)

    def _abort(self, command: Abort) -> None:
        self._sinks[command.sink].abort(command.messages, command.epoch)

    def _delete(self, command: Delete) -> None:
        for path in command.paths:
            self._store.delete(path)

    def _created(self, path: str, data: bytes) -> bool:
        try:
            self._store.create(path, data)
        except AlreadyThere:
            return False
        return True

    DOING: ClassVar[Mapping[type, Any]] = {
        FindMetadata: _find_metadata,
        ListLeases: _list_leases,
        CreateLease: _create_lease,
        ReadContents: _read_contents,
        WriteDescription: _write_description,
        WritePlan: _write_plan,
        WriteCommit: _write_commit,
        Publish: _publish,
        Acknowledge: _acknowledge,
        Opened: _note_opened,
        Rewind: _rewind,
        Start: _note_started,
        Committed: _note_committed,
        Abort: _abort,
        Delete: _delete,
    }


def _can_wait(command: Command) -> bool:
    """Whether nothing that comes after in the log depends on it."""
    match command:
        case ListLeases("publish") | Publish() | Acknowledge() | Abort() | Delete():
            return True
    return False
