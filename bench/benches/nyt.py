"""New York taxi trips: by region as in Klink, and DEBS 2015's routes and areas, by cores.

    ./x bench nyt                 # all of it, about two minutes
    ./x bench nyt by-region       # one query

`by-region`: windows of 2 s each second, on columns alone. `routes`, `areas`: the queries of DEBS
2015, told at each change, in plain Python by key. Rows that are all there at once, in 24 epochs, on
Spark with one core and one lane and with two of both, behind a short run that is not counted.
"""

from __future__ import annotations

from functools import partial

import polars as pl

import anabranch as ab
from bench.backlog import buffer
from bench.backlog.runs import Workload, measured
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.workloads import nyt, nyt_routes

RANKING = "The list of ten is one state, whatever the width."
RATE, BUFFER = 100_000, 1_000_000


def _by_region(rows: int) -> ab.Program:
    """Trips that are made before, and played again with later times."""
    make = partial(_trips, rate=RATE)
    played = buffer.replayed("trips", make, rows, size=BUFFER, time="pickup", rate=RATE)
    return nyt.by_region(played)


def _trips(rows: int, rate: int) -> pl.DataFrame:
    return nyt.trips(pl.int_range(rows, eager=True), rate=rate)


WORKLOADS = {
    "by-region": Workload(_by_region, 48_000_000),
    "routes": Workload(
        lambda rows: nyt_routes.frequent_routes(nyt_routes.source(rows, rate=10)), 240_000, RANKING
    ),
    "areas": Workload(
        lambda rows: nyt_routes.profitable_areas(nyt_routes.source(rows, rate=10)), 160_000, RANKING
    ),
}
CHOICES = tuple(WORKLOADS)


def measure(stand: Stand) -> list[Row]:
    """The queries that are asked for."""
    return measured(stand, WORKLOADS, stand.settings.cases)
