"""Property 1: any program, at any width, however its tasks fail: equal to the oracle on its log."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.program.operators.edges import Write
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.merging import MERGE_ABOVE
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, programs, run_sequential
from tests.runtime.test_inline import written


def merge_above(seed):
    """Half of all runs leave every merge to tasks, half to the driver."""
    return MERGE_ABOVE if seed % 2 else 0


def chosen(checkpoint, *, seed, lanes, rows):
    """How a run goes about it: merges here or there, few epochs under way or many."""
    return Settings(
        available_now(rows),
        checkpoint,
        lanes,
        slices=8,
        keep=None,
        merge_above=merge_above(seed),
        in_flight=(3, 16, 64)[seed % 3],
    )


def run(program, checkpoint, *, seed, mischief, lanes, rows):
    settings = chosen(checkpoint, seed=seed, lanes=lanes, rows=rows)
    assembled = assemble(program.freeze(), settings, InlineExecutor(seed, mischief), MockClock())
    try:
        while not assembled.loop.over:
            assembled.loop.step()
    finally:
        assembled.loop.close()
        assembled.close()
    (write,) = program.freeze().sinks
    return write.sink.rows


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_any_program_gives_what_it_means(data):
    program = data.draw(programs(partitions=data.draw(st.integers(1, 3))))
    with tempfile.TemporaryDirectory() as home:
        checkpoint = Path(home) / "ckpt"
        rows = run(
            program,
            checkpoint,
            seed=data.draw(st.integers(0, 1_000)),
            mischief=data.draw(st.sampled_from([KIND, KIND, UNKIND])),
            lanes=data.draw(st.sampled_from([1, 2, 3, 8])),
            rows=data.draw(st.sampled_from([1, 2, 5, 50])),
        )
        expected = run_sequential(program, log=checkpoint)["out"]
    assert_same_rows(expected, rows)


def with_files(program, directory):
    """The program's graph with its rows in files, which are written once whatever happens."""
    graph = program.freeze()
    sink = ab.sinks.Files(directory, format="parquet")
    operators = [replace(op, sink=sink) if isinstance(op, Write) else op for op in graph.operators]
    return replace(graph, operators=tuple(operators))


def live(graph, checkpoint, *, lanes, rows, seed, steps, wider):
    """A life of so many steps, with a change of width in it; whether it came to its end."""
    settings = chosen(checkpoint, seed=seed, lanes=lanes, rows=rows)
    assembled = assemble(graph, settings, InlineExecutor(seed, UNKIND), MockClock())
    try:
        for step in range(steps):
            if assembled.loop.over:
                return True
            if step == wider[0]:
                assembled.loop.rescale(wider[1], lambda: None)
            assembled.loop.step()
        return assembled.loop.over
    except RunError as error:
        # An executor that is this unkind may fail a query for good: it is started again.
        if "times in a row" not in str(error):
            raise
        return False
    finally:
        assembled.loop.close()
        assembled.close()


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_a_program_that_is_cut_off_goes_on_at_any_width(data):
    program = data.draw(programs(partitions=data.draw(st.integers(1, 2))))
    draws = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(0, 1_000))
    with tempfile.TemporaryDirectory() as home:
        checkpoint, out = Path(home) / "ckpt", Path(home) / "out"
        over = False
        while not over:
            lanes, rows, seed = data.draw(draws)
            wider = data.draw(st.tuples(st.integers(0, 9), st.integers(1, 4)))
            steps = data.draw(st.integers(3, 60))
            graph = with_files(program, out)
            over = live(
                graph, checkpoint, lanes=lanes, rows=rows, seed=seed, steps=steps, wider=wider
            )
        expected = run_sequential(program, log=checkpoint)["out"]
        assert_same_rows(expected, written(out))
