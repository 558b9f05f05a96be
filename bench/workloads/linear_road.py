"""Linear Road: tolls that follow the traffic, and warnings of accidents ahead.

The benchmark of Arasu et al., "Linear Road: A Stream Data Management Benchmark" (VLDB 2004). Cars
report where they are every 30 s; a car that comes into a segment of a mile is told its toll, which
depends on the minutes before, and of an accident in the next five segments. The rules are those of
the validator that is in common use: the average speed is that of all reports, and at most two cars
count as stopped at one place. Event time is in whole seconds; minute m is [60 (m - 1), 60 m).

Everything a car is told in minute m follows from reports before m: statistics are of minutes that
have ended, an accident counts from the minute after it happened, and to the end of the minute in
which it was cleared. So cuts do not show in what cars are told, and the order of reports within a
second only where three cars stop at one place.

Left out: account balances, daily expenditures and travel times (types 2 to 4). They ask for what
`accounts` has, for a table of history, and for what nobody has built. So are the columns of the
input that only these use, and in the output the time of emission, which is the harness's to tell.

`sliding_tolls` is the query of this name that Klink runs (Farhat, Daudjee, Querzoni 2021, section
6). The paper has its windows and rates and no graph: the graph is our reconstruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import polars as pl

import anabranch as ab
from anabranch.program.stream import Stream
from bench.workloads.state import State

REPORTS = pl.Schema(
    dict.fromkeys(
        ("type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos"),
        pl.Int64(),
    )
)
"""Speeds are in miles an hour, positions in feet from the western end, whatever the direction."""
SEGMENT = ("xway", "dir", "seg")
CAR, PLACE = ("xway", "dir", "vid"), ("xway", "dir", "lane", "pos")
POSITION = 0
"""The type of a position report."""
ENTRY, EXIT = 0, 4
"""Lanes; those between are for travelling."""
EAST, WEST = 0, 1
SEGMENTS, FEET = 100, 5280
"""Of an expressway, and of a segment."""

MINUTE, EVERY = 60, 30
"""Seconds: of statistics, and between the reports of a car."""
STANDING = 4
"""So many reports of one place make a stopped car."""
AHEAD = 5
"""Segments in which an accident matters, the car's own among them."""
SLOW, FREE_CARS = 40, 50
"""A toll is due below this average speed, if there were more cars than these a minute before."""

_KIND = {"kind": pl.String, "time": pl.Int64}
MOVES = {**_KIND, **dict.fromkeys(("xway", "dir", "vid", "lane", "seg", "pos"), pl.Int64)}
"""What a car did: it `crossed` into a segment, `stopped`, or `left` where it stood."""
ACCIDENTS = {**_KIND, **dict.fromkeys((*SEGMENT, "lane", "pos", "one", "two"), pl.Int64)}
"""An `accident`, or that it was `cleared`; `one` and `two` are the cars."""
_TOLD = (*SEGMENT, "vid", "lane", "pos", "lav", "cars", "accident")
NEWS = {**_KIND, **dict.fromkeys(_TOLD, pl.Int64)}
"""What is told to a segment: that a car `crossed` into it, an `accident` ahead or that it was
`cleared`, or the statistics for the `minute` that begins."""
TOLLED = dict.fromkeys(("time", "vid", *SEGMENT, "lane", "lav", "toll", "accident"), pl.Int64)
"""What a car is told; `accident` is the segment of the nearest one."""


class TimedState(State, Protocol):
    """The state of one key, and how far time has come."""

    watermark: int | None


def minute(time: int) -> int:
    """The minute of a second, from 1.

    >>> minute(59), minute(60)
    (1, 2)
    """
    return time // MINUTE + 1


def tolls(
    given: ab.sources.Source,
    *,
    lateness: str | None = None,
    free_cars: int = FREE_CARS,
    once: bool = False,
    sink: Callable[[str], ab.sinks.Sink] = ab.sinks.Memory,
) -> ab.Program:
    """The sinks, of which `sink` makes each by its name:

    - `tolls`: what each car is told that comes into a segment, the benchmark's output of type 0;
    - `warnings`: the accident ahead of it, if there is one; type 1;
    - `statistics`: what the tolls of a segment and minute rest on;
    - `accidents`: when they happened and when they were cleared;
    - `accounts`: each toll when it is charged, which is when the car comes into another segment.

    Without `lateness` reports must come in order of time, at least those of each expressway and
    those of each car.
    `once` leaves out all accidents of a segment but the first, as the validator does.
    """
    program = ab.Program("linear-road")
    reports = _positions(program, given, "time", "s", lateness)
    moves = _in_order(reports, lateness).key_by(*CAR).process(follow)
    parts = moves.split(crossed=pl.col("kind") == "crossed")
    accidents = parts.rest.key_by(*PLACE).process(collide)
    if once:
        accidents = accidents.key_by(*SEGMENT).process(only_the_first)
    known = statistics(reports)
    told = (
        _news(known, kind=pl.lit("minute"), time=(pl.col("minute") - 1) * MINUTE)
        .union(_news(to_upstream(accidents)))
        .union(_news(parts.crossed))
        .key_by(*SEGMENT)
        .process(Tolls(free_cars), out=TOLLED)
    )
    entered = told.filter(pl.col("lane") != EXIT)
    entered.select("vid", "time", "lav", "toll").write(sink("tolls"), name="tolls")
    (
        entered.filter(pl.col("accident").is_not_null())
        .select("time", "xway", "accident", "dir", "vid")
        .write(sink("warnings"), name="warnings")
    )
    known.write(sink("statistics"), name="statistics")
    accidents.write(sink("accidents"), name="accidents")
    told.key_by("vid").process(charge).write(sink("accounts"), name="accounts")
    return program


def statistics(reports: Stream) -> Stream:
    """What is known of a segment when a minute begins: average speed and number of cars.

    The speed is of the reports of five minutes, rounded to the nearest whole number; the cars are
    those of the last minute. There is no row where there was no report in five minutes.
    """
    by_minute = (
        reports.window(ab.tumbling("1 min"), by=list(SEGMENT))
        .agg(cars=ab.count_distinct("vid"), speed=ab.sum("spd"), reports=ab.count())
        .drop("window_start")
        .rename({"window_end": "seen"})
    )
    # Five rows a segment instead of all its reports; whole numbers add up to the same either way.
    by_five = by_minute.window(ab.sliding("5 min", "1 min"), by=list(SEGMENT)).agg(
        speed=ab.sum("speed"), reports=ab.sum("reports"), cars=ab.last("cars"), seen=ab.last("seen")
    )
    speed, reports_of, end = pl.col("speed"), pl.col("reports"), pl.col("window_end")
    return by_five.select(
        *SEGMENT,
        minute=end // MINUTE + 1,
        lav=(2 * speed + reports_of) // (2 * reports_of),  # a half is rounded up, exactly
        cars=pl.when(pl.col("seen") == end).then("cars").otherwise(0),
    )


@ab.operator(out=MOVES)
def follow(report: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """What a car does that matters to others: it `crossed` into a segment, `stopped`, or `left`.

    Its first report crosses as well, and so does one from the entry lane after more than a minute
    of silence: that is another trip. A car leaves with its first report from another place or of
    another trip. Once it is gone by the exit, reports from other lanes than the entry are noise.
    """
    before = state.value
    here = {name: report[name] for name in ("time", "xway", "dir", "vid", "lane", "seg", "pos")}
    if before is None:
        state.value = {**here, "times": 1}
        yield {**here, "kind": "crossed"}
        return
    if before["lane"] == EXIT and here["lane"] != ENTRY:
        return
    anew = here["lane"] == ENTRY and here["time"] > before["time"] + 2 * EVERY
    stays = not anew and here["lane"] == before["lane"] and here["pos"] == before["pos"]
    times = before["times"] + 1 if stays else 1
    if before["times"] >= STANDING and not stays:
        where = {name: before[name] for name in ("xway", "dir", "vid", "lane", "seg", "pos")}
        yield {**where, "time": here["time"], "kind": "left"}
    if anew or here["seg"] != before["seg"]:
        yield {**here, "kind": "crossed"}
    if stays and times == STANDING:
        yield {**here, "kind": "stopped"}
    state.value = {**here, "times": times}


@ab.operator(out=ACCIDENTS)
def collide(move: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """An `accident` when two cars have stopped at a place; `cleared` when one of them has left.

    A third car that stops there counts for nothing, then and later.
    """
    stopped, vid = state.value or [], move["vid"]
    happened = {name: move[name] for name in ("time", *SEGMENT, "lane", "pos")}
    if move["kind"] == "stopped" and len(stopped) < 2:
        state.value = stopped = [*stopped, vid]
        if len(stopped) == 2:
            yield {**happened, "kind": "accident", "one": stopped[0], "two": stopped[1]}
    elif move["kind"] == "left" and vid in stopped:
        if len(stopped) == 2:
            yield {**happened, "kind": "cleared", "one": stopped[0], "two": stopped[1]}
        state.value = [other for other in stopped if other != vid]


@ab.operator(out=ACCIDENTS)
def only_the_first(event: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """Pass the first accident of a segment, and that it was cleared."""
    if event["kind"] == "accident" and state.value is None:
        state.value = (event["lane"], event["pos"], True)
        yield event
    elif event["kind"] == "cleared" and state.value == (event["lane"], event["pos"], True):
        state.value = (event["lane"], event["pos"], False)
        yield event


def to_upstream(accidents: Stream) -> Stream:
    """A row for each segment whose cars have the accident ahead of them."""
    back = pl.when(pl.col("dir") == EAST).then(-1).otherwise(1)
    reached = pl.concat_list([pl.col("seg") + back * n for n in range(AHEAD)])
    return (
        accidents.with_columns(accident="seg", seg=reached)
        .explode("seg")
        .filter(pl.col("seg").is_between(0, SEGMENTS - 1))
    )


class Tolls(ab.KeyedOperator):
    """The toll of each car that crosses into a segment, and the accident ahead of it.

    All that an answer needs is there when the watermark has come to the minute of the crossing. A
    car that is earlier waits, by its second, so that cars are answered in order of time: what a car
    is charged depends on the order of its crossings, which are of different segments.
    """

    def __init__(self, free_cars: int) -> None:
        """With tolls where there were more cars than these."""
        self._free_cars = free_cars
        self.out = TOLLED

    def on_record(self, news: dict[str, Any], state: TimedState) -> Iterator[dict[str, Any]]:
        """Answer a car, now or later; keep all else in mind."""
        at, passed = news["time"], minute(state.watermark or 0)
        known, accidents = state.value or ({}, [])
        if news["kind"] == "minute":
            # Cars that wait or are on their way are of the minute that has begun, or later.
            known = {m: each for m, each in known.items() if m >= passed}
            known[minute(at)] = (news["lav"], news["cars"])
            state.value = (known, [each for each in accidents if not over(each, passed)])
        elif news["kind"] != "crossed":
            state.value = (known, changed(accidents, news))
        elif minute(at) <= passed:
            yield self._answer(news, known, accidents)
        else:
            state.map[at] = [*state.map.get(at, ()), news]
            state.timer_at(at)

    def on_timer(self, at: int, state: TimedState) -> Iterator[dict[str, Any]]:
        """Answer the cars that waited."""
        known, accidents = state.value or ({}, [])
        for car in state.map.pop(at, ()):
            yield self._answer(car, known, accidents)

    def _answer(
        self, car: dict[str, Any], known: dict[int, tuple[int, int]], accidents: list[Any]
    ) -> dict[str, Any]:
        now = minute(car["time"])
        # No statistics for this minute: nobody has been here for five of them.
        lav, cars = known.get(now, (0, 0))
        ahead = nearest(accidents, car["seg"], now)
        free = lav >= SLOW or cars <= self._free_cars or ahead is not None or car["lane"] == EXIT
        toll = 0 if free else 2 * (cars - self._free_cars) ** 2
        forwarded = {name: car[name] for name in ("time", "vid", *SEGMENT, "lane")}
        return {**forwarded, "lav": lav, "toll": toll, "accident": ahead}


def changed(accidents: list[Any], news: dict[str, Any]) -> list[Any]:
    """Accidents, as (place, time, time of clearing or None), with one more or one cleared."""
    place, at = [news["accident"], news["lane"], news["pos"]], news["time"]
    if news["kind"] == "accident":
        return [*accidents, [place, at, None]]
    return [
        [where, since, at] if where == place and until is None else [where, since, until]
        for where, since, until in accidents
    ]


def over(accident: Any, now: int) -> bool:
    """Whether an accident was cleared in a minute before this one."""
    _, _, cleared = accident
    return cleared is not None and minute(cleared) < now


def nearest(accidents: list[Any], seg: int, now: int) -> int | None:
    """The segment of the nearest accident that counts in this minute.

    >>> nearest([[[12, 1, 63_400], 70, None], [[10, 2, 53_000], 130, 270]], seg=9, now=4)
    10
    """
    counting = [each for each in accidents if minute(each[1]) < now and not over(each, now)]
    return min((where[0] for where, *_ in counting), key=lambda at: abs(at - seg), default=None)


@ab.operator(out=dict.fromkeys(("vid", "time", "charged", "balance"), pl.Int64))
def charge(crossing: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """Charge the toll of the segment that the car has left; what it was told now is due next.

    Also if its next segment is one of another trip.
    """
    due, balance = state.value or (0, 0)
    if due:
        balance += due
        time = crossing["time"]
        yield {"vid": crossing["vid"], "time": time, "charged": due, "balance": balance}
    state.value = (crossing["toll"], balance)


# Klink's


SUMMARY = {"lav": pl.Int64, "cars": pl.Int64, "accidents": pl.Int64}


def sliding_tolls(
    given: ab.sources.Source,
    *,
    lateness: str | None = None,
    free_cars: int = FREE_CARS,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """What tolls each direction of an expressway earns, by the second. `Memory("out")` if no sink.

    Three streams by segment and 3 s - average speed, cars, accidents - meet in windows of 5 s every
    3 s; a toll is made of each, and of tolls their sum. The last windows are a third as long as the
    first ones, so their deadlines are the stress. Takes reports with their compressed time, `at`,
    in ms; without `lateness` in the order of it.
    """
    program = ab.Program("sliding-tolls")
    reports = _positions(program, given, "at", "ms", lateness)
    by_segment = reports.window(ab.tumbling("3 s"), by=list(SEGMENT))
    speeds = by_segment.agg(speed=ab.sum("spd"), reports=ab.count())
    total, count = pl.col("speed"), pl.col("reports")
    cars = by_segment.agg(cars=ab.count_distinct("vid"))
    accidents = (
        standing(_in_order(reports, lateness))
        .window(ab.tumbling("3 s"), by=[*SEGMENT, "lane", "pos"])
        .agg(stopped=ab.count_distinct("vid"))
        .filter(pl.col("stopped") >= 2)
    )
    lav, here, broken = pl.col("lav"), pl.col("cars"), pl.col("accidents").is_not_null()
    toll = pl.when((lav < SLOW) & (here > free_cars) & ~broken).then(2 * (here - free_cars) ** 2)
    (
        _summary(speeds, lav=(2 * total + count) // (2 * count))
        .union(_summary(cars, cars=here))
        .union(_summary(accidents, accidents=pl.lit(1, pl.Int64)))
        .window(ab.sliding("5 s", "3 s"), by=list(SEGMENT))
        .agg(lav=ab.max("lav"), cars=ab.max("cars"), accidents=ab.max("accidents"))
        .select("xway", "dir", toll=toll.otherwise(0), broken=broken.cast(pl.Int64))
        .window(ab.tumbling("1 s"), by=["xway", "dir"])
        .agg(segments=ab.count(), tolls=ab.sum("toll"), broken=ab.sum("broken"))
        .write(ab.sinks.Memory("out") if sink is None else sink, name="out")
    )
    return program


def standing(reports: Stream) -> Stream:
    """The reports of cars whose last four, this one among them, are from one place."""
    place = {name: ab.last(name) for name in ("seg", "lane", "pos")}
    still = (pl.col("near") == pl.col("far")) & (pl.col("inner") == pl.col("outer"))
    return (
        reports.window(ab.rows(STANDING, step=1), by=list(CAR))
        .agg(
            reports=ab.count(),
            near=ab.min("pos"),
            far=ab.max("pos"),
            inner=ab.min("lane"),
            outer=ab.max("lane"),
            **place,
        )
        .filter((pl.col("reports") == STANDING) & still)
        .select(*CAR, *place)
    )


def _positions(
    program: ab.Program, given: ab.sources.Source, time: str, unit: str, lateness: str | None
) -> Stream:
    allowed = lateness or "0 s"
    read = program.read(given, name="reports", event_time=time, time_unit=unit, lateness=allowed)
    return read.filter(pl.col("type") == POSITION)


def _in_order(reports: Stream, lateness: str | None) -> Stream:
    """By time, for what follows single cars; nothing to do where reports come so."""
    return reports if lateness is None else reports.in_time_order()


def _news(stream: Stream, **named: pl.Expr) -> Stream:
    return _with_columns_of(NEWS, stream, named)


def _summary(stream: Stream, **named: pl.Expr) -> Stream:
    return _with_columns_of({**dict.fromkeys(SEGMENT, pl.Int64), **SUMMARY}, stream, named)


def _with_columns_of(columns: Any, stream: Stream, named: dict[str, pl.Expr]) -> Stream:
    """These columns, null where the stream has none, so that streams can be put together."""
    have = {name: pl.col(name) for name in stream.schema}
    nothing = {name: pl.lit(None, kind) for name, kind in columns.items()}
    full = {**nothing, **have, **named}
    return stream.select(**{name: full[name] for name in columns})
