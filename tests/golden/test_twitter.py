"""Words of tweets against DuckDB; matches against plain Python with a true parser of XML."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from xml.etree import ElementTree as ET

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from bench.workloads import disorder, twitter

slow = pytest.mark.slow

TWEETS, RATE, AUTHORS = 600, 100, 8
EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 150])

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 100),
    "uniform delay": lambda frame: disorder.delayed(frame, bound_ms=2000, seed=1, time="time"),
    "zipf delay": lambda frame: disorder.delayed(
        frame, bound_ms=2000, seed=1, kind="zipf", time="time"
    ),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=150, share=0.4, seed=1),
}


def numbers(count):
    return pl.int_range(count, dtype=pl.UInt64, eager=True)


def tweets(count=TWEETS):
    return twitter.tweets(numbers(count), rate=RATE, seed=5)


def raw(count=TWEETS):
    return twitter.raw(numbers(count), rate=RATE, authors=AUTHORS, seed=5)


def words_by_duckdb(given):
    """Words are what stands between blanks, without the marks before and behind it."""
    with duckdb.connect() as connection:
        connection.register("tweets", given.with_row_index("n").to_arrow())
        return connection.sql(
            r"""
            WITH split AS (
                SELECT n, regexp_split_to_array(lower(text), '\s+') AS parts FROM tweets
            ), stripped AS (
                SELECT n, [trim(part, '.,!?&') for part in parts if trim(part, '.,!?&') <> '']
                       AS words FROM split
            )
            SELECT words, [len(word) for word in words] AS lengths, list_avg(lengths) AS mean
            FROM stripped ORDER BY n
            """
        ).pl()


def matches(given):
    """By looking back from each tweet over those of its author, in the order of the frame."""
    sets, found = defaultdict(list), []
    for text in given["xml"]:
        tweet = ET.fromstring(text)
        author, time = tweet.findtext("author"), int(tweet.findtext("time"))
        hashtags = set(re.findall(r"(?<!\S)#\S*", tweet.findtext("contents")))
        sets[author].append(hashtags)
        alike = 0
        for each in reversed(sets[author]):
            if each != hashtags:
                break
            alike += 1
        if hashtags and alike >= 5:
            found.append(
                {"author": author, "time": time, "hashtags": sorted(hashtags), "in_a_row": alike}
            )
    return found


def one_author(*sets, author="a"):
    """Tweets with these hashtags, one a second."""
    rows = []
    for second, hashtags in enumerate(sets):
        contents = " ".join(f"#{each}" for each in hashtags)
        rows.append(
            {
                "time": 1000 * second,
                "xml": f"<tweet><author>{author}</author><time>{1000 * second}</time>"
                f"<contents>so it is {contents}</contents></tweet>",
            }
        )
    return rows


def times(rows, epoch_rows=None):
    program = twitter.cep(ab.sources.Records(pl.DataFrame(rows, twitter.RAW)))
    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]
    return [row["time"] // 1000 for row in found]


def regions(program):
    """What the compiler says, and of it each operator's region."""
    facts = json.loads(program.explain("json"))
    return facts, {name: region for region in facts["regions"] for name in region["operators"]}


# Words


@pytest.mark.parametrize("kind", ["none", "uniform delay"])
@EPOCHS
def test_words_are_those_of_duckdb(kind, epoch_rows):
    given = DISORDERS[kind](tweets())

    program = twitter.nlp(ab.sources.Records(given))
    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    expected = words_by_duckdb(given)
    assert_frame_equal(expected, pl.DataFrame(found, schema=expected.schema), rel_tol=1e-12)
    assert {3, 14} <= set(given["text"].str.split(" ").list.len())
    assert given["text"].str.contains(" & ", literal=True).any()


def test_a_tweet_without_words_has_no_mean():
    given = [{"time": 0, "text": " & !  "}, {"time": 1, "text": "Oh, a  WORD."}]
    program = twitter.nlp(ab.sources.Records(pl.DataFrame(given, twitter.TWEETS)))

    assert [
        {"words": [], "lengths": [], "mean": None},
        {"words": ["oh", "a", "word"], "lengths": [2, 1, 4], "mean": 7 / 3},
    ] == ab.testing.run_sequential(program)["out"]


@slow
def test_any_width_gives_the_same_words():
    ab.testing.assert_same_as_sequential(twitter.nlp(twitter.source(200, rate=RATE, seed=5)))


def test_words_are_found_in_one_parallel_region_in_turns():
    """The paper: a parallel region with a single operator, which has no state."""
    facts, region = regions(twitter.nlp(twitter.source(0, rate=RATE)))

    found = region["nlp"]
    assert ["tweets", "nlp"] == found["operators"]
    assert (True, "round-robin", "round-robin") == (
        found["parallel"],
        found["routing"],
        found["ordering"],
    )
    assert ["parallel-source", "merge"] == [each["kind"] for each in facts["joints"]]


# Matches


@pytest.mark.parametrize("kind", DISORDERS)
@EPOCHS
def test_matches_are_in_the_order_in_which_tweets_come(kind, epoch_rows):
    given = DISORDERS[kind](raw())
    program = twitter.cep(ab.sources.Records(given))

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    expected = matches(given)
    assert len(expected) > 20
    assert expected == found


@pytest.mark.parametrize("kind", DISORDERS)
@EPOCHS
def test_in_time_order_disorder_changes_nothing(kind, epoch_rows):
    given = DISORDERS[kind](raw())
    program = twitter.cep(ab.sources.Records(given), in_time_order=True, lateness="2 s")

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    assert matches(raw()) == found


def test_in_the_wrong_order_there_are_other_matches():
    """The check on the checks: they would notice."""
    disordered = DISORDERS["uniform delay"](raw())

    assert matches(raw()) != matches(disordered)


@pytest.mark.parametrize("epoch_rows", [None, 1, 2])
def test_five_in_a_row_are_a_match_at_the_fifth(epoch_rows):
    """x, x, x, y, then x five times: the ninth tweet is the first."""
    rows = one_author("x", "x", "x", "y", *"xxxxx")

    assert [8] == times(rows, epoch_rows)


def test_each_further_one_is_a_match_too():
    assert [4, 5, 6] == times(one_author(*"xxxxxxxyx"))


def test_hashtags_are_a_set():
    """In any order and however often, and all of them: at 5 one is missing."""
    assert [4] == times(one_author("xy", "yx", "xyx", "yyx", "xy", "x"))


def test_without_hashtags_nothing_is_alike():
    assert [] == times(one_author(*[""] * 7))


def test_tweets_of_others_come_between():
    rows = one_author(*"xxxxx") + one_author(*"xxxx", author="b")

    assert [4] == times(sorted(rows, key=lambda row: row["time"]))


def test_what_is_escaped_is_read_as_it_was_written():
    """`&lt;` in a tweet is written as `&amp;lt;`; a hashtag is a word that begins with #."""
    given = "<tweet><author>a&amp;b</author><time>7</time><contents>&lt;3 R&amp;amp;B #x</contents></tweet>"

    expected = {"author": "a&b", "time": 7, "contents": "<3 R&amp;B #x"}
    assert expected == twitter.parsed({"time": 7, "xml": given})


@slow
@pytest.mark.parametrize("in_time_order", [False, True])
def test_any_width_gives_the_same_matches(in_time_order):
    source = twitter.raw_source(200, rate=RATE, authors=3, seed=5)
    program = twitter.cep(source, in_time_order=in_time_order)

    assert ab.testing.run_sequential(program)["out"], "something must be found"
    ab.testing.assert_same_as_sequential(program, widths=(1, 3), crash_at=[1])


def test_both_stages_are_parallel_and_rows_are_put_in_order():
    """The paper: parse, shuffle by author, match, and ordering matters."""
    facts, region = regions(twitter.cep(twitter.raw_source(0, rate=RATE)))

    assert region["tweets"] is region["parse"]
    assert (True, None) == (region["parse"]["parallel"], region["parse"]["key"])
    assert (True, ["author"]) == (region["match"]["parallel"], region["match"]["key"])
    assert "sequence+pulses" == region["match"]["ordering"]
    assert not region["out"]["parallel"]
    assert ["parallel-source", "shuffle", "merge"] == [each["kind"] for each in facts["joints"]]
    selectivity = {each["name"]: each["selectivity"] for each in facts["operators"]}
    assert ("one", "at-most-one") == (selectivity["parse"], selectivity["match"])


def test_in_time_order_only_the_order_is_made_in_one_place():
    program = twitter.cep(twitter.raw_source(0, rate=RATE), in_time_order=True)
    _, region = regions(program)

    sequential = [name for name, each in region.items() if not each["parallel"]]
    assert ["order", "out"] == sequential


# Tweets


@pytest.mark.parametrize("make", [twitter.tweets, twitter.raw])
def test_any_tweet_is_made_alone(make):
    whole = make(numbers(1_000), rate=RATE, seed=5)

    part = make(pl.Series([990, 17, 500], dtype=pl.UInt64), rate=RATE, seed=5)

    assert_frame_equal(whole[[990, 17, 500]], part)


def test_two_of_three_tweets_have_hashtags():
    """None, one or two, as likely as each other: a mood's, so they come in heaps."""
    given = twitter.raw(numbers(50_000), rate=RATE, authors=500, seed=5)["xml"]
    count = given.str.count_matches("#", literal=True)

    assert [0, 1, 2] == sorted(count.unique())
    assert 2 / 3 == pytest.approx((count > 0).mean(), abs=0.02)
