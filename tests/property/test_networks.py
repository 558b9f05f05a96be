"""Property 1 for programs of several sources, streams and sinks, whatever fails on the way."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import RunError
from anabranch.program.operators.edges import Write
from anabranch.runtime.assembly import assemble
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from anabranch.testing.strategies import networks
from tests.property.test_any_program import chosen, live
from tests.runtime.test_inline import written


def run(graph, checkpoint, *, seed, mischief, lanes, rows):
    settings = chosen(checkpoint, seed=seed, lanes=lanes, rows=rows)
    assembled = assemble(graph, settings, InlineExecutor(seed, mischief), MockClock())
    try:
        while not assembled.loop.over:
            assembled.loop.step()
    finally:
        assembled.loop.close()
        assembled.close()


def in_any_order(rows):
    return sorted(rows, key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("loops", [0, 1])
@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_any_network_gives_what_it_means(loops, data):
    program = data.draw(networks(min_loops=loops))
    graph = program.freeze()
    with tempfile.TemporaryDirectory() as home:
        checkpoint = Path(home) / "ckpt"
        try:
            run(
                graph,
                checkpoint,
                seed=data.draw(st.integers(0, 1_000)),
                mischief=data.draw(st.sampled_from([KIND, KIND, UNKIND])),
                lanes=data.draw(st.sampled_from([1, 2, 3, 8])),
                rows=data.draw(st.sampled_from([1, 2, 5, 50])),
            )
        except RunError as error:
            # An executor that is this unkind may fail a query for good.
            if "times in a row" not in str(error):
                raise
            return
        expected = run_sequential(program, log=checkpoint)
    for write in graph.of(Write):
        rows = write.sink.rows
        if write.ordered:
            assert_same_rows(expected[write.name], rows)
        else:
            assert_same_rows(in_any_order(expected[write.name]), in_any_order(rows))


def with_files(program, directory):
    """The program's graph with its rows in files, which are written once whatever happens."""
    graph = program.freeze()
    operators = [
        replace(op, sink=ab.sinks.Files(directory / op.name, format="parquet"))
        if isinstance(op, Write)
        else op
        for op in graph.operators
    ]
    return replace(graph, operators=tuple(operators))


@pytest.mark.slow
@pytest.mark.parametrize("loops", [0, 1])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_network_that_is_cut_off_goes_on_where_it_was(loops, data):
    program = data.draw(networks(max_pieces=4, min_loops=loops))
    with tempfile.TemporaryDirectory() as home:
        checkpoint = Path(home) / "ckpt"
        graph = with_files(program, Path(home))
        for _ in range(40):
            ended = live(
                graph,
                checkpoint,
                lanes=data.draw(st.sampled_from([1, 2, 3, 8])),
                rows=data.draw(st.sampled_from([1, 3, 7])),
                seed=data.draw(st.integers(0, 1_000)),
                steps=data.draw(st.integers(1, 12)),
                wider=(data.draw(st.integers(0, 6)), data.draw(st.sampled_from([1, 2, 5]))),
            )
            if ended:
                break
        else:
            run(graph, checkpoint, seed=0, mischief=KIND, lanes=2, rows=50)
        expected = run_sequential(program, log=checkpoint)
        for write in graph.of(Write):
            rows, wanted = written(Path(home) / write.name), expected[write.name]
            if not write.ordered:
                rows, wanted = in_any_order(rows), in_any_order(wanted)
            assert_same_rows(wanted, rows)
