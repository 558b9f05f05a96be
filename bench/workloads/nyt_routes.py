"""New York taxi trips: the most frequent routes and the most profitable areas of the last minutes.

The two queries of the Grand Challenge of DEBS 2015. A list is told when a trip changes it, and the
trip with it. A trip comes when it ends; it counts for so long, and at the end of that time it goes
as if something had come that takes it away. So each trip becomes two or three rows, which are put
in order of their times; counting them is divided by route, by taxi and by area, and only the list
itself needs all of them. Times are whole milliseconds, money is whole cents: medians are exact.

How long an answer took is part of it there. It is no part of what a program means, so it is not
here. The trips are made of a seed: hot spots, of which the n-th is n times as rare as the first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from anabranch.program.stream import Stream
from bench.workloads import mixer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.workloads.state import State

WEST, NORTH = -74.913585, 41.474937
"""The centre of the first cell, in degrees."""
EASTWARD, SOUTHWARD = 0.005986, 0.004491556
"""Half a kilometre, in degrees."""
CELLS = 300
"""Of half a kilometre, in each direction."""
MINUTE = 60_000
TOP = 10

TAXIS, SPOTS, SPREAD = 13_000, 20, 0.01
SPOTS_WEST, SPOTS_EAST, SPOTS_SOUTH, SPOTS_NORTH = -74.05, -73.75, 40.6, 40.9
FIRST = 1_356_998_400_000
"""When trips begin to end: 2013-01-01, in ms."""
SECONDS, SIGMA = 600.0, 0.6
"""A trip's duration is log-normal: the median, and the deviation of its logarithm."""
MILES_A_SECOND = 12 / 3600
NOWHERE = 0.005
"""The share of trips that have no places."""

SCHEMA = pl.Schema(
    {
        "medallion": pl.String(),
        "pickup": pl.Int64(),
        "dropoff": pl.Int64(),
        "trip_time_in_secs": pl.Int64(),
        "trip_distance": pl.Float64(),
        "pickup_longitude": pl.Float64(),
        "pickup_latitude": pl.Float64(),
        "dropoff_longitude": pl.Float64(),
        "dropoff_latitude": pl.Float64(),
        "payment_type": pl.String(),
        "fare": pl.Int64(),
        "tip": pl.Int64(),
    }
)
"""`dropoff` is the time of an event; places are degrees, 0 where unknown; distances are miles."""

_Floats = npt.NDArray[np.float64]


# Trips


def trips(
    numbers: pl.Series,
    *,
    rate: int,
    seed: int = 0,
    spread: float = SPREAD,
    taxis: int = TAXIS,
) -> pl.DataFrame:
    """The trips of these sequence numbers, of which `rate` end in a second.

    Hot spots have a standard deviation of `spread` degrees. Taxis are drawn anew for each trip, so
    one may begin before its taxi's last one has ended.

    >>> (trips(pl.Series([0, 50]), rate=10)["dropoff"] - FIRST).to_list()
    [0, 5000]
    """
    i = numbers.to_numpy().astype(np.uint64)
    below, share = partial(mixer.below, numbers=i, seed=seed), partial(_share, i, seed)
    dropoff = FIRST + (i * np.uint64(1000) // np.uint64(rate)).astype(np.int64)
    bend, _ = _normal(share(7), share(8))
    seconds = np.round(SECONDS * np.exp(SIGMA * bend)).astype(np.int64)
    miles = seconds * MILES_A_SECOND * (0.7 + 0.6 * share(9))
    cents = np.round(250 + 250 * miles + 50 * seconds / 60).astype(np.int64)
    by_card = below(2, field=10) == 1
    known = share(12) >= NOWHERE
    ends = [_places(i, seed, field, spread, known) for field in (1, 4)]
    return pl.DataFrame(
        {
            "medallion": pl.Series(below(taxis, field=0)).cast(pl.String).str.zfill(32),
            "pickup": dropoff - 1000 * seconds,
            "dropoff": dropoff,
            "trip_time_in_secs": seconds,
            "trip_distance": miles,
            "pickup_longitude": ends[0][0],
            "pickup_latitude": ends[0][1],
            "dropoff_longitude": ends[1][0],
            "dropoff_latitude": ends[1][1],
            "payment_type": pl.Series(["CSH", "CRD"]).gather(by_card.astype(np.uint32)),
            "fare": cents,
            "tip": np.where(by_card, cents * 0.3 * share(11), 0).astype(np.int64),
        },
        schema=SCHEMA,
    )


def _share(i: npt.ArrayLike, seed: int, field: int) -> _Floats:
    return mixer.fractions(i, seed=seed, field=field)


def _normal(one: _Floats, two: _Floats) -> tuple[_Floats, _Floats]:
    """Two normal numbers of two uniform ones (Box and Muller)."""
    far, turn = np.sqrt(-2.0 * np.log1p(-one)), 2.0 * np.pi * two
    return far * np.cos(turn), far * np.sin(turn)


def _places(
    i: mixer.Numbers, seed: int, field: int, spread: float, known: npt.NDArray[np.bool_]
) -> tuple[_Floats, _Floats]:
    """Longitudes and latitudes around hot spots, by this field and the next two."""
    shares = np.cumsum(1.0 / np.arange(1, SPOTS + 1))
    spot = np.searchsorted(shares, _share(i, seed, field) * shares[-1], side="right")
    along, across = (_share(np.arange(SPOTS), seed, each) for each in (20, 21))
    east, north = _normal(_share(i, seed, field + 1), _share(i, seed, field + 2))
    longitude = (SPOTS_WEST + (SPOTS_EAST - SPOTS_WEST) * along)[spot] + spread * east
    latitude = (SPOTS_SOUTH + (SPOTS_NORTH - SPOTS_SOUTH) * across)[spot] + spread * north
    return np.round(longitude, 6) * known, np.round(latitude, 6) * known


def source(rows: int, *, rate: int, seed: int = 0) -> ab.sources.Source:
    """The first so many trips as a source, made as fast as they are asked for."""
    make = partial(trips, rate=rate, seed=seed)
    return ab.sources.Generator(make, schema=SCHEMA, rows=rows, vectorized=True)


# Cells


def cell(longitude: pl.Expr, latitude: pl.Expr, *, parts: int = 1) -> pl.Expr:
    """The name of a place's cell, "east.south", both from 1; null outside the grid.

    Cells are of half a kilometre, or so many times as small; all grids have the same border.

    >>> place = pl.lit(-73.985428), pl.lit(40.748817)
    >>> [pl.select(cell(*place, parts=parts)).item() for parts in (1, 2)]
    ['156.163', '312.325']
    """
    east = 1 + ((0.5 + (longitude - WEST) / EASTWARD) * parts).floor().cast(pl.Int64)
    south = 1 + ((0.5 + (NORTH - latitude) / SOUTHWARD) * parts).floor().cast(pl.Int64)
    inside = east.is_between(1, CELLS * parts) & south.is_between(1, CELLS * parts)
    return pl.when(inside).then(pl.format("{}.{}", east, south))


def _between_cells(stream: Stream, *, parts: int) -> Stream:
    """The trips that have both ends in the grid, with their cells `start` and `end`."""
    start, end = (
        cell(pl.col(f"{at}_longitude"), pl.col(f"{at}_latitude"), parts=parts)
        for at in ("pickup", "dropoff")
    )
    return stream.with_columns(start=start, end=end).filter(
        pl.col("start").is_not_null() & pl.col("end").is_not_null()
    )


def _with_its_ends(stream: Stream, *after: int) -> Stream:
    """Each trip when it comes and again so long after it, as `at`, all in order of time.

    What goes at a time is before what comes at it, if trips are late by less than any of `after`:
    it arrived before.
    """
    dropoff = pl.col("dropoff")
    times = pl.concat_list(dropoff, *(dropoff + each for each in after))
    return stream.with_columns(at=times).explode("at").with_event_time("at").in_time_order()


# Query 1


def frequent_routes(
    given: ab.sources.Source,
    *,
    lateness: str = "0 s",
    last: int = 30 * MINUTE,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """The ten routes with most trips that ended in the `last` ms, told when they change.

    A trip that ended exactly so long ago counts no longer. Of routes with as many trips, the one
    with the most recent trip is first; then by name. The sink is `Memory("out")` if none is given.
    """
    program = ab.Program("frequent-routes")
    trip = program.read(given, name="trips", event_time="dropoff", lateness=lateness)
    cells = _between_cells(trip, parts=1).select("pickup", "dropoff", "start", "end")
    (
        _with_its_ends(cells, last)
        .key_by("start", "end")
        .process(route)
        .process(ranked_routes)
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


_CAUSE = {"pickup": pl.Int64, "dropoff": pl.Int64}


@ab.operator(
    out={
        **_CAUSE,
        "start": pl.String,
        "end": pl.String,
        "count": pl.Int64,
        "latest": pl.Int64,
        "comes": pl.Boolean,
    }
)
def route(trip: dict[str, Any], state: State) -> dict[str, Any]:
    """How many trips a route has now, and when its latest one ended."""
    count, latest = state.value or (0, trip["dropoff"])
    comes = trip["at"] == trip["dropoff"]
    count, latest = (count + 1, trip["dropoff"]) if comes else (count - 1, latest)
    state.value = (count, latest) if count else None
    return {
        "pickup": trip["pickup"],
        "dropoff": trip["dropoff"],
        "start": trip["start"],
        "end": trip["end"],
        "count": count,
        "latest": latest,
        "comes": comes,
    }


@ab.operator(
    out=_CAUSE
    | {f"{end}_{rank}": pl.String for rank in range(1, TOP + 1) for end in ("start", "end")}
)
def ranked_routes(row: dict[str, Any], state: State) -> dict[str, Any] | None:
    """The ten best routes, when a trip that comes has changed them."""
    rank = (-row["count"], -row["latest"]) if row["count"] else None
    _place(state, (row["start"], row["end"]), rank, ())
    leaders = _news(state) if row["comes"] else None
    if leaders is None:
        return None
    told = {"pickup": row["pickup"], "dropoff": row["dropoff"]}
    for at, (names, _) in enumerate(leaders, start=1):
        told |= {f"start_{at}": names[0], f"end_{at}": names[1]}
    return told


# Query 2


def profitable_areas(
    given: ab.sources.Source,
    *,
    lateness: str = "0 s",
    paid_last: int = 15 * MINUTE,
    empty_last: int = 30 * MINUTE,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """The ten areas in which a taxi can expect most, told when they or what is told of them change.

    An area's profit is the median of fare + tip of the trips that began in it and ended in the last
    `paid_last` ms. Its profitability is that divided by the taxis that are empty there: those whose
    last trip ended in it in the last `empty_last` ms. A taxi's next trip is known when it ends;
    till then it is taken to be where it was. Of areas with the same, the one in which a trip began
    or ended most recently is first; then by name. The sink is `Memory("out")` if none is given.
    """
    program = ab.Program("profitable-areas")
    trip = program.read(given, name="trips", event_time="dropoff", lateness=lateness)
    cells = _between_cells(trip, parts=2).select(
        "medallion", "pickup", "dropoff", "start", "end", paid=pl.col("fare") + pl.col("tip")
    )
    (
        _with_its_ends(cells, paid_last, empty_last)
        .with_columns(age=pl.col("at") - pl.col("dropoff"))
        .key_by("medallion")
        .process(taxi(paid_last, empty_last), out=_CHANGES)
        .key_by("cell")
        .process(area)
        .process(ranked_areas)
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


_CHANGES = {
    **_CAUSE,
    "cell": pl.String,
    "paid": pl.Int64,
    "trips": pl.Int64,
    "taxis": pl.Int64,
    "last": pl.Boolean,
}
"""What comes to an area or goes: trips with what was paid, taxis. A trip's last one says so."""


def taxi(
    paid_last: int, empty_last: int
) -> Callable[[dict[str, Any], Any], Iterator[dict[str, Any]]]:
    """An operator that tells what a taxi's trip changes in which areas."""

    def changes(trip: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
        cause = {"pickup": trip["pickup"], "dropoff": trip["dropoff"]}
        here, age = state.value, trip["age"]
        if age == 0:
            yield {**cause, "cell": trip["start"], "paid": trip["paid"], "trips": 1, "taxis": 0}
            if here is not None:
                yield {**cause, "cell": here[0], "trips": 0, "taxis": -1}
            yield {**cause, "cell": trip["end"], "trips": 0, "taxis": 1, "last": True}
            state.value = (trip["end"], trip["dropoff"])
        if age == paid_last:
            yield {**cause, "cell": trip["start"], "paid": trip["paid"], "trips": -1, "taxis": 0}
        if age == empty_last and here is not None and here[1] == trip["dropoff"]:
            yield {**cause, "cell": here[0], "trips": 0, "taxis": -1}
            state.value = None

    return changes


_AREA = {"cell": pl.String, "taxis": pl.Int64, "profit": pl.Float64}


@ab.operator(out={**_CAUSE, **_AREA, "latest": pl.Int64, "last": pl.Boolean})
def area(change: dict[str, Any], state: State) -> dict[str, Any]:
    """What an area has now."""
    paid, taxis, latest = state.value or ((), 0, change["dropoff"])
    amounts = list(paid)
    if change["trips"] > 0:
        insort(amounts, change["paid"])
    elif change["trips"] < 0:
        del amounts[bisect_left(amounts, change["paid"])]
    taxis += change["taxis"]
    if change["trips"] > 0 or change["taxis"] > 0:
        latest = change["dropoff"]
    state.value = (tuple(amounts), taxis, latest) if amounts or taxis else None
    return {
        "pickup": change["pickup"],
        "dropoff": change["dropoff"],
        "cell": change["cell"],
        "taxis": taxis,
        "profit": median(amounts),
        "latest": latest,
        "last": change["last"],
    }


def median(amounts: list[int]) -> float | None:
    """The middle of amounts in order, or half the sum of the two in the middle.

    >>> median([1, 2, 9]), median([1, 2, 5, 9]), median([])
    (2.0, 3.5, None)
    """
    if not amounts:
        return None
    middle = len(amounts) // 2
    return (amounts[middle] + amounts[~middle]) / 2


_TOLD = {"cell": pl.String, "taxis": pl.Int64, "profit": pl.Float64, "profitability": pl.Float64}


@ab.operator(
    out=_CAUSE
    | {f"{name}_{rank}": kind for rank in range(1, TOP + 1) for name, kind in _TOLD.items()}
)
def ranked_areas(row: dict[str, Any], state: State) -> dict[str, Any] | None:
    """The ten best areas, when a trip that comes has changed them."""
    taxis, profit = row["taxis"], row["profit"]
    if taxis and profit is not None:
        worth = profit / taxis
        _place(state, (row["cell"],), (-worth, -row["latest"]), (taxis, profit, worth))
    else:
        _place(state, (row["cell"],), None, ())
    leaders = _news(state) if row["last"] else None
    if leaders is None:
        return None
    told = {"pickup": row["pickup"], "dropoff": row["dropoff"]}
    for at, (names, values) in enumerate(leaders, start=1):
        named = zip(_TOLD, (*names, *values), strict=True)
        told |= {f"{name}_{at}": value for name, value in named}
    return told


# A list that is told when it changes
#
# `state.map` has every thing with its rank and what is told of it; `state.value` is the list as it
# was told, the list as it is, and whether that is still to be found. It is where one that was in it
# has lost its place: who follows is found among all, and not before somebody asks.

_NOTHING: tuple[Any, ...] = ((), (), False)


def _place(
    state: State, thing: tuple[str, ...], rank: tuple[float, int] | None, told: tuple[Any, ...]
) -> None:
    """Give a thing a rank, the smallest is the best; or none."""
    shown, leaders, unsure = state.value or _NOTHING
    if rank is None:
        state.map.pop(thing, None)
    else:
        state.map[thing] = (rank, told)
    if unsure:
        return
    others = [each for each in leaders if each[1] != thing]
    entry = (rank, thing, told)
    if len(others) < len(leaders) and (rank is None or entry[:2] > leaders[-1][:2]):
        state.value = (shown, (), True)
    elif rank is not None:
        # No two things are equal, so what is told of them is never compared.
        state.value = (shown, tuple(sorted([*others, entry])[:TOP]), False)


def _news(state: State) -> list[tuple[Any, Any]] | None:
    """The best things with what is told of them, unless it is what was told the last time."""
    shown, leaders, unsure = state.value or _NOTHING
    if unsure:
        all_of_them = ((rank, thing, told) for thing, (rank, told) in state.map.items())
        leaders = tuple(heapq.nsmallest(TOP, all_of_them))
    now = tuple((thing, told) for _, thing, told in leaders)
    state.value = (now, leaders, False)
    return None if now == shown else list(now)
