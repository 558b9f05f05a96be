"""Graphs of operators that do nothing but work: so many multiplications a tuple.

After the scalability benchmarks of Schneider et al., "Auto-Parallelizing Stateful Distributed
Streaming Applications" (PACT 2012), figures 6, 8 and 10: one operator without state (`stateless`),
one with state by key (`stateful`), two of those one behind the other with different keys
(`shuffle`), and an operator that works on one of so many tuples (`selective`). Keys come in turns,
which is not said there. `./x bench scale` has the first three in virtual time.

Work is arithmetic: of a function that waits or asks for the time nobody can prove that it may run
in parallel, so it would not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import anabranch as ab
from bench.workloads import mixer

if TYPE_CHECKING:
    from bench.workloads.state import State

KEYS = 1024
FACTOR, TERM, MODULUS = 1_103_515_245, 12_345, 2_147_483_648
"""What a value is multiplied with, what is added, and what it is then reduced by."""

TUPLES = pl.Schema({"n": pl.Int64(), "key": pl.Int64(), "other": pl.Int64(), "value": pl.Int64()})


def tuples(numbers: pl.Series, *, seed: int = 0) -> pl.DataFrame:
    """The tuples of these sequence numbers: `key` in turns, `other` and `value` at random.

    >>> tuples(pl.Series([0, 1, 1024]))["key"].to_list()
    [0, 1, 0]
    """
    i = numbers.to_numpy().astype(np.uint64)
    return pl.DataFrame(
        {
            "n": i.astype(np.int64),
            "key": (i % np.uint64(KEYS)).astype(np.int64),
            "other": mixer.below(KEYS, i, seed=seed, field=0).astype(np.int64),
            "value": mixer.below(MODULUS, i, seed=seed, field=1).astype(np.int64),
        },
        TUPLES,
    )


def source(rows: int, *, seed: int = 0) -> ab.sources.Source:
    """The first so many tuples as a source, made as fast as they are asked for."""
    make = partial(tuples, seed=seed)
    return ab.sources.Generator(make, schema=TUPLES, rows=rows, vectorized=True)


def worked(value: int, steps: int) -> int:
    """A value after so many multiplications.

    >>> [worked(1, steps) for steps in (0, 1, 2)]
    [1, 1103527590, 377401575]
    """
    for _ in range(steps):
        value = (value * FACTOR + TERM) % MODULUS
    return value


def working(steps: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function without state that does so much work a tuple."""

    def work(given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "value": worked(given["value"], steps)}

    return work


def aggregating(steps: int) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """A function that adds up, of each key, what so much work makes of a tuple, up to a modulus."""

    def aggregate(given: dict[str, Any], state: State) -> dict[str, Any]:
        state.value = ((state.value or 0) + worked(given["value"], steps)) % MODULUS
        return {**given, "value": state.value}

    return aggregate


def stateless(
    given: ab.sources.Source, *, steps: int, sink: ab.sinks.Sink | None = None
) -> ab.Program:
    """One operator that keeps nothing. The sink is `Memory("out")` if none is given."""
    program = ab.Program("synthetic-stateless")
    (
        program.read(given, name="tuples")
        .map(working(steps), out=TUPLES, name="work")
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


def stateful(
    given: ab.sources.Source, *, steps: int, sink: ab.sinks.Sink | None = None
) -> ab.Program:
    """One operator with something of each key. The sink is `Memory("out")` if none is given."""
    program = ab.Program("synthetic-stateful")
    (
        program.read(given, name="tuples")
        .key_by("key")
        .process(aggregating(steps), out=TUPLES, name="aggregate")
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


def shuffle(
    given: ab.sources.Source, *, steps: int, sink: ab.sinks.Sink | None = None
) -> ab.Program:
    """Two such, by different keys. The sink is `Memory("out")` if none is given."""
    program = ab.Program("synthetic-shuffle")
    (
        program.read(given, name="tuples")
        .key_by("key")
        .process(aggregating(steps), out=TUPLES, name="aggregate")
        .key_by("other")
        .process(aggregating(steps), out=TUPLES, name="other")
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


def selective(
    given: ab.sources.Source, *, steps: int, every: int, sink: ab.sinks.Sink | None = None
) -> ab.Program:
    """Work on one of so many tuples alone. The sink is `Memory("out")` if none is given."""
    program = ab.Program("synthetic-selective")
    (
        program.read(given, name="tuples")
        .filter(pl.col("n") % every == 0, name="filter")
        .map(working(steps), out=TUPLES, name="work")
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program
