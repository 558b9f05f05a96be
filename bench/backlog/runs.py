"""A workload's backlog on one core with one lane, and on two with two, with the same results."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.spark.session import spark_context
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared

SOURCE = "source alone"
SYSTEMS = {1: "1 core, 1 lane", 2: "2 cores, 2 lanes"}
ENOUGH, TOO_MUCH = 1.7, 2.2
"""Times as fast on two cores: below that the notes say why, above it that it cannot be."""
EPOCHS, QUICK = 24, 10
"""Epochs of a run, and by how much less there is for a look."""
SHARED = (
    "With one core for tasks the driver and its JVM have the machine's other one to themselves; "
    "with two they share both with the tasks."
)
WARM = 10
"""The part of the rows that a run before all others has, which is not counted: processes start in
it, and code is loaded. To count from a commit of the same run on would not do: what is read and
worked on before that commit is far more than what it commits, and with two cores more than with
one."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A program over so many rows."""

    make: Callable[[int], ab.Program]
    rows: int
    why: str = ""
    """What bounds it on two cores, if that is known."""


def results(program: ab.Program) -> dict[str, pl.DataFrame]:
    """What the last run of a program has put into the sinks that are in memory."""
    sinks = ((write.name, write.sink) for write in program.freeze().sinks)
    return {name: sink.frame() for name, sink in sinks if isinstance(sink, ab.sinks.Memory)}


def require_same(name: str, first: Mapping[str, pl.DataFrame], program: ab.Program) -> None:
    """Refuse a run that gave other rows than the first one: its time would tell nothing."""
    ordered, found = {each.name: each.ordered for each in program.freeze().sinks}, results(program)
    try:
        for sink, expected in first.items():
            assert_frame_equal(expected, found[sink], check_row_order=ordered[sink])
    except AssertionError as error:
        message = f"{name}: not the rows that the first run gave"
        raise RuntimeError(message) from error


def made(stand: Stand, program: ab.Program) -> float:
    """Rows a second that its sources give by themselves, to one thread.

    They are made twice: the first time what is made beforehand is made, which does not count.
    """
    splits = [
        (each, split)
        for each in (read.source for read in program.freeze().sources)
        for split in each.plan(dict.fromkeys(each.partitions(), 0), _an_epoch(each))
    ]
    rows, seconds = 0, 0.0
    for _ in range(2):
        begin = stand.clock()
        rows = sum(batch.num_rows for each, split in splits for batch in each.read(split))
        seconds = stand.clock() - begin
    return rows / seconds


def _an_epoch(source: ab.sources.Source) -> dict[Any, Any]:
    return {name: max(1, int(end) // EPOCHS) for name, end in source.latest().items()}


def measured(
    stand: Stand, workloads: Mapping[str, Workload], asked: Sequence[str] = ()
) -> list[Row]:
    """Each by cores, with the reason where two are not nearly twice as fast."""
    chosen = {name: each for name, each in workloads.items() if not asked or name in asked}
    runs = stand.settings.runs
    stand.progress.begin("backlog", len(SYSTEMS) * len(chosen) * runs)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in chosen}
    first = dict[str, dict[str, pl.DataFrame]]()
    rates = {name: made(stand, each.make(_rows(stand, each))) for name, each in chosen.items()}
    for cores, system in SYSTEMS.items():
        attached = spark_context(master=f"local[{cores}]", app_name="bench backlog")
        try:
            for name, workload in chosen.items():
                rows = _rows(stand, workload)
                throughput(attached.sc, workload.make(rows // WARM), rows // WARM, cores)
                for _ in range(runs):
                    program = workload.make(rows)
                    taken = throughput(attached.sc, program, rows, cores)
                    require_same(name, first.setdefault(name, results(program)), program)
                    found[name].setdefault(system, []).append(taken)
                    stand.progress.step(name)
        finally:
            attached.stop()
    found_rows = list[Row]()
    for name, samples in found.items():
        pair = (SYSTEMS[2], SYSTEMS[1])
        rows_of = compared(Metric(name, "throughput", "rows/s"), samples, [pair])
        found_rows += [*rows_of, bare(Metric(name, "source", "rows/s"), SOURCE, [rates[name]])]
        (ratio,) = (row.ratio for row in rows_of if row.ratio is not None)
        if ratio < ENOUGH:
            stand.notes.append(_reason(name, chosen[name], ratio))
        elif ratio > TOO_MUCH:
            stand.notes.append(
                f"{name}, {ratio:.2f} times on two cores: no measurement. A run was too short, or "
                "something else was at work beside it."
            )
    return found_rows


def _rows(stand: Stand, workload: Workload) -> int:
    return workload.rows // (QUICK if stand.settings.quick else 1)


def throughput(sc: Any, program: ab.Program, rows: int, lanes: int) -> float:
    """Rows a second, from the start of a query to its end."""
    # A lane may still be letting go of its files: that must not cost what was measured so far.
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-", ignore_cleanup_errors=True) as home:
        begin = time.perf_counter()
        query = program.start(
            sc,
            trigger=ab.available_now(max_rows=max(1, rows // EPOCHS)),
            checkpoint=Path(home) / "checkpoint",
            parallelism=lanes,
        )
        query.await_termination()
        end = time.perf_counter()
        if query.statistics()["rows"] != rows:
            message = f"{program.name}: {query.statistics()['rows']} of {rows} rows were committed"
            raise RuntimeError(message)
    return rows / (end - begin)


def _reason(name: str, workload: Workload, ratio: float) -> str:
    """Which operators one lane alone does, as the compiler says."""
    regions = json.loads(workload.make(10).explain("json"))["regions"]
    alone = [each for region in regions if not region["parallel"] for each in region["operators"]]
    said = f"in one lane by the compiler: {', '.join(alone)}" if alone else "all of it is parallel"
    return f"{name}, {ratio:.2f} times on two cores: {said}. {workload.why} {SHARED}"
