"""The events of the Yahoo Streaming Benchmark as Parquet files, in order, for any system to read.

Every file is written once and never changed. Modification times are in the order of the files, a
second apart: Structured Streaming takes files in that order, others go by the name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from bench.workloads import ysb

LATENESS = "10 seconds"


@dataclass(frozen=True, slots=True)
class FileSet:
    """So many files of so many events each, `rate` of them due a second."""

    directory: Path
    rows: int
    rate: int
    count: int

    def path(self, number: int) -> Path:
        """The file of a number."""
        return self.directory / f"{number:05d}.parquet"

    def write(self, said: Callable[[int], object] = lambda _: None) -> None:
        """Write all of them; `said` is told how many rows there are after each."""
        self.directory.mkdir(parents=True)
        for number in range(self.count):
            numbers = pl.int_range(
                number * self.rows, (number + 1) * self.rows, dtype=pl.UInt64, eager=True
            )
            path = self.path(number)
            ysb.events(numbers, rate=self.rate, variant="random").write_parquet(path)
            at = 1_600_000_000 + number
            os.utime(path, (at, at))
            said((number + 1) * self.rows)

    def link(self, into: Path, first: int, last: int) -> None:
        """Give the files from `first` to before `last` a second name in a directory."""
        into.mkdir(parents=True, exist_ok=True)
        for number in range(first, last):
            (into / self.path(number).name).hardlink_to(self.path(number))

    def expected(self, files: int) -> pl.DataFrame:
        """What the query gives for the first so many files, open windows included."""
        return _expected(self, files)


@cache
def _expected(given: FileSet, files: int) -> pl.DataFrame:
    columns = ["ad_id", "event_type", "event_time"]
    paths = [given.path(number) for number in range(files)]
    parts = [ysb.expected(pl.read_parquet(path, columns=columns)) for path in paths]
    keys = ["window_start", "window_end", "campaign_id"]
    return (
        pl.concat(parts).group_by(keys).agg(pl.col("views").sum()).sort("window_end", "campaign_id")
    )
