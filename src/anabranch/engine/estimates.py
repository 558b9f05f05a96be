"""What operators cost and let through, learnt while they run; and who is at work on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.scheduling.pipeline_view import OperatorView, PipelineView

LEARN = 0.2
"""How much the newest counts, against all before it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one operator."""

    cost: float = 0.0
    """Seconds a tuple."""
    selectivity: float = 1.0
    spent: float = 0.0
    """Seconds of workers in the current window."""
    workers: int = 0
    known: bool = False

    def begin(self) -> Estimate:
        """One worker more is at work on it."""
        return replace(self, workers=self.workers + 1)

    def end(self, seconds: float, taken: int, given: int) -> Estimate:
        """A worker is done with so many tuples, of which so many were made.

        >>> Estimate().begin().end(0.5, 10, 5)
        Estimate(cost=0.05, selectivity=0.5, spent=0.5, workers=0, known=True)
        """
        left = replace(self, workers=self.workers - 1, spent=self.spent + seconds)
        if not taken:
            return left
        cost, through = seconds / taken, given / taken
        if not self.known:
            return replace(left, cost=cost, selectivity=through, known=True)
        return replace(
            left,
            cost=self.cost + LEARN * (cost - self.cost),
            selectivity=self.selectivity + LEARN * (through - self.selectivity),
        )


@dataclass(frozen=True, slots=True)
class Estimates:
    """Of all operators, and since when the current window is."""

    operators: tuple[Estimate, ...]
    window: float = 1.0
    """Seconds after which what workers have spent is counted anew."""
    since: float = 0.0

    @classmethod
    def of(cls, count: int, now: float) -> Estimates:
        """Nothing is known of so many operators."""
        return cls((Estimate(),) * count, since=now)

    def begin(self, at: int) -> Estimates:
        """A worker goes to work on an operator."""
        return self._with(at, self.operators[at].begin())

    def end(self, at: int, now: float, seconds: float, taken: int, given: int) -> Estimates:
        """It is done with that."""
        found = self._with(at, self.operators[at].end(seconds, taken, given))
        if now - found.since < found.window:
            return found
        anew = tuple(replace(each, spent=0.0) for each in found.operators)
        return replace(found, operators=anew, since=now)

    def view(self, waiting: Sequence[int], most: Sequence[int], time_slice: float) -> PipelineView:
        """What a policy sees.

        What nothing is known of is taken to cost as much as the dearest: if it cost nothing, a
        policy that goes by cost would leave it alone for as long as others have work, and it would
        stay unknown.
        """
        dearest = max(each.cost for each in self.operators)
        return PipelineView(
            tuple(
                OperatorView(
                    waits,
                    each.workers,
                    limit,
                    each.cost if each.known else dearest,
                    each.selectivity,
                    spent=each.spent,
                    open=waits,
                )
                for waits, limit, each in zip(waiting, most, self.operators, strict=True)
            ),
            time_slice,
        )

    def _with(self, at: int, changed: Estimate) -> Estimates:
        before, after = self.operators[:at], self.operators[at + 1 :]
        return replace(self, operators=(*before, changed, *after))
