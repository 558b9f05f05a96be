"""Linear Road: tolls and accidents, and Klink's sliding shape of it, by cores.

    ./x bench lrb                 # both, about two minutes
    ./x bench lrb tolls           # one of them

`tolls`: positions, statistics by minute, accidents, tolls and accounts of one expressway, by the
benchmark's rules, most of it plain Python with state by key. `sliding`: three streams by segment in
windows, on columns. Reports that are all there at once, in 24 epochs, on Spark with one core and
one lane and with two of both, behind a short run that is not counted.
"""

from __future__ import annotations

import polars as pl

import anabranch as ab
from bench.backlog import buffer
from bench.backlog.runs import Workload, measured
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.workloads import linear_road
from bench.workloads.linear_road_cars import Traffic, source, timed_reports

TRAFFIC = Traffic()
RATE, BUFFER = 100_000, 1_000_000


def _tolls(rows: int) -> ab.Program:
    return linear_road.tolls(source(TRAFFIC, rows))


def _sliding(rows: int) -> ab.Program:
    """Reports that are made before, and played again with later times."""
    played = buffer.replayed("reports", _reports, rows, size=BUFFER, time="at", rate=RATE)
    return linear_road.sliding_tolls(played)


def _reports(rows: int) -> pl.DataFrame:
    return timed_reports(pl.int_range(rows, eager=True), TRAFFIC, RATE)


WORKLOADS = {"tolls": Workload(_tolls, 1_200_000), "sliding": Workload(_sliding, 9_600_000)}
CHOICES = tuple(WORKLOADS)


def measure(stand: Stand) -> list[Row]:
    """Those that are asked for."""
    return measured(stand, WORKLOADS, stand.settings.cases)
