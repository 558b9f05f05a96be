"""How many lanes a query should have (`parallelism="auto"`): a pure policy over what is seen.

It is shown a `View` after each cycle and answers with a `Decision`, which says why. Three rules:

- **Lagging, more lanes.** A query *lags* when its next epoch is overdue or what waits would
  take longer than a few cycles. Then the width is doubled, as long as lanes are what is slow.
- **The peak is found, not assumed.** While a query lags, what it does is what its width can
  do; that is remembered. A width that does no more than a narrower one is left again, and between
  the best width and the nearest ones known to be worse the middle is tried, until none is left. So
  on a machine where more lanes are slower it ends at the width that is fastest there.
- **Idle, fewer lanes.** Lanes that would still have time to spare if they were fewer become fewer,
  but not down to a width that is known not to manage the present load.

Where the next width needs more slots than there are and more can be had, these are asked for, and
the width follows when they have come: a lane without a slot helps nobody. Slots that nobody needs
any more are let go, much later than lanes (`slots.py`).

It does not flap: it acts on several views in a row that say the same, rests after every change, and
goes back to no width that it knows to be worse. What it knows ages, since machines and loads
change; what is tried again and found as before is believed for twice as long, so that under a
constant load changes become rarer and rarer. When the present width does much more or less than it
used to, all else that is known is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil

from anabranch.scheduling.slots import Slots


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a query after a cycle."""

    lanes: int
    slots: int
    """How many lanes can be at work at a time."""
    slices: int
    backlog: int
    """Rows that wait to be read."""
    rows_per_second: Mapping[int, float]
    """By width, what was done of late by the clock at that width, the present one's just now."""
    slack: float
    """Seconds until the trigger's next epoch is due; negative: it is overdue."""
    busy: float
    """The part of their time that lanes were at work, 0 to 1."""
    cycle_seconds: float
    fewest_slots: int = 1
    """How many slots are never let go."""
    most_slots: int = 0
    """How many could be had; fewer than there are: no more than these."""
    at_work: float = 0.0
    """How many slots were at work on average, for lanes or for heads."""

    @property
    def elapsed(self) -> float:
        """Seconds since the cycle before, about."""
        return self.cycle_seconds + max(0.0, self.slack)

    @property
    def most(self) -> int:
        """The greatest width that makes sense."""
        return max(1, min(self.slots, self.slices))

    @property
    def rate(self) -> float:
        """Rows per second at the present width; 0: not measured yet."""
        return self.rows_per_second.get(self.lanes, 0.0)

    @property
    def backlog_cycles(self) -> float:
        """How many cycles what waits will take, as far as that is known."""
        rows = self.rate * self.cycle_seconds
        return self.backlog / rows if rows > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """How many lanes there should be from now on, and why, in one sentence for the user."""

    lanes: int
    because: str
    slots: int | None = None
    """How many slots there should be in all, when that has changed: to be asked for, or let go."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How quick the policy is, in views, of which there is one a cycle."""

    lagging: int = 3
    """The query lags for so many views in a row before anything is done: once is nothing."""
    idle: int = 12
    """It is idle for so many: to be too wide for a while costs less than to be too narrow."""
    rest: int = 5
    """After a change nothing is judged for so many: new lanes take over their state first."""
    memory: int = 400
    """What was measured is believed for so many, when it is measured for the first time."""
    gain: float = 1.05
    """A wider width is better when it does more by this factor; less than that is noise."""
    drift: float = 1.25
    """The present width has changed when it does more or less by this factor."""
    late_cycles: float = 4.0
    """What waits is too much when it takes more cycles than this."""
    catch_up: float = 20.0
    """But nothing is done when it becomes less so quickly that it is gone after so many views."""
    at_work: float = 0.5
    """Lanes that are at work for less of their time are not what is slow."""
    comfortable: float = 0.7
    """Lanes may become fewer as long as these are at work for no more of their time than this."""
    room: float = 0.8
    """And as long as the load is no more than this part of what is known of the new width."""
    full: float = 0.9
    """More slots help though lanes are not slow when so much of them is at work: heads are."""


class _Pressure(Enum):
    LAGGING = "lagging"
    IDLE = "idle"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a width can do, when that was seen, and for how many views it is believed."""

    rate: float
    at: int
    life: int

    def fresh(self, now: int) -> bool:
        return now - self.at <= self.life


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """The policy with what it remembers; a value: each view gives the next one.

    >>> policy = Autoscaler()
    >>> lagging = View(2, 8, 128, 90_000, {2: 1000.0}, slack=-0.4, busy=0.9, cycle_seconds=0.3)
    >>> for _ in range(3):
    ...     policy, decision = policy.decide(lagging)
    >>> decision.lanes, decision.because
    (4, '90,000 rows wait, 90.0 s of work for 2 lanes: trying 4')
    """

    habits: Habits = field(default_factory=Habits)
    views: int = 0
    lanes: int = 0
    resting: int = 0
    """The number of views for which nothing is judged any more."""
    streak: int = 0
    """For how many views in a row the pressure has been the same."""
    pressure: _Pressure = _Pressure.NONE
    waiting: int = 0
    """How many rows waited when the streak began."""
    known: Mapping[int, _Measure] = field(default_factory=dict)
    slots: Slots = field(default_factory=Slots)
    there: int = 0
    """How many slots there were."""

    def decide(self, view: View) -> tuple[Autoscaler, Decision]:
        """The policy after this view, and what it says.

        It never says more lanes than `view.most`, nor more slots than could be had.
        """
        seen = self.seen(view)
        decision = seen.judge(view)
        if decision.lanes != view.lanes:
            seen = replace(seen, lanes=decision.lanes, resting=seen.habits.rest, streak=0)
        if decision.slots is not None:
            more = decision.slots > view.slots
            slots = seen.slots
            told = slots.ask(decision.slots, view) if more else slots.let_go(decision.slots)
            seen = replace(seen, slots=told)
        return seen, decision

    def seen(self, view: View) -> Autoscaler:
        """Take a view in: how long it has been so, and what it teaches."""
        lags = self._pressure(view) is _Pressure.LAGGING
        slots = self.slots.seen(view, view.slots if lags else self._needed(view))
        now = replace(self, views=self.views + 1, lanes=view.lanes, slots=slots, there=view.slots)
        if self.lanes not in (0, view.lanes):
            return replace(now, resting=self.habits.rest, streak=0)  # somebody else changed it
        if self.there not in (0, view.slots):
            return replace(now, resting=self.habits.rest, streak=0)  # lanes go to other executors
        if self.resting:
            return replace(now, resting=self.resting - 1, streak=0)
        pressure = self._pressure(view)
        streak = self.streak + 1 if pressure is self.pressure else 1
        waiting = view.backlog if streak == 1 else self.waiting
        return replace(now, pressure=pressure, streak=streak, waiting=waiting).learned(view)

    def _pressure(self, view: View) -> _Pressure:
        if view.slack < 0 or view.backlog_cycles > self.habits.late_cycles:
            return _Pressure.LAGGING
        idle = view.backlog_cycles <= 1 and self._fewer(view) < view.lanes
        return _Pressure.IDLE if idle else _Pressure.NONE

    def _needed(self, view: View) -> int:
        """How many slots would do: one a lane, and all comfortable with what is done."""
        return max(view.lanes, ceil(view.at_work / self.habits.comfortable))

    def learned(self, view: View) -> Autoscaler:
        """What a width does while a query lags is what it can do."""
        if not self._lags or not self._slow_lanes(view) or view.rate <= 0:
            return self
        before = self.known.get(view.lanes)
        habits, now, others = self.habits, self.views, dict(self.known)
        life = habits.memory
        if before is not None:
            drifted = max(view.rate, before.rate) > habits.drift * min(view.rate, before.rate)
            if drifted:
                others.clear()
            else:
                life = before.life if before.fresh(now) else 2 * before.life
        return replace(self, known={**others, view.lanes: _Measure(view.rate, now, life)})

    @property
    def _lags(self) -> bool:
        return self.pressure is _Pressure.LAGGING and self.streak >= self.habits.lagging

    def _slow_lanes(self, view: View) -> bool:
        return view.busy >= self.habits.at_work

    def _fresh(self) -> dict[int, float]:
        return {n: each.rate for n, each in self.known.items() if each.fresh(self.views)}

    def judge(self, view: View) -> Decision:
        """How wide it should be after a view that was taken in, and why."""
        if view.lanes > view.most:
            return Decision(view.most, f"there is room for {_lanes(view.most)} only")
        if self.resting:
            because = f"{_lanes(view.lanes)} since a short while: not judged yet"
            return Decision(view.lanes, because)
        if self._lags:
            return self._more(view)
        if self.pressure is _Pressure.IDLE and self.streak >= self.habits.idle:
            fewer = self._fewer(view)
            done = f"{_lanes(view.lanes)} were at work {view.busy:.0%} of the time"
            return Decision(fewer, f"{done} and nothing waits: {fewer} will do")
        kept = self.slots.keep(view)
        if kept is not None:
            because = f"{kept} of {_slots(view.slots)} were enough for long: the others are let go"
            return Decision(view.lanes, because, kept)
        return Decision(view.lanes, _as_it_is(view, self.pressure))

    def _more(self, view: View) -> Decision:
        """What to do when it lags: look for a better width, and in the end go to the best one."""
        if self._catches_up(view):
            return Decision(view.lanes, f"{_late(view)}, soon caught up with")
        if not self._slow_lanes(view):
            return self._not_lanes(view)
        reach = max(view.most, min(self.slots.reach(view), view.slices))
        fresh = {lanes: rate for lanes, rate in self._fresh().items() if lanes <= reach}
        if view.lanes not in fresh:
            because = f"{_late(view)}, but nothing was done yet by which to judge"
            return Decision(view.lanes, because)
        best = _peak(fresh, self.habits.gain)
        next_one = _untried(best, fresh, reach) or best
        if next_one > view.most:
            return self._more_slots(view, fresh, next_one)
        if next_one not in fresh:
            return Decision(next_one, f"{_late(view)}: trying {next_one}")
        return Decision(best, _best(view, fresh, best))

    def _not_lanes(self, view: View) -> Decision:
        """It lags, and lanes have time to spare: heads may lack slots."""
        reach = self.slots.reach(view)
        full = view.at_work >= self.habits.full * view.slots
        if full and reach > view.slots and not self.slots.waiting:
            more = min(2 * view.slots, reach)
            because = f"{_late(view)}, and all {_slots(view.slots)} are at work: asking for {more}"
            return Decision(view.lanes, because, more)
        spent = f"lanes were at work {view.busy:.0%} of the time"
        return Decision(view.lanes, f"{_late(view)}, but {spent}: more would not help")

    def _more_slots(self, view: View, fresh: Mapping[int, float], wanted: int) -> Decision:
        """A width for which there are too few slots: ask for them, once; use what there is."""
        if not self.slots.waiting:
            because = f"{_late(view)}: asking for {_slots(wanted)}, there are {view.slots}"
            return Decision(view.lanes, because, wanted)
        if view.most > view.lanes and view.most not in fresh:
            return Decision(view.most, f"{_late(view)}: trying {view.most}")
        because = f"{_late(view)}: {_slots(self.slots.told)} asked for, {view.slots} there"
        return Decision(view.lanes, because)

    def _catches_up(self, view: View) -> bool:
        """Whether what waits will be gone soon, if it goes on like this."""
        gone = self.waiting - view.backlog
        return gone > 0 and view.backlog * (self.streak - 1) <= self.habits.catch_up * gone

    def _fewer(self, view: View) -> int:
        """The least width, not below half, that will do for the present load."""
        fresh = self._fresh()
        widths = range(ceil(view.lanes / 2), view.lanes)
        return next((n for n in widths if self._will_do(n, view, fresh)), view.lanes)

    def _will_do(self, lanes: int, view: View, fresh: Mapping[int, float]) -> bool:
        """By what is known of a width; else its lanes must be comfortable with the work.

        And then no wider one may be known to be too narrow.
        """
        if lanes not in fresh and view.busy * view.lanes > self.habits.comfortable * lanes:
            return False
        known = min((n for n in fresh if lanes <= n < view.lanes), default=None)
        return known is None or view.rate <= self.habits.room * fresh[known]


def _peak(rates: Mapping[int, float], gain: float) -> int:
    """The narrowest width that does as much as any, but for noise.

    >>> _peak({1: 100, 2: 190, 4: 195, 8: 120}, gain=1.05)
    2
    """
    greatest = max(rates.values())
    return min(lanes for lanes, rate in rates.items() if rate * gain >= greatest)


def _untried(best: int, tried: Mapping[int, float], most: int) -> int | None:
    """The next width to try beside the best one: wider ones first, by doubling, then halving.

    Not one between the best and a narrower one from which it has brought at least half of what it
    could: the peak is hardly there, and to look would cost a query that lags already.

    >>> _untried(4, {4: 100}, most=16), _untried(4, {4: 100, 8: 90}, most=16)
    (8, 6)
    >>> _untried(4, {4: 100, 5: 90}, most=16), _untried(4, {3: 80, 4: 100, 5: 90}, most=16)
    (2, None)
    >>> _untried(16, {8: 80, 16: 100}, most=16), _untried(16, {8: 80, 16: 150}, most=16)
    (12, None)
    """
    above = min((lanes for lanes in tried if best < lanes <= most), default=None)
    wider = min(2 * best, most) if above is None else (best + above) // 2
    if wider > best:
        return wider
    below = max((lanes for lanes in tried if lanes < best), default=None)
    if below is None:
        return best // 2 or None
    rising = tried[best] / tried[below] - 1 >= (best / below - 1) / 2
    narrower = (best + below + 1) // 2
    return narrower if narrower < best and not rising else None


def _best(view: View, rates: Mapping[int, float], best: int) -> str:
    """Why it is the best width."""
    if best == view.lanes:
        return f"{_late(view)}, but {best} is the best width tried"
    here, there = rates[view.lanes], rates[best]
    hardly = ", hardly more" if here > there else ""
    return f"{_lanes(best)} did {there:,.0f} rows/s, {view.lanes} did {here:,.0f}{hardly}"


def _lanes(count: int) -> str:
    return "1 lane" if count == 1 else f"{count} lanes"


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _late(view: View) -> str:
    if view.backlog and view.rate > 0:
        seconds = view.backlog / view.rate
        return f"{view.backlog:,} rows wait, {seconds:,.1f} s of work for {_lanes(view.lanes)}"
    return f"an epoch is {-view.slack:.1f} s overdue with {_lanes(view.lanes)}"


def _as_it_is(view: View, pressure: _Pressure) -> str:
    match pressure:
        case _Pressure.LAGGING:
            return f"{_late(view)}: seen for too short a while to act on"
        case _Pressure.IDLE:
            return f"{_lanes(view.lanes)} have time to spare: seen for too short a while to act on"
        case _Pressure.NONE:
            return f"{_lanes(view.lanes)} keep up, at work {view.busy:.0%} of the time"
