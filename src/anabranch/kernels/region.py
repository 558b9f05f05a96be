"""Regions as tasks: the one place where plans meet kernels.

A task is a value that can be pickled. It gives the same result for the same arguments, and an error
of the user's program is part of the result: a task never raises for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import polars as pl

from anabranch.compiler.plan import Plan, Region
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.early import EarlyPartials
from anabranch.kernels.failures import Failed, failing, told
from anabranch.kernels.keyed import Cells, Processor
from anabranch.kernels.lookup import LookupStep
from anabranch.kernels.results import (
    EpochInput,
    EpochOutput,
    HeadResult,
    KeyedResult,
    TaskError,
)
from anabranch.kernels.rows import records_of
from anabranch.kernels.state import KeyedState, StateView, WindowState, delta_of
from anabranch.kernels.stateless import Chain, Numbering, lower_chain
from anabranch.kernels.times import micros_of
from anabranch.kernels.windows import START, Windows, in_log_order
from anabranch.program.functions import OnError
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import OUT, Operator
from anabranch.program.operators.windowed import WindowAggregate
from anabranch.program.schema import TimeType
from anabranch.state.slices import Owners, slice_of

RegionTask: TypeAlias = "HeadTask | KeyedTask"


def lower(plan: Plan, region: Region) -> RegionTask:
    """The task of a region."""
    return _head_task(plan) if region is plan.head or region == plan.head else _keyed_task(plan)


@dataclass(frozen=True)
class Entrance:
    """How a source's rows become bundles."""

    operator: str
    schema: pl.Schema
    event_time: str | None
    time: TimeType | None
    on_error: OnError
    ordered: bool
    """Whether rows need order columns."""
    timed: bool
    """Whether rows need their event times beside them."""


@dataclass(frozen=True)
class HeadTask:
    """Rows of a source through operators without state, then to the lanes of their keys."""

    entrance: Entrance
    chain: Chain
    key: tuple[str, ...]
    windows: Windows | None
    """Where rows end in a window, partials leave instead of them."""
    early: EarlyPartials | None
    """Where the last step is a lookup that partials may be made before; the chain ends before."""
    ends: bool
    """Whether rows leave the program here, since no operator has state."""
    owners: Owners | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that it reads: a frame may leave out all others."""
        time = self.entrance.event_time
        return tuple(n for n in self.entrance.schema if n in self.chain.live or n == time)

    def route(self, owners: Owners) -> HeadTask:
        """The same task for these lanes."""
        return replace(self, owners=owners)

    def run(self, frame: pl.DataFrame, partition_index: int, first_row: int) -> HeadResult:
        """Take consecutive rows of one partition, the first with this number in it."""
        if not self.ends and self.owners is None:
            message = "a head task is routed before it is run"
            raise ValueError(message)
        try:
            bundle, greatest, letters = self._entered(frame, partition_index, first_row)
            rows, left_out = self.chain.run(bundle)
            parts = self._parts(rows, partition_index, first_row) if rows.height else {}
        except Failed as failed:
            return HeadResult({}, frame.height, None, 0, failed.error)
        return HeadResult(parts, frame.height, greatest, letters + left_out)

    def _entered(
        self, frame: pl.DataFrame, partition_index: int, first_row: int
    ) -> tuple[pl.DataFrame, int | None, int]:
        entrance = self.entrance
        self._require_columns(frame)
        columns, greatest, missing = [frame[name] for name in self.chain.live], None, None
        if entrance.event_time is not None and entrance.time is not None:
            times = self._times(frame[entrance.event_time], entrance.time)
            greatest = times.max()
            missing = self._without_time(frame, times)
            if entrance.timed:
                columns.append(times.alias(TIME))
        if entrance.ordered:
            end = first_row + frame.height
            same = pl.repeat(partition_index, frame.height, dtype=pl.Int32, eager=True)
            numbers = pl.int_range(first_row, end, dtype=pl.Int64, eager=True)
            columns += [same.alias(PARTITION), numbers.alias(OFFSET)]
        bundle = pl.DataFrame(columns)
        if missing is None:
            return bundle, greatest, 0  # type: ignore[return-value]
        return bundle.filter(~missing), greatest, int(missing.sum())  # type: ignore[return-value]

    def _require_columns(self, frame: pl.DataFrame) -> None:
        """Refuse rows without a column that is read, or with one of another type."""
        for name in self.columns:
            expected, found = self.entrance.schema[name], frame.schema.get(name)
            if found != expected:
                text = "RunError: the source gave other columns than it said: "
                text += f"{name!r} is {found or 'missing'}, expected {expected}"
                raise Failed(TaskError(self.entrance.operator, text))

    def _times(self, values: pl.Series, kind: TimeType) -> pl.Series:
        with failing(self.entrance.operator):
            return micros_of(values, kind)

    def _without_time(self, frame: pl.DataFrame, times: pl.Series) -> pl.Series | None:
        """Which rows have no event time, if any; where that ends the run, it does."""
        if not times.null_count():
            return None
        missing = times.is_null()
        if self.entrance.on_error == "fail":
            error = ValueError(f"null event time in column {self.entrance.event_time!r}")
            first = missing.arg_max()
            assert first is not None
            record = records_of(frame.slice(first, 1), frame.columns)[0]
            raise Failed(told(self.entrance.operator, error, record))
        return missing

    def _parts(
        self, rows: pl.DataFrame, partition_index: int, first_row: int
    ) -> dict[int, pl.DataFrame]:
        if self.ends:
            return {0: rows}
        assert self.owners is not None
        if self.windows is None:
            slices = slice_of(rows, self.key, self.owners.slices)
            return _divided(rows.with_columns(slices.alias(SLICE)), slices, self.owners)
        partials = self._partials(rows, self.windows, self.owners.slices)
        if not partials.height:
            return {}
        if self.windows.ordered:
            partials = partials.with_columns(
                pl.lit(partition_index, pl.Int32).alias(PARTITION),
                pl.lit(first_row, pl.Int64).alias(OFFSET),
            )
        return _divided(partials, partials["slice"], self.owners)

    def _partials(self, rows: pl.DataFrame, windows: Windows, slices: int) -> pl.DataFrame:
        if self.early is not None:
            with failing(self.early.lookup.name):
                if self.early.pays(rows):
                    return self.early.partials(rows, slices)
                rows, _ = self.early.lookup.run(rows)
        if not rows.height:
            return pl.DataFrame(schema=windows.partial_schema)
        with failing(windows.operator):
            return windows.partials(rows, slices)


@dataclass(frozen=True)
class KeyedTask:
    """An operator with state over one lane's slices, and the operators without behind it."""

    stateful: Processor | Windows
    tail: Chain
    empty_rows: pl.DataFrame
    """No rows, as they leave."""

    def empty(self) -> StateView:
        """The state before the first epoch."""
        return self.restore(())

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> StateView:
        """The state after epochs with these deltas, in order, as this version."""
        if isinstance(self.stateful, Windows):
            return WindowState.from_deltas(self.stateful, deltas, version)
        return KeyedState.from_deltas(deltas, version)

    def run(self, epochs: Sequence[EpochInput], state: StateView) -> KeyedResult:
        """Take epochs in order, from this state on; it is left as it is."""
        outputs: list[EpochOutput] = []
        deltas: list[pl.DataFrame] = []
        cells = Cells()
        if isinstance(state, KeyedState):
            cells = state.take_cache() or cells
        for epoch in epochs:
            try:
                output, state, delta = self._epoch(epoch, state, cells)
            except Failed as failed:
                return KeyedResult(outputs, state, deltas, failed.error)
            outputs.append(output)
            deltas.append(delta)
        if isinstance(state, KeyedState):
            cells.trim()
            state = replace(state, cache=cells)
        return KeyedResult(outputs, state, deltas)

    def _epoch(
        self, epoch: EpochInput, state: StateView, cells: Cells
    ) -> tuple[EpochOutput, StateView, pl.DataFrame]:
        if isinstance(state, WindowState):
            return self._windows(epoch, state)
        assert isinstance(state, KeyedState)
        return self._process(epoch, state, cells)

    def _process(
        self, epoch: EpochInput, state: KeyedState, cells: Cells
    ) -> tuple[EpochOutput, StateView, pl.DataFrame]:
        assert isinstance(self.stateful, Processor)
        if not any(part.height for part in epoch.parts):
            return EpochOutput(epoch.epoch, self.empty_rows), state.then({}), delta_of({})
        done = self.stateful.run(epoch, state, cells)
        rows, letters = self.tail.run(done.rows)
        output = EpochOutput(epoch.epoch, rows, 0, done.letters + letters)
        return output, state.then(done.entries), delta_of(done.entries)

    def _windows(
        self, epoch: EpochInput, state: WindowState
    ) -> tuple[EpochOutput, StateView, pl.DataFrame]:
        windows = self.stateful
        assert isinstance(windows, Windows)
        before = None if epoch.watermark_before is None else epoch.watermark_before - windows.size
        after = None if epoch.watermark is None else epoch.watermark - windows.size
        fresh, late = _in_time(windows.merged(in_log_order(epoch.parts)), before)
        rows, letters = self.empty_rows, 0
        if after is not None:
            due = [*state.due(before, after), fresh.filter(pl.col(START) <= after)]
            if any(frame.height for frame in due):
                with failing(windows.operator):
                    results = windows.results(windows.merged(due))
                rows, letters = self.tail.run(results)
            fresh = fresh.filter(pl.col(START) > after)
        delta = fresh.sort("slice", maintain_order=True)
        return EpochOutput(epoch.epoch, rows, late, letters), state.then(fresh, after), delta


def _in_time(partials: pl.DataFrame, closed: int | None) -> tuple[pl.DataFrame, int]:
    """The partials of windows that were open before the epoch, and how many rows are late."""
    if closed is None or not partials.height:
        return partials, 0
    late = partials.filter(pl.col(START) <= closed)
    return partials.filter(pl.col(START) > closed), int(late["n"].sum())


def _divided(rows: pl.DataFrame, slices: pl.Series, owners: Owners) -> dict[int, pl.DataFrame]:
    """Rows by lane, in their order; no lane without rows."""
    if owners.lanes == 1:
        return {0: rows}
    lanes = owners.lane_of(slices)
    return {lane: rows.filter(lanes == lane) for lane in lanes.unique().sort().to_list()}


# Lowering


def _head_task(plan: Plan) -> HeadTask:
    operators, read, stateful = _between(plan, plan.head), plan.read, plan.stateful
    given = _given(plan, stateful or plan.write)
    windows = None
    if isinstance(stateful, WindowAggregate):
        windows = Windows.of(stateful, given)
    # Behind a window rows are ordered by it, whatever their order was before.
    ordered = windows is None
    needed = tuple(given) if windows is None else windows.roots
    schemas = [_given(plan, op) for op in operators]
    chain, _ = lower_chain(operators, schemas, needed, Numbering(ordered))
    chain, early = _early(chain, windows, schemas[-1] if schemas else given)
    out = read.outputs[OUT]
    entrance = Entrance(
        read.name, out.schema, read.event_time, out.time, read.on_error, ordered, not ordered
    )
    key = plan.keyed.key if plan.keyed is not None else None
    return HeadTask(entrance, chain, key or (), windows, early, stateful is None)


def _early(
    chain: Chain, windows: Windows | None, schema: pl.Schema
) -> tuple[Chain, EarlyPartials | None]:
    """Take the last step off a chain if it is a lookup that partials may be made before."""
    last = chain.steps[-1] if chain.steps else None
    if windows is None or not isinstance(last, LookupStep):
        return chain, None
    early = EarlyPartials.of(last, windows, schema)
    if early is None:
        return chain, None
    out = tuple(dict.fromkeys([*last.left, *last.on]))
    return Chain(chain.steps[:-1], chain.live, out), early


def _keyed_task(plan: Plan) -> KeyedTask:
    stateful = plan.stateful
    assert stateful is not None
    assert plan.keyed is not None
    given, behind = _given(plan, stateful), _between(plan, plan.keyed)[1:]
    lowered: Processor | Windows
    if isinstance(stateful, WindowAggregate):
        lowered, numbering = Windows.of(stateful, given), Numbering(ordered=True)
        made = lowered.results(pl.DataFrame(schema=lowered.partial_schema))
    else:
        before = Numbering(ordered=True).behind_all(_between(plan, plan.head))
        sub, numbering = before.behind(stateful)
        assert sub is not None
        lowered = Processor.of(stateful, given, sub)
        order = dict.fromkeys([OFFSET, *numbering.names], pl.Int64())
        out = stateful.outputs[OUT].schema
        made = pl.DataFrame(schema={**out, PARTITION: pl.Int32(), **order})
    schemas = [_given(plan, op) for op in behind]
    tail, _ = lower_chain(behind, schemas, tuple(_given(plan, plan.write)), numbering)
    return KeyedTask(lowered, tail, tail.run(made)[0])


def _between(plan: Plan, region: Region) -> list[Operator]:
    return [op for op in plan.operators(region) if not isinstance(op, Read | Write)]


def _given(plan: Plan, op: Operator) -> pl.Schema:
    return plan.graph.output(op.inputs[0]).schema
