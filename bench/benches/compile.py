"""How long it takes to compile a program, from 1 to 10,000 operators between source and sink."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

import anabranch as ab
from anabranch.compiler.compile import compile_graph
from bench.harness.statistics import Metric, bare

if TYPE_CHECKING:
    from anabranch.program.graph import Graph
    from bench.harness.report import Row
    from bench.harness.stand import Stand

NOTES = (
    (
        "A chain of operators without state, by one key, by another and over the whole stream, in "
        "turn; 'each' is the time divided by the number of operators, so a constant is linear."
    ),
)

SIZES = (1, 10, 100, 1_000, 10_000)
QUICK = SIZES[:-1]
EVENTS = pl.Schema({"t": pl.Int64(), "k": pl.String(), "l": pl.String(), "n": pl.Int64()})


def measure(stand: Stand) -> list[Row]:
    """Compile chains of growing length."""
    sizes = QUICK if stand.settings.quick else SIZES
    return [row for size in sizes for row in _case(stand, size)]


def _case(stand: Stand, size: int) -> list[Row]:
    case, graph = f"{size} operators", chain(size)
    work = stand.seconds(partial(compile_graph, graph))
    (samples,) = stand.race(case, {"anabranch": work}).values()
    each = [seconds / (size + 2) for seconds in samples]
    return [
        bare(Metric(case, "compile_time", "s"), "anabranch", samples),
        bare(Metric(case, "each", "s"), "anabranch", each),
    ]


def chain(size: int) -> Graph:
    """So many operators between a source and a sink.

    >>> len(chain(3).operators)
    5
    """
    program = ab.Program("chain")
    stream = program.read(ab.sources.Records([], schema=EVENTS), event_time="t")
    for at in range(size):
        # Names of one's own: a name by kind is found by counting.
        name = f"o{at}"
        match at % 4:
            case 0:
                stream = stream.filter(pl.col("n") > 0, name=name)
            case 1:
                stream = stream.key_by("k").deduplicate(name=name)
            case 2:
                stream = stream.key_by("l").deduplicate(name=name)
            case _:
                stream = stream.in_time_order(name=name)
    stream.write(ab.sinks.Memory("out"))
    return program.freeze()
