"""New York taxi trips: by region as in Klink, and DEBS 2015's routes and areas, by cores.

    ./x bench nyt                 # all of it, about two minutes
    ./x bench nyt by-region       # one query

`by-region`: windows of 2 s each second, on columns alone. `routes`, `areas`: the queries of DEBS
2015, told at each change, in plain Python by key. Rows that are all there at once, in 24 epochs, on
Spark with one core and one lane and with two of both; the first quarter is not counted.
"""

from __future__ import annotations

from bench.backlog.runs import Workload, measured
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.workloads import nyt, nyt_routes

RANKING = "The list of ten is one state, whatever the width."
WORKLOADS = {
    "by-region": Workload(lambda rows: nyt.by_region(nyt.source(rows, rate=100_000)), 6_000_000),
    "routes": Workload(
        lambda rows: nyt_routes.frequent_routes(nyt_routes.source(rows, rate=10)), 60_000, RANKING
    ),
    "areas": Workload(
        lambda rows: nyt_routes.profitable_areas(nyt_routes.source(rows, rate=10)), 40_000, RANKING
    ),
}
CHOICES = tuple(WORKLOADS)


def measure(stand: Stand) -> list[Row]:
    """The queries that are asked for."""
    return measured(stand, WORKLOADS, stand.settings.cases)
