"""Sketches are functions of the multiset of values, and within the error they state."""

import random
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.windows.sketches import Distinct, Quantiles
from anabranch.kernels.windows.windows import Windows
from anabranch.program.operators.windowed import WindowAggregate

NAN, INF = float("nan"), float("inf")
SCHEMA = pl.Schema({"t": pl.Int64, "x": pl.Float64})


def lowered(**aggregates):
    program = ab.Program("sketched")
    source = ab.sources.Records([], schema=dict(SCHEMA))
    stream = program.read(source, event_time="t")
    stream.window(ab.tumbling("1 s")).agg(**aggregates).write(ab.sinks.Memory("out"))
    (op,) = program.freeze().of(WindowAggregate)
    return Windows.of(op, SCHEMA)


WINDOWS = lowered(n=ab.approx_distinct("x"), q=ab.approx_quantile("x", 0.3))


def told(values, cuts):
    """What windows tell of values that come in these pieces."""
    bounds = [0, *sorted(cuts), len(values)]
    parts = []
    for begin, end in pairwise(bounds):
        if begin < end:
            rows = pl.DataFrame({"x": values[begin:end]}, schema={"x": pl.Float64})
            rows = rows.with_columns(pl.lit(0, pl.Int64).alias("__ab_time"))
            parts.append(WINDOWS.partials(rows, 1))
    found = WINDOWS.finished(WINDOWS.merged(parts))
    return found["n"][0], found["q"][0]


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.sampled_from([None, NAN, INF, -INF, 0.0, -0.0, 1e300, -3.5, 0.1, 7.0])
                    | st.floats(), min_size=1, max_size=40),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_no_order_and_no_cut_shows(values, seed):
    draw = random.Random(seed)
    once = told(values, [])
    shuffled = draw.sample(values, len(values))
    again = told(shuffled, [draw.randint(0, len(values)) for _ in range(4)])
    assert repr(once) == repr(again)


@pytest.mark.parametrize("count", [0, 1, 10, 100, 3_000, 50_000, 400_000])
def test_different_values_are_counted_within_the_error(count):
    values = pl.Series(range(count), dtype=pl.Int64)
    assert Distinct.within(0.02).estimate(values) == pytest.approx(count, rel=0.02)


@pytest.mark.parametrize("error", [0.3, 0.1, 0.02, 0.01])
def test_the_stated_error_is_rarely_exceeded(error):
    """The error is 3 sigma: of 100 sketches of other values hardly one is farther off."""
    sketch, wrong = Distinct.within(error), 0
    for seed in range(100):
        values = pl.Series(range(seed * 10_000, seed * 10_000 + 5_000), dtype=pl.Int64)
        found = sketch.estimate(values)
        wrong += abs(found - 5_000) > error * 5_000
    assert wrong <= 2


def test_pairs_take_equal_values_for_equal():
    pairs = Distinct.within(0.02).pairs(pl.Series([0.0, -0.0, NAN, -NAN, None]))
    assert pairs[0] == pairs[1]
    assert pairs[2] == pairs[3]
    assert pairs[4] is None


@settings(deadline=None)
@given(
    value=st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
    error=st.sampled_from([0.2, 0.01, 1e-4]),
)
def test_every_value_is_told_within_the_error(value, error):
    sketch = Quantiles.within(error)
    (found,) = sketch.values(sketch.codes(np.array([value])))
    assert abs(found - value) <= error * (1 + 1e-9) * abs(value) or abs(value) > 1e307


def test_codes_grow_with_values():
    values = np.array([-INF, -1e300, -2.0, -1e-300, 0.0, 1e-300, 2.0, 1e300, INF, NAN])
    codes = Quantiles.within(0.01).codes(values)
    assert (np.diff(codes) > 0).all()


def test_quantiles_of_positive_values_are_within_the_error():
    values = [random.Random(1).lognormvariate(0, 3) for _ in range(2_000)]
    exact = float(np.quantile(values, 0.3))
    assert told(values, [300, 700])[1] == pytest.approx(exact, rel=0.01)
