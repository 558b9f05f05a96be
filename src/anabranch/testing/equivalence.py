"""Whether a program, run in parallel and through crashes, gives what its sequential run gives.

Every run is compared with the oracle on the run's own log (M1): content and order of an ordered
sink, content of an unordered one. Besides, the log must hold each row of the sources once, and no
sink may be shown anything twice that a crash does not excuse (M15).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch.connectors.base import Source
from anabranch.epoch.triggers import Trigger, available_now
from anabranch.errors import ProgramError
from anabranch.ids import Offset, Partition
from anabranch.program.graph import Graph
from anabranch.program.log import Cut
from anabranch.program.operators.windowed import WindowAggregate
from anabranch.simulate.inline import Mischief
from anabranch.testing.asked import WHAT, Asked, Inputs, with_inputs
from anabranch.testing.compare import first_difference
from anabranch.testing.lives import Lives, Schedule, as_written, with_edges
from anabranch.testing.oracle import Written, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from anabranch.testing.told import failed, parted

UNKIND = Mischief(kill=0.2, repeat=0.2)
"""Processes that lose their state and tasks that run twice; none of it may show."""


def assert_same_as_sequential(  # noqa: PLR0913 - a user's options, by name
    program: Written,
    inputs: Inputs | None = None,
    *,
    widths: Sequence[int] = (1, 2),
    policies: Sequence[str] | None = None,
    rescale_at: Mapping[int, int] | None = None,
    crash_at: Sequence[int | str] | None = None,
    trigger: Trigger | None = None,
    spark: Any = None,
    seed: int = 0,
    within: Mapping[str, float] | None = None,
) -> None:
    """Fail unless a program gives, at each of `widths` lanes, what its sequential run gives.

    The program is run by the whole runtime in this process, on a temporary checkpoint, from its
    sources into sinks of the test kit's own: its real sinks are not touched. Tasks run in an order
    that `seed` decides; now and then one runs twice or loses its state. What comes out is compared
    with `run_sequential` on the run's own log. An AssertionError says where they part, and how to
    run that again.

    `inputs` replaces sources by name: rows or a frame of the source's columns, or another source.
    Without `trigger` there is a run with several small epochs and one with a single epoch. From
    epoch e of `rescale_at={e: n}` on there are n lanes; where several sources were cut together,
    from the next epoch that can have them.

    `crash_at` lists moments at which a run is cut off; another then goes on from the checkpoint. A
    number is an epoch: it is planned and done, and not committed. A text is "before" or "after" a
    step of the protocol; the step alone is both of them, one after the other::

        plan         what an epoch will read is written down
        job          a cycle's tasks run
        delta        one of these tasks writes what it changed and stages its rows
        commit       the record is written that makes epochs count
        publish      a sink shows an epoch's rows
        acknowledge  it is noted that they are shown

    "after commit 3" is the step of epoch 3, or of the next one if epoch 3 has none left (it was
    committed with one before it) or none at all (it shows no rows); without a number it is the
    first in a run. Where there are not so many epochs, the last one is meant, here and in
    `rescale_at`.

    With `policies`, names of a session's, it is run by each of them: in turns with a rival, and
    with too little memory to read before what is there has left.

    With `trigger=ab.continuous()` the program is resident in a task: there are no jobs and deltas
    to crash around, and another width is asked for at the beginning, wherever it was to be.

    With `spark` (a SparkSession, a SparkContext, or True for one of our own) all of it is done on
    Spark as well; there a delta is taken for its job. `within` gives the relative error that the
    columns may have which come from a sketch; those that keep their name are known.

    >>> import polars as pl
    >>> from anabranch.api.program import Program
    >>> from anabranch.connectors.memory import Memory
    >>> from anabranch.connectors.records import Records
    >>> program = Program("doubled")
    >>> stream = program.read(Records([{"n": n} for n in range(20)]), name="in")
    >>> stream.with_columns(twice=pl.col("n") * 2).write(Memory("out"))
    >>> assert_same_as_sequential(program, crash_at=[2, "after publish"], rescale_at={1: 3})
    """
    __tracebackhide__ = True
    asked = Asked.of(
        widths,
        crash_at,
        rescale_at,
        trigger,
        seed,
        other_input=bool(inputs),
        policies=policies,
    )
    graph = with_inputs(program.freeze(), inputs or {})
    errors = {**_sketches(graph), **(within or {})}
    with tempfile.TemporaryDirectory(prefix="anabranch-same-") as home:
        for number, trial in enumerate(_trials(asked, graph, spark)):
            trial.run(graph, Path(home) / str(number), errors)


@dataclass(frozen=True, slots=True)
class _Plain:
    """Something that can be frozen into a graph, since it is one."""

    graph: Graph

    def freeze(self) -> Graph:
        return self.graph


@dataclass(frozen=True, slots=True)
class _Trial:
    """One run of a program, and what it must be like."""

    schedule: Schedule
    epochs: int
    """If it had as many, all crashes and changes of width must have come."""
    other_input: bool
    sc: Any = None

    def run(self, graph: Graph, checkpoint: Path, errors: Mapping[str, float]) -> None:
        """Run and compare."""
        __tracebackhide__ = True
        lives = Lives(graph, self.schedule, checkpoint, self.sc)
        lives.run()
        within_reach = self.schedule.up_to(lives.history.epochs - 1)
        if lives.unreached and within_reach != self.schedule:
            again = replace(self, schedule=within_reach)
            again.run(graph, checkpoint.with_name(f"{checkpoint.name}-again"), errors)
            return
        if lives.unreached and not lives.silent and lives.history.epochs >= self.epochs:
            raise _never(lives)
        self._compare(graph, checkpoint, lives, errors)

    def _compare(
        self, graph: Graph, checkpoint: Path, lives: Lives, errors: Mapping[str, float]
    ) -> None:
        __tracebackhide__ = True
        program = _Plain(_fresh(graph))
        log = log_of(checkpoint, program.graph)
        expected = run_sequential(program, log=checkpoint)
        for write in graph.sinks:
            shelf = lives.shelves[write.name]
            for fault in shelf.faults:
                what = f"sink {write.name!r}: {fault}"
                raise self._failed(what, log)
            found = first_difference(
                expected[write.name], shelf.rows, ordered=write.ordered, within=errors
            )
            if found is not None:
                raise self._failed(parted(write.name, found), log)
        for lost in _gaps(program.graph, log):
            raise self._failed(lost, log)

    def _failed(self, what: str, log: Sequence[Cut]) -> AssertionError:
        spark = self.sc is not None
        return failed(what, self.schedule, log, other_input=self.other_input, spark=spark)


def _trials(asked: Asked, graph: Graph, spark: Any) -> Iterator[_Trial]:
    schedules = [
        (schedule, asked.epochs, asked.other_input)
        for width in asked.widths
        for policy in asked.policies
        for schedule in _runs(asked, width, graph, policy)
    ]
    yield from (_Trial(*each) for each in schedules)
    if spark is None or spark is False:
        return
    from anabranch.spark.session import spark_context

    given = None if spark is True else spark
    attached = spark_context(given, master=f"local[{max(asked.widths)}]", app_name=WHAT)
    try:
        yield from (_Trial(*each, attached.sc) for each in schedules)
    finally:
        attached.stop()


def _runs(asked: Asked, width: int, graph: Graph, policy: str | None) -> Iterator[Schedule]:
    """The schedules of one width and policy."""

    def schedule(trigger: Trigger) -> Schedule:
        crashes, rescale = asked.crashes, asked.rescale
        return Schedule(
            width, trigger, crashes, rescale, asked.seed, UNKIND, asked.in_flight, policy
        )

    if asked.trigger is not None:
        yield schedule(asked.trigger)
        return
    yield schedule(available_now(_epoch_rows(graph, asked.epochs)))
    yield schedule(available_now()).up_to(0)


# ---- How large an epoch is ------------------------------------------------------------------


def _epoch_rows(graph: Graph, epochs: int) -> int:
    """The most rows of an epoch, by doubling, of which there are still so many epochs."""
    sources = [as_written(read.source) for read in graph.sources]
    rows = 1
    while sum(_cuts(source, rows * 2, epochs) for source in sources) >= epochs:
        rows *= 2
    return rows


def _cuts(source: Source, rows: int, most: int) -> int:
    """Into how many epochs of so many rows a source can be cut now; no further than `most`."""
    latest = source.latest()
    ranges = [(each, source.first(each), latest[each]) for each in source.partitions()]
    return max((len(list(_steps(source, *each, rows, most))) for each in ranges), default=0)


def _steps(
    source: Source, partition: Partition, at: Offset, end: Offset, rows: int, most: int
) -> Iterator[Offset]:
    for _ in range(most):
        if at == end:
            return
        at = source.limit(partition, at, end, rows)
        yield at


# ---- What a run is compared with -------------------------------------------------------------


def _sketches(graph: Graph) -> dict[str, float]:
    """The columns that come from a sketch, with the error that it states."""
    return {
        name: aggregate.error
        for op in graph.of(WindowAggregate)
        for name, aggregate in op.aggregates
        if aggregate.error is not None
    }


def _fresh(graph: Graph) -> Graph:
    return with_edges(
        graph,
        source_of=lambda read: as_written(read.source),
        sink_of=lambda write: write.sink,
    )


def _gaps(graph: Graph, log: Sequence[Cut]) -> Iterator[str]:
    """Where the log leaves rows of a source out, or has them twice."""
    for read in graph.sources:
        source = read.source
        at = {partition: source.first(partition) for partition in source.partitions()}
        for number, cut in enumerate(log):
            for partition, (start, end) in cut.offsets.items() if cut.source == read.name else ():
                if start != at[partition]:
                    place = f"partition {partition!r} of {read.name!r}"
                    yield f"epoch {number} begins at {start!r} of {place}, not at {at[partition]!r}"
                at[partition] = end
        latest = source.latest()
        for partition, end in at.items():
            if source.finished(partition) and end != latest[partition]:
                place = f"partition {partition!r} of {read.name!r}"
                yield f"{place} was read up to {end!r}, and ends at {latest[partition]!r}"


def _never(lives: Lives) -> ProgramError:
    message = f"{WHAT}: it never came to {lives.unreached[0]}"
    why = f"the run was over after {lives.history.epochs} epochs"
    return ProgramError(message, why=why, so="give another moment, or fewer at a time")
