"""The Yahoo Streaming Benchmark against its closed form and against DuckDB."""

from __future__ import annotations

from datetime import datetime, timedelta

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from bench.workloads import disorder, ysb

START = datetime(1970, 1, 1)
EVENTS, RATE = 2500, 100
LATENESS = timedelta(seconds=4)

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 300),
    "uniform delay": lambda frame: disorder.delayed(frame, bound_ms=4000, seed=1),
    "zipf delay": lambda frame: disorder.delayed(frame, bound_ms=4000, seed=1, kind="zipf"),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=500, share=0.4, seed=1),
}


def events(count, variant, rate=RATE):
    numbers = pl.int_range(count, dtype=pl.UInt64, eager=True)
    return ysb.events(numbers, rate=rate, seed=42, variant=variant)


def result(given, lateness="0 s", epoch_rows=None):
    program = ysb.campaign_views(ab.sources.Records(given), lateness=lateness)
    rows = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]
    return pl.DataFrame(rows, schema=ysb.expected(given).schema)


def by_duckdb(given):
    """The query in SQL, over all events at once."""
    ads = ysb.ads()
    with duckdb.connect() as connection:
        connection.register("events", given.to_arrow())
        connection.register("ads", ads.to_arrow())
        return connection.sql(
            """
            SELECT time_bucket(INTERVAL '10 seconds', event_time, TIMESTAMP '1970-01-01')
                       AS window_start,
                   window_start + INTERVAL '10 seconds' AS window_end,
                   campaign_id,
                   count(*) AS views
            FROM events JOIN ads USING (ad_id)
            WHERE event_type = 'view'
            GROUP BY ALL
            ORDER BY window_end, campaign_id
            """
        ).pl()


@pytest.mark.slow
@pytest.mark.parametrize("epoch_rows", [None, 1700])
def test_every_campaign_has_ten_views_in_every_complete_window(epoch_rows):
    found = result(events(9000, "deterministic", rate=300), epoch_rows=epoch_rows).rows()

    windows = [START + timedelta(seconds=10 * k) for k in range(3)]
    ids = sorted(ysb.campaigns())
    expected = [(w, w + timedelta(seconds=10), c, 10) for w in windows for c in ids]
    assert expected == found


def test_an_incomplete_window_is_counted_too():
    found = result(events(300, "deterministic", rate=300))

    assert 100 == found["views"].sum()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "epoch_rows"), [("none", None), *((k, 500) for k in DISORDERS)])
def test_random_events_are_counted_as_duckdb_counts_them(kind, epoch_rows):
    given = DISORDERS[kind](events(EVENTS, "random"))
    # What is held back comes before the end of its epoch, so it needs no lateness.
    lateness = "0 s" if kind in ("none", "held back") else LATENESS

    assert_frame_equal(by_duckdb(given), result(given, lateness, epoch_rows))


@pytest.mark.parametrize("kind", DISORDERS)
def test_polars_counts_as_duckdb_does(kind):
    given = DISORDERS[kind](events(EVENTS, "random"))

    assert_frame_equal(by_duckdb(given), ysb.expected(given))


@pytest.mark.slow
def test_without_lateness_disorder_across_epochs_loses_records():
    """The check on the checks: they would notice."""
    given = DISORDERS["uniform delay"](events(EVENTS, "random"))

    found = result(given, "0 s", epoch_rows=100)

    assert found["views"].sum() < by_duckdb(given)["views"].sum()


@pytest.mark.slow
def test_the_generator_source_gives_the_same_as_the_frame():
    program = ysb.campaign_views(ysb.source(1000, rate=RATE, seed=42))
    found = ab.testing.run_sequential(program)["out"]

    assert ysb.expected(events(1000, "random")).rows(named=True) == found
