"""What a query's machine is told, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.ids import Offset, Partition


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source has beyond the last planned epoch, cut to the rows that one may hold."""

    offsets: Mapping[Partition, tuple[Offset, Offset]]
    finished: frozenset[Partition]
    hint: int | None
    more: bool
    """Whether there is something behind this offer already."""
    forced: bool = False
    """Whether an epoch is wanted at once, even of nothing: it brings a commit."""

    @property
    def empty(self) -> bool:
        """Whether it holds no rows."""
        return all(start == end for start, end in self.offsets.values())


# Events


@dataclass(frozen=True, slots=True)
class Offered:
    """The source was looked at, at this moment of the clock (seconds)."""

    offer: Offer
    at: float


@dataclass(frozen=True, slots=True)
class Planned:
    """An epoch's plan is in the checkpoint: its work may run."""

    epoch: int


@dataclass(frozen=True, slots=True)
class HeadsDone:
    """An epoch's rows have been read, its stateless work done, its parts lie in the exchange."""

    epoch: int
    greatest: Mapping[Partition, int | None]
    rows: int


@dataclass(frozen=True, slots=True)
class LanesDone:
    """The lanes have taken these epochs, and their output and deltas are staged."""

    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything up to this epoch is durable."""

    last: int


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """These epochs' work failed; whatever it left is void."""

    heads: tuple[int, ...]
    lanes: tuple[int, ...]
    reason: str
    counts: bool = True
    """Whether it is one of the failures of which a query may have only so many in a row."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """No new epochs; with `drain` those that are planned are finished."""

    drain: bool


Event: TypeAlias = Offered | Planned | HeadsDone | LanesDone | Committed | WorkFailed | StopAsked


# Commands


@dataclass(frozen=True, slots=True)
class PlanEpoch:
    """Write an epoch's plan ahead of its work."""

    epoch: int
    offer: Offer


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Work has failed too often."""

    reason: str
    attempts: int


Command: TypeAlias = PlanEpoch | Finish | Fail


# Ready work


@dataclass(frozen=True, slots=True)
class HeadWork:
    """An epoch whose rows may be read: anywhere, in any order."""

    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class LaneWork:
    """An epoch that the lanes may take; they take them in order."""

    epoch: int
    attempt: int
    before: int | None
    after: int | None


Work: TypeAlias = HeadWork | LaneWork
Story: TypeAlias = list[tuple[Any, ...]]
