"""StreamBox's word count over texts that are replayed, in order or with some of them early.

Record n has text n of a buffer, which begins again at its end, and a time that follows from n. A
process fills the buffer once, so reading takes next to nothing beside the counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from bench.workloads import disorder, streambox

BUFFER = 100_000
SEED = 17
WINDOW = timedelta(seconds=1)
_PART = 200_000
"""Records that are counted at once where nothing streams."""


@dataclass(frozen=True, slots=True)
class Records:
    """So many records, `rate` of them a second of event time; a share comes `by` records early."""

    rows: int
    rate: int
    early: float = 0.0
    by: int = 1

    @property
    def lateness(self) -> timedelta:
        """How far a record may be behind; the same whether any are."""
        return timedelta(seconds=self.by / self.rate)

    def arrived(self, low: int, high: int) -> pl.DataFrame:
        """The records that come at these places."""
        numbers = np.arange(low, high) if not self.early else _order(self)[low:high]
        times = pl.Series(numbers * 1_000_000 // self.rate).cast(pl.Datetime("us"))
        return pl.DataFrame({"text": _texts().gather(numbers % BUFFER), "t": times})


class Words(ab.sources.Source):
    """Records as a source of one partition; an offset counts them as they come."""

    schema = pl.Schema({"text": pl.String(), "t": pl.Datetime("us")})

    def __init__(self, records: Records) -> None:
        self.records = records

    def partitions(self) -> Sequence[int]:
        return (0,)

    def latest(self) -> Mapping[Any, Any]:
        return {0: self.records.rows}

    def finished(self, partition: Any) -> bool:
        return bool(self.latest()[partition] == self.records.rows)

    def plan(self, start: Mapping[Any, Any], end: Mapping[Any, Any]) -> Sequence[Any]:
        return [(start[0], end[0])]

    def read(self, split: Any) -> Iterator[Any]:
        yield from self.frame(split).to_arrow().to_batches()

    def frame(self, split: Any, columns: Sequence[str] | None = None) -> pl.DataFrame:
        found = self.records.arrived(*split)
        return found if columns is None else found.select(list(columns))


def counted(source: Words, sink: ab.sinks.Sink, *, held: bool = False) -> ab.Program:
    """How often each word occurs in each second.

    `held`: records are held until a watermark passes them and put in order ahead of the windows, as
    engines do that cannot take them as they come.
    """
    program = ab.Program("word-count")
    given = program.read(source, event_time="t", lateness=source.records.lateness)
    streambox.word_count(given.in_time_order() if held else given).write(sink)
    return program


@cache
def expected(rows: int, rate: int) -> pl.DataFrame:
    """What must come out in the end, in order, by plain Polars; whatever comes early."""
    records, parts = Records(rows, rate), []
    for low in range(0, rows, _PART):
        texts = records.arrived(low, min(rows, low + _PART))
        tokens = pl.col("text").str.to_uppercase().str.extract_all(streambox.TOKEN)
        words = texts.select(pl.col("t").dt.truncate(WINDOW).alias("window_start"), word=tokens)
        parts.append(words.explode("word").group_by("window_start", "word").len("count"))
    return (
        pl.concat(parts)
        .group_by("window_start", "word")
        .agg(pl.col("count").sum().cast(pl.Int64))
        .with_columns(window_end=pl.col("window_start") + WINDOW)
        .select("window_start", "window_end", "word", "count")
        .sort("window_end", "word")
    )


@cache
def _texts() -> pl.Series:
    return streambox.word_buffer(BUFFER)["text"]


@cache
def _order(records: Records) -> npt.NDArray[np.int64]:
    return disorder.early_order(records.rows, by=records.by, share=records.early, seed=SEED)
