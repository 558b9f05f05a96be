"""What the driver and the resident task tell each other: values, each in one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from anabranch.config import PipelinePolicy
from anabranch.epoch.machine import Known
from anabranch.ids import Offset, Partition
from anabranch.observe.facts import SourceFacts
from anabranch.program.operators.edges import Read
from anabranch.runtime.continuous.plain_python import PlainPython
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.payload import Chain
from anabranch.state.envelope import Json
from anabranch.state.layout import EpochPlan


@dataclass(frozen=True, slots=True)
class Orders:
    """All that a resident task begins with."""

    attempt: int
    """Different each time that a task is started for one run of a query."""
    deployment: Deployment
    reads: tuple[Read, ...]
    """In the order of the inputs."""
    first: int
    """The epoch behind the last commit."""
    known: Known
    """Of all sources, behind the last commit."""
    plans: tuple[EpochPlan, ...]
    """Of the epochs behind it that were cut: they are taken again as they are."""
    memory: Mapping[str, Json]
    """What sources are told that they must recall."""
    chain: Chain
    """The files that the state is made of."""
    turns: Mapping[tuple[int, int], float]
    """By stage and partition, how much of the round is over in which slices are written anew."""
    checkpoint_every: float
    """Seconds."""
    plain: PlainPython
    """What is done by evaluators."""
    policy: PipelinePolicy = "lp"
    """By what workers go to operators."""
    tasks: bytes | None = None
    """For them, pickled by whoever places the task; None: there are none, all is done here."""


# From the task


@dataclass(frozen=True, slots=True)
class Hello:
    """The task is there."""

    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Planned:
    """An epoch is cut; told before anything of it is shown."""

    plan: EpochPlan
    barrier: bool = False
    """Whether a commit will end with it, if all goes well."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An epoch's rows for a sink that shows them early, as its `write` told them."""

    sink: str
    epoch: int
    message: Json


@dataclass(frozen=True, slots=True)
class Several:
    """Messages in their order, sent as one: each by itself wakes whoever waits for it."""

    messages: tuple[Planned | Shown, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """What happened between two barriers."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """That were read, by source."""
    given: int = 0
    """To sinks."""
    late: int = 0
    letters: int = 0
    latencies: Sequence[float] = ()
    """Seconds from its cut until an epoch had left, of some epochs."""
    epochs: int = 0
    """With rows."""
    more: int = 0
    """Of those, epochs behind which more was waiting when they were cut."""
    at_work: float = 0.0
    """Seconds in which an epoch with rows was on its way."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All up to a barrier is written and staged, to be committed."""

    first: int
    last: int
    known: Known
    deltas: Mapping[str, Mapping[int, str]]
    """By operator and partition."""
    snapshots: Mapping[str, Mapping[str, tuple[int, ...]]]
    """By operator and path, the slices that are whole in it."""
    turns: Mapping[tuple[int, int], float]
    staged: Mapping[str, tuple[tuple[int, tuple[Json, ...]], ...]]
    """By sink, epoch by epoch."""
    totals: Totals
    changed: Mapping[str, int]
    """Rows of state, by operator."""
    written: Mapping[str, int]
    """Bytes of files, by operator."""


@dataclass(frozen=True, slots=True)
class Told:
    """How things are; told often enough to know by it that the task is alive."""

    sources: tuple[SourceFacts, ...]
    under_way: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All is committed that sources held when it was asked for."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The user's program failed, or its source said that it should: it would do so again."""

    error: Mapping[str, Any] | None = None
    """As tasks tell errors."""
    text: str = ""
    why: str | None = None
    so: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """All that was cut is told; the task ends."""

    finished: bool
    """Whether there is nothing more to come, rather than that it was asked to stop."""


# From the driver


@dataclass(frozen=True, slots=True)
class Stop:
    """Cut nothing more; end when all that is cut is committed."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Say when all that sources hold now is committed."""

    number: int


@dataclass(frozen=True, slots=True)
class CommittedUpTo:
    """A checkpoint is committed."""

    last: int


FromTask: TypeAlias = Hello | Planned | Shown | Checkpoint | Told | CaughtUp | Failed | Ended
FromDriver: TypeAlias = Stop | CatchUp | CommittedUpTo

Positions: TypeAlias = Mapping[str, Mapping[Partition, Offset]]
