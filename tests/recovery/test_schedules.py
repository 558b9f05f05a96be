"""Seeded schedules of crashes, failures and changes of width: equal to the oracle on their own log."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from anabranch.runtime.dual import DualCycle
from anabranch.simulate.inline import Mischief
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_rows, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from tests.recovery.schedules import Life, Schedule, _live, run_schedule
from tests.runtime.test_inline import written

CHUNK = 20


def check(schedule, tmp_path, monkeypatch):
    """Returns how often things were seen that a schedule is for."""
    try:
        seen = run_schedule(schedule, tmp_path, monkeypatch)
        monkeypatch.undo()
        program, checkpoint = schedule.program(tmp_path), tmp_path / "ckpt"
        nothing_lost(schedule, program, checkpoint)
        expected = run_sequential(program, log=checkpoint)["out"]
        assert_same_rows(expected, written(tmp_path / "out"), ordered=schedule.ordered)
        # What failed attempts left in the last life goes when the next one begins.
        assert _live(schedule, Life(2, 7, Mischief()), 99, tmp_path, monkeypatch)
        nothing_left(tmp_path)
        return seen
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
    """Of lives that were cut off there is no half-made file, no staged one, no state without commit."""
    checkpoint = home / "ckpt"
    assert [] == [each.name for each in checkpoint.rglob(".tmp-*")]
    assert [] == [each.name for each in (home / "out" / "_staging").glob("*")]
    assert 1 == len(list((checkpoint / "lease").iterdir()))
    history = recover(LocalStore(checkpoint)).history
    named = {path for each in history for of in each.deltas.values() for path in of.values()}
    named |= {path for each in history for of in each.snapshots.values() for path in of}
    state = (each for each in (checkpoint / "state").rglob("*") if each.is_file())
    assert {str(each.relative_to(checkpoint)) for each in state} <= named


def chunk(first, tmp_path, monkeypatch, made=Schedule.of):
    """Some seeds, all of them even if some fail: each failure says how to repeat it."""
    failures, seen = [], Counter()
    for seed in range(first, first + CHUNK):
        home = tmp_path / str(seed)
        home.mkdir()
        with monkeypatch.context() as patched:
            try:
                seen += check(made(seed), home, patched)
            except Exception as error:
                failures.append(error)
    if failures:
        message = f"{len(failures)} of {CHUNK} schedules"
        raise ExceptionGroup(message, failures)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, CHUNK))
def test_whatever_happens_the_output_is_the_same(first, tmp_path, monkeypatch):
    chunk(first, tmp_path, monkeypatch)


def looped(seed):
    """A seed's schedule for a program with a loop, whose rows wait from epoch to epoch."""
    made = Schedule.of if seed % 2 else Schedule.elastic
    return replace(made(seed), name="forwarded")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, CHUNK))
def test_whatever_happens_a_loop_goes_on(first, tmp_path, monkeypatch):
    chunk(first, tmp_path, monkeypatch, looped)


def growing(seed):
    """A seed's schedule with enough epochs in flight that new lanes take slices of others as well."""
    schedule, draw = Schedule.of(seed), random.Random(seed)
    lives = [
        replace(
            life,
            lanes=draw.choice((1, 2)),
            rows=draw.choice((3, 7)),
            rescale=((draw.randrange(3, 6), draw.choice((3, 4))), (draw.randrange(8, 14), 1)),
            at=draw.randrange(1, 60),
            steps=None if life.steps is None else draw.randrange(4, 14),
            in_flight=8,
        )
        for life in schedule.lives
    ]
    return replace(schedule, count=200, slices=8, lives=tuple(lives))


@pytest.mark.slow
def test_slices_that_two_lanes_take_are_one_lanes_whatever_happens(tmp_path, monkeypatch):
    agreed, agree = [], DualCycle.agreed

    def noting(self, lanes):
        found = list(agree(self, lanes))
        agreed.extend(found)
        return found

    monkeypatch.setattr(DualCycle, "agreed", noting)
    for seed in range(6):
        home = tmp_path / str(seed)
        home.mkdir()
        with monkeypatch.context() as patched:
            check(growing(seed), home, patched)
    assert agreed


@pytest.mark.chaos
@pytest.mark.parametrize("first", range(60, 500, CHUNK))
def test_it_is_the_same_for_many_more(first, tmp_path, monkeypatch):
    chunk(first, tmp_path, monkeypatch)


ELASTIC = (
    "asked amid another",
    "asked in recovery",
    "failures amid replicas",
    "other owners",
    "other widths",
    "replicas",
    "widths of its own",
)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, CHUNK))
def test_whenever_widths_change_the_output_is_the_same(first, tmp_path, monkeypatch):
    seen = chunk(first, tmp_path, monkeypatch, Schedule.elastic)

    assert [] == [what for what in ELASTIC if not seen[what]], "nothing is proved of these"


@pytest.mark.chaos
@pytest.mark.parametrize("first", range(40, 2000, CHUNK))
def test_it_is_the_same_for_many_more_changes(first, tmp_path, monkeypatch):
    chunk(first, tmp_path, monkeypatch, Schedule.elastic)
