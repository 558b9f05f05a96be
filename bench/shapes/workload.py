"""What is measured: campaign views over Parquet files, some epochs of some size, some queries."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.workloads import ysb

PARTITIONS = 2
FILES = 4
"""Epochs' worth of files; later epochs read them again, shifted in time."""
EPOCH_US = 2_000_000
WINDOW_US = 10_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """The epochs of one run: `queries` of them side by side, each of `rows` rows an epoch."""

    directory: Path
    rows: int
    queries: int
    epochs: int
    views: tuple[int, ...]
    """Views in each epoch's worth of files."""

    @classmethod
    def prepare(cls, directory: Path, rows: int, queries: int, epochs: int) -> Workload:
        """Write the files, unless they are there."""
        half = rows // PARTITIONS
        for number in range(FILES):
            for partition in range(PARTITIONS):
                file = cls.file(directory, rows, number, partition)
                if not file.exists():
                    first = number * rows + partition * half
                    numbers = pl.int_range(first, first + half, dtype=pl.Int64, eager=True)
                    ysb.events(numbers, rate=rows * 1_000_000 // EPOCH_US).write_parquet(file)
        views = tuple(
            sum(_views(cls.file(directory, rows, number, each)) for each in range(PARTITIONS))
            for number in range(FILES)
        )
        return cls(directory, rows, queries, epochs, views)

    @staticmethod
    def file(directory: Path, rows: int, number: int, partition: int) -> Path:
        return directory / f"{rows}-{number}-{partition}.parquet"

    def heads(self, epoch: int, query: int) -> list[dict[str, Any]]:
        """The head items of an epoch, one a partition."""
        number = epoch % FILES
        return [
            {
                "q": query,
                "e": epoch,
                "p": partition,
                "path": str(self.file(self.directory, self.rows, number, partition)),
                "shift": epoch // FILES * FILES * EPOCH_US,
            }
            for partition in range(PARTITIONS)
        ]

    def expected(self) -> int:
        """Views in all epochs of all queries."""
        return self.queries * sum(self.views[each % FILES] for each in range(self.epochs))


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run writes: its name keeps its state apart from that of other runs."""

    run: str
    directory: Path

    @classmethod
    def make(cls, directory: Path) -> Place:
        run = uuid.uuid4().hex
        (directory / run).mkdir()
        return cls(run, directory / run)

    def lane_item(self, epoch: int, query: int) -> dict[str, Any]:
        return {
            "run": self.run,
            "q": query,
            "e": epoch,
            "w": (epoch + 1) * EPOCH_US,
            "out": str(self.directory),
        }

    def commit(self, epoch: int, query: int, results: list[dict[str, Any]]) -> None:
        """Make an epoch durable against the end of the process: one file, made exclusively."""
        draft = self.directory / f".{query}-{epoch}.commit"
        draft.write_text("v1\n" + json.dumps({"epoch": epoch, "lanes": results}))
        place = self.directory / f"{query}-{epoch}.commit"
        place.hardlink_to(draft)
        draft.unlink()


def _views(file: Path) -> int:
    found = pl.scan_parquet(file).filter(pl.col("event_type") == "view").select(pl.len()).collect()
    return int(found.item())
