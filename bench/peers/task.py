"""What a process of another system's interpreter is asked to do: the same order, in other words.

Such an interpreter has neither Polars nor Anabranch, so nothing but the standard library is used
here. The systems that run in one have no batches of their own: rows that are given go through, and
what is measured is the time until the windows they close are committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

CORES = 2
"""The same as the others have; also the number of parts in which rows are given as text."""
MEMORY = "4g"
LATENESS_MS = 10_000
WINDOW_MS = 10_000
ADS = "ads.csv"
"""The table of ads, beside the order."""
PATIENCE_S = 240.0
POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Task:
    """One case: the files of its phases, each given when those before are worked off."""

    name: str
    files: Path
    rows: int
    """Rows of a file."""
    rate: int
    """Events that are due in a second."""
    a_batch: int
    warm: int
    measured: int
    single: int
    options: Mapping[str, str]
    work: Path

    def __post_init__(self) -> None:
        """Refuse a warm-up of which nobody could see when it is over."""
        if self.due_ms(self.warm * self.a_batch) < WINDOW_MS + LATENESS_MS:
            message = f"{self.name}: the warm-up closes no window; it has to be longer"
            raise ValueError(message)

    @property
    def home(self) -> Path:
        """A directory of this case's own."""
        return self.work / self.name

    @property
    def output(self) -> Path:
        """Where the results are to be in the end, as Parquet."""
        return self.work / "out" / self.name

    @property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """Files from, to: the warm-up, those that count, and the batches that come one by one."""
        ends = [self.warm, self.warm + self.measured]
        ends += [ends[-1] + number for number in range(1, self.single + 1)]
        begins = [0, *ends[:-1]]
        return tuple(
            (begin * self.a_batch, end * self.a_batch)
            for begin, end in zip(begins, ends, strict=True)
        )

    @property
    def last(self) -> int:
        """Files that are given in all."""
        return self.phases[-1][1]

    def due_ms(self, files: int, before: int = 1) -> int:
        """When the last event of the first so many files is due, or one some before it."""
        return (files * self.rows - before) * 1000 // self.rate

    def path(self, number: int) -> Path:
        """The Parquet file of a number."""
        return self.files / f"{number:05d}.parquet"

    def text(self, first: int, last: int, part: int) -> Path:
        """The rows of these files as text, one part of `CORES`."""
        folder = self.files.with_name(f"{self.files.name}-text")
        return folder / f"{first:05d}-{last:05d}.{part}.csv"


class Running(Protocol):
    """A query under way."""

    def give(self, first: int, last: int) -> None:
        """Let it have these files, all at once."""

    def committed(self, files: int) -> bool:
        """Whether the windows that so many files close are where they will stay."""


@dataclass(frozen=True, slots=True)
class Timed:
    """How long the phases of one case took."""

    seconds: float
    latencies_ms: tuple[float, ...]


def read(order: Path) -> tuple[Task, ...]:
    """The tasks of an order."""
    told = json.loads(order.read_text())
    return tuple(_task(told, case) for case in told["cases"])


def run(task: Task, system: Running) -> Timed:
    """Give one phase after the other; the first is not counted."""
    took = [_worked_off(system, first, last) for first, last in task.phases]
    return Timed(took[1], tuple(1000 * seconds for seconds in took[2:]))


def answer(task: Task, timed: Timed, watermark_ms: int) -> dict[str, Any]:
    """What the race reads, for one case; windows that end by the watermark are in the output."""
    latency = {"given to committed": fmean(timed.latencies_ms)} if timed.latencies_ms else {}
    return {
        "case": task.name,
        "rows": task.rows * task.a_batch * task.measured,
        "seconds": timed.seconds,
        "latencies_ms": timed.latencies_ms,
        "parts_ms": latency,
        "files": task.last,
        "watermark_us": watermark_ms * 1000,
    }


def _worked_off(system: Running, first: int, last: int) -> float:
    begin = time.perf_counter()
    system.give(first, last)
    while not system.committed(last):
        if time.perf_counter() > begin + PATIENCE_S:
            message = f"files {first} to {last} were not worked off in {PATIENCE_S:.0f} s"
            raise RuntimeError(message)
        time.sleep(POLL_S)
    return time.perf_counter() - begin


def _task(told: dict[str, Any], case: dict[str, Any]) -> Task:
    files = case["files"]
    return Task(
        case["name"],
        Path(files["directory"]),
        files["rows"],
        files["rate"],
        case["a_batch"],
        case["warm"],
        case["measured"],
        case["single"],
        {**told["options"], **case["options"]},
        Path(told["work"]),
    )
