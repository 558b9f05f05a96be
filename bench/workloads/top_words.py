"""The most frequent words of the last texts, by category.

The first application of ChronoStream (Wu, Tan, ICDE 2015): texts of about 474 bytes in a hundred
categories, and a sliding window of texts for each. The paper does not say how many of them, how
often words are told, how many and which do not count; chosen here: the last 10,000 texts, after
every hundredth, ten words, and the hundred most frequent ones do not count. The texts are our own.

What a text costs does not depend on the length of the window: its words come and those of the text
that leaves go. The state is that of the window: 10,000 texts of each category are half a gigabyte.
"""

from __future__ import annotations

import heapq
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import anabranch as ab
from bench.workloads import mixer
from bench.workloads.texts import texts, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.workloads.state import State

CATEGORIES = 100
SENTENCES, LENGTH = 12, 7
"""Of a text, and words of a sentence: 465 bytes on average."""
WORD = "[a-z]+"
STOPPED = 100
LAST, EVERY, TOP = 10_000, 100, 10

SCHEMA = pl.Schema(
    {"seq": pl.Int64(), "time": pl.Int64(), "category": pl.Int64(), "text": pl.String()}
)
"""`time` is the time of an event, in ms."""
RANKED = {
    "category": pl.Int64,
    "texts": pl.Int64,
    "rank": pl.Int64,
    "word": pl.String,
    "count": pl.Int64,
}
"""`texts` is how many of the category have come."""


def abstracts(
    numbers: pl.Series, *, rate: int, seed: int = 0, categories: int = CATEGORIES
) -> pl.DataFrame:
    """The texts of these sequence numbers, `rate` of them a second.

    >>> abstracts(pl.Series([0, 50]), rate=10)["time"].to_list()
    [0, 5000]
    """
    i = numbers.to_numpy().astype(np.uint64)
    return pl.DataFrame(
        {
            "seq": i.astype(np.int64),
            "time": (i * np.uint64(1000) // np.uint64(rate)).astype(np.int64),
            "category": mixer.below(categories, i, seed=seed, field=0).astype(np.int64),
            "text": texts(i, seed=seed, field=1, count=SENTENCES, length=LENGTH),
        },
        schema=SCHEMA,
    )


def source(rows: int, *, rate: int, seed: int = 0) -> ab.sources.Source:
    """The first so many texts as a source, made as fast as they are asked for."""
    make = partial(abstracts, rate=rate, seed=seed)
    return ab.sources.Generator(make, schema=SCHEMA, rows=rows, vectorized=True)


@cache
def stop_words() -> frozenset[str]:
    """The words that do not count."""
    return frozenset(words().head(STOPPED))


def top_words(
    given: ab.sources.Source,
    *,
    last: int = LAST,
    every: int = EVERY,
    k: int = TOP,
    lateness: str | None = None,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """The k most frequent words of a category's last texts, after every so many of them.

    Ties are ranked by the words. Texts count as they come; with `lateness` they are put in order of
    time first. The sink is `Memory("out")` if none is given.
    """
    program = ab.Program("top-words")
    stream = program.read(given, name="texts", event_time="time", lateness=lateness or "0 s")
    counted = pl.element().filter(~pl.element().is_in(sorted(stop_words())))
    found = stream.select(
        "category",
        words=pl.col("text").str.to_lowercase().str.extract_all(WORD).list.eval(counted),
    )
    (
        (found if lateness is None else found.in_time_order())
        .key_by("category")
        .process(ranking(last, every, k), out=RANKED)
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


def ranking(
    last: int, every: int, k: int
) -> Callable[[dict[str, Any], Any], Iterator[dict[str, Any]]]:
    """An operator that counts the words of the last texts and ranks them after every so many.

    `state.map` has the texts by their number modulo `last`, so that a new one takes the place of
    the one that leaves, and how often each word occurs in them.
    """

    def rank(text: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
        held, number = state.map, state.value or 0
        for word in held.get(number % last, ()):
            left = held[word] - 1
            if left:
                held[word] = left
            else:
                del held[word]
        for word in text["words"]:
            held[word] = held.get(word, 0) + 1
        held[number % last] = tuple(text["words"])
        state.value = number + 1
        if (number + 1) % every == 0:
            counts = ((-count, word) for word, count in held.items() if isinstance(word, str))
            for at, (count, word) in enumerate(heapq.nsmallest(k, counts), start=1):
                yield {
                    "category": text["category"],
                    "texts": number + 1,
                    "rank": at,
                    "word": word,
                    "count": -count,
                }

    return rank
