"""A source with one partition that is slow to read, and a count over it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl

import anabranch as ab

PARTITIONS = 4
SLOW = 0
KEYS = 1_000
WINDOW = timedelta(seconds=1)


@dataclass(frozen=True)
class OneSlow(ab.sources.Source):
    """Record n is in partition n mod 4; whoever reads partition 0 waits so many seconds a time."""

    rows: int
    """Of each partition."""
    rate: int
    """Records a second of event time, of all partitions."""
    wait: float

    schema = pl.Schema({"key": pl.Int64(), "t": pl.Datetime("us")})

    def partitions(self) -> Sequence[int]:
        return range(PARTITIONS)

    def latest(self) -> Mapping[Any, Any]:
        return dict.fromkeys(self.partitions(), self.rows)

    def finished(self, partition: Any) -> bool:
        del partition
        return True

    def plan(self, start: Mapping[Any, Any], end: Mapping[Any, Any]) -> Sequence[Any]:
        return [(p, start[p], end[p]) for p in self.partitions() if p in end]

    def read(self, split: Any) -> Iterator[Any]:
        partition, low, high = split
        if partition == SLOW:
            time.sleep(self.wait)
        yield from self._made(np.arange(low, high) * PARTITIONS + partition).to_arrow().to_batches()

    def all(self) -> pl.DataFrame:
        """Every record of every partition."""
        return self._made(np.arange(self.rows * PARTITIONS))

    def _made(self, numbers: Any) -> pl.DataFrame:
        times = pl.Series(numbers * 1_000_000 // self.rate).cast(pl.Datetime("us"))
        return pl.DataFrame({"key": pl.Series(numbers % KEYS), "t": times})


def counted(source: OneSlow, sink: ab.sinks.Sink) -> ab.Program:
    """How many records of each key there are in each second."""
    program = ab.Program("one-slow-partition")
    given = program.read(source, event_time="t")
    given.window(ab.tumbling(WINDOW), by="key").agg(count=ab.count()).write(sink)
    return program


def expected(source: OneSlow) -> pl.DataFrame:
    """What must come out in the end, in order, by plain Polars."""
    start = pl.col("t").dt.truncate(WINDOW)
    return (
        source.all()
        .group_by(start.alias("window_start"), "key")
        .agg(count=pl.len().cast(pl.Int64))
        .with_columns(window_end=pl.col("window_start") + WINDOW)
        .select("window_start", "window_end", "key", "count")
        .sort("window_end", "key")
    )
