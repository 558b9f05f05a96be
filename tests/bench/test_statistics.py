from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.harness.statistics import Metric, Summary, bare, compared, paired_differences

METRIC = Metric("case", "throughput", "rows/s")
VALUES = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=20)


def test_a_summary_is_median_least_and_greatest():
    assert Summary(value=3.0, low=1.0, high=9.0, runs=5) == Summary.of([9.0, 1.0, 3.0, 2.0, 4.0])


def test_the_median_of_an_even_number_of_runs_lies_between():
    assert Summary(value=1.5, low=1.0, high=2.0, runs=2) == Summary.of([2.0, 1.0])


def test_no_runs_cannot_be_summed_up():
    with pytest.raises(ValueError, match=r"^no runs to sum up$"):
        Summary.of([])


@given(VALUES)
def test_the_median_is_within_the_spread(values):
    found = Summary.of(values)

    assert (min(values), max(values)) == (found.low, found.high)
    assert found.low <= found.value <= found.high


def test_a_bare_row_is_compared_with_nothing():
    row = bare(METRIC, "polars", [2.0, 1.0, 3.0])

    assert (2.0, 1.0, 3.0, 3) == (row.value, row.low, row.high, row.runs)
    assert (None, None) == (row.against, row.ratio)


def test_each_pair_has_one_row_and_each_other_system_a_bare_one():
    samples = {"anabranch": [4.0], "flink": [2.0], "polars": [8.0]}

    rows = compared(METRIC, samples, [("anabranch", "flink"), ("anabranch", "polars")])

    found = [(row.system, row.against, row.ratio) for row in rows]
    assert [
        ("anabranch", "flink", 2.0),
        ("anabranch", "polars", 0.5),
        ("flink", None, None),
        ("polars", None, None),
    ] == found


@given(VALUES, VALUES)
def test_a_ratio_is_that_of_the_medians(mine, others):
    first, second = compared(METRIC, {"a": mine, "b": others}, [("a", "b")])

    assert first.value / second.value == first.ratio


def test_a_pair_with_an_unknown_system_says_what_was_measured():
    with pytest.raises(ValueError, match=r"^case: 'flink' was not measured; there are a$"):
        compared(METRIC, {"a": [1.0]}, [("a", "flink")])


def test_nothing_is_a_multiple_of_zero():
    with pytest.raises(ValueError, match=r"'b' is 0"):
        compared(METRIC, {"a": [1.0], "b": [0.0]}, [("a", "b")])


def test_differences_are_taken_run_by_run():
    assert (1.0, -1.0) == paired_differences([3.0, 1.0], [2.0, 2.0])


def test_differences_need_as_many_runs_of_both():
    with pytest.raises(ValueError, match=r"longer"):
        paired_differences([1.0], [1.0, 2.0])
