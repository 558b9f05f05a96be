"""QST, LP, ET and CT as in section 6 of Prasaad et al. 2018, and StreamBox's next externalization."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.scheduling.current_throughput import current_throughput, effective
from anabranch.scheduling.estimated_time import estimated_time, priority
from anabranch.scheduling.last_in_pipeline import last_in_pipeline
from anabranch.scheduling.next_externalization import next_externalization
from anabranch.scheduling.pipeline_view import OperatorView, PipelineView
from anabranch.scheduling.queue_size_throttling import queue_size_throttling, thresholds

POLICIES = [
    queue_size_throttling,
    last_in_pipeline,
    estimated_time,
    current_throughput,
    next_externalization,
]


def operator(waiting=10, workers=0, most=4, cost=1.0, selectivity=1.0, **more):
    return OperatorView(waiting, workers, most, cost, selectivity, **more)


operators = st.builds(
    OperatorView,
    waiting=st.integers(0, 1_000),
    workers=st.integers(0, 4),
    most=st.integers(1, 4),
    cost=st.floats(0, 10),
    selectivity=st.floats(0, 4),
    spent=st.floats(0, 10),
    due=st.none() | st.floats(0, 100),
    open=st.integers(0, 5),
    watermarks=st.integers(0, 3),
)
views = st.lists(operators, min_size=1, max_size=6).map(lambda some: PipelineView(tuple(some)))


@pytest.mark.parametrize("policy", POLICIES)
@given(view=views)
def test_who_has_work_for_one_more_is_chosen_and_nobody_else(policy, view):
    chosen = policy(view)

    if chosen is None:
        assert not view.schedulable, "a worker waits though there is work"
    else:
        assert view.operators[chosen].waiting > 0
        assert view.operators[chosen].workers < view.operators[chosen].most
    assert chosen == policy(view), "the same each time"


def test_throttling_pushes_from_the_entrance_until_enough_waits_behind():
    ahead = PipelineView((operator(), operator(waiting=3)), capacity=10.0)
    behind = PipelineView((operator(), operator(waiting=5)), capacity=10.0)

    assert (5.0, 5.0) == thresholds(ahead)
    assert 0 == queue_size_throttling(ahead)
    assert 1 == queue_size_throttling(behind)


def test_thresholds_follow_what_is_let_through():
    view = PipelineView(
        (operator(selectivity=0.5), operator(selectivity=4.0), operator(selectivity=1.0)),
        capacity=90.0,
    )

    assert (10.0, 40.0, 40.0) == thresholds(view)


def test_where_all_are_throttled_the_last_makes_room():
    view = PipelineView((operator(), operator(waiting=90), operator(waiting=90)), capacity=3.0)

    assert 2 == queue_size_throttling(view), "behind the last one nothing waits"
    full = PipelineView((operator(), operator(90), operator(0)), capacity=0.0)
    assert 1 == queue_size_throttling(full)


def test_the_last_in_the_pipeline_pulls():
    assert 1 == last_in_pipeline(PipelineView((operator(), operator(), operator(waiting=0))))
    busy = operator(workers=4)
    assert 0 == last_in_pipeline(PipelineView((operator(), busy, operator(waiting=0))))


def test_who_would_take_longest_has_most_for_each_worker():
    heavy, shared = operator(cost=3.0), operator(cost=8.0, workers=2)

    assert 30.0 == priority(heavy)
    assert pytest.approx(80 / 3) == priority(shared)
    assert 0 == estimated_time(PipelineView((heavy, shared)))


def test_who_lags_behind_is_counted_in_tuples_of_the_input():
    """10 s at 1 s a tuple are 10; behind a filter of a half each stands for two."""
    view = PipelineView(
        (operator(selectivity=0.5, spent=10.0), operator(spent=10.0, workers=2)), time_slice=1.0
    )

    assert (20.0, 24.0) == effective(view)
    assert 0 == current_throughput(view)


def test_the_next_result_comes_first():
    soon, later = operator(due=5.0), operator(due=9.0)

    assert 0 == next_externalization(PipelineView((soon, later)))
    assert 1 == next_externalization(PipelineView((soon, operator(due=9.0, watermarks=1))))
    assert 0 == next_externalization(PipelineView((operator(open=3), operator(open=1))))
    assert 1 == next_externalization(PipelineView((operator(), operator())))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 5)), min_size=1))
def test_in_a_chain_what_is_due_next_is_last_in_the_pipeline(operators):
    """What waits further on is older, and leaves earlier: each is due some time before the next."""
    due, views = 100.0, []
    for waiting, workers, sooner in operators:
        due -= sooner
        views.append(operator(waiting=waiting, workers=workers, due=due))
    view = PipelineView(tuple(views))

    assert last_in_pipeline(view) == next_externalization(view)
