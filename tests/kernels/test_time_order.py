"""Rows leave by event time as in the sequential run, and none is kept behind the watermark (M14)."""

import hypothesis.strategies as st
import polars as pl
import pytest
from hypothesis import given, settings

import anabranch as ab
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.kernel import Taken
from anabranch.kernels.results import END
from anabranch.kernels.together.time_order import TimeOrderKernel
from anabranch.program.operators.together import InTimeOrder
from anabranch.testing import assert_same_rows, run_sequential
from tests.kernels.alone import WAYS, run_alone
from tests.kernels.together import Lowered, logs, two_streams


@pytest.mark.slow
@pytest.mark.parametrize("ways", WAYS, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), merged=st.booleans())
def test_rows_leave_as_in_the_sequential_run(ways, data, merged):
    program, left, right = data.draw(two_streams(columns=("n", "n"), twice=not merged))
    stream = left.merge(right) if merged else left.in_time_order()
    stream.write(ab.sinks.Memory("out"))
    log = data.draw(logs(program))

    ran = run_alone(program, log, Lowered(TimeOrderKernel), ways)

    assert ran.error is None
    assert_same_rows(run_sequential(program, log=log)["out"], ran.rows["out"])


def kernel_of():
    """Rows (t) of one stream by time."""
    program = ab.Program("ordered")
    source = ab.sources.Records([], {"t": pl.Int64})
    program.read(source, name="s", event_time="t").in_time_order().write(ab.sinks.Memory("out"))
    graph = program.freeze()
    return TimeOrderKernel.of(graph, next(iter(graph.of(InTimeOrder))))


def bundle(*times):
    """Rows of one partition, with times in milliseconds."""
    return pl.DataFrame({"t": times}, schema={"t": pl.Int64}).with_columns(
        (pl.col("t") * 1000).alias(TIME),
        pl.lit(0, pl.Int32).alias(PARTITION),
        pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET),
        pl.lit(0, pl.UInt16).alias(SLICE),
    )


def test_only_what_is_held_is_kept():
    """Rows at 3, 1, 2 ms; the watermark 2 ms lets 1 go, which no delta has; 5 ms all the others."""
    kernel = kernel_of()
    first = kernel.run(Taken(0, [bundle(3, 1, 2)], None, 2_000), kernel.restore(()))
    second = kernel.run(Taken(1, [bundle()], 2_000, 5_000), first.state)

    assert [1] == first.rows["out"]["t"].to_list()
    assert [2, 3] == first.delta.drop_nulls("id")["c:t"].sort().to_list()
    assert [2, 3] == second.rows["out"]["t"].to_list()
    assert 0 == second.state.fold(2).height == second.state.whole().height


def test_what_is_behind_passes_before_what_is_released():
    """The watermark is 5 ms: 4 is behind it; 7 and 6 leave when it is 8."""
    kernel = kernel_of()
    taken = Taken(3, [bundle(7, 4, 6)], 5_000, 8_000)

    assert [4, 6, 7] == kernel.run(taken, kernel.restore(())).rows["out"]["t"].to_list()


def test_an_attempt_can_be_taken_back():
    kernel = kernel_of()
    first = kernel.run(Taken(0, [bundle(1)], None, None), kernel.restore(()))
    second = kernel.run(Taken(1, [bundle(2)], None, END), first.state)

    again = kernel.run(Taken(1, [bundle(2)], None, END), second.state.at(1))

    assert [1, 2] == again.rows["out"]["t"].to_list()


def test_many_waiting_rows_are_copied_rarely():
    """A row an epoch, none leaves: the layers are as many as a counter's digits, not as epochs."""
    kernel = kernel_of()
    state = kernel.restore(())
    for epoch in range(100):
        state = kernel.run(Taken(epoch, [bundle(epoch)], None, None), state).state
        state = state.fold(state.version)

    assert 100 == state.height
    assert len(state.layers) <= 7
