"""Linear Road's tolls and warnings, against the rules applied to the whole input at once.

The validator below knows all of a run before it says anything: statistics are DuckDB's, stopped
cars are long runs of equal reports, and an accident has its end before anyone is warned of it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby, pairwise
from operator import itemgetter

import duckdb
import numpy as np
import polars as pl
import pytest

import anabranch as ab
from bench.workloads import disorder, linear_road, linear_road_cars
from bench.workloads.linear_road_cars import Traffic

pytestmark = pytest.mark.slow

EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 1, 3])
LATENESS = "2 min"

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 25),
    "uniform": lambda frame: delayed(frame, "uniform"),
    "zipf": lambda frame: delayed(frame, "zipf"),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=40, share=0.4, seed=1),
    "early": lambda frame: disorder.early(frame, by=30, share=0.1, seed=1),
}


def delayed(frame, kind):
    """Up to a minute: cars report every 30 s, so their own reports change places."""
    timed = frame.with_columns(ms=pl.col("time") * 1000)
    return disorder.delayed(timed, bound_ms=60_000, seed=1, kind=kind, time="ms").drop("ms")


def report(time, vid, seg, *, lane=1, pos=None, spd=50, xway=0, direction=0):
    """A report from the beginning of a segment, if it is not told from where."""
    place = seg * 5280 if pos is None else pos
    return (0, time, vid, spd, xway, lane, direction, seg, place)


def reports(rows):
    by_time = sorted(rows, key=itemgetter(1))
    return pl.DataFrame(by_time, schema=linear_road.REPORTS, orient="row")


def run(given, epoch_rows=None, **more):
    program = linear_road.tolls(ab.sources.Records(given), **more)
    return ab.testing.run_sequential(program, epoch_rows=epoch_rows)


# The rules, over everything at once


def expected(given, *, free_cars=50, once=False):
    """The rows of each sink as sets of tuples of their values."""
    statistics = by_duckdb(given)
    crossings, stops = [], []
    for reports_of in cars(given).values():
        crossed, stopped = followed(reports_of)
        crossings += crossed
        stops += stopped
    crashes = collisions(stops)
    if once:
        crashes.sort(key=itemgetter("since"))
        crashes = [next(each) for _, each in groupby_all(crashes, "xway", "dir", "seg")]
    known = {row[:4]: row[4:] for row in statistics}
    tolled = [judged(each, known, crashes, free_cars) for each in crossings]
    entered = [each for each in tolled if each["lane"] != 4]
    return {
        "tolls": {(e["vid"], e["time"], e["lav"], e["toll"]) for e in entered},
        "warnings": {
            (e["time"], e["xway"], e["accident"], e["dir"], e["vid"])
            for e in entered
            if e["accident"] is not None
        },
        "statistics": set(statistics),
        "accidents": {row for each in crashes for row in told_of(each)},
        "accounts": set(charges(tolled)),
    }


def by_duckdb(given):
    """(xway, dir, seg, minute, average speed, cars) wherever the five minutes before have any."""
    with duckdb.connect() as connection:
        connection.register("reports", given.to_arrow())
        return connection.sql(
            """
            WITH minutes AS (
                SELECT xway, dir, seg, time // 60 + 1 AS minute,
                       sum(spd) AS speed, count(*) AS reports, count(DISTINCT vid) AS cars
                FROM reports GROUP BY ALL
            )
            SELECT xway, dir, seg, minute + later AS minute,
                   CAST(floor(sum(speed) / sum(reports) + 0.5) AS BIGINT) AS lav,
                   CAST(coalesce(sum(cars) FILTER (WHERE later = 1), 0) AS BIGINT) AS cars
            FROM minutes, range(1, 6) AS five(later)
            GROUP BY xway, dir, seg, minute + later
            """
        ).fetchall()


def cars(given):
    """The reports of each car on each road, by time."""
    found = defaultdict(list)
    for row in given.sort("time", maintain_order=True).to_dicts():
        found[row["xway"], row["dir"], row["vid"]].append(row)
    return found


def followed(reports_of):
    """Where a car crossed into a segment, and where it stopped, since when and until when."""
    kept = []
    for row in reports_of:
        before = kept[-1] if kept else None
        if before is not None and before["lane"] == 4 and row["lane"] != 0:
            continue
        again = before is not None and row["lane"] == 0 and row["time"] > before["time"] + 60
        kept.append({**row, "trip": (before["trip"] if before else 0) + again})
    runs = [list(each) for _, each in groupby(kept, key=itemgetter("trip", "lane", "pos"))]
    where = [(one[0]["trip"], one[0]["seg"]) for one in runs]
    crossed = [one[0] for at, one in enumerate(runs) if at == 0 or where[at] != where[at - 1]]
    ends = [one[0]["time"] for one in runs[1:]] + [None]
    stopped = [
        {**one[0], "since": one[3]["time"], "until": end}
        for one, end in zip(runs, ends, strict=True)
        if len(one) >= 4
    ]
    return crossed, stopped


def collisions(stops):
    """Two cars at one place at one time; a third counts for nothing."""
    found = []
    for _, here in groupby_all(stops, "xway", "dir", "lane", "pos"):
        counted = []
        for stop in sorted(here, key=itemgetter("since")):
            others = [
                each for each in counted if each["until"] is None or each["until"] > stop["since"]
            ]
            if len(others) == 2:
                continue
            counted.append(stop)
            if others:
                ends = [each["until"] for each in (others[0], stop) if each["until"] is not None]
                pair = {"one": others[0]["vid"], "two": stop["vid"]}
                found.append({**stop, **pair, "until": min(ends, default=None)})
    return found


def judged(crossing, known, crashes, free_cars):
    """A crossing with what the car is told."""
    minute, road = crossing["time"] // 60 + 1, (crossing["xway"], crossing["dir"])
    lav, count = known.get((*road, crossing["seg"], minute), (0, 0))
    step = 1 if crossing["dir"] == 0 else -1
    ahead = [crossing["seg"] + step * far for far in range(5)]
    counting = [
        each["seg"]
        for each in crashes
        if road == (each["xway"], each["dir"]) and counts(each, minute)
    ]
    accident = next((seg for seg in ahead if seg in counting), None)
    toll = 0
    if lav < 40 and count > free_cars and accident is None and crossing["lane"] != 4:
        toll = 2 * (count - free_cars) ** 2
    return {**crossing, "lav": lav, "toll": toll, "accident": accident}


def counts(crash, minute):
    first = crash["since"] // 60 + 2
    if crash["until"] is None:
        return minute >= first
    return first <= minute <= crash["until"] // 60 + 1


def told_of(crash):
    where = (
        *(crash[name] for name in ("xway", "dir", "seg", "lane", "pos")),
        crash["one"],
        crash["two"],
    )
    yield ("accident", crash["since"], *where)
    if crash["until"] is not None:
        yield ("cleared", crash["until"], *where)


def charges(tolled):
    """A toll is charged at the car's next crossing, of whatever road."""
    by_time = sorted(tolled, key=itemgetter("time"))
    for vid, crossings in groupby_all(by_time, "vid"):
        told, balance = list(crossings), 0
        for left, entered in pairwise(told):
            balance += left["toll"]
            if left["toll"]:
                yield (vid, entered["time"], left["toll"], balance)


def groupby_all(rows, *names):
    """Groups wherever their rows are, each in the given order."""
    return groupby(sorted(rows, key=itemgetter(*names)), key=itemgetter(*names))


def assert_as_expected(given, found, **more):
    """The same rows, none of them twice."""
    for name, rows in expected(given, **more).items():
        assert sorted(map(str, rows)) == sorted(str(tuple(row.values())) for row in found[name]), (
            name
        )


# The case worked out by hand


STANDS = {"lane": 2, "pos": 53_000, "spd": 0}
CRASH = [
    *(report(time, 1, 10, **STANDS) for time in (30, 60, 90, 120)),
    *(report(time, 2, 10, **STANDS) for time in (40, 70, 100, 130)),
    report(170, 3, 7),
    report(185, 4, 7),
    report(190, 5, 5),
    report(190, 6, 11),
    report(270, 1, 10, lane=2, pos=53_100),
    report(285, 7, 8),
    report(300, 8, 8),
]


@EPOCHS
def test_an_accident_is_told_from_the_next_minute_to_the_one_of_its_clearing(epoch_rows):
    found = run(reports(CRASH), epoch_rows)

    happened = [(row["kind"], row["time"], row["seg"]) for row in found["accidents"]]
    assert [("accident", 130, 10), ("cleared", 270, 10)] == happened
    assert [(4, 10), (7, 10)] == [(row["vid"], row["accident"]) for row in found["warnings"]]
    assert list(range(1, 9)) == [row["vid"] for row in found["tolls"]]


def test_the_validator_agrees_with_that():
    assert_as_expected(reports(CRASH), run(reports(CRASH)))


@pytest.mark.parametrize(
    ("cars", "speeds", "toll"), [(60, (30, 30), 200), (50, (30, 30), 0), (60, (39, 40), 0)]
)
def test_a_toll_needs_more_than_fifty_cars_that_are_slow_on_average(cars, speeds, toll):
    """The average of 39.5 is rounded to 40."""
    minute = [report(60 + n, n, 20, lane=2, spd=speeds[n % 2]) for n in range(cars)]
    found = run(reports([*minute, report(125, 99, 20)]))

    (last,) = (row for row in found["tolls"] if row["vid"] == 99)
    assert toll == last["toll"]


@EPOCHS
def test_a_toll_is_charged_when_the_car_has_left_also_by_the_exit(epoch_rows):
    minute = [report(n, n, seg, spd=30) for seg in (20, 21) for n in range(seg, seg + 3)]
    through = [report(65, 9, 20), report(95, 9, 21), report(125, 9, 22, lane=4)]
    found = run(reports([*minute, *through]), epoch_rows, free_cars=1)

    assert [(9, 95, 8, 8), (9, 125, 8, 16)] == [tuple(row.values()) for row in found["accounts"]]
    assert [65, 95] == [row["time"] for row in found["tolls"] if row["vid"] == 9]


def test_a_car_that_is_gone_is_heard_of_when_it_enters_again():
    """Not by the report at 90, which is noise; at 120 it is no new trip, and in no new segment."""
    rows = [(30, 1, 8), (60, 4, 8), (90, 1, 9), (120, 0, 8), (150, 1, 8), (300, 0, 8), (330, 1, 8)]
    found = run(
        reports([report(t, 1, seg, lane=lane, pos=seg * 5280 + t) for t, lane, seg in rows])
    )

    assert [30, 300] == [row["time"] for row in found["tolls"]]


def test_a_third_car_at_the_place_of_an_accident_counts_for_nothing():
    """Car 1 drives off: 2 and 3 stay, and there is no accident of these."""
    stand = [report(30 * n + vid, vid, 10, **STANDS) for vid in (1, 2, 3) for n in range(8)]
    found = run(reports([*stand, report(260, 1, 11)]))

    assert [("accident", 92), ("cleared", 260)] == [
        (row["kind"], row["time"]) for row in found["accidents"]
    ]


# Traffic


def stretch():
    """Nine segments around an accident, in its direction, of 13 minutes of traffic."""
    traffic = Traffic(seconds=780, share=0.02, seed=0)
    given = whole(traffic)
    stands = pl.len().over("xway", "dir", "vid", "lane", "pos") >= 4
    crash = given.filter(stands).row(0, named=True)
    behind = (pl.col("seg") - crash["seg"]) * (1 if crash["dir"] == 1 else -1)
    return given.filter((pl.col("dir") == crash["dir"]) & behind.is_between(-2, 6))


def whole(traffic):
    count = linear_road_cars.count(traffic)
    return linear_road_cars.reports(pl.int_range(count, eager=True), traffic)


@pytest.mark.parametrize(
    ("kind", "epoch_rows"), [("none", None), ("uniform", None), *((kind, 60) for kind in DISORDERS)]
)
def test_tolls_of_traffic_are_those_of_the_rules(kind, epoch_rows):
    given = DISORDERS[kind](stretch())
    lateness = None if kind == "none" else LATENESS

    found = run(given, epoch_rows, lateness=lateness, free_cars=2)

    assert_as_expected(given, found, free_cars=2)
    assert 2 == len(found["accidents"])
    assert len(found["warnings"]) > 5
    assert len(found["accounts"]) > 5


def bumpy_road(seed, *, turns=30):
    """Twelve cars that often stand, and often where others do, on two roads of five places each.

    No two report in the same second, so that it does not matter who comes first in one.
    """
    random = np.random.default_rng(seed)
    rows = []
    for vid in range(12):
        place, road = random.integers(5), random.integers(2)
        for turn in range(turns):
            if random.random() < 0.12:
                place, road = random.integers(5), random.integers(2)
            lane = int(random.choice([1, 0, 4], p=[0.94, 0.03, 0.03]))
            where = {"xway": int(road), "direction": int(road), "seg": 40 + int(place)}
            if random.random() < 0.95:
                speed = int(random.integers(60))
                rows.append(report(30 * turn + vid, vid, lane=lane, spd=speed, **where))
    return reports(rows)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_where_cars_stand_all_the_time_it_is_the_same(seed, once):
    given = bumpy_road(seed)

    found = run(given, 50, free_cars=0, once=once)

    assert_as_expected(given, found, free_cars=0, once=once)
    places = [(row["dir"], row["seg"]) for row in found["accidents"] if row["kind"] == "accident"]
    assert len(places) > 2
    assert once == (len(places) == len(set(places)))


def test_any_width_gives_the_same():
    given = ab.sources.Records(bumpy_road(0, turns=9))
    ab.testing.assert_same_as_sequential(linear_road.tolls(given, free_cars=0))


def test_any_width_gives_the_same_where_reports_are_late():
    given = ab.sources.Records(DISORDERS["uniform"](bumpy_road(1, turns=9)), partitions=2)
    program = linear_road.tolls(given, free_cars=0, lateness=LATENESS, once=True)
    ab.testing.assert_same_as_sequential(program)


# Klink's


RATE = 100


def timed(given):
    """With the time at which each comes if they all come at one rate."""
    numbers = pl.int_range(given.height, dtype=pl.Int64, eager=True)
    return given.with_columns(at=numbers * 1000 // RATE)


def sliding_by_duckdb(given, free_cars):
    """A window of 5 s that begins every 3 s holds the end of one of 3 s, which begins with it."""
    with duckdb.connect() as connection:
        connection.register("reports", given.to_arrow())
        return connection.sql(
            f"""
            WITH looked AS (
                SELECT *, "at" // 3000 AS w,
                       count(*) OVER four = 4
                       AND min(pos) OVER four = max(pos) OVER four
                       AND min(lane) OVER four = max(lane) OVER four AS stands
                FROM reports
                WINDOW four AS (
                    PARTITION BY xway, dir, vid ORDER BY "at"
                    ROWS BETWEEN 3 PRECEDING AND CURRENT ROW
                )
            ), crashed AS (
                SELECT DISTINCT xway, dir, seg, w FROM (
                    SELECT xway, dir, seg, w FROM looked WHERE stands
                    GROUP BY xway, dir, seg, w, lane, pos HAVING count(DISTINCT vid) >= 2
                )
            ), tolled AS (
                SELECT xway, dir, seg, w, count(DISTINCT vid) AS cars,
                       floor(sum(spd) / count(*) + 0.5) AS lav,
                       (xway, dir, seg, w) IN (SELECT (xway, dir, seg, w) FROM crashed) AS broken
                FROM looked GROUP BY ALL
            )
            SELECT (w * 3 + 4) * 1000 AS window_start, (w * 3 + 5) * 1000 AS window_end, xway, dir,
                   count(*) AS segments,
                   CAST(sum(CASE WHEN lav < 40 AND cars > {free_cars} AND NOT broken
                            THEN 2 * (cars - {free_cars}) * (cars - {free_cars})
                            ELSE 0 END) AS BIGINT) AS tolls,
                   CAST(sum(CAST(broken AS INT)) AS BIGINT) AS broken
            FROM tolled GROUP BY ALL ORDER BY ALL
            """
        ).fetchall()


@pytest.mark.parametrize(
    ("kind", "epoch_rows"),
    [("none", None), ("none", 60), ("block shuffle", 60), ("held back", 60), ("early", 60)],
)
def test_sliding_tolls_are_those_of_duckdb(kind, epoch_rows):
    given = DISORDERS[kind](timed(stretch()))
    lateness = None if kind == "none" else "1 s"
    program = linear_road.sliding_tolls(ab.sources.Records(given), lateness=lateness, free_cars=9)

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    assert sliding_by_duckdb(given, 9) == [tuple(row.values()) for row in found]
    assert sum(row["tolls"] for row in found) > 0
    assert sum(row["broken"] for row in found) > 0


def test_any_width_gives_the_same_sliding_tolls():
    given = ab.sources.Records(timed(bumpy_road(2, turns=9)))
    ab.testing.assert_same_as_sequential(linear_road.sliding_tolls(given, free_cars=0))


# The cars


TRAFFIC = Traffic(xways=2, seconds=1_800, share=0.005, seed=4)


def test_any_report_is_the_same_alone_and_among_others():
    given = whole(TRAFFIC)
    some = np.random.default_rng(1).permutation(given.height)[:300]

    assert given[some].equals(linear_road_cars.reports(pl.Series(some), TRAFFIC))
    alone = linear_road_cars.reports(pl.Series([5_000]), TRAFFIC)
    assert given[5_000].equals(alone)


def test_sources_give_the_first_reports():
    first = whole(TRAFFIC).head(60)
    source = linear_road_cars.source(TRAFFIC, rows=60)
    timed_source = linear_road_cars.timed_source(TRAFFIC, rate=RATE, rows=60)

    assert run(first) == ab.testing.run_sequential(linear_road.tolls(source))
    in_one, other = (
        ab.testing.run_sequential(linear_road.sliding_tolls(each))
        for each in (ab.sources.Records(timed(first)), timed_source)
    )
    assert in_one == other


def test_a_road_has_the_same_cars_whatever_other_roads_there_are():
    one = Traffic(seconds=1_800, share=0.005, seed=4)

    assert whole(one).equals(whole(TRAFFIC).filter(pl.col("xway") == 0))


def test_cars_enter_report_every_half_minute_and_leave():
    given = whole(TRAFFIC)
    assert given["time"].is_sorted()
    assert (given["seg"] == given["pos"] // 5280).all()
    assert given["seg"].is_between(0, 99).all()
    assert given["spd"].is_between(0, 100).all()

    since = pl.col("time").diff().over("vid")
    entered, left = pl.col("lane") == 0, pl.col("lane").shift(1).over("vid") == 4
    trips = given.with_columns(since=since, begins=since.is_null() | (since > 30), left=left)
    assert trips.filter("begins").select((entered & (pl.col("spd") == 10)).all()).item()
    assert trips.filter(~pl.col("begins")).select((pl.col("since") == 30).all()).item()
    again = trips.filter(pl.col("begins") & pl.col("since").is_not_null())
    assert 0 < again.height < trips["begins"].sum() / 5
    assert again.select((pl.col("left") & (pl.col("since") >= 1000)).all()).item()
    assert trips.filter(pl.col("left")).equals(again)


def test_cars_keep_to_their_direction():
    """But for what a report is off its place where a car stops for an accident."""
    moved = pl.col("pos").diff().over("vid", "dir", pl.col("lane").eq(4).shift(1, fill_value=False))
    given = whole(TRAFFIC).with_columns(ahead=moved * (1 - 2 * pl.col("dir")))
    back = given.filter((pl.col("ahead") < -150) & (pl.col("lane") != 0))

    assert back.is_empty()


def test_there_is_one_accident_at_a_time_on_each_road():
    place = ["xway", "dir", "lane", "pos"]
    stands = whole(TRAFFIC).filter(pl.len().over(*place, "vid") >= 4)
    crashes = stands.group_by(place).agg(
        cars=pl.col("vid").n_unique(), begin=pl.col("time").min(), end=pl.col("time").max()
    )

    assert {0, 1} == set(crashes["xway"])
    assert {2} == set(crashes["cars"])
    by_road = crashes.sort("xway", "begin").with_columns(before=pl.col("end").shift(1).over("xway"))
    assert by_road.select((pl.col("begin") - pl.col("before") >= 300).all()).item()
