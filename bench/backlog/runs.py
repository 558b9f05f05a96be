"""A workload's backlog on one core with one lane, and on two with two."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.spark.session import spark_context
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared

SYSTEMS = {1: "1 core, 1 lane", 2: "2 cores, 2 lanes"}
ENOUGH = 1.7
"""Times as fast on two cores; below that the notes say why."""
EPOCHS, QUICK = 24, 10
"""Epochs of a run, and by how much less there is for a look."""
COUNTED_BEHIND = 0.25
"""The part of a run that is not counted: processes start, and code is loaded."""
LOOK_S = 0.005


@dataclass(frozen=True, slots=True)
class Workload:
    """A program over so many rows."""

    make: Callable[[int], ab.Program]
    rows: int
    why: str = ""
    """What bounds it on two cores, if that is known."""


def measured(
    stand: Stand, workloads: Mapping[str, Workload], asked: Sequence[str] = ()
) -> list[Row]:
    """Each by cores, with the reason where two are not nearly twice as fast."""
    chosen = {name: each for name, each in workloads.items() if not asked or name in asked}
    runs = stand.settings.runs
    stand.progress.begin("backlog", len(SYSTEMS) * len(chosen) * runs)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in chosen}
    for cores, system in SYSTEMS.items():
        attached = spark_context(master=f"local[{cores}]", app_name="bench backlog")
        try:
            for name, workload in chosen.items():
                rows = workload.rows // (QUICK if stand.settings.quick else 1)
                for _ in range(runs):
                    taken = throughput(attached.sc, workload.make(rows), rows, cores)
                    found[name].setdefault(system, []).append(taken)
                    stand.progress.step(name)
        finally:
            attached.stop()
    made = list[Row]()
    for name, samples in found.items():
        pair = (SYSTEMS[2], SYSTEMS[1])
        rows_of = compared(Metric(name, "throughput", "rows/s"), samples, [pair])
        made += rows_of
        (ratio,) = (row.ratio for row in rows_of if row.ratio is not None)
        if ratio < ENOUGH:
            stand.notes.append(_reason(name, chosen[name], ratio))
    return made


def throughput(sc: Any, program: ab.Program, rows: int, lanes: int) -> float:
    """Rows a second behind the first quarter."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as home:
        query = program.start(
            sc,
            trigger=ab.available_now(max_rows=max(1, rows // EPOCHS)),
            checkpoint=Path(home) / "checkpoint",
            parallelism=lanes,
        )
        before, begin = 0, time.perf_counter()
        while query.is_active:
            done = int(query.statistics()["rows"])
            if done >= rows * COUNTED_BEHIND:
                before, begin = done, time.perf_counter()
                break
            time.sleep(LOOK_S)
        query.await_termination()
        end = time.perf_counter()
        if query.statistics()["rows"] != rows:
            message = f"{program.name}: {query.statistics()['rows']} of {rows} rows were committed"
            raise RuntimeError(message)
    return (rows - before) / (end - begin)


def _reason(name: str, workload: Workload, ratio: float) -> str:
    """Which operators one lane alone does, as the compiler says."""
    regions = json.loads(workload.make(10).explain("json"))["regions"]
    alone = [each for region in regions if not region["parallel"] for each in region["operators"]]
    said = f"in one lane by the compiler: {', '.join(alone)}" if alone else "all of it is parallel"
    return f"{name}, {ratio:.2f} times on two cores: {said}. {workload.why}".strip()
