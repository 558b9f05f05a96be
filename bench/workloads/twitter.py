"""Tweets: what words they are made of, and who says the same five times in a row.

After two kernels of Schneider et al., "Auto-Parallelizing Stateful Distributed Streaming
Applications" (PACT 2012), section 5.3. `nlp` gives the words of each tweet, their lengths and the
mean of these. `cep` finds five consecutive tweets of one author with the same hashtags; what comes
after four that are alike and is like them is a match too. Tweets there are real ones and a language
library looks at them; here they are made of a seed, and words are what stands between blanks.
"""

from __future__ import annotations

import html
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import anabranch as ab
from bench.workloads import mixer

if TYPE_CHECKING:
    from bench.workloads.state import State

VOCABULARY, LONGEST_WORD = 5_000, 11
FEWEST_WORDS, MOST_WORDS = 3, 14
MARKS = ".,!?&"
"""What is no part of a word that it stands beside."""
AUTHORS, HASHTAGS = 1_000, 50
IN_A_ROW = 5
MOOD = 20
"""So many tweets of an author, about, are of one mood: they have the same hashtags."""
MOODY = 0.05
"""The share of tweets that have hashtags of their own."""

TWEETS = pl.Schema({"time": pl.Int64(), "text": pl.String()})
RAW = pl.Schema({"time": pl.Int64(), "xml": pl.String()})
"""`time`, in ms, is in the text as well, where `cep` has it from."""


def tweets(numbers: pl.Series, *, rate: int, seed: int = 0) -> pl.DataFrame:
    """The tweets of these sequence numbers, `rate` of them a second, as plain text.

    >>> tweets(pl.Series([0, 50]), rate=10)["time"].to_list()
    [0, 5000]
    """
    i = numbers.to_numpy().astype(np.uint64)
    words = _drawn_words(i, seed, _words())
    text = pl.concat_str(pl.all(), separator=" ", ignore_nulls=True)
    texts = pl.DataFrame(words).select(text=text).to_series()
    return pl.DataFrame({"time": _times(i, rate), "text": texts}, TWEETS)


def raw(numbers: pl.Series, *, rate: int, authors: int = AUTHORS, seed: int = 0) -> pl.DataFrame:
    """The tweets of these sequence numbers in XML, of so many authors, with hashtags behind words.

    >>> raw(pl.Series([7]), rate=10)["xml"].item()[:49]
    '<tweet><author>user-0932</author><time>700</time>'
    """
    i = numbers.to_numpy().astype(np.uint64)
    author = mixer.below(authors, i, seed=seed, field=100)
    words = _drawn_words(i, seed, _escaped())
    contents = pl.concat_str(pl.all(), separator=" ", ignore_nulls=True)
    drawn = pl.DataFrame([*words, *_drawn_hashtags(i, author, authors, seed)]).select(contents)
    time = _times(i, rate)
    xml = pl.format(
        "<tweet><author>user-{}</author><time>{}</time><contents>{}</contents></tweet>",
        pl.lit(pl.Series(author).cast(pl.String).str.zfill(4)),
        pl.lit(time),
        pl.lit(drawn.to_series()),
    )
    return pl.DataFrame({"time": time, "xml": pl.select(xml).to_series()}, RAW)


def _times(i: mixer.Numbers, rate: int) -> pl.Series:
    return pl.Series((i * np.uint64(1000) // np.uint64(rate)).astype(np.int64))


def _drawn_words(i: mixer.Numbers, seed: int, words: pl.Series) -> list[pl.Series]:
    """The first words of tweets, the second ones, and so on: null where a tweet has no more."""
    count = mixer.below(MOST_WORDS - FEWEST_WORDS + 1, i, seed=seed, field=101) + FEWEST_WORDS
    drawn = []
    for at in range(MOST_WORDS):
        word = mixer.below(len(words), i, seed=seed, field=at).astype(np.int64)
        held = pl.Series(np.where(count > at, word, -1))
        drawn.append(words.gather(held.replace(-1, None)).alias(f"word {at}"))
    return drawn


def _drawn_hashtags(
    i: mixer.Numbers, author: mixer.Numbers, authors: int, seed: int
) -> list[pl.Series]:
    """None, one or two hashtags, in any order: by the author's mood, or the tweet's own."""
    mood = i // np.uint64(MOOD * authors) * np.uint64(authors) + author
    own = mixer.fractions(i, seed=seed, field=102) < MOODY
    # Numbers of tweets and numbers of moods must not meet, or one would follow the other.
    decides = np.where(own, i + np.uint64(2**60), mood)
    tags = pl.Series([f"#tag{number}" for number in range(HASHTAGS)])
    first, second = (mixer.below(HASHTAGS, decides, seed=seed, field=103 + at) for at in (0, 1))
    count = mixer.below(3, decides, seed=seed, field=105)
    turned = mixer.below(2, i, seed=seed, field=106) == 1
    # One alone is the first, whichever way round.
    one, two = np.where(turned & (count == 2), (second, first), (first, second))
    chosen = pl.DataFrame({"one": tags.gather(one), "two": tags.gather(two)}).select(
        pl.when(pl.Series(count > 0)).then("one"), pl.when(pl.Series(count > 1)).then("two")
    )
    return chosen.get_columns()


@cache
def _words() -> pl.Series:
    """Words of one to eleven letters, some with a mark behind them, and what is none."""
    numbers = np.arange(VOCABULARY)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    drawn = [mixer.below(26, numbers, seed=0, field=at) for at in range(LONGEST_WORD)]
    table = letters[np.stack(drawn, axis=1).astype(np.int64)]
    lengths = mixer.below(LONGEST_WORD, numbers, seed=0, field=LONGEST_WORD) + 1
    known = ["".join(row[:n]) for row, n in zip(table.tolist(), lengths.tolist(), strict=True)]
    marked = [word + MARKS[at % 4] for at, word in enumerate(known[: VOCABULARY // 10])]
    return pl.Series([*known, *marked, *["&", "<3", "R&B"] * 50])


@cache
def _escaped() -> pl.Series:
    return pl.Series([html.escape(word) for word in _words()])


def source(rows: int, *, rate: int, seed: int = 0, partitions: int = 1) -> ab.sources.Source:
    """The first so many tweets as plain text, made as fast as they are asked for."""
    make = partial(tweets, rate=rate, seed=seed)
    return ab.sources.Generator(
        make, schema=TWEETS, rows=rows, partitions=partitions, vectorized=True
    )


def raw_source(
    rows: int, *, rate: int, authors: int = AUTHORS, seed: int = 0, partitions: int = 1
) -> ab.sources.Source:
    """The first so many tweets in XML, made as fast as they are asked for."""
    make = partial(raw, rate=rate, authors=authors, seed=seed)
    return ab.sources.Generator(make, schema=RAW, rows=rows, partitions=partitions, vectorized=True)


def nlp(given: ab.sources.Source, *, sink: ab.sinks.Sink | None = None) -> ab.Program:
    """Each tweet's words. The sink is `Memory("out")` if none is given."""
    program = ab.Program("twitter-nlp")
    (
        program.read(given, name="tweets", event_time="time")
        .map(analysed, name="nlp")
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


@ab.operator(
    out={"words": pl.List(pl.String()), "lengths": pl.List(pl.Int64()), "mean": pl.Float64()}
)
def analysed(tweet: dict[str, Any]) -> dict[str, Any]:
    """The words of a tweet in small letters, their lengths, and the mean: null if there are none.

    >>> analysed({"text": "Rain, again!"})
    {'words': ['rain', 'again'], 'lengths': [4, 5], 'mean': 4.5}
    """
    stripped = [word.strip(MARKS).lower() for word in tweet["text"].split()]
    words = [word for word in stripped if word]
    lengths = [len(word) for word in words]
    return {
        "words": words,
        "lengths": lengths,
        "mean": sum(lengths) / len(words) if words else None,
    }


def cep(
    given: ab.sources.Source,
    *,
    in_time_order: bool = False,
    lateness: str = "0 s",
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """Tweets that are at least the fifth in a row of their author with the same hashtags.

    Tweets are consecutive as they come, or with `in_time_order` by their times, which is for tweets
    that come out of order and is not parallel. The sink is `Memory("out")` if none is given.
    """
    program = ab.Program("twitter-cep")
    tweets = program.read(given, name="tweets", event_time="time", lateness=lateness)
    found = tweets.map(parsed, name="parse")
    if in_time_order:
        found = found.in_time_order(name="order")
    (
        found.key_by("author")
        .process(matched, name="match")
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


@ab.operator(out={"author": pl.String, "time": pl.Int64, "contents": pl.String})
def parsed(tweet: dict[str, Any]) -> dict[str, Any]:
    """What is inside the elements of a tweet.

    By looking for them: of a parser written in C nobody can prove that it may run in parallel.
    """
    return {
        "author": _inside(tweet["xml"], "author"),
        "time": int(_inside(tweet["xml"], "time")),
        "contents": _inside(tweet["xml"], "contents"),
    }


def _inside(xml: str, element: str) -> str:
    """The text of the first element of a name.

    >>> _inside("<a>1</a><b>x &amp;lt; y</b>", "b")
    'x &lt; y'
    """
    _, _, behind = xml.partition(f"<{element}>")
    text, _, _ = behind.partition(f"</{element}>")
    return html.unescape(text)


@ab.operator(
    out={
        "author": pl.String(),
        "time": pl.Int64(),
        "hashtags": pl.List(pl.String()),
        "in_a_row": pl.Int64(),
    }
)
def matched(tweet: dict[str, Any], state: State) -> dict[str, Any] | None:
    """How many tweets in a row had the same hashtags, if they are enough. None is no hashtag."""
    hashtags = sorted({word for word in tweet["contents"].split() if word.startswith("#")})
    before, in_a_row = state.value or ([], 0)
    in_a_row = in_a_row + 1 if hashtags and hashtags == before else 1
    state.value = (hashtags, in_a_row)
    if in_a_row < IN_A_ROW:
        return None
    return {
        "author": tweet["author"],
        "time": tweet["time"],
        "hashtags": hashtags,
        "in_a_row": in_a_row,
    }
