"""Linear Road: tolls and accidents, and Klink's sliding shape of it, by cores.

    ./x bench lrb                 # both, about a minute
    ./x bench lrb tolls           # one of them

`tolls`: positions, statistics by minute, accidents, tolls and accounts of one expressway, by the
benchmark's rules, most of it plain Python with state by key. `sliding`: three streams by segment in
windows, on columns. Reports that are all there at once, in 24 epochs, on Spark with one core and
one lane and with two of both; the first quarter is not counted.
"""

from __future__ import annotations

import anabranch as ab
from bench.backlog.runs import Workload, measured
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.workloads import linear_road
from bench.workloads.linear_road_cars import Traffic, source, timed_source

TRAFFIC = Traffic(seconds=1_800)
RATE = 100_000


def _tolls(rows: int) -> ab.Program:
    return linear_road.tolls(source(TRAFFIC, rows))


def _sliding(rows: int) -> ab.Program:
    return linear_road.sliding_tolls(timed_source(TRAFFIC, rate=RATE, rows=rows))


WORKLOADS = {"tolls": Workload(_tolls, 150_000), "sliding": Workload(_sliding, 1_000_000)}
CHOICES = tuple(WORKLOADS)


def measure(stand: Stand) -> list[Row]:
    """Those that are asked for."""
    return measured(stand, WORKLOADS, stand.settings.cases)
