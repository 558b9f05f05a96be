"""TPCx-BB's queries 1, 2, 3, 4 and 15 as streams, by cores.

    ./x bench tpcxbb              # all five, about three minutes
    ./x bench tpcxbb q3           # one query

Sales and clicks that are all there at once, in 24 epochs, on Spark with one core and one lane and
with two of both, behind a short run that is not counted. Throughput is of rows that come in.
"""

from __future__ import annotations

import anabranch as ab
from bench.backlog import buffer
from bench.backlog.runs import Workload, measured
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.workloads import tpcxbb, tpcxbb_rows

SEED = 5


MADE = {"sales": tpcxbb_rows.sales, "clicks": tpcxbb_rows.clicks}


def _source(kind: str, count: int) -> ab.sources.Source:
    return buffer.source(kind, lambda rows: MADE[kind](rows, SEED), count)


ONE = "What orders a stream by time, or ranks all of it, is one state, whatever the width."
YEAR = "All sales of the year that it asks for are over in a second, 24 jobs of it."
WORKLOADS = {
    "q1": Workload(lambda n: tpcxbb.q1(_source("sales", n), tpcxbb_rows.items()), 2_400_000, ONE),
    "q2": Workload(lambda n: tpcxbb.q2(_source("clicks", n)), 1_200_000, ONE),
    "q3": Workload(lambda n: tpcxbb.q3(_source("clicks", n), tpcxbb_rows.items()), 4_800_000, ONE),
    "q4": Workload(lambda n: tpcxbb.q4(_source("clicks", n), tpcxbb_rows.pages()), 4_800_000, ONE),
    "q15": Workload(
        lambda n: tpcxbb.q15(_source("sales", n), tpcxbb_rows.items()), 1_200_000, YEAR
    ),
}
CHOICES = tuple(WORKLOADS)


def measure(stand: Stand) -> list[Row]:
    """The queries that are asked for."""
    return measured(stand, WORKLOADS, stand.settings.cases)
