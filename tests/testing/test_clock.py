from datetime import timedelta

import pytest

from anabranch.testing.clock import MockClock


def test_time_stands_still_by_itself():
    clock = MockClock(start=100.0)

    assert (100.0, 0.0) == (clock.now(), clock.elapsed())
    assert (100.0, 0.0) == (clock.now(), clock.elapsed())


def test_both_hands_move_together():
    clock = MockClock(start=100.0)

    clock.advance(2)
    clock.advance(timedelta(milliseconds=500))

    assert (102.5, 2.5) == (clock.now(), clock.elapsed())


@pytest.mark.parametrize("by", [-1, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_time_never_goes_back(by):
    with pytest.raises(ValueError, match=r"^a clock goes forward: cannot advance by "):
        MockClock().advance(by)
