"""Operators with knobs: what they cost, what they keep, how many tuples they give.

The parametric operators of Prasaad et al., "Scaling Ordered Stream Processing on Shared-Memory
Multicores" (2018), section 7: matrix computations on the values of a tuple. The paper does not say
which matrix. Here it has ones everywhere and twos on its diagonal, modulo a prime, so that what any
number of products gives can be told without computing them, and is told by `tests/golden`.

Operators that keep something fold a key's tuples in a way that shows their order.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from anabranch.program.stream import Stream
from bench.workloads import mixer

if TYPE_CHECKING:
    from bench.workloads.state import State

Kind: TypeAlias = Literal["stateless", "keyed", "whole"]
Values: TypeAlias = list[int]

PRIME = 2**31 - 1
BASE = 31
"""By which what was folded is multiplied when a tuple comes."""
KEYS = 100
"""As many as the paper's hybrid queue has partitions."""
SIZE = 4
"""Values of a tuple."""
MANY_FOR_ONE = 50
COSTS = (10e-6, 100e-6, 1e-3, 10e-3)
"""Seconds a tuple, as in the paper's figure 10."""

SCHEMA = pl.Schema(
    {
        "number": pl.Int64(),
        "time": pl.Int64(),
        "key": pl.Int64(),
        "values": pl.List(pl.Int64()),
    }
)
"""Of tuples between any two operators. `time` is the time of an event, in ms."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What an operator is like.

    >>> Knobs("keyed", work=3).gives
    1
    """

    kind: Kind
    work: int = 1
    """Products of the matrix and a tuple's values, for each tuple."""
    gives: int = 1
    """Tuples for one: the selectivity."""
    held: int = 1
    """Numbers that are kept for a key, or for the whole stream."""

    def __post_init__(self) -> None:
        if self.work < 0 or self.gives < 1 or self.held < 1:
            message = f"no operator is like this: {self}"
            raise ValueError(message)


# Tuples


def tuples(
    numbers: pl.Series,
    *,
    rate: int,
    seed: int = 0,
    keys: int = KEYS,
    sigma: float | None = None,
    size: int = SIZE,
) -> pl.DataFrame:
    """The tuples of these sequence numbers, `rate` of them a second, with so many values.

    Keys are uniform, or with `sigma` normal: what falls on [-1, 1] of a normal distribution with
    that deviation is divided into as many ranges as there are keys. The smaller, the more skewed.

    >>> tuples(pl.Series([0, 50]), rate=10)["time"].to_list()
    [0, 5000]
    """
    if size < 2:
        message = f"a tuple needs two values or more, got {size}"
        raise ValueError(message)
    i = numbers.to_numpy().astype(np.uint64)
    drawn = mixer.fractions(i, seed=seed, field=0)
    columns = [mixer.below(PRIME, i, seed=seed, field=1 + at) for at in range(size)]
    values = pl.Series(np.stack(columns, axis=1).astype(np.int64), dtype=pl.Array(pl.Int64, size))
    return pl.DataFrame(
        {
            "number": i.astype(np.int64),
            "time": (i * np.uint64(1000) // np.uint64(rate)).astype(np.int64),
            "key": np.searchsorted(_shares(keys, sigma), drawn, side="right").astype(np.int64),
            "values": values.arr.to_list(),
        },
        schema=SCHEMA,
    )


@cache
def _shares(keys: int, sigma: float | None) -> npt.NDArray[np.float64]:
    """The cumulative shares of the keys."""
    ends = np.arange(1, keys + 1) / keys
    if sigma is None:
        return ends
    scale = sigma * math.sqrt(2.0)
    below = np.array([math.erf((2.0 * end - 1.0) / scale) for end in ends])
    shares: npt.NDArray[np.float64] = (below / math.erf(1.0 / scale) + 1.0) / 2.0
    shares[-1] = 1.0  # rounding must not leave a draw without a key
    return shares


def source(rows: int, *, rate: int, seed: int = 0, sigma: float | None = None) -> ab.sources.Source:
    """The first so many tuples as a source, made as fast as they are asked for."""
    make = partial(tuples, rate=rate, seed=seed, sigma=sigma)
    return ab.sources.Generator(make, schema=SCHEMA, rows=rows, vectorized=True)


# Operators


def worked(values: Values, work: int) -> Values:
    """The values times the matrix, so many times.

    >>> worked([1, 0], 1), worked([1, 0], 2)
    ([2, 1], [5, 4])
    """
    size = len(values)
    matrix = [[1 + (row == column) for column in range(size)] for row in range(size)]
    for _ in range(work):
        values = [sum(map(operator.mul, row, values)) % PRIME for row in matrix]
    return values


def stateless(knobs: Knobs, keys: int) -> Callable[[dict[str, Any]], Any]:
    """An operator for `map`, or for `flat_map` if it gives more than one tuple."""
    work, gives = knobs.work, knobs.gives

    def one(record: dict[str, Any]) -> dict[str, Any]:
        return {
            "number": record["number"],
            "time": record["time"],
            "key": record["key"],
            "values": worked(record["values"], work),
        }

    def several(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        values = worked(record["values"], work)
        for at in range(gives):
            yield {
                "number": record["number"] * gives + at,
                "time": record["time"],
                "key": (record["key"] + at) % keys,
                "values": values,
            }

    return one if gives == 1 else several


def stateful(knobs: Knobs, keys: int) -> Callable[[dict[str, Any], Any], Any]:
    """An operator for `process`.

    The first value becomes the fold of all first values of the key, up to this; to the last one is
    added the first value that the key's tuple had `held` tuples ago, if there was one.
    """
    work, gives, held = knobs.work, knobs.gives, knobs.held

    def fold(record: dict[str, Any], state: State) -> Values:
        first, *middle, last = worked(record["values"], work)
        count, folded = state.value or (0, 0)
        folded = (folded * BASE + first) % PRIME
        before = state.map.get(count % held, 0)
        state.map[count % held] = first
        state.value = (count + 1, folded)
        return [folded, *middle, (last + before) % PRIME]

    def one(record: dict[str, Any], state: State) -> dict[str, Any]:
        return {
            "number": record["number"],
            "time": record["time"],
            "key": record["key"],
            "values": fold(record, state),
        }

    def several(record: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
        values = fold(record, state)
        for at in range(gives):
            yield {
                "number": record["number"] * gives + at,
                "time": record["time"],
                "key": (record["key"] + at) % keys,
                "values": values,
            }

    return one if gives == 1 else several


# Programs


def pipeline(
    given: ab.sources.Source,
    operators: Sequence[Knobs],
    *,
    keys: int = KEYS,
    lateness: str | None = None,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """These operators, one after the other.

    Where one gives several tuples, they have the keys from the tuple's own on. Tuples are taken as
    they come; with `lateness` they are put in order of time first. The sink is `Memory("out")` if
    none is given.
    """
    program = ab.Program("parametric")
    stream = program.read(given, name="tuples", event_time="time", lateness=lateness or "0 s")
    if lateness is not None:
        stream = stream.in_time_order()
    for at, knobs in enumerate(operators, start=1):
        stream = _behind(stream, knobs, keys, f"{knobs.kind}-{at}")
    stream.write(sink or ab.sinks.Memory("out"), name="out")
    return program


def _behind(stream: Stream, knobs: Knobs, keys: int, name: str) -> Stream:
    """The stream with one more operator."""
    if knobs.kind == "keyed":
        return stream.key_by("key").process(stateful(knobs, keys), out=SCHEMA, name=name)
    if knobs.kind == "whole":
        return stream.process(stateful(knobs, keys), out=SCHEMA, name=name)
    put = stream.map if knobs.gives == 1 else stream.flat_map
    return put(stateless(knobs, keys), out=SCHEMA, name=name)


def high_selectivity(work: int) -> tuple[Knobs, ...]:
    """The pipeline of section 7.3.2: much work is made at once, for an operator with keys."""
    return (Knobs("stateless", work, gives=MANY_FOR_ONE), Knobs("keyed", work))


def work_in(
    seconds: float, *, size: int = SIZE, clock: Callable[[], float] = time.perf_counter
) -> int:
    """How many products take so long here, at least one: the best of some trials decides."""
    trial, values = 1_000, list(range(1, size + 1))
    taken = []
    for _ in range(5):
        begun = clock()
        worked(values, trial)
        taken.append(clock() - begun)
    return max(1, round(seconds * trial / min(taken)))
