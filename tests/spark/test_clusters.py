"""Queries on clusters whose executors come and go, and whose width changes meanwhile.

What scenarios do is in on_cluster.py; here is what they are asked for, each in a process that has the
Spark, and ends with it.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.standalone import end_all

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
PATIENCE_S = 3000
"""What takes longer is taken to hang; each step within has a patience of its own."""
CRASHES = [f"schedule {seed}" for seed in range(6)]


def run(home, kind, scenarios, exchange="auto"):
    """What is told of each scenario; whatever happens, nothing of their Spark is left."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "spark" / "on_cluster.py"), kind, home, *scenarios],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "ANABRANCH_EXCHANGE": exchange,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        },
        process_group=0,
    )
    try:
        told, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        end_all(home / "cluster")
    assert 0 == process.returncode, errors
    return {each["name"]: each for each in map(json.loads, told.splitlines())}


def right(told, *names):
    for name in names:
        assert told[name]["wrong"] is None, told[name]["wrong"]
    return told


@pytest.fixture(scope="module")
def on_local_cluster(tmp_path_factory):
    return run(tmp_path_factory.mktemp("local"), LOCAL_CLUSTER, ["shaken", CRASHES[0]])


def test_a_query_goes_on_though_nodes_join_leave_die_and_are_decommissioned(tmp_path):
    """Scenarios 17 and 26, on a standalone master; the node that joins is used."""
    told = right(run(tmp_path, "standalone", ["members"]), "members")

    assert told["members"]["found"]["epochs"] >= 20


def test_widths_change_on_two_executors_while_lanes_die(on_local_cluster):
    right(on_local_cluster, "shaken")


def test_widths_change_on_two_executors_while_drivers_crash(on_local_cluster):
    right(on_local_cluster, CRASHES[0])


@pytest.mark.chaos
def test_widths_change_while_nodes_die_and_zombies_wake_up(tmp_path):
    """Scenarios 7 and 17: what a task writes when its place is taken counts for nothing."""
    told = right(run(tmp_path, "standalone", ["zombie", "amid"]), "zombie", "amid")

    assert told["zombie"]["found"]["late"], "it wrote nothing: nothing was proved"


@pytest.mark.chaos
def test_nodes_come_and_go_where_rows_go_through_the_shuffle(tmp_path):
    right(run(tmp_path, "standalone", ["members", "amid"], exchange="shuffle"), "members", "amid")


@pytest.mark.chaos
@pytest.mark.parametrize("kind", [LOCAL_CLUSTER, "standalone"])
@pytest.mark.parametrize("exchange", ["files", "shuffle"])
def test_widths_change_on_clusters_in_many_more_ways(kind, exchange, tmp_path):
    names = ["shaken-more", *CRASHES]

    right(run(tmp_path, kind, names, exchange), *names)
