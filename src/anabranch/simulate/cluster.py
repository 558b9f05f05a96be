"""Many queries on many nodes, in virtual time: cores, placement, failures, widths that change.

A query is in parts, one a lane, each on a node with a share of its rows. Every node gives its cores
by itself, in cycles, to the parts with the least ranks; what it goes by came with the data, so all
nodes go by the same (Farhat, Daudjee, Querzoni 2021, section 4). A window of a query has fired when
it has in all parts. A node that fails loses its parts to those that are left, where each takes some
time to be made again; what it had not done is done there. Another width is asked for at a moment,
and holds from then on: rows that wait stay where they are, and those to come are shared out anew.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch.scheduling.query_view import Policy
from anabranch.scheduling.slack import CYCLE_S
from anabranch.simulate.queries import Load, Outcome, Piece, Running, share_cores

if TYPE_CHECKING:
    import random  # noqa: TID251 - the type alone


@dataclass(frozen=True, slots=True)
class Failure:
    """A node that is gone from a moment on."""

    node: int
    at: float


@dataclass(frozen=True, slots=True)
class Width:
    """A query that has so many lanes from a moment on."""

    query: int
    at: float
    lanes: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """What there is, and what happens to it."""

    nodes: int
    cores: int = 2
    """Of each."""
    lanes: int = 1
    """Of each query, to begin with."""
    recovery: float = 0.5
    """Seconds of one core until a lost part is made again."""
    failures: tuple[Failure, ...] = ()
    widths: tuple[Width, ...] = ()


@dataclass(slots=True)
class _Part:
    """A lane of a query."""

    query: int
    node: int
    running: Running


@dataclass(slots=True)
class _State:
    """All parts at work, and what they have got done."""

    cluster: Cluster
    loads: Sequence[Load]
    chance: random.Random
    horizon: float
    parts: list[_Part] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    gone: list[_Part] = field(default_factory=list)
    """Parts that take no more rows."""
    windows: dict[int, list[tuple[tuple[float, ...], float]]] = field(default_factory=dict)
    """By query: when each input has a watermark, and the end of its window."""

    def begin(self) -> None:
        """Place every query's lanes, one node after the other."""
        self.alive = list(range(self.cluster.nodes))
        for number, load in enumerate(self.loads):
            whole = Running(number, load, self.chance)
            whole.plan(self.horizon)
            self.windows[number] = list(whole.coming)
            for lane in range(self.cluster.lanes):
                self._add(number, (number * self.cluster.lanes + lane) % len(self.alive), 0.0)
            self._share(number)

    def _add(self, query: int, at: int, now: float) -> None:
        running = Running(len(self.parts), self.loads[query], self.chance)
        running.since = running.served = max(now, self.loads[query].start)
        running.coming.extend(each for each in self.windows[query] if max(each[0]) > now)
        self.parts.append(_Part(query, self.alive[at % len(self.alive)], running))

    def _share(self, query: int) -> None:
        """Give each lane the same part of the rows that are to come."""
        mine = [part for part in self.parts if part.query == query]
        load = self.loads[query]
        for part in mine:
            part.running.load = replace(load, rate=load.rate / len(mine))

    def fail(self, node: int) -> None:
        """Lose a node: its parts go to those that are left, in turn."""
        if node not in self.alive or len(self.alive) == 1:
            return
        self.alive.remove(node)
        lost = [part for part in (*self.parts, *self.gone) if part.node == node]
        for number, part in enumerate(lost):
            part.node = self.alive[number % len(self.alive)]
            part.running.queue.appendleft(Piece(0.0, work=self.cluster.recovery))

    def widen(self, width: Width, now: float) -> None:
        """Have more lanes, or fewer: those that go work off what they have."""
        mine = [part for part in self.parts if part.query == width.query]
        for _ in range(len(mine), width.lanes):
            busy = defaultdict(int, dict.fromkeys(self.alive, 0))
            for part in self.parts:
                busy[part.node] += 1
            at = min(range(len(self.alive)), key=lambda each: busy[self.alive[each]])
            self._add(width.query, at, now)
        for part in mine[width.lanes :]:
            self.parts.remove(part)
            part.running.coming.clear()
            part.running.load = replace(part.running.load, rate=0.0)
            self.gone.append(part)
        self._share(width.query)

    def arrive(self, now: float) -> None:
        """Take what has come up to now."""
        for part in (*self.parts, *self.gone):
            part.running.arrive(now)

    def turn(self, policy: Policy, now: float, cycle: float) -> float:
        """One cycle of every node; the longest that a part with something to do has waited."""
        by_node: dict[int, list[Running]] = defaultdict(list)
        for part in (*self.parts, *self.gone):
            if part.running.queue:
                by_node[part.node].append(part.running)
        for waiting in by_node.values():
            share_cores(waiting, policy, now, cycle, self.cluster.cores)
        waits = (now - each.served for some in by_node.values() for each in some if each.queue)
        return max(waits, default=0.0)

    def outcome(self, most: float, longest: float) -> Outcome:
        """What came of it: a window has fired when it has in all parts that had it."""
        found, overdue = [], list[float]()
        for query in range(len(self.loads)):
            parts = [p for p in (*self.parts, *self.gone) if p.query == query]
            fired: dict[float, list[float]] = defaultdict(list)
            for part in parts:
                for end, at in part.running.fired:
                    fired[end].append(at)
            waiting = {
                piece.ends
                for part in parts
                for piece in part.running.queue
                if piece.ends is not None
            }
            overdue += [self.horizon - end for end in waiting]
            found.append(
                tuple(max(at) - end for end, at in sorted(fired.items()) if end not in waiting)
            )
        rows = sum(part.running.done for part in (*self.parts, *self.gone))
        return Outcome(tuple(found), rows, most, longest, tuple(overdue))


def on_cluster(
    cluster: Cluster,
    loads: Sequence[Load],
    policy: Policy,
    chance: random.Random,
    *,
    horizon: float = 60.0,
    cycle: float = CYCLE_S,
) -> Outcome:
    """Run queries on nodes by a policy, the same again by the same chance."""
    state = _State(cluster, loads, chance, horizon)
    state.begin()
    failures = sorted(cluster.failures, key=lambda each: each.at)
    widths = sorted(cluster.widths, key=lambda each: each.at)
    most = longest = 0.0
    for number in range(math.ceil(horizon / cycle)):
        now = number * cycle
        state.arrive(now)
        while failures and failures[0].at <= now:
            state.fail(failures.pop(0).node)
        while widths and widths[0].at <= now:
            state.widen(widths.pop(0), now)
        most = max(most, sum(part.running.rows for part in state.parts))
        longest = max(longest, state.turn(policy, now, cycle))
    return state.outcome(most, longest)
