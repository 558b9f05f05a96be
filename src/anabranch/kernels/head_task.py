"""What happens to rows of a source before any operator with state: read, changed, divided."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from anabranch.compiler.proof import Proof
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.failures import Failed, failing, told
from anabranch.kernels.results import HeadResult, TaskError
from anabranch.kernels.stateless.chain import Chain
from anabranch.kernels.stateless.columns import filtered, framed
from anabranch.kernels.stateless.python_rows import records_of
from anabranch.kernels.times import FARTHEST, micros_of
from anabranch.kernels.windows.early import EarlyPartials
from anabranch.kernels.windows.windows import Windows
from anabranch.program.functions import OnError
from anabranch.program.schema import TimeType
from anabranch.state.slices import Owners, slice_of


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
    proofs: tuple[Proof, ...]
    """What its being parallel rests on; to be looked at when a task begins and ends."""
    owners: Owners | None = None

    @cached_property
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
            rows, left = self.chain.run(bundle)
            parts = self._parts(rows, partition_index, first_row) if rows.height else {}
        except Failed as failed:
            return HeadResult({}, frame.height, None, 0, failed.error)
        return HeadResult(parts, frame.height, greatest, letters + left.count)

    def through(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows as they leave for the lanes, undivided."""
        bundle, _, _ = self._entered(frame, 0, 0)
        return self.chain.run(bundle)[0]

    def _entered(
        self, frame: pl.DataFrame, partition_index: int, first_row: int
    ) -> tuple[pl.DataFrame, int | None, int]:
        entrance = self.entrance
        self._require_columns(frame)
        columns, greatest, missing = [frame[name] for name in self.chain.live], None, None
        if entrance.event_time is not None and entrance.time is not None:
            times, greatest = self._times(frame[entrance.event_time], entrance.time)
            missing = self._without_time(frame, times)
            if entrance.timed:
                columns.append(times.alias(TIME))
        elif entrance.timed:
            columns.append(pl.repeat(None, frame.height, dtype=pl.Int64, eager=True).alias(TIME))
        # Where no lane follows, rows leave as they came, and each split knows its own place.
        if entrance.ordered and not self.ends:
            columns += _places(partition_index, first_row, frame.height)
        bundle = framed(columns, frame.height)
        if missing is None:
            return bundle, greatest, 0
        return filtered(bundle, ~missing, self.chain.live), greatest, int(missing.sum())

    def _require_columns(self, frame: pl.DataFrame) -> None:
        """Refuse rows without a column that is read, or with one of another type."""
        given = frame.schema
        for name in self.columns:
            expected, found = self.entrance.schema[name], given.get(name)
            if found != expected:
                text = "RunError: the source gave other columns than it said: "
                text += f"{name!r} is {found or 'missing'}, expected {expected}"
                raise Failed(TaskError(self.entrance.operator, text))

    def _times(self, values: pl.Series, kind: TimeType) -> tuple[pl.Series, int | None]:
        """Event times in microseconds, and the greatest."""
        if kind.tick == 1 and isinstance(values.dtype, pl.Datetime):
            # They are in the column as they are, which two looks tell; `micros_of` is a query.
            times = values.cast(pl.Int64)
            low, high = times.min(), times.max()
            if low is None or -FARTHEST <= low <= high <= FARTHEST:  # type: ignore[operator]
                return times, high  # type: ignore[return-value]
        with failing(self.entrance.operator):
            times = micros_of(values, kind)
        return times, times.max()  # type: ignore[return-value]

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
        # Without a key of the region all partials are in one slice, though windows may have keys.
        number = self.owners.slices if self.key else 1
        partials = self._partials(rows, self.windows, number)
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


def _places(partition_index: int, first_row: int, height: int) -> list[pl.Series]:
    """The order columns of rows that follow one another."""
    # By NumPy: an eager expression of Polars is a query, which costs more than 1,000 such rows.
    return [
        pl.Series(PARTITION, np.full(height, partition_index, dtype=np.int32)),
        pl.Series(OFFSET, np.arange(first_row, first_row + height, dtype=np.int64)),
    ]


def _divided(rows: pl.DataFrame, slices: pl.Series, owners: Owners) -> dict[int, pl.DataFrame]:
    """Rows by lane, in their order; no lane without rows."""
    if owners.lanes == 1:
        return {0: rows}
    lanes = owners.lane_of(slices)
    return {lane: rows.filter(lanes == lane) for lane in lanes.unique().sort().to_list()}
