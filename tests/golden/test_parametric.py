"""Parametric operators against what they give in closed form.

(1 + J) ** n = 1 + ((1 + d) ** n - 1) / d * J for the matrix J of d x d ones, since J * J = d * J.
A fold of x[0] .. x[n] is the sum of x[i] * 31 ** (n - i).
"""

from __future__ import annotations

import itertools
import json
from statistics import NormalDist

import polars as pl
import pytest

import anabranch as ab
from bench.workloads import disorder, parametric
from bench.workloads.parametric import Knobs

PRIME = 2147483647
TUPLES, RATE, KEYS = 150, 100, 7

PIPELINES = {
    "stateless": [Knobs("stateless", work=9)],
    "keyed": [Knobs("keyed", work=2, held=3)],
    "whole": [Knobs("whole", held=5)],
    "one after the other": [
        Knobs("stateless", work=3),
        Knobs("keyed", work=2),
        Knobs("keyed", work=1, held=4),
        Knobs("whole", work=2, held=2),
    ],
    "many for one": parametric.high_selectivity(2),
    "several of those with state": [
        Knobs("keyed", gives=3, held=2),
        Knobs("whole", work=0, gives=2),
        Knobs("keyed", work=2),
    ],
}
ALL = pytest.mark.parametrize("name", PIPELINES)
DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 30),
    "uniform delay": lambda frame: delayed(frame, "uniform"),
    "zipf delay": lambda frame: delayed(frame, "zipf"),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=30, share=0.4, seed=1),
    "early": lambda frame: disorder.early(frame, by=20, share=0.3, seed=1),
}


def delayed(frame, kind):
    return disorder.delayed(frame, bound_ms=300, seed=1, kind=kind, time="time")


def tuples(count=TUPLES, **more):
    numbers = pl.int_range(count, dtype=pl.UInt64, eager=True)
    return parametric.tuples(numbers, **{"rate": RATE, "seed": 5, "keys": KEYS} | more)


def enough(name):
    """Fewer tuples where each becomes fifty."""
    return tuples(25 if name == "many for one" else TUPLES)


def program(given, operators, **more):
    return parametric.pipeline(ab.sources.Records(given), operators, keys=KEYS, **more)


def run(given, operators, epoch_rows=None, **more):
    made = program(given, operators, **more)
    found = ab.testing.run_sequential(made, epoch_rows=epoch_rows)["out"]
    return [tuple(row.values()) for row in found]


# In closed form


def product(values, work):
    size = len(values)
    onward = sum(values) * (pow(1 + size, work, PRIME) - 1) * pow(size, -1, PRIME)
    return [(value + onward) % PRIME for value in values]


def expected(given, operators):
    rows = given.rows()
    for knobs in operators:
        made = [(number, at, key, product(values, knobs.work)) for number, at, key, values in rows]
        if knobs.kind != "stateless":
            made = folded(made, knobs)
        rows = [
            (number, at, key, values)
            if knobs.gives == 1
            else (number * knobs.gives + n, at, (key + n) % KEYS, values)
            for number, at, key, values in made
            for n in range(knobs.gives)
        ]
    return rows


def folded(rows, knobs):
    """Every row's own tuples are those of its key, or all, up to it."""
    found = []
    for place, (number, at, key, values) in enumerate(rows):
        firsts = [row[3][0] for row in rows[: place + 1] if knobs.kind == "whole" or row[2] == key]
        powers = (pow(31, n, PRIME) for n in itertools.count())
        fold = sum(x * power for x, power in zip(reversed(firsts), powers, strict=False)) % PRIME
        before = firsts[-1 - knobs.held] if len(firsts) > knobs.held else 0
        found.append((number, at, key, [fold, *values[1:-1], (values[-1] + before) % PRIME]))
    return found


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("epoch_rows", [None, 20])
def test_a_pipeline_gives_its_closed_form(name, epoch_rows):
    given, operators = enough(name), PIPELINES[name]

    assert expected(given, operators) == run(given, operators, epoch_rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISORDERS)
@pytest.mark.parametrize("name", ["one after the other", "several of those with state"])
def test_in_order_of_time_disorder_does_not_show(name, kind):
    given, operators = tuples(), PIPELINES[name]

    found = run(DISORDERS[kind](given), operators, 40, lateness="300 ms")

    assert expected(given, operators) == found


@pytest.mark.slow
@ALL
def test_as_they_come_tuples_give_the_closed_form_of_their_order(name):
    given, operators = DISORDERS["uniform delay"](enough(name)), PIPELINES[name]

    assert expected(given, operators) == run(given, operators, 20)


@pytest.mark.slow
@ALL
def test_any_width_gives_the_same(name):
    given = DISORDERS["uniform delay"](tuples(60, sigma=0.3))

    ab.testing.assert_same_as_sequential(program(given, PIPELINES[name]), rescale_at={1: 3})


@pytest.mark.slow
@pytest.mark.parametrize("trigger", [None, ab.continuous()])
def test_a_crash_does_not_show(trigger):
    given = DISORDERS["uniform delay"](tuples(60))
    made = program(given, PIPELINES["one after the other"], lateness="300 ms")

    ab.testing.assert_same_as_sequential(made, crash_at=[2, "after commit"], trigger=trigger)


def test_swapping_two_tuples_of_a_key_changes_the_output():
    given = tuples(40)
    key = given["key"][0]
    one, two, *_ = given.with_row_index("at").filter(key=key)["at"]
    order = list(range(40))
    order[one], order[two] = two, one
    values = [row[3] for row in run(given, PIPELINES["keyed"]) if row[2] == key]
    swapped = [row[3] for row in run(given[order], PIPELINES["keyed"]) if row[2] == key]

    assert len(values) == len(swapped) > 2
    assert all(was[0] != now[0] for was, now in zip(values, swapped, strict=True))


# What the compiler makes of them


def regions(operators):
    told = json.loads(program(tuples(1), operators).explain(format="json"))
    return [(each["operators"], each["parallel"]) for each in told["regions"]]


def test_only_what_is_of_one_state_is_sequential():
    assert [
        (["tuples", "stateless-1"], True),
        (["keyed-2", "keyed-3"], True),
        (["whole-4", "out"], False),
    ] == regions(PIPELINES["one after the other"])


def test_many_for_one_are_divided_anew():
    assert [
        (["tuples", "stateless-1"], True),
        (["keyed-2"], True),
        (["out"], False),
    ] == regions(PIPELINES["many for one"])


# Knobs


@pytest.mark.parametrize("wrong", [{"work": -1}, {"gives": 0}, {"held": 0}])
def test_no_operator_is_otherwise(wrong):
    with pytest.raises(ValueError, match=r"^no operator is like this: Knobs\(kind='keyed', .*\)$"):
        Knobs("keyed", **wrong)


def test_work_is_as_much_as_takes_so_long():
    """A thousand products took 4 ms, and 2 ms in the second trial: so 500 take 1 ms."""
    readings = iter([0.0, 0.004, 1.0, 1.002, 2.0, 2.004, 3.0, 3.004, 4.0, 4.004])

    assert 500 == parametric.work_in(1e-3, clock=lambda: next(readings))


def test_work_is_at_least_one_product():
    readings = itertools.count()

    assert 1 == parametric.work_in(1e-6, clock=lambda: next(readings))


# Tuples


def test_uniform_keys_are_equally_frequent():
    counts = tuples(14_000)["key"].value_counts()

    assert list(range(KEYS)) == sorted(counts["key"])
    assert all(2_000 == pytest.approx(count, rel=0.1) for count in counts["count"])


@pytest.mark.parametrize("sigma", [0.2, 0.5, 2.0])
def test_skewed_keys_are_ranges_of_a_normal_distribution(sigma):
    """Of what is between -1 and 1."""
    normal, edges = NormalDist(0, sigma), [-1 + 2 * n / KEYS for n in range(KEYS + 1)]
    inside = normal.cdf(1) - normal.cdf(-1)
    shares = [(normal.cdf(b) - normal.cdf(a)) / inside for a, b in itertools.pairwise(edges)]
    keys = tuples(20_000, sigma=sigma)["key"]

    assert shares == pytest.approx([(keys == key).mean() for key in range(KEYS)], abs=0.012)


@pytest.mark.parametrize("size", [2, 9])
def test_tuples_have_as_many_values_as_are_asked_for(size):
    values = tuples(50, size=size)["values"]

    assert {size} == set(values.list.len())
    assert values.explode().is_between(0, PRIME - 1).all()


def test_a_tuple_of_one_value_is_refused():
    with pytest.raises(ValueError, match=r"^a tuple needs two values or more, got 1$"):
        tuples(1, size=1)


def test_the_generator_source_gives_the_tuples():
    made = ab.Program("tuples")
    made.read(parametric.source(20, rate=RATE, seed=5, sigma=0.3)).write(ab.sinks.Memory("out"))
    numbers = pl.int_range(20, dtype=pl.UInt64, eager=True)

    wanted = parametric.tuples(numbers, rate=RATE, seed=5, sigma=0.3).rows(named=True)
    assert wanted == ab.testing.run_sequential(made)["out"]
