"""Taxi trips by region, against DuckDB over all of them at once."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from bench.workloads import disorder, nyt

pytestmark = pytest.mark.slow

TRIPS, RATE = 500, 100

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 100),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=100, share=0.4, seed=1),
}


def trips(count=TRIPS):
    return nyt.trips(pl.int_range(count, dtype=pl.UInt64, eager=True), rate=RATE, seed=5)


def by_duckdb(given):
    """The query in SQL: each trip is in the two windows that hold its second."""
    with duckdb.connect() as connection:
        connection.register("trips", given.to_arrow())
        return connection.sql(
            f"""
            WITH placed AS (
                SELECT pickup, fare, tip, trip_distance, passenger_count,
                       longitude / 1e6 AS lon, latitude / 1e6 AS lat
                FROM trips
            ), kept AS (
                SELECT *, (CAST(trunc((lon + 750) * 100) AS BIGINT)
                           + 12345 * CAST(trunc((lat + 1400) * 100) AS BIGINT)) % 100 AS region
                FROM placed
                WHERE lon BETWEEN {nyt.WEST} AND {nyt.EAST}
                  AND lat BETWEEN {nyt.SOUTH} AND {nyt.NORTH}
                  AND passenger_count >= 1 AND trip_distance > {nyt.SHORTEST_MILES}
            ), windowed AS (
                SELECT *, (pickup // 1000 - back) * 1000 AS window_start
                FROM kept, (VALUES (0), (1)) AS two(back)
            )
            SELECT window_start, window_start + 2000 AS window_end, region,
                   count(*) AS trips, avg(trip_distance * {nyt.KM_A_MILE}) AS km,
                   avg(fare) AS fare, avg(tip / fare) AS tipped
            FROM windowed GROUP BY ALL ORDER BY window_end, window_start, region
            """
        ).pl()


@pytest.mark.parametrize("kind", DISORDERS)
@pytest.mark.parametrize("epoch_rows", [None, 120])
def test_trips_by_region_are_those_of_duckdb(kind, epoch_rows):
    given = DISORDERS[kind](trips())
    program = nyt.by_region(ab.sources.Records(given), lateness="2 s")

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    expected = by_duckdb(given)
    assert expected.height > 200
    assert_frame_equal(expected, pl.DataFrame(found, schema=expected.schema), rel_tol=1e-9)


def test_any_width_gives_the_same():
    ab.testing.assert_same_as_sequential(nyt.by_region(nyt.source(400, rate=RATE, seed=5)))


def test_seven_of_ten_trips_are_aggregated():
    """What Klink's description says of its input and of what is aggregated."""
    program = nyt.by_region(ab.sources.Records(trips(1_500)))
    found = ab.testing.run_sequential(program)["out"]

    in_two_windows_each = sum(row["trips"] for row in found)
    assert 0.7 == pytest.approx(in_two_windows_each / 2 / 1_500, abs=0.03)
