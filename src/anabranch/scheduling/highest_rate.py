"""Highest rate: to the query that gives most rows for a second of work.

After Sharaf, Chrysanthis, Labrinidis, Pruhs 2008: the global output rate of a pipeline is its
selectivity by its cost.
"""

from __future__ import annotations

from anabranch.scheduling.query_view import QueryView, Rank


def highest_rate(query: QueryView) -> Rank:
    """Rows out by seconds; one whose work costs nothing goes first.

    >>> cheap, dear = QueryView(1, 9.0, 100, 0.1, 0.5), QueryView(0, 9.0, 100, 2.0, 1.0)
    >>> highest_rate(cheap) < highest_rate(dear)
    True
    """
    rate = query.gives * query.rows / query.cost if query.cost > 0 else float("inf")
    return -rate, query.place
