"""Frequent routes and profitable areas, against DuckDB over all trips at once and by hand."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import anabranch as ab
from bench.workloads import disorder, nyt_routes

TRIPS, RATE = 170, 4
LAST, PAID_LAST, EMPTY_LAST = 25_000, 15_000, 30_000
"""Times that are short enough for trips to go while others come."""

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 12),
    "uniform delay": lambda frame: delayed(frame, "uniform"),
    "zipf delay": lambda frame: delayed(frame, "zipf"),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=12, share=0.4, seed=1),
    "early": lambda frame: disorder.early(frame, by=12, share=0.3, seed=1),
}
KINDS = pytest.mark.parametrize(
    ("kind", "epoch_rows"), [("none", None), *((kind, 50) for kind in DISORDERS)]
)
EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 1, 2])
MINUTE = 60_000

# Degrees of places near the middle of cells 1.100 to 4.100, or in 2.200, 4.200, ... of 250 m.
A, B, C, D = ((-74.913 + 0.005986 * east, 41.474 - 0.004491556 * 99) for east in range(4))
OUTSIDE = (0.0, 0.0)


def delayed(frame, kind):
    return disorder.delayed(frame, bound_ms=4000, seed=1, kind=kind, time="dropoff")


def trips(count=TRIPS):
    """Of few taxis in small hot spots, so that routes have several trips and taxis too."""
    numbers = pl.int_range(count, dtype=pl.UInt64, eager=True)
    return nyt_routes.trips(numbers, rate=RATE, seed=5, spread=0.002, taxis=60)


def run(program, epoch_rows=None):
    return [
        tuple(row.values())
        for row in ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]
    ]


def trip(dropoff, start, end, *, taxi="t", fare=1000, tip=0):
    """A trip of a minute."""
    return (taxi, dropoff - MINUTE, dropoff, 60, 1.0, *start, *end, "CSH", fare, tip)


def records(*rows):
    return ab.sources.Records(pl.DataFrame(rows, schema=nyt_routes.SCHEMA, orient="row"))


# Against DuckDB


def placed(parts):
    """Trips with both ends in the grid, in order of time, as `kept` for SQL."""
    end = """
        SELECT *, 1 + floor({parts} * (0.5 + ({side}_longitude + 74.913585) / 0.005986)) AS east,
               1 + floor({parts} * (0.5 + (41.474937 - {side}_latitude) / 0.004491556)) AS south
        FROM {table}
    """
    inside = f"east BETWEEN 1 AND {300 * parts} AND south BETWEEN 1 AND {300 * parts}"
    name = "CAST(east AS INTEGER) || '.' || CAST(south AS INTEGER)"
    return f"""
        began AS ({end.format(parts=parts, side="pickup", table="trips")}),
        from_cells AS (SELECT * EXCLUDE (east, south), {name} AS a FROM began WHERE {inside}),
        ended AS ({end.format(parts=parts, side="dropoff", table="from_cells")}),
        kept AS (SELECT *, {name} AS b, row_number() OVER (ORDER BY dropoff, arrival) AS n
                 FROM ended WHERE {inside})
    """


CHANGED = """
    listed AS (SELECT n, list(told ORDER BY place) AS ten FROM ranked WHERE place <= 10 GROUP BY n),
    lists AS (SELECT n, pickup, dropoff, coalesce(ten, []) AS ten FROM kept LEFT JOIN listed USING (n))
    SELECT pickup, dropoff, ten FROM lists
    QUALIFY ten IS DISTINCT FROM lag(ten, 1, []) OVER (ORDER BY n) ORDER BY n
"""


def in_duckdb(given, sql):
    with duckdb.connect() as connection:
        connection.register("trips", given.with_row_index("arrival").to_arrow())
        return connection.sql(sql).fetchall()


def routes_by_duckdb(given):
    """For every trip, all trips before it that ended in the last seconds."""
    rows = in_duckdb(
        given,
        f"""
        WITH {placed(1)},
        counted AS (
            SELECT now.n, past.a, past.b, count(*) AS trips, max(past.dropoff) AS latest
            FROM kept AS now JOIN kept AS past
                ON past.n <= now.n AND past.dropoff > now.dropoff - {LAST}
            GROUP BY ALL
        ),
        ranked AS (
            SELECT n, [a, b] AS told,
                   row_number() OVER (PARTITION BY n ORDER BY trips DESC, latest DESC, a, b) AS place
            FROM counted
        ),
        {CHANGED}
        """,
    )
    return [flat(row, [None, None]) for row in rows]


def areas_by_duckdb(given):
    """For every trip, what was paid and where every taxi was last."""
    rows = in_duckdb(
        given,
        f"""
        WITH {placed(2)},
        past AS (
            SELECT now.n AS n, now.dropoff - past.dropoff AS age, past.* EXCLUDE (n), past.n AS m
            FROM kept AS now JOIN kept AS past ON past.n <= now.n
        ),
        profits AS (
            SELECT n, a AS cell, median(fare + tip) AS profit
            FROM past WHERE age < {PAID_LAST} GROUP BY ALL
        ),
        taxis AS (
            SELECT n, medallion, arg_max(b, m) AS cell FROM past
            GROUP BY ALL HAVING min(age) < {EMPTY_LAST}
        ),
        waiting AS (SELECT n, cell, count(*) AS taxis FROM taxis GROUP BY ALL),
        seen AS (
            SELECT n, cell, max(dropoff) AS latest
            FROM (SELECT n, a AS cell, dropoff FROM past UNION ALL SELECT n, b, dropoff FROM past)
            GROUP BY ALL
        ),
        ranked AS (
            SELECT n, {{'cell': cell, 'taxis': taxis, 'profit': profit, 'worth': profit / taxis}} AS told,
                   row_number() OVER (PARTITION BY n ORDER BY profit / taxis DESC, latest DESC, cell)
                       AS place
            FROM profits JOIN waiting USING (n, cell) JOIN seen USING (n, cell)
        ),
        {CHANGED}
        """,
    )
    return [flat((*row[:2], [[*each.values()] for each in row[2]]), [None] * 4) for row in rows]


def flat(row, nothing):
    pickup, dropoff, ten = row
    ten = [*ten, *([nothing] * (10 - len(ten)))]
    return (pickup, dropoff, *(value for each in ten for value in each))


@pytest.mark.slow
@KINDS
def test_frequent_routes_are_those_of_duckdb(kind, epoch_rows):
    given = DISORDERS[kind](trips())
    program = nyt_routes.frequent_routes(ab.sources.Records(given), lateness="4 s", last=LAST)

    expected = routes_by_duckdb(given)
    assert len(expected) > 80
    assert expected == run(program, epoch_rows)


@pytest.mark.slow
@KINDS
def test_profitable_areas_are_those_of_duckdb(kind, epoch_rows):
    given = DISORDERS[kind](trips())
    program = nyt_routes.profitable_areas(
        ab.sources.Records(given), lateness="4 s", paid_last=PAID_LAST, empty_last=EMPTY_LAST
    )

    expected = areas_by_duckdb(given)
    assert len(expected) > 80
    assert expected == run(program, epoch_rows)


@pytest.mark.slow
@pytest.mark.parametrize("query", [nyt_routes.frequent_routes, nyt_routes.profitable_areas])
def test_any_width_gives_the_same(query):
    given = DISORDERS["uniform delay"](trips(45))
    shorter = {"last": LAST} if query is nyt_routes.frequent_routes else {"paid_last": PAID_LAST}

    ab.testing.assert_same_as_sequential(
        query(ab.sources.Records(given), lateness="4 s", **shorter), rescale_at={1: 3}, crash_at=[2]
    )


@pytest.mark.slow
def test_without_lateness_disorder_across_epochs_shows():
    """The check on the checks: they would notice."""
    given = DISORDERS["uniform delay"](trips())
    program = nyt_routes.frequent_routes(ab.sources.Records(given), last=LAST)

    assert routes_by_duckdb(given) != run(program, 10)


# Trips


def test_the_generator_source_gives_the_trips():
    numbers = pl.int_range(50, dtype=pl.UInt64, eager=True)
    made = ab.Program("trips")
    made.read(nyt_routes.source(50, rate=RATE, seed=5)).write(ab.sinks.Memory("out"))

    found = ab.testing.run_sequential(made)["out"]

    assert nyt_routes.trips(numbers, rate=RATE, seed=5).rows(named=True) == found


def test_trips_are_as_they_were_chosen():
    made = nyt_routes.trips(pl.int_range(20_000, dtype=pl.UInt64, eager=True), rate=RATE)

    minutes = made["trip_time_in_secs"] / 60
    assert 10 == pytest.approx(minutes.median(), rel=0.02)
    assert 0.6 == pytest.approx(minutes.log().std(), rel=0.02)
    assert 0.005 == pytest.approx((made["pickup_longitude"] == 0).mean(), abs=0.002)
    assert 0.5 == pytest.approx((made["payment_type"] == "CRD").mean(), abs=0.02)
    assert 0 == made.filter(payment_type="CSH")["tip"].max()
    by_time = made["dropoff"] - made["pickup"] == 1000 * made["trip_time_in_secs"]
    assert by_time.all()


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((-73.985428, 40.748817), "156.163"),
        ((-73.778139, 40.641311), "191.187"),
        ((-74.913585, 41.474937), "1.1"),
        ((-74.913585 - 0.003, 41.474937), None),
        ((-74.913585 + 0.005986 * 299.4, 41.474937 - 0.004491556 * 299.4), "300.300"),
        ((-74.913585, 41.474937 - 0.004491556 * 299.6), None),
        (OUTSIDE, None),
    ],
)
def test_cells_are_the_challenges(place, expected):
    assert expected == pl.select(nyt_routes.cell(*map(pl.lit, place))).item()


def test_small_cells_have_the_same_border():
    """The first cell of half a kilometre is four of 250 m; its centre is where they meet."""
    for east, south in ((1, 1), (1, 2), (2, 1), (2, 2)):
        longitude = -74.913585 + 0.0029 * (east - 1.5)
        latitude = 41.474937 - 0.0022 * (south - 1.5)
        found = nyt_routes.cell(pl.lit(longitude), pl.lit(latitude), parts=2)
        assert f"{east}.{south}" == pl.select(found).item()


# Routes by hand


def listed(rows):
    """When a list was told, and its routes by the eastern numbers of their cells."""
    cells = [[value.split(".")[0] for value in row[2:] if value is not None] for row in rows]
    return [
        (row[1], ["-".join(pair) for pair in zip(ends[::2], ends[1::2], strict=True)])
        for row, ends in zip(rows, cells, strict=True)
    ]


def routes(*rows, epoch_rows=None):
    return listed(run(nyt_routes.frequent_routes(records(*rows)), epoch_rows))


@EPOCHS
def test_a_list_is_told_when_it_changes(epoch_rows):
    """The third trip makes two of the first route, which is the first already."""
    found = routes(
        trip(1, A, B), trip(2, B, A), trip(3, B, A), trip(4, B, A), epoch_rows=epoch_rows
    )

    assert [(1, ["1-2"]), (2, ["2-1", "1-2"])] == found


@EPOCHS
def test_of_as_many_trips_the_most_recent_is_first(epoch_rows):
    found = routes(
        trip(1, A, B), trip(2, B, C), trip(3, A, B), trip(4, B, C), epoch_rows=epoch_rows
    )

    assert [["1-2"], ["2-3", "1-2"], ["1-2", "2-3"], ["2-3", "1-2"]] == [ten for _, ten in found]


@EPOCHS
@pytest.mark.parametrize(("later", "left"), [(-1, ["3-4", "1-2"]), (0, ["3-4"]), (1, ["3-4"])])
def test_a_trip_counts_for_half_an_hour(later, left, epoch_rows):
    found = routes(trip(0, A, B), trip(30 * MINUTE + later, C, D), epoch_rows=epoch_rows)

    assert [(0, ["1-2"]), (30 * MINUTE + later, left)] == found


@EPOCHS
def test_what_goes_makes_room_for_what_was_not_listed(epoch_rows):
    """Twelve routes of two trips; the first in the list loses one and is below the others then."""
    times = [(0, 200), *((10 * n, 10 * n + 1) for n in range(1, 12))]
    rows = [trip(at, (A[0] + 0.006 * n, A[1]), B) for n in range(12) for at in times[n]]
    rows.sort(key=lambda row: row[2])
    found = routes(*rows, trip(30 * MINUTE + 5, C, D), epoch_rows=epoch_rows)

    assert (200, [f"{n}-2" for n in (1, *range(12, 3, -1))]) == found[-2]
    assert (30 * MINUTE + 5, [f"{n}-2" for n in range(12, 2, -1)]) == found[-1]


@EPOCHS
def test_trips_from_or_to_nowhere_do_not_count(epoch_rows):
    found = routes(trip(1, A, OUTSIDE), trip(2, OUTSIDE, B), trip(3, A, B), epoch_rows=epoch_rows)

    assert [(3, ["1-2"])] == found


# Areas by hand


def areas(*rows, epoch_rows=None):
    """When a list was told, and each area's number, taxis, profit and profitability."""
    found = run(nyt_routes.profitable_areas(records(*rows)), epoch_rows)
    return [(row[1], [row[at : at + 4] for at in range(2, 42, 4) if row[at]]) for row in found]


HERE, THERE = "2.200", "4.200"
"""The cells of 250 m of A and B."""


@EPOCHS
def test_profit_is_the_median_of_what_was_paid(epoch_rows):
    """One taxi waits in A; trips from there that are paid 10, 12, 20 + 1 and end in B."""
    rows = [trip(0, B, A, taxi="waits")]
    rows += [
        trip(n, A, B, taxi="goes", fare=fare, tip=tip)
        for n, fare, tip in ((1, 1000, 0), (2, 1200, 0), (3, 2000, 100))
    ]

    found = [ten for _, ten in areas(*rows, epoch_rows=epoch_rows)]

    here = [[each for each in ten if each[0] == HERE] for ten in found]
    assert [[(HERE, 1, profit, profit)] for profit in (1000.0, 1100.0, 1200.0)] == here[-3:]


@EPOCHS
def test_profitability_is_for_each_empty_taxi(epoch_rows):
    """The second taxi in A halves it; when it leaves for B the first has all of it again."""
    rows = [
        trip(1, A, A, taxi="one"),
        trip(2, B, A, taxi="two", fare=3000),
        trip(3, B, B, taxi="two", fare=3000),
    ]

    assert [
        (1, [(HERE, 1, 1000.0, 1000.0)]),
        (2, [(HERE, 2, 1000.0, 500.0)]),
        (3, [(THERE, 1, 3000.0, 3000.0), (HERE, 1, 1000.0, 1000.0)]),
    ] == areas(*rows, epoch_rows=epoch_rows)


@EPOCHS
@pytest.mark.parametrize("later", [-1, 0])
def test_what_was_paid_counts_for_a_quarter_of_an_hour(later, epoch_rows):
    at = 15 * MINUTE + later
    found = areas(trip(0, A, A, taxi="one"), trip(at, C, D, taxi="two"), epoch_rows=epoch_rows)

    told = [(0, [(HERE, 1, 1000.0, 1000.0)])]
    assert told + ([] if later < 0 else [(at, [])]) == found


@EPOCHS
@pytest.mark.parametrize("later", [-1, 0])
def test_a_taxi_is_empty_for_half_an_hour(later, epoch_rows):
    """A trip from A ends elsewhere just in time to tell what a taxi in A can expect."""
    at = 30 * MINUTE + later
    found = areas(trip(0, B, A, taxi="one"), trip(at, A, D, taxi="two"), epoch_rows=epoch_rows)

    assert ([(at, [(HERE, 1, 1000.0, 1000.0)])] if later < 0 else []) == found


@EPOCHS
def test_a_trip_tells_at_most_one_list(epoch_rows):
    """A taxi's trip from where it waits: it changes its area twice."""
    found = areas(trip(1, A, A), trip(2, A, A, fare=3000), epoch_rows=epoch_rows)

    assert [(1, [(HERE, 1, 1000.0, 1000.0)]), (2, [(HERE, 1, 2000.0, 2000.0)])] == found
