"""How many rows an epoch may hold where the user has not said: as many as are soon worked through.

A backlog of any size would else be one epoch, which must be in memory at once, and nothing of it
would be seen before its end. How rows are cut into epochs is for the runtime to choose: the log
says how it was. A value: what is learned of a cycle gives the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST, LEAST, MOST = 1_000_000, 10_000, 64_000_000
"""Rows of an epoch: before anything is known, at least, and at most."""

TARGET_S = 1.0
"""Seconds that a cycle may take before its epochs are made smaller."""


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The most rows of an epoch: more while a backlog is worked through quickly, fewer when not.

    >>> limit = RowLimit()
    >>> limit.learn(1_000_000, 1_000_000, 0.2).rows, limit.learn(1_000_000, 1_000_000, 4.0).rows
    (2000000, 250000)

    Epochs that are smaller than they might be say nothing of larger ones.

    >>> limit.learn(2_000, 2_000, 0.2).rows
    1000000
    """

    rows: int = FIRST
    target: float = TARGET_S

    @classmethod
    def within(cls, target: float | None) -> RowLimit:
        """The first limit of a query whose cycles should take so long, if that is said."""
        return cls() if target is None else cls(target=target)

    def learn(self, largest: int, rows: int, seconds: float) -> RowLimit:
        """The limit behind a cycle whose epochs had so many rows: the largest, all together."""
        if seconds > self.target and largest > LEAST:
            fewer = min(self.rows, round(rows * self.target / seconds))
            return replace(self, rows=max(LEAST, fewer))
        if seconds < self.target / 2 and largest >= self.rows // 2:
            return replace(self, rows=min(MOST, 2 * self.rows))
        return self
