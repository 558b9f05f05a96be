"""New York taxi trips: how many, how far and how dear, by region, in the last two seconds.

The aggregation that Klink runs (Farhat, Daudjee, Querzoni 2021, section 6: stateless operators,
windows of 2 s each second, 7,000 of 10,000 events a second are aggregated); it does not say which
operators. Here six: parse, drop trips from nowhere, convert units, find the region, find the tip's
share, drop what is no trip of a passenger. The region is that of the fork of StreamBox that has
such a query. Trips are made of a seed, with the columns of the city's records that are read.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from bench.workloads import mixer

VENDORS = ("CMT", "VTS", "DDS")
MICRO = 1_000_000
KM_A_MILE = 1.609344
WEST, EAST, SOUTH, NORTH = -74.3, -73.7, 40.5, 41.0
"""The box in which trips begin, in degrees."""
SHORTEST_MILES = 2.56
"""Trips that are no longer are left out: with the other filters seven of ten trips stay."""
SIZE, SLIDE = "2 s", "1 s"

SCHEMA = pl.Schema(
    {
        "medallion": pl.String(),
        "vendor_id": pl.String(),
        "pickup": pl.Int64(),
        "passenger_count": pl.Int64(),
        "trip_time_in_secs": pl.Int64(),
        "trip_distance": pl.Float64(),
        "longitude": pl.Int64(),
        "latitude": pl.Int64(),
        "fare": pl.Float64(),
        "tip": pl.Float64(),
    }
)
"""`pickup` is the time of an event, in ms; places are millionths of degrees, 0 where unknown."""


def trips(numbers: pl.Series, *, rate: int, seed: int = 0) -> pl.DataFrame:
    """The trips of these sequence numbers, `rate` of them a second.

    >>> trips(pl.Series([0, 50]), rate=10)["pickup"].to_list()
    [0, 5000]
    """
    i = numbers.to_numpy().astype(np.uint64)
    below, share = partial(mixer.below, numbers=i, seed=seed), partial(_share, i, seed)
    known = share(5) >= 0.02
    miles, fare = 10.0 * share(3), 2.5 + 25.0 * share(4)
    medallions = pl.Series(below(13_437, field=0)).cast(pl.String)
    return pl.DataFrame(
        {
            "medallion": medallions.str.zfill(30),
            "vendor_id": pl.Series(VENDORS).gather(below(len(VENDORS), field=1)),
            "pickup": pl.Series((i * np.uint64(1000) // np.uint64(rate)).astype(np.int64)),
            # Of 25 trips one has nobody in it.
            "passenger_count": np.minimum(below(25, field=2), 6).astype(np.int64),
            "trip_time_in_secs": (miles * 240).astype(np.int64),
            "trip_distance": miles,
            "longitude": _micro(WEST + (EAST - WEST) * share(6), known),
            "latitude": _micro(SOUTH + (NORTH - SOUTH) * share(7), known),
            "fare": fare,
            "tip": fare * 0.3 * share(8),
        },
        schema=SCHEMA,
    )


def _share(i: mixer.Numbers, seed: int, field: int) -> npt.NDArray[np.float64]:
    return mixer.fractions(i, seed=seed, field=field)


def _micro(degrees: npt.NDArray[np.float64], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.where(known, np.round(degrees * MICRO), 0).astype(np.int64)


def source(rows: int, *, rate: int, seed: int = 0) -> ab.sources.Source:
    """The first so many trips as a source, made as fast as they are asked for."""
    make = partial(trips, rate=rate, seed=seed)
    return ab.sources.Generator(make, schema=SCHEMA, rows=rows, vectorized=True)


def region(longitude: pl.Expr, latitude: pl.Expr) -> pl.Expr:
    """One of a hundred, of a place in degrees.

    >>> place = pl.select(region(pl.lit(-73.985428), pl.lit(40.748817)))
    >>> place.item()
    31
    """
    across = ((longitude + 750) * 100).cast(pl.Int64)
    along = ((latitude + 1400) * 100).cast(pl.Int64)
    return (across + 12_345 * along) % 100


def by_region(
    given: ab.sources.Source, *, lateness: str = "0 s", sink: ab.sinks.Sink | None = None
) -> ab.Program:
    """Trips by region. The sink is `Memory("out")` if none is given."""
    program = ab.Program("trips-by-region")
    longitude, latitude = pl.col("longitude"), pl.col("latitude")
    (
        program.read(given, name="trips", event_time="pickup", lateness=lateness)
        .with_columns(longitude / MICRO, latitude / MICRO)
        .filter(longitude.is_between(WEST, EAST) & latitude.is_between(SOUTH, NORTH))
        .with_columns(km=pl.col("trip_distance") * KM_A_MILE)
        .with_columns(region=region(longitude, latitude))
        .with_columns(tipped=pl.col("tip") / pl.col("fare"))
        .filter((pl.col("passenger_count") >= 1) & (pl.col("trip_distance") > SHORTEST_MILES))
        .window(ab.sliding(SIZE, SLIDE), by="region")
        .agg(trips=ab.count(), km=ab.mean("km"), fare=ab.mean("fare"), tipped=ab.mean("tipped"))
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program
