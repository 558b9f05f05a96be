"""Next externalization among queries: to the one whose next window ends first.

StreamBox's rule (Miao et al. 2017) without what Klink adds to it: what waits costs nothing here,
and the network takes no time. Where there are no windows rows leave as they come: those go first.
"""

from __future__ import annotations

from anabranch.scheduling.query_view import QueryView, Rank


def next_window(query: QueryView) -> Rank:
    """The window that ends first goes first.

    >>> next_window(QueryView(1, 9.0, due=10.0)) < next_window(QueryView(0, 9.0, due=11.0))
    True
    >>> next_window(QueryView(2, 9.0)) < next_window(QueryView(1, 9.0, due=10.0))
    True
    """
    return query.now if query.due is None else query.due, query.oldest, query.place
