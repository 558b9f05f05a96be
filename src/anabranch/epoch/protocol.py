"""What a query's machine is told, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.ids import Marks, Offset, Partition


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source has beyond the last planned epoch, cut to the rows that one may hold."""

    offsets: Mapping[Partition, tuple[Offset, Offset]]
    finished: frozenset[Partition]
    hint: int | None
    more: bool
    """Whether there is something behind this offer already."""
    idle: frozenset[Partition] = frozenset()
    """Partitions that have been empty for as long as the program allows; not merely blocked."""
    forced: bool = False
    """Whether an epoch is wanted at once, even of nothing: it brings a commit."""

    @property
    def empty(self) -> bool:
        """Whether it holds no rows."""
        return all(start == end for start, end in self.offsets.values())

    @property
    def rows(self) -> int | None:
        """How many it holds, where offsets count them.

        >>> Offer({0: (2, 5), 1: (0, 1)}, frozenset(), None, False).rows
        4
        """
        total = 0
        for start, end in self.offsets.values():
            if not isinstance(start, int) or not isinstance(end, int):
                return None
            total += end - start
        return total


# Events


@dataclass(frozen=True, slots=True)
class Offered:
    """A source was looked at, at this moment of the clock (seconds)."""

    offer: Offer
    at: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """An epoch's plan is in the checkpoint: its work may run."""

    epoch: int


@dataclass(frozen=True, slots=True)
class HeadsDone:
    """What was cut has been read, its stateless work done, its parts lie in the exchange."""

    ticket: int
    greatest: Mapping[Partition, int | None]
    rows: Mapping[Partition, int]
    size: int = 0
    """Bytes of the parts."""


@dataclass(frozen=True, slots=True)
class LanesDone:
    """The lanes have taken these epochs at their level; output and deltas are staged."""

    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything up to this epoch is durable."""

    last: int


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """The work of these tickets' heads and these epochs' lanes failed; what it left is void."""

    heads: tuple[int, ...]
    lanes: tuple[int, ...]
    reason: str
    counts: bool = True
    """Whether it is one of the failures of which a query may have only so many in a row."""


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """A record of this ticket's is passed over from now on: what was made with it is void."""

    ticket: int


@dataclass(frozen=True, slots=True)
class StopAsked:
    """No new epochs; with `drain` those that are cut are finished."""

    drain: bool


Event: TypeAlias = (
    Offered | Planned | HeadsDone | LanesDone | Committed | WorkFailed | ReadAgain | StopAsked
)


# Commands


@dataclass(frozen=True, slots=True)
class Cut:
    """Read what was offered; this is its ticket until it has a place in the log."""

    ticket: int
    source: str
    offer: Offer


@dataclass(frozen=True, slots=True)
class PlanEpoch:
    """Write an epoch's plan: its place in the log is settled."""

    epoch: int
    ticket: int
    source: str
    offer: Offer


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Work has failed too often."""

    reason: str
    attempts: int


Command: TypeAlias = Cut | PlanEpoch | Finish | Fail


# Ready work


@dataclass(frozen=True, slots=True)
class HeadWork:
    """Rows that may be read: anywhere, in any order."""

    ticket: int
    attempt: int


@dataclass(frozen=True, slots=True)
class LaneWork:
    """An epoch that the lanes of a level may take; they take them in order."""

    epoch: int
    ticket: int
    attempt: int
    marks: Marks
    level: int = 1


Work: TypeAlias = HeadWork | LaneWork
Story: TypeAlias = list[tuple[Any, ...]]
