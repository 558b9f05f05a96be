"""Kernels give what the sequential run gives, however work is cut, divided, grouped and repeated."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing import assert_same_rows, cuts, run_sequential
from tests.kernels.inline import Choices, logged, run_inline
from tests.kernels.linear import programs

choices = st.builds(
    Choices,
    width=st.sampled_from([1, 2, 4]),
    split_rows=st.integers(1, 8),
    group=st.integers(1, 5),
    seed=st.integers(0, 1000),
    blobs=st.booleans(),
    restart=st.booleans(),
    fold=st.booleans(),
    lose=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_any_linear_program_gives_what_the_sequential_run_gives(data):
    program = data.draw(programs())
    log = data.draw(cuts(program, max_rows=5))

    ran = run_inline(program, log, data.draw(choices))

    assert ran.error is None
    assert_same_rows(run_sequential(program, log=log)["out"], ran.rows)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(program=programs(), chosen=choices)
def test_epochs_in_rounds_are_those_of_the_sequential_run(program, chosen):
    ran = run_inline(program, logged(program, 3), chosen)

    assert ran.error is None
    assert_same_rows(run_sequential(program, epoch_rows=3)["out"], ran.rows)
