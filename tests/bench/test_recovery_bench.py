"""What the recovery bench takes for healed, without Spark: commits are written down by hand."""

import polars as pl
import pytest

from bench.recovery import driver
from bench.recovery.patient import Commit, Healed, Patient

BEGUN, RATE, KEYS = 1000.0, 100.0, 50


class Told(Patient):
    """A patient whose commits are given: (when, how many rows were waiting then)."""

    def __init__(self, commits):
        options = {"keys": KEYS, "rate": RATE, "begun": BEGUN}
        super().__init__(options, None)
        self.commits = iter(commits)

    def commit(self):
        at, lag = next(self.commits)
        return Commit(at, self.arriving.arrived(at) - lag, (1, 2))


def test_rows_come_by_the_clock_behind_the_first_of_each_key():
    source = driver.Arriving(KEYS, RATE, BEGUN)

    assert [50, 50, 250] == [source.arrived(at) for at in (BEGUN - 5, BEGUN, BEGUN + 2)]
    (batch,) = source.read((48, 53))
    assert [48, 49, 0, 1, 2] == batch.column("k").to_pylist()


def test_what_was_on_its_way_at_the_fault_is_no_recovery():
    """At 1010 s there are 1050 rows; the commits at 1010.1 and 1010.2 hold none that came after."""
    patient = Told(
        [(1009.9, 5), (1010.1, 11), (1010.2, 20), (1011.5, 90), (1012.0, 30), (1012.2, 9)]
    )

    assert Healed(pytest.approx(1.5), pytest.approx(2.2)) == patient.heal(1010.0, usual=10)


def test_the_usual_lag_is_the_worst_once_it_is_steady():
    falling = [(1001.0 + at, 1000 - 10 * at) for at in range(60)]
    steady = [(1100.0 + at, 10 + at % 3) for at in range(30)]

    assert 12 == Told([*falling, *steady]).usual_lag()


@pytest.mark.parametrize("counts", [[1, 2, 4], [1, 1, 2], [2, 3]])
def test_a_count_that_is_lost_or_twice_is_noticed(counts, tmp_path):
    (tmp_path / "out").mkdir()
    pl.DataFrame({"k": [3, 3], "n": [1, 2]}).write_parquet(tmp_path / "out" / "part-0.parquet")
    driver.check(tmp_path)
    wrong = pl.DataFrame({"k": [7] * len(counts), "n": counts})
    wrong.write_parquet(tmp_path / "out" / "part-1.parquet")

    with pytest.raises(AssertionError, match="key 7"):
        driver.check(tmp_path)
