"""How fast kernels are beside the same work by hand, a frame in and a frame out, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import polars as pl

import anabranch as ab
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.kernels import growth, single
from bench.kernels.cases import (
    CASES,
    LOOKUP,
    LOOKUP_LAZILY,
    ROWS,
    SIZE,
    SLIDING,
    STATELESS,
    STATELESS_LAZILY,
    Case,
    events,
    summed,
)
from bench.kernels.tasks import Tasks

NOTES = (
    (
        "anabranch: the head task and the lane's task of a program, called as a worker calls them, "
        "one lane, 128 slices, the state folded behind each epoch; no executor, exchange or file. "
        "An epoch is a bundle of 200,000 rows (stateless-1k: 200 bundles of 1,000), a second of "
        "event time. Each run begins without state; its first epochs are not counted."
    ),
    (
        "by-hand: the bare work in plain Polars or plain Python, the same user's functions, "
        "conversion from columns to records and back included, state in a dict or a frame; it "
        "checks nothing, gives rows in no order, and keeps nothing that a failure could be undone "
        "with. Before it is measured it gave the same rows. Polars has one thread (a process of "
        "its own with POLARS_MAX_THREADS=1); throughput is rows a second of processor time."
    ),
    (
        f"sliding: counts and sums of 1,000 keys in windows of {SIZE} s every second; tumbling: "
        "the same aggregates in windows of 1 s, by Anabranch. idle keys: an epoch of 20,000 rows "
        "of 1,000 keys while others have state. rows: a map and a flat_map behind it. stateless: "
        "a filter, a computed column, a projection (lookup: and a lookup before that), by hand "
        "eagerly and as a lazy query, of which the better is by-hand. join: each row has four "
        "partners, or one."
    ),
)

WARM, COUNTED = 2, 5
"""Epochs of a run."""
SMALL = 1_000
KEYS = (1_000, 100, 10_000)
"""Of sliding windows."""


def measure(stand: Stand) -> list[Row]:
    """In a process of its own, with one thread."""
    return single.measured(__name__, stand)


def cases(stand: Stand) -> list[Row]:
    """The cases of the contract first, then how cost grows."""
    # One thread that waits for nothing: its own time leaves out what others do on the machine.
    stand = replace(stand, clock=time.process_time)
    return [
        *_stateless(stand, "stateless-200k", ROWS, COUNTED),
        *_stateless(stand, "stateless-1k", SMALL, ROWS // SMALL),
        *(row for case in CASES for row in _beside_hand(stand, case)),
        *_sliding(stand),
        *growth.measure(stand),
    ]


def _stateless(stand: Stand, name: str, rows: int, epochs: int) -> list[Row]:
    """Without a lookup, which is the contract's case, and with one."""
    return [
        *_both_ways(stand, name, (STATELESS, STATELESS_LAZILY), rows, epochs),
        *_both_ways(stand, f"{name}, lookup", (LOOKUP, LOOKUP_LAZILY), rows, epochs),
    ]


def _both_ways(
    stand: Stand, name: str, ways: tuple[Case, Case], rows: int, epochs: int
) -> list[Row]:
    """Ours beside the better of two ways of writing it by hand, one step at a time and lazily."""
    for case in ways:
        case.check(rows)
    eager, lazy = ways
    frames = _frames(eager, rows, epochs)
    systems = {
        "anabranch": _ours(stand, eager.program, frames),
        "eagerly": _hand(stand, eager.by_hand, frames),
        "lazily": _hand(stand, lazy.by_hand, frames),
    }
    samples = stand.race(name, systems)
    other, better = sorted(("eagerly", "lazily"), key=lambda way: median(samples[way]))
    named = {
        "anabranch": samples["anabranch"],
        "by-hand": samples[better],
        f"by-hand, {other}": samples[other],
    }
    return compared(Metric(name, "throughput", "rows/s"), named, [("anabranch", "by-hand")])


def _beside_hand(stand: Stand, case: Case) -> list[Row]:
    case.check(2_000)
    frames = _frames(case, ROWS, COUNTED)
    systems = {
        "anabranch": _ours(stand, case.program, frames),
        "by-hand": _hand(stand, case.by_hand, frames),
    }
    return _raced(stand, case.name, systems, [("anabranch", "by-hand")])


def _sliding(stand: Stand) -> list[Row]:
    """Beside tumbling windows and beside work by hand; then with other numbers of keys."""
    SLIDING.check(2_000)
    pairs = [("anabranch", "tumbling"), ("anabranch", "by-hand")]
    rows = []
    for keys in KEYS:
        name = "sliding" if keys == KEYS[0] else f"sliding, {keys} keys"
        frames = [events(epoch, ROWS, keys=keys) for epoch in range(SIZE + COUNTED)]
        systems = {
            "anabranch": _ours(stand, SLIDING.program, frames, SIZE),
            "tumbling": _ours(stand, lambda: summed(ab.tumbling("1 s")), frames, SIZE),
            "tumbling, as long": _ours(
                stand, lambda: summed(ab.tumbling(f"{SIZE} s")), frames, SIZE
            ),
            "by-hand": _hand(stand, SLIDING.by_hand, frames, SIZE),
        }
        rows += _raced(stand, name, systems, pairs)
    return rows


def _frames(case: Case, rows: int, epochs: int) -> list[pl.DataFrame]:
    return [case.events(epoch, rows) for epoch in range(WARM + epochs)]


def _ours(
    stand: Stand,
    program: Callable[[], ab.Program],
    frames: Sequence[pl.DataFrame],
    warm: int = WARM,
) -> Callable[[], float]:
    def begun() -> Callable[[pl.DataFrame], object]:
        tasks = Tasks(program())
        return lambda frame: tasks.epoch([frame])

    return _hand(stand, begun, frames, warm)


def _hand(
    stand: Stand,
    begin: Callable[[], Callable[[pl.DataFrame], object]],
    frames: Sequence[pl.DataFrame],
    warm: int = WARM,
) -> Callable[[], float]:
    """A run over all frames, of which the first ones are not counted."""
    counted = frames[warm:]
    rows = sum(frame.height for frame in counted)

    def run() -> float:
        work = begin()
        for frame in frames[:warm]:
            work(frame)

        def rest() -> None:
            for frame in counted:
                work(frame)

        return rows / stand.seconds(rest)()

    return run


def _raced(
    stand: Stand,
    case: str,
    systems: dict[str, Callable[[], float]],
    pairs: Sequence[tuple[str, str]],
) -> list[Row]:
    metric = Metric(case, "throughput", "rows/s")
    return compared(metric, stand.race(case, systems), pairs)
