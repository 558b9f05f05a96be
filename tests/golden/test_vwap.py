"""Averages and bargains against numbers worked out by hand and against IBM's sample."""

from __future__ import annotations

import polars as pl
import pytest

import anabranch as ab
from bench.workloads import vwap

EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 1, 2])

GOLDEN = [
    (83.648, 83.63, 2, 2.0363259527796),
    (83.648, 83.58, 2, 2.1407306169575),
    (83.47991935483871, 83.46, 10, 10.2011906904257),
]


def run(trades, quotes, epoch_rows=None):
    program = vwap.bargains(
        ab.sources.Records(pl.DataFrame(trades, schema=vwap.TRADES, orient="row")),
        ab.sources.Records(pl.DataFrame(quotes, schema=vwap.QUOTES, orient="row")),
    )
    return ab.testing.run_sequential(program, epoch_rows=epoch_rows)


@pytest.mark.parametrize(("average", "ask", "size", "index"), GOLDEN)
def test_the_bargain_index_is_the_samples(average, ask, size, index):
    assert pytest.approx(index, rel=1e-12) == vwap.bargain_index(average, ask, size)


@EPOCHS
def test_the_program_gives_the_samples_indices(epoch_rows):
    trades = [("IBM", 0, 83.648, 100), ("BK", 0, 83.47991935483871, 7)]
    quotes = [("IBM", 10, 83.63, 2), ("BK", 20, 83.46, 10), ("IBM", 30, 83.58, 2)]

    found = run(trades, quotes, epoch_rows)["bargains"]

    assert ["IBM", "BK", "IBM"] == [row["ticker"] for row in found]
    expected = [GOLDEN[0][3], GOLDEN[2][3], GOLDEN[1][3]]
    assert pytest.approx(expected, rel=1e-12) == [row["index"] for row in found]


def test_a_quote_above_the_average_is_no_bargain():
    found = run([("IBM", 0, 10.0, 1)], [("IBM", 1, 10.0, 5), ("IBM", 2, 11.0, 5)])["bargains"]

    assert [0.0, 0.0] == [row["index"] for row in found]


@EPOCHS
def test_an_average_is_over_the_last_four_trades(epoch_rows):
    """(10 + 40) / 3, then with 30 x 3 and 40 x 4; the fifth trade pushes the first out."""
    trades = [("IBM", k, 10.0 * k, k) for k in range(1, 6)]

    found = run(trades, [("IBM", 9, 1.0, 1)], epoch_rows)["vwap"]

    sums = [(10, 1), (50, 3), (140, 6), (300, 10), (540, 14)]
    assert [value / volume for value, volume in sums] == [row["vwap"] for row in found]
    assert [1, 2, 3, 4, 5] == [row["time"] for row in found]


def test_each_ticker_has_its_own_trades():
    trades = [("IBM", 1, 10.0, 1), ("BK", 2, 99.0, 1), ("IBM", 3, 20.0, 1)]

    found = run(trades, [("BK", 4, 1.0, 1)])["vwap"]

    assert [("IBM", 10.0), ("BK", 99.0), ("IBM", 15.0)] == [
        (row["ticker"], row["vwap"]) for row in found
    ]


@EPOCHS
def test_a_quote_is_judged_by_the_average_at_its_time(epoch_rows):
    """Trades at 1 and 5: at 5 the quote comes after the trade, and at 0 there is none yet."""
    trades = [("IBM", 1, 10.0, 1), ("IBM", 5, 20.0, 1)]
    quotes = [("IBM", t, 30.0, 1) for t in (0, 1, 4, 5, 6)]

    found = run(trades, quotes, epoch_rows)["bargains"]

    assert [(1, 10.0), (4, 10.0), (5, 15.0), (6, 15.0)] == [
        (row["time"], row["vwap"]) for row in found
    ]


def test_generated_bargains_are_those_of_a_recount():
    """In order of time, a trade before a quote; averages over lists that are kept by hand."""
    numbers = pl.int_range(2_000, dtype=pl.UInt64, eager=True)
    trades, quotes = (make(numbers, rate=100, seed=5) for make in (vwap.traded, vwap.quoted))
    rows = [(row["time"], 0, row) for row in trades.rows(named=True)]
    rows += [(row["time"], 1, row) for row in quotes.rows(named=True)]
    last, expected = {}, []
    for _, kind, row in sorted(rows, key=lambda each: each[:2]):
        if kind == 0:
            last.setdefault(row["ticker"], []).append((row["price"], row["volume"]))
        elif row["ticker"] in last:
            kept = last[row["ticker"]][-4:]
            average = sum(price * volume for price, volume in kept) / sum(v for _, v in kept)
            expected.append(vwap.bargain_index(average, row["ask"], row["ask_size"]))

    found = run(trades.rows(), quotes.rows(), epoch_rows=300)["bargains"]

    assert pytest.approx(expected) == [row["index"] for row in found]
    assert 0 < sum(index > 0 for index in expected) < len(expected)


def test_any_part_of_the_trades_is_made_alone():
    trades, _ = vwap.sources(100, rate=10, partitions=2)

    whole = vwap.traded(pl.int_range(100, dtype=pl.UInt64, eager=True), rate=10)

    assert whole[[1, 3, 5]].equals(trades.frame((1, 0, 3)))
