"""How many workers a resident program has, where that is ours to choose (`parallelism="auto"`).

What a width can do is seen while sources have more than epochs take; another is then tried, and the
best one kept: the policy is that of lanes (`scheduling/autoscaler.py`). A change ends the task
behind a commit and begins another, so what is judged is a commit, not an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.runtime.continuous.messages import Totals
from anabranch.scheduling.autoscaler import Autoscaler, Habits, View

_LATE = 0.5
"""How much of what is known of a width's speed is of the last commit."""
_LAGS = 0.5
"""The part of all epochs behind which more was waiting, from which on a commit's epochs lag."""
HABITS = Habits(rest=2, memory=3600)
"""A task that has just begun is judged from its third commit on; a change costs a new task."""


@dataclass(slots=True)
class Width:
    """What is known of widths so far."""

    slots: int
    """Workers that can be at work at a time."""
    slices: int
    because: str = ""
    """What was decided last, and why."""
    _policy: Autoscaler = field(default_factory=lambda: Autoscaler(HABITS))
    _speeds: dict[int, float] = field(default_factory=dict)
    """Rows per second by width."""

    def learn(self, workers: int, totals: Totals, seconds: float) -> int:
        """How many workers there should be, behind a commit of so many seconds."""
        if seconds <= 0 or not totals.epochs:
            return workers
        speed = sum(totals.rows.values()) / seconds
        self._speeds[workers] = _LATE * speed + (1 - _LATE) * self._speeds.get(workers, speed)
        busy = min(1.0, totals.at_work / seconds)
        lags = totals.more >= _LAGS * totals.epochs
        view = View(
            lanes=workers,
            slots=self.slots,
            slices=self.slices,
            backlog=0,
            rows_per_second=dict(self._speeds),
            slack=-seconds if lags else 0.0,
            busy=busy,
            cycle_seconds=seconds,
            fewest_slots=self.slots,
            most_slots=self.slots,
            at_work=busy * workers,
        )
        self._policy, decision = self._policy.decide(view)
        if decision.lanes != workers:
            self.because = decision.because.replace("lane", "worker")
        return decision.lanes
