"""Property 1: any program, at any width, however its tasks fail: equal to the oracle on its log."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, programs, run_sequential


def run(program, checkpoint, *, seed, mischief, lanes, rows):
    settings = Settings(available_now(rows), checkpoint, lanes, slices=8, keep=None)
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
