"""Operators of every room on a real Spark, cut off and gone on with: equal to the oracle."""

import polars as pl
import pytest

import anabranch as ab
from tests.spark.test_spine import check, cut_off, ended, files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS = {"t": pl.Int64, "k": pl.String, "n": pl.Int64, "x": pl.Float64}


def events(count):
    return [
        {"t": 37 * at - 90 * (at % 4), "k": "abcde"[at % 5], "n": at % 7, "x": at * 0.1}
        for at in range(count)
    ]


class Silence(ab.KeyedOperator):
    """Says when a key has been silent for 100 ms."""

    out = EVENTS

    def on_record(self, record, state):
        state.clear()
        state.value = record
        state.timer_at(record["t"] + 100)

    def on_timer(self, at, state):
        yield {**state.value, "t": at}


def newest(value, record):
    return {**record, "n": value["n"] + record["n"]}


def sliding(stream):
    windows = stream.window(ab.sliding("500 ms", "200 ms"), by="k")
    return windows.agg(
        n=ab.count(), mean=ab.mean("x"), users=ab.count_distinct("n"), all=ab.collect("n")
    )


def sessions(stream):
    return stream.window(ab.session("150 ms"), by="k").agg(n=ab.sum("n"), q=ab.quantile("x", 0.5))


def last_rows(stream):
    return stream.window(ab.rows(3, step=2), by="k").agg(n=ab.sum("n"), top=ab.top_k("n", 2))


def late(stream):
    return stream.window(ab.tumbling("100 ms"), by="k").allow_late("200 ms").agg(n=ab.count())


def timers(stream):
    return stream.key_by("k").process(Silence)


def reduced(stream):
    return stream.key_by("k").reduce(newest)


def patterns(stream):
    steps = [ab.step("low", pl.col("n") < 3), ab.step("high", pl.col("n") >= 3, times=2)]
    return stream.key_by("k").match(steps, within="2 s", skip=True)


def joined(stream):
    other = stream.filter(pl.col("n") > 2).select("t", "k", m="n")
    return stream.join(other, on="k", within="100 ms", how="left")


def reunited(stream):
    parts = stream.split(small=pl.col("n") < 2, big=pl.col("n") > 4)
    return parts.big.with_columns(n=pl.col("n") * 2).union(parts.rest).merge(parts.small)


def in_a_row(stream):
    """Several operators with state by one key: one region, divided by it."""
    unique = stream.key_by("k", "n").deduplicate(within="300 ms")
    counted = unique.key_by("k").reduce(newest).window(ab.tumbling("500 ms"), by="k")
    return counted.agg(n=ab.last("n"), rows=ab.count()).filter(pl.col("rows") > 0)


def whole_epochs(stream):
    return stream.map_batches(lambda frame: frame.sort("n", "t", "k"), out=EVENTS)


def prices():
    return pl.DataFrame({"k": ["a", "b", "d"], "price": [1.5, 2.5, 4.5]})


def refreshed(stream):
    """Workers read the table's version from the checkpoint."""
    return stream.lookup(prices, on="k", how="left", refresh="1 h")


PIECES = [
    sliding, sessions, last_rows, late, timers, reduced, patterns, joined, reunited, in_a_row,
    whole_epochs, refreshed,
]  # fmt: skip


def program(piece, tmp_path, count):
    made = ab.Program("operators")
    source = ab.sources.Records(events(count), schema=EVENTS, partitions=2)
    stream = made.read(source, event_time="t", lateness="100 ms")
    piece(stream).write(files(tmp_path), name="out")
    return made


@pytest.mark.parametrize("piece", PIECES)
def test_an_operator_gives_what_it_means(piece, tmp_path, spark_context):
    def start(**options):
        made = program(piece, tmp_path, 400)
        return made.start(spark_context, checkpoint=tmp_path / "ckpt", slices=16, **options)

    first = start(trigger=ab.epochs("5 ms", 3), parallelism=2)
    cut_off(first)
    ended(start(trigger=ab.available_now(40), parallelism=3))

    check(program(piece, tmp_path, 400), tmp_path)
