"""The events as text, for a system that cannot read the Parquet files.

Only the columns that the query reads, since a Parquet reader does not touch the others either, and
times as milliseconds. Rows are dealt out in turn to as many parts as there are cores, so that
every part is in the order of time; what is given at once is one file a part.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from bench.peers.task import CORES, Task


def write(task: Task) -> None:
    """Write what a task's phases need, unless it is there already."""
    for first, last in task.phases:
        for part in range(CORES):
            into = task.text(first, last, part)
            if not into.exists():
                into.parent.mkdir(exist_ok=True)
                _write(task, (first, last), part, into)


def _write(task: Task, files: tuple[int, int], part: int, into: Path) -> None:
    with into.open("wb") as handle:
        for number in range(*files):
            # File by file: the rows of all of them would be gigabytes.
            _rows(task.path(number), part).write_csv(handle, include_header=False)


def _rows(path: Path, part: int) -> pl.DataFrame:
    columns = ["ad_id", "event_type", "event_time"]
    events = pl.read_parquet(path, columns=columns).select(columns)
    return events.with_columns(pl.col("event_time").dt.epoch("ms")).gather_every(CORES, part)
