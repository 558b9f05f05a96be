"""Patterns match where they match in the sequential run, and keep only what may still match."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.keyed.pattern import MatchKernel
from tests.kernels.keyed_cases import assert_as_sequential, by, logs, sources


def is_odd(record):
    return (record["n"] or 0) % 2


def fails_at_times(record):
    record["s"] = "never seen"
    if record["n"] == 3:
        raise ValueError(3)
    return record["n"] != 5


PREDICATES = [
    pl.col("s") == "x",
    pl.col("s") == "y",
    pl.col("n") > 2,
    pl.lit(value=True),
    pl.col("n").is_null() | (pl.col("n") < 4),
    is_odd,
]


def steps(predicates):
    step = st.tuples(st.sampled_from(predicates), st.integers(1, 3))
    return st.lists(step, min_size=1, max_size=3).map(
        lambda found: [ab.step(f"s{at}", one, times) for at, (one, times) in enumerate(found)]
    )


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_matches_are_those_of_the_sequential_run(data):
    program, stream = data.draw(sources())
    matches = stream.key_by(*data.draw(by)).match(
        data.draw(steps(PREDICATES)),
        within=data.draw(st.sampled_from(["1 ms", "5 ms", "20 ms", "1 h"])),
        skip=data.draw(st.booleans()),
    )
    matches.write(ab.sinks.Memory("out"))

    assert_as_sequential(program, data.draw(logs(program)), MatchKernel.of)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_record_whose_predicate_fails_is_left_out_of_all_runs(data):
    program, stream = data.draw(sources())
    strict = pl.col("s").replace_strict({"x": True, "y": False})
    matches = stream.key_by(*data.draw(by)).match(
        data.draw(steps([fails_at_times, strict, pl.col("n") > 2])),
        within="20 ms",
        skip=data.draw(st.booleans()),
        on_error="dead_letter",
    )
    matches.write(ab.sinks.Memory("out"))
    matches.dead_letters.write(ab.sinks.Memory("letters"), name="letters")

    assert_as_sequential(program, data.draw(logs(program)), MatchKernel.of)
