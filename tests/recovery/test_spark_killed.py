"""Processes of a real Spark that are killed under a living driver: it goes on, or says why not.

That a driver on Spark goes on where it was killed is shown every time by test_bank.
"""

import pytest

from tests.recovery.processes import Driver, kill
from tests.recovery.test_driver_killed import check, finish

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARK = {"master": "local[2]", "lanes": 2, "rows": 3}


@pytest.mark.chaos
def test_a_killed_driver_on_spark_goes_on_where_it_was(tmp_path):
    with Driver(tmp_path, **SPARK, hold="after commits 4") as driver:
        driver.until("held")
        driver.kill()
    # In mid-cycle, of a run that took over planned epochs.
    with Driver(tmp_path, **SPARK, hold="before commits 3") as driver:
        driver.until("held")
        driver.kill()

    finish("fraud", tmp_path, lanes=1)  # what is committed is enough for any other executor


@pytest.mark.chaos
@pytest.mark.parametrize("moment", ["after epochs 3", "before publish 1", "after published 1"])
def test_a_killed_driver_on_spark_goes_on_from_other_moments(moment, tmp_path):
    with Driver(tmp_path, **SPARK, hold=moment) as driver:
        driver.until("held")
        driver.kill()

    finish("fraud", tmp_path, **SPARK)


def test_a_query_goes_on_though_its_workers_are_killed(tmp_path):
    """Between two cycles, and (the job of the next cycle runs while a commit is held) in one."""
    with Driver(tmp_path, **SPARK, hold="after commits 3") as driver:
        driver.until("held")
        lanes, heads = driver.workers("ANABRANCH_LANE"), driver.workers("ANABRANCH_HEAD")
        assert len(lanes) >= 2, driver.story()
        assert heads, driver.story()
        kill(lanes[0], heads[0])
        driver.go()

        assert "ended" == driver.outcome(), driver.story()
    check("fraud", tmp_path)


@pytest.mark.chaos
def test_a_query_goes_on_though_all_daemons_and_workers_are_killed(tmp_path):
    with Driver(tmp_path, **SPARK, hold="after commits 3") as driver:
        driver.until("held")
        daemons = driver.children("anabranch.spark.daemon")
        workers = driver.workers("ANABRANCH_LANE") + driver.workers("ANABRANCH_HEAD")
        assert len(daemons) >= 3, driver.story()
        assert len(workers) >= 3, driver.story()
        kill(*daemons, *workers)
        driver.go()

        assert "ended" == driver.outcome(), driver.story()
    check("fraud", tmp_path)


def test_a_query_whose_jvm_is_killed_fails_and_says_so(tmp_path):
    with Driver(tmp_path, **SPARK, hold="after commits 3") as driver:
        driver.until("held")
        jvm = driver.children("PythonGatewayServer")
        assert jvm, driver.story()
        kill(*jvm)
        driver.go()
        told = driver.outcome()

    assert told.startswith(("RunError", "AnabranchError")), told
    assert "JVM" in told or "Spark" in told, told
    finish("fraud", tmp_path)


@pytest.mark.chaos
def test_an_executor_that_is_killed_is_replaced_or_missed_clearly(tmp_path):
    options = {**SPARK, "master": "local-cluster[2,1,1024]"}
    with Driver(tmp_path, **options, hold="after commits 3") as driver:
        driver.until("held")
        executors = driver.children("CoarseGrainedExecutorBackend")
        assert len(executors) >= 2, driver.story()
        kill(executors[0])
        driver.go()
        told = driver.outcome()

    print(told)  # noqa: T201 - shown on failure
    assert told == "ended" or told.startswith("RunError"), told
    finish("fraud", tmp_path)


@pytest.mark.chaos
def test_the_older_of_two_drivers_on_spark_is_fenced(tmp_path):
    with Driver(tmp_path, **SPARK, hold="before commits 3") as older:
        older.until("held")
        finish("fraud", tmp_path)
        older.go()

        assert "another run owns its checkpoint" in older.outcome()
    check("fraud", tmp_path)
