"""TPCx-BB's queries 1, 2, 3, 4 and 15 as streams, by cores.

    ./x bench tpcxbb              # all five, about three minutes
    ./x bench tpcxbb q3           # one query

Sales and clicks that are all there at once, in 24 epochs, on Spark with one core and one lane and
with two of both; the first quarter is not counted. Throughput is of rows that come in.
"""

from __future__ import annotations

from functools import cache, partial

import polars as pl

import anabranch as ab
from bench.backlog.runs import Workload, measured
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.workloads import tpcxbb, tpcxbb_rows

SEED = 5


@cache
def _made(kind: str, count: int) -> pl.DataFrame:
    return (tpcxbb_rows.sales if kind == "sales" else tpcxbb_rows.clicks)(count, SEED)


def _part(numbers: pl.Series, kind: str, count: int) -> pl.DataFrame:
    """The rows of these numbers; whoever reads makes all of them once."""
    return _made(kind, count).slice(int(numbers[0]), len(numbers))


def _source(kind: str, count: int) -> ab.sources.Source:
    schema = _made(kind, 10).schema
    make = partial(_part, kind=kind, count=count)
    return ab.sources.Generator(make, schema=schema, rows=count, vectorized=True)


ONE = "What orders a stream by time, or ranks all of it, is one state, whatever the width."
WORKLOADS = {
    "q1": Workload(lambda n: tpcxbb.q1(_source("sales", n), tpcxbb_rows.items()), 120_000, ONE),
    "q2": Workload(lambda n: tpcxbb.q2(_source("clicks", n)), 240_000, ONE),
    "q3": Workload(lambda n: tpcxbb.q3(_source("clicks", n), tpcxbb_rows.items()), 240_000, ONE),
    "q4": Workload(lambda n: tpcxbb.q4(_source("clicks", n), tpcxbb_rows.pages()), 240_000, ONE),
    "q15": Workload(lambda n: tpcxbb.q15(_source("sales", n), tpcxbb_rows.items()), 240_000, ONE),
}
CHOICES = tuple(WORKLOADS)


def measure(stand: Stand) -> list[Row]:
    """The queries that are asked for."""
    return measured(stand, WORKLOADS, stand.settings.cases)
