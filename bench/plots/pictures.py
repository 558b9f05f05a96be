"""Which results files become which pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.report import Row, Series
from bench.harness.results import FOLDER, series_from
from bench.plots.chart import Axis, Points, chart

SESSIONS = ("klink", "fcfs", "rr", "spark-fifo", "spark-fair")
STATE_MB = {"64mb": 64.0, "256mb": 256.0, "1gb": 1024.0}


@dataclass(frozen=True, slots=True)
class Results:
    """The results files of a folder, by their names."""

    folder: Path = FOLDER

    def rows(self, name: str) -> list[Row]:
        """What was measured."""
        found = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        return [Row(**each) for each in found["rows"]]

    def series(self, name: str) -> list[Series]:
        """What is drawn as it came."""
        return series_from(self.folder / f"{name}.series.json")


def speed_up(results: Results) -> str:
    """Schneider's graph with state by key."""
    lines = dict[str, Points]()
    of_case = [row for row in results.rows("scale") if row.case == "stateful"]
    given = [row for row in of_case if row.metric.startswith("throughput, ")]
    for metric in dict.fromkeys(row.metric for row in given):
        points = [(_leading(r.system), r.ratio or 1.0) for r in given if r.metric == metric]
        lines[metric.removeprefix("throughput, ") + " a tuple"] = points
    title = "Speed-up of an operator with state, in virtual time"
    return chart(title, Axis("channels", log=True), Axis("times one channel", log=True), lines)


def per_event(results: Results) -> str:
    """What an event costs, by keys."""
    given = [row for row in results.rows("scale") if row.case == "growth-keys"]
    lines = {"2 million rows": [(_leading(row.system), row.value) for row in given]}
    title = "Processor time of an event, by how many keys there are"
    return chart(title, Axis("keys", log=True), Axis("ns an event"), lines)


def many_queries(results: Results) -> str:
    """Latency of nine queries by what they got done, by policy (figure 1 of Klink)."""
    given = results.rows("sessions-load-overhead")
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


def rescaling(results: Results) -> str:
    """The longest time without results while a second lane comes, by how much state there is."""
    lines: dict[str, dict[float, float]] = {}
    for name, size in STATE_MB.items():
        for row in results.rows(f"elastic-rescale-{name}"):
            if row.metric == "longest_gap":  # once for each that it is compared with
                lines.setdefault(row.system, {})[size] = row.value
    title = "Longest gap between results while one lane becomes two"
    points = {system: list(found.items()) for system, found in lines.items()}
    return chart(title, Axis("MB of state", log=True), Axis("s", log=True), points)


def distributions(results: Results) -> str:
    """Which part of windows took no longer than so, by policy (figure 7 of Klink)."""
    found = results.series("sessions-load-overhead")
    mine = [each for each in found if each.case == "load-100" and each.system in SESSIONS]
    lines = {each.system: each.points for each in mine}
    title = "Nine queries on two cores at 100 % of capacity"
    x = Axis("s from the end of a window until its rows were seen", log=True)
    return chart(title, x, Axis("part of windows"), lines, marks=False)


def through_a_rescale(results: Results) -> str:
    """How long the oldest row of each commit had waited, while one lane becomes two."""
    found = results.series("elastic-rescale-64mb")
    title = "One lane becomes two at 0, with 64 MB of state"
    return _over_time(title, found)


def through_a_kill(results: Results) -> str:
    """How long the oldest row of each commit had waited, while a lane's process is killed."""
    found = results.series("elastic-recover-64mb")
    return _over_time("A lane's process is killed at 0, with 64 MB of state", found)


def _over_time(title: str, found: Sequence[Series]) -> str:
    lines = {each.system: each.points for each in found if each.metric == "waited"}
    y = Axis("s that the oldest row of a commit had waited")
    return chart(title, Axis("s"), y, lines, marks=False)


def _leading(text: str) -> float:
    """The number that a text begins with.

    >>> _leading("1,000 keys")
    1000.0
    """
    return float(text.split(maxsplit=1)[0].replace(",", ""))


PICTURES: Mapping[str, Callable[[Results], str]] = {
    "speed-up": speed_up,
    "per-event": per_event,
    "many-queries": many_queries,
    "rescaling": rescaling,
    "distributions": distributions,
    "through-a-rescale": through_a_rescale,
    "through-a-kill": through_a_kill,
}
