"""Rows whose event times are those of the wall clock, brought late by an imagined network.

Events happen in order, at a rate, and travel in blocks of 50 ms; each block takes as long as a law
says, and none overtakes the one before. So a watermark comes as late as its block: that is the
delay of a sweeping watermark in Farhat, Daudjee, Querzoni 2021, section 6.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.connectors.base import Source
from anabranch.simulate.session import Feed

if TYPE_CHECKING:
    from anabranch.ids import Offset, Partition

BLOCK_S = 0.05
LONGEST_S = 0.5
"""The longest delay."""
Law: TypeAlias = Literal["uniform", "zipf"]


def delays(law: Law, count: int, seed: int) -> np.ndarray[Any, Any]:
    """So many, in seconds: uniform, or the n-th hundredth of the longest by `n ** -0.99`."""
    chance = np.random.default_rng(seed)
    if law == "uniform":
        return np.asarray(chance.uniform(0.0, LONGEST_S, count))
    ranks = np.arange(1, 101)
    weights = ranks**-0.99
    return np.asarray(chance.choice(ranks, count, p=weights / weights.sum()) * LONGEST_S / 100)


class Delayed(Source):
    """Row n happens `n / rate` seconds after the beginning, and can be read when its block is here.

    `t` is when it happened, in microseconds; `a` and `b` are numbers that look like chance.
    """

    schema = pl.Schema({"n": pl.Int64, "t": pl.Int64, "a": pl.Int64, "b": pl.Int64})

    def __init__(self, rate: float, seconds: float, law: Law, seed: int) -> None:
        self.rate, self.rows = rate, int(rate * seconds)
        self._block = max(1, int(rate * BLOCK_S))
        blocks = -(-self.rows // self._block)
        ends = (np.arange(blocks) + 1) * (self._block / rate)
        self._here = np.maximum.accumulate(ends + delays(law, blocks, seed))
        self._begin: float | None = None
        self._seen = 0

    def go(self, begin: float) -> None:
        """Let the first row happen then; nothing happens before."""
        self._begin = begin

    def feed(self, begin: float) -> Feed:
        """The same in virtual time, where the first row happens then."""
        return Feed(begin, self.rate, self._block, tuple(begin + self._here))

    def partitions(self) -> Sequence[Partition]:
        return (0,)

    def latest(self) -> Mapping[Partition, Offset]:
        if self._begin is None:
            return {0: 0}
        here = int(np.searchsorted(self._here, time.time() - self._begin, side="right"))
        self._seen = min(self.rows, here * self._block)
        return {0: self._seen}

    def finished(self, partition: Partition) -> bool:
        del partition
        return self._seen == self.rows

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[Any]:
        return [(start[0], end[0], self._begin)]

    def frame(self, split: Any, columns: Sequence[str] | None = None) -> pl.DataFrame:
        first, last, begin = split
        n = np.arange(first, last, dtype=np.int64)
        wanted = self.schema if columns is None else columns
        return pl.DataFrame([pl.Series(name, self._column(name, n, begin)) for name in wanted])

    def _column(self, name: str, n: np.ndarray[Any, Any], begin: float) -> np.ndarray[Any, Any]:
        match name:
            case "t":
                return np.asarray((n * (1e6 / self.rate) + begin * 1e6).astype(np.int64))
            case "a":
                return np.asarray((n * 2_654_435_761) % 1_000_003)
            case "b":
                return np.asarray((n * 40_503) % 10_007)
        return n

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        yield from self.frame(split).to_arrow().to_batches()
