"""What a driver sends to a task and gets back. Small values; data lies in files they name.

What goes to tasks is pickled, as Spark does with their code. What comes back is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Strand: TypeAlias = tuple[str, ...]
"""Files of one operator's state that one lane wrote, in order."""

Strands: TypeAlias = tuple[Strand, ...]
"""All files of one operator's state, a strand for each lane that wrote some."""


@dataclass(frozen=True, slots=True)
class HeadItem:
    """One split of one epoch."""

    epoch: int
    attempt: int
    number: int
    """The split's place in its epoch: rows are ordered by it first."""
    partition: int
    split: Any


@dataclass(frozen=True, slots=True)
class LaneItem:
    """One epoch as one lane takes it: where its parts lie, and the watermarks around it."""

    epoch: int
    attempt: int
    parts: tuple[Any, ...]
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class LaneJob:
    """A lane's epochs in order, from the state `parent` on; each attempt makes its own version.

    `chain` names the deltas from which `parent` can be made again where a process does not have it:
    for each operator a strand for each lane that they were of. It is sent only when a process said
    so.
    """

    lane: int
    parent: str
    items: tuple[LaneItem, ...]
    chain: Mapping[str, Strands] | None = None
    snapshot: bool = False
    """Whether all of the state is to be written instead of what changed."""


@dataclass(frozen=True, slots=True)
class HeadDone:
    """What became of a split."""

    epoch: int
    number: int
    partition: int
    rows: int = 0
    greatest: int | None = None
    part: dict[str, Any] | None = None
    staged: Any = None
    error: dict[str, Any] | None = None
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds, by what they went into."""


@dataclass(frozen=True, slots=True)
class EpochDone:
    """What a lane made of one epoch: rows in the exchange, or staged by the sink."""

    epoch: int
    rows: int
    late: int
    part: dict[str, Any] | None = None
    staged: Any = None


@dataclass(frozen=True, slots=True)
class LaneDone:
    """What became of a lane's job; `missing`: this process does not have the state."""

    lane: int
    version: str = ""
    epochs: tuple[EpochDone, ...] = ()
    deltas: dict[str, str] = field(default_factory=dict)
    """The file of what changed, by operator."""
    snapshot: bool = False
    missing: bool = False
    error: dict[str, Any] | None = None
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds, by what they went into."""


def heads_to_bytes(done: list[HeadDone]) -> bytes:
    """Results as JSON."""
    return json.dumps([asdict(each) for each in done]).encode()


def heads_from_bytes(data: bytes) -> list[HeadDone]:
    """Results back from JSON."""
    return [HeadDone(**each) for each in json.loads(data)]


def lane_to_bytes(done: LaneDone) -> bytes:
    """A result as JSON."""
    return json.dumps(asdict(done)).encode()


def lane_from_bytes(data: bytes) -> LaneDone:
    """A result back from JSON."""
    facts = json.loads(data)
    epochs = tuple(EpochDone(**each) for each in facts.pop("epochs"))
    return LaneDone(epochs=epochs, **facts)
