"""The Yahoo Streaming Benchmark: how many views each advertising campaign has in each 10 seconds.

After Chintapalli et al., "Benchmarking Streaming Computation Engines: Storm, Flink and Spark
Streaming" (IPDPSW 2016). An event is a pure function of its number, so any process makes any part
of the stream. Choices made here:

- Rows are typed instead of JSON text, as in the later variants of the benchmark.
- Ids are strings of 36 characters in the form of a UUID, as in the original: short ones would lie
  inside Arrow's string views and flatter those who use them.
- `event_time` is the *due* time of an event as a naive `Datetime("us")` of whole milliseconds, the
  type that Polars, Arrow, DuckDB and Spark all have, so that nobody pays for a conversion.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache, partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from bench.workloads import mixer

CAMPAIGNS, ADS_EACH = 100, 10
ADS = CAMPAIGNS * ADS_EACH
USERS = PAGES = 100
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
WINDOW = timedelta(seconds=10)

SCHEMA = pl.Schema(
    {
        "user_id": pl.String(),
        "page_id": pl.String(),
        "ad_id": pl.String(),
        "ad_type": pl.String(),
        "event_type": pl.String(),
        "event_time": pl.Datetime("us"),
        "ip_address": pl.String(),
    }
)

Variant: TypeAlias = Literal["deterministic", "random"]
_Indices: TypeAlias = npt.NDArray[np.uint64]

# Kinds of id are seeds of their own, so that no ad is called like a user.
_USER, _PAGE, _AD, _CAMPAIGN = range(4)


def events(
    numbers: pl.Series, *, rate: int, seed: int = 0, variant: Variant = "random", start_ms: int = 0
) -> pl.DataFrame:
    """The events of these sequence numbers, `rate` of them due a second from `start_ms` on.

    `random`: every field uniform. `deterministic`: every field round robin, so any 3000 events in
    a row hold each pair of ad and event type once, and the result has a closed form.

    >>> events(pl.Series([0, 3000]), rate=300, variant="deterministic")["event_time"].to_list()
    [datetime.datetime(1970, 1, 1, 0, 0), datetime.datetime(1970, 1, 1, 0, 0, 10)]
    """
    i = numbers.to_numpy().astype(np.uint64)
    limits = (USERS, PAGES, ADS, len(AD_TYPES), len(EVENT_TYPES))
    user, page, ad, ad_type, event_type = (
        _drawn(i, limit, seed, field, variant) for field, limit in enumerate(limits)
    )
    due = start_ms + (i * np.uint64(1000) // np.uint64(rate)).astype(np.int64)
    return pl.DataFrame(
        {
            "user_id": _ids(_USER, USERS).gather(user),
            "page_id": _ids(_PAGE, PAGES).gather(page),
            "ad_id": _ids(_AD, ADS).gather(ad),
            "ad_type": pl.Series(AD_TYPES).gather(ad_type),
            "event_type": pl.Series(EVENT_TYPES).gather(event_type),
            "event_time": pl.Series(due * 1000).cast(pl.Datetime("us")),
            "ip_address": pl.repeat("1.2.3.4", len(i), eager=True),
        }
    )


def ads() -> pl.DataFrame:
    """The table of 1000 ads: 100 campaigns of 10 each, ad k of campaign k div 10."""
    campaign = np.arange(ADS, dtype=np.uint64) // np.uint64(ADS_EACH)
    return pl.DataFrame({"ad_id": _ids(_AD, ADS), "campaign_id": campaigns().gather(campaign)})


def campaigns() -> pl.Series:
    """The ids of the campaigns, in order of their numbers."""
    return _ids(_CAMPAIGN, CAMPAIGNS).alias("campaign_id")


def source(
    rows: int, *, rate: int, seed: int = 0, variant: Variant = "random"
) -> ab.sources.Source:
    """The first so many events as a source, made as fast as they are asked for."""
    make = partial(events, rate=rate, seed=seed, variant=variant)
    return ab.sources.Generator(make, schema=SCHEMA, rows=rows, vectorized=True)


def campaign_views(
    given: ab.sources.Source,
    *,
    lateness: str | timedelta = "0 s",
    window: str | timedelta = WINDOW,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """The benchmark's query: views per campaign and window. The sink is `Memory("out")` if none."""
    program = ab.Program("campaign-views")
    (
        program.read(given, event_time="event_time", lateness=lateness)
        .filter(pl.col("event_type") == "view")
        .select("ad_id", "event_time")
        .lookup(ads(), on="ad_id")
        .window(ab.tumbling(window), by="campaign_id")
        .agg(views=ab.count())
        .write(ab.sinks.Memory("out") if sink is None else sink)
    )
    return program


def expected(given: pl.DataFrame, window: timedelta = WINDOW) -> pl.DataFrame:
    """What the query gives in the end, by plain Polars over all events, in the order it gives it.

    That holds when no record is late. Windows leave by their end, in them campaigns by their id.
    """
    start = pl.col("event_time").dt.truncate(window)
    return (
        given.filter(pl.col("event_type") == "view")
        .join(ads(), on="ad_id")
        .group_by(start.alias("window_start"), "campaign_id")
        .agg(views=pl.len().cast(pl.Int64))
        .with_columns(window_end=pl.col("window_start") + window)
        .select("window_start", "window_end", "campaign_id", "views")
        .sort("window_end", "campaign_id")
    )


def views_per_window(rate: int, window: timedelta = WINDOW) -> int:
    """The closed form: what each campaign has in each complete window of the deterministic variant.

    >>> views_per_window(300), views_per_window(30_000)
    (10, 1000)
    """
    count, rest = divmod(rate * (window // timedelta(milliseconds=1)), 1000)
    if rest or count % (ADS * len(EVENT_TYPES)):
        message = f"a window at rate {rate} does not hold a multiple of 3000 events"
        raise ValueError(message)
    return count // (ADS * len(EVENT_TYPES)) * ADS_EACH


def _drawn(i: _Indices, limit: int, seed: int, field: int, variant: Variant) -> pl.Series:
    if variant == "deterministic":
        drawn = i % np.uint64(limit)
    else:
        drawn = mixer.below(limit, i, seed=seed, field=field)
    return pl.Series(drawn.astype(np.uint32))  # what Polars gathers by, without another copy


@cache
def _ids(kind: int, count: int) -> pl.Series:
    numbers = np.arange(count)
    high = mixer.bits(numbers, seed=kind, field=0).tolist()
    low = mixer.bits(numbers, seed=kind, field=1).tolist()
    digits = (f"{a:016x}{b:016x}" for a, b in zip(high, low, strict=True))
    return pl.Series([f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits])
