"""The whole path in one process, under an unkind executor: equal to the oracle on its own log."""

from itertools import groupby

import pytest

import anabranch as ab
from anabranch.config import StateMemory
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.programs import LOOPS, PROGRAMS


def run(
    program,
    checkpoint,
    *,
    seed=0,
    mischief=KIND,
    lanes=2,
    rows=7,
    stop_after=None,
    rescale=(),
    in_flight=16,
    memory=None,
):
    """Run a program to its end, or for so many steps, then let go of it as a crash would.

    Says how many steps it was. With two epochs in flight three steps take them from their cut to
    their commit: heads, lanes, commit; with many all are cut before the first is committed.
    `memory` is what a lane may have of it for its state.
    """
    settings = Settings(
        available_now(rows),
        checkpoint,
        lanes,
        slices=8,
        keep=None,
        in_flight=in_flight,
        state=StateMemory(memory),
    )
    executor = InlineExecutor(seed, mischief)
    assembled = assemble(program.freeze(), settings, executor, MockClock())
    steps, widths = 0, dict(rescale)
    while not assembled.loop.over and (stop_after is None or steps < stop_after):
        if steps in widths:
            assembled.loop.rescale(widths[steps], lambda: None)
        assembled.loop.step()
        steps += 1
    assembled.loop.close()
    assembled.close()
    return steps


def widths_of(checkpoint):
    """How many lanes there were, from commit to commit, where that changes."""
    history = recover(LocalStore(checkpoint)).history
    return [lanes for lanes, _ in groupby(each.lanes for each in history if not each.is_opening)]


def written(directory):
    import polars as pl

    files = sorted(directory.glob("*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files]).rows(named=True) if files else []


def made(name, tmp_path, *, count=60, partitions=1, ordered=True):
    program, rows, schema = {**PROGRAMS, **LOOPS}[name]
    source = ab.sources.Records(rows(count), schema=schema, partitions=partitions)
    return program(source, ab.sinks.Files(tmp_path / "out", format="parquet"), ordered=ordered)


@pytest.mark.parametrize("name", [*PROGRAMS, *LOOPS])
@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_a_program_gives_what_it_means(name, lanes, tmp_path):
    run(made(name, tmp_path), tmp_path / "ckpt", lanes=lanes)

    expected = run_sequential(made(name, tmp_path), log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROGRAMS, *LOOPS])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_the_output_is_the_same(name, seed, tmp_path):
    partitions = 1 + seed % 2
    lanes = (1, 2, 4)[seed % 3]
    run(
        made(name, tmp_path, partitions=partitions),
        tmp_path / "ckpt",
        seed=seed,
        mischief=UNKIND,
        lanes=lanes,
    )

    program = made(name, tmp_path, partitions=partitions)
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROGRAMS, *LOOPS])
@pytest.mark.parametrize("stop", range(1, 12))
def test_a_run_that_was_cut_off_goes_on_at_any_width(name, stop, tmp_path):
    cut = run(made(name, tmp_path), tmp_path / "ckpt", lanes=2, stop_after=stop, in_flight=2)
    on = run(made(name, tmp_path), tmp_path / "ckpt", lanes=(1, 2, 3)[stop % 3])

    assert stop == cut
    assert on >= 3, "there was nothing left to do"
    expected = run_sequential(made(name, tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.parametrize("name", [*PROGRAMS, *LOOPS])
def test_lanes_come_and_go_in_mid_stream(name, tmp_path):
    rescale = ((2, 2), (8, 4), (14, 1))
    long = made(name, tmp_path, count=120)
    run(long, tmp_path / "ckpt", lanes=1, rescale=rescale, in_flight=2)

    assert [1, 2, 4, 1] == widths_of(tmp_path / "ckpt")
    expected = run_sequential(long, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def test_state_that_was_divided_by_other_columns_is_refused(tmp_path):
    """A function that is proved no longer has its keys in other slices than before."""
    import polars as pl

    def process(record, state):
        state.value = (state.value or 0) + 1
        yield {"k": record["k"], "n": state.value}

    def remembered(record, state, seen=[]):  # noqa: B006 - what must be noticed
        seen.append(record)
        yield from process(record, state)

    def made(function):
        program = ab.Program("changed")
        read = program.read(ab.sources.Records([{"k": k} for k in "abcdef" * 3]))
        keyed = read.key_by("k").process(function, out={"k": pl.String, "n": pl.Int64}, name="p")
        keyed.write(ab.sinks.Files(tmp_path / "out", format="parquet"))
        return program

    run(made(process), tmp_path / "ckpt", stop_after=5)

    with pytest.raises(ab.CheckpointError) as caught:
        run(made(remembered), tmp_path / "ckpt")

    assert "the state of p in the checkpoint is divided by k" in str(caught.value)
    assert "the program now divides it by nothing" in str(caught.value)
    run(made(process), tmp_path / "ckpt")
    assert 18 == len(written(tmp_path / "out"))
