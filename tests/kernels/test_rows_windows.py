"""Windows of the last n records give what the sequential run gives, however work is divided."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.windows.rows import RowsKernel
from tests.kernels.window_cases import assert_as_sequential, cases, told

ROWS = st.builds(ab.rows, st.integers(1, 5), st.integers(1, 5))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(case=cases(ROWS))
def test_rows_windows(case):
    assert_as_sequential(case, RowsKernel.of)


def numbers(key, frame):
    return [{"key": repr(key), "n": n} for n in frame["n"].to_list()]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=cases(ROWS, made=lambda w: w.apply(numbers, out={"key": pl.String, "n": pl.Int64})))
def test_functions_over_rows(case):
    assert_as_sequential(case, RowsKernel.of)


def not_three(key, frame):
    if frame["n"].sum() % 3 == 0:
        raise ValueError(key)
    return {"key": repr(key), "n": frame.height}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=cases(ROWS, made=lambda w: told(w, not_three, {"key": pl.String, "n": pl.Int64})))
def test_records_whose_window_a_function_fails_on_become_letters(case):
    assert_as_sequential(case, RowsKernel.of)
