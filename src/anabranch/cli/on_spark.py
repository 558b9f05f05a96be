"""Run programs on Spark from the command line: a progress line, and Ctrl-C that loses nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from anabranch.api.program import Program
from anabranch.api.query import Query
from anabranch.clock import Clock, SystemClock
from anabranch.epoch.triggers import Trigger
from anabranch.state.stores import Place

_REFRESH_S = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """How programs are run."""

    trigger: Trigger | None
    checkpoint: Place | None
    parallelism: int | None
    master: str
    conf: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a query did."""

    program: str
    epochs: int
    rows: int
    seconds: float


def run_on_spark(
    programs: Sequence[Program], options: Options, clock: Clock | None = None
) -> list[Ran]:
    """Run programs side by side to their end; Ctrl-C drains them, a second one stops them."""
    clock = clock or SystemClock()
    print(f"starting Spark ({options.master})", file=sys.stderr)
    began = clock.elapsed()
    queries: list[Query] = []
    try:
        queries += [_start(program, options, len(programs)) for program in programs]
        _watch(queries)
    except KeyboardInterrupt:
        _stop(queries)
    seconds = clock.elapsed() - began
    for query in queries:
        query.await_termination()
    return [Ran(query.name, *_totals(query), seconds) for query in queries]


def _start(program: Program, options: Options, count: int) -> Query:
    checkpoint = options.checkpoint
    if checkpoint is not None and count > 1:
        checkpoint = checkpoint / program.name
    return program.start(
        trigger=options.trigger,
        checkpoint=None if checkpoint is None else str(checkpoint),
        parallelism="auto" if options.parallelism is None else options.parallelism,
        master=options.master,
        conf=options.conf,
    )


def _watch(queries: Sequence[Query]) -> None:
    """Wait for all, with a line for each that says how far it is."""
    console = Console(file=sys.stderr)
    # What is printed meanwhile goes above the lines if it goes to a screen, else where it is led.
    both = sys.stdout.isatty()
    with Live(console=console, refresh_per_second=5, transient=True, redirect_stdout=both) as live:
        while any(query.is_active for query in queries):
            live.update(Text("\n".join(map(_line, queries))))
            queries[0].await_termination(_REFRESH_S)


def _line(query: Query) -> str:
    progress = query.last_progress
    if progress is None:
        return f"{query.name}: {query.status['message'].lower()}"
    _, rows = _totals(query)
    rate = progress["processedRowsPerSecond"]
    return f"{query.name}: epoch {progress['batchId']}, {rows:,} rows, {rate:,.0f} rows/s"


def _totals(query: Query) -> tuple[int, int]:
    totals: dict[str, Any] = query.statistics()
    return totals["epochs"], totals["rows"]


def _stop(queries: Sequence[Query]) -> None:
    print("finishing what is planned; Ctrl-C again stops at once", file=sys.stderr)
    try:
        for query in queries:
            query.stop(drain=True)
    except KeyboardInterrupt:
        for query in queries:
            query.stop(drain=False)
