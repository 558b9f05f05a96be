"""Whether a policy over queries keeps its contract (`scheduling/query_view.py`), rule by rule.

What is done here is what a session does: it asks for the rank of queries that it shows as frozen
values, again and again, in any order, and has the smallest go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import product
from typing import Any

from anabranch.scheduling.guard import PATIENCE_S, guarded
from anabranch.scheduling.query_view import QueryView
from anabranch.testing.broken import broken

_TURNS = 400
_CYCLE_S = 0.1
_NOW = 1_000.0


class PolicyRule(Enum):
    """What a policy promises."""

    RANKS = "it gives a tuple of numbers, whatever is known of a query"
    COMPARES = "any two ranks can be compared"
    APART = "no two queries have the same rank"
    PURE = "the same view has the same rank, whoever was asked about in between"
    NO_STARVING = "every query has turns, with the guard that a session has"


def check_policy(policy: Callable[[QueryView], tuple[float, ...]]) -> None:
    """Hold a policy over queries to its contract; an AssertionError names the rule it breaks.

    >>> from anabranch.scheduling.klink import klink
    >>> check_policy(klink)
    >>> check_policy(lambda query: (query.rows,))
    Traceback (most recent call last):
        ...
    AssertionError: broken: no two queries have the same rank
      expected  a rank of its own for each query
      found     queries 0 and 1 both have (0,)
      so        end the tuple with query.place
    """
    __tracebackhide__ = True
    views = list(_views())
    ranks = [_rank(policy, view) for view in views]
    _compare(ranks)
    alike = [replace(views[0], place=place) for place in range(3)]
    _apart([_rank(policy, view) for view in alike])
    for view, rank in reversed(list(zip(views, ranks, strict=True))):
        if (again := _rank(policy, view)) != rank:
            text = f"{again} the second time, for {view}"
            raise broken(PolicyRule.PURE, rank, text, "use nothing but the view")
    _starve(policy)


def _views() -> Iterator[QueryView]:
    """Queries of which more or less is known."""
    for place, (rows, cost, due, slack, oldest) in enumerate(
        product((0, 10**6), (0.0, 0.5), (None, _NOW + 3), (None, -2.0, 4.0), (_NOW, _NOW - 9))
    ):
        yield QueryView(place, _NOW, rows, cost, 0.5, oldest, _NOW - 1, due, slack, float(rows))


def _rank(policy: Callable[[QueryView], Any], view: QueryView) -> tuple[float, ...]:
    __tracebackhide__ = True
    try:
        found = policy(view)
    except Exception as error:
        text = f"{type(error).__name__}: {error}, for {view}"
        so = "due and slack may be None, all else may be 0"
        raise broken(PolicyRule.RANKS, "a tuple of numbers", text, so) from error
    good = isinstance(found, tuple) and all(isinstance(each, int | float) for each in found)
    if not good or any(each != each for each in found):  # noqa: PLR0124 - not a number
        so = "return a tuple of numbers; the smallest goes first"
        raise broken(PolicyRule.RANKS, "a tuple of numbers", f"{found!r}, for {view}", so)
    ranked: tuple[float, ...] = found
    return ranked


def _compare(ranks: Sequence[tuple[float, ...]]) -> None:
    __tracebackhide__ = True
    if len({len(each) for each in ranks}) > 1:
        text = f"{min(ranks, key=len)} beside {max(ranks, key=len)}"
        raise broken(PolicyRule.COMPARES, "tuples of one length", text, "fill them up")


def _apart(ranks: Sequence[tuple[float, ...]]) -> None:
    __tracebackhide__ = True
    for at, rank in enumerate(ranks):
        if rank in ranks[:at]:
            text = f"queries {ranks.index(rank)} and {at} both have {rank}"
            expected = "a rank of its own for each query"
            raise broken(PolicyRule.APART, expected, text, "end the tuple with query.place")


def _starve(policy: Callable[[QueryView], tuple[float, ...]]) -> None:
    """All have something to do at every moment."""
    __tracebackhide__ = True
    rank, views = guarded(policy), list(_views())
    served = dict.fromkeys(range(len(views)), _NOW)
    longest = PATIENCE_S + (len(views) + 1) * _CYCLE_S
    for turn in range(_TURNS):
        now = _NOW + turn * _CYCLE_S
        seen = [replace(view, now=now, served=served[view.place]) for view in views]
        chosen = min(seen, key=rank).place
        served[chosen] = now
        if now - min(served.values()) > longest + _CYCLE_S:
            late = min(served, key=served.__getitem__)
            text = f"query {late} has waited for {now - served[late]:.1f} s"
            expected = f"a turn within {longest:.1f} s"
            so = "let the rank follow from the view alone"
            raise broken(PolicyRule.NO_STARVING, expected, text, so)
