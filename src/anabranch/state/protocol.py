"""What the commit machine is told and what it asks for: events and commands, all of them values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from anabranch.errors import AnabranchError, CheckpointError, RunError
from anabranch.state.description import Description
from anabranch.state.envelope import Json
from anabranch.state.layout import Acknowledgement, Commit, EpochPlan, Lease, Metadata
from anabranch.state.recovery import Recovered


class Fenced(RunError):
    """A newer run has taken the checkpoint; this one must stop, and has harmed nothing."""


class IllegalMove(RunError):
    """A driver asked for what the protocol forbids: a mistake in Anabranch, told with its story."""


Purpose: TypeAlias = Literal["take", "commit", "verify", "publish"]
"""Why leases are listed: to take the next, or to see around a step that none is newer."""


# ---- Events: what the driver wants --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a run: `metadata` is used where there is no checkpoint yet."""

    metadata: Metadata
    run_id: str
    holder: str


@dataclass(frozen=True, slots=True)
class Describe:
    """Say what the run keeps state for; the state of `dropped` ends with its first epochs."""

    description: Description
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """An epoch is to be run, and maybe those behind it; their work waits for `Start`.

    Their plans are one file.
    """

    plan: EpochPlan
    following: tuple[EpochPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class Fold:
    """Put the plans of the next epochs to be committed into one file, instead of those they are in.

    They are all that are planned up to the last of these.
    """

    plan: EpochPlan
    following: tuple[EpochPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class Propose:
    """A group of epochs is done, and its deltas and output are there, to be committed."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt at an epoch lost: what it staged and wrote is wanted by nobody."""

    epoch: int
    staged: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    deltas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Close:
    """End the run; what is not committed is tentative, what is not published is published later."""


# ---- Events: what became of commands ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetadataFound:
    """The checkpoint is this program's: made now, or found."""

    metadata: Metadata


@dataclass(frozen=True, slots=True)
class LeasesListed:
    """The highest lease there is, 0 for none."""

    purpose: Purpose
    highest: int


@dataclass(frozen=True, slots=True)
class LeaseCreated:
    """A lease is ours."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """Somebody else took that number."""

    number: int


@dataclass(frozen=True, slots=True)
class ContentsRead:
    """What is in the checkpoint."""

    recovered: Recovered


@dataclass(frozen=True, slots=True)
class ContentsUnreadable:
    """What is in the checkpoint cannot be, or changed while it was read."""

    error: CheckpointError


@dataclass(frozen=True, slots=True)
class DescriptionWritten:
    """What the run keeps state for is durable."""

    run: int


@dataclass(frozen=True, slots=True)
class DescriptionRefused:
    """Somebody else wrote it."""

    run: int


@dataclass(frozen=True, slots=True)
class PlanWritten:
    """The plan of an epoch is durable, and those that are in one file with it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """Somebody else wrote that plan."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CommitWritten:
    """A commit record is durable."""

    number: int


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """Somebody else made that commit."""

    number: int


@dataclass(frozen=True, slots=True)
class Published:
    """A sink has made an epoch visible; told again, it changes nothing."""

    sink: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """A sink could not, or nobody knows whether it could."""

    sink: str
    epoch: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """It is durable that all output up to a commit is visible."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The store failed: what it was doing may or may not have happened."""

    error: AnabranchError


Request: TypeAlias = Open | Describe | Plan | Fold | Propose | Lost | Close
Outcome: TypeAlias = (
    MetadataFound
    | LeasesListed
    | LeaseCreated
    | LeaseRefused
    | ContentsRead
    | ContentsUnreadable
    | DescriptionWritten
    | DescriptionRefused
    | PlanWritten
    | PlanRefused
    | CommitWritten
    | CommitRefused
    | Published
    | PublishFailed
    | Acknowledged
    | Failed
)
Event: TypeAlias = Request | Outcome


# ---- Commands: answered by an event -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindMetadata:
    """Make the metadata file, or read the one that is there -> MetadataFound."""

    metadata: Metadata


@dataclass(frozen=True, slots=True)
class ListLeases:
    """List the leases -> LeasesListed."""

    purpose: Purpose


@dataclass(frozen=True, slots=True)
class CreateLease:
    """Make a lease -> LeaseCreated | LeaseRefused."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ReadContents:
    """Sweep the store, then recover from it, keeping so many commits.

    -> ContentsRead | ContentsUnreadable
    """

    keep: int | None


@dataclass(frozen=True, slots=True)
class WriteDescription:
    """Make it durable what a run keeps state for -> DescriptionWritten | DescriptionRefused."""

    run: int
    description: Description


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Make a plan durable, in one file with those behind it -> PlanWritten | PlanRefused."""

    plan: EpochPlan
    following: tuple[EpochPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteCommit:
    """Make a commit record -> CommitWritten | CommitRefused. This is the commit."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class Publish:
    """Let a sink show an epoch -> Published | PublishFailed."""

    sink: str
    epoch: int
    messages: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Make it durable that all output up to a commit is visible -> Acknowledged."""

    acknowledgement: Acknowledgement


# ---- Commands: answered by nothing --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """The run owns the checkpoint: go on from here."""

    recovered: Recovered


@dataclass(frozen=True, slots=True)
class Rewind:
    """Tell sinks that show rows early that those behind an epoch come again."""

    after: int


@dataclass(frozen=True, slots=True)
class Start:
    """An epoch's plan is durable, and so are those before it: its work may run."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A group of epochs is durable."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class Abort:
    """Let a sink forget what a losing attempt staged; may be left out."""

    sink: str
    epoch: int
    messages: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove files that nothing needs, in this order; may be left out."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the run with this error."""

    error: AnabranchError
    cause: BaseException | None = None


Command: TypeAlias = (
    FindMetadata
    | ListLeases
    | CreateLease
    | ReadContents
    | WriteDescription
    | WritePlan
    | WriteCommit
    | Publish
    | Acknowledge
    | Opened
    | Rewind
    | Start
    | Committed
    | Abort
    | Delete
    | Halt
)
