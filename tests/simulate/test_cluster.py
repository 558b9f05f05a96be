"""Many queries on many nodes in virtual time: as on one, through failures, at any width."""

import random

import pytest

from anabranch.scheduling.guard import guarded
from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.simulate.cluster import Cluster, Failure, Width, on_cluster
from anabranch.simulate.queries import Load, UniformDelay, by_policy

DELAY = UniformDelay(0.0, 0.2)
KLINK = guarded(QUERY_POLICIES["klink"])


def loads(count, share, window=2.0):
    """Queries each of which takes so much of one core."""
    return [
        Load(1_000.0, share / 1_000.0, window, DELAY, start=(number % 7) / 2)
        for number in range(count)
    ]


def whole(found, given, horizon):
    """Whether each window has fired, but for the last one."""
    for load, latencies in zip(given, found.latencies, strict=True):
        windows = int((horizon - load.start) / load.window)
        assert windows - 1 <= len(latencies) <= windows
        assert all(each >= 0 for each in latencies)


@pytest.mark.parametrize("policy", QUERY_POLICIES)
def test_one_node_is_as_without_nodes(policy):
    given, by = loads(5, 0.3), guarded(QUERY_POLICIES[policy])

    apart = by_policy(given, by, random.Random(7), horizon=20.0)
    found = on_cluster(Cluster(1), given, by, random.Random(7), horizon=20.0)

    assert apart.rows == pytest.approx(found.rows)
    assert [len(each) for each in apart.latencies] == [len(each) for each in found.latencies]
    whole(found, given, 20.0)


def test_the_same_again():
    cluster = Cluster(4, lanes=2, failures=(Failure(1, 6.0),), widths=(Width(0, 8.0, 4),))

    first, second = (
        on_cluster(cluster, loads(8, 0.4), KLINK, random.Random(3), horizon=20.0) for _ in range(2)
    )

    assert first == second


def test_nothing_is_lost_when_nodes_fail_and_it_costs_latency():
    given = loads(8, 0.3)
    calm = on_cluster(Cluster(4), given, KLINK, random.Random(3), horizon=30.0)
    failures = (Failure(0, 8.0), Failure(2, 15.0), Failure(2, 16.0))
    failed = on_cluster(Cluster(4, failures=failures), given, KLINK, random.Random(3), horizon=30.0)

    whole(failed, given, 30.0)
    assert failed.rows == pytest.approx(calm.rows, rel=0.02)
    assert failed.quantile(0.99) > calm.quantile(0.99)


def test_the_last_node_stays():
    given = loads(2, 0.2)
    found = on_cluster(
        Cluster(2, failures=(Failure(0, 2.0), Failure(1, 4.0))), given, KLINK, random.Random(3)
    )

    whole(found, given, 60.0)


def test_more_lanes_help_a_query_that_lags_and_fewer_lose_nothing():
    """It needs one core and a half, and a lane is on one at a time."""
    (heavy,) = loads(1, 1.5)
    one = on_cluster(Cluster(2), [heavy], KLINK, random.Random(3), horizon=30.0)
    widened = Cluster(2, widths=(Width(0, 5.0, 3),))
    three = on_cluster(widened, [heavy], KLINK, random.Random(3), horizon=30.0)

    assert three.mean < one.mean / 2
    back = Cluster(2, widths=(Width(0, 5.0, 3), Width(0, 20.0, 2)))
    two = on_cluster(back, [heavy], KLINK, random.Random(3), horizon=30.0)
    whole(two, [heavy], 30.0)
    assert two.rows == pytest.approx(three.rows, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 1_000])
def test_a_thousand_nodes(count):
    given = loads(count, 0.3)
    found = on_cluster(Cluster(1_000, lanes=2), given, KLINK, random.Random(3), horizon=6.0)

    whole(found, given, 6.0)
