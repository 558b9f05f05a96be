"""How many rows an epoch may have: as many as leave again soon.

While the pipeline keeps up an epoch has what came since the one before, and this does not matter. A
backlog is cut into pieces: in large ones rows wait for each other, of small ones each costs as much
as a larger one would. A value: what is learnt of an epoch gives the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST, LEAST, MOST = 1 << 10, 1 << 6, 1 << 16
"""Rows of an epoch: before anything is known, at least, and at most."""
TARGET_S = 0.02
"""Seconds that an epoch may take before others are smaller."""


@dataclass(frozen=True, slots=True)
class EpochSize:
    """The most rows of an epoch.

    >>> EpochSize(1000).learn(1000, 0.005).rows, EpochSize(1000).learn(1000, 0.03).rows
    (2000, 666)

    Epochs that are smaller than they might be say nothing of larger ones; and one that took very
    long was held up by something else.

    >>> EpochSize(1000).learn(10, 0.005).rows, EpochSize(1000).learn(1000, 2.0).rows
    (1000, 500)
    """

    rows: int = FIRST

    def learn(self, rows: int, seconds: float) -> EpochSize:
        """The size behind an epoch of so many rows that took so long.

        That is the time in which it left behind the one before, or since it was cut, if that was
        later: how long it waited for others says how many there are, not how large they are.
        """
        if seconds > TARGET_S and rows > LEAST:
            fewer = min(self.rows, max(self.rows // 2, int(rows * TARGET_S / seconds)))
            return replace(self, rows=max(LEAST, fewer))
        if seconds < TARGET_S / 2 and rows >= self.rows // 2:
            return replace(self, rows=min(MOST, 2 * self.rows))
        return self
