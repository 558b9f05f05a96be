"""Shortest remaining work: to the query that is done soonest with all that waits."""

from __future__ import annotations

from anabranch.scheduling.query_view import QueryView, Rank


def shortest_work(query: QueryView) -> Rank:
    """The least cost goes first.

    >>> shortest_work(QueryView(1, 9.0, cost=0.1)) < shortest_work(QueryView(0, 9.0, cost=0.2))
    True
    """
    return query.cost, query.place
