"""A query as notebooks show it: its figures, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.markup import element, page, table
from anabranch.markup import lines as as_lines
from anabranch.observe.facts import Facts
from anabranch.observe.shown import length


def as_html(
    facts: Facts, totals: Mapping[str, Any], progress: Mapping[str, Any] | None, why: str
) -> str:
    """How a query is: `totals` are its `statistics`, `progress` is its newest commit's."""
    figures = [*_totals(totals), *(() if progress is None else _newest(progress))]
    rows = [(element("b", name), figure) for name, figure in figures]
    return page(
        element("p", element("b", facts.program), f": {_state(facts)}"), table(rows), as_lines(why)
    )


def _state(facts: Facts) -> str:
    if not facts.ended:
        return "running"
    return "stopped" if facts.error is None else "failed"


def _totals(totals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "epochs", f"{totals['epochs']:,}, and {totals['epochsUnderWay']:,} under way"
    late, failed = totals["lateRows"], totals["failedRows"]
    yield "rows read", f"{totals['rows']:,}; {late:,} late, {failed:,} failed"


def _newest(progress: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows, rate = progress["numInputRows"], progress["processedRowsPerSecond"]
    took = max(progress["anabranch"]["latencyMs"], default=0.0) / 1000
    told = f"epoch {progress['batchId']}, {rows:,} rows, {rate:,.0f} rows/s, "
    yield "last commit", f"{told}{length(took)} from cut to commit"
    for operator in progress["stateOperators"]:
        size = operator["customMetrics"]["stateBytes"]
        yield f"state of {operator['operatorName']}", f"{size:,} bytes"
