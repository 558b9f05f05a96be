"""Windows of the last n records of a key as a kernel: every step-th record emits at once (M9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.bundle import SLICE as ROW_SLICE
from anabranch.kernels.bundle import TIME, hidden
from anabranch.kernels.failures import failing
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.letters import Left
from anabranch.kernels.windows.keys import END, EPOCH, HASH, KeyRows, hashed, ranges
from anabranch.kernels.windows.laid import LAST, SEEN, Laid, listed
from anabranch.kernels.windows.panes import START
from anabranch.kernels.windows.resident_rows import ResidentRows
from anabranch.kernels.windows.results import Leaving, outputs_of
from anabranch.kernels.windows.windows import SLICE, Windows
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import LATE, Port
from anabranch.program.operators.windowed import WindowAggregate, WindowApply
from anabranch.program.windows import Rows

_Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowsKernel:
    """A rows window operator. Rows have no window to be late for."""

    windows: Windows
    leaving: Leaving
    count: int
    step: int
    kept: pl.Schema
    """The columns of rows that windows to come may still read."""
    late_read: bool

    @classmethod
    def of(cls, graph: Graph, op: WindowAggregate | WindowApply) -> Self:
        """Lower an operator of a program."""
        window = op.windowing.window
        assert isinstance(window, Rows)
        given = graph.output(op.inputs[0]).schema
        windows = Windows.of(op, given)
        kept = pl.Schema({**{name: given[name] for name in windows.roots}, TIME: pl.Int64()})
        read = graph.is_read(Port(op.id, LATE))
        return cls(windows, Leaving.of(op, windows), window.count, window.step, kept, read)

    @property
    def operator(self) -> str:
        """Its name."""
        return self.windows.operator

    @property
    def lag(self) -> int:
        """Its output's watermark is its own."""
        return 0

    @property
    def state_schema(self) -> pl.Schema:
        """The columns of state and deltas: of each key its last rows, and how many went by."""
        keys = dict(zip(self.windows.names, self.windows.key_types, strict=True))
        rows = pl.List(pl.Struct(dict(self.kept)))
        first = {SLICE: pl.UInt16(), HASH: pl.UInt64(), EPOCH: pl.Int64()}
        return pl.Schema({**first, **keys, SEEN: pl.Int64(), LAST: rows})

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> KeyRows:
        """The state after epochs with these deltas, in order."""
        return KeyRows.from_deltas(self.state_schema, deltas, version)

    def after(self, state: KeyRows, deltas: Iterable[pl.DataFrame]) -> KeyRows:
        """The state after more epochs with these deltas, in order."""
        return state.after(deltas)

    def resident(self) -> ResidentRows | None:
        """Itself, resident, if rows and keys are of types that arrays hold."""
        return ResidentRows(self) if ResidentRows.holds(self) else None

    def run(self, taken: Taken, state: KeyRows) -> Given[KeyRows]:
        """Take each record of an epoch behind those before it."""
        rows = taken.rows[0]
        if not rows.height:
            found, failed = self.emitted(rows, rows.select(list(self.kept)), Laid.none())
            delta = pl.DataFrame(schema=self.state_schema)
        else:
            keys = rows.select(rows[TIME], *self.windows.keys)
            hashes = hashed(keys, self.windows.names)
            old = state.find(np.unique(hashes))
            laid, values = self._laid(rows, keys, old)
            found, failed = self.emitted(rows, values, laid)
            delta = self._kept(rows, keys, old, laid, values).sort(SLICE, maintain_order=True)
            delta = delta.with_columns(pl.lit(taken.epoch, pl.Int64).alias(EPOCH))
        outputs = outputs_of(found, rows.clear() if self.late_read else None, failed)
        return Given(outputs, state.then(delta), delta, 0, failed.count)

    def _laid(
        self, rows: pl.DataFrame, keys: pl.DataFrame, old: pl.DataFrame
    ) -> tuple[Laid, pl.DataFrame]:
        """All rows that are known of the keys, key by key: those kept, then the epoch's."""
        names = self.windows.names
        before = old.select(*names, LAST).explode(LAST, empty_as_null=False, keep_nulls=False)
        values = pl.concat([before.select(LAST).unnest(LAST), rows.select(list(self.kept))])
        # A key without rows kept is there as well: its count is.
        every = (
            pl.concat([old.select(names), before.select(names), keys.select(names)])
            if names
            else None
        )
        groups = _groups(every, old.height, before.height + rows.height)
        return groups.counted(old[SEEN].to_numpy(), before.height), values

    def emitted(
        self, rows: pl.DataFrame, values: pl.DataFrame, laid: Laid
    ) -> tuple[pl.DataFrame, Left]:
        """The windows of every step-th record, in order of arrival."""
        portions = laid.emitting(self.step, self.count)
        found, failed = zip(
            *(self._some(rows, values, laid, ends) for ends in portions), strict=True
        )
        letters = [each.letters for each in failed if each.letters is not None]
        left = Left(sum(each.count for each in failed), pl.concat(letters) if letters else None)
        return pl.concat(found) if len(found) > 1 else found[0], left

    def _some(
        self, rows: pl.DataFrame, values: pl.DataFrame, laid: Laid, ends: _Numbers
    ) -> tuple[pl.DataFrame, Left]:
        lengths = np.minimum(self.count, laid.number[ends] + 1)
        places = ranges(ends - lengths + 1, lengths)
        taken = laid.order[places]
        many = values[taken]
        windows = pl.Series(np.repeat(np.arange(len(ends), dtype=np.int64), lengths))
        with failing(self.operator):
            partials = self.windows.grouped(
                many, windows, pl.arange(many.height, dtype=pl.Int64, eager=True)
            )
        times = values[TIME].to_numpy()
        last = laid.order[ends]
        partials = partials.sort(START).with_columns(
            pl.Series(START, times[laid.order[ends - lengths + 1]]), pl.Series(END, times[last])
        )
        told = rows if self.leaving.tells else rows.select(hidden(rows))
        return self.leaving.beside(partials, told[last - (values.height - rows.height)])

    def _kept(
        self,
        rows: pl.DataFrame,
        keys: pl.DataFrame,
        old: pl.DataFrame,
        laid: Laid,
        values: pl.DataFrame,
    ) -> pl.DataFrame:
        """What of each key is needed from now on."""
        names = self.windows.names
        lengths = np.minimum(self.count - 1, laid.lengths)
        last = ranges(laid.begins + laid.lengths - lengths, lengths)
        flat = values[laid.order[last]].to_struct(LAST)
        lists = listed(flat, lengths)
        places = pl.concat([old[SLICE], _slices(rows)])[laid.member]
        found = pl.DataFrame([places.alias(SLICE), lists])
        if names:
            found = found.with_columns(
                pl.concat([old.select(names), keys.select(names)])[laid.member]
            )
        found = found.with_columns(
            pl.Series(HASH, hashed(found, names)), pl.Series(SEEN, laid.seen % self.step)
        ).with_columns(pl.lit(0, pl.Int64).alias(EPOCH))
        return found.select(list(self.state_schema)).cast(dict(self.state_schema))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Groups:
    """Rows of keys: first one for each old key, which is no record, then the records."""

    rows: _Numbers
    lengths: _Numbers
    heads: int

    def counted(self, seen: _Numbers, before: int) -> Laid:
        """Without the old keys, which say how many records went by; `before` records are old."""
        begins = np.cumsum(self.lengths) - self.lengths
        group = np.repeat(np.arange(len(self.lengths), dtype=np.int64), self.lengths)
        is_head = self.rows < self.heads
        was = np.zeros(len(self.lengths), dtype=np.int64)
        was[group[is_head]] = seen[self.rows[is_head]]
        first = self.rows[begins]
        member = np.where(first < self.heads, first, first - before)
        order, group = self.rows[~is_head] - self.heads, group[~is_head]
        lengths = np.bincount(group, minlength=len(self.lengths))
        begins = np.cumsum(lengths) - lengths
        number = np.arange(len(order), dtype=np.int64) - begins[group]
        known = np.bincount(group[order < before], minlength=len(self.lengths))
        total = np.where(order < before, 0, was[group] + number - known[group] + 1)
        return Laid(order, number, begins, lengths, member, total, was + lengths - known)


def _groups(keys: pl.DataFrame | None, heads: int, records: int) -> _Groups:
    """Rows by key; without keys all are of one."""
    if keys is None:
        rows = np.arange(heads + records, dtype=np.int64)
        return _Groups(rows, np.array([len(rows)], dtype=np.int64), heads)
    found = keys.with_row_index("row").group_by(keys.columns, maintain_order=True).agg("row")
    rows = found["row"].explode().to_numpy().astype(np.int64)
    return _Groups(rows, found["row"].list.len().to_numpy().astype(np.int64), heads)


def _slices(rows: pl.DataFrame) -> pl.Series:
    return rows[ROW_SLICE]
