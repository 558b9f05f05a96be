"""Slots that are asked for when lanes need them, and let go when they have been spare for long.

Executors take long to come, and may never come: what is asked for is asked for once, waited for in
patience, and given up for a while; meanwhile all goes on with what there is. They are let go only
when fewer would have done for minutes on end, and not down to a number that was too few of late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol


class Seen(Protocol):
    """What has to be known of a cycle."""

    @property
    def slots(self) -> int:
        """How many there are."""
        ...

    @property
    def fewest_slots(self) -> int:
        """How many are never let go."""
        ...

    @property
    def most_slots(self) -> int:
        """How many could be had."""
        ...

    @property
    def elapsed(self) -> float:
        """Seconds since the cycle before."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things are waited for, in seconds."""

    coming: float = 120.0
    """Slots that were asked for: a node may have to be started for them."""
    spare: float = 120.0
    """Slots that are too many are kept for so long: to have them again would take about as much."""
    memory: float = 600.0
    """What did not come is not asked for again; twice as long when it does not come once more."""


@dataclass(frozen=True, slots=True)
class Slots:
    """What was asked for, and what came of it; a value: each cycle gives the next one."""

    patience: Patience = Patience()
    now: float = 0.0
    """Seconds so far."""
    told: int = 0
    """How many in all were asked for last; 0: nothing was said yet."""
    asked_at: float | None = None
    """When that was, if they are waited for."""
    shy: float = 0.0
    """Nothing is asked for before this moment."""
    shyness: float = 0.0
    """For how long, the last time."""
    spare_at: float | None = None
    """Since when fewer would have done, if so; or since what was needed was last summed up."""
    needed: int = 0
    """How many were needed at the most since then."""
    needed_before: int | None = None
    """And in the time before that, if it was as long as slots are kept."""
    few: int = 0
    """So many were too few."""
    few_until: float = 0.0
    few_life: float = 0.0
    """For how long that is believed."""

    @property
    def waiting(self) -> bool:
        """Whether what was asked for may still come."""
        return self.asked_at is not None

    def seen(self, view: Seen, needed: int) -> Slots:
        """Take a cycle in for which so many would have done; all of them, where it lags."""
        then = self._waited(view.slots, self.now + view.elapsed)
        if needed >= view.slots:
            return replace(then, **_NONE_SPARE)
        if then.spare_at is None:
            return replace(then, spare_at=then.now, needed=needed)
        needed = max(then.needed, needed)
        if then.now - then.spare_at < then.patience.spare:
            return replace(then, needed=needed)
        return replace(then, spare_at=then.now, needed=0, needed_before=needed)

    def _waited(self, there: int, now: float) -> Slots:
        if self.asked_at is not None and there >= self.told:
            return replace(self, now=now, asked_at=None, shyness=0.0)
        if self.asked_at is None or now - self.asked_at <= self.patience.coming:
            return replace(self, now=now)
        shyness = 2 * self.shyness or self.patience.memory
        return replace(self, now=now, asked_at=None, shy=now + shyness, shyness=shyness)

    def reach(self, view: Seen) -> int:
        """How many there may be in a while, as far as that is known."""
        if self.waiting:
            return max(view.slots, self.told)
        return view.slots if self.now < self.shy else max(view.slots, view.most_slots)

    def ask(self, slots: int, view: Seen) -> Slots:
        """Have so many asked for: those that are there are too few."""
        # Where it was known that they would be, that was forgotten too soon.
        life = 2 * self.few_life if view.slots <= self.few else self.patience.memory
        return replace(
            self,
            told=slots,
            asked_at=self.now,
            few=max(view.slots, self.few if self.now < self.few_until else 0),
            few_until=self.now + life,
            few_life=life,
            **_NONE_SPARE,
        )

    def keep(self, view: Seen) -> int | None:
        """How many to keep of those that are there, if some have been spare for long."""
        if self.waiting or self.needed_before is None:
            return None
        enough = self.few + 1 if self.now < self.few_until else 1
        kept = max(self.needed, self.needed_before, enough, view.fewest_slots)
        # What was said before is not said again: an executor has several slots, or stays.
        return kept if kept < min(view.slots, self.told or view.slots) else None

    def let_go(self, kept: int) -> Slots:
        """Have those let go that are more than these."""
        return replace(self, told=kept, **_NONE_SPARE)


_NONE_SPARE: dict[str, Any] = {"spare_at": None, "needed": 0, "needed_before": None}
