"""A driver that is killed, stopped or taken over, in processes of their own: nothing lost or twice.

Tasks run in the driver's process here: what is killed is the protocol, at exactly the moment named.
Most of it is chaos: the same moments, and all others, are gone through in one process by
test_schedules and, on a simulated store, by tests/state/test_crashes.
"""

import json
import signal
from pathlib import Path

import pytest

from anabranch.runtime.exchange import exchange_directory
from anabranch.testing import assert_same_rows, run_sequential
from tests.recovery.driver import program
from tests.recovery.processes import Driver
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import written

pytestmark = pytest.mark.slow

MOMENTS = [
    "before lease 1",
    "before commits 1",  # the one that closes the log to older runs
    "before epochs 1",
    "after epochs 4",
    "before state 1",
    "after state 5",
    "before commits 3",
    "after commits 3",
    "before publish 2",
    "after publish 2",
    "before published 2",
    "after published 3",
]

EVERY_TIME = ("before commits 3", "after commits 3")


def check(name, home):
    expected = run_sequential(program(name, home), log=home / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(home / "out"))


def finish(name, home, **options):
    with Driver(home, name, **options) as driver:
        assert "ended" == driver.outcome(), driver.story()
    check(name, home)


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, id=moment, marks=[] if moment in EVERY_TIME else [pytest.mark.chaos])
        for at, moment in enumerate(MOMENTS)
    ],
)
def test_a_killed_driver_goes_on_where_it_was(at, tmp_path):
    name = list(PROGRAMS)[at % 3]
    with Driver(tmp_path, name, hold=MOMENTS[at]) as driver:
        driver.until("held")
        driver.kill()

    finish(name, tmp_path, lanes=(1, 2, 4)[at // 3 % 3])


@pytest.mark.chaos
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("folder", ["epochs", "state", "commits", "publish", "published"])
def test_a_driver_killed_again_and_again_comes_to_its_end(folder, name, tmp_path):
    for life in range(4):
        when = ("before", "after")[life % 2]
        with Driver(tmp_path, name, hold=f"{when} {folder} {life + 2}", lanes=1 + life) as driver:
            if driver.until("held", "ended") == "ended":
                break
            driver.kill()

    finish(name, tmp_path)


@pytest.mark.parametrize(
    "moment",
    ["before epochs 5", "before commits 3", "after commits 3", "before publish 2", "after state 3"],
)
def test_the_older_of_two_drivers_stops_and_shows_nothing_more(moment, tmp_path):
    with Driver(tmp_path, hold=moment) as older:
        older.until("held")
        finish("fraud", tmp_path, lanes=1)
        shown = sorted(each.name for each in (tmp_path / "out").glob("*.parquet"))

        older.go()
        told = older.outcome()

    assert "Fenced" in told, told
    assert "another run owns its checkpoint" in told
    assert shown == sorted(each.name for each in (tmp_path / "out").glob("*.parquet"))
    check("fraud", tmp_path)
    finish("fraud", tmp_path)  # and the checkpoint is as good as before


def test_a_driver_that_slept_through_another_is_fenced(tmp_path):
    with Driver(tmp_path, hold="after commits 2") as older:
        older.until("held")
        older.send(signal.SIGSTOP)
        older.go()
        finish("fraud", tmp_path, lanes=4)
        older.send(signal.SIGCONT)

        assert "another run owns its checkpoint" in older.outcome()
    check("fraud", tmp_path)


@pytest.mark.parametrize("newer_at", ["before commits 3", "before publish 2"])
@pytest.mark.parametrize("older_at", ["before commits 3", "before publish 2"])
def test_the_end_of_the_older_driver_takes_nothing_from_the_newer(older_at, newer_at, tmp_path):
    """What the newer has staged is not the older's to clear away, nor what both have committed."""
    with Driver(tmp_path, hold=older_at) as older:
        older.until("held")
        with Driver(tmp_path, lanes=1, hold=newer_at) as newer:
            newer.until("held")
            older.go()
            assert "another run owns its checkpoint" in older.outcome()
            newer.go()

            assert "ended" == newer.outcome(), newer.story()
    check("fraud", tmp_path)


def test_both_of_two_drivers_at_once_leave_one_output(tmp_path):
    with Driver(tmp_path) as one, Driver(tmp_path, lanes=4) as other:
        outcomes = [one.outcome(), other.outcome()]

    assert "ended" in outcomes, outcomes
    check("fraud", tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize("widths", [(1, 4, 2), (4, 1, 4), (1, 2, 2)], ids=str)
def test_a_driver_killed_while_it_rescales_goes_on_at_another_width(widths, tmp_path):
    before, during, after = widths
    # Commit 2 is of epochs 0 and 1, commit 3 of 2; what follows is at the new width.
    with Driver(tmp_path, lanes=before, rescale=[2, during], hold="before commits 4") as driver:
        driver.until("held")
        driver.kill()

    finish("fraud", tmp_path, lanes=after)


@pytest.mark.chaos
def test_a_driver_killed_after_it_rescaled_goes_on(tmp_path):
    with Driver(tmp_path, lanes=1, rows=1, rescale=[2, 4], hold="after commits 6") as driver:
        driver.until("held")
        assert "rescaled" in driver.lines, driver.story()
        driver.kill()

    finish("fraud", tmp_path, lanes=4)


# Garbage


@pytest.mark.chaos
def test_nothing_is_left_of_lives_that_were_cut_off(tmp_path):
    exchanges = []
    for moment in ("before state 4", "after state 4", "before commits 3", "before publish 3"):
        with Driver(tmp_path, hold=moment) as driver:
            said = driver.until("held", "ended")
            # Another thread says this: before or after.
            told = [line for line in driver.lines if line.startswith("exchange")]
            exchanges.append((told or [driver.until("exchange")])[0].partition(" ")[2])
            if said == "held":
                driver.kill()
    finish("fraud", tmp_path)
    finish("fraud", tmp_path)  # what the last one was still writing anew goes with the next

    exchange_directory().remove()  # a later run sweeps
    assert [] == [each for each in exchanges if Path(each).exists()]
    assert [] == [str(each) for each in (tmp_path / "ckpt").rglob(".tmp-*")]
    assert 1 == len(list((tmp_path / "ckpt" / "lease").iterdir()))
    named = {
        line for commit in (tmp_path / "ckpt" / "commits").iterdir() for line in _paths(commit)
    }
    state = {
        str(each.relative_to(tmp_path / "ckpt")) for each in _files(tmp_path / "ckpt" / "state")
    }
    assert state <= named, f"deltas that no commit names: {state - named}"


@pytest.mark.chaos
def test_no_staged_file_is_left_of_lives_that_were_cut_off(tmp_path):
    for moment in ("after state 4", "before commits 3", "before publish 3"):
        with Driver(tmp_path, hold=moment) as driver:
            if driver.until("held", "ended") == "held":
                driver.kill()
    finish("fraud", tmp_path)

    assert [] == [each.name for each in _files(tmp_path / "out" / "_staging")]


def _files(home):
    return [each for each in home.rglob("*") if each.is_file()]


def _paths(commit):
    facts = json.loads(commit.read_text().splitlines()[1])
    deltas = [path for lanes in facts["deltas"].values() for path in _values(lanes)]
    return [*deltas, *(path for some in facts.get("snapshots", {}).values() for path, _ in some)]


def _values(lanes):
    return list(lanes.values()) if isinstance(lanes, dict) else [each[-1] for each in lanes]
