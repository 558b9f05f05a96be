"""Seeded schedules of crashes, failures and changes of width: equal to the oracle on their own log."""

import pytest

from anabranch.simulate.inline import Mischief
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_rows, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from tests.recovery.schedules import Life, Schedule, _live, run_schedule
from tests.runtime.test_inline import written

CHUNK = 20


def check(seed, tmp_path, monkeypatch):
    schedule = Schedule.of(seed)
    try:
        run_schedule(schedule, tmp_path, monkeypatch)
        monkeypatch.undo()
        program, checkpoint = schedule.program(tmp_path), tmp_path / "ckpt"
        nothing_lost(schedule, program, checkpoint)
        expected = run_sequential(program, log=checkpoint)["out"]
        assert_same_rows(expected, written(tmp_path / "out"), ordered=schedule.ordered)
        # What failed attempts left in the last life goes when the next one begins.
        assert _live(schedule, Life(2, 7, Mischief()), 99, tmp_path, monkeypatch)
        nothing_left(tmp_path)
    except Exception as error:
        error.add_note(str(schedule))
        raise


def nothing_lost(schedule, program, checkpoint):
    """The log's epochs take each offset of each partition once, from the first to the last."""
    at: dict[int | str, int] = dict.fromkeys(range(schedule.partitions), 0)
    for cut in log_of(checkpoint, program.freeze()):
        for partition, (start, end) in cut.offsets.items():
            assert at[partition] == start
            at[partition] = end
    assert dict(program.freeze().sources[0].source.latest()) == at


def nothing_left(home):
    """Of lives that were cut off there is no half-made file, no staged one, no delta without commit."""
    checkpoint = home / "ckpt"
    assert [] == [each.name for each in checkpoint.rglob(".tmp-*")]
    assert [] == [each.name for each in (home / "out" / "_staging").glob("*")]
    assert 1 == len(list((checkpoint / "lease").iterdir()))
    history = recover(LocalStore(checkpoint)).history
    named = {path for each in history for of in each.deltas.values() for path in of.values()}
    state = (each for each in (checkpoint / "state").rglob("*") if each.is_file())
    assert {str(each.relative_to(checkpoint)) for each in state} <= named


def chunk(first, tmp_path, monkeypatch):
    """Some seeds, all of them even if some fail: each failure says how to repeat it."""
    failures = []
    for seed in range(first, first + CHUNK):
        home = tmp_path / str(seed)
        home.mkdir()
        with monkeypatch.context() as patched:
            try:
                check(seed, home, patched)
            except Exception as error:
                failures.append(error)
    if failures:
        message = f"{len(failures)} of {CHUNK} schedules"
        raise ExceptionGroup(message, failures)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, CHUNK))
def test_whatever_happens_the_output_is_the_same(first, tmp_path, monkeypatch):
    chunk(first, tmp_path, monkeypatch)


@pytest.mark.chaos
@pytest.mark.parametrize("first", range(60, 500, CHUNK))
def test_it_is_the_same_for_many_more(first, tmp_path, monkeypatch):
    chunk(first, tmp_path, monkeypatch)
