"""Whose turn it is: no more than slots, by the policy, nobody forgotten, memory first when short."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.scheduling.expectations import Expectations
from anabranch.scheduling.guard import PATIENCE_S
from anabranch.scheduling.memory_mode import MemoryMode, Waiting
from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.scheduling.sweeps import Estimate
from anabranch.scheduling.turns import Turns


def due(at, cost=0.1, **more):
    return Prospect(0.0, rows=10, cost=cost, due=at, expected=(Estimate(at, 0.0),), **more)


def session(slots, count, policy="klink", memory=None):
    turns = Turns(QUERY_POLICIES[policy], slots, memory)
    for place in range(count):
        turns = turns.enter(place, 0.0)
    return turns


def test_the_least_slack_goes_first():
    turns = session(1, 3).ask(0, due(0.9)).ask(1, due(0.5)).ask(2, due(0.7))

    order, now = [], 1.0
    for _ in range(3):
        turns, (granted,) = turns.next(now)
        order.append(granted.place)
        turns = turns.end(granted.place, now)

    assert [1, 2, 0] == order
    assert (turns, ()) == turns.next(now)


def test_of_several_inputs_the_least_slack_counts():
    both = Prospect(0.0, cost=0.1, expected=(Estimate(9.0, 0.0), Estimate(0.2, 0.0)))
    turns = session(1, 2).ask(0, due(0.5)).ask(1, both)

    _, (granted,) = turns.next(1.0)

    assert 1 == granted.place


def test_a_goal_counts_instead():
    turns = session(1, 2).ask(0, due(0.5, goal=9.0)).ask(1, due(0.6, goal=0.1))

    _, (granted,) = turns.next(1.0)

    assert 1 == granted.place


def test_who_is_in_no_hurry_waits_for_what_came_before():
    """Both have slack for many cycles: the one with less of it has only just got something."""
    soon, later = due(3.0, oldest=0.9), due(9.0, oldest=0.1)
    turns = session(1, 2).ask(0, soon).ask(1, later)

    assert 1 == turns.next(1.0)[1][0].place
    assert 0 == turns.next(2.85)[1][0].place


events = st.lists(
    st.tuples(st.sampled_from(["ask", "end", "leave"]), st.integers(0, 4), st.floats(0, 1)),
    max_size=60,
)


@pytest.mark.parametrize("policy", QUERY_POLICIES)
@given(events=events, slots=st.integers(1, 3))
def test_whatever_happens_there_are_no_more_turns_than_slots(policy, events, slots):
    turns, now = session(slots, 5, policy), 0.0
    for what, place, after in events:
        now += after
        if what == "leave":
            turns = turns.leave(place).enter(place, now)
        elif what == "ask" and place not in turns.at_work:
            turns = turns.ask(place, due(now + after, held=place))
        elif what == "end" and place in turns.at_work:
            turns = turns.end(place, now)
        before = turns
        turns, granted = turns.next(now)
        assert len(turns.at_work) <= slots
        assert {each.place for each in granted} <= before.asking.keys()
        assert bool(granted) == (len(before.at_work) < slots and bool(before.asking))


def test_short_of_memory_who_frees_most_goes_first_and_nobody_reads():
    full = Waiting(1_000, 0.0001, 0.1)
    turns = session(1, 3, memory=MemoryMode(100))
    turns = turns.ask(0, due(1.0, held=60)).ask(1, due(9.0, held=60, queues=(full,)))

    turns, (granted,) = turns.next(2.0)

    assert (1, False) == (granted.place, granted.read)
    turns, (granted,) = turns.end(1, 2.1, held=0).next(2.1)
    assert (0, False) == (granted.place, granted.read), "nobody else can go"
    turns = turns.end(0, 2.2, held=10).ask(0, due(1.0, held=10))
    _, (granted,) = turns.next(2.2)
    assert granted.read, "half of it is free again"


def test_who_only_reads_waits_for_those_that_free_memory():
    full = Waiting(1_000, 0.0001, 0.1)
    turns = session(2, 2, memory=MemoryMode(100))
    turns = turns.ask(0, due(1.0)).ask(1, due(9.0, held=120, queues=(full,)))

    turns, granted = turns.next(2.0)

    assert [1] == [each.place for each in granted]
    _, granted = turns.end(1, 2.1, held=0).next(2.1)
    assert [0] == [each.place for each in granted]


def test_short_of_memory_who_only_reads_does_not_stop_others_however_long_he_has_waited():
    full = Waiting(1_000, 0.0001, 0.1)
    turns = session(2, 3, memory=MemoryMode(100))
    turns = turns.ask(0, due(1.0))
    for place in (1, 2):
        turns = turns.ask(place, due(9.0, held=60, queues=(full,)))
    patience_is_over = 2.0 + PATIENCE_S
    turns = replace(turns, served={**turns.served, 1: patience_is_over, 2: patience_is_over})

    _, granted = turns.next(patience_is_over)

    assert {1, 2} == {each.place for each in granted}


def test_short_of_memory_a_query_that_gives_as_many_rows_as_it_takes_frees_them_all_the_same():
    """What it gives is published, and in memory no more."""
    turns = session(2, 2, memory=MemoryMode(100))
    for place in (0, 1):
        turns = turns.ask(place, due(9.0, held=60, queues=(Waiting(1_000, 0.0001, 1.0),)))

    _, granted = turns.next(2.0)

    assert {0, 1} == {each.place for each in granted}


def test_a_replay_tells_nothing_of_when_things_come():
    live = Expectations().read("in", [99.7, 99.9], 100.0)
    assert live.next("in", 110.0).at == pytest.approx(110.2)

    replay = live.read("in", [-5_000.0], 100.0)

    assert replay.next("in", 110.0) is None
    assert {"in"} == replay.replays
    assert not replay.read("in", [99.9], 100.0).replays
