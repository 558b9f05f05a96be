"""Frequent words of the last texts, against DuckDB over all of them at once and by hand."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import anabranch as ab
from bench.workloads import disorder, top_words

TEXTS, RATE, CATEGORIES = 160, 20, 3
LAST, EVERY, K = 12, 5, 4
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


def texts(count=TEXTS):
    numbers = pl.int_range(count, dtype=pl.UInt64, eager=True)
    return top_words.abstracts(numbers, rate=RATE, seed=5, categories=CATEGORIES)


def program(given, **more):
    chosen = {"last": LAST, "every": EVERY, "k": K} | more
    return top_words.top_words(ab.sources.Records(given), **chosen)


def run(given, epoch_rows=None, **more):
    found = ab.testing.run_sequential(program(given, **more), epoch_rows=epoch_rows)["out"]
    return [tuple(row.values()) for row in found]


def by_duckdb(given):
    """The words of each window that is told are counted anew.

    Windows leave in the order of the texts that complete them.
    """
    stopped = ", ".join(f"'{word}'" for word in sorted(top_words.stop_words()))
    with duckdb.connect() as connection:
        connection.register("texts", given.with_row_index("arrival").to_arrow())
        return connection.sql(
            f"""
            WITH numbered AS (
                SELECT *, row_number() OVER (PARTITION BY category ORDER BY arrival) AS n FROM texts
            ), ends AS (
                SELECT category, n AS texts, arrival AS done FROM numbered WHERE n % {EVERY} = 0
            ), words AS (
                SELECT category, n, unnest(regexp_extract_all(lower(text), '[a-z]+')) AS word
                FROM numbered
            ), counted AS (
                SELECT done, category, texts, word, count(*) AS count
                FROM ends JOIN words USING (category)
                WHERE n > texts - {LAST} AND n <= texts AND word NOT IN ({stopped})
                GROUP BY ALL
            )
            SELECT category, texts,
                   row_number() OVER (PARTITION BY done ORDER BY count DESC, word) AS rank, word, count
            FROM counted QUALIFY rank <= {K} ORDER BY done, rank
            """
        ).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "epoch_rows"), [("none", None), *((k, 50) for k in DISORDERS)])
def test_in_order_of_time_the_words_are_those_of_duckdb(kind, epoch_rows):
    given = texts()

    expected = by_duckdb(given)
    assert {1, 2, 3, 4} == {row[2] for row in expected}
    assert len(expected) > 100
    assert expected == run(DISORDERS[kind](given), epoch_rows, lateness="2 s")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "uniform delay"])
def test_as_they_come_the_words_are_those_of_duckdb(kind):
    given = DISORDERS[kind](texts())

    assert by_duckdb(given) == run(given, 50)


def test_disorder_changes_what_comes():
    """The check on the checks: they would notice."""
    assert by_duckdb(texts()) != by_duckdb(DISORDERS["uniform delay"](texts()))


@pytest.mark.slow
@pytest.mark.parametrize("lateness", [None, "2 s"])
def test_any_width_gives_the_same(lateness):
    given = DISORDERS["uniform delay"](texts(90))

    ab.testing.assert_same_as_sequential(
        program(given, last=9, every=4, lateness=lateness), rescale_at={1: 3}, crash_at=[2]
    )


# By hand


def told(*given, **more):
    """Texts as (category, text)."""
    rows = [(n, n, category, text) for n, (category, text) in enumerate(given)]
    return run(pl.DataFrame(rows, schema=top_words.SCHEMA, orient="row"), **more)


@EPOCHS
def test_words_are_counted_in_the_last_texts(epoch_rows):
    """Of the last two; the first text's words are gone at the third."""
    found = told(
        (1, "xa xa xb"), (1, "xb xc"), (1, "xc xc"), last=2, every=1, k=2, epoch_rows=epoch_rows
    )

    assert [
        (1, 1, 1, "xa", 2),
        (1, 1, 2, "xb", 1),
        (1, 2, 1, "xa", 2),
        (1, 2, 2, "xb", 2),
        (1, 3, 1, "xc", 3),
        (1, 3, 2, "xb", 1),
    ] == found


@EPOCHS
def test_categories_have_windows_of_their_own(epoch_rows):
    found = told(
        (1, "xa"), (2, "xb"), (1, "xa"), (2, "xa"), last=2, every=2, k=3, epoch_rows=epoch_rows
    )

    assert [(1, 2, 1, "xa", 2), (2, 2, 1, "xa", 1), (2, 2, 2, "xb", 1)] == found


def test_words_have_no_case_and_no_signs():
    found = told((1, "Xa, XA: xa. Xb!"), last=1, every=1, k=9)

    assert [("xa", 3), ("xb", 1)] == [row[3:] for row in found]


def test_the_most_frequent_words_do_not_count():
    """Those that are the most frequent in the texts too."""
    frequent = (
        texts(2_000)
        .select(word=pl.col("text").str.to_lowercase().str.extract_all("[a-z]+"))
        .explode("word")["word"]
        .value_counts(sort=True)["word"]
        .head(20)
    )

    assert set(frequent) <= top_words.stop_words()
    assert 100 == len(top_words.stop_words())
    stopped, *_ = sorted(top_words.stop_words())
    assert [("xa", 1)] == [row[3:] for row in told((1, f"{stopped} xa {stopped}"), last=1, every=1)]


# Texts


def test_texts_are_as_long_as_abstracts():
    assert 474 == pytest.approx(texts(500)["text"].str.len_bytes().mean(), rel=0.03)


def test_the_generator_source_gives_the_texts():
    made = ab.Program("texts")
    made.read(top_words.source(20, rate=RATE, seed=5)).write(ab.sinks.Memory("out"))
    numbers = pl.int_range(20, dtype=pl.UInt64, eager=True)

    expected = top_words.abstracts(numbers, rate=RATE, seed=5).rows(named=True)
    assert expected == ab.testing.run_sequential(made)["out"]


def test_any_part_of_the_texts_is_what_it_is_in_the_whole():
    whole = texts(100)
    numbers = pl.Series([70, 3, 99], dtype=pl.UInt64)

    found = top_words.abstracts(numbers, rate=RATE, seed=5, categories=CATEGORIES)

    assert whole[[70, 3, 99]].equals(found)
