"""The core in virtual time: the same order, the same run again, and the times that follow."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.engine.core import Queueing, Reordering, Scheme
from anabranch.scheduling.current_throughput import current_throughput
from anabranch.scheduling.estimated_time import estimated_time
from anabranch.scheduling.last_in_pipeline import last_in_pipeline
from anabranch.scheduling.next_externalization import next_externalization
from anabranch.scheduling.queue_size_throttling import queue_size_throttling
from anabranch.simulate.model import Model, chained, cost_of, mixed
from anabranch.simulate.pipeline import Costs, Rules, Simulation, StuckError

POLICIES = [
    queue_size_throttling,
    last_in_pipeline,
    estimated_time,
    current_throughput,
    next_externalization,
]
SCHEMES = [
    Scheme(queueing, reordering, room)
    for queueing, reordering, room in product(Queueing, Reordering, (1, 3, 64))
]


def simulated(models, bundles, rules, *, onward=0.0, add=0.0, contention=0.0):
    costs = Costs(cost_of(models), lambda at, rows: onward * len(rows), add, contention)
    return Simulation(chained(models), costs, rules).run([models[0].cut(each) for each in bundles])


def sequentially(models, bundles):
    found = []
    for bundle in bundles:
        values = bundle
        for model in models:
            values = [given for value in values for given in model.outputs(value)]
        found.append(values)
    return found


def drawn(chance, count):
    """Operators of any kind, whose costs are any function of what they are given."""

    def model(number):
        scale = chance.choice([0.0, 1e-5, 1e-3])
        return Model(
            f"operator {number}",
            lambda value: scale * (mixed(value, number) % 7),
            chance.choice([None, None, 1, 3, 8]),
            gives=chance.choice([None, lambda value: [value, value + 1] * (value % 3)]),
        )

    return [model(number) for number in range(count)]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    scheme=st.sampled_from(SCHEMES),
    policy=st.sampled_from(POLICIES),
    workers=st.integers(1, 16),
    ahead=st.sampled_from([None, 1, 5]),
    costs=st.tuples(*[st.sampled_from([0.0, 1e-6, 1e-4])] * 3),
)
def test_what_leaves_is_what_one_alone_makes_in_the_order_it_was_added(
    seed, scheme, policy, workers, ahead, costs
):
    chance = random.Random(seed)
    models = drawn(chance, chance.randint(1, 4))
    bundles = [
        [chance.randrange(50) for _ in range(chance.choice([0, 1, 1, 4]))]
        for _ in range(chance.randint(0, 30))
    ]
    rules = Rules(workers, policy, scheme, time_slice=1e-4, ahead=ahead)
    onward, add, contention = costs

    outcome = simulated(
        models, bundles, rules, onward=onward, add=add, contention=contention * 1000
    )

    assert sequentially(models, bundles) == list(outcome.outputs)
    assert sorted(outcome.left) == list(outcome.left)
    assert all(begin <= end for begin, end in zip(outcome.began, outcome.left, strict=True))
    busy = sum(each.operating + each.sending + each.blocked for each in outcome.operators)
    assert busy <= outcome.workers * outcome.seconds + 1e-9
    assert 0 == outcome.refused or scheme.reordering is Reordering.NON_BLOCKING


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("queueing", Queueing)
@pytest.mark.parametrize("reordering", Reordering)
def test_the_same_run_again_is_the_same(policy, queueing, reordering):
    def run():
        chance = random.Random(5)
        bundles = [[chance.getrandbits(32)] for _ in range(60)]
        rules = Rules(5, policy, Scheme(queueing, reordering, 4), time_slice=1e-3, ahead=20)
        return simulated(drawn(chance, 3), bundles, rules, onward=1e-5, add=1e-6)

    assert run() == run()


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("policy", POLICIES)
def test_so_many_workers_give_so_many_times_the_throughput(workers, policy):
    """One stateless operator, each tuple costs the same, nothing else costs anything."""
    models = [Model.of("map", 2**-10)]

    outcome = simulated(models, [[n] for n in range(160)], Rules(workers, policy))

    assert workers * 2**10 == outcome.throughput
    assert [2**-10] * 96 == list(outcome.latencies)
    assert (1.0,) == outcome.utilisation
    assert 0 == outcome.blocked == outcome.refused


def test_two_workers_two_operators_by_hand():
    """Costs 2 s (stateless) and 1 s (one worker at a time); 1 s for a bundle to go on.

    Second 2: both have operated. Worker 0 sends 0; worker 1 adds 1, leaves it to worker 0, begins 2.
    Second 3: 0 is at `second`, and nobody is free. Worker 0 sends 1.
    Second 4: worker 1 adds 2, worker 0 sends it until 5; worker 1 takes 0 at `second`, until 5.
    Second 5: worker 1 sends 0 until 6. Worker 0 is idle: `second` takes one worker.
    Then one operates on 1 until 7 and sends it until 8, and on 2 until 9, sent until 10.
    """
    models = [Model.of("first", 2.0), Model.of("second", 1.0, partitions=1)]
    costs = Costs(cost_of(models), lambda at, rows: 1.0)
    rules = Rules(2, last_in_pipeline, time_slice=1.0)

    outcome = Simulation(chained(models), costs, rules).run([models[0].cut([n]) for n in range(3)])

    assert (0.0, 0.0, 2.0) == outcome.began
    assert (6.0, 8.0, 10.0) == outcome.left
    first, second = outcome.operators
    assert (6.0, 3.0, 0.0, 0) == (first.operating, first.sending, first.blocked, first.refused)
    assert (3.0, 3.0, 0.0, 0) == (second.operating, second.sending, second.blocked, second.refused)
    assert 0.3 == outcome.throughput
    assert (0.3, 0.15) == outcome.utilisation


def first_slow(value):
    return 5.0 if value == 0 else 1.0


def test_who_has_no_room_is_blocked_and_counted():
    """The first takes 5 s, all others 1 s; the buffer has room for 0 and 1. Two workers.

    Worker 1 adds 1 at 1, has 2 ready at 2, is refused, and waits until 0 has left at 5.
    """
    models = [Model("uneven", first_slow)]

    outcome = simulated(models, [[n] for n in range(3)], Rules(2, last_in_pipeline, Scheme(room=2)))

    assert (5.0, 5.0, 5.0) == outcome.left
    assert 3.0 == outcome.blocked
    assert 1 == outcome.refused


def test_with_a_lock_who_adds_waits_for_who_sends():
    """Four at once, 1 s each; what goes on takes 1 s under the lock.

    Worker 0 sends 0 from 1 to 2; 1, 2 and 3 wait for the lock 1, 2 and 3 s, each sends its own.
    Without a lock worker 0 sends all four and nobody is blocked.
    """
    models = [Model.of("map", 1.0)]

    def blocked(reordering):
        scheme = Scheme(reordering=reordering)
        outcome = simulated(
            models, [[n] for n in range(4)], Rules(4, last_in_pipeline, scheme), onward=1.0
        )
        assert (2.0, 3.0, 4.0, 5.0) == outcome.left
        return outcome.blocked

    assert 1.0 + 2.0 + 3.0 == blocked(Reordering.LOCKED)
    assert 0.0 == blocked(Reordering.NON_BLOCKING)


def test_others_at_an_operator_make_it_dearer_as_they_are_said_to():
    models = [Model.of("map", 1.0)]

    outcome = simulated(models, [[n] for n in range(2)], Rules(2, last_in_pipeline), contention=0.5)

    # The first was alone when it began.
    assert (1.0, 1.5) == outcome.left


@pytest.mark.parametrize("policy", [estimated_time, current_throughput])
def test_an_operator_that_nothing_is_known_of_gets_its_turn(policy):
    """Found here: one that was never tried cost nothing, so that it was never behind."""
    models = [Model.of("first", 1e-3), Model.of("second", 1e-3)]

    outcome = simulated(models, [[n] for n in range(200)], Rules(1, policy))

    assert outcome.left[0] < outcome.began[-1], "the first leaves before the last one is begun"


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"workers": 0}, r"^0 workers: at least one is needed$"),
        ({"time_slice": 0.0}, r"^a time slice of 0\.0 s: a worker would get nothing done$"),
        ({"ahead": 0}, r"^0 bundles ahead: at least one is needed$"),
    ],
)
def test_rules_that_would_never_end_are_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        Rules(**{"workers": 1, "choose": last_in_pipeline} | wrong)


def test_a_policy_that_gives_no_work_is_told():
    models = [Model.of("map", 1.0)]

    with pytest.raises(StuckError, match=r"^0 of 2 bundles have left and nobody goes on; waiting"):
        simulated(models, [[1], [2]], Rules(1, lambda view: None))
