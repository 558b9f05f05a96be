"""Policies over queries: what each goes by, that none starves, that no two queries are equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.scheduling.first_come import first_come
from anabranch.scheduling.guard import guarded
from anabranch.scheduling.highest_rate import highest_rate
from anabranch.scheduling.klink import klink
from anabranch.scheduling.next_window import next_window
from anabranch.scheduling.query_view import QueryView
from anabranch.scheduling.round_robin import round_robin
from anabranch.scheduling.shortest_work import shortest_work

POLICIES = [first_come, round_robin, highest_rate, shortest_work, next_window, klink]
times = st.floats(0, 1e6)
views = st.lists(
    st.builds(
        QueryView,
        place=st.just(0),
        now=st.just(1e6),
        rows=st.integers(0, 10**9),
        cost=times,
        gives=st.floats(0, 100),
        oldest=times,
        served=times,
        due=st.none() | times,
        slack=st.none() | st.floats(-1e6, 1e6),
    ),
    min_size=1,
    max_size=12,
).map(lambda found: [QueryView(**_fields(each), place=at) for at, each in enumerate(found)])


def _fields(view):
    return {name: getattr(view, name) for name in QueryView.__slots__ if name != "place"}


@pytest.mark.parametrize("policy", POLICIES)
@given(views)
def test_every_two_queries_have_an_order(policy, queries):
    ranks = [policy(query) for query in queries]

    assert len(ranks) == len(set(ranks))
    assert len(sorted(ranks)) == len(queries)


@pytest.mark.parametrize("policy", POLICIES)
@given(queries=views, patience=st.floats(0.1, 10), cycle=st.floats(0.01, 1))
def test_no_query_starves(policy, queries, patience, cycle):
    """All have something to do at every moment, and one has a turn in each cycle."""
    rank, served = guarded(policy, patience), dict.fromkeys(range(len(queries)), 0.0)
    longest = patience + (len(queries) + 1) * cycle
    for turn in range(1, 200):
        now = turn * cycle
        seen = [
            QueryView(
                **{**_fields(each), "now": now, "served": served[each.place]}, place=each.place
            )
            for each in queries
        ]
        chosen = min(seen, key=rank)
        assert all(now - since <= longest + 1e-6 for since in served.values())
        served[chosen.place] = now
