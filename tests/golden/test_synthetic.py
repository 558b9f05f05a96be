"""Graphs that do nothing but work, against the closed form of that work and Polars' running sums."""

from __future__ import annotations

import json

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from bench.workloads import disorder, synthetic

slow = pytest.mark.slow

ROWS, STEPS = 400, 7
MODULUS = 2**31
EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 90])
PROGRAMS = {
    "stateless": synthetic.stateless,
    "stateful": synthetic.stateful,
    "shuffle": synthetic.shuffle,
    "selective": lambda given, steps: synthetic.selective(given, steps=steps, every=4),
}


def tuples(count=ROWS, keys=None):
    """Tuples; `keys`: of so many keys of either kind, that those of few tuples may meet again."""
    given = synthetic.tuples(pl.int_range(count, dtype=pl.UInt64, eager=True), seed=5)
    return given if keys is None else given.with_columns(pl.col("key", "other") % keys)


def worked(value, steps):
    """So many steps of x -> a x + c at once: a ** n x + c (a ** n - 1) / (a - 1)."""
    factor = pow(1_103_515_245, steps, MODULUS)
    term = 12_345 * sum(pow(1_103_515_245, at, MODULUS) for at in range(steps)) % MODULUS
    return (value * factor + term) % MODULUS


def running(key, steps):
    return worked(pl.col("value"), steps).cum_sum().over(key) % MODULUS


def expected(name, given, steps=STEPS):
    """By plain Polars over all tuples, in order."""
    match name:
        case "stateless":
            return given.with_columns(worked(pl.col("value"), steps))
        case "stateful":
            return given.with_columns(value=running("key", steps))
        case "shuffle":
            once = given.with_columns(value=running("key", steps))
            return once.with_columns(value=running("other", steps))
        case "selective":
            return given[::4].with_columns(worked(pl.col("value"), steps))


def regions(name):
    """What the compiler says, and of it each operator's region."""
    facts = json.loads(PROGRAMS[name](synthetic.source(0), steps=STEPS).explain("json"))
    return facts, {each: region for region in facts["regions"] for each in region["operators"]}


def joints(facts):
    return [each["kind"] for each in facts["joints"]]


def test_work_is_its_closed_form():
    for steps in (0, 1, 2, 100, 1_000):
        assert worked(271_828, steps) == synthetic.worked(271_828, steps)


@pytest.mark.parametrize("name", PROGRAMS)
@EPOCHS
def test_a_graph_gives_what_polars_does(name, epoch_rows):
    given = tuples(keys=20)
    program = PROGRAMS[name](ab.sources.Records(given), steps=STEPS)

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    assert_frame_equal(expected(name, given), pl.DataFrame(found, given.schema))


@pytest.mark.parametrize("name", ["stateful", "shuffle"])
def test_tuples_in_another_order_give_something_else(name):
    """The order in which they come is what counts: there is no event time."""
    given = disorder.block_shuffle(tuples(keys=20), 50)
    program = PROGRAMS[name](ab.sources.Records(given), steps=STEPS)

    found = pl.DataFrame(ab.testing.run_sequential(program)["out"], given.schema)

    assert_frame_equal(expected(name, given), found)
    assert not found.sort("n").equals(expected(name, tuples(keys=20)))


@slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_width_gives_the_same(name):
    program = PROGRAMS[name](ab.sources.Records(tuples(200, keys=20)), steps=STEPS)

    ab.testing.assert_same_as_sequential(program, widths=(1, 3), rescale_at={2: 2}, crash_at=[1])


@slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_resident_program_gives_the_same(name):
    program = PROGRAMS[name](synthetic.source(200, seed=5), steps=STEPS)

    ab.testing.assert_same_as_sequential(program, trigger=ab.continuous())


def test_without_state_tuples_are_put_in_order_by_turns():
    """The paper: the least expensive strategy, as each tuple gives one."""
    facts, region = regions("stateless")

    assert (True, "round-robin", "round-robin") == (
        region["work"]["parallel"],
        region["work"]["routing"],
        region["work"]["ordering"],
    )
    assert ["parallel-source", "merge"] == joints(facts)


def test_a_state_by_key_is_parallel_by_that_key():
    """The paper: sequence numbers. Pulses it does without: each tuple is proved to give one."""
    facts, region = regions("stateful")

    found = region["aggregate"]
    assert (True, ["key"], "hash") == (found["parallel"], found["key"], found["routing"])
    assert "sequence" == found["ordering"]
    assert ["parallel-source", "shuffle", "merge"] == joints(facts)


def test_between_two_keys_there_is_a_shuffle():
    facts, region = regions("shuffle")

    assert (["key"], ["other"]) == (region["aggregate"]["key"], region["other"]["key"])
    assert region["aggregate"]["parallel"]
    assert region["other"]["parallel"]
    assert ["parallel-source", "shuffle", "shuffle", "merge"] == joints(facts)


def test_where_tuples_are_dropped_pulses_tell_how_far_a_channel_is():
    _, region = regions("selective")

    assert region["filter"] is region["work"]
    assert (True, "sequence+pulses") == (region["work"]["parallel"], region["work"]["ordering"])


def test_keys_come_in_turns_and_any_part_is_made_alone():
    whole = tuples(3_000)

    assert [n % 1024 for n in range(3_000)] == whole["key"].to_list()
    assert whole["other"].is_between(0, 1023).all()
    assert whole["value"].is_between(0, MODULUS - 1).all()
    part = synthetic.tuples(pl.Series([2_990, 17], dtype=pl.UInt64), seed=5)
    assert_frame_equal(whole[[2_990, 17]], part)
