"""How a query stands among others, as progress and checkpoints tell it."""

from __future__ import annotations

from typing import Any

from anabranch.runtime.prospects import Prospects
from anabranch.runtime.turns import Standing
from anabranch.scheduling.prospect import Prospect


def among_others(
    standing: Standing, prospect: Prospect, prospects: Prospects, now: float
) -> dict[str, Any]:
    """Figures by name; times in ms, moments in microseconds since 1970."""
    slack, expected = prospect.slack(now), prospects.expected()
    return {
        "policy": standing.policy,
        "queries": standing.queries,
        "rank": standing.rank,
        "waitedMs": _ms(standing.waited),
        "slackMs": _ms(slack),
        "nextFiring": None if expected is None else int(expected.at * 1_000_000),
        "rowsWaiting": prospect.rows,
        "costMs": _ms(prospect.cost),
        "turnMs": _ms(prospects.known.job),
        "rowUs": round(1e6 * prospects.known.row, 6),
        "jobs": prospects.jobs,
        "rowsRead": prospects.rows,
        "turnsMs": _ms(prospects.seconds),
        "heldBytes": prospect.held,
        "memoryShort": standing.short,
        **with_goal(prospects),
    }


def with_goal(prospects: Prospects) -> dict[str, Any]:
    """How a query does by its goal, whether there are others or not."""
    return {
        "goalMs": _ms(prospects.goal),
        "firings": prospects.fired,
        "goalMisses": prospects.missed,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
