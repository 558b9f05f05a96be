"""Processes of one host that die within their work, and while widths change: equal to the oracle."""

import os
import signal

import pytest

from tests.spark.held import Gate, holding
from tests.spark.on_cluster import Place, schedule, shaken, shaken_more, story

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_widths_change_while_lanes_die(spark_context, tmp_path):
    assert shaken(Place(spark_context, tmp_path), tmp_path)["epochs"] >= 10


@pytest.mark.chaos
@pytest.mark.parametrize("exchange", ["files", "shuffle"])
def test_more_widths_change_while_lanes_die(exchange, spark_context, tmp_path, monkeypatch):
    monkeypatch.setenv("ANABRANCH_EXCHANGE", exchange)

    assert shaken_more(Place(spark_context, tmp_path), tmp_path)["epochs"] >= 20


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 12))]
)
def test_widths_change_while_drivers_crash(seed, spark_context, tmp_path):
    schedule(Place(spark_context, tmp_path), tmp_path, seed)


@pytest.mark.parametrize("within", ["kernel", "sink"])
def test_a_lane_that_is_killed_within_its_work_is_done_without(within, spark_context, tmp_path):
    """Scenario 3: in the function that it runs, and when its rows are written but not told of."""
    place, gate = Place(spark_context, tmp_path), Gate(tmp_path)

    def program(at):
        return holding(gate, tmp_path, at, within=within)

    with story(place, tmp_path, 2, program=program) as told:
        told.rows()
        told.settled()
        gate.shut()
        told.rows()
        pid = place.until(gate.who, "a task that waits")
        os.kill(pid, signal.SIGKILL)
        told.settled()
        told.stop()
