"""Running totals and running rankings, as operators for `process`.

A ranking of counts that only grow needs no more state than itself: what is not in it can enter only
when its own count grows, and then it comes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

import anabranch as ab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from polars.datatypes import DataTypeClass

    from bench.workloads.state import State


def counted(*forwarded: str) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """An operator that adds to each record how many of its key have come, as `count`.

    >>> from types import SimpleNamespace
    >>> state = SimpleNamespace(value=None)
    >>> count = counted("word")
    >>> [count({"word": "a"}, state)["count"] for _ in range(3)]
    [1, 2, 3]
    """

    def count(record: dict[str, Any], state: State) -> dict[str, Any]:
        state.value = (state.value or 0) + 1
        return {**{name: record[name] for name in forwarded}, "count": state.value}

    return count


class Ranking(ab.KeyedOperator):
    """The k things with the greatest counts, at the end of each period in which a count changed.

    Takes records with the columns of `things`, a running `count` and the event time `at`, a whole
    number, in time order. Ties are ranked by the things. The last period ends with the watermark.
    """

    def __init__(
        self, things: Mapping[str, DataTypeClass], *, k: int, period: int, above: int = 0
    ) -> None:
        """Rank by counts greater than `above`; `period` is in units of `at`."""
        self._names, self._k, self._period, self._above = tuple(things), k, period, above
        self.out = {"period_end": pl.Int64, "rank": pl.Int64, **things, "count": pl.Int64}

    def on_record(self, record: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
        """Close the period before, if this record is the first of a new one; then rank it."""
        end = (record["at"] // self._period + 1) * self._period
        held, ranking, changed = state.value or (end, [], False)
        if changed and end > held:
            yield from self._rows(held, ranking)
            changed = False
        end = max(end, held)
        if record["count"] > self._above:
            ranking, changed = self._ranked(ranking, record), True
            state.timer_at(end)
        state.value = (end, ranking, changed)

    def on_timer(self, at: int, state: State) -> Iterator[dict[str, Any]]:
        """Close the period, unless a later record has done so."""
        held, ranking, changed = state.value
        if changed and at == held:
            yield from self._rows(held, ranking)
            state.value = (held, ranking, False)

    def _ranked(self, ranking: list[Any], record: dict[str, Any]) -> list[Any]:
        thing = [record[name] for name in self._names]
        others = [[count, other] for count, other in ranking if list(other) != thing]
        ranked = sorted([*others, [record["count"], thing]], key=lambda each: (-each[0], each[1]))
        return ranked[: self._k]

    def _rows(self, end: int, ranking: list[Any]) -> Iterator[dict[str, Any]]:
        for rank, (count, thing) in enumerate(ranking, start=1):
            named = dict(zip(self._names, thing, strict=True))
            yield {"period_end": end, "rank": rank, **named, "count": count}
