"""Klink: to the query with the least slack (Farhat, Daudjee, Querzoni 2021, section 3).

That is: to the one with the least slack of those that would be late if they had to wait for one
more cycle. Who has more slack than that is in no hurry, and it does not matter to his next window
who of them goes first; but it does to all: a turn costs what it costs, whatever is in it, so that
who gathers most rows for one costs least. Of those the one whose rows came first goes first. By
least slack alone the query with the shortest windows would have a turn for every few rows.

A query of which nothing is known, or that has no windows, has no slack to speak of: what waits
there is as late as it is old, and its work costs what it costs.
"""

from __future__ import annotations

from anabranch.scheduling.query_view import QueryView, Rank
from anabranch.scheduling.slack import CYCLE_S

URGENT_S = CYCLE_S
"""Slack that does not last for one more cycle."""


def klink(query: QueryView) -> Rank:
    """The least slack goes first, then what came first.

    >>> klink(QueryView(1, 9.0, slack=-0.5)) < klink(QueryView(0, 9.0, slack=0.1))
    True
    >>> klink(QueryView(1, 9.0, oldest=6.0)) < klink(QueryView(0, 9.0, slack=-2.0))
    True
    >>> calm = QueryView(1, 9.0, oldest=6.0, slack=3.0)
    >>> klink(calm) < klink(QueryView(0, 9.0, oldest=8.0, slack=2.0))
    True
    """
    slack = query.oldest - query.now - query.cost if query.slack is None else query.slack
    if slack > URGENT_S:
        return 1.0, query.oldest, query.place
    return 0.0, slack, query.place
