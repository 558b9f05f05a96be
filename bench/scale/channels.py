"""Speed-ups of a program in virtual time, by channels, with what its operators cost at each width.

A bundle has as many parts as there are channels, each of the same number of rows: with n channels
the source has n partitions, heads cut what they give into n, and a stage takes what n heads have
for it. Costs are measured like that, in one thread, for every n: what it costs to divide rows and
to put them together again grows with n, and is in them. The virtual run has a part for a tuple; an
operator with state by key has it in 1,024 partitions, or in as many as there are keys, one with
state of all rows in one, and what goes on in order does so one part at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import anabranch as ab
from anabranch.engine.core import Scheme
from anabranch.engine.resident import EpochToRead, Heads
from anabranch.simulate.model import Model, mixed
from bench.continuous import operators
from bench.continuous.operators import Kind, Operator, Query
from bench.continuous.virtual import Setting, run
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare

KEYS, ROOM, SLICES = 1024, 4096, 1024
WARM, PARTS, QUICK_PARTS = 2, 48, 8
"""Bundles that are not counted; parts that are, but at least three bundles."""


def measured(stand: Stand, make: Callable[[int, int], ab.Program], part: int, width: int) -> Query:
    """What a part costs at each operator, without making its rows.

    `make` gives the program on so many rows of each source, in so many partitions; `part` is how
    many rows of each source a part has.
    """
    bundles = WARM + max(3, (QUICK_PARTS if stand.settings.quick else PARTS) // width)
    program = make(bundles * part * width, width)
    works = operators.works_in(program, partitions=width, slices=SLICES)
    passes = [operators.Pass(stand, works) for _ in range(bundles)]
    sources, made = len(program.freeze().sources), [0.0] * bundles
    (heads,) = (work for work in works if isinstance(work, Heads))
    for serial, cut in enumerate(operators.cuts(program, part * bundles, part)):
        at = serial // sources
        made[at] += stand.seconds(partial(_make, heads, cut))()
        passes[at].take(serial, cut)
    reading = median(made[WARM:])
    return Query(
        program.name,
        tuple(
            Operator(work.name, kind, max(cost - apart, 0.0) / width, 1.0, onward / width)
            for work, kind, cost, onward, apart in zip(
                works,
                operators.kinds(program),
                _medians([each.seconds for each in passes[WARM:]]),
                _medians([each.onward for each in passes[WARM:]]),
                (reading, *[0.0] * (len(works) - 1)),
                strict=True,
            )
        ),
    )


def _make(heads: Heads, cut: EpochToRead) -> None:
    """Make rows and drop them: a program that reads them from elsewhere would not."""
    _, source, task = heads.inputs[cut.source]
    for _, split in cut.splits:
        source.frame(split, task.columns)


def _medians(rows: Sequence[Sequence[float]]) -> list[float]:
    return [median(column) for column in zip(*rows, strict=True)]


def speedups(costs: Mapping[int, Query], keys: Mapping[int, int], tuples: int) -> dict[int, float]:
    """By channels, beside one channel. `keys` are of stages that have few, by their number."""
    one = throughput(costs[1], keys, 1, tuples)
    return {
        width: throughput(at_least(query, costs[1]), keys, width, tuples) / one
        for width, query in costs.items()
    }


def at_least(query: Query, one: Query) -> Query:
    """The query with no cost below that of one channel: that would be chance, and no speed-up."""
    pairs = zip(query.operators, one.operators, strict=True)
    raised = (
        replace(each, cost=max(each.cost, first.cost), onward=max(each.onward, first.onward))
        for each, first in pairs
    )
    return replace(query, operators=tuple(raised))


def throughput(query: Query, keys: Mapping[int, int], channels: int, tuples: int) -> float:
    """Parts a second of virtual time."""
    models = [
        _model(number, each, keys.get(number - 1, KEYS))
        for number, each in enumerate(query.operators)
    ]
    setting = Setting(channels, scheme=Scheme(room=ROOM))
    passing = [each.onward for each in query.operators]
    return run(models, range(tuples), setting, lambda at, _: passing[at]).throughput


def _model(number: int, each: Operator, keys: int) -> Model:
    """Divided by keys of its own: what shares a partition here need not at another operator."""
    parts = {Kind.STATELESS: None, Kind.PARTITIONED: keys, Kind.STATEFUL: 1}[each.kind]
    return Model(
        each.name,
        lambda _: each.cost,
        parts,
        partition=lambda value: mixed(value, number) % (parts or 1),
    )


def costs_of(case: str, query: Query, width: int, part: int) -> Iterator[Row]:
    """The costs at one width, by operator."""
    for each in query.operators:
        system, rows = f"{each.name} ({each.kind.value})", part / 1e6
        yield bare(Metric(case, f"cost, {width}", "us/row"), system, [each.cost / rows])
        yield bare(Metric(case, f"onward, {width}", "us/row"), system, [each.onward / rows])
