"""Transfers under seeded crashes, failures and changes of width: the balances always add up to 0.

Scenario 28 of the reliability notes (internal consistency), and invariants I1 to I5: each visible
epoch is right by itself, and all of them together are what the program means on its log.
"""

import random
from dataclasses import dataclass

import polars as pl
import pytest

import anabranch as ab
from anabranch.testing import assert_same_rows, run_sequential
from tests.recovery import schedules
from tests.recovery.bank import (
    ACCOUNTS,
    TRANSFERS,
    assert_no_money_is_made,
    bank,
    epochs,
    transfers,
)
from tests.recovery.driver import program as driver_program
from tests.recovery.processes import Driver, kill
from tests.recovery.schedules import ExplodingSink, Schedule, run_schedule
from tests.recovery.test_schedules import nothing_lost
from tests.runtime.test_inline import written

COUNT = 60


@dataclass(frozen=True)
class BankSchedule(Schedule):
    """A seed's schedule for the bank: its totals go through the same crashes as its balances."""

    @classmethod
    def of(cls, seed):
        drawn = Schedule.of(seed)
        partitions = random.Random(seed).choice((1, 2, 3))
        return cls(seed, "bank", COUNT, partitions, True, drawn.slices, drawn.lives)

    def __str__(self):
        return super().__str__().replace("test_schedules", "test_bank")

    def program(self, tmp_path, sink=None):
        source = ab.sources.Records(
            transfers(self.count), schema=TRANSFERS, partitions=self.partitions
        )
        files, totals = (
            ab.sinks.Files(tmp_path / name, format="parquet") for name in ("out", "totals")
        )
        if sink is not None:
            totals = ExplodingSink(totals, sink._bomb)
        return bank(source, sink or files, totals=totals)


def check(seed, tmp_path, monkeypatch):
    schedule = BankSchedule.of(seed)
    step, looks = schedules._steps, []

    def steps(loop, life, executor):
        """A reader looks after every step, in the middle of whatever is going on."""
        done = loop.step

        def look():
            found = done()
            assert_no_money_is_made(tmp_path / "out")
            looks.append(len(epochs(tmp_path / "out")))
            return found

        loop.step = look
        return step(loop, life, executor)

    monkeypatch.setattr(schedules, "_steps", steps)
    try:
        run_schedule(schedule, tmp_path, monkeypatch)
        monkeypatch.undo()
        program, checkpoint = schedule.program(tmp_path), tmp_path / "ckpt"
        nothing_lost(schedule, program, checkpoint)
        expected = run_sequential(program, log=checkpoint)
        assert_same_rows(expected["out"], written(tmp_path / "out"))
        assert_same_rows(expected["totals"], written(tmp_path / "totals"))
        assert ACCOUNTS == len(assert_no_money_is_made(tmp_path / "out"))
        ends = [rows[-1]["total"] for rows in epochs(tmp_path / "totals").values()]
        assert [0] * len(ends) == ends
        assert looks == sorted(looks), "what was visible is visible no more"
    except Exception as error:
        error.add_note(str(schedule))
        raise
    return len(looks)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_balances_add_up_in_every_epoch_whatever_happens(seed, tmp_path, monkeypatch):
    assert check(seed, tmp_path, monkeypatch)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(12, 100))
def test_they_do_in_many_more_schedules(seed, tmp_path, monkeypatch):
    assert check(seed, tmp_path, monkeypatch)


def test_an_epoch_that_shows_one_side_of_a_transfer_is_noticed(tmp_path):
    """What the check above is worth: a file of one side more, and it fails."""
    pl.DataFrame({"account": [1, 2], "balance": [5, -5]}).write_parquet(
        tmp_path / "part-0000000000-00000.parquet"
    )
    assert_no_money_is_made(tmp_path)
    pl.DataFrame({"account": [1], "balance": [7]}).write_parquet(
        tmp_path / "part-0000000001-00000.parquet"
    )
    with pytest.raises(AssertionError, match="after epoch 1"):
        assert_no_money_is_made(tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_balances_add_up_though_a_lane_and_then_the_driver_are_killed(tmp_path):
    spark = {"master": "local[2]", "rows": 3}
    with Driver(tmp_path, "bank", **spark, lanes=2, hold="after commits 3") as driver:
        driver.until("held")
        lanes = driver.workers("ANABRANCH_LANE")
        assert lanes, driver.story()
        kill(lanes[0])
        driver.go()
        # Three more commits, of which the first needs the state that died with the lane.
        driver.until("after commits 6")
        driver.kill()
    before = assert_no_money_is_made(tmp_path / "out")
    assert before
    with Driver(tmp_path, "bank", **spark, lanes=1) as driver:
        assert "ended" == driver.outcome(), driver.story()

    assert ACCOUNTS == len(assert_no_money_is_made(tmp_path / "out"))
    expected = run_sequential(driver_program("bank", tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))
