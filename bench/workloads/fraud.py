"""Stolen phones: a phone that moves faster than anyone can was copied.

Figure 1 of Prasaad et al., "Scaling Ordered Stream Processing on Shared-Memory Multicores" (2018).
The paper gives no numbers; chosen here: great-circle distance on a sphere of radius 6371 km, 500
km/h, windows of 60 s, area code = first three digits. Times are whole milliseconds.

The smallest program whose output shows a wrong order: each speed is between a record and the one
that came before it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

import anabranch as ab

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
HOUR_MS = 3_600_000


def high_mobility(
    calls: ab.sources.Source,
    *,
    area_codes: Sequence[str] | None = None,
    limit_kmh: float = LIMIT_KMH,
) -> ab.Program:
    """The sinks: `suspects`, every move that is too fast, and `frauds`, how many in each minute.

    With `area_codes`, only calls from numbers that begin with one of them.
    """
    program = ab.Program("high-mobility-fraud")
    stream = program.read(calls, event_time="time")
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
