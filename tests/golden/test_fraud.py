"""High-mobility fraud: the smallest program whose output shows a wrong order."""

from __future__ import annotations

import math

import polars as pl
import pytest

import anabranch as ab
from bench.workloads import disorder, fraud

EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 1, 2])
BANGALORE, CHENNAI = (12.9716, 77.5946), (13.0827, 80.2707)
MINUTE = 60_000


def call(time, caller, place, callee="999-other"):
    """A call to someone who is always in Bangalore."""
    return (time, 1000, caller, callee, *place, *BANGALORE)


def run(calls, epoch_rows=None, **more):
    frame = pl.DataFrame(calls, schema=fraud.CALLS, orient="row")
    program = fraud.high_mobility(ab.sources.Records(frame), **more)
    return ab.testing.run_sequential(program, epoch_rows=epoch_rows)


def test_the_distance_is_the_great_circles():
    assert "290.17" == f"{fraud.distance_km(BANGALORE, CHENNAI):.2f}"


@EPOCHS
def test_half_an_hour_is_too_fast(epoch_rows):
    found = run([call(0, "080-1", BANGALORE), call(30 * MINUTE, "080-1", CHENNAI)], epoch_rows)

    (suspect,) = found["suspects"]
    assert ("080-1", 30 * MINUTE) == (suspect["phone"], suspect["time"])
    assert "580.3" == f"{suspect['kmh']:.1f}"
    (minute,) = found["frauds"]
    expected = {"window_start": 30 * MINUTE, "window_end": 31 * MINUTE, "frauds": 1}
    assert expected == minute


@EPOCHS
def test_an_hour_is_not(epoch_rows):
    found = run([call(0, "080-1", BANGALORE), call(60 * MINUTE, "080-1", CHENNAI)], epoch_rows)

    assert {"suspects": [], "frauds": []} == found


def test_being_called_counts_like_calling():
    calls = [call(0, "080-1", CHENNAI), call(30 * MINUTE, "080-2", CHENNAI, callee="080-1")]

    assert ["080-1"] == [row["phone"] for row in run(calls)["suspects"]]


def test_two_places_at_once_are_infinitely_fast():
    found = run([call(0, "080-1", BANGALORE), call(0, "080-1", CHENNAI)])

    assert [math.inf] == [row["kmh"] for row in found["suspects"]]


def test_one_place_twice_at_once_is_no_move():
    assert [] == run([call(0, "080-1", CHENNAI), call(0, "080-1", CHENNAI)])["suspects"]


@EPOCHS
def test_swapping_two_records_of_a_phone_changes_the_output(epoch_rows):
    """In order: 1.5 hours there, half an hour back, which is too fast. Swapped: at 90 before 0."""
    calls = [
        call(0, "080-1", BANGALORE),
        call(90 * MINUTE, "080-1", CHENNAI),
        call(120 * MINUTE, "080-1", BANGALORE),
    ]
    in_order = run(calls, epoch_rows)["suspects"]
    swapped = run([calls[1], calls[0], calls[2]], epoch_rows)["suspects"]

    assert [120 * MINUTE] == [row["time"] for row in in_order]
    assert [] == swapped


def test_frauds_are_counted_by_the_minute():
    """Phones that jump in minutes 30, 30 and 31."""
    phones = ["080-1", "080-2", "080-3"]
    times = [30 * MINUTE, 31 * MINUTE - 1, 31 * MINUTE]
    calls = [call(0, phone, BANGALORE) for phone in phones]
    calls += [call(t, phone, CHENNAI) for t, phone in zip(times, phones, strict=True)]

    found = run(calls)["frauds"]

    assert [(30, 2), (31, 1)] == [(row["window_start"] // MINUTE, row["frauds"]) for row in found]


def test_only_interesting_area_codes_are_looked_at():
    calls = [call(0, "080-1", BANGALORE), call(30 * MINUTE, "080-1", CHENNAI)]

    assert 1 == len(run(calls, area_codes=["080", "044"])["suspects"])
    assert [] == run(calls, area_codes=["044"])["suspects"]


# Calls that are made


DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 40),
    "uniform delay": lambda frame: delayed(frame, "uniform"),
    "zipf delay": lambda frame: delayed(frame, "zipf"),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=400, share=0.4, seed=1),
}


def delayed(frame, kind):
    return disorder.delayed(frame, bound_ms=2000, seed=1, kind=kind, time="time")


def made(count=3_000, phones=50, every=1_000):
    """Few phones, so that each is seen every second or so."""
    numbers = pl.int_range(count, dtype=pl.UInt64, eager=True)
    return fraud.calls(numbers, rate=20, seed=5, phones=phones, every=every)


def by_polars(given, area_codes=None):
    """All moves at once, in the order in which calls came."""
    if area_codes is not None:
        given = given.filter(pl.col("caller").str.head(3).is_in(list(area_codes)))
    sides = [
        given.with_row_index("call").select(
            "call", "time", side=pl.lit(at), phone=side, lat=f"{side}_lat", lon=f"{side}_lon"
        )
        for at, side in enumerate(("caller", "callee"))
    ]
    seen = pl.concat(sides).sort("call", "side")
    lat, lon, time = (pl.col(name) for name in ("lat", "lon", "time"))
    before = {name: pl.col(name).shift(1).over("phone") for name in ("lat", "lon", "time")}
    half_lat = ((lat - before["lat"]).radians() / 2).sin() ** 2
    half_lon = ((lon - before["lon"]).radians() / 2).sin() ** 2
    both = lat.radians().cos() * before["lat"].radians().cos()
    km = 2 * 6371.0 * (half_lat + both * half_lon).sqrt().arcsin()
    hours = (time - before["time"]) / 3_600_000
    at_once = pl.when(km > 0).then(math.inf).otherwise(0.0)
    kmh = pl.when(hours == 0).then(at_once).otherwise(km / hours)
    fast = seen.with_columns(kmh=kmh).filter(pl.col("kmh") > 500.0)
    minutes = fast.group_by(window_start=time // MINUTE * MINUTE).agg(frauds=pl.len())
    return fast.select("phone", "time", "kmh"), minutes.sort("window_start")


@pytest.mark.parametrize("kind", DISORDERS)
@pytest.mark.parametrize("epoch_rows", [None, 400])
def test_moves_that_are_too_fast_are_those_that_polars_finds(kind, epoch_rows):
    given = DISORDERS[kind](made(every=100))
    program = fraud.high_mobility(
        ab.sources.Records(given), area_codes=fraud.INTERESTING, lateness="20 s"
    )

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)

    fast, minutes = by_polars(given, fraud.INTERESTING)
    assert fast.height > 20
    ab.testing.assert_same_rows(fast.to_dicts(), found["suspects"])
    counts = [(row["window_start"], row["frauds"]) for row in found["frauds"]]
    assert minutes.rows() == counts


def test_who_is_astray_is_too_fast_there_and_back():
    """Every thousandth call: of three thousand in order, three, each seen before and behind it."""
    fast, _ = by_polars(made())
    astray = made().gather_every(1000)["caller"].to_list()

    # The first has nothing before it: it comes from nowhere, and goes back.
    assert [astray[0], *astray[1:2] * 2, *astray[2:] * 2] == fast["phone"].to_list()


def test_calls_are_between_two_phones_of_their_area_codes():
    given = made(count=500, phones=3)

    assert (given["caller"] != given["callee"]).all()
    assert given["caller"].str.contains(r"^1\d\d-\d{5}$").all()
    assert 3 == given["caller"].n_unique() == given["callee"].n_unique()


def test_any_part_of_the_calls_is_made_alone():
    part = fraud.calls(pl.Series([290, 17], dtype=pl.UInt64), rate=20, seed=5, phones=50)

    assert made()[[290, 17]].equals(part)


@pytest.mark.slow
def test_any_width_gives_the_same():
    program = fraud.high_mobility(
        ab.sources.Records(made(1_000, every=50)), area_codes=fraud.INTERESTING
    )

    ab.testing.assert_same_as_sequential(program, trigger=ab.available_now(200))
