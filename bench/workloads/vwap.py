"""Trading: the volume-weighted average price of each ticker, and which quotes are bargains.

After the Finance program of Schneider et al., "Auto-Parallelizing Stateful Distributed Streaming
Applications" (PACT 2012), with the windows and formula of IBM's sample. Quotes meet averages in
order of time, so the merge is the part that must be sequential. The paper does not say what its
trades are like; here tickers are drawn evenly, and what is paid and asked is near a ticker's level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import anabranch as ab
from bench.workloads import mixer

if TYPE_CHECKING:
    from bench.workloads.state import State

TRADES = pl.Schema(
    {"ticker": pl.String(), "time": pl.Int64(), "price": pl.Float64(), "volume": pl.Int64()}
)
QUOTES = pl.Schema(
    {"ticker": pl.String(), "time": pl.Int64(), "ask": pl.Float64(), "ask_size": pl.Int64()}
)
LAST_TRADES = 4
TICKERS, LEVELS = 500, 100
"""Tickers, and of how many levels: 50, 51, ..."""
MOST = 1_000
"""Shares of a trade, or of an offer."""


def traded(numbers: pl.Series, *, rate: int, seed: int = 0) -> pl.DataFrame:
    """The trades of these sequence numbers, `rate` of them a second.

    >>> traded(pl.Series([0, 50]), rate=10)["time"].to_list()
    [0, 5000]
    """
    return _drawn(numbers, rate, seed).rename({"at": "price", "shares": "volume"})


def quoted(numbers: pl.Series, *, rate: int, seed: int = 0) -> pl.DataFrame:
    """The quotes of these sequence numbers, drawn apart from trades of the same seed."""
    return _drawn(numbers, rate, seed, field=100).rename({"at": "ask", "shares": "ask_size"})


def _drawn(numbers: pl.Series, rate: int, seed: int, field: int = 0) -> pl.DataFrame:
    i = numbers.to_numpy().astype(np.uint64)
    ticker = mixer.below(TICKERS, i, seed=seed, field=field)
    level = 50 + (ticker % np.uint64(LEVELS)).astype(np.float64)
    return pl.DataFrame(
        {
            "ticker": _tickers().gather(ticker),
            "time": (i * np.uint64(1000) // np.uint64(rate)).astype(np.int64),
            "at": level + mixer.fractions(i, seed=seed, field=field + 1),
            "shares": mixer.below(MOST, i, seed=seed, field=field + 2).astype(np.int64) + 1,
        }
    )


@cache
def _tickers() -> pl.Series:
    return pl.Series([f"T{number:03}" for number in range(TICKERS)])


def sources(
    rows: int, *, rate: int, seed: int = 0, partitions: int = 1
) -> tuple[ab.sources.Source, ab.sources.Source]:
    """The first so many trades, and as many quotes, made as fast as they are asked for."""

    def source(make: Callable[..., pl.DataFrame], schema: pl.Schema) -> ab.sources.Source:
        made = partial(make, rate=rate, seed=seed)
        return ab.sources.Generator(
            made, schema=schema, rows=rows, partitions=partitions, vectorized=True
        )

    return source(traded, TRADES), source(quoted, QUOTES)


def bargains(trades: ab.sources.Source, quotes: ab.sources.Source) -> ab.Program:
    """The sinks: `vwap`, every trade's average, and `bargains`, every quote's index.

    A quote before its ticker's first trade has none; one at the time of a trade comes after it.
    """
    program = ab.Program("bargains")
    averages = (
        program.read(trades, name="trades", event_time="time")
        .window(ab.rows(LAST_TRADES, step=1), by="ticker")
        .agg(
            value=ab.sum(pl.col("price") * pl.col("volume")),
            volume=ab.sum("volume"),
        )
        .select("ticker", time="window_end", vwap=pl.col("value") / pl.col("volume"))
    )
    averages.write(ab.sinks.Memory("vwap"))
    offers = program.read(quotes, name="quotes", event_time="time")
    nothing = {"ask": pl.lit(None, pl.Float64), "ask_size": pl.lit(None, pl.Int64)}
    (
        averages.with_columns(**nothing)
        .merge(
            offers.select(
                "ticker", "time", pl.lit(None, pl.Float64).alias("vwap"), "ask", "ask_size"
            )
        )
        .key_by("ticker")
        .process(judge)
        .write(ab.sinks.Memory("bargains"))
    )
    return program


@ab.operator(
    out={
        "ticker": pl.String,
        "time": pl.Int64,
        "vwap": pl.Float64,
        "ask": pl.Float64,
        "ask_size": pl.Int64,
        "index": pl.Float64,
    }
)
def judge(row: dict[str, Any], state: State) -> dict[str, Any] | None:
    """Keep a ticker's last average; judge each quote by it."""
    if row["vwap"] is not None:
        state.value = row["vwap"]
        return None
    if state.value is None:
        return None
    index = bargain_index(state.value, row["ask"], row["ask_size"])
    return {**row, "vwap": state.value, "index": index}


def bargain_index(vwap: float, ask: float, ask_size: int) -> float:
    """How good an offer is: 0 unless it asks for less than the average.

    >>> bargain_index(10.0, 10.0, 5)
    0.0
    """
    return ask_size * math.exp(vwap - ask) if vwap > ask else 0.0
