"""Which tweet of a place is most like one before it.

The second application of ChronoStream (Wu, Tan, ICDE 2015): each tweet is compared with the last
ones of its location, and now and then the best pair is told. Chosen here: two tweets are as similar
as they have different words in common; a thousand locations, a thousand tweets, the best pair of
every hundred. The tweets are our own.

What a tweet costs grows with the length of the window, and is meant to: there is no index.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import anabranch as ab
from bench.workloads import mixer
from bench.workloads.texts import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.workloads.state import State

LOCATIONS = 1_000
SENTENCES, LENGTH = 3, 5
"""Of a tweet, and words of a sentence."""
WORD = "[a-z]+"
LAST, EVERY = 1_000, 100

SCHEMA = pl.Schema(
    {"seq": pl.Int64(), "time": pl.Int64(), "location": pl.Int64(), "text": pl.String()}
)
"""`time` is the time of an event, in ms."""
PAIRS = {
    "location": pl.Int64,
    "tweets": pl.Int64,
    "seq": pl.Int64,
    "earlier": pl.Int64,
    "shared": pl.Int64,
}
"""`tweets` is how many of the location have come; `seq` and `earlier` are the two of the pair."""


def tweets(
    numbers: pl.Series, *, rate: int, seed: int = 0, locations: int = LOCATIONS
) -> pl.DataFrame:
    """The tweets of these sequence numbers, `rate` of them a second.

    >>> tweets(pl.Series([0, 50]), rate=10)["time"].to_list()
    [0, 5000]
    """
    i = numbers.to_numpy().astype(np.uint64)
    return pl.DataFrame(
        {
            "seq": i.astype(np.int64),
            "time": (i * np.uint64(1000) // np.uint64(rate)).astype(np.int64),
            "location": mixer.below(locations, i, seed=seed, field=0).astype(np.int64),
            "text": texts(i, seed=seed, field=1, count=SENTENCES, length=LENGTH),
        },
        schema=SCHEMA,
    )


def source(rows: int, *, rate: int, seed: int = 0) -> ab.sources.Source:
    """The first so many tweets as a source, made as fast as they are asked for."""
    make = partial(tweets, rate=rate, seed=seed)
    return ab.sources.Generator(make, schema=SCHEMA, rows=rows, vectorized=True)


def similar(
    given: ab.sources.Source,
    *,
    last: int = LAST,
    every: int = EVERY,
    lateness: str | None = None,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """The best pair of every so many tweets of a location, if two have a word in common.

    A tweet's partner is the one of the `last` before it with which it shares most words, of several
    the most recent; the best pair shares most, of several the most recent. Tweets count as they
    come; with `lateness` they are put in order of time first. The sink is `Memory("out")` if none
    is given.
    """
    program = ab.Program("similar-tweets")
    stream = program.read(given, name="tweets", event_time="time", lateness=lateness or "0 s")
    found = stream.select(
        "seq",
        "location",
        words=pl.col("text").str.to_lowercase().str.extract_all(WORD).list.unique(),
    )
    (
        (found if lateness is None else found.in_time_order())
        .key_by("location")
        .process(compared(last, every), out=PAIRS)
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


def compared(last: int, every: int) -> Callable[[dict[str, Any], Any], Iterator[dict[str, Any]]]:
    """An operator that finds the partner of each tweet and tells the best pair of every so many.

    `state.map` has the tweets by their number modulo `last`, so that a new one takes the place of
    the one that leaves; `state.value` is how many have come, and the best pair since it was told.
    """

    # Sets are only counted: in which order they give their words is never seen.
    @ab.operator(pure=True)
    def compare(tweet: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
        number, best = state.value or (0, None)
        words = frozenset(tweet["words"])
        partner = max(
            ((len(words & others), before, seq) for before, seq, others in state.map.values()),
            default=(0, 0, 0),
        )
        shared = partner[0]
        if shared and (best is None or shared >= best[0]):
            best = (shared, tweet["seq"], partner[2])
        state.map[number % last] = (number, tweet["seq"], words)
        told = (number + 1) % every == 0
        state.value = (number + 1, None if told else best)
        if told and best is not None:
            yield {
                "location": tweet["location"],
                "tweets": number + 1,
                "seq": best[1],
                "earlier": best[2],
                "shared": best[0],
            }

    return compare
