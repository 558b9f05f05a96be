"""Programs that the benchmark of the trigger `ab.continuous` runs.

`vector`: five operators, of which one keeps state by key in columns: filter, columns, the last four
rows of each key, columns, filter. `python`: the same with plain Python in the middle, a `process`
that counts. `busy_*`: one operator that takes about so long a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.connectors.base import Sink
from bench.continuous.due import Due

OUT = {"n": pl.Int64, "k": pl.Int64, "due": pl.Int64, "m": pl.Int64}
AT_A_TIME = 400
"""Numbers that are sorted at a time."""

Make = Callable[[Due, Sink], ab.Program]


def counted(record: dict[str, Any], state: Any) -> Iterator[dict[str, Any]]:
    """Plain Python with state: how many records of a key there were."""
    state.value = (state.value or 0) + 1
    yield {**record, "m": state.value}


def vector(source: Due, sink: Sink) -> ab.Program:
    """Five operators on columns."""
    program = ab.Program("vector")
    (
        program.read(source, name="in", event_time="due", time_unit="us")
        .filter(pl.col("n") % 100 != 99)
        .with_columns(m=pl.col("n") * 3 + 1)
        .window(ab.rows(4, step=1), by="k")
        .agg(n=ab.last("n"), due=ab.last("due"), m=ab.sum("m"))
        .with_columns(m=pl.col("m") // 4)
        .filter(pl.col("m") >= 0)
        .write(sink, name="out")
    )
    return program


def python(source: Due, sink: Sink) -> ab.Program:
    """Five operators, one of them plain Python with state."""
    program = ab.Program("python")
    (
        program.read(source, name="in")
        .filter(pl.col("n") % 100 != 99)
        .with_columns(m=pl.col("n") * 3 + 1)
        .key_by("k")
        .process(counted, out=OUT)
        .with_columns(m=pl.col("m") * 2)
        .filter(pl.col("m") >= 0)
        .write(sink, name="out")
    )
    return program


def busy(steps: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that keeps the interpreter busy for so many steps.

    By arithmetic alone: of a function that asks for the time nobody can prove that it may run in
    parallel, so it would not.
    """

    def work(record: dict[str, Any]) -> dict[str, Any]:
        found = record["n"]
        for _ in range(steps):
            found = (found * 1_103_515_245 + 12_345) % 2_147_483_648
        return {**record, "m": found}

    return work


def busy_python(micros: float, per_step: float) -> Callable[[Due, Sink], ab.Program]:
    """One operator of plain Python that takes about so long a record."""
    steps = max(1, int(micros / 1e6 / per_step))

    def make(source: Due, sink: Sink) -> ab.Program:
        program = ab.Program("busy-python")
        read = program.read(source, name="in")
        read.map(busy(steps), out=OUT).write(sink, name="out")
        return program

    return make


def _sorted(items: int) -> pl.Expr:
    each = min(items, AT_A_TIME)
    parts = [
        (pl.int_ranges(pl.col("n"), pl.col("n") + each) * (7919 + part) % 10_007).list.sort()
        for part in range(items // each)
    ]
    return pl.sum_horizontal([part.list.sum() for part in parts])


def busy_polars(micros: float, per_item: float) -> Callable[[Due, Sink], ab.Program]:
    """One operator on columns that takes about so long a record: as many numbers are sorted.

    A few hundred at a time: all at once, or added up instead of sorted, they take so much memory a
    record that its pages are what takes time, and those come one by one.
    """
    items = max(2, int(micros / 1e6 / per_item))

    def make(source: Due, sink: Sink) -> ab.Program:
        program = ab.Program("busy-polars")
        program.read(source, name="in").with_columns(m=_sorted(items)).write(sink, name="out")
        return program

    return make


def per_step() -> float:
    """Seconds that plain Python takes for one step, here and now."""
    work, steps, took = busy(20_000), 20_000, []
    for _ in range(5):
        begin = time.perf_counter()
        work({"n": 1})
        took.append(time.perf_counter() - begin)
    return min(took) / steps


def per_item() -> float:
    """Seconds that Polars takes for one number that is sorted, here and now."""
    frame, items = pl.DataFrame({"n": range(50)}), 4_000
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        frame.select(_sorted(items))
        took.append(time.perf_counter() - begin)
    return min(took) / (50 * items)
