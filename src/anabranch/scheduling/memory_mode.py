"""When memory runs short: to the query whose turn frees most of it (Klink, section 3.4).

A query's rows wait at operators one behind the other. To work through all that waits up to the k-th
frees `sz_k (1 - S_1 ... S_k)` rows: those that wait, less what becomes of them. What counts is how
many of them a cycle can do, by what they cost. Of queries that free as much the one with the least
slack goes first; who holds nothing goes last, and only reads if nobody else can go: that is the
back-pressure, which comes last. Who gives as many rows as he takes frees nothing by the paper, but
his turn comes all the same: what he gives is published, and in memory no more.

It is on from when the bound is reached until so much is free again, or a time is over, whichever
comes first; if there is still too much by then it is on again at the next look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.scheduling.klink import klink
from anabranch.scheduling.query_view import QueryView, Rank

TARGET = 0.5
"""The part of the bound below which all is as before."""
LONGEST_S = 3.0
"""For how long it is on at a time. Both are the paper's examples."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits at one operator."""

    rows: float
    cost: float
    """Seconds a row."""
    selectivity: float


def most_freed(operators: Sequence[Waiting], within: float) -> float:
    """Rows that a cycle of so many seconds can free, over all prefixes of a pipeline.

    >>> narrow, wide = Waiting(100, 0.01, 0.1), Waiting(50, 0.01, 2.0)
    >>> most_freed([narrow], within=1.0), most_freed([narrow], within=0.5)
    (90.0, 45.0)
    >>> most_freed([narrow, wide], within=9.0), most_freed([wide], within=9.0)
    (120.0, 0.0)
    """
    best = rows = seconds = 0.0
    through = 1.0
    for each in operators:
        rows += each.rows
        seconds += rows * each.cost
        through *= each.selectivity
        share = 1.0 if seconds <= within else within / seconds
        best = max(best, share * rows * (1 - through))
    return best


@dataclass(frozen=True, slots=True)
class MemoryMode:
    """Whether memory is short; a value: each look gives the next one.

    >>> mode = MemoryMode(100).seen(99, now=0.0)
    >>> mode.on, mode.seen(100, now=1.0).on
    (False, True)
    >>> short = mode.seen(120, now=1.0)
    >>> short.seen(60, now=2.0).on, short.seen(49, now=2.0).on, short.seen(60, now=4.5).on
    (True, False, False)
    """

    limit: int
    """Bytes of rows that were read and are not committed, of all queries."""
    since: float | None = None
    """When it was switched on, if it is."""
    times: int = 0
    """How often it was."""

    @property
    def on(self) -> bool:
        """Whether memory is short."""
        return self.since is not None

    def seen(self, held: int, now: float) -> MemoryMode:
        """What it is when so many bytes are held."""
        if self.since is None:
            if held < self.limit:
                return self
            return replace(self, since=now, times=self.times + 1)
        over = held < TARGET * self.limit or now - self.since > LONGEST_S
        return replace(self, since=None) if over else self


def frees_most(query: QueryView) -> Rank:
    """The most rows freed go first, of equals the least slack.

    >>> frees_most(QueryView(1, 9.0, frees=50.0)) < frees_most(QueryView(0, 9.0, frees=9.0))
    True
    """
    return -query.frees, *klink(query)
