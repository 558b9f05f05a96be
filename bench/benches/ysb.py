"""The Yahoo Streaming Benchmark: generator and oracle; with --peer, beside other systems."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl
from polars.testing import assert_frame_equal

import anabranch as ab
from bench.harness.statistics import Metric, compared
from bench.peers import race
from bench.workloads import ysb

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.report import Row
    from bench.harness.stand import Stand

PEERS = tuple(race.PEERS)
NOTES = (
    (
        "The oracle is the meaning of a program, not the engine: one thread, one record at a time, "
        "there to be right. Its throughput says how long tests take and nothing about Anabranch."
    ),
    (
        "Plain Polars has the whole input in memory and is no stream; on so few rows it shows "
        "mostly its cost per query."
    ),
)

RATE = 300
GENERATED, GENERATED_QUICK = 2_000_000, 200_000
SEQUENTIAL, SEQUENTIAL_QUICK = 15_000, 3_000


def measure(stand: Stand) -> list[Row]:
    """The generator first: nothing that reads from it can be faster."""
    if stand.settings.peer is not None:
        return race.measure(stand)
    return [*_generator(stand), *_sequential(stand)]


def _generator(stand: Stand) -> list[Row]:
    rows = GENERATED_QUICK if stand.settings.quick else GENERATED
    numbers = pl.int_range(rows, dtype=pl.UInt64, eager=True)
    variants: tuple[ysb.Variant, ...] = ("deterministic", "random")
    contenders: dict[str, Callable[[], float]] = {
        variant: stand.throughput(rows, partial(ysb.events, numbers, rate=RATE, variant=variant))
        for variant in variants
    }
    samples = stand.race("generator", contenders)
    return compared(Metric("generator", "throughput", "rows/s"), samples, [])


def _sequential(stand: Stand) -> list[Row]:
    rows = SEQUENTIAL_QUICK if stand.settings.quick else SEQUENTIAL
    events = ysb.events(pl.int_range(rows, dtype=pl.UInt64, eager=True), rate=RATE)
    program = ysb.campaign_views(ab.sources.Records(events))
    _require_equal(program, events)
    contenders = {
        "oracle": stand.throughput(rows, partial(ab.testing.run_sequential, program)),
        "polars": stand.throughput(rows, partial(ysb.expected, events)),
    }
    samples = stand.race("sequential", contenders)
    metric = Metric("sequential", "throughput", "rows/s")
    return compared(metric, samples, [("oracle", "polars")])


def _require_equal(program: ab.Program, events: pl.DataFrame) -> None:
    """A number for a wrong answer is no number."""
    expected = ysb.expected(events)
    found = pl.DataFrame(ab.testing.run_sequential(program)["out"], schema=expected.schema)
    assert_frame_equal(expected, found)
