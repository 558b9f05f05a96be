"""What a query can expect: learnt from what the network did, not from how long it was passed over."""

from dataclasses import replace

import pytest

import anabranch as ab
from anabranch.epoch.machine import Container, Known, Stage
from anabranch.epoch.protocol import HeadsDone, Offer
from anabranch.epoch.watermarks import SourceTime
from anabranch.observe.waits import Shape, Wait
from anabranch.runtime.prospects import Backlog, Prospects

SECOND = 1_000_000
NOW = 1_700_000_000
"""A moment of the wall clock, and of event time, in seconds; windows of 1 s end there."""
SHAPE = Shape(
    frozenset({"in"}), {"in": None}, (Wait("w", "windows", {"in": 0}, ab.tumbling("1 s")),)
)


def known(seconds):
    time = SourceTime((0,), 0, watermark=None if seconds is None else round(seconds * SECOND))
    return Known({"in": time}, {}, {})


def epoch(before, after, rows=100, *, more=False):
    """One of event times between two watermarks, in seconds; `more` was left behind."""
    return Container(
        0,
        "in",
        Offer({0: (0, rows)}, frozenset(), None, more=more),
        Stage.DONE,
        heads=HeadsDone(0, {0: round(after * SECOND)}, {0: rows}),
        before=known(before),
        after=known(after),
    )


@pytest.fixture
def prospects():
    return Prospects.of(SHAPE, None, known(NOW - 10).times)


def expected(prospects, watermark):
    prospects.watermarks = {"in": round(watermark * SECOND)}
    return prospects.expected()


def test_a_window_is_expected_as_late_as_the_newest_was(prospects):
    """Read 5 s after its window ended, since nobody had a turn for it; the network took 0.3 s."""
    prospects.read(epoch(NOW - 10, NOW - 4.7), NOW - 4.4)

    assert NOW + 1.3 == pytest.approx(expected(prospects, NOW + 0.5).at)


def test_what_leaves_something_behind_says_nothing_of_the_network(prospects):
    prospects.read(epoch(NOW - 10, NOW - 9, more=True), NOW)

    assert expected(prospects, NOW + 0.5) is None


def test_a_replay_is_known_for_one_though_it_always_leaves_something(prospects):
    """Event times of a year ago: nothing is expected by them, and no window of theirs is late."""
    year = 365 * 86_400
    old = Prospects.of(SHAPE, 1.0, known(NOW - year).times)
    old.read(epoch(NOW - year, NOW - year + 5, more=True), NOW)

    assert [] == old.committed(known(NOW - year + 5).times, NOW)
    assert 0 == old.missed


def test_a_window_costs_what_the_rows_before_its_watermark_cost(prospects):
    """100 rows a second: of 10,000 that wait 50 are of the half second before the next end."""
    prospects.read(epoch(NOW - 10, NOW), NOW + 0.2)
    prospects.known = replace(prospects.known, density=100.0, job=0.0, row=0.001)
    prospects.watermarks = {"in": round((NOW + 0.5) * SECOND)}

    found = prospects.prospect(Backlog(10_000, 0, 0, NOW), NOW + 1)

    assert 0.05 == pytest.approx(found.cost)
    assert 10_000 == found.rows


def test_a_window_fires_when_all_has_come_that_it_waits_for(prospects):
    prospects.watermarks = {"in": round((NOW - 0.5) * SECOND)}
    assert not prospects.fires()
    prospects.came("in", round((NOW - 0.1) * SECOND), NOW)
    assert not prospects.fires()
    prospects.came("in", NOW * SECOND, NOW)
    assert prospects.fires()
