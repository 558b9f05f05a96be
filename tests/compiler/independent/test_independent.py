"""No verdict on the independent corpus is unsound; most of everyday's functions are proved."""

from __future__ import annotations

import decimal
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.compiler.independent.corpus import (  # noqa: F401  (they label their functions on import)
    aliases,
    arrays,
    calls,
    columns,
    corners,
    counts,
    disguises,
    everyday,
    everyday_keyed,
    flows,
    impostors,
    kept,
    library,
    neighbours,
    objects,
    operators,
    processes,
    reaching,
    returned,
    rewritten,
    stateful,
    surroundings,
    unordered,
)
from tests.compiler.independent.labels import (
    CASES,
    RECORD,
    STRENGTH,
    Case,
    exact,
    per_process,
    rows,
)
from tests.compiler.independent.labels import State as KeyState

ALL = {case.name: case for case in CASES}
UNSAFE = [name for name, case in ALL.items() if case.is_unsafe]
COUNTED = [name for name, case in ALL.items() if case.least != "one"]
CHANGED = [name for name, case in ALL.items() if case.changed]
SAFE = [name for name, case in ALL.items() if case.is_safe]
PER_PROCESS = [name for name, case in ALL.items() if case.demo is per_process]
SHOWN = [name for name in UNSAFE if ALL[name].demo is not None and name not in PER_PROCESS]
RUN = [name for name, case in ALL.items() if not case.is_unsafe]

PROVED_AT_LEAST = 0.6


@pytest.fixture(autouse=True)
def _surroundings_as_before():
    """Functions that reach out of their process's Python leave it as it was for other tests."""
    environment, limit, seed = dict(os.environ), sys.getrecursionlimit(), random.getstate()
    with decimal.localcontext():
        yield
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.setrecursionlimit(limit)
    random.setstate(seed)


def verdict_on(case: Case) -> Any:
    from anabranch.compiler.functions.analyse import analyse

    return analyse(case.call, takes_state=case.state)


def run(case: Case) -> list[Any]:
    return rows(case.call, case.record, KeyState() if case.state else None)


def outputs_in_a_process(seed: str) -> dict[str, str]:
    script = (
        "import json; from tests.compiler.independent import test_independent as t;"
        "print(json.dumps({n: repr(t.run(t.ALL[n])) for n in t.PER_PROCESS}))"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    outputs: dict[str, str] = json.loads(done.stdout)
    return outputs


# The labels are true


@pytest.mark.parametrize("name", SHOWN)
def test_an_unsafe_function_is_seen_to_be_unsafe(name):
    case = ALL[name]

    assert case.demo is not None
    assert case.demo(case.call)


@pytest.mark.slow
def test_what_depends_on_the_process_differs_between_processes():
    one, other = outputs_in_a_process("1"), outputs_in_a_process("2")

    assert [] == [name for name in PER_PROCESS if one[name] == other[name]]


@pytest.mark.parametrize("name", COUNTED)
def test_a_count_that_must_not_be_claimed_is_seen_to_be_wrong(name):
    given = len(run(ALL[name]))

    assert given > 1 if ALL[name].least == "any" else given == 0


@pytest.mark.parametrize("name", CHANGED)
def test_a_column_that_must_not_be_forwarded_is_seen_to_change(name):
    case = ALL[name]
    given = run(case)

    assert all(
        any(column not in row or exact(row[column]) != exact(case.record[column]) for row in given)
        for column in case.changed
    )


@pytest.mark.parametrize("name", SAFE)
def test_a_safe_function_gives_the_same_again(name):
    assert repr(run(ALL[name])) == repr(run(ALL[name]))


def test_the_corpus_is_as_large_as_it_should_be():
    assert len(ALL) >= 120
    assert len(UNSAFE) >= 80
    assert len(SAFE) >= 40


# The analyser is sound on them


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_function_is_not_proved(name):
    assert not verdict_on(ALL[name]).proved


@pytest.mark.parametrize("name", COUNTED)
def test_selectivity_is_not_stronger_than_the_truth(name):
    case = ALL[name]

    assert STRENGTH.index(verdict_on(case).selectivity) >= STRENGTH.index(case.least)


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_column_is_not_forwarded(name):
    case = ALL[name]
    said = verdict_on(case).forwards.among(tuple(case.record))

    assert set() == set(case.changed) & set(said)


@pytest.mark.parametrize("name", RUN)
def test_a_verdict_agrees_with_a_run(name):
    case = ALL[name]
    verdict = verdict_on(case)
    given = run(case)
    said = verdict.forwards.among(tuple(case.record))

    assert verdict.selectivity != "one" or len(given) == 1
    assert verdict.selectivity != "at-most-one" or len(given) <= 1
    assert [] == [
        (column, row)
        for column in said
        for row in given
        if column not in row or exact(row[column]) != exact(case.record[column])
    ]


def test_most_safe_functions_are_proved():
    missed = [name for name in SAFE if not verdict_on(ALL[name]).proved]
    told = f"{len(SAFE) - len(missed)} of {len(SAFE)} proved; not: {', '.join(missed) or 'none'}"
    sys.stdout.write(told + "\n")

    assert len(missed) <= (1 - PROVED_AT_LEAST) * len(SAFE), told


def test_records_are_not_shared_between_runs():
    assert {"id": 7, "x": 3, "name": "Ann", "tags": ["a", "b"], "at": 1_700_000_000} == RECORD
