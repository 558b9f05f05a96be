"""Sessions give what the sequential run gives, however work is divided."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.windows.sessions import SessionKernel
from tests.kernels.window_cases import assert_as_sequential, cases, told

SESSIONS = st.sampled_from([ab.session("1 s"), ab.session("700 ms"), ab.session("3 s")])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(case=cases(SESSIONS))
def test_sessions(case):
    assert_as_sequential(case, SessionKernel.of)


def numbers(key, frame):
    return [{"key": repr(key), "n": n} for n in frame["n"].to_list()]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=cases(SESSIONS, made=lambda w: w.apply(numbers, out={"key": pl.String, "n": pl.Int64})))
def test_functions_over_sessions(case):
    assert_as_sequential(case, SessionKernel.of)


def not_three(key, frame):
    if frame["n"].sum() % 3 == 0:
        raise ValueError(key)
    return {"key": repr(key), "n": frame.height}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=cases(SESSIONS, made=lambda w: told(w, not_three, {"key": pl.String, "n": pl.Int64})))
def test_sessions_that_a_function_fails_on_become_letters(case):
    assert_as_sequential(case, SessionKernel.of)
