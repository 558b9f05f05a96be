"""How long nothing is committed while the width changes, live and by stopping and starting.

One query for each size, with rows at a steady rate, lives through all runs. A run is a change from
one lane to two and, once it has settled, back again. `steady` is the longest time between commits
right before a change is asked for, over as long as the change of the run before took, or longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.elastic.ground import Ground, in_turns
from bench.elastic.watched import Gap, Watched, longest
from bench.harness.report import Row, Series
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

AFTER_S = 1.0
"""A change is watched for so long behind its first commit: what it left to do shows there."""
LONGER = 1.5
NARROW, WIDE = 1, 2


@dataclass(frozen=True, slots=True)
class Change:
    """One change of width."""

    steady: Gap
    gap: Gap
    asked: float
    turn: float
    """Seconds until the first commit at the new width."""
    executors: int = 1
    """How many have its lanes afterwards."""
    waited: tuple[tuple[float, float], ...] = ()
    """Commits around it: when, and how long their oldest row had waited."""

    def told(self) -> str:
        """Where the time of the longest gap went."""
        end = self.gap.end
        spent = ", ".join(f"{name} {ms:.0f}" for name, ms in end.where.items() if ms >= 1)
        tasks = ", ".join(f"{name} {ms:.0f}" for name, ms in end.tasks.items() if ms >= 1)
        return (
            f"{self.gap.seconds:.2f} s from {self.gap.begin - self.asked:+.2f} s to "
            f"{end.at - self.asked:+.2f} s of {self.turn:.2f} s, committed at width {end.lanes} "
            f"in {end.jobs} jobs, {end.epochs} epochs of {end.rows:,} rows (steady "
            f"{self.steady.seconds:.2f} s); ms: {spent}; of tasks: {tasks}"
        )


@dataclass(frozen=True, slots=True)
class Run:
    """There and back."""

    up: Change
    down: Change

    @property
    def both(self) -> tuple[Change, Change]:
        return self.up, self.down


@dataclass(frozen=True, slots=True)
class Seen:
    """The runs of one query by the way it was changed, and what it ran with."""

    runs: Mapping[str, Sequence[Run]]
    keys: int
    state: int
    """Bytes."""
    rate: float


@dataclass(slots=True)
class _Changing:
    """A query that is changed again and again."""

    query: Watched
    rate: float
    window: float

    def run(self, change: Callable[[int], float]) -> Run:
        return Run(self._change(change, WIDE), self._change(change, NARROW))

    def _change(self, change: Callable[[int], float], lanes: int) -> Change:
        query = self.query
        query.catch_up(self.rate)
        time.sleep(self.window)
        asked = time.monotonic()
        turn = change(lanes)
        time.sleep(AFTER_S)
        known = list(query.commits)
        found = Change(
            longest(known, asked - self.window, asked),
            longest(known, asked, asked + turn + AFTER_S),
            asked,
            turn,
            query.executors,
            query.behind(asked, asked + turn + AFTER_S, self.rate),
        )
        self.window = max(self.window, LONGER * turn)
        return found


def rescale(stand: Stand, here: Ground, size: str) -> list[Row]:
    """One size of state."""
    case = f"rescale-{size}"
    seen = changes(stand, here, case, size)
    return [*rows_of(case, seen.runs), *facts(case, seen)]


def changes(stand: Stand, here: Ground, case: str, size: str) -> Seen:
    """Changes of one query, live and by stopping and starting it, in turns."""
    with here.sized(size, lanes=NARROW) as query:
        state, rate = query.state, here.rate(query)
        query.settle(rate)
        changing = _Changing(query, rate, here.scale.window)
        ways = {"anabranch": query.rescale, "migrate": query.migrate}
        systems = {name: partial(changing.run, change) for name, change in ways.items()}
        runs, first = in_turns(stand, case, systems)
        query.finish()
    for name, some in runs.items():
        stand.series.append(Series(case, "waited", name, some[0].up.waited))
        stand.notes.append(
            f"{case}, {name}, its first change: {(first[name] or some)[0].up.told()}."
        )
        worst = max((each for run in some for each in run.both), key=lambda each: each.gap.seconds)
        stand.notes.append(f"{case}, {name}, its longest gap: {worst.told()}.")
    return Seen(runs, query.keys, state, rate)


def rows_of(case: str, runs: Mapping[str, Sequence[Run]]) -> list[Row]:
    """Gaps and times of both directions."""
    rows = []
    for at, suffix in enumerate(("", "_down")):
        changes = {name: [run.both[at] for run in some] for name, some in runs.items()}
        gaps = {name: [each.gap.seconds for each in some] for name, some in changes.items()}
        gaps["steady"] = [each.steady.seconds for each in changes["anabranch"]]
        turns = {name: [each.turn for each in some] for name, some in changes.items()}
        against = [("anabranch", "migrate")]
        gap, turn = (Metric(case, f"{name}{suffix}", "s") for name in ("longest_gap", "turn_time"))
        rows += compared(gap, gaps, [("anabranch", "steady"), *against])
        rows += compared(turn, turns, against)
    return rows


def facts(case: str, seen: Seen) -> list[Row]:
    """What it ran with."""
    return [
        bare(Metric(case, "state", "MB"), "anabranch", [seen.state / 1e6]),
        bare(Metric(case, "rate", "rows/s"), "anabranch", [seen.rate]),
    ]
