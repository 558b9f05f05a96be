"""What keeping order costs: sequence numbers, and pulses, against round-robin."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeAlias

import numpy as np

from anabranch.ordering.merged import Merged
from anabranch.ordering.pulse_merger import PulseMerger
from anabranch.ordering.round_robin_merger import RoundRobinMerger
from anabranch.ordering.run import Numbers, Run, Taken
from anabranch.ordering.sequence_merger import SequenceMerger
from anabranch.ordering.splitters import PULSE_EVERY, KeyedSplitter, RoundRobinSplitter, Strategy
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

NOTES = (
    (
        "Splitter, an operator on each of 2 channels, merger, one behind the other in one thread: "
        "what is compared is the cost of order, not parallelism. Rows travel in runs, 1024 to a "
        "run unless a case says otherwise; in every second bundle the later channel delivers "
        "first. Throughput is rows a second of processor time: nothing here waits."
    ),
    (
        "The operator multiplies integers, about 600 ns a tuple unless a case says otherwise (runs "
        "of 1: one multiplication, which takes longer). Every output is checked, untimed."
    ),
    (
        "overhead: 1 - throughput / throughput of round-robin in the same round. Schneider et al. "
        "2012, 5.2, found at most 0.12 for sequence numbers and 0.21 for pulses, a tuple at a time."
    ),
    (
        "With fewer rows out than in, round-robin is impossible: there the baseline is "
        "'unordered', which passes runs on as they come. held: the most rows that waited in the "
        "merger while 1 row of 4 was kept. keyed: rows routed one by one, so runs interleave."
    ),
)

CHANNELS = 2
RUN_LENGTH = 1024
CHEAPEST = 600
"""Nanoseconds a tuple: the least in the paper's 5.2."""
INTERVALS = (1, 2, 4, 8, 16, 32, 64)
SELECTIVITIES = (1, 4, 16, 64, 256)
WORK = (600, 2_500, 10_000, 100_000, 1_000_000)
RUN_LENGTHS = (1, 4, 16, 64, 256, 1024, 4096)
SECONDS, QUICK_SECONDS = 0.3, 0.04
"""About how long one measurement takes."""
EACH_RUN = 8e-6
"""Seconds that a run of rows takes besides the work: short runs are to take no longer."""
FACTOR = 6364136223846793005

BASE = "round-robin"
SYSTEMS = {BASE: Strategy.ROUND_ROBIN, "sequence": Strategy.SEQUENCE, "pulses": Strategy.PULSES}
Merger: TypeAlias = RoundRobinMerger | SequenceMerger | PulseMerger


@dataclass(frozen=True, slots=True)
class Region:
    """A parallel region with one stateless operator, and how its output is put in order."""

    bundles: int
    passes: int
    strategy: Strategy = Strategy.ROUND_ROBIN
    run_length: int = RUN_LENGTH
    pulse_every: int = PULSE_EVERY
    kept: int = 1
    """One row of so many comes out."""
    keyed: bool = False
    ordered: bool = True

    @property
    def rows(self) -> int:
        """Tuples that go in."""
        return self.bundles * self.bundle

    @property
    def bundle(self) -> int:
        """Rows that the splitter takes at once: a run for each channel."""
        return self.run_length * CHANNELS

    def expected(self) -> Numbers:
        """What the operator makes of all rows in order."""
        return _worked(np.arange(0, self.rows, self.kept, dtype=np.int64), self.passes)


def measure(stand: Stand) -> list[Row]:
    """The cheapest region first, then what its overhead depends on."""
    # One thread that waits for nothing: its own time leaves out what others do on the machine.
    stand = replace(stand, clock=time.process_time)
    return [
        *_strategies(stand),
        *_keyed(stand),
        *_intervals(stand),
        *_selectivities(stand),
        *_work(stand),
        *_run_lengths(stand),
    ]


def _strategies(stand: Stand) -> list[Row]:
    """Cases sequence and pulses, measured in the same rounds."""
    samples = _race(stand, "strategies", _systems(_region(stand)))
    rows: list[Row] = []
    for case in ("sequence", "pulses"):
        pair = {"anabranch": samples[case], BASE: samples[BASE]}
        rows += compared(Metric(case, "throughput", "rows/s"), pair, [("anabranch", BASE)])
        rows.append(_overhead(case, "anabranch", samples[case], samples[BASE]))
    return rows


def _keyed(stand: Stand) -> list[Row]:
    base = _region(stand)
    regions = {
        name: region if name == BASE else replace(region, keyed=True)
        for name, region in _systems(base).items()
    }
    return _overheads(stand, "keyed", regions)


def _intervals(stand: Stand) -> list[Row]:
    rows: list[Row] = []
    for length in (RUN_LENGTH, 16, 1):
        base = _region(stand, run_length=length)
        regions = {BASE: base} | {
            f"e={every}": replace(base, strategy=Strategy.PULSES, pulse_every=every)
            for every in INTERVALS
        }
        case = f"pulse interval, runs of {length}"
        rows += _overheads(stand, case, regions)
        for name, region in regions.items():
            if name != BASE:
                held = _held(replace(region, kept=4, passes=1, bundles=max(64, 1024 // length)))
                rows.append(bare(Metric(case, "held", "rows"), name, [held]))
    return rows


def _selectivities(stand: Stand) -> list[Row]:
    rows: list[Row] = []
    for kept in SELECTIVITIES:
        base = replace(_region(stand), kept=kept)
        regions = {
            "unordered": replace(base, ordered=False),
            "pulses": replace(base, strategy=Strategy.PULSES),
        }
        rows += _overheads(stand, f"selectivity 1:{kept}", regions, "unordered")
    return rows


def _work(stand: Stand) -> list[Row]:
    rows: list[Row] = []
    for nanoseconds in WORK:
        # A run of 1024 tuples of a millisecond would take a second: too few for a median.
        length = RUN_LENGTH if nanoseconds < 100_000 else 64 if nanoseconds < 1_000_000 else 16
        regions = _systems(_region(stand, run_length=length, nanoseconds=nanoseconds))
        case = f"work {nanoseconds / 1000:g} us, runs of {length}"
        rows += _overheads(stand, case, regions)
    return rows


def _run_lengths(stand: Stand) -> list[Row]:
    rows: list[Row] = []
    for length in RUN_LENGTHS:
        rows += _overheads(stand, f"runs of {length}", _systems(_region(stand, run_length=length)))
    return rows


def _systems(base: Region) -> dict[str, Region]:
    return {name: replace(base, strategy=strategy) for name, strategy in SYSTEMS.items()}


def _overheads(
    stand: Stand, case: str, regions: Mapping[str, Region], base: str = BASE
) -> list[Row]:
    samples = _race(stand, case, regions)
    metric = Metric(case, "throughput", "rows/s")
    others = [name for name in regions if name != base]
    return [
        *compared(metric, samples, [(name, base) for name in others]),
        *(_overhead(case, name, samples[name], samples[base]) for name in others),
    ]


def _overhead(case: str, system: str, values: Sequence[float], base: Sequence[float]) -> Row:
    """Run by run, against the baseline's run of the same round: both had the same noise."""
    shares = [1 - value / other for value, other in zip(values, base, strict=True)]
    return bare(Metric(case, "overhead", "share"), system, shares)


def _race(stand: Stand, case: str, regions: Mapping[str, Region]) -> dict[str, tuple[float, ...]]:
    return stand.race(case, {name: _timed(stand, region) for name, region in regions.items()})


def _timed(stand: Stand, region: Region) -> Callable[[], float]:
    expected = region.expected()

    def run() -> float:
        rows = np.arange(region.rows, dtype=np.int64)
        begin = stand.clock()
        output = _played(region, rows)
        seconds = stand.clock() - begin
        found = np.concatenate(output)
        # Passed on as they come, rows are all there and in no order.
        right, found = (expected, found) if region.ordered else (np.sort(expected), np.sort(found))
        assert np.array_equal(right, found), f"{region}: wrong rows or order"
        return region.rows / seconds

    return run


def _played(region: Region, rows: Numbers) -> list[Numbers]:
    """Send all rows through, a bundle at a time; the output, as bundles."""
    split, merger, output = _splitter(region), _merger(region), []
    for at in range(0, len(rows), region.bundle):
        sent = split(rows[at : at + region.bundle])
        # Every second bundle the other way round: a merger that never waits would show nothing.
        for channel, run in sent if at // region.bundle % 2 else reversed(sent):
            made = _operated(run, region)
            if region.ordered:
                merged = merger.receive(channel, made)
                if merged.pieces:
                    output.append(_gathered(merged))
            else:
                output.append(_values(made))
    return [*output, *(_gathered(merger.close(channel)) for channel in range(CHANNELS))]


def _splitter(region: Region) -> Callable[[Numbers], list[tuple[int, Run]]]:
    if region.keyed:
        by_key = KeyedSplitter(CHANNELS, strategy=region.strategy, pulse_every=region.pulse_every)
        owners = (np.arange(region.bundle) * FACTOR >> 62) & 1

        def split_by_key(rows: Numbers) -> list[tuple[int, Run]]:
            by_key.split(rows, owners)
            return by_key.send()

        return split_by_key
    in_turns = RoundRobinSplitter(
        CHANNELS, region.run_length, strategy=region.strategy, pulse_every=region.pulse_every
    )

    def split(rows: Numbers) -> list[tuple[int, Run]]:
        in_turns.split(rows, len(rows))
        return in_turns.send()

    return split


def _merger(region: Region) -> Merger:
    if region.strategy is Strategy.ROUND_ROBIN:
        return RoundRobinMerger(CHANNELS, region.run_length)
    return (
        SequenceMerger(CHANNELS) if region.strategy is Strategy.SEQUENCE else PulseMerger(CHANNELS)
    )


def _operated(run: Run, region: Region) -> Run:
    """The operator: it works on all rows, keeps some, and hands on their numbers and the pulse."""
    given, numbers = _values(run), run.numbers
    values = _worked(given, region.passes)
    if region.kept > 1:
        # A row's value is its place in the input, and only blocks are thinned out.
        kept = slice(-int(given[0]) % region.kept, None, region.kept)
        values = values[kept]
        numbers = None if numbers is None else numbers[kept]
    return Run(values, 0, len(values), numbers, run.pulse)


def _worked(values: Numbers, passes: int) -> Numbers:
    result = values * FACTOR
    for _ in range(passes - 1):
        np.multiply(result, FACTOR, out=result)
    return result


def _values(run: Run) -> Numbers:
    rows = run.rows
    if isinstance(rows, Taken):
        assert isinstance(rows.rows, np.ndarray)
        return rows.rows[rows.places[run.start : run.stop]]
    assert isinstance(rows, np.ndarray)
    return rows[run.start : run.stop]


def _gathered(merged: Merged) -> Numbers:
    parts = [_values(piece.run) for piece in merged.pieces]
    if not parts:
        return np.empty(0, dtype=np.int64)
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return rows if merged.order is None else rows[merged.order]


def _held(region: Region) -> float:
    """The most rows that waited in the merger at any time."""
    split, merger, most = _splitter(region), _merger(region), 0
    rows = np.arange(region.rows, dtype=np.int64)
    for at in range(0, len(rows), region.bundle):
        for channel, run in reversed(split(rows[at : at + region.bundle])):
            merger.receive(channel, _operated(run, region))
            most = max(most, sum(merger.statistics().rows))
    return float(most)


def _region(stand: Stand, *, run_length: int = RUN_LENGTH, nanoseconds: int = CHEAPEST) -> Region:
    """A region of this much work a tuple, and as many tuples as make a run long enough."""
    passes = _passes(stand, run_length, nanoseconds)
    seconds = QUICK_SECONDS if stand.settings.quick else SECONDS
    each = nanoseconds * 1e-9 * run_length + EACH_RUN
    bundles = max(4, round(seconds / (each * CHANNELS)))
    return Region(bundles, passes, run_length=run_length)


def _passes(stand: Stand, run_length: int, nanoseconds: int) -> int:
    """How many multiplications of a run make this many nanoseconds a tuple; at least one."""
    values, trial = np.arange(run_length, dtype=np.int64), 2000
    timed = stand.seconds(lambda: _worked(values, trial))
    once = median(timed() for _ in range(5)) / trial
    return max(1, round(nanoseconds * 1e-9 * run_length / once))
