"""Stolen phones: a phone that moves faster than anyone can was copied.

Figure 1 of Prasaad et al., "Scaling Ordered Stream Processing on Shared-Memory Multicores" (2018).
The paper gives no numbers; chosen here: great-circle distance on a sphere of radius 6371 km, 500
km/h, windows of 60 s, area code = first three digits. Times are whole milliseconds.

The smallest program whose output shows a wrong order: each speed is between a record and the one
that came before it.

Calls are made here (`calls`): 100,000 phones, each in its home cell of a square of 1,000 km or in
one beside it, which it changes at most once a day; the caller of every thousandth call is half the
square away, which is two moves that are too fast if the phone is seen before and soon behind it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import anabranch as ab
from bench.workloads import mixer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from bench.workloads.state import State

CALLS = pl.Schema(
    {
        "time": pl.Int64(),
        "duration": pl.Int64(),
        "caller": pl.String(),
        "callee": pl.String(),
        "caller_lat": pl.Float64(),
        "caller_lon": pl.Float64(),
        "callee_lat": pl.Float64(),
        "callee_lon": pl.Float64(),
    }
)
EARTH_KM = 6371.0
LIMIT_KMH = 500.0
HOUR_MS, DAY_MS = 3_600_000, 86_400_000

PHONES, CODES = 100_000, 100
ROWS, COLUMNS = 25, 40
"""Of cells, 1,000 in all, of 40 by 25 km."""
SOUTH, WEST, HEIGHT, WIDTH = 8.5, 73.0, 8.99, 9.23
"""The square in degrees: 1,000 km each way at 13 degrees north."""
ASTRAY = 1_000
"""The caller of one call in so many is not where it can be."""
INTERESTING = tuple(f"{code}" for code in range(100, 100 + CODES, 2))
"""Half of the area codes."""


def calls(
    numbers: pl.Series, *, rate: int, seed: int = 0, phones: int = PHONES, every: int = ASTRAY
) -> pl.DataFrame:
    """The calls of these sequence numbers, `rate` of them a second, of which `every` is astray.

    >>> calls(pl.Series([0, 50]), rate=10)["time"].to_list()
    [0, 5000]
    """
    i = numbers.to_numpy().astype(np.uint64)
    time = (i * np.uint64(1000) // np.uint64(rate)).astype(np.int64)
    caller = mixer.below(phones, i, seed=seed, field=0).astype(np.int64)
    # Somebody else.
    callee = caller + 1 + mixer.below(phones - 1, i, seed=seed, field=1).astype(np.int64)
    callee %= phones
    here = _place(caller, time, seed, astray=i % np.uint64(every) == 0)
    there = _place(callee, time, seed, astray=np.zeros(len(i), dtype=bool))
    return pl.DataFrame(
        {
            "time": time,
            "duration": mixer.below(600_000, i, seed=seed, field=2).astype(np.int64),
            "caller": _called(caller),
            "callee": _called(callee),
            **dict(zip(("caller_lat", "caller_lon"), here, strict=True)),
            **dict(zip(("callee_lat", "callee_lon"), there, strict=True)),
        },
        schema=CALLS,
    )


def _place(
    phone: npt.NDArray[np.int64], time: npt.NDArray[np.int64], seed: int, *, astray: Any
) -> tuple[Any, Any]:
    """Where phones are: the middle of their cell of the day."""
    home = mixer.below(ROWS * COLUMNS, phone, seed=seed, field=3).astype(np.int64)
    moved = mixer.below(3, phone * 100_003 + time // DAY_MS, seed=seed, field=4).astype(np.int64)
    row = (home // COLUMNS + np.where(astray, ROWS // 2, 0)) % ROWS
    column = (home % COLUMNS + moved - 1 + np.where(astray, COLUMNS // 2, 0)) % COLUMNS
    return SOUTH + (row + 0.5) * HEIGHT / ROWS, WEST + (column + 0.5) * WIDTH / COLUMNS


def _called(phone: npt.NDArray[np.int64]) -> pl.Series:
    """Numbers: an area code of three digits, and five more."""
    number = pl.Series(phone)
    return (100 + number % CODES).cast(pl.String) + "-" + number.cast(pl.String).str.zfill(5)


def source(rows: int, *, rate: int, seed: int = 0) -> ab.sources.Source:
    """The first so many calls as a source, made as fast as they are asked for."""
    make = partial(calls, rate=rate, seed=seed)
    return ab.sources.Generator(make, schema=CALLS, rows=rows, vectorized=True)


def high_mobility(
    given: ab.sources.Source,
    *,
    area_codes: Sequence[str] | None = None,
    limit_kmh: float = LIMIT_KMH,
    lateness: str = "0 s",
) -> ab.Program:
    """The sinks: `suspects`, every move that is too fast, and `frauds`, how many in each minute.

    With `area_codes`, only calls from numbers that begin with one of them. Calls count as they
    come; a minute ends when nothing that is so late can come.
    """
    program = ab.Program("high-mobility-fraud")
    stream = program.read(given, event_time="time", lateness=lateness)
    if area_codes is not None:
        stream = stream.filter(pl.col("caller").str.slice(0, 3).is_in(list(area_codes)))
    suspects = (
        stream.flat_map(locations).key_by("phone").process(speed).filter(pl.col("kmh") > limit_kmh)
    )
    suspects.write(ab.sinks.Memory("suspects"))
    (suspects.window(ab.tumbling("60 s")).agg(frauds=ab.count()).write(ab.sinks.Memory("frauds")))
    return program


@ab.operator(out={"phone": pl.String, "time": pl.Int64, "lat": pl.Float64, "lon": pl.Float64})
def locations(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Where both phones of a call were, the caller's first."""
    for side in ("caller", "callee"):
        yield {
            "phone": call[side],
            "time": call["time"],
            "lat": call[f"{side}_lat"],
            "lon": call[f"{side}_lon"],
        }


@ab.operator(out={"phone": pl.String, "time": pl.Int64, "kmh": pl.Float64})
def speed(here: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """How fast a phone came here from where it was last.

    Somewhere else at the same time is infinitely fast. Going back in time is a negative speed, not
    a fraud: records in the wrong order are not seen as what they are.
    """
    before, state.value = state.value, here
    if before is None:
        return
    hours = (here["time"] - before["time"]) / HOUR_MS
    km = distance_km((before["lat"], before["lon"]), (here["lat"], here["lon"]))
    at_once = math.inf if km > 0 else 0.0
    kmh = km / hours if hours else at_once
    yield {"phone": here["phone"], "time": here["time"], "kmh": kmh}


def distance_km(start: tuple[float, float], end: tuple[float, float]) -> float:
    """The great-circle distance of two points given by latitude and longitude in degrees.

    >>> round(distance_km((12.9716, 77.5946), (13.0827, 80.2707)), 2)
    290.17
    """
    lat_1, lon_1, lat_2, lon_2 = map(math.radians, (*start, *end))
    haversine = (
        math.sin((lat_2 - lat_1) / 2) ** 2
        + math.cos(lat_1) * math.cos(lat_2) * math.sin((lon_2 - lon_1) / 2) ** 2
    )
    return 2 * EARTH_KM * math.asin(math.sqrt(haversine))
