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
PATIENCE_S = 900
WIDTHS = (1, 2, 4)
QUERIES = [f"{name} {lanes}" for name, lanes in zip(PROGRAMS, WIDTHS, strict=True)]
OTHERS = [f"{name} {lanes}" for lanes in WIDTHS for name in PROGRAMS]
OTHERS = [name for name in OTHERS if name not in QUERIES]
RESCALE = "rescale 3 1"
AMID = ("amid before", "amid after")
"""An executor dies while the width changes: before it holds, and right after that."""


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
    names = [*QUERIES, RESCALE, "left", "kill noticed", *AMID]
    return run(tmp_path_factory.mktemp("executors"), names)


@pytest.fixture(scope="module")
def told_of_others(tmp_path_factory):
    return run(tmp_path_factory.mktemp("others"), [*OTHERS, "rescale 2 4 1", "left"])


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


def test_lanes_come_and_go_while_rows_come_in(told):
    assert told[RESCALE]["wrong"] is None, told[RESCALE]["wrong"]
    found = told[RESCALE]["found"]

    assert [[1, 3], [3, 1]] == found["widths"], "nothing was drained"
    assert 2 == found["replicas"], "once for each change of width"
    assert 1 == found["plans"], "what nobody needs is not kept"
    assert list(range(len(found["epochs"]))) == found["epochs"]


@pytest.mark.parametrize("name", AMID)
def test_the_width_changes_though_an_executor_dies(name, told):
    assert told[name]["wrong"] is None, told[name]["wrong"]
    found = told[name]["found"]

    # Whether rows are on their way at the change is a matter of when Spark sees who is dead; those
    # that are go to lanes of the new width, or of the same one, and never back.
    assert [each for each in found["widths"] if each not in ([1, 1], [1, 2], [2, 2])] == []
    assert 1 == found["plans"]
    assert list(range(len(found["epochs"]))) == found["epochs"]


def test_what_is_lost_after_a_change_is_made_again_as_it_was(told):
    assert told["amid after"]["found"]["remade"], "nothing was made by the plan of its time"


@pytest.mark.chaos
@pytest.mark.parametrize("name", [*OTHERS, "rescale 2 4 1"])
def test_other_widths_and_programs_do_too(name, told_of_others):
    assert told_of_others[name]["wrong"] is None, told_of_others[name]["wrong"]
    assert [] == told_of_others["left"]["found"]


@pytest.mark.chaos
def test_a_query_goes_on_whenever_executors_die(tmp_path):
    """Also when lanes ask for rows of one that is gone before Spark has told us, or is going."""
    names = ["kill unnoticed", "kill amid", "kill noticed", "kill amid again"]
    told = run(tmp_path, [*names, "amid start", "amid unnoticed", "fraud 2"])

    assert [] == [each["wrong"] for each in told.values() if each["wrong"]]
    for name in names:
        found = told[name]["found"]
        assert [] == found["differ"]
        assert list(range(len(found["epochs"]))) == found["epochs"]
