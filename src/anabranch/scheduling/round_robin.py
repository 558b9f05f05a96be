"""Round robin: to the query that had its last turn longest ago."""

from __future__ import annotations

from anabranch.scheduling.query_view import QueryView, Rank


def round_robin(query: QueryView) -> Rank:
    """Whoever was served first goes first.

    >>> round_robin(QueryView(1, 9.0, served=3.0)) < round_robin(QueryView(0, 9.0, served=4.0))
    True
    """
    return query.served, query.place
