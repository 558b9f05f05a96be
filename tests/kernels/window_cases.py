"""Hypothesis strategies of programs with one window: any kind, any key, any aggregates."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

import anabranch as ab
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Read
from anabranch.testing import assert_same_rows, run_sequential
from tests.kernels.alone import WAYS, Lower, run_alone

NAN, INF = float("nan"), float("inf")
COLOURS = pl.Enum(["red", "green", "blue"])
EVENTS = {
    "t": pl.Int64,
    "k": pl.String,
    "f": pl.Float64,
    "n": pl.Int64,
    "u": pl.UInt64,
    "g": pl.Float32,
    "truth": pl.Boolean,
    "d": pl.Decimal(12, 2),
    "span": pl.Duration("us"),
    "at": pl.Datetime("us", "Europe/Berlin"),
    "colour": COLOURS,
    "words": pl.List(pl.String()),
}
KEYS = [(), ("k",), ("f",), ("n",), ("truth",), ("at",), ("colour",), ("f", "k"), ("d",)]

_AT = [datetime(2024, 10, 27, h, m, tzinfo=UTC) for h, m in ((0, 30), (0, 45), (1, 30))]
_VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "", "é", None],
    "f": [0.0, -0.0, NAN, None, 1.5, -2.25, 0.1],
    "n": [None, *range(-3, 4)],
    "u": [None, 0, 7, 2**62, 2**40, 3, 9],
    "g": [None, 0.5, 3.25, -1.0],
    "truth": [None, True, False],
    "d": [None, Decimal("1.25"), Decimal("-3.50"), Decimal("0.00")],
    "span": [None, timedelta(seconds=1), timedelta(microseconds=-5)],
    "at": [None, *_AT],
    "colour": [None, "red", "green", "blue"],
    "words": [None, [], ["x"], ["y", None]],
}

AGGREGATES: dict[str, Any] = {
    "rows": ab.count(),
    "known": ab.count("n"),
    "total": ab.sum("n"),
    "large": ab.sum("u"),
    "truths": ab.sum("truth"),
    "floats": ab.sum(pl.col("f").fill_nan(1.0)),
    "nans": ab.sum("f"),
    "halves": ab.sum("g"),
    "money": ab.sum("d"),
    "spans": ab.sum("span"),
    "low": ab.min("f"),
    "high": ab.max("f"),
    "least": ab.min("k"),
    "greatest": ab.max("colour"),
    "soonest": ab.min("at"),
    "longest": ab.max(pl.col("words").list.len()),
    "mean": ab.mean("n"),
    "mean_f": ab.mean(pl.col("f").fill_nan(None)),
    "mean_d": ab.mean("d"),
    "mean_u": ab.mean("u"),
    "var": ab.var("n"),
    "var_f": ab.var(pl.col("f").fill_nan(2.0) + 1e3, ddof=0),
    "first": ab.first("n"),
    "last": ab.last("k"),
    "last_words": ab.last("words"),
    "different": ab.count_distinct("f"),
    "colours": ab.count_distinct("colour"),
    "median": ab.quantile("f", 0.5),
    "tenth": ab.quantile("d", 0.1),
    "all": ab.collect("n"),
    "lists": ab.collect("words"),
    "instants": ab.collect("at"),
    "top": ab.top_k("k", 2),
    "top_f": ab.top_k(pl.col("f").abs(), 2),
    "top_by": ab.top_k("colour", 2, by="n"),
    "range": pl.col("n").max() - pl.col("n").min(),
    "big": pl.col("n").filter(pl.col("n") > 0).sum(),
    "len": pl.len(),
    "spread": pl.col("g").std(),
    "kinds": pl.col("k").n_unique() + pl.col("colour").count(),
    "weighted": (pl.col("g") * pl.col("n")).sum() / pl.col("n").filter(pl.col("n") > 0).max(),
    "ends": pl.col("n").last() - pl.col("n").first(),
    "sorted": pl.col("n").drop_nulls().sort().implode(),
    "joined": pl.col("k").drop_nulls().str.join("-"),
}  # fmt: skip


def records(draw: random.Random, rows: int, behind_ms: int) -> list[dict[str, Any]]:
    """Records in rough time order; some lie far enough back to be late."""
    now, found = draw.choice([-7_000, 0, 10_000]), []
    for _ in range(rows):
        now += draw.choice([0, 1, 1, 700, 1_500])
        time = now - draw.choice([0, 0, 0, 1, 900, behind_ms])
        values = {name: draw.choice(each) for name, each in _VALUES.items()}
        found.append({"t": time, **values})
    return found


def cuts(draw: random.Random, program: ab.Program) -> list[Cut]:
    """Epochs of 0 to 6 rows of each partition, up to the end."""
    (read,) = program.freeze().of(Read)
    end = read.source.latest()
    at, log = dict.fromkeys(end, 0), list[Cut]()
    while at != end or not log:
        to = {p: min(end[p], at[p] + draw.randint(0, 6)) for p in end}
        log.append(Cut(read.name, {p: (at[p], to[p]) for p in end}))
        at = to
    return log


def read(program: ab.Program, rows: list[Any], partitions: int) -> Any:
    source = ab.sources.Records(rows, schema=EVENTS, partitions=partitions)
    return program.read(source, event_time="t", lateness="1000 ms")


@dataclass(frozen=True)
class Case:
    """A program, what it says of its windows, and a log."""

    program: ab.Program
    log: list[Cut]


@st.composite
def cases(draw, windows, *, allowed: bool = False, made: Any = None, late: bool = True):
    """Values are drawn by a seed: Hypothesis would spend its choices on them."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    program = ab.Program("drawn")
    rows = records(chance, draw(st.integers(0, 40)), draw(st.sampled_from([3_000, 6_000])))
    stream = read(program, rows, draw(st.integers(1, 3)))
    by = draw(st.sampled_from(KEYS))
    windowed = stream.window(draw(windows), by=list(by) or None)
    if allowed:
        windowed = windowed.allow_late(draw(st.sampled_from(["1 ms", "2 s", "10 s"])))
    if made is None:
        names = chance.sample(sorted(AGGREGATES), chance.randint(1, 6))
        found = windowed.agg(**{name: AGGREGATES[name] for name in names})
    else:
        found = made(windowed)
    found.write(ab.sinks.Memory("out"))
    if late and draw(st.booleans()):
        windowed.late.write(ab.sinks.Memory("late"))
    return Case(program, cuts(chance, program))


def told(windowed: Any, fn: Any, out: Any) -> Any:
    """What a function makes of windows, and beside it the letters of those that it fails on."""
    made = windowed.apply(fn, out=out, on_error="dead_letter")
    made.dead_letters.write(ab.sinks.Memory("letters"))
    return made


def assert_as_sequential(case: Case, lower: Lower, **options: Any) -> None:
    """Whatever the ways, what comes out is what the sequential run gives, or it fails as well."""
    try:
        expected = run_sequential(case.program, log=case.log)
    except ab.RunError:
        expected = None
    for ways in WAYS:
        ran = run_alone(case.program, case.log, lower, ways)
        assert (ran.error is None) == (expected is not None), ran.error
        for sink, rows in (ran.rows if expected else {}).items():
            assert expected is not None
            assert_same_rows(expected[sink], rows, **options)
            assert sink != "late" or ran.late == len(rows)
            assert sink != "letters" or ran.letters == len(rows)
