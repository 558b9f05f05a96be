"""Many queries in virtual time: nothing is lost, nothing depends on chance, and what policies do."""

import random

import pytest

from anabranch.scheduling.first_come import first_come
from anabranch.scheduling.guard import guarded
from anabranch.scheduling.highest_rate import highest_rate
from anabranch.scheduling.klink import klink
from anabranch.scheduling.next_window import next_window
from anabranch.scheduling.round_robin import round_robin
from anabranch.scheduling.shortest_work import shortest_work
from anabranch.simulate.queries import Load, UniformDelay, ZipfDelay, by_batches, by_policy

POLICIES = {
    "first-come": first_come,
    "round-robin": round_robin,
    "highest-rate": highest_rate,
    "shortest-work": shortest_work,
    "next-window": next_window,
    "klink": klink,
}
DELAYS = {"uniform": UniformDelay(0.0, 0.2), "zipf": ZipfDelay(0.01)}


def loads(count, share, delay, cores=2, seed=3):
    """Queries that take so much of the cores together, of different windows and costs."""
    chance, found = random.Random(seed), []
    each = share * cores / count
    for _ in range(count):
        window, rate = chance.choice([1.0, 2.0, 5.0]), chance.choice([1_000.0, 10_000.0])
        found.append(Load(rate, each / rate, window, delay, start=chance.uniform(0, 5)))
    return found


def runs(given, **options):
    """Every way to run them, by name."""
    for name, policy in POLICIES.items():
        yield name, by_policy(given, guarded(policy), random.Random(7), **options)
    for name, fair in {"fifo": False, "fair": True}.items():
        yield name, by_batches(given, random.Random(7), fair=fair, **options)


@pytest.mark.parametrize("delay", DELAYS)
def test_every_window_fires_once_where_there_is_room(delay):
    given = loads(6, 0.5, DELAYS[delay])
    for name, outcome in runs(given):
        for load, latencies in zip(given, outcome.latencies, strict=True):
            windows = int((60.0 - load.start) / load.window)
            assert windows - 1 <= len(latencies) <= windows, name
            assert all(each >= 0 for each in latencies), name
        came = sum(load.rate * (60.0 - load.start) for load in given)
        assert outcome.rows == pytest.approx(came, rel=0.02), name


def test_the_same_again():
    given = loads(6, 0.9, DELAYS["zipf"])

    assert dict(runs(given)) == dict(runs(given))
    one, other = (by_policy(given, klink, random.Random(seed)) for seed in (1, 2))
    assert one != other


@pytest.mark.parametrize("share", [0.9, 1.3])
def test_no_query_starves(share):
    given = loads(12, share, DELAYS["uniform"])
    for name, policy in POLICIES.items():
        outcome = by_policy(given, guarded(policy), random.Random(7))
        # Patience, and a cycle for every two queries, and those under way.
        assert outcome.longest_wait <= 2.0 + 0.12 * (12 / 2 + 3), name


def test_cores_do_no_more_than_they_can():
    given = loads(8, 1.3, DELAYS["uniform"])
    for name, outcome in runs(given, cores=2):
        work = sum(load.cost * load.rate for load in given) / sum(load.rate for load in given)
        assert outcome.rows * work <= 2 * 60.0 * 1.6, name


@pytest.mark.parametrize("delay", DELAYS)
def test_who_knows_what_is_due_is_ahead_where_there_is_little_room(delay):
    given = loads(16, 0.97, DELAYS[delay])
    found = {name: outcome.mean for name, outcome in runs(given)}

    assert found["klink"] < found["round-robin"]
    assert found["klink"] < found["first-come"]
