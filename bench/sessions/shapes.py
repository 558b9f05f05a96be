"""Queries in the shape of Klink's three: YSB, LRB and NYT.

Shapes, not the benchmarks: operators, windows, selectivity and rate as `workloads` has them for
Klink's profile, on numbers instead of their records. A third of YSB's events are views, 3 s windows
by campaign; LRB's have three measures by segment in sliding windows of 5 s each 3 s, and windows of
1 s behind them; NYT's six operators keep 70 %, and have windows of 2 s each second by region. What
keeps rows instead of partial results, for the bound of memory, is `medians`.
"""

from __future__ import annotations

import polars as pl

import anabranch as ab
from anabranch.connectors.base import Sink, Source


def ysb(source: Source, sink: Sink, name: str) -> ab.Program:
    """Views by campaign."""
    program = ab.Program(name)
    (
        program.read(source, name="events", event_time="t", time_unit="us")
        .filter(pl.col("a") % 3 == 0)
        .with_columns(campaign=pl.col("b") % 100)
        .window(ab.tumbling("3 s"), by="campaign")
        .agg(views=ab.count())
        .write(sink, name="out")
    )
    return program


def lrb(source: Source, sink: Sink, name: str) -> ab.Program:
    """Speeds, vehicles and the slowest by segment, then by the second."""
    program = ab.Program(name)
    (
        program.read(source, name="reports", event_time="t", time_unit="us")
        .with_columns(segment=pl.col("a") % 200, speed=pl.col("b") % 100)
        .window(ab.sliding("5 s", "3 s"), by="segment")
        .agg(speed=ab.mean("speed"), cars=ab.count(), slowest=ab.min("speed"))
        .filter(pl.col("cars") > 0)
        .window(ab.tumbling("1 s"), by="segment")
        .agg(toll=ab.sum("cars"))
        .write(sink, name="out")
    )
    return program


def nyt(source: Source, sink: Sink, name: str) -> ab.Program:
    """Trips by region."""
    program = ab.Program(name)
    (
        program.read(source, name="trips", event_time="t", time_unit="us")
        .filter(pl.col("a") > 0)
        .with_columns(distance=(pl.col("a") % 1000) / 40, fare=(pl.col("b") % 500) / 10)
        .with_columns(region=(pl.col("a") + 12_345 * pl.col("b")) % 100)
        .with_columns(tip=pl.col("fare") / (pl.col("distance") + 1))
        .filter(pl.col("distance") > 7.5)
        .window(ab.sliding("2 s", "1 s"), by="region")
        .agg(trips=ab.count(), distance=ab.mean("distance"), fare=ab.mean("fare"))
        .write(sink, name="out")
    )
    return program


def medians(source: Source, sink: Sink, name: str) -> ab.Program:
    """Median fares by region: no partial result stands for rows, so all are held until then."""
    program = ab.Program(name)
    (
        program.read(source, name="trips", event_time="t", time_unit="us")
        .filter(pl.col("a") % 4 > 0)
        .with_columns(region=pl.col("a") % 100)
        .window(ab.tumbling("1 s"), by="region")
        .agg(fare=ab.quantile("b", 0.5))
        .write(sink, name="out")
    )
    return program


SHAPES = {"ysb": ysb, "lrb": lrb, "nyt": nyt, "medians": medians}
PERIODS = {"ysb": (3.0,), "lrb": (3.0, 1.0), "nyt": (1.0,), "medians": (1.0,)}
"""Seconds between the ends of windows, of each operator that has some."""
LONGEST_PERIOD = 3.0
"""All others divide it."""
