"""Aggregates as partials: how few there are, and that no grouping of rows shows in a sum."""

import math
import random
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.bundle import TIME
from anabranch.kernels.failures import Failed
from anabranch.kernels.windows.windows import Windows
from anabranch.program.operators.windowed import WindowAggregate

NAN, INF = float("nan"), float("inf")


def lowered(schema, window, by=None, **aggregates):
    program = ab.Program("aggregated")
    source = ab.sources.Records([], schema={"t": pl.Int64, **schema})
    stream = program.read(source, event_time="t")
    stream.window(window, by=by).agg(**aggregates).write(ab.sinks.Memory("out"))
    (op,) = program.freeze().of(WindowAggregate)
    return Windows.of(op, pl.Schema({"t": pl.Int64, **schema}))


def in_pieces(windows, values, dtype, cuts=()):
    """The one result of values that come in these pieces."""
    bounds = [0, *sorted(cuts), len(values)]
    parts = []
    for begin, end in pairwise(bounds):
        if begin < end:
            rows = pl.DataFrame({"x": values[begin:end]}, schema={"x": dtype})
            rows = rows.with_columns(pl.lit(0, pl.Int64).alias(TIME))
            parts.append(windows.partials(rows, 1))
    found = windows.finished(windows.merged(parts))
    return tuple(found[name][0] for name in windows.schema if name in found)


def test_a_bundle_becomes_a_handful_of_partials():
    draw = random.Random(7)
    windows = lowered(
        {"k": pl.Int64, "x": pl.Float64}, ab.tumbling("1 s"), "k",
        n=ab.count(), s=ab.sum("x"), m=ab.mean("x"), v=ab.var("x"), q=ab.approx_quantile("x", 0.5),
        d=ab.approx_distinct("x"), first=ab.first("x"), top=ab.top_k("x", 3, by="x"),
    )  # fmt: skip
    rows = pl.DataFrame(
        {
            "k": [draw.randrange(100) for _ in range(100_000)],
            "x": [draw.random() for _ in range(100_000)],
            TIME: [draw.randrange(3_000_000) for _ in range(100_000)],
        }
    )
    partials = windows.partials(rows, 8)
    assert partials.height == 300
    assert partials["n"].sum() == 100_000


def test_panes_are_shared_by_the_windows_that_slide_over_them():
    """Windows of 10 s every 3 s: panes of 1 s and 2 s; 30 s are 20 panes, not 40 windows' parts."""
    windows = lowered({"x": pl.Int64}, ab.sliding("10 s", "3 s"), n=ab.count())
    rows = pl.DataFrame({"x": [1] * 300, TIME: range(0, 30_000_000, 100_000)})
    assert windows.partials(rows, 1).height == 20


floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [1e16, -1e16, 1.0, 0.1, 1e-20, 5e-324, -1e300, 2.0**63, 2.0**-96, 0.0, -0.0]
)


@settings(deadline=None, max_examples=200)
@given(
    values=st.lists(floats | st.none(), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    seed=st.integers(0, 1000),
)
def test_a_sum_of_floats_is_the_exact_sum_whatever_the_grouping(values, cuts, seed):
    windows = lowered({"x": pl.Float64}, ab.tumbling("1 s"), s=ab.sum("x"), m=ab.mean("x"))
    known = [value for value in values if value is not None]
    exact = sum(map(Fraction, known), Fraction(0))
    found = in_pieces(windows, values, pl.Float64, [min(c, len(values)) for c in cuts])
    shuffled = random.Random(seed).sample(values, len(values))
    assert found == in_pieces(windows, shuffled, pl.Float64)
    if abs(exact) < Fraction(1.7e308):
        assert found[0] == pytest.approx(float(exact), rel=1e-15, abs=0)


@settings(deadline=None, max_examples=100)
@given(
    values=st.lists(floats.filter(lambda x: abs(x) < 1e100), min_size=2, max_size=40),
    cut=st.integers(0, 40),
)
def test_a_variance_is_the_exact_one_whatever_the_grouping(values, cut):
    windows = lowered({"x": pl.Float64}, ab.tumbling("1 s"), v=ab.var("x"))
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    right = sum((each - mean) ** 2 for each in exact) / (len(exact) - 1)
    (found,) = in_pieces(windows, values, pl.Float64, [min(cut, len(values))])
    assert found == pytest.approx(right.numerator / right.denominator, rel=1e-15, abs=0)


def test_sums_with_values_that_are_no_numbers():
    windows = lowered({"x": pl.Float64}, ab.tumbling("1 s"), s=ab.sum("x"), v=ab.var("x"))
    assert in_pieces(windows, [INF, 1.0], pl.Float64)[0] == INF
    assert all(map(math.isnan, in_pieces(windows, [INF, -INF], pl.Float64, [1])))
    assert all(map(math.isnan, in_pieces(windows, [NAN, 1.0, 2.0], pl.Float64, [1])))
    assert in_pieces(windows, [1e308, 1e308, -1e308], pl.Float64, [1])[0] == 1e308


def test_many_odd_parts_are_added_up():
    windows = lowered({"x": pl.Float64}, ab.tumbling("1 s"), s=ab.sum("x"))
    rows = pl.DataFrame({"x": [1e-20] * 1000, TIME: [0] * 1000}, schema_overrides={TIME: pl.Int64})
    partial = windows.merged([windows.partials(rows, 1)])
    assert partial["a0_odd"].list.len()[0] <= 3
    assert windows.finished(partial)["s"][0] == pytest.approx(1e-17, rel=1e-15)


@settings(deadline=None)
@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20),
    cut=st.integers(0, 20),
)
def test_sums_of_whole_numbers_are_exact_or_an_error(values, cut):
    windows = lowered({"x": pl.Int64}, ab.tumbling("1 s"), s=ab.sum("x"))
    if -(2**63) <= sum(values) < 2**63:
        assert in_pieces(windows, values, pl.Int64, [min(cut, len(values))]) == (sum(values),)
    else:
        with pytest.raises(Failed, match=f"sum overflows Int64: {sum(values)}"):
            in_pieces(windows, values, pl.Int64, [min(cut, len(values))])


@settings(deadline=None)
@given(
    values=st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=2,
                                min_value=-(10**35), max_value=10**35), min_size=1, max_size=20),
    cut=st.integers(0, 20),
)  # fmt: skip
def test_sums_of_decimals_are_exact(values, cut):
    windows = lowered({"x": pl.Decimal(38, 2)}, ab.tumbling("1 s"), s=ab.sum("x"))
    cents = sum(int(value.scaleb(2, Context(prec=76))) for value in values)
    (found,) = in_pieces(windows, values, pl.Decimal(38, 2), [min(cut, len(values))])
    assert int(found.scaleb(2, Context(prec=76))) == cents


def test_a_sum_of_decimals_that_is_too_large_is_an_error():
    windows = lowered({"x": pl.Decimal(38, 2)}, ab.tumbling("1 s"), s=ab.sum("x"))
    with pytest.raises(Failed, match="sum overflows Decimal"):
        in_pieces(windows, [Decimal("9" * 36)] * 2, pl.Decimal(38, 2), [1])
