"""Position reports for Linear Road, of any number, the same for everyone.

After what is known of the generators in use: how many cars come and when, where they enter and
leave, reports every 30 s, one accident at a time on each expressway. Theirs move every car every
second by the cars around it, so that nothing is known before everything earlier is. Here a report
is a pure function of the seed and its number: a car has one speed for each part of its way, and its
reports lie a little off the place to which that brings it. Three choices make that possible:

- how far a car is slowed down is decided by the time of day at which it enters, not by counting the
  cars around it: by up to 20 mph, and downtown by up to 50, in steps of 10;
- a lane is kept for three reports;
- cars in an accident stop, stand for its time, and then go on as if nothing had been.

Type 0 alone: there are no queries among the reports. An index of all trips is made once for each
`Traffic`, about half a million of them for an expressway and three hours.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from bench.workloads import mixer
from bench.workloads.linear_road import (
    EAST,
    ENTRY,
    EVERY,
    EXIT,
    FEET,
    POSITION,
    REPORTS,
    SEGMENTS,
    WEST,
)

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

TIMED = pl.Schema({**REPORTS, "at": pl.Int64()})
"""Reports with their compressed time, in ms."""

DAY = 10_800
"""Seconds of the benchmark's simulation."""
CARS_A_SECOND = 20
"""Times a half sine plus 0.8 plus something between 0 and 1: this many come to an expressway."""
DOWNTOWN = (33, 66)
"""Segments, the second no more of them."""
TO_DOWNTOWN, AGAIN = 0.8, 0.1
"""The shares of cars that leave the road downtown, if it is on their way, and that come back."""
AGAIN_AFTER = (1000, 1000)
"""Seconds: at least, and so many more at most."""
RAMP_MPH, OPEN_MPH, FIRST_MPH, SLOWEST_MPH, FASTEST_MPH = 40, 70, 10, 15, 100
STEP_MPH, STEPS, TOWN_STEPS = 10, 2, 5
"""By how much cars are slowed down, and how often at most: elsewhere, and downtown."""
FEET_A_SECOND = FEET / 3600
"""At one mile an hour."""
STRAY_FEET = 150
"""How far off a report may be. At the slowest a car comes 660 feet from one to the next, so it
never goes back."""
CLOSE_FEET = 1000
"""Cars that are nearer may collide."""
ACCIDENT = (300, 600)
"""Seconds: an accident lasts so long at least, and so many more at most; so is the time between."""
NEVER = 2**40

_CARS_OF_A_ROAD = 10_000_000
"""Numbers of cars that belong to one expressway."""
_TRIPS_OF_A_CAR = 16
_LANE, _STRAY = 100, 101
"""Fields of the mixer for what differs from report to report."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What reports are made of: equal ones have equal reports."""

    xways: int = 1
    seconds: int = DAY
    """The morning, the rush hour and the evening of so many seconds."""
    share: float = 1.0
    """Of the benchmark's cars."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Trips:
    """One value for each trip of a car. Times are seconds, distances feet from where it enters."""

    number: Ints
    """Whatever is drawn for the trip is drawn by this."""
    vid: Ints
    xway: Ints
    dir: Ints
    entry: Ints
    length: Ints
    """To the exit segment."""
    start: Ints
    ramp: Floats
    open: Floats
    town: Floats
    """Speeds on the three kinds of road, in feet a second."""
    town_from: Floats
    town_to: Floats
    """What of its way is downtown and behind the ramp."""
    stop_at: Ints
    """The time since the start at which it stops for an accident, or `NEVER`."""
    stop_for: Ints
    stop_place: Ints
    stop_lane: Ints

    def __len__(self) -> int:
        return len(self.number)

    def take(self, which: Ints) -> _Trips:
        """These trips alone."""
        return _Trips(*(getattr(self, each.name)[which] for each in fields(self)))

    def gone(self, after: Ints | Floats) -> Floats:
        """How far they are so many seconds after the start, were there no accident."""
        at_town, past_town = self._turns()
        ramp_time = FEET / self.ramp
        return (
            np.minimum(after, ramp_time) * self.ramp
            + np.clip(after - ramp_time, 0, at_town - ramp_time) * self.open
            + np.clip(after - at_town, 0, past_town - at_town) * self.town
            + np.maximum(after - past_town, 0) * self.open
        )

    def last(self) -> Ints:
        """The number of the last report, from 0: the first one in the exit segment."""
        at_town, past_town = self._turns()
        # An accident moves the car to its place and takes its time.
        stops = self.stop_at < NEVER
        moved = np.where(stops, self.stop_place - self.gone(self.stop_at), 0.0)
        way = self.length - moved
        after = np.where(
            way <= self.town_from,
            FEET / self.ramp + (way - FEET) / self.open,
            np.where(
                way <= self.town_to,
                at_town + (way - self.town_from) / self.town,
                past_town + (way - self.town_to) / self.open,
            ),
        )
        return np.ceil((after + np.where(stops, self.stop_for, 0)) / EVERY).astype(np.int64)

    def _turns(self) -> tuple[Floats, Floats]:
        """When the cars come to downtown, and when they have passed it."""
        at_town = FEET / self.ramp + (self.town_from - FEET) / self.open
        return at_town, at_town + (self.town_to - self.town_from) / self.town


@dataclass(frozen=True, slots=True)
class _Index:
    """All trips of a traffic and how many reports come before each second.

    Trips are in order of (start mod 30, start): those with a report in a second lie together.
    """

    trips: _Trips
    last: Ints
    """The number of each trip's last report."""
    ends: Ints
    """The second of each trip's last report."""
    phases: Ints
    """Where the trips of each start mod 30 begin."""
    before: Ints
    """Reports before each second, and before the end."""

    def reporting(self, second: int) -> Ints:
        """The trips with a report in this second, the longest under way first."""
        phase = second % EVERY
        low, high = self.phases[phase], self.phases[phase + 1]
        started = np.searchsorted(self.trips.start[low:high], second, side="right")
        found: Ints = np.flatnonzero(self.ends[low : low + started] >= second) + low
        return found


def count(traffic: Traffic) -> int:
    """How many reports there are.

    >>> count(Traffic(seconds=600, share=0.01))
    2342
    """
    return int(_index(traffic).before[-1])


def reports(numbers: pl.Series, traffic: Traffic) -> pl.DataFrame:
    """The reports of these numbers, each less than the `count`, which are in order of time.

    Makes all of the seconds between the first and the last of them.

    >>> first = reports(pl.Series([0]), Traffic(seconds=600, share=0.01))
    >>> first.select("time", "spd", "lane").row(0)
    (2, 10, 0)
    """
    i = numbers.to_numpy().astype(np.int64)
    if not len(i):
        return pl.DataFrame(schema=REPORTS)
    index = _index(traffic)
    begin, end = np.searchsorted(index.before, [i.min(), i.max()], side="right") - 1
    parts = [index.reporting(second) for second in range(begin, end + 1)]
    seconds = np.repeat(np.arange(begin, end + 1), [len(part) for part in parts])
    wanted = i - index.before[begin]
    return _made(index, np.concatenate(parts)[wanted], seconds[wanted], traffic.seed)


def timed_reports(numbers: pl.Series, traffic: Traffic, rate: int) -> pl.DataFrame:
    """Reports with `at`, the ms at which each comes if so many come a second: compressed time."""
    i = numbers.to_numpy().astype(np.int64)
    return reports(numbers, traffic).with_columns(at=pl.Series(i * 1000 // rate))


def source(traffic: Traffic, rows: int | None = None) -> ab.sources.Source:
    """All reports or the first so many as a source, made as fast as they are asked for."""
    make = partial(reports, traffic=traffic)
    given = count(traffic) if rows is None else rows
    return ab.sources.Generator(make, schema=REPORTS, rows=given, vectorized=True)


def timed_source(traffic: Traffic, *, rate: int, rows: int | None = None) -> ab.sources.Source:
    """The same in compressed time."""
    make = partial(timed_reports, traffic=traffic, rate=rate)
    given = count(traffic) if rows is None else rows
    return ab.sources.Generator(make, schema=TIMED, rows=given, vectorized=True)


# Reports


def _made(index: _Index, which: Ints, seconds: Ints, seed: int) -> pl.DataFrame:
    trips, last = index.trips.take(which), index.last[which]
    number = (seconds - trips.start) // EVERY
    here, stands = _place(trips, number, last, seed)
    before, _ = _place(trips, np.maximum(number - 1, 0), last, seed)
    mph = np.rint((here - before) / (EVERY * FEET_A_SECOND)).astype(np.int64)
    drawn = 1 + mixer.below(3, _drawn_by(trips, number // 3), seed=seed, field=_LANE).astype(
        np.int64
    )
    lane = np.select([number == last, stands, here < FEET], [EXIT, trips.stop_lane, ENTRY], drawn)
    west = trips.dir == WEST
    pos = trips.entry * FEET + np.where(west, FEET - 1 - here, here)
    return pl.DataFrame(
        {
            "type": np.full(len(which), POSITION, dtype=np.int64),
            "time": seconds,
            "vid": trips.vid,
            "spd": np.where(number == 0, FIRST_MPH, np.clip(mph, 0, FASTEST_MPH)),
            "xway": trips.xway,
            "lane": lane,
            "dir": trips.dir,
            "seg": pos // FEET,
            "pos": pos,
        },
        schema=REPORTS,
    )


def _place(
    trips: _Trips, number: Ints, last: Ints, seed: int
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """How far each is at its report of this number, and whether it stands in an accident there."""
    after = number * EVERY
    waited = np.clip(after - trips.stop_at, 0, trips.stop_for)
    stopped = after >= trips.stop_at
    stands = stopped & (waited < trips.stop_for)
    moved = np.where(stopped, trips.stop_place - trips.gone(np.minimum(trips.stop_at, after)), 0.0)
    share = mixer.fractions(_drawn_by(trips, number), seed=seed, field=_STRAY)
    stray = np.where(number > 0, STRAY_FEET * (2 * share - 1), 0.0)
    far = (trips.gone(after - waited) + moved + stray).astype(np.int64)
    far = np.where(stands, trips.stop_place, far)
    # Only the last report is in the exit segment, and it always is.
    least, most = np.where(number == last, trips.length, 0), trips.length - 1
    most = np.where(number == last, trips.length + FEET - 1, most)
    return np.clip(far, least, most), stands


def _drawn_by(trips: _Trips, number: Ints) -> Ints:
    """No trip has 2000 reports: it would take 17 hours."""
    return trips.number * 2000 + number


# Trips


@cache
def _index(traffic: Traffic) -> _Index:
    trips = _joined([_of_road(traffic, xway) for xway in range(traffic.xways)])
    trips = trips.take(np.lexsort((trips.number, trips.start, trips.start % EVERY)))
    last = trips.last()
    phases = np.searchsorted(trips.start % EVERY, np.arange(EVERY + 1))
    return _Index(trips, last, trips.start + last * EVERY, phases, _before(trips, last, traffic))


def _before(trips: _Trips, last: Ints, traffic: Traffic) -> Ints:
    """A trip counts from the round of its start, and no more from the round after its end."""
    rounds = traffic.seconds // EVERY + 2
    change = np.zeros((EVERY, rounds), dtype=np.int64)
    phase, begins = trips.start % EVERY, trips.start // EVERY
    np.add.at(change, (phase, begins), 1)
    np.add.at(change, (phase, np.minimum(begins + last + 1, rounds - 1)), -1)
    by_second = np.cumsum(change, axis=1).T.ravel()[: traffic.seconds]
    return np.concatenate([[0], np.cumsum(by_second)])


def _of_road(traffic: Traffic, xway: int) -> _Trips:
    """All trips on an expressway: those of new cars, and of cars that come again and again."""
    starts = _arrivals(traffic, xway)
    vid = xway * _CARS_OF_A_ROAD + np.arange(len(starts))
    trips = [_routed(traffic, vid, starts, 0)]
    for turn in range(1, _TRIPS_OF_A_CAR):
        done = trips[-1]
        share = mixer.fractions(done.number, seed=traffic.seed, field=10)
        pause = AGAIN_AFTER[0] + _below(AGAIN_AFTER[1], done.number, traffic.seed, 11)
        again = done.start + done.last() * EVERY + pause
        which = np.flatnonzero((share < AGAIN) & (again < traffic.seconds))
        trips.append(_routed(traffic, done.vid[which], again[which], turn))
    return _with_accidents(_joined(trips), traffic, xway)


def _arrivals(traffic: Traffic, xway: int) -> Ints:
    """The second in which each car comes for the first time."""
    seconds = np.arange(traffic.seconds)
    number = xway * _CARS_OF_A_ROAD + seconds
    some, rest = (mixer.fractions(number, seed=traffic.seed, field=field) for field in (20, 21))
    wanted = CARS_A_SECOND * (np.sin(np.pi * seconds / traffic.seconds) + 0.8 + some)
    # A share of a car comes as often as that.
    return np.repeat(seconds, np.floor(wanted * traffic.share + rest).astype(np.int64))


def _routed(traffic: Traffic, vid: Ints, start: Ints, turn: int) -> _Trips:
    """Where the cars enter and leave, and how fast they are between."""
    number, seed = vid * _TRIPS_OF_A_CAR + turn, traffic.seed
    direction = _below(2, number, seed, 0)
    way = _below(SEGMENTS - 2, number, seed, 1)  # segments from the beginning of the road
    length = _segments(way, number, seed) * FEET
    load = np.sin(np.pi * start / traffic.seconds)
    own = _below(11, number, seed, 4) - 5
    calm, slowed = (STEP_MPH * np.minimum(np.floor((n + 1) * load), n) for n in (STEPS, TOWN_STEPS))
    town = [np.maximum(FEET, (edge - way) * FEET).astype(np.float64) for edge in _town(direction)]
    return _Trips(
        number=number,
        vid=vid,
        xway=vid // _CARS_OF_A_ROAD,
        dir=direction,
        entry=np.where(direction == WEST, SEGMENTS - 1 - way, way),
        length=length,
        start=start,
        ramp=_feet_a_second(RAMP_MPH - calm + own),
        open=_feet_a_second(OPEN_MPH - calm + own),
        town=_feet_a_second(OPEN_MPH - slowed + own),
        town_from=town[0],
        town_to=town[1],
        stop_at=np.full(len(vid), NEVER),
        stop_for=np.zeros(len(vid), dtype=np.int64),
        stop_place=np.zeros(len(vid), dtype=np.int64),
        stop_lane=np.zeros(len(vid), dtype=np.int64),
    )


def _segments(way: Ints, number: Ints, seed: int) -> Ints:
    """How many segments lie between entry and exit: two at least."""
    any_exit = (
        way + 2 + (mixer.fractions(number, seed=seed, field=2) * (SEGMENTS - way)).astype(int)
    )
    downtown = DOWNTOWN[0] + _below(DOWNTOWN[1] - DOWNTOWN[0], number, seed, 3)
    there = mixer.fractions(number, seed=seed, field=5) < TO_DOWNTOWN
    chosen = np.where((way < DOWNTOWN[0] - 1) & there, downtown, any_exit)
    return np.minimum(chosen, SEGMENTS - 1) - way


def _town(direction: Ints) -> tuple[Ints, Ints]:
    """Where downtown begins and ends, in segments from the beginning of the road."""
    west = direction == WEST
    begin, end = DOWNTOWN
    return np.where(west, SEGMENTS - end, begin), np.where(west, SEGMENTS - begin, end)


# Accidents


def _with_accidents(trips: _Trips, traffic: Traffic, xway: int) -> _Trips:
    """One accident after the other; none where no two cars are near enough at the time."""
    draw = partial(_below, numbers=xway * 1000 + np.arange(1000), seed=traffic.seed)
    least, more = ACCIDENT
    apart, lasts = (least + draw(more, field=field) for field in (30, 31))
    which, lanes = draw(2**31, field=32), 1 + draw(3, field=33)
    begins = np.cumsum(apart) + np.concatenate([[0], np.cumsum(lasts)[:-1]])
    for at in range(int(np.searchsorted(begins, traffic.seconds))):
        pairs = _near_each_other(trips, int(begins[at]))
        if len(pairs):
            pair = pairs[which[at] % len(pairs)]
            trips = _stopped(trips, pair, int(begins[at]), int(lasts[at]), int(lanes[at]))
    return trips


def _near_each_other(trips: _Trips, second: int) -> Ints:
    """Pairs of trips in one segment with less than 1000 feet between, the one ahead first."""
    ends = trips.start + trips.last() * EVERY
    far = trips.gone(np.maximum(second - trips.start, 0))
    free = (trips.stop_at == NEVER) & (far >= FEET) & (far < trips.length)
    under_way = np.flatnonzero((trips.start < second) & (ends > second) & free)
    found = trips.take(under_way)
    # Distances from the beginning of the road, whichever end that is.
    from_there = np.where(found.dir == WEST, SEGMENTS - 1 - found.entry, found.entry) * FEET
    from_there = from_there + far[under_way].astype(np.int64)
    order = np.lexsort((from_there, found.dir))
    behind, ahead = order[:-1], order[1:]
    near = (
        (found.dir[behind] == found.dir[ahead])
        & (from_there[behind] // FEET == from_there[ahead] // FEET)
        & (from_there[ahead] - from_there[behind] < CLOSE_FEET)
    )
    return np.stack([under_way[ahead[near]], under_way[behind[near]]], axis=1)


def _stopped(trips: _Trips, pair: Ints, second: int, lasts: int, lane: int) -> _Trips:
    """Both stop where the one ahead is."""
    ahead, _ = pair
    far = int(trips.gone(np.maximum(second - trips.start, 0))[ahead])
    apart = (trips.entry[ahead] - trips.entry[pair]) * FEET
    place = far + np.where(trips.dir[ahead] == EAST, apart, -apart)
    values = {
        "stop_at": second - trips.start[pair],
        "stop_for": lasts,
        "stop_place": place,
        "stop_lane": lane,
    }
    copies = {name: getattr(trips, name).copy() for name in values}
    for name, value in values.items():
        copies[name][pair] = value
    return replace(trips, **copies)


def _joined(parts: list[_Trips]) -> _Trips:
    names = [each.name for each in fields(_Trips)]
    return _Trips(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _feet_a_second(mph: Floats | Ints) -> Floats:
    return np.maximum(mph, SLOWEST_MPH) * FEET_A_SECOND


def _below(limit: int, numbers: npt.ArrayLike, seed: int, field: int) -> Ints:
    return mixer.below(limit, numbers, seed=seed, field=field).astype(np.int64)
