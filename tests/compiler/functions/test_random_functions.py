"""Functions written at random: whatever is said of one is so when it runs."""

import copy
import linecache

import pytest

from anabranch.compiler.functions.analyse import analyse
from tests.compiler.functions.random_functions import OUTSIDE, written_at_random

RECORDS = (
    {"a": 1, "b": "x", "c": True, "t": [1, 2]},
    {"a": [7], "b": None, "c": False, "t": []},
    {"a": "k", "b": 2.5, "c": 1, "t": [[3]]},
)
BATCH = 100


def made(seed):
    """A function of which the source is known, and its globals."""
    text, name = OUTSIDE + written_at_random(seed), f"<random function {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    home = {"__name__": "random_functions"}
    exec(compile(text, name, "exec", dont_inherit=True), home)
    return home["f"], home, text


def given(function, record):
    """The rows of a record, their values as text when they are given; None where it raises."""
    try:
        found = function(copy.deepcopy(record))
        return [_text(row) for row in ([found] if isinstance(found, dict) else found or ())]
    except Exception:
        return None


def _text(row):
    # As text, since what a function has put into itself cannot be compared.
    return {name: repr(value) for name, value in row.items()}


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(10))
def test_what_is_said_is_so(batch):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        function, home, text = made(seed)
        verdict = analyse(function)
        told = f"seed {seed}: {verdict}\n{text[len(OUTSIDE) :]}"
        assert not any("could not be looked" in reason.text for reason in verdict.reasons), told
        outside = repr([home["SEEN"], home["TABLE"]])
        for record in RECORDS:
            rows = given(function, record)
            if verdict.proved:
                assert outside == repr([home["SEEN"], home["TABLE"]]), told
                assert rows == given(function, record), told
            if rows is not None and verdict.proved:
                check_rows(verdict, record, rows, told)


def check_rows(verdict, record, rows, told):
    if verdict.selectivity == "one":
        assert len(rows) == 1, told
    if verdict.selectivity == "at-most-one":
        assert len(rows) <= 1, told
    for row in rows:
        for column in verdict.forwards.among(record):
            assert column in row, told
            assert repr(record[column]) == row[column], told


def test_enough_of_them_are_proved_and_forward_something():
    verdicts = [analyse(made(seed)[0]) for seed in range(300)]
    proved = [each for each in verdicts if each.proved]

    assert len(proved) >= 60
    assert sum(bool(each.forwards.among(RECORDS[0])) for each in proved) >= 25
