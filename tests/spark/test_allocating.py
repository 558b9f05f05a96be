"""Executors that a query asks for, and lets go, on a real Spark; none of it shows in what it gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300


def run(home, how):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "spark" / "allocating.py"), home, how],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        timeout=PATIENCE_S,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return run(tmp_path_factory.mktemp("allocating"), "decommission")


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_begins_with_few_executors_asks_for_more_and_becomes_wider(told):
    """And in the end it gave what its log means: the process compares before it tells."""
    assert 2 == told["most"]
    assert [1, 2] == told["slots"][:2]
    assert [1, 2] == told["widths"]
    assert told["because"].endswith("for 1 lane: trying 2")


@pytest.mark.spark
@pytest.mark.slow
def test_lanes_leave_an_executor_before_it_is_sent_away_and_nothing_is_lost(told):
    first, last = told["sent"]

    assert not set(first["ids"]) & set(first["lanes"])
    assert not set(last["ids"]) & set(last["lanes"])
    assert 2 == sum(last["lanes"].values())
    assert 1 == told["slots"][-1]
    assert 0 == told["failures"]
    assert told["in order"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
def test_where_executors_cannot_go_gracefully_the_query_goes_on_all_the_same(tmp_path):
    told = run(tmp_path, "kill")

    assert [1, 2, 1] == told["slots"]
    assert 2 == len(told["sent"])
    assert told["in order"]
