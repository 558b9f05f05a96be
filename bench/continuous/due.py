"""Rows that become due one by one, and a sink that notes how long after that it saw each.

Latency counts from when a row is due, not from when the engine takes it: what waits in the source
because the engine is behind waits all the same. All processes are on one machine and read one
clock, the wall's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.connectors.base import Sink, Source
from anabranch.connectors.messages import from_message, to_message

if TYPE_CHECKING:
    from anabranch.ids import Offset, Partition

KEYS = 1_000


class Due(Source):
    """Row n is due `n / rate` seconds after the beginning; without a rate all are due at once.

    `due` is that moment in microseconds, `k` one of so many keys in turn.
    """

    schema = pl.Schema({"n": pl.Int64, "k": pl.Int64, "due": pl.Int64})

    def __init__(self, rows: int, rate: float | None, begin: float, keys: int = KEYS) -> None:
        self.rows, self.rate, self.begin, self.keys = rows, rate, begin, keys
        self._numbers = pl.int_range(rows, eager=True, dtype=pl.Int64)
        self._due = 0

    def partitions(self) -> Sequence[Partition]:
        return (0,)

    def latest(self) -> Mapping[Partition, Offset]:
        due = self.rows
        if self.rate is not None:
            due = min(self.rows, max(0, int((time.time() - self.begin) * self.rate)))
        self._due = due
        return {0: due}

    def end(self) -> Mapping[Partition, Offset]:
        return {0: self.rows}

    def finished(self, partition: Partition) -> bool:
        """As of the last look: what became due since is still to come."""
        del partition
        return self._due == self.rows

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[Any]:
        return [(start[0], end[0])]

    def frame(self, split: Any, columns: Sequence[str] | None = None) -> pl.DataFrame:
        low, high = split
        n = self._numbers.slice(low, high - low)
        late = self.begin * 1e6 if self.rate is None else None
        due = (
            pl.Series(np.full(high - low, int(late or 0)))
            if self.rate is None
            else (n * (1e6 / self.rate) + self.begin * 1e6).cast(pl.Int64)
        )
        found = pl.DataFrame({"n": n, "k": n % self.keys, "due": due})
        return found if columns is None else found.select(columns)

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        yield from self.frame(split).to_arrow().to_batches()


class Latencies(Sink):
    """Sees rows early, on the driver, and keeps of each when it was due and how much later it is.

    Rows must come in the order of `n`: a number for a wrong order is no number.
    """

    visible = "early"

    def __init__(self) -> None:
        self.due: list[np.ndarray[Any, Any]] = []
        self.seconds: list[np.ndarray[Any, Any]] = []
        self.last, self.rows = -1, 0
        self.first_at = self.last_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {"due": [], "seconds": [], "last": -1, "rows": 0, "first_at": 0.0, "last_at": 0.0}

    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> str:
        del epoch, attempt
        return to_message(batch.select(["n", "due"]) for batch in batches)

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        del epoch
        now = time.time()
        for message in messages:
            if message == "":
                continue
            frame = from_message(message, "Latencies")
            numbers = frame["n"].to_numpy()
            if numbers[0] <= self.last or (np.diff(numbers) <= 0).any():
                text = f"rows are out of order behind {self.last}"
                raise RuntimeError(text)
            self.last, self.rows = int(numbers[-1]), self.rows + len(numbers)
            due = frame["due"].to_numpy() / 1e6
            self.due.append(due)
            self.seconds.append(now - due)
        self.first_at = self.first_at or now
        self.last_at = now

    def between(self, low: float, high: float) -> np.ndarray[Any, Any]:
        """The latencies, in seconds, of rows that were due in between."""
        due, seconds = np.concatenate(self.due), np.concatenate(self.seconds)
        return np.asarray(seconds[(due >= low) & (due < high)])
