"""Run a program by the oracle and give its rows to its sinks, with progress."""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass

import polars as pl
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from anabranch.api.program import Program
from anabranch.clock import Clock, SystemClock
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Write
from anabranch.testing.oracle import Rows, Sequential

NOTICE = "sequential run by the oracle: the meaning, not the speed; one process, no checkpoint"
_EPOCH_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did."""

    program: str
    epochs: int
    seconds: float
    rows: dict[str, int]
    """By sink."""


def run_to_sinks(program: Program, clock: Clock | None = None) -> tuple[Ran, Rows]:
    """Run a program to the end of its sources, then publish its rows as one epoch.

    Nothing is published if anything fails before the end.
    """
    clock = clock or SystemClock()
    graph, began, epochs = program.freeze(), clock.elapsed(), 0
    run = Sequential(graph)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(f"{program.name}: starting")
        for _ in run.rounds(_EPOCH_ROWS):
            epochs += 1
            out = sum(len(rows) for rows in run.written.values())
            bar.update(task, description=f"{program.name}: {epochs} epochs, {out} rows out")
    _publish(graph, run.written)
    counts = {name: len(rows) for name, rows in run.written.items()}
    return Ran(program.name, epochs, clock.elapsed() - began, counts), run.written


def _publish(graph: Graph, written: Rows) -> None:
    """Stage all sinks first, then publish: a sink that cannot be written stops the others."""
    staged = [(op, _stage(graph, op, written)) for op in graph.sinks]
    for op, message in staged:
        op.sink.called(graph.name, op.name).publish([message], 0)


def _stage(graph: Graph, op: Write, written: Rows) -> object:
    schema = graph.output(op.port).schema
    frame = pl.DataFrame(
        {name: [row[name] for row in written[op.name]] for name in schema}, schema=schema
    )
    return op.sink.write(frame.to_arrow().to_batches(), 0, uuid.uuid4().hex)
