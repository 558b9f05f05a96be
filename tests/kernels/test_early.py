"""Partials before a lookup are those behind it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.kernels.bundle import TIME
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.region import lower
from anabranch.kernels.windows import tally
from anabranch.kernels.windows.early import EarlyPartials
from anabranch.kernels.windows.panes import Panes
from anabranch.state.slices import Owners
from tests.kernels.inline import Choices, logged, run_inline

SCHEMA = {"ad": pl.String, "kind": pl.Int64, "n": pl.Int64, "at": pl.Datetime("us")}
ADS = pl.DataFrame(
    {
        "ad": ["a", "b", "c", "d"],
        "campaign": ["x", "x", None, "y"],
        "price": [2**62, -(2**62), None, 7],
        "share": [0.5, float("nan"), None, -0.0],
    }
)

keys = st.sampled_from(["a", "b", "c", "d", "unknown", None])
numbers = st.one_of(st.none(), st.integers(-(2**62), 2**62))
rows = st.lists(st.tuples(keys, st.integers(0, 2), numbers, st.integers(0, 25)), min_size=1)


def head_of(how: str, by: list[str], **aggregates: Any) -> HeadTask:
    program = ab.Program("early")
    (
        program.read(ab.sources.Records([], schema=SCHEMA), event_time="at")
        .lookup(ADS, on="ad", how=how)
        .window(ab.tumbling("10 s"), by=by)
        .agg(**aggregates)
        .write(ab.sinks.Memory("out"))
    )
    plan = plan_of(program.freeze())
    return lower(plan).heads[0].route(Owners.spread(16, 2))


AGGREGATES = {
    "views": ab.count(), "known": ab.count("n"), "total": ab.sum("n"),
    "least": ab.min("n"), "most": ab.max("n"), "priced": ab.count("price"),
    "prices": ab.sum("price"), "price": ab.mean("price"), "cheapest": ab.min("price"),
    "greatest": ab.max("share"), "last": ab.max("campaign"),
}  # fmt: skip


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("by", [["campaign"], ["campaign", "kind"], ["ad"], []])
@given(found=rows)
def test_same_partials(how: str, by: list[str], found: list[tuple[object, ...]]) -> None:
    head = head_of(how, by, **AGGREGATES)
    early = head.exits[0].early
    assert isinstance(early, EarlyPartials)
    begin = datetime(2026, 1, 1)
    records = [(*row[:3], begin + timedelta(seconds=row[3])) for row in found]
    frame = pl.DataFrame(records, schema=SCHEMA, orient="row")
    bundle = frame.with_columns(pl.col("at").to_physical().alias(TIME))
    behind, _ = early.lookup.run(bundle)
    made = early.partials(bundle, 16)
    if not behind.height:
        assert not made.height
        return
    expected = head.exits[0].windows.partials(behind, 16)  # type: ignore[union-attr]
    # Of a sum only the two halves together matter.
    halves = [name for name in expected.columns if name.endswith(("h", "l"))]
    sums = [pl.col(halves[0]).cast(pl.Int128) * 2**32 + pl.col(halves[1])] if halves else []
    by_key = ["start", *early.windows.names]
    expected, made = (
        each.with_columns(sums).drop(halves[1:]).sort(by_key) for each in (expected, made)
    )
    assert_frame_equal(made, expected, check_column_order=False)


@pytest.mark.parametrize("by", ["start", "n", "k0"])
@given(found=rows)
def test_columns_may_be_called_as_partials_are(by: str, found: list[tuple[object, ...]]) -> None:
    table = pl.DataFrame(
        {"ad": ["a", "b", "c", "d"], "start": [1, 1, 2, None], "a0": [5, 6, None, 7], "k0": [1] * 4}
    )
    program = ab.Program("named")
    begin = datetime(2026, 1, 1)
    given_ = [
        {"ad": ad, "n": kind, "slice": n, "at": begin + timedelta(seconds=at)}
        for ad, kind, n, at in sorted(found, key=lambda row: row[3])  # type: ignore[return-value]
    ]
    schema = {"ad": pl.String, "n": pl.Int64, "slice": pl.Int64, "at": pl.Datetime("us")}
    (
        program.read(ab.sources.Records(given_, schema=schema), event_time="at")
        .lookup(table, on="ad", how="left")
        .window(ab.tumbling("10 s"), by=by)
        .agg(rows=ab.count(), least=ab.min("slice"), total=ab.sum("a0"))
        .write(ab.sinks.Memory("out"))
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EarlyPartials, "pays", lambda *_: True)
        ran = run_inline(program, logged(program, 40), Choices(split_rows=40))

    assert ran.error is None
    assert ab.testing.run_sequential(program, epoch_rows=40) == ran.sinks


@pytest.mark.parametrize(
    "aggregates",
    [
        {"x": ab.first("n")},  # the order of rows
        {"x": ab.sum("share")},  # floats, which may be NaN, are added one by one
        {"x": ab.sum(pl.col("n") + 1)},  # could fail on a row that the lookup drops
        {"x": ab.sum(pl.col("price") + 1)},
        {"x": ab.top_k("n", 2, by="price")},
        {"x": ab.sum(pl.lit(1))},
    ],
)
def test_not_where_it_could_show(aggregates: dict[str, Any]) -> None:
    assert head_of("inner", ["kind"], **aggregates).exits[0].early is None


def test_many_rows_of_few_keys_pay() -> None:
    head = head_of("inner", ["campaign"], views=ab.count())
    assert head.exits[0].early is not None
    few = pl.DataFrame({"ad": ["a", "b"] * 4096})
    assert head.exits[0].early.pays(few)
    assert not head.exits[0].early.pays(few.head(100))
    assert not head.exits[0].early.pays(pl.DataFrame({"ad": [str(n) for n in range(8192)]}))


WORDS = {"at": pl.Datetime("us"), "word": pl.String}
TEXTS = st.sampled_from(["a", "b", "c", "unknown", None])


def in_time(found: list[tuple[int, str | None]]) -> list[tuple[int, str | None]]:
    return sorted(found, key=lambda each: each[0])


def several(records: list[tuple[object, ...]]) -> ab.Program:
    """Windows that all count the same words, one of them behind a lookup."""
    program = ab.Program("several")
    given = [dict(zip(WORDS, row, strict=True)) for row in records]
    words = program.read(ab.sources.Records(given, schema=WORDS), event_time="at")
    prices = pl.DataFrame({"word": ["a", "b", "c"], "price": [3, -(2**40), None]})
    known = words.lookup(prices, on="word", how="left")
    total = known.window(ab.tumbling("10 s")).agg(prices=ab.sum("price"), n=ab.count())
    most = words.window(ab.tumbling("10 s")).agg(top=ab.top_k("word", 2))
    each = words.window(ab.tumbling("10 s"), by="word").agg(n=ab.count())
    longer = words.window(ab.sliding("20 s", "10 s"), by="word").agg(n=ab.count())
    for name, stream in (("total", total), ("most", most), ("each", each), ("longer", longer)):
        stream.write(ab.sinks.Memory(name))
    return program


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=st.lists(st.tuples(st.integers(0, 25), TEXTS), max_size=30).map(in_time))
def test_what_several_windows_count_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, found: list[tuple[int, str | None]]
) -> None:
    begin = datetime(2026, 1, 1)
    program = several([(begin + timedelta(seconds=at), word) for at, word in found])
    counted = list[str]()
    count = tally.Tally._count

    def seen(self: tally.Tally, panes: Panes, column: str) -> pl.DataFrame:
        counted.append(f"{column} {panes.size // 1_000_000}")
        return count(self, panes, column)

    with monkeypatch.context() as patched:
        patched.setattr(tally, "MANY", 1)
        patched.setattr(EarlyPartials, "pays", lambda *_: True)
        together = run_inline(program, logged(program, 40), Choices(split_rows=40))
        patched.setattr(tally.Tally, "_count", seen)
        apart = run_inline(program, logged(program, 40), Choices(split_rows=1))

    expected = ab.testing.run_sequential(program, epoch_rows=40)
    assert (expected, None) == (together.sinks, together.error)
    assert (expected, None) == (apart.sinks, apart.error)
    assert sorted(["word 10", "word 20"] * len(found)) == sorted(counted)  # a row is a bundle
