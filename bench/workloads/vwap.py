"""Trading: the volume-weighted average price of each ticker, and which quotes are bargains.

After the Finance program of Schneider et al., "Auto-Parallelizing Stateful Distributed Streaming
Applications" (PACT 2012), with the windows and formula of IBM's sample. Quotes meet averages in
order of time, so the merge is the part that must be sequential.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

import anabranch as ab

if TYPE_CHECKING:
    from bench.workloads.state import State

TRADES = pl.Schema(
    {"ticker": pl.String(), "time": pl.Int64(), "price": pl.Float64(), "volume": pl.Int64()}
)
QUOTES = pl.Schema(
    {"ticker": pl.String(), "time": pl.Int64(), "ask": pl.Float64(), "ask_size": pl.Int64()}
)
LAST_TRADES = 4


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
