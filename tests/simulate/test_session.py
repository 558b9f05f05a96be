"""Sessions in virtual time: what follows from costs and delays, and nothing else."""

import pytest

from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.simulate.session import Feed, Measured, Pace, Simulated, latencies


def feed(rate=1_000.0, seconds=20.0, delay=0.2, begin=0.0, block=50):
    count = int(seconds * rate / block)
    here = tuple(begin + (number + 1) * block / rate + delay for number in range(count))
    return Feed(begin, rate, block, here)


def run(queries, policy="klink", *, slots=2, begin=4.0, end=18.0):
    policy = QUERY_POLICIES[policy]
    return latencies(queries, policy, Pace(0.1), slots=slots, begin=begin, end=end)


@pytest.mark.parametrize("policy", QUERY_POLICIES)
def test_one_query_alone_is_as_late_as_its_rows_and_two_turns(policy):
    """A block of 50 ms is here 0.2 s after its end; two turns of 10 ms; an epoch every 100 ms."""
    found = run([Simulated(Measured(0.01, 0.0), feed(), (1.0,))], policy)

    assert 14 == len(found)
    assert 0.25 + 0.02 - 0.051 <= min(found)
    assert max(found) <= 0.25 + 0.1 + 0.02 + 0.001


def test_more_than_there_is_time_for_is_ever_later():
    query = Simulated(Measured(0.01, 0.0015), feed(seconds=40.0), (1.0,))

    found = run([query, query, query], slots=1, begin=0.0, end=30.0)

    assert max(found) > 3 * min(found)


def test_rows_that_come_later_make_windows_fire_later():
    soon, late = (
        run([Simulated(Measured(0.01, 0.0), feed(delay=delay), (1.0,))]) for delay in (0.1, 0.4)
    )

    assert 0.25 < min(late) - min(soon) < 0.35


def test_what_has_not_fired_by_the_end_counts():
    """Its first turn takes longer than the run."""
    quick, stuck = (Simulated(Measured(turn, 0.0), feed(), (1.0,)) for turn in (0.01, 100.0))

    assert len(run([quick])) == len(run([quick, stuck])), "what never began has no windows"


def test_the_query_with_least_slack_is_served_first():
    """Short windows beside long ones, on one slot that is nearly full."""
    short = Simulated(Measured(0.02, 0.0003), feed(), (1.0,))
    long = Simulated(Measured(0.02, 0.0003), feed(), (5.0,))
    queries = [short, long, long]

    by = {name: run(queries, name, slots=1) for name in ("klink", "rr")}

    assert sum(by["klink"]) / len(by["klink"]) < sum(by["rr"]) / len(by["rr"])
