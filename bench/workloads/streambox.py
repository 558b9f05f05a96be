"""StreamBox's six benchmarks: windowed grep, word count, join, distinct, netmon, tweets.

What they compute is in Miao et al., "StreamBox: Modern Stream Processing on a Multicore Machine"
(USENIX ATC 2017), section 9; windows are the fixed ones of 1 s that its test programs use. The data
are our own, made of a seed, since the originals are not free. As there, a buffer is filled once and
replayed for ever, all records of a bundle have one timestamp, and a watermark follows each second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from anabranch.program.stream import Stream
from bench.workloads import mixer

SECOND_US = 1_000_000
WINDOW = "1 s"
URL = r"(?:https?|ftp)://[^\s]+"
TOKEN = r"[A-Z][A-Z']*"
TOP = 10

GREP_BYTES, GREP_EVERY, SITES, PATHS = 1000, 10, 97, 13
VOCABULARY, WORDS = 100_000, 17
URLS, URL_BYTES = 70_000_000, 100
SERVERS, PEERS = 10_000, 50
TWEET_WORDS, SCORED = 33, 500
SHIFT_US, WITHIN = 300_000, "500 ms"

_Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Replay:
    """A buffer that is played again every second of event time, a bundle at a time."""

    buffer: pl.DataFrame
    bundle: int
    """Rows."""
    repeat: int = 1
    """How often the buffer is played in a second."""

    @property
    def rows(self) -> int:
        """Rows a second of event time."""
        return self.buffer.height * self.repeat

    def second(self, number: int) -> Iterator[pl.DataFrame]:
        """The bundles of one second."""
        begins = range(0, self.buffer.height, self.bundle)
        count = len(begins) * self.repeat
        for at in range(count):
            part = self.buffer.slice(begins[at % len(begins)], self.bundle)
            time = number * SECOND_US + at * SECOND_US // count
            yield _timed(part, number * SECOND_US, time)


def _timed(part: pl.DataFrame, second: int, bundle: int) -> pl.DataFrame:
    """Rows with their times: their own, or the bundle's."""
    if "t" in part.columns:
        return part.with_columns((pl.col("t") + second).cast(pl.Datetime("us")))
    time = pl.repeat(bundle, part.height, dtype=pl.Int64, eager=True).cast(pl.Datetime("us"))
    return part.with_columns(time.alias("t"))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One of the six."""

    name: str
    schema: pl.Schema
    query: Callable[[Stream], Stream]
    fill: Callable[[int], pl.DataFrame]
    """A buffer of so many rows."""
    per_core: int
    """Records a second and core: the table of its regression tests, 56 cores, divided by 56."""
    rows: int = 1_000_000
    """Of a second of event time."""
    repeat: int = 1
    """How often the buffer is played in a second."""
    at_once: int = 10
    """Bundles of an epoch."""

    def replay(self, rows: int, bundles: int = 10) -> Replay:
        """So many rows a second, in so many bundles."""
        return Replay(self.fill(rows // self.repeat), rows // bundles, self.repeat)

    def program(self) -> ab.Program:
        """The query between a source and a sink."""
        program = ab.Program(self.name)
        source = ab.sources.Records([], schema=self.schema)
        self.query(program.read(source, event_time="t")).write(ab.sinks.Memory("out"))
        return program


# Windowed grep


def grep(given: Stream) -> Stream:
    """All URLs of each second."""
    found = given.select(url=pl.col("text").str.extract_all(URL)).explode("url")
    return found.window(ab.tumbling(WINDOW)).agg(count=ab.count(), urls=ab.collect("url"))


def grep_buffer(rows: int) -> pl.DataFrame:
    """Texts of 1000 bytes; every tenth ends with a URL."""
    i = np.arange(rows, dtype=np.uint64)
    words = _words(60)
    lines = [" ".join(words.gather(_below(60, np.arange(8), field=n)).to_list()) for n in range(97)]
    pool = pl.Series(lines)
    picked = [pool.gather(_below(97, i, field=100 + n)).alias(f"l{n}") for n in range(21)]
    text = pl.concat_str(pl.all(), separator="\n").str.head(GREP_BYTES)
    site, path = (pl.Series(i % np.uint64(n)).cast(pl.String) for n in (SITES, PATHS))
    url = pl.format(" http://site{}.example/path{}", pl.lit(site), pl.lit(path))
    planted = pl.Series(i % np.uint64(GREP_EVERY) == 0)
    texts = pl.DataFrame(picked).select(text=text)
    kept = pl.col("text").str.head(GREP_BYTES - url.str.len_bytes().cast(pl.Int64))
    return texts.select(text=pl.when(pl.lit(planted)).then(kept + url).otherwise("text"))


# Word count


def word_count(given: Stream) -> Stream:
    """How often each word occurs in each second."""
    tokens = pl.col("text").str.to_uppercase().str.extract_all(TOKEN)
    words = given.select(word=tokens).explode("word")
    return words.window(ab.tumbling(WINDOW), by="word").agg(count=ab.count())


def word_buffer(rows: int) -> pl.DataFrame:
    """Texts of 17 words, some far more often than others."""
    return _texts(rows, WORDS, VOCABULARY)


# Join


def join(given: Stream) -> Stream:
    """Pairs of equal keys at most half a second apart."""
    sides = given.split(left=pl.col("side") == 0)
    left = sides.left.select("key", "t", one="value")
    right = sides.rest.select("key", u="t", two="value")
    pairs = left.join(right, on="key", within=WITHIN)
    return pairs.select("key", "one", "two", at=pl.max_horizontal("t", "u"))


def join_buffer(rows: int) -> pl.DataFrame:
    """A second of two streams of the same keys, the right one 0.3 s later and shuffled a little.

    What falls behind the end of the second is at its beginning: the next time it is played it is
    0.3 s behind its partner, and no other is near enough.
    """
    i = np.arange(rows // 2, dtype=np.int64)
    times = i * SECOND_US // max(1, len(i))
    keys, values = mixer.bits(i, seed=5, field=0), mixer.bits(i, seed=5, field=1)
    left = pl.DataFrame({"t": times, "side": 0, "key": keys, "value": values})
    later = (times + SHIFT_US) % SECOND_US
    right = pl.DataFrame({"t": later, "side": 1, "key": keys, "value": ~values})
    # By time, but in no order within a millisecond.
    order = pl.col("t") // 1000, pl.col("value")
    both = pl.concat([left, right]).sort(order)
    return both.with_columns(pl.col("side").cast(pl.Int8))


# Distinct URLs


def distinct(given: Stream) -> Stream:
    """How many different URLs each second has."""
    return given.window(ab.tumbling(WINDOW)).agg(distinct=ab.count_distinct("url"))


def url_buffer(rows: int) -> pl.DataFrame:
    """URLs of 100 bytes, drawn of 70 million."""
    number = pl.Series(_below(URLS, np.arange(rows), field=1)).cast(pl.String).str.zfill(8)
    head, tail = "http://site", ".example/"
    tail += "p" * (URL_BYTES - len(head) - 8 - len(tail))
    return pl.DataFrame({"n": number}).select(
        url=pl.concat_str(pl.lit(head), "n", pl.lit(tail)),
    )


# Network latency


def netmon(given: Stream) -> Stream:
    """Round-trip times of each pair of servers and each second: their sum and how many."""
    by_pair = given.window(ab.tumbling(WINDOW), by=["src", "dst"])
    return by_pair.agg(total=ab.sum("rtt"), count=ab.count())


def netmon_buffer(rows: int) -> pl.DataFrame:
    """Log-normal times around 300 us; one pair in a hundred is 20 times as slow."""
    i = np.arange(rows, dtype=np.uint64)
    pair = _below(SERVERS * PEERS, i, field=2).astype(np.int64)
    src, peer = pair // PEERS, pair % PEERS
    one, two = (mixer.fractions(i, seed=5, field=field) for field in (3, 4))
    normal = np.sqrt(-2.0 * np.log1p(-one)) * np.cos(2.0 * np.pi * two)
    rtt = 300.0 * np.exp(0.5 * normal) * np.where(pair % 100 == 0, 20.0, 1.0)
    return pl.DataFrame(
        {
            "src": src.astype(np.uint32),
            "dst": ((src + 1 + peer * 199) % SERVERS).astype(np.uint32),
            "rtt": rtt.astype(np.uint64),
        }
    )


# Tweets


def tweets(given: Stream) -> Stream:
    """Each second's sentiment and its ten most frequent words."""
    split = pl.col("text").str.replace_all("\t", " ", literal=True).str.split(" ")
    words = given.select(word=split).explode("word")
    scored = words.lookup(scores(), on="word").window(ab.tumbling(WINDOW))
    most = words.window(ab.tumbling(WINDOW)).agg(top=ab.top_k("word", TOP))
    sentiment = scored.agg(sentiment=ab.sum("score"))
    return sentiment.join(most.select("window_start", "top"), on="window_start", within=WINDOW)


def tweet_buffer(rows: int) -> pl.DataFrame:
    """Texts of about 200 bytes."""
    return _texts(rows, TWEET_WORDS, VOCABULARY)


def scores() -> pl.DataFrame:
    """A word list of our own: scores from -5 to 5."""
    numbers = np.arange(SCORED) * 7
    score = (np.arange(SCORED) % 11 - 5).astype(np.int64)
    return pl.DataFrame({"word": _words(VOCABULARY).gather(numbers), "score": score})


_TEXT = pl.Schema({"text": pl.String(), "t": pl.Datetime("us")})
BENCHMARKS = (
    Benchmark("grep", _TEXT, grep, grep_buffer, 38_500_000 // 56, repeat=10),
    Benchmark("wordcount", _TEXT, word_count, word_buffer, 5_200_000 // 56),
    Benchmark(
        "join",
        pl.Schema(
            {"t": pl.Datetime("us"), "side": pl.Int8(), "key": pl.UInt64(), "value": pl.UInt64()}
        ),
        join,
        join_buffer,
        5_200_000 // 56,
        rows=2_000_000,
    ),
    Benchmark(
        "distinct",
        pl.Schema({"url": pl.String(), "t": pl.Datetime("us")}),
        distinct,
        url_buffer,
        2_000_000 // 56,
    ),
    Benchmark(
        "netmon",
        pl.Schema(
            {"src": pl.UInt32(), "dst": pl.UInt32(), "rtt": pl.UInt64(), "t": pl.Datetime("us")}
        ),
        netmon,
        netmon_buffer,
        1_000_000 // 56,
        rows=500_000,
    ),
    Benchmark("tweets", _TEXT, tweets, tweet_buffer, 5_000_000 // 56, at_once=1),
)


def _below(limit: int, numbers: npt.ArrayLike, *, field: int) -> npt.NDArray[np.uint32]:
    return mixer.below(limit, numbers, seed=5, field=field).astype(np.uint32)


@cache
def _words(count: int) -> pl.Series:
    """Different words of five letters."""
    numbers = np.arange(count) * 1_000_003 % 26**5
    letters = [(numbers // 26**at % 26 + ord("a")).astype(np.uint32) for at in range(5)]
    texts = np.stack(letters, axis=1).ravel().view("<U5")
    return pl.Series(texts.tolist())


def _texts(rows: int, words: int, vocabulary: int) -> pl.DataFrame:
    """Texts of words by Zipf's law: the n-th is n times as rare as the first."""
    shares = np.cumsum(1.0 / np.arange(1, vocabulary + 1))
    known, i = _words(vocabulary), np.arange(rows)
    drawn = []
    for at in range(words):
        place = np.searchsorted(shares, mixer.fractions(i, seed=6, field=at) * shares[-1])
        drawn.append(known.gather(place.astype(np.uint32)).alias(f"w{at}"))
    return pl.DataFrame(drawn).select(text=pl.concat_str(pl.all(), separator=" "))
