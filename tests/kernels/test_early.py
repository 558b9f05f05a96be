"""Partials before a lookup are those behind it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.kernels.bundle import TIME
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.region import lower
from anabranch.kernels.windows.early import EarlyPartials
from anabranch.state.slices import Owners

SCHEMA = {"ad": pl.String, "kind": pl.Int64, "n": pl.Int64, "at": pl.Datetime("us")}
ADS = pl.DataFrame({"ad": ["a", "b", "c", "d"], "campaign": ["x", "x", None, "y"]})

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
    "least": ab.min("n"), "most": ab.max("n"),
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


@pytest.mark.parametrize(
    "aggregates",
    [
        {"x": ab.max("campaign")},  # a column of the table
        {"x": ab.sum(pl.col("n") + 1)},  # could fail on a row that the lookup drops
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
