"""The workload: aggregates by key in one long window, so that the number of keys is the state.

First come as many rows as there are keys, one of each, all at once: one epoch loads the state. Then
rows of any key come as they are asked for: at a rate, whether there is a query to take them or not,
or as fast as epochs are cut. At the end the window closes and some keys' results are written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from polars.testing import assert_frame_equal

import anabranch as ab

SCHEMA = {"t": pl.Int64, "key": pl.Int64, "v": pl.Int64}
WINDOW = "1 d"
WATCHED = 64
"""Keys whose results are written: enough to tell a row that is lost or counted twice."""
STATE_A_KEY = 218
"""Bytes of the files of state, measured: key, window, slice and six aggregates."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


def keys_for(size: int) -> int:
    """How many keys have a state of so many bytes.

    >>> keys_for(218_000_000)
    1000000
    """
    return size // STATE_A_KEY


def keys_of(numbers: npt.NDArray[np.uint64], keys: int) -> npt.NDArray[np.int64]:
    """Of each row its key: the first ones have one each, the others any.

    >>> keys_of(np.arange(6, dtype=np.uint64), 4).tolist()[:4]
    [0, 1, 2, 3]
    """
    mixed = (numbers * _MIX) >> np.uint64(20)
    return np.where(numbers < keys, numbers, mixed % np.uint64(keys)).astype(np.int64)


def rows_of(start: int, end: int, keys: int) -> pl.DataFrame:
    """Rows by their numbers."""
    numbers = np.arange(start, end, dtype=np.uint64)
    values = (numbers % np.uint64(97)).astype(np.int64)
    times = np.zeros(len(numbers), dtype=np.int64)
    return pl.DataFrame({"t": times, "key": keys_of(numbers, keys), "v": values}, schema=SCHEMA)


class Arriving(ab.sources.Source):
    """Rows that come as they are asked for; asked from any thread, answered to the query's."""

    schema = pl.Schema(SCHEMA)

    def __init__(self, keys: int, rows: int | None = None) -> None:
        """With `rows` so many are there at once behind those of the keys, and no more come."""
        self.keys = keys
        self._given, self._ended = keys + (rows or 0), rows is not None
        self._rows, self._rate = 0, 0.0
        self._since: tuple[float, int] | None = None
        """When the rate began, and how many rows there were."""

    def flood(self, rows: int) -> None:
        """Have so many rows more at every look: a backlog that never ends."""
        self._rows, self._rate, self._since = rows, 0.0, None

    def pace(self, rate: float) -> None:
        """Have so many rows a second from the next look on."""
        self._since, self._rows, self._rate = None, 0, rate

    def finish(self) -> None:
        """End with what is there at the next look."""
        self._ended = True

    def arrived(self, at: float) -> int:
        """How many rows are there at a moment of the monotonic clock."""
        if self._since is None:
            return self._given
        begun, before = self._since
        return max(self._given, before + int((at - begun) * self._rate))

    def partitions(self) -> Sequence[int | str]:
        return (0,)

    def latest(self) -> Mapping[int | str, Any]:
        now = time.monotonic()
        if self._rate and self._since is None:
            self._since = now, self._given
        if not self._ended:
            self._given = self.arrived(now) + self._rows
        return {0: self._given}

    def finished(self, partition: int | str) -> bool:
        del partition
        return self._ended

    def plan(
        self, start: Mapping[int | str, Any], end: Mapping[int | str, Any]
    ) -> Sequence[tuple[int, int]]:
        return [(start[0], end[0])] if start[0] < end[0] else []

    def read(self, split: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        yield from rows_of(*split, self.keys).to_arrow().to_batches()


def program(source: Arriving, home: Path, name: str = "elastic") -> ab.Program:
    """Six aggregates by key; of most keys nothing is written."""
    made = ab.Program(name)
    (
        made.read(source, event_time="t", name="in")
        .window(ab.tumbling(WINDOW), by="key")
        .agg(
            n=ab.count(),
            total=ab.sum("v"),
            low=ab.min("v"),
            high=ab.max("v"),
            mean=ab.mean("v"),
            spread=ab.var("v"),
            name="by-key",
        )
        .filter(pl.col("key") < WATCHED)
        .write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    )
    return made


def expected(rows: int, keys: int) -> pl.DataFrame:
    """What must come out of the first so many rows, by plain Polars."""
    numbers = np.arange(rows, dtype=np.uint64)
    numbers = numbers[keys_of(numbers, keys) < WATCHED]
    frame = pl.DataFrame({"key": keys_of(numbers, keys), "v": (numbers % 97).astype(np.int64)})
    v = pl.col("v")
    found = frame.group_by("key").agg(
        n=pl.len().cast(pl.Int64), total=v.sum(), low=v.min(), high=v.max(), mean=v.mean(),
        spread=v.var(),
    )  # fmt: skip
    return found.sort("key")


def require_right(home: Path, rows: int, keys: int) -> None:
    """Compare what was written with what must be: a number for a wrong answer is no number."""
    files = sorted((home / "out").glob("*.parquet"))
    found = pl.concat(map(pl.read_parquet, files)).sort("key")
    right = expected(rows, keys)
    assert_frame_equal(right, found.select(pl.col(n).cast(t) for n, t in right.schema.items()))
