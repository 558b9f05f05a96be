"""Rows between executors: what queries give, and what becomes of them when an executor dies.

Executors of one host share nothing here but the file system, as those of several hosts would.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.programs import PROGRAMS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300
WIDTHS = (1, 2, 4)
QUERIES = [f"{name} {lanes}" for name, lanes in zip(PROGRAMS, WIDTHS, strict=True)]
OTHERS = [f"{name} {lanes}" for lanes in WIDTHS for name in PROGRAMS]
OTHERS = [name for name in OTHERS if name not in QUERIES]


def run(home, scenarios):
    environment = {
        **os.environ,
        "ANABRANCH_EXCHANGE": "shuffle",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "spark" / "two_executors.py"), home, *scenarios],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE_S,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return {told["name"]: told for told in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    # An executor that dies takes with it who would remove its files: they are counted before.
    return run(tmp_path_factory.mktemp("executors"), [*QUERIES, "left", "kill noticed"])


@pytest.fixture(scope="module")
def told_of_others(tmp_path_factory):
    return run(tmp_path_factory.mktemp("others"), [*OTHERS, "rescale", "left"])


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_its_log_means(name, told):
    assert told[name]["wrong"] is None, told[name]["wrong"]


def test_nothing_is_left_of_shuffles(told):
    assert {"name": "left", "wrong": None, "found": []} == told["left"]


def test_heads_whose_executor_is_gone_are_run_again(told):
    killed = told["kill noticed"]

    assert killed["wrong"] is None, killed["wrong"]
    assert killed["found"]["remade"], "nothing was made again"


def test_what_is_made_again_is_the_same_to_the_byte_and_committed_once(told):
    found = told["kill noticed"]["found"]

    assert found["compared"], "nothing was compared"
    assert [] == found["differ"]
    assert list(range(len(found["epochs"]))) == found["epochs"]


@pytest.mark.chaos
@pytest.mark.parametrize("name", [*OTHERS, "rescale"])
def test_other_widths_and_programs_do_too(name, told_of_others):
    assert told_of_others[name]["wrong"] is None, told_of_others[name]["wrong"]
    assert [] == told_of_others["left"]["found"]


@pytest.mark.chaos
def test_a_query_goes_on_whenever_executors_die(tmp_path):
    """Also when lanes ask for rows of one that is gone before Spark has told us, or is going."""
    names = ["kill unnoticed", "kill amid", "kill noticed", "kill amid again", "fraud 2"]
    told = run(tmp_path, names)

    assert [] == [each["wrong"] for each in told.values() if each["wrong"]]
    for name in names[:-1]:
        found = told[name]["found"]
        assert [] == found["differ"]
        assert list(range(len(found["epochs"]))) == found["epochs"]
