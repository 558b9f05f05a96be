"""Tumbling and sliding windows as a kernel (M9).

Rows become partials of panes, in the lane or before it (`combined`). A window that ends is the sum
of its panes; a pane is shared by all its windows, those that a late row still reaches among them.
With `allow_late` windows leave again when they have changed: how often one has left is a column of
the partial that starts where it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import polars as pl

from anabranch.kernels.bundle import OFFSET, PARTITION, TIME
from anabranch.kernels.failures import failing
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.letters import Left
from anabranch.kernels.windows.fields import ROWS
from anabranch.kernels.windows.panes import START, Panes
from anabranch.kernels.windows.results import END, Leaving, outputs_of
from anabranch.kernels.windows.state import PaneState
from anabranch.kernels.windows.windows import FRESH, LEFT, SLICE, Windows
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import LATE, Port
from anabranch.program.operators.windowed import WindowAggregate, WindowApply

PLACES = 2**32
"""Rows an epoch has less than so many."""
_FAR = 2**62
_UNLIKE = (pl.Categorical, pl.Enum, pl.List, pl.Array, pl.Struct, pl.Object)
"""Types of keys of which one column is not sorted as it is beside others."""


@dataclass(frozen=True)
class WindowKernel:
    """A tumbling or sliding window operator."""

    windows: Windows
    panes: Panes
    leaving: Leaving
    allowed: int
    late_read: bool
    """Whether anybody wants the late rows; else they are counted."""
    combined: bool = False
    """Whether its input is partials already; only where no values are placed."""

    @classmethod
    def of(cls, graph: Graph, op: WindowAggregate | WindowApply) -> Self:
        """Lower an operator of a program."""
        windows = Windows.of(op, graph.output(op.inputs[0]).schema)
        assert windows.panes is not None
        read = graph.is_read(Port(op.id, LATE))
        leaving = Leaving.of(op, windows)
        return cls(windows, windows.panes, leaving, op.windowing.allowed or 0, read)

    @property
    def operator(self) -> str:
        """Its name."""
        return self.windows.operator

    @property
    def lag(self) -> int:
        """Its output's watermark is its own."""
        return 0

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> PaneState:
        """The state after epochs with these deltas, in order."""
        return PaneState.from_deltas(self.windows, deltas, version)

    def after(self, state: PaneState, deltas: Iterable[pl.DataFrame]) -> PaneState:
        """The state after more epochs with these deltas, in order."""
        return state.after(deltas)

    def run(self, taken: Taken, state: PaneState) -> Given[PaneState]:
        """Add an epoch's rows to their panes, then let windows leave that have ended."""
        late, added = taken.rows[0].clear(), True
        if self.combined:
            fresh, count = self._partials(taken)
            # Where nothing leaves they can wait for those of other epochs: a sum less.
            added = self._leaves(taken)
            fresh = self.windows.merged([fresh]) if added else fresh
        else:
            fresh, late = self._rows(taken)
            count = late.height
        due, left = self._due(taken, state, fresh)
        rows, failed = self.leaving.by_watermark(due) if due.height else self._no_rows
        closed = self.panes.closed(_less(taken.after, self.allowed))
        kept = self.windows.merged([fresh, left]) if left.height else fresh
        if closed is not None and kept.height and kept[START][0] <= closed:
            kept = kept.filter(pl.col(START) > closed)
        outputs = outputs_of(rows, late if self.late_read else None, failed)
        then = state.then(kept, closed, added=added)
        return Given(outputs, then, kept, count, failed.count)

    # Rows in

    def _rows(self, taken: Taken) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The epoch's partials, sorted by start, and the rows that are too late for all windows."""
        rows = taken.rows[0]
        places = None
        if self.windows.placed:
            first = taken.epoch * PLACES
            places = pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True)
        outside = self.panes.outside(rows[TIME])
        if outside is not None and outside.any():
            rows, places = _those(~outside, rows, places)
        late = rows.clear()
        closed = self.panes.closed(_less(taken.before, self.allowed))
        if closed is not None and (is_late := rows[TIME] <= closed).any():
            late = rows.filter(is_late)
            rows, places = _those(~is_late, rows, places)
        with failing(self.operator):
            found = self.windows.grouped(rows, self.panes.starts(rows[TIME]), places)
        return found.sort(START, maintain_order=True), late

    def _partials(self, taken: Taken) -> tuple[pl.DataFrame, int]:
        """The same of partials, which are not added up; how many rows are late, but not which."""
        parts = taken.rows[0]
        if PARTITION in parts.columns:
            parts = parts.sort(PARTITION, OFFSET, maintain_order=True)
        found = parts.select(list(self.windows.partial_schema))
        if not found[START].is_sorted():
            found = found.sort(START, maintain_order=True)
        closed = self.panes.closed(_less(taken.before, self.allowed))
        if closed is None or not found.height or found[START][0] > closed:
            return found, 0
        late = found.filter(pl.col(START) <= closed)
        return found.filter(pl.col(START) > closed), int(late[ROWS].sum())

    # Windows out

    @cached_property
    def _none(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.windows.partial_schema)

    @cached_property
    def _no_rows(self) -> tuple[pl.DataFrame, Left]:
        """What leaves at most epochs: to make it each time is half of what a small one takes."""
        return self.leaving.by_watermark(self._none.with_columns(pl.lit(0, pl.Int64).alias(END)))

    def _leaves(self, taken: Taken) -> bool:
        """Whether windows may leave at the end of this epoch."""
        high, low = self.panes.last_ended(taken.after), self.panes.first_open(taken.before)
        return high is not None and (high >= low or self.windows.revised)

    def _due(
        self, taken: Taken, state: PaneState, fresh: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The windows that leave, in order, and with `allow_late` a mark for each."""
        panes, windows = self.panes, self.windows
        high, low = panes.last_ended(taken.after), panes.first_open(taken.before)
        none = self._none
        if high is None or not self._leaves(taken):
            return none, none
        if windows.revised:
            found = self._changed(taken, state, fresh, low, high)
        else:
            found = self._ended(state, fresh, low, high)
        found = found.with_columns((pl.col(START) + panes.size).alias(END))
        return found, self._marks(found) if windows.revised else none

    def _ended(self, state: PaneState, fresh: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
        """The windows that start from `low` to `high`, in order."""
        panes, windows = self.panes, self.windows
        several = low < high
        held = state.between(low, min(high + panes.size, _FAR), added=several)
        if several and (slid := windows.slid([*held, fresh], low, high)) is not None:
            return slid
        parts = [x for each in (*held, fresh) for x in panes.windows(each, low, high) if x.height]
        # What this epoch made of one pane and key is whole already.
        alone = not held and len(parts) == 1 and panes.slide == panes.size
        return self._ordered(parts[0] if alone else windows.merged(parts))

    def _changed(
        self, taken: Taken, state: PaneState, fresh: pl.DataFrame, low: int, high: int
    ) -> pl.DataFrame:
        """The same with those before `low` that rows of this epoch have changed."""
        panes, windows = self.panes, self.windows
        again = panes.first_open(_less(taken.before, self.allowed))
        parts = panes.windows(fresh.with_columns(pl.col(ROWS).alias(FRESH)), again, high)
        parts = [part for part in parts if part.height]
        lowest = min([low, *(int(part[START].min()) for part in parts)])  # type: ignore[arg-type]
        old = state.between(lowest, min(high + panes.size, _FAR))
        counted = [x for each in old for x in self._counted(each, lowest, high)]
        found = windows.merged([*counted, *parts])
        first = (pl.col(START) >= low) & (pl.col(ROWS) > 0)
        return self._ordered(found.filter(first | (pl.col(FRESH) > 0)))

    def _ordered(self, found: pl.DataFrame) -> pl.DataFrame:
        """Windows by end, which is by start as they are of one size, and by key."""
        names = self.windows.names
        if len(names) != 1 or isinstance(found.schema[names[0]], _UNLIKE):
            return found.sort([START, *names], maintain_order=True)
        # To sort by one column is several times as fast as by two, and most often one window ends.
        if not found[names[0]].is_sorted():
            found = found.sort(names[0], maintain_order=True)
        one = not found.height or found[START].min() == found[START].max()
        return found if one else found.sort(START, maintain_order=True)

    def _counted(self, panes: pl.DataFrame, low: int, high: int) -> list[pl.DataFrame]:
        """Panes as parts of windows; how often a window has left stands at its first pane."""
        if self.panes.slide == self.panes.size:
            return self.panes.windows(panes, low, high)
        at = panes.with_columns(pl.col(START).alias("at"))
        own = pl.when(pl.col("at") == pl.col(START)).then(LEFT).otherwise(0).alias(LEFT)
        return [each.with_columns(own).drop("at") for each in self.panes.windows(at, low, high)]

    def _marks(self, found: pl.DataFrame) -> pl.DataFrame:
        """A partial of no rows for each window that has left once more."""
        names = [SLICE, START, *self.windows.names]
        schema = self.windows.partial_schema
        marks = found.select(*names, pl.lit(1, pl.Int64).alias(LEFT))
        missing = [pl.lit(None, d).alias(n) for n, d in schema.items() if n not in marks.columns]
        return marks.with_columns(missing).select(list(schema))


def _less(watermark: int | None, by: int) -> int | None:
    return None if watermark is None else watermark - by


def _those(
    mask: pl.Series, rows: pl.DataFrame, places: pl.Series | None
) -> tuple[pl.DataFrame, pl.Series | None]:
    return rows.filter(mask), None if places is None else places.filter(mask)
