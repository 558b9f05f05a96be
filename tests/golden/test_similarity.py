"""Pairs of similar tweets, against DuckDB over all of them at once and by hand."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import anabranch as ab
from bench.workloads import disorder, similarity

TWEETS, RATE, LOCATIONS = 300, 20, 3
LAST, EVERY = 40, 7
"""A window that is neither full at first nor a multiple of the step."""

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 40),
    "uniform delay": lambda frame: delayed(frame, "uniform"),
    "zipf delay": lambda frame: delayed(frame, "zipf"),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=40, share=0.4, seed=1),
    "early": lambda frame: disorder.early(frame, by=30, share=0.3, seed=1),
}
EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 1, 3])


def delayed(frame, kind):
    return disorder.delayed(frame, bound_ms=2000, seed=1, kind=kind, time="time")


def tweets(count=TWEETS):
    numbers = pl.int_range(count, dtype=pl.UInt64, eager=True)
    return similarity.tweets(numbers, rate=RATE, seed=5, locations=LOCATIONS)


def program(given, **more):
    chosen = {"last": LAST, "every": EVERY} | more
    return similarity.similar(ab.sources.Records(given), **chosen)


def run(given, epoch_rows=None, **more):
    found = ab.testing.run_sequential(program(given, **more), epoch_rows=epoch_rows)["out"]
    return [tuple(row.values()) for row in found]


def by_duckdb(given):
    """All pairs that are near enough; of these the best of each tweet, then of every so many."""
    with duckdb.connect() as connection:
        connection.register("tweets", given.with_row_index("arrival").to_arrow())
        return connection.sql(
            f"""
            WITH numbered AS (
                SELECT *, list_distinct(regexp_extract_all(lower(text), '[a-z]+')) AS words,
                       row_number() OVER (PARTITION BY location ORDER BY arrival) AS n
                FROM tweets
            ), pairs AS (
                SELECT one.location, one.n, one.seq, other.n AS m, other.seq AS earlier,
                       len(list_intersect(one.words, other.words)) AS shared,
                       (one.n + {EVERY} - 1) // {EVERY} * {EVERY} AS tweets
                FROM numbered AS one JOIN numbered AS other USING (location)
                WHERE other.n BETWEEN one.n - {LAST} AND one.n - 1
            ), best AS (
                SELECT * FROM pairs WHERE shared > 0
                QUALIFY row_number() OVER (
                    PARTITION BY location, tweets ORDER BY shared DESC, n DESC, m DESC
                ) = 1
            )
            SELECT best.location, best.tweets, best.seq, best.earlier, best.shared
            FROM best JOIN numbered
                ON numbered.location = best.location AND numbered.n = best.tweets
            ORDER BY numbered.arrival
            """
        ).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "epoch_rows"), [("none", None), *((k, 50) for k in DISORDERS)])
def test_in_order_of_time_the_pairs_are_those_of_duckdb(kind, epoch_rows):
    given = tweets()

    expected = by_duckdb(given)
    assert TWEETS // EVERY - LOCATIONS < len(expected)
    assert expected == run(DISORDERS[kind](given), epoch_rows, lateness="2 s")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "uniform delay"])
def test_as_they_come_the_pairs_are_those_of_duckdb(kind):
    given = DISORDERS[kind](tweets())

    assert by_duckdb(given) == run(given, 50)


def test_disorder_changes_what_comes():
    """The check on the checks: they would notice."""
    assert by_duckdb(tweets()) != by_duckdb(DISORDERS["uniform delay"](tweets()))


@pytest.mark.slow
@pytest.mark.parametrize("lateness", [None, "2 s"])
def test_any_width_gives_the_same(lateness):
    given = DISORDERS["uniform delay"](tweets(120))

    ab.testing.assert_same_as_sequential(
        program(given, last=9, every=4, lateness=lateness), rescale_at={1: 3}, crash_at=[2]
    )


# By hand


def told(*given, **more):
    """Tweets as texts of location 1, or as (location, text), numbered from 100."""
    both = [each if isinstance(each, tuple) else (1, each) for each in given]
    rows = [(100 + n, n, location, text) for n, (location, text) in enumerate(both)]
    return run(pl.DataFrame(rows, schema=similarity.SCHEMA, orient="row"), **more)


@EPOCHS
def test_the_best_pair_shares_most_words(epoch_rows):
    found = told("a b c", "x b", "a c y", "b y", every=4, epoch_rows=epoch_rows)

    assert [(1, 4, 102, 100, 2)] == found


@EPOCHS
def test_of_several_partners_the_most_recent_is_taken(epoch_rows):
    found = told("a b", "a b", "x", "b a", every=4, epoch_rows=epoch_rows)

    assert [(1, 4, 103, 101, 2)] == found


@EPOCHS
def test_of_several_pairs_the_most_recent_is_told(epoch_rows):
    found = told("a b", "a b", "x y", "y x", every=4, epoch_rows=epoch_rows)

    assert [(1, 4, 103, 102, 2)] == found


@EPOCHS
def test_a_word_counts_once(epoch_rows):
    found = told("a a a b", "A, a! c", "b d a", every=3, epoch_rows=epoch_rows)

    assert [(1, 3, 102, 100, 2)] == found


@EPOCHS
@pytest.mark.parametrize(("last", "partner"), [(2, None), (3, 100)])
def test_only_the_last_tweets_are_looked_at(last, partner, epoch_rows):
    found = told("a", "b", "c", "a", last=last, every=4, epoch_rows=epoch_rows)

    assert ([] if partner is None else [(1, 4, 103, partner, 1)]) == found


@EPOCHS
def test_a_pair_is_told_once(epoch_rows):
    """The second two have nothing in common with any before."""
    found = told("a", "a", "b", "c", every=2, epoch_rows=epoch_rows)

    assert [(1, 2, 101, 100, 1)] == found


@EPOCHS
def test_only_tweets_of_a_location_are_compared(epoch_rows):
    found = told((1, "a b"), (2, "a b"), (2, "c b"), (1, "a c"), every=2, epoch_rows=epoch_rows)

    assert [(2, 2, 102, 101, 1), (1, 2, 103, 100, 1)] == found


# Tweets


def test_the_generator_source_gives_the_tweets():
    made = ab.Program("tweets")
    made.read(similarity.source(20, rate=RATE, seed=5)).write(ab.sinks.Memory("out"))
    numbers = pl.int_range(20, dtype=pl.UInt64, eager=True)

    expected = similarity.tweets(numbers, rate=RATE, seed=5).rows(named=True)
    assert expected == ab.testing.run_sequential(made)["out"]


def test_tweets_are_no_longer_than_tweets():
    assert 140 >= tweets(2_000)["text"].str.len_bytes().max()
