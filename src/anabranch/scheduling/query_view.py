"""What policies over queries see: frozen, taken at one moment, without anything that can be done.

A policy gives a query a rank; the smallest has the next turn. Ranks end with the query's place in
the order in which queries were started, so that no two are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Rank: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class QueryView:
    """One query that has something to do."""

    place: int
    """Its place in the order in which queries were started."""
    now: float
    """The moment, in seconds."""
    rows: int = 0
    """That wait, at all operators."""
    cost: float = 0.0
    """Seconds that it takes to bring them all to the end."""
    gives: float = 1.0
    """Rows that leave, for one that comes in."""
    oldest: float = 0.0
    """When the oldest of what waits came."""
    served: float = 0.0
    """When it had its last turn, or was started."""
    due: float | None = None
    """When its next window ends, in the time of the clock; None: it has none."""
    slack: float | None = None
    """How long it may wait until that fires late; None: nobody knows."""
    frees: float = 0.0
    """Rows that a cycle of its work takes from memory."""


Policy: TypeAlias = Callable[[QueryView], Rank]
