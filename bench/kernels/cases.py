"""The cases: a program of one kernel, its input, and the same work by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.program.stream import Stream
from bench.kernels import by_hand
from bench.kernels.by_hand import Record, Work
from bench.kernels.tasks import Tasks
from bench.workloads import mixer
from bench.workloads.state import State

ROWS = 200_000
"""Of a bundle, and of an epoch."""
SECONDS = 1
"""Of event time an epoch spans."""
KEYS = 1_000
SIZE = 10
"""Seconds of a sliding window; it slides by one."""
WITHIN_US = 500_000

SCHEMA = pl.Schema(
    {
        "t": pl.Datetime("us"),
        "k": pl.Int64(),
        "name": pl.String(),
        "kind": pl.String(),
        "n": pl.Int64(),
        "x": pl.Float64(),
    }
)
SIDES = pl.Schema({"t": pl.Datetime("us"), "side": pl.Int8(), "k": pl.Int64(), "v": pl.Int64()})
TOTALS = {"name": pl.String(), "total": pl.Int64()}
SCORES = {"name": pl.String(), "score": pl.Float64()}
PARTS = {"name": pl.String(), "part": pl.Int64(), "score": pl.Float64()}

TEAMS = pl.DataFrame(
    {
        "name": [f"user-{each}" for each in range(KEYS)],
        "team": [f"team-{each % 100}" for each in range(KEYS)],
    }
)

Make = Callable[[int, int], pl.DataFrame]


@dataclass(frozen=True)
class Case:
    """One kernel between a source and a sink."""

    name: str
    program: Callable[[], ab.Program]
    by_hand: Callable[[], Work]
    """The same with a state of its own that is empty."""
    events: Make
    """The rows of an epoch, by its number and how many there are."""
    windowed: bool = False
    """Whether rows leave when their window ends: by hand they leave with their frame."""

    def check(self, rows: int, epochs: int = 3) -> None:
        """Refuse to measure what does not give the same rows."""
        frames = [self.events(epoch, rows) for epoch in range(epochs)]
        tasks, work = Tasks(self.program()), self.by_hand()
        found = pl.concat([out for frame in frames for out in tasks.epoch([frame])])
        expected = pl.concat([work(frame) for frame in frames])
        if self.windowed:
            expected = expected.filter(pl.col(by_hand.END) <= frames[-1]["t"].max())
        assert found.height, f"{self.name}: no rows"
        assert_frame_equal(expected.select(found.columns), found, check_row_order=False)


# Input


def events(epoch: int, rows: int, *, keys: int = KEYS, seconds: int = SECONDS) -> pl.DataFrame:
    """An epoch's rows, in order of time, over this many seconds."""
    i = np.arange(epoch * rows, (epoch + 1) * rows, dtype=np.uint64)
    times = np.linspace(epoch * seconds * 1e6, (epoch + 1) * seconds * 1e6, rows, endpoint=False)
    k = mixer.below(keys, i, seed=1, field=0).astype(np.int64)
    kinds = mixer.below(3, i, seed=1, field=1).astype(np.uint32)
    return pl.DataFrame(
        {
            "t": pl.Series(times.astype(np.int64)).cast(pl.Datetime("us")),
            "k": k,
            "name": pl.Series([f"user-{each}" for each in range(keys)]).gather(k),
            "kind": pl.Series(["view", "click", "purchase"]).gather(kinds),
            "n": mixer.below(1000, i, seed=1, field=2).astype(np.int64),
            "x": mixer.fractions(i, seed=1, field=3),
        }
    )


def many_keys(epoch: int, rows: int) -> pl.DataFrame:
    """Rows of ten times as many keys."""
    return events(epoch, rows, keys=10 * KEYS)


def sides(epoch: int, rows: int, *, partners: int = 4) -> pl.DataFrame:
    """Rows of two sides by turns, of keys of which each side has so many a second or so."""
    i = np.arange(epoch * rows, (epoch + 1) * rows, dtype=np.uint64)
    keys = max(1, rows // 2 // partners)
    return pl.DataFrame(
        {
            "t": pl.Series(i.astype(np.int64) * 1_000_000 // rows).cast(pl.Datetime("us")),
            "side": (i % np.uint64(2)).astype(np.int8),
            "k": mixer.below(keys, i, seed=2, field=0).astype(np.int64),
            "v": mixer.below(1000, i, seed=2, field=1).astype(np.int64),
        }
    )


# Programs


def _read(schema: pl.Schema = SCHEMA) -> tuple[ab.Program, Stream]:
    program = ab.Program("kernel")
    return program, program.read(ab.sources.Records([], schema=schema), event_time="t")


def _written(program: ab.Program, stream: Stream) -> ab.Program:
    stream.write(ab.sinks.Memory("out"))
    return program


def _computed() -> tuple[ab.Program, Stream]:
    program, given = _read()
    viewed = given.filter(pl.col("kind") == "view")
    return program, viewed.with_columns(y=pl.col("x") * 2 + pl.col("n"))


def stateless() -> ab.Program:
    """Filter, compute, leave out."""
    program, made = _computed()
    return _written(program, made.select("t", "name", "y"))


def looked_up() -> ab.Program:
    """Filter, compute, look up, leave out."""
    program, made = _computed()
    return _written(program, made.lookup(TEAMS, on="name").select("t", "team", "y"))


def windows(window: Any, **aggregates: Any) -> ab.Program:
    """Aggregates by key."""
    program, given = _read()
    return _written(program, given.window(window, by="k").agg(**aggregates))


def counted() -> ab.Program:
    """Rows by key and second."""
    return windows(ab.tumbling("1 s"), count=ab.count())


def summed(window: Any) -> ab.Program:
    """Rows and sums by key."""
    return windows(window, count=ab.count(), total=ab.sum("n"))


def scored(record: Record) -> Record:
    """A user's function of `map`."""
    return {"name": record["name"], "score": record["x"] * 2.0 + record["n"]}


def parted(record: Record) -> Iterator[Record]:
    """A user's function of `flat_map`: none, one or two rows."""
    for part in range(record["n"] % 3):
        yield {"name": record["name"], "part": part, "score": record["x"] / (part + 1)}


def halved(record: Record) -> Iterator[Record]:
    """A user's function of `flat_map` behind `map`."""
    for part in range(2 if record["score"] > 500.0 else 1):
        yield {"name": record["name"], "part": part, "score": record["score"] / (part + 1)}


def mapped() -> ab.Program:
    """A function that makes one row of one."""
    program, given = _read()
    return _written(program, given.map(scored, out=SCORES))


def flat_mapped() -> ab.Program:
    """A function that makes some rows of one."""
    program, given = _read()
    return _written(program, given.flat_map(parted, out=PARTS))


def both_mapped() -> ab.Program:
    """One behind the other."""
    program, given = _read()
    return _written(program, given.map(scored, out=SCORES).flat_map(halved, out=PARTS))


def added(record: Record, state: State) -> Record:
    """A user's function with state."""
    state.value = (state.value or 0) + record["n"]
    return {"name": record["name"], "total": state.value}


def keyed(ttl: str | None = None) -> ab.Program:
    """A running total by key."""
    program, given = _read()
    return _written(program, given.key_by("name").process(added, out=TOTALS, ttl=ttl))


def joined() -> ab.Program:
    """Two sides of one stream."""
    program, given = _read(SIDES)
    parts = given.split(left=pl.col("side") == 0)
    left, right = parts.left.select("k", "t", "v"), parts.rest.select("k", u="t", w="v")
    within = timedelta(microseconds=WITHIN_US)
    return _written(program, left.join(right, on="k", within=within))


def _rows(name: str, program: Callable[[], ab.Program], *functions: Any, out: Any) -> Case:
    return Case(name, program, lambda: by_hand.rows(functions, out), events)


STATELESS = Case("stateless", stateless, lambda: by_hand.stateless, events)
STATELESS_LAZILY = replace(STATELESS, by_hand=lambda: by_hand.stateless_lazily)
LOOKUP = Case("stateless, lookup", looked_up, lambda: by_hand.looked_up(TEAMS), events)
LOOKUP_LAZILY = replace(LOOKUP, by_hand=lambda: by_hand.looked_up_lazily(TEAMS))
WINDOW = Case("window-count", counted, lambda: by_hand.window_count, events, windowed=True)
SLIDING = Case(
    "sliding",
    lambda: summed(ab.sliding(f"{SIZE} s", "1 s")),
    lambda: by_hand.Sliding(SIZE),
    events,
    windowed=True,
)
BOTH_ROWS = _rows("rows", both_mapped, scored, halved, out=PARTS)
KEYED = Case("keyed", keyed, lambda: by_hand.Keyed(added, "name", TOTALS), many_keys)
JOIN = Case("join", joined, lambda: by_hand.Join(WITHIN_US), sides)
ONE_PARTNER = replace(JOIN, name="join, one partner", events=partial(sides, partners=1))

CASES: Sequence[Case] = (
    WINDOW,
    BOTH_ROWS,
    _rows("rows, map alone", mapped, scored, out=SCORES),
    _rows("rows, flat_map alone", flat_mapped, parted, out=PARTS),
    KEYED,
    Case("keyed, ttl", lambda: keyed("1 h"), KEYED.by_hand, many_keys),
    JOIN,
    ONE_PARTNER,
)
"""Those that are compared with work by hand alone."""
