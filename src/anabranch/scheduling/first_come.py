"""First come, first served: to the query whose oldest row has waited longest."""

from __future__ import annotations

from anabranch.scheduling.query_view import QueryView, Rank


def first_come(query: QueryView) -> Rank:
    """The oldest row goes first.

    >>> first_come(QueryView(1, 9.0, oldest=3.0)) < first_come(QueryView(0, 9.0, oldest=4.0))
    True
    """
    return query.oldest, query.place
