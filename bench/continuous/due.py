"""Rows that become due one by one, and a sink that notes how long after that it saw each.

Latency counts from when a row is due, not from when the engine takes it: what waits in the source
because the engine is behind waits all the same. All processes are on one machine and read one
clock, the wall's.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.connectors.base import Sink, Source

if TYPE_CHECKING:
    from anabranch.ids import Offset, Partition

KEYS = 1_000
PATIENCE_S = 120


class Due(Source):
    """Row n is due `n / rate` seconds after the beginning; without a rate all are due at once.

    `due` is that moment in microseconds, `k` one of so many keys in turn.
    """

    schema = pl.Schema({"n": pl.Int64, "k": pl.Int64, "due": pl.Int64})

    def __init__(self, rows: int, rate: float | None, begin: float, keys: int = KEYS) -> None:
        self.rows, self.rate, self.begin, self.keys = rows, rate, begin, keys
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
        # By NumPy, and no column that nobody reads: whoever measures has to be cheap.
        n = np.arange(*split, dtype=np.int64)
        wanted = self.schema if columns is None else columns
        return pl.DataFrame([pl.Series(name, self._column(name, n)) for name in wanted])

    def _column(self, name: str, n: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if name == "due":
            return self._due_at(n)
        return n % self.keys if name == "k" else n

    def _due_at(self, n: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        behind = n * (1e6 / self.rate) if self.rate is not None else np.zeros(len(n))
        return np.asarray((behind + self.begin * 1e6).astype(np.int64))

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
        # Two columns of numbers, as they are: whoever measures has to be cheap.
        del epoch, attempt
        found = [np.stack([batch["n"].to_numpy(), batch["due"].to_numpy()]) for batch in batches]
        return base64.b64encode(np.hstack(found).tobytes()).decode() if found else ""

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        del epoch
        now = time.time()
        for message in messages:
            if message == "":
                continue
            numbers, due = np.frombuffer(base64.b64decode(message), dtype=np.int64).reshape(2, -1)
            if numbers[0] <= self.last or (np.diff(numbers) <= 0).any():
                text = f"rows are out of order behind {self.last}"
                raise RuntimeError(text)
            self.last, self.rows = int(numbers[-1]), self.rows + len(numbers)
            self.due.append(due / 1e6)
            self.seconds.append(now - due / 1e6)
        self.first_at = self.first_at or now
        self.last_at = now

    def between(self, low: float, high: float) -> np.ndarray[Any, Any]:
        """The latencies, in seconds, of rows that were due in between."""
        due, seconds = np.concatenate(self.due), np.concatenate(self.seconds)
        return np.asarray(seconds[(due >= low) & (due < high)])


class Newest(Sink):
    """Sees rows early, on the driver, and knows when the newest of them was due."""

    visible = "early"

    def __init__(self) -> None:
        self._due, self._seen = 0.0, threading.Condition()

    def __reduce__(self) -> tuple[type[Newest], tuple[()]]:
        return Newest, ()

    def wait(self, due: float) -> None:
        """Wait until a row is seen that was due then or later."""
        with self._seen:
            if not self._seen.wait_for(lambda: self._due >= due, PATIENCE_S):
                message = f"no row was seen for {PATIENCE_S} s"
                raise RuntimeError(message)

    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> int:
        del epoch, attempt
        return max((int(batch["due"].to_numpy().max()) for batch in batches), default=0)

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        del epoch
        with self._seen:
            self._due = max([self._due, *(message / 1e6 for message in messages)])
            self._seen.notify_all()

    def rewind(self, after: int) -> None:
        del after
