"""When the next window fires: how often it does within what was said, and what slack is then."""

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.scheduling.slack import slack
from anabranch.scheduling.sweeps import Estimate, Moments, Sweeps

PERIOD, EPOCHS, WARM = 1.0, 2_000, 50


def uniform(chance):
    return chance.uniform(0.05, 0.5)


def zipf(chance, most=100, exponent=0.99):
    """A rank from 1 on, in hundredths of a second."""
    (rank,) = chance.choices(range(1, most + 1), [n**-exponent for n in range(1, most + 1)])
    return rank / 100


@pytest.mark.parametrize(
    ("delay", "sure", "least"),
    # The last column is the paper's own (Farhat, Daudjee, Querzoni 2021, section 6).
    [(uniform, 0.90, 0.95), (uniform, 0.95, 0.98), (zipf, 0.90, 0.85), (zipf, 0.95, 0.95)],
)
def test_watermarks_come_within_the_interval(delay, sure, least):
    chance, sweeps, inside = random.Random(7), Sweeps(), []
    for number in range(EPOCHS):
        due, late = number * PERIOD, delay(chance)
        estimate = sweeps.next(due)
        if number >= WARM:
            first, last = estimate.within(sure)
            inside.append(first <= due + late <= last)
        sweeps = sweeps.swept(late)

    assert fmean(inside) >= least


def test_records_have_to_do_until_there_are_sweeping_watermarks():
    sweeps = Sweeps()
    assert sweeps.next(5.0) is None
    sweeps = sweeps.brought(Moments.of(0.1, 0.3))

    assert sweeps.next(5.0).at == pytest.approx(5.2)
    for _ in range(8):
        sweeps = sweeps.swept(1.0)
    assert sweeps.next(5.0) == Estimate(6.0, 0.0, (6.0,) * 8)


@given(st.floats(0, 100), st.floats(0, 5), st.floats(0, 100), st.floats(0, 10))
def test_slack_is_near_what_it_is_where_the_watermark_is_known(at, deviation, now, cost):
    found = slack(Estimate(at, deviation), now, cost)

    if now <= at - 3 * deviation:
        assert found == pytest.approx(at - now - cost, abs=3 * deviation + 1e-6)
    if now > at + 3 * deviation:
        assert found == pytest.approx(at - now - cost)


@given(st.floats(0.01, 5), st.floats(0, 10), st.floats(0, 10))
def test_who_is_later_has_less(deviation, earlier, more):
    due = Estimate(20.0, deviation)

    assert slack(due, 25.0 + earlier + more, 1.0) <= slack(due, earlier, 1.0) + 1e-6
    assert slack(due, earlier, 1.0 + more) == pytest.approx(slack(due, earlier, 1.0) - more)
