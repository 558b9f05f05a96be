"""Four ways in which events come out of order, each a permutation of a frame's rows.

Event times are untouched: what changes is when a row is delivered. All are pure functions of the
frame and the seed.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.workloads import mixer

Delay: TypeAlias = Literal["uniform", "zipf"]

STRIDE = 953
"""NEXMark's: a prime, so it runs through every block whose length is no multiple of it."""

ZIPF_EXPONENT = 0.99
"""Klink's (Farhat et al., SIGMOD 2021)."""


def block_shuffle(frame: pl.DataFrame, n: int) -> pl.DataFrame:
    """Position k holds row base(k) + (k * 953) mod n of its block, as in NEXMark.

    No row moves by n or more. An incomplete block at the end stays as it is.

    >>> block_shuffle(pl.DataFrame({"i": range(7)}), 5)["i"].to_list()
    [0, 3, 1, 4, 2, 5, 6]
    """
    if n < 1 or math.gcd(n, STRIDE) != 1:
        message = f"a block of {n} rows is not permuted by steps of {STRIDE}"
        raise ValueError(message)
    k = np.arange(frame.height, dtype=np.int64)
    whole = frame.height - frame.height % n
    return frame[np.where(k < whole, k - k % n + k * STRIDE % n, k)]


def delayed(
    frame: pl.DataFrame,
    *,
    bound_ms: int,
    seed: int,
    kind: Delay = "uniform",
    time: str = "event_time",
) -> pl.DataFrame:
    """Rows in the order of arrival = event time + delay, of 0 .. bound_ms - 1 whole milliseconds.

    `zipf`: the delay of rank r (from 1) is r - 1 ms with probability ~ r ** -0.99: most rows are
    hardly late and few very much. A row comes at most `bound_ms` of event time behind the newest
    row before it, so a lateness of `bound_ms` makes none late. Ties stay in the given order.
    """
    if bound_ms < 1:
        message = f"bound_ms must be at least 1, got {bound_ms}"
        raise ValueError(message)
    numbers = np.arange(frame.height)
    if kind == "uniform":
        delay = mixer.below(bound_ms, numbers, seed=seed, field=0).astype(np.int64)
    else:
        drawn = mixer.fractions(numbers, seed=seed, field=0)
        delay = np.searchsorted(_zipf(bound_ms), drawn, side="right").astype(np.int64)
    return frame[np.argsort(_milliseconds(frame[time]) + delay, kind="stable")]


def held_back(frame: pl.DataFrame, *, epoch_rows: int, share: float, seed: int) -> pl.DataFrame:
    """In each epoch of so many rows, about a share of them is delivered after all the others.

    So they come after later rows but before the epoch's watermark (StreamBox: Miao et al., USENIX
    ATC 2017, with up to 40 %). No row leaves its epoch, and those held back keep their order.
    """
    if epoch_rows < 1 or not 0 <= share <= 1:
        message = f"epochs of {epoch_rows} rows with a share of {share} held back"
        raise ValueError(message)
    numbers = np.arange(frame.height)
    late = mixer.fractions(numbers, seed=seed, field=0) < share
    return frame[np.lexsort((numbers, late, numbers // epoch_rows))]


def early(frame: pl.DataFrame, *, by: int, share: float, seed: int) -> pl.DataFrame:
    """About a share of the rows come so many rows before their place (StreamBox, figure 7).

    With epochs of so many rows they belong behind the end of the epoch in which they arrive. A row
    comes at most `by` rows behind the newest one before it.
    """
    return frame[early_order(frame.height, by=by, share=share, seed=seed)]


def early_order(count: int, *, by: int, share: float, seed: int) -> npt.NDArray[np.int64]:
    """Which of so many rows comes at each place where about a share of them come early."""
    if by < 1 or not 0 <= share <= 1:
        message = f"a share of {share} that is {by} rows early"
        raise ValueError(message)
    numbers = np.arange(count)
    ahead = mixer.fractions(numbers, seed=seed, field=0) < share
    return np.argsort(np.where(ahead, numbers - by, numbers), kind="stable")


def _milliseconds(times: pl.Series) -> npt.NDArray[np.int64]:
    """Datetimes as milliseconds; whole numbers are milliseconds already."""
    whole = times.dt.epoch("ms") if isinstance(times.dtype, pl.Datetime) else times
    return whole.cast(pl.Int64).to_numpy()


@cache
def _zipf(buckets: int) -> npt.NDArray[np.float64]:
    """The cumulative shares of the ranks 1 .. buckets."""
    weights = np.arange(1, buckets + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    shares: npt.NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    shares[-1] = 1.0  # rounding must not leave a draw without a bucket
    return shares
