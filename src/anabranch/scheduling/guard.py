"""No query starves, whatever the policy: who has waited too long goes first."""

from __future__ import annotations

from anabranch.scheduling.query_view import Policy, QueryView, Rank

PATIENCE_S = 2.0
"""How long a query that has something to do may be passed over."""


def guarded(policy: Policy, patience: float = PATIENCE_S) -> Policy:
    """The policy, but for queries that were passed over for too long: of those the longest first.

    Of n queries each then has a turn within patience and n cycles.

    >>> from anabranch.scheduling.klink import klink
    >>> calm, starved = QueryView(0, 9.0, served=8.0, slack=-5.0), QueryView(1, 9.0, slack=99.0)
    >>> guarded(klink)(starved) < guarded(klink)(calm), klink(starved) < klink(calm)
    (True, False)
    """

    def rank(query: QueryView) -> Rank:
        if query.now - query.served > patience:
            return (0.0, query.served, query.place)
        return (1.0, *policy(query))

    return rank
