"""Whether a program, run in parallel and through crashes, gives what its sequential run gives.

Every run is compared with the oracle on the run's own log (M1): content and order of an ordered
sink, content of an unordered one. Besides, the log must hold each row of the sources once, and no
sink may be shown anything twice that a crash does not excuse (M15).
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from anabranch.connectors.base import Source
from anabranch.connectors.records import Records
from anabranch.connectors.rows import difference
from anabranch.epoch.triggers import Trigger, available_now
from anabranch.errors import ProgramError, nearest
from anabranch.ids import Offset, Partition
from anabranch.program.graph import Graph
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Read
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.windowed import WindowAggregate
from anabranch.simulate.inline import Mischief
from anabranch.testing.compare import Difference, Rows, first_difference
from anabranch.testing.faults import FaultPoint
from anabranch.testing.lives import Lives, Schedule, as_written, with_edges
from anabranch.testing.oracle import Written, run_sequential
from anabranch.testing.sequential.checkpoint import log_of

Inputs: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]] | pl.DataFrame | Source]

WHAT = "assert_same_as_sequential"
EPOCHS = 6
"""So many at least, where a source can be cut so: some before, some behind whatever happens."""
UNKIND = Mischief(kill=0.2, repeat=0.2)
"""Processes that lose their state and tasks that run twice; none of it may show."""

_AROUND = 2
"""Rows told on either side of one that differs."""
_CUTS_TOLD = 30


def assert_same_as_sequential(  # noqa: PLR0913 - a user's options, by name
    program: Written,
    inputs: Inputs | None = None,
    *,
    widths: Sequence[int] = (1, 2),
    policies: None = None,
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
    step of the protocol; the step alone is both of them, one after the other:

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

    With `spark` (a SparkSession, a SparkContext, or True for one of our own) all of it is done on
    Spark as well; there a delta is taken for its job. `within` gives the relative error that the
    columns may have which come from a sketch; those that keep their name are known.

    >>> from anabranch.api.program import Program
    >>> from anabranch.connectors.memory import Memory
    >>> program = Program("doubled")
    >>> stream = program.read(Records([{"n": n} for n in range(20)]), name="in")
    >>> stream.with_columns(twice=pl.col("n") * 2).write(Memory("out"))
    >>> assert_same_as_sequential(program, crash_at=[2, "after publish"], rescale_at={1: 3})
    """
    __tracebackhide__ = True
    if policies is not None:
        message = f"{WHAT}: policies={policies!r} cannot be had: there is one policy yet"
        raise ProgramError(message, so="leave it out")
    asked = _Asked(
        _widths(widths),
        tuple(sorted(_points(crash_at), key=lambda point: point.place)),
        _rescale(rescale_at),
        _trigger(trigger),
        seed,
        bool(inputs),
    )
    graph = _with_inputs(program.freeze(), inputs or {})
    errors = {**_sketches(graph), **(within or {})}
    with tempfile.TemporaryDirectory(prefix="anabranch-same-") as home:
        for number, trial in enumerate(_trials(asked, graph, spark)):
            trial.run(graph, Path(home) / str(number), errors)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a user asked for, checked."""

    widths: tuple[int, ...]
    crashes: tuple[FaultPoint, ...]
    rescale: Mapping[int, int]
    trigger: Trigger | None
    seed: int
    other_input: bool

    @property
    def epochs(self) -> int:
        """How many there should be, so that all that is asked for can happen."""
        named = [*self.rescale, *(point.epoch or 0 for point in self.crashes)]
        return max([EPOCHS + len(self.crashes), *(epoch + 2 for epoch in named)])

    @property
    def in_flight(self) -> int:
        """How many may be under way: one where it must be known what is planned when."""
        planned = any(point.step == "plan" and point.epoch is not None for point in self.crashes)
        if self.rescale or planned:
            return 1
        return 3 if self.crashes else 16


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
                raise self._failed(what, (), log)
            found = first_difference(
                expected[write.name], shelf.rows, ordered=write.ordered, within=errors
            )
            if found is not None:
                raise self._failed(_headline(write.name, found), tuple(_sides(found)), log)
        for lost in _gaps(program.graph, log):
            raise self._failed(lost, (), log)

    def _failed(self, what: str, lines: Sequence[str], log: Sequence[Cut]) -> AssertionError:
        told = [f"  {label:<6}{text}" for label, text in self._told(log)]
        return AssertionError("\n".join([what, *lines, *told]))

    def _told(self, log: Sequence[Cut]) -> Iterator[tuple[str, str]]:
        schedule, trigger = self.schedule, self.schedule.trigger
        where = "in this process" if self.sc is None else "on Spark"
        yield "run", f"width {schedule.lanes}, {where}, {len(log)} epochs, seed {schedule.seed}"
        if schedule.rescale:
            yield "", f"rescaled at {dict(schedule.rescale)}"
        crashes = ", ".join(map(str, schedule.crashes)) or "none"
        yield "crash", crashes
        given = ["program", "inputs"] if self.other_input else ["program"]
        given += [f"widths=({schedule.lanes},)", f"trigger={_written(trigger)}"]
        if schedule.crashes:
            given.append(f"crash_at={[str(point) for point in schedule.crashes]}")
        if schedule.rescale:
            given.append(f"rescale_at={dict(schedule.rescale)}")
        given += [f"seed={schedule.seed}", *(["spark=True"] if self.sc is not None else [])]
        yield "again", f"{WHAT}({', '.join(given)})"
        yield "log", f"[{', '.join(map(_cut_told, log[:_CUTS_TOLD]))}]"
        if len(log) > _CUTS_TOLD:
            yield "", f"and {len(log) - _CUTS_TOLD} more"


def _trials(asked: _Asked, graph: Graph, spark: Any) -> Iterator[_Trial]:
    schedules = [
        (schedule, asked.epochs, asked.other_input)
        for width in asked.widths
        for schedule in _runs(asked, width, graph)
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


def _runs(asked: _Asked, width: int, graph: Graph) -> Iterator[Schedule]:
    """The schedules of one width."""

    def schedule(trigger: Trigger) -> Schedule:
        crashes, rescale = asked.crashes, asked.rescale
        return Schedule(width, trigger, crashes, rescale, asked.seed, UNKIND, asked.in_flight)

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


# ---- What a user gave -----------------------------------------------------------------------


def _widths(given: Sequence[int]) -> tuple[int, ...]:
    found = tuple(given) if isinstance(given, Collection) else ()
    if not found or not all(_count(width, 1) for width in found):
        message = f"{WHAT}: widths must be whole numbers of at least 1, got {given!r}"
        raise ProgramError(message, so="write e.g. widths=(1, 2)")
    return found


def _points(given: Sequence[int | str] | None) -> list[FaultPoint]:
    if isinstance(given, str | int):
        message = f"{WHAT}: crash_at must be a list, got {given!r}"
        raise ProgramError(message, so=f"write crash_at=[{given!r}]")
    return [point for each in given or () for point in FaultPoint.of(each)]


def _rescale(given: Mapping[int, int] | None) -> Mapping[int, int]:
    found = given if given is not None else {}
    good = isinstance(found, Mapping) and all(
        _count(epoch, 0) and _count(lanes, 1) for epoch, lanes in found.items()
    )
    if not good:
        message = f"{WHAT}: rescale_at must map epochs to numbers of lanes, got {given!r}"
        raise ProgramError(message, so="write e.g. rescale_at={3: 2}")
    return dict(found)


def _trigger(given: Trigger | None) -> Trigger | None:
    if given is not None and not isinstance(given, Trigger):
        message = f"{WHAT}: not a trigger: {given!r}"
        raise ProgramError(message, so="pass ab.available_now(max_rows=10), ab.epochs(...) or none")
    return given


def _count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _with_inputs(graph: Graph, inputs: Inputs) -> Graph:
    """The graph with these sources in place of its own; none may be without an end."""
    names = [read.name for read in graph.sources]
    if unknown := [name for name in inputs if name not in names]:
        message = f"{WHAT}: the program has no source {unknown[0]!r}"
        raise ProgramError(message, have=", ".join(names), so=nearest(unknown[0], names))
    found = with_edges(
        graph,
        source_of=lambda r: _source(r, inputs[r.name]) if r.name in inputs else r.source,
        sink_of=lambda write: write.sink,
    )
    for read in found.sources:
        _require_end(read)
    return found


def _source(read: Read, given: Sequence[Mapping[str, Any]] | pl.DataFrame | Source) -> Source:
    schema = read.outputs[OUT].schema
    if not isinstance(given, Source):
        rows = given if isinstance(given, pl.DataFrame) else list(given)
        given = Records(rows, schema=None if isinstance(rows, pl.DataFrame) else schema)
    if wrong := difference(schema, pl.Schema(given.schema)):
        message = f"{WHAT}: what inputs has for {read.name!r} does not have its columns"
        have = ", ".join(f"{name}: {dtype}" for name, dtype in schema.items())
        raise ProgramError(message, why=wrong, have=have)
    return given


def _require_end(read: Read) -> None:
    if None in as_written(read.source).latest().values():
        message = f"{read.name} never ends, so it cannot be run to its end"
        so = f"pass inputs={{{read.name!r}: [...]}}, or give the source rows=..."
        raise ProgramError(message, site=read.site, so=so)


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


# ---- What is told ---------------------------------------------------------------------------


def _never(lives: Lives) -> ProgramError:
    message = f"{WHAT}: it never came to {lives.unreached[0]}"
    why = f"the run was over after {lives.history.epochs} epochs"
    return ProgramError(message, why=why, so="give another moment, or fewer at a time")


def _headline(sink: str, found: Difference) -> str:
    counts = f"{len(found.expected)} rows expected, {len(found.actual)} came"
    return f"sink {sink!r} differs from the sequential run at row {found.number} ({counts})"


def _sides(found: Difference) -> Iterator[str]:
    """The first row that differs, and some around it, of both sides."""
    last = max(len(found.expected), len(found.actual)) - 1
    low, high = max(0, found.number - _AROUND), min(last, found.number + _AROUND)
    for number in range(low, high + 1):
        mark = ">" if number == found.number else " "
        yield f"{mark} row {number}: expected {_row(found.expected, number)}"
        yield f"{mark} {' ' * len(f'row {number}:')} actual   {_row(found.actual, number)}"


def _row(rows: Rows, number: int) -> str:
    return str(dict(rows[number])) if number < len(rows) else "nothing"


def _written(trigger: Trigger) -> str:
    rows = "" if trigger.max_rows is None else f"max_rows={trigger.max_rows}"
    if trigger.bounded:
        return f"ab.available_now({rows})"
    return f"ab.epochs('{trigger.every // 1_000} ms'{', ' if rows else ''}{rows})"


def _cut_told(cut: Cut) -> str:
    """A cut as one writes it; tables are in no text."""
    given = [repr(cut.source), repr(dict(cut.offsets))]
    usual: Mapping[str, Any] = {
        "idle": frozenset(),
        "finished": None,
        "hint": None,
        "quarantined": frozenset(),
    }
    given += [
        f"{name}={getattr(cut, name)!r}"
        for name, value in usual.items()
        if getattr(cut, name) != value
    ]
    return f"ab.testing.Cut({', '.join(given)})"


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
