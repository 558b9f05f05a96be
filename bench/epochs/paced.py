"""Words that become due as time passes, and how long after that their results were durable.

Latency counts from when an epoch's last record is due, not from when the engine takes it: what
waits in a source because the engine is behind waits all the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.epochs.running import Commit
from bench.epochs.words import Records, Words


class Paced(Words):
    """So many records a second, a whole epoch of them at a time, from the first look on."""

    def __init__(self, records: Records, *, per_second: float, epoch_rows: int) -> None:
        super().__init__(records)
        self.per_second, self.epoch_rows = per_second, epoch_rows
        self.began: float | None = None
        self._due = 0

    def latest(self) -> Mapping[Any, Any]:
        now = time.monotonic()
        if self.began is None:
            self.began = now
        due = int((now - self.began) * self.per_second) // self.epoch_rows * self.epoch_rows
        self._due = min(due, self.records.rows)
        return {0: self._due}

    def end(self) -> Mapping[Any, Any]:
        return {0: self.records.rows}

    def finished(self, partition: Any) -> bool:
        """As of the last look: what became due since is still to come."""
        del partition
        return self._due == self.records.rows

    def latencies(self, commits: Sequence[Commit]) -> list[float]:
        """Of each epoch, seconds from when its last record was due to when it was durable.

        >>> source = Paced(Records(30, 10), per_second=10, epoch_rows=10)
        >>> source.began = 100.0
        >>> source.latencies([Commit(102.5, 2, 20, 1, 0.0), Commit(103.25, 1, 10, 1, 0.0)])
        [1.5, 0.5, 0.25]
        """
        assert self.began is not None
        found, rows = [], 0
        for commit in commits:
            assert commit.rows == commit.epochs * self.epoch_rows, commit
            for _ in range(commit.epochs):
                rows += self.epoch_rows
                found.append(commit.at - (self.began + rows / self.per_second))
        return found
