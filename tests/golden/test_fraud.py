"""High-mobility fraud: the smallest program whose output shows a wrong order."""

from __future__ import annotations

import math

import polars as pl
import pytest

import anabranch as ab
from bench.workloads import fraud

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
