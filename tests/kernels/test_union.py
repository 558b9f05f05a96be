"""A union's rows come in the order of their keys, under the left one's columns (M14)."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import anabranch as ab
from anabranch.kernels.together.union import UnionKernel
from anabranch.testing import assert_same_rows, run_sequential
from tests.kernels.alone import WAYS, run_alone
from tests.kernels.together import Lowered, logs, two_streams


@pytest.mark.slow
@pytest.mark.parametrize("ways", WAYS, ids=str)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_union_gives_what_the_sequential_run_gives(ways, data):
    program, left, right = data.draw(two_streams(columns=("n", "n")))
    left.union(right).write(ab.sinks.Memory("out"))
    log = data.draw(logs(program))

    ran = run_alone(program, log, Lowered(UnionKernel), ways)

    assert ran.error is None
    assert_same_rows(run_sequential(program, log=log)["out"], ran.rows["out"])
