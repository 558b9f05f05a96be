"""Klink: to the query with the least slack (Farhat, Daudjee, Querzoni 2021, section 3).

A query of which nothing is known, or that has no windows, has no slack to speak of: what waits
there is as late as it is old, and its work costs what it costs.
"""

from __future__ import annotations

from anabranch.scheduling.query_view import QueryView, Rank


def klink(query: QueryView) -> Rank:
    """The least slack goes first.

    >>> klink(QueryView(1, 9.0, slack=-0.5)) < klink(QueryView(0, 9.0, slack=2.0))
    True
    >>> klink(QueryView(1, 9.0, oldest=6.0)) < klink(QueryView(0, 9.0, slack=-2.0))
    True
    """
    slack = query.oldest - query.now - query.cost if query.slack is None else query.slack
    return slack, query.place
