"""A buffer that is replayed at a rate, and a sink that notes how late results are.

Event time is when a row is due, by the wall clock, so a result's latency is from the end of its
window, or from its newer row, until the driver has seen it. The buffer is a file that is made
before and mapped by whoever reads it; a bundle is a slice of it, so it is no bottleneck.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.connectors.base import Sink, Source
from bench.workloads import mapped
from bench.workloads.streambox import BENCHMARKS, SECOND_US, Benchmark

if TYPE_CHECKING:
    from anabranch.ids import Offset, Partition

SHORT = {"grep": 20_000, "wordcount": 50_000, "tweets": 50_000}
"""Rows of a buffer; of others it is a second long: how many keys there are in a window shows."""


def named(name: str) -> Benchmark:
    """One of the six."""
    return next(each for each in BENCHMARKS if each.name == name)


class Paced(Source):
    """Row n is due `n / rate` seconds after the beginning."""

    def __init__(
        self, name: str, rate: int, seconds: float, home: Path, *, rows: int | None = None
    ) -> None:
        """Make the buffer, in a directory; nothing is due before `go`.

        There are as many rows as are due in so long, or as many as are said.
        """
        benchmark = named(name)
        self.schema, self.rate, self.begin = benchmark.schema, rate, math.inf
        self.rows, self._seen = int(rate * seconds) if rows is None else rows, 0
        made = benchmark.fill(min(rate, SHORT.get(name, rate)))
        self._own_times, self._path = "t" in made.columns, str(home / "buffer.arrow")
        mapped.keep(made, Path(self._path))

    def go(self, begin: float) -> None:
        """Let the first row be due then."""
        self.begin = begin

    def partitions(self) -> Sequence[Partition]:
        return (0,)

    def latest(self) -> Mapping[Partition, Offset]:
        due = max(0, int(max(0.0, time.time() - self.begin) * self.rate))
        self._seen = min(self.rows, due)
        return {0: self._seen}

    def finished(self, partition: Partition) -> bool:
        del partition
        return self._seen == self.rows

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[Any]:
        """In as many parts as there are cores: a head reads one of them."""
        bounds = np.linspace(start[0], end[0], 3).astype(int)
        return [(int(a), int(b), self.begin) for a, b in pairwise(bounds) if a < b]

    def frame(self, split: Any, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Slices of the buffer, with the times at which their rows are due."""
        first, last, begin = split
        rows = mapped.played(self._path, first, last)
        whole = rows.with_columns(self._times(first, begin, rows).alias("t"))
        return whole.select(list(self.schema) if columns is None else list(columns))

    def _times(self, first: int, begin: float, rows: pl.DataFrame) -> pl.Series:
        n = np.arange(first, first + rows.height, dtype=np.int64)
        since = int(begin * SECOND_US)
        if not self._own_times:
            return pl.Series(n * SECOND_US // self.rate + since).cast(pl.Datetime("us"))
        seconds = n // self.rate * SECOND_US
        return pl.Series(rows["t"].to_numpy() + seconds + since).cast(pl.Datetime("us"))

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        yield from self.frame(split).to_arrow().to_batches()


class Late(Sink):
    """Notes when each result was there, beside the time that it is of."""

    def __init__(self, column: str, *, early: bool) -> None:
        self.column, self.early = column, early
        self.visible = "early" if early else "commit"
        self.seen = list[tuple[float, float]]()
        """The times of results, and when each was there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _late, (self.column, self.early)

    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> list[int]:
        # The oldest of a batch is the latest; a whole batch is one number: who measures is cheap.
        del epoch, attempt
        times = (pl.from_arrow(batch[self.column]) for batch in batches if batch.num_rows)
        return [int(each.cast(pl.Int64).min()) for each in times]  # type: ignore[arg-type]

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        del epoch
        now = time.time()
        self.seen += [(each / SECOND_US, now) for message in messages for each in message]

    def rewind(self, after: int) -> None:
        del after

    def latencies(self, low: float, high: float) -> list[float]:
        """Of results whose times are in between."""
        return [now - at for at, now in self.seen if low <= at < high]


def _late(column: str, early: bool) -> Late:  # noqa: FBT001 - as pickle calls it
    return Late(column, early=early)
