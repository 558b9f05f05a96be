"""Which slices change lanes when the number of lanes or the load changes: few, for an even load.

Whole numbers throughout: costs are turned into shares of the total, so that every comparison is
exact, the answer is the same on every machine, and the search ends.

1. *Hot* slices first: one is hot whose cost is above half of a lane's fair share, so that two of
   them in one lane overload it. The hottest are put into different lanes, as far as lanes allow.
2. Slices without a lane, the dearest first, each to the lane with the least load.
3. The most loaded lane that can gives a slice to the least loaded one, the slice that comes nearest
   to half of their difference, until they are even, or no slice would make them more so.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import isfinite

REBALANCE_ABOVE = 1.25
"""At the same width nothing moves while the greatest load is below this times the mean one.

Measured costs vary by some percent from one look to the next, and a slice that moves is rebuilt
elsewhere: what is to be gained must be more than what the measure is worth.
"""
REBALANCE_GAIN = 0.9
"""And nothing moves unless the greatest load falls to this part of itself, or below.

One slice that is dearer than a lane's share cannot be helped: without this rule small slices would
be moved around it at every look.
"""
_WHOLE = 1 << 40
"""The total cost, in the units of this file."""
_FINE = 20
"""Loads are even that differ by no more than this part of a lane's fair share, or by a mean slice.

Without it small slices would be moved for differences that no measure shows.
"""
_LEAST = 100
"""A slice counts at least as this part of a mean one: those without load today are spread too."""


def balanced(
    of: Sequence[int],
    lanes: int,
    costs: Sequence[float] | None,
    nodes: Mapping[int, str] | None = None,
) -> tuple[int, ...]:
    """The lane of each slice in so many lanes, where it was in `of`: few of them move.

    Lanes that are no longer there lose all their slices, those that are new have none yet. For
    equal costs no other answer whose counts differ by at most one moves fewer slices.

    `nodes` says where lanes are, those of before and those of now, as far as it is known. Of lanes
    that are as good a slice goes to one on the node where it is: what there is of it is near there.

    >>> balanced((0, 0, 0, 0), 2, None)
    (0, 0, 1, 1)
    >>> balanced((0, 0, 1, 1), 1, None)
    (0, 0, 0, 0)
    >>> balanced((0, 0, 0, 0), 2, [9, 8, 1, 1])  # the two hottest are apart
    (0, 1, 0, 1)
    >>> balanced((0, 1, 2, 2), 2, None), balanced((0, 1, 2, 2), 2, None, {1: "b", 2: "b"})
    ((0, 1, 0, 1), (0, 1, 1, 0))
    """
    loads = _Loads(of, lanes, shares(costs, len(of)), nodes or {})
    loads.separate_hot()
    loads.house_the_homeless()
    loads.level()
    return tuple(loads.lane_of)


def rebalanced(of: tuple[int, ...], lanes: int, costs: Sequence[float] | None) -> tuple[int, ...]:
    """As `balanced`, where the number of lanes stays: the same owners unless it is worth it.

    >>> rebalanced((0, 0, 1, 1), 2, [6, 5, 5, 5])
    (0, 0, 1, 1)
    >>> rebalanced((0, 0, 1, 1), 2, [9, 8, 1, 1])
    (0, 1, 1, 1)
    """
    costs_now = shares(costs, len(of))
    greatest = max(_sums(of, lanes, costs_now))
    if greatest * lanes <= REBALANCE_ABOVE * sum(costs_now):
        return of
    found = balanced(of, lanes, costs)
    return found if max(_sums(found, lanes, costs_now)) <= REBALANCE_GAIN * greatest else of


def shares(costs: Sequence[float] | None, slices: int) -> list[int]:
    """The costs as whole parts of their sum, none of them nothing.

    >>> shares([0.1, 0.1, 0.1], 3)
    [366503875925, 366503875925, 366503875925]
    >>> shares([0.1, 0.0], 2)
    [1099511627776, 5497558138]
    """
    if costs is None:
        return [1] * slices
    if len(costs) != slices or not all(isfinite(cost) and cost >= 0 for cost in costs):
        message = f"{slices} slices need as many costs from 0, got {list(costs)[:8]}"
        raise ValueError(message)
    greatest = max(costs)
    if greatest == 0:
        return [1] * slices
    # By the greatest first: the sum of large numbers might be infinite.
    parts = [cost / greatest for cost in costs]
    total = sum(parts)
    least = max(1, _WHOLE // (slices * _LEAST))
    return [max(least, round(part / total * _WHOLE)) for part in parts]


def _sums(of: Iterable[int], lanes: int, costs: Sequence[int]) -> list[int]:
    sums = [0] * lanes
    for lane, cost in zip(of, costs, strict=True):
        sums[lane] += cost
    return sums


class _Loads:
    """Who has what while slices are being moved; -1: a slice is in no lane yet."""

    def __init__(
        self, of: Sequence[int], lanes: int, costs: Sequence[int], nodes: Mapping[int, str]
    ) -> None:
        self._nodes, self._homes = nodes, [nodes.get(lane, "") for lane in of]
        self.lane_of = [lane if lane < lanes else -1 for lane in of]
        self._costs = costs
        self._lanes = range(lanes)
        self._total = sum(costs)
        self._even = self._total // max(len(costs), _FINE * lanes)
        self._load = [0] * lanes
        self._pinned: set[int] = set()
        for number, lane in enumerate(self.lane_of):
            if lane >= 0:
                self._load[lane] += costs[number]

    def _put(self, number: int, lane: int) -> None:
        if self.lane_of[number] >= 0:
            self._load[self.lane_of[number]] -= self._costs[number]
        self.lane_of[number] = lane
        self._load[lane] += self._costs[number]

    def _least_loaded(self, lanes: Iterable[int]) -> int:
        return min(lanes, key=self._load.__getitem__)

    def separate_hot(self) -> None:
        """Give each of the hottest slices a lane that has no other of them; there they stay.

        Of equally hot slices those stay that can, so that none moves for the sake of a number.
        """
        free = set(self._lanes)
        lanes = len(self._lanes)
        hot = [n for n, cost in enumerate(self._costs) if 2 * cost * lanes > self._total]
        by_cost = sorted(hot, key=lambda number: (-self._costs[number], number))
        for _, group in groupby(by_cost, key=self._costs.__getitem__):
            self._separate(list(group), free)

    def _separate(self, equals: list[int], free: set[int]) -> None:
        """Find places for slices of one cost among the lanes that have no hot slice yet."""
        for number in equals:
            if self.lane_of[number] in free:
                self._pin(number, self.lane_of[number], free)
        while free and (left := [number for number in equals if number not in self._pinned]):
            # Those that must move anyway come first, then those of the most loaded lane.
            number = max(left, key=lambda each: (self._urgency(each), each))
            self._pin(number, self._least_loaded(sorted(free)), free)

    def _urgency(self, number: int) -> float:
        lane = self.lane_of[number]
        return self._load[lane] if lane >= 0 else float("inf")

    def _pin(self, number: int, lane: int, free: set[int]) -> None:
        if self.lane_of[number] != lane:
            self._put(number, lane)
        self._pinned.add(number)
        free.remove(lane)

    def house_the_homeless(self) -> None:
        """Put every slice that is in no lane into the least loaded one, the dearest first."""
        homeless = [number for number, lane in enumerate(self.lane_of) if lane < 0]
        for number in sorted(homeless, key=lambda each: (-self._costs[each], each)):
            self._put(number, self._home(number))

    def _home(self, number: int) -> int:
        """The least loaded lane, or one where its slice makes no difference and is near."""
        least = self._least_loaded(self._lanes)
        most = self._load[least] + max(self._even - self._costs[number], 0)
        good = [lane for lane in self._lanes if self._load[lane] <= most]
        near = [lane for lane in good if self._near(number, lane)]
        return self._least_loaded(near) if near else least

    def _near(self, number: int, lane: int) -> bool:
        """Whether a lane is on the node where a slice was at first."""
        return bool(self._homes[number]) and self._homes[number] == self._nodes.get(lane, "")

    def level(self) -> None:
        """Move slices from the most to the least loaded until they differ by no more than one.

        Every move lowers the sum of the squares of the loads, so there is a last one.
        """
        movable: list[list[tuple[int, int]]] = [[] for _ in self._lanes]
        for number, lane in enumerate(self.lane_of):
            if number not in self._pinned:
                movable[lane].append((self._costs[number], number))
        for lane in self._lanes:
            movable[lane].sort()
        while (step := self._next_step(movable)) is not None:
            source, index, target = step
            given = movable[source].pop(index)
            insort(movable[target], given)
            self._put(given[1], target)

    def _next_step(self, movable: Sequence[list[tuple[int, int]]]) -> tuple[int, int, int] | None:
        target = self._least_loaded(self._lanes)
        for source in sorted(self._lanes, key=lambda lane: (-self._load[lane], lane)):
            gap = self._load[source] - self._load[target]
            if gap <= self._even:
                return None
            index = _best(movable[source], gap)
            if index is not None:
                return source, index, target
        return None


def _best(movable: Sequence[tuple[int, int]], gap: int) -> int | None:
    """Which slice evens two lanes out best that differ by `gap`; None: each would make it worse."""
    above = bisect_right(movable, (gap // 2, _WHOLE))
    near = [index for index in (above - 1, above) if 0 <= index < len(movable)]
    helpful = [index for index in near if movable[index][0] < gap]
    return min(helpful, key=lambda index: abs(2 * movable[index][0] - gap), default=None)
