"""Where systems are measured side by side: the only part that reads the clock."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from bench.harness.report import Series

Clock: TypeAlias = Callable[[], float]
"""Seconds from any beginning, never going back."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much to measure; `quick` asks a benchmark for smaller inputs as well.

    `peer` names another system that is to be measured beside ours; `minutes` says how long what
    takes as long as it is told is to take; `cases` are those to measure, all if there are none.
    """

    runs: int = 5
    warmups: int = 1
    quick: bool = False
    peer: str | None = None
    minutes: float | None = None
    cases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse to measure nothing."""
        if self.runs < 1 or self.warmups < 0:
            message = f"at least one run is needed, got {self.runs} with {self.warmups} warm-ups"
            raise ValueError(message)


class Progress(Protocol):
    """Someone who watches."""

    def begin(self, case: str, steps: int) -> None:
        """A case of so many runs, warm-ups included, begins."""

    def step(self, system: str) -> None:
        """One run of a system is over."""


class Unwatched:
    """Nobody watches."""

    def begin(self, case: str, steps: int) -> None:
        """Say nothing."""

    def step(self, system: str) -> None:
        """Say nothing."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A place to measure: settings, a clock and a watcher."""

    settings: Settings = Settings()
    clock: Clock = time.perf_counter
    progress: Progress = field(default_factory=Unwatched)
    notes: list[str] = field(default_factory=list)
    """What a benchmark found besides its rows; stands below the table."""
    series: list[Series] = field(default_factory=list)
    """What pictures are drawn from."""

    def race(
        self, case: str, contenders: Mapping[str, Callable[[], float]]
    ) -> dict[str, tuple[float, ...]]:
        """The values of each contender's runs, in order; a contender gives the value of one run.

        Contenders take turns (a, b, a, b, ...), so that what disturbs the machine for a while
        disturbs all of them; warm-up rounds come first and are not among the values.
        """
        rounds = self.settings.warmups + self.settings.runs
        self.progress.begin(case, rounds * len(contenders))
        values: dict[str, list[float]] = {system: [] for system in contenders}
        for _ in range(rounds):
            for system, run in contenders.items():
                gc.collect()  # nobody pays for the garbage of the one before
                values[system].append(run())
                self.progress.step(system)
        return {system: tuple(found[self.settings.warmups :]) for system, found in values.items()}

    def seconds(self, work: Callable[[], object]) -> Callable[[], float]:
        """A contender whose value is how long the work takes."""

        def run() -> float:
            begin = self.clock()
            work()
            return self.clock() - begin

        return run

    def throughput(self, rows: int, work: Callable[[], object]) -> Callable[[], float]:
        """A contender whose value is rows a second."""
        seconds = self.seconds(work)
        return lambda: rows / seconds()
