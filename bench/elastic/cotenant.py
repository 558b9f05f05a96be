"""What others on the machine notice while a query changes its width.

Another query on the same Spark works off a backlog, and an unrelated program sorts numbers; what
both get done while the width changes is compared with what they got done right before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from bench.elastic.ground import Ground, in_turns
from bench.elastic.rescale import NARROW, WIDE
from bench.elastic.watched import FLOOD, Watched
from bench.harness.machine import ROOT
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared


@dataclass(frozen=True, slots=True)
class Beside:
    """What others got done, a second: of rows, and of pieces of work."""

    rows: float
    pieces: float


@dataclass(frozen=True, slots=True)
class Run:
    """One change of width, and the time before it."""

    steady: Beside
    changing: Beside


def cotenant(stand: Stand, here: Ground) -> list[Row]:
    """A query that changes, another one, and a program."""
    size, case = here.scale.cotenant, "cotenant"
    with (
        here.sized(size, lanes=NARROW) as query,
        here.watched(here.scale.few_keys, lanes=NARROW, name="other") as other,
        _neighbour() as pieces,
    ):
        rate = here.rate(query) / 2  # there are three of them
        other.source.flood(FLOOD)
        query.settle(rate)

        def one(change: Callable[[int], float]) -> Run:
            found = _change(here, query, rate, partial(change, WIDE), other, pieces)
            change(NARROW)
            return found

        ways = {"rescale": query.rescale, "migrate": query.migrate}
        runs, _ = in_turns(stand, case, {name: partial(one, way) for name, way in ways.items()})
        other.source.flood(0)
        query.finish()
        other.finish()
    return rows_of(case, runs)


def rows_of(case: str, runs: dict[str, list[Run]]) -> list[Row]:
    """What others got done, of each as much as before."""
    rows = []
    for name, of, unit in (("query", _rows, "rows/s"), ("program", _pieces, "pieces/s")):
        samples = {way: [of(run.changing) for run in some] for way, some in runs.items()}
        samples["steady"] = [of(run.steady) for some in runs.values() for run in some]
        against = [(way, "steady") for way in runs]
        rows += compared(Metric(case, f"{name}_throughput", unit), samples, against)
    return rows


def _change(
    here: Ground,
    query: Watched,
    rate: float,
    change: Callable[[], float],
    other: Watched,
    pieces: Sequence[float],
) -> Run:
    query.catch_up(rate)
    time.sleep(here.scale.window)
    asked = time.monotonic()
    change()
    ended = time.monotonic()
    return Run(
        _beside(other, pieces, asked - here.scale.window, asked),
        _beside(other, pieces, asked, ended),
    )


def _beside(other: Watched, pieces: Sequence[float], begin: float, end: float) -> Beside:
    """All that was done in a stretch, by how long it was: few commits are too few for a rate."""
    rows = sum(each.rows for each in list(other.commits) if begin <= each.at < end)
    done = sum(begin <= at < end for at in list(pieces))
    return Beside(rows / (end - begin), done / (end - begin))


@contextmanager
def _neighbour() -> Iterator[list[float]]:
    """When the program has done a piece of work, as they come."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.elastic.neighbour"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
    )
    found: list[float] = []

    def read() -> None:
        assert process.stdout is not None
        found.extend(map(float, process.stdout))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield found
    finally:
        process.kill()
        process.wait()
        reader.join()


def _rows(beside: Beside) -> float:
    return beside.rows


def _pieces(beside: Beside) -> float:
    return beside.pieces
