"""Which results files become which pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.harness.report import Row
from bench.harness.results import FOLDER
from bench.plots.chart import Axis, Points, chart

Rows = Callable[[str], list[Row]]
"""Of a results file, by its name."""
SESSIONS = ("klink", "fcfs", "rr", "spark-fifo", "spark-fair")
STATE_MB = {"64mb": 64.0, "256mb": 256.0, "1gb": 1024.0}


def from_files(folder: Path = FOLDER) -> Rows:
    """Rows of the results files in a folder."""

    def rows(name: str) -> list[Row]:
        return [Row(**each) for each in json.loads((folder / f"{name}.json").read_text())["rows"]]

    return rows


def speed_up(rows: Rows) -> str:
    """Schneider's graph with state by key."""
    lines = dict[str, Points]()
    given = [row for row in rows("scale") if row.case == "stateful"]
    for metric in dict.fromkeys(row.metric for row in given):
        points = [(_leading(r.system), r.ratio or 1.0) for r in given if r.metric == metric]
        lines[metric.removeprefix("throughput, ") + " a tuple"] = points
    title = "Speed-up of an operator with state, in virtual time"
    return chart(title, Axis("channels", log=True), Axis("times one channel", log=True), lines)


def per_event(rows: Rows) -> str:
    """What an event costs, by keys."""
    given = [row for row in rows("scale") if row.case == "growth-keys"]
    lines = {"2 million rows": [(_leading(row.system), row.value) for row in given]}
    title = "Processor time of an event, by how many keys there are"
    return chart(title, Axis("keys", log=True), Axis("ns an event"), lines)


def many_queries(rows: Rows) -> str:
    """Latency of nine queries by what they got done, by policy (figure 1 of Klink)."""
    given = rows("sessions-load")
    lines = {name: _loads(given, name) for name in SESSIONS}
    title = "Nine queries on two cores at 60, 100 and 130 % of capacity"
    y = Axis("mean latency of windows, s", log=True)
    return chart(title, Axis("rows/s that were committed"), y, lines)


def _loads(given: list[Row], system: str) -> Points:
    found = list[tuple[float, float]]()
    for case in dict.fromkeys(row.case for row in given if row.case.startswith("load-")):
        mine = {r.metric: r.value for r in given if (r.case, r.system) == (case, system)}
        found.append((mine["throughput"], mine["latency_mean"]))
    return found


def rescaling(rows: Rows) -> str:
    """The longest time without results while a second lane comes, by how much state there is."""
    lines: dict[str, dict[float, float]] = {}
    for name, size in STATE_MB.items():
        for row in rows(f"elastic-rescale-{name}"):
            if row.metric == "longest_gap":  # once for each that it is compared with
                lines.setdefault(row.system, {})[size] = row.value
    title = "Longest gap between results while one lane becomes two"
    points = {system: list(found.items()) for system, found in lines.items()}
    return chart(title, Axis("MB of state", log=True), Axis("s", log=True), points)


def _leading(text: str) -> float:
    """The number that a text begins with.

    >>> _leading("1,000 keys")
    1000.0
    """
    return float(text.split(maxsplit=1)[0].replace(",", ""))


PICTURES: Mapping[str, Callable[[Rows], str]] = {
    "speed-up": speed_up,
    "per-event": per_event,
    "many-queries": many_queries,
    "rescaling": rescaling,
}
