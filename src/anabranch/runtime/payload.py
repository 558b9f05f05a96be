"""What a driver sends to a task and gets back. Small values; data lies in files they name.

What goes to tasks is pickled, as Spark does with their code. What comes back is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from anabranch.ids import Marks
from anabranch.kernels.letters import Origins

Strand: TypeAlias = tuple[str, ...]
"""Files of one operator's state that one lane wrote, in order."""

Strands: TypeAlias = tuple[Strand, ...]
"""All files of one operator's state, a strand for each lane that wrote some."""

Tables: TypeAlias = Mapping[str, str]
"""The versions of lookup tables that hold for an epoch: files in the checkpoint, by lookup."""


@dataclass(frozen=True, slots=True)
class HeadItem:
    """One split of what was cut from a source."""

    source: int
    """Its number among the sources."""
    ticket: int
    attempt: int
    number: int
    """The split's place among those that were cut: rows are ordered by it first."""
    partition: int
    split: Any
    tables: Tables = field(default_factory=dict)
    without: tuple[int, ...] = ()
    """Rows of the split that are passed over."""
    until: int | None = None
    """Take so many of its rows only: for a trial, of which nothing counts."""


@dataclass(frozen=True, slots=True)
class LaneItem:
    """One epoch as one lane of a stage takes it: where its parts lie, and the watermarks."""

    epoch: int
    ticket: int
    attempt: int
    parts: Mapping[int, tuple[Any, ...]]
    """By the number of the stage's entry."""
    marks: Marks
    origins: Origins | None = None
    """Where its records come from, if somebody reads dead letters."""
    tables: Tables = field(default_factory=dict)
    until: int | None = None
    """Leave out rows behind this place of the epoch: for a trial, of which nothing counts."""


@dataclass(frozen=True, slots=True)
class StageJob:
    """A lane's epochs of one stage in order, from the state `parent` on.

    Each attempt makes its own version. `chain` names the deltas from which `parent` can be made
    again where a process does not have it: for each operator a strand for each lane that they were
    of. It is sent only when a process said so.
    """

    stage: int
    parent: str
    items: tuple[LaneItem, ...]
    chain: Mapping[str, Strands] | None = None
    snapshot: bool = False
    """Whether all of the state is to be written instead of what changed."""


@dataclass(frozen=True, slots=True)
class LaneJob:
    """All that a lane does in one cycle; its stages have nothing to do with each other there."""

    lane: int
    stages: tuple[StageJob, ...]


@dataclass(frozen=True, slots=True)
class MergeItem:
    """Rows of several lanes for one sink, to be put into one order and staged."""

    sink: str
    epoch: int
    parts: tuple[Any, ...]
    attempt: str


@dataclass(frozen=True, slots=True)
class MergeDone:
    """What a sink said of rows that were put into one order."""

    sink: str
    epoch: int
    message: Any


@dataclass(frozen=True, slots=True)
class HeadDone:
    """What became of a split."""

    ticket: int
    number: int
    partition: int
    rows: int = 0
    greatest: int | None = None
    parts: dict[int, Any] = field(default_factory=dict)
    """What lies in the exchange, by the number of the exit."""
    staged: dict[str, Any] = field(default_factory=dict)
    """What sinks said, by their names."""
    error: dict[str, Any] | None = None
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds, by what they went into."""
    letters: int = 0
    """How many records failed and were left out."""
    size: int = 0
    """Bytes of what lies in the exchange."""


@dataclass(frozen=True, slots=True)
class EpochDone:
    """What a lane of a stage made of one epoch: rows in the exchange, or staged by sinks."""

    epoch: int
    rows: int
    late: int
    parts: dict[int, Any] = field(default_factory=dict)
    """What lies in the exchange, by the number of the exit."""
    staged: dict[str, Any] = field(default_factory=dict)
    """What sinks said, by their names."""
    letters: int = 0
    """How many records failed and were left out."""


@dataclass(frozen=True, slots=True)
class StageDone:
    """What became of a stage's job in a lane."""

    stage: int
    version: str = ""
    epochs: tuple[EpochDone, ...] = ()
    deltas: dict[str, str] = field(default_factory=dict)
    """The file of what changed, by operator."""
    snapshot: bool = False
    changed: dict[str, int] = field(default_factory=dict)
    """How many rows of state changed, by operator."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The bytes of these files, by operator."""


@dataclass(frozen=True, slots=True)
class LaneDone:
    """What became of a lane's job; with `missing` or an error nothing of it counts."""

    lane: int
    stages: tuple[StageDone, ...] = ()
    missing: tuple[int, ...] = ()
    """Stages whose state this process does not have."""
    error: dict[str, Any] | None = None
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds, by what they went into."""


def heads_to_bytes(done: list[HeadDone]) -> bytes:
    """Results as JSON."""
    return json.dumps([asdict(each) for each in done]).encode()


def heads_from_bytes(data: bytes) -> list[HeadDone]:
    """Results back from JSON."""
    return [_numbered(HeadDone(**each)) for each in json.loads(data)]


def merges_to_bytes(done: list[MergeDone]) -> bytes:
    """Results as JSON."""
    return json.dumps([asdict(each) for each in done]).encode()


def merges_from_bytes(data: bytes) -> list[MergeDone]:
    """Results back from JSON."""
    return [MergeDone(**each) for each in json.loads(data)]


def lane_to_bytes(done: LaneDone) -> bytes:
    """A result as JSON."""
    return json.dumps(asdict(done)).encode()


def lane_from_bytes(data: bytes) -> LaneDone:
    """A result back from JSON."""
    facts = json.loads(data)
    stages = tuple(_stage(each) for each in facts.pop("stages"))
    missing = tuple(facts.pop("missing"))
    return LaneDone(stages=stages, missing=missing, **facts)


def _stage(facts: dict[str, Any]) -> StageDone:
    epochs = tuple(_numbered(EpochDone(**each)) for each in facts.pop("epochs"))
    return StageDone(epochs=epochs, **facts)


def _numbered(done: Any) -> Any:
    """JSON has no keys but text."""
    return replace(done, parts={int(number): part for number, part in done.parts.items()})
