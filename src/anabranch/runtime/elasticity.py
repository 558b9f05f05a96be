"""When slices should change lanes, and lanes come or go, by what cycles have shown.

What a slice costs is measured: the time of its lane, shared out by the rows that each slice had.
From time to time it is asked whether other owners would be better (`Owners.moved_to`), and, where
the width is ours to choose, after every cycle whether another width would (`Autoscaler`). Both
answer with what there is unless it is worth it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from anabranch.runtime.payload import COUNTED_SLICES, LaneDone
from anabranch.scheduling.autoscaler import Autoscaler, View
from anabranch.state.slices import Owners

LOOK_EVERY = 32
"""Cycles with work for lanes, between two looks at who should own what."""
WORTH_S = 0.5
"""Seconds that lanes were at work since the last look: of less nothing can be told."""
_LATE = 0.5
"""How much of what is known of a width's speed, or of a slice's cost, is of the last look."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a cycle has shown."""

    lanes: Mapping[int, LaneDone]
    seconds: float
    """That it took."""
    rows: int
    """That its heads read."""
    backlog: int
    """Rows that were read and are not committed."""
    more: bool
    """Whether a source has rows that no epoch holds."""
    head_seconds: float = 0.0
    """That heads were at work, all together."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Other owners, and why, in one sentence for the user."""

    owners: Owners
    because: str
    slots: int | None = None
    """How many slots there should be, where that has changed."""


@dataclass(slots=True)
class Elasticity:
    """What is known of slices and widths so far."""

    every: float
    """Seconds between two epochs."""
    slots: int
    auto: bool = False
    """Whether the width is ours to choose."""
    fewest_slots: int = 1
    most_slots: int = 0
    """As the executor says: all three change as executors come and go."""
    because: str = ""
    """What was decided last, and why."""
    _policy: Autoscaler = field(default_factory=Autoscaler)
    _speeds: dict[int, float] = field(default_factory=dict)
    """Rows per second by width."""
    _costs: npt.NDArray[np.float64] | None = None
    _fresh: npt.NDArray[np.float64] | None = None
    """What was added since the last look."""
    _cycles: int = 0
    nodes: dict[int, str] = field(default_factory=dict)
    """Where lanes said they were."""

    def note(self, seen: Seen, owners: Owners) -> None:
        """Take a cycle in, and ask nothing: what would be better cannot be had now."""
        self._add(seen.lanes, owners)

    def learn(self, seen: Seen, owners: Owners) -> Wish | None:
        """Take a cycle in that had work for lanes; says what would be better, if anything is."""
        self._add(seen.lanes, owners)
        self.nodes.update({lane: done.node for lane, done in seen.lanes.items() if done.node})
        self._cycles += 1
        wish = self._other_width(seen, owners) if self.auto and seen.seconds > 0 else None
        if wish is None and self._cycles % LOOK_EVERY == 0:
            wish = self._other_owners(owners)
        return wish

    def costs(self) -> tuple[float, ...] | None:
        """What each slice costs; None: nothing is known."""
        return None if self._costs is None else tuple(self._costs.tolist())

    def _add(self, lanes: Mapping[int, LaneDone], owners: Owners) -> None:
        if owners.slices > COUNTED_SLICES:
            return
        if self._fresh is None:
            self._fresh = np.zeros(owners.slices)
        for done in lanes.values():
            rows = np.zeros(owners.slices)
            for stage in done.stages:
                if stage.loads:
                    rows += np.asarray(stage.loads)
            if total := rows.sum():
                self._fresh += rows * (_worked(done) / total)

    def _other_owners(self, owners: Owners) -> Wish | None:
        fresh = self._fresh
        if fresh is None or fresh.sum() < WORTH_S:
            return None
        known = fresh if self._costs is None else _LATE * fresh + (1 - _LATE) * self._costs
        self._costs, self._fresh = known, None
        better = owners.moved_to(owners.lanes, tuple(known.tolist()))
        if better == owners:
            return None
        moved = len(better.moves(owners))
        before, after = (_greatest(each, known) for each in (owners, better))
        self.because = f"{moved} of {owners.slices} slices change lanes: the busiest lane had "
        self.because += f"{before:.0%} of the work and will have {after:.0%}"
        return Wish(better, self.because)

    def _other_width(self, seen: Seen, owners: Owners) -> Wish | None:
        width, took = owners.lanes, seen.seconds
        speed = seen.rows / took
        self._speeds[width] = _LATE * speed + (1 - _LATE) * self._speeds.get(width, speed)
        view = View(
            lanes=width,
            slots=self.slots,
            slices=owners.slices,
            backlog=seen.backlog,
            rows_per_second=dict(self._speeds),
            slack=-took if seen.more else self.every - took,
            busy=min(1.0, sum(map(_worked, seen.lanes.values())) / (took * width)),
            cycle_seconds=took,
            fewest_slots=self.fewest_slots,
            most_slots=self.most_slots,
            at_work=(sum(map(_worked, seen.lanes.values())) + seen.head_seconds) / took,
        )
        self._policy, decision = self._policy.decide(view)
        if decision.lanes == width and decision.slots is None:
            return None
        self.because = decision.because
        better = owners
        if decision.lanes != width:
            better = owners.moved_to(decision.lanes, self.costs(), self.nodes)
        return Wish(better, decision.because, decision.slots)


def _worked(done: LaneDone) -> float:
    return sum(done.spent.values())


def _greatest(owners: Owners, costs: npt.NDArray[np.float64]) -> float:
    """The part of all work that the busiest lane has."""
    loads = np.bincount(np.asarray(owners.of), weights=costs, minlength=owners.lanes)
    return float(loads.max() / costs.sum())
