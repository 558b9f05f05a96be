"""What is said of the proved functions of the corpus is so when they run."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.compiler.functions.analyse import analyse
from tests.compiler.functions.corpus.running import outputs, proved, records, told

ROOT = Path(__file__).resolve().parents[3]
SEED = 7


def shuffled_by_key(rows, seed):
    """Another order of all records that leaves each key's as it was."""
    keys = [row["user"] for row in rows]
    random.Random(seed).shuffle(keys)
    waiting = {key: iter([row for row in rows if row["user"] == key]) for key in set(keys)}
    return [next(waiting[key]) for key in keys]


@pytest.mark.parametrize("case", proved(), ids=str)
def test_order_of_the_others_does_not_matter(case):
    rows = records(SEED)

    first = outputs(case, rows)

    assert any(each and not isinstance(each, str) for each in first.values()) or case.name in (
        "returns_nothing",
        "returns_empty_list",
        "delegates_used_up",
        "returns_inner_generator",
        "operator_with_timer",
    )
    for seed in range(3):
        assert first == outputs(case, shuffled_by_key(rows, seed))
    if not case.state:
        assert first == outputs(case, rows[::-1])


@pytest.mark.parametrize("case", proved(), ids=str)
def test_rows_are_as_many_and_have_the_columns_that_was_said(case):
    verdict = analyse(case.call, takes_state=case.state)
    rows = records(SEED)

    for row in rows:
        found = outputs(case, rows)[row["id"]]
        if isinstance(found, str) or verdict.selectivity == "unknown":
            continue
        if verdict.selectivity == "one":
            assert len(found) == 1
        if verdict.selectivity == "at-most-one":
            assert len(found) <= 1
        for column in verdict.forwards.among(row):
            assert [row[column]] * len(found) == [each.get(column) for each in found]


def test_other_process_with_other_hashes_gives_the_same():
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.compiler.functions.corpus.running", str(SEED)]

    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=True)

    assert told(SEED) == json.loads(done.stdout)
