"""Sessions as a kernel: windows that last while records are less than a gap apart (M9).

A record stands for [time, time + gap), and a session is all that hangs together, so it does not
depend on the order of records, but for late ones: a record that has ended before the watermark is
in time if it touches a session that has not, as it stands when the record comes. Only the keys of
such records are looked at one record after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.bundle import TIME
from anabranch.kernels.failures import failing
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.windows.kernel import PLACES
from anabranch.kernels.windows.keys import END, EPOCH, HASH, Hashes, KeyRows, hashed
from anabranch.kernels.windows.panes import START
from anabranch.kernels.windows.results import Leaving, outputs_of
from anabranch.kernels.windows.windows import SLICE, Windows
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import LATE, Port
from anabranch.program.operators.windowed import WindowAggregate, WindowApply
from anabranch.program.windows import SessionGap

_KEY, _BEGIN, _STOP = "key", "begin", "stop"
_MORE = {END: pl.Int64(), HASH: pl.UInt64(), EPOCH: pl.Int64()}
_Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SessionKernel:
    """A session window operator."""

    windows: Windows
    leaving: Leaving
    gap: int
    late_read: bool
    """Whether anybody wants the late rows; else they are counted."""

    @classmethod
    def of(cls, graph: Graph, op: WindowAggregate | WindowApply) -> Self:
        """Lower an operator of a program."""
        window = op.windowing.window
        assert isinstance(window, SessionGap)
        windows = Windows.of(op, graph.output(op.inputs[0]).schema)
        read = graph.is_read(Port(op.id, LATE))
        return cls(windows, Leaving.of(op, windows), window.gap, read)

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
        """The columns of state and deltas: partials of sessions, with their ends."""
        return pl.Schema({**self.windows.partial_schema, **_MORE})

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> KeyRows:
        """The state after epochs with these deltas, in order."""
        return KeyRows.from_deltas(self.state_schema, deltas, version)

    def after(self, state: KeyRows, deltas: Iterable[pl.DataFrame]) -> KeyRows:
        """The state after more epochs with these deltas, in order."""
        return state.after(deltas)

    def run(self, taken: Taken, state: KeyRows) -> Given[KeyRows]:
        """Join an epoch's rows to sessions, then let those leave that have ended."""
        rows = taken.rows[0]
        first = taken.epoch * PLACES
        places = pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True)
        keys = rows.select(rows[TIME], *self.windows.keys)
        hashes = hashed(keys, self.windows.names) if rows.height else np.empty(0, np.uint64)
        touched = np.unique(hashes)
        old = state.find(touched)
        if taken.before is not None:
            old = old.filter(pl.col(END) > taken.before)
        late = self._late(keys, old, taken.before)
        late_rows = rows.clear()
        if late is not None:
            late_rows, rows, places = rows.filter(late), rows.filter(~late), places.filter(~late)
        with failing(self.operator):
            found = self._joined(rows, old, places)
        found = found.with_columns(pl.lit(taken.epoch, pl.Int64).alias(EPOCH))
        live, due = self._parted(found, state, taken, touched)
        due = due.sort([END, START, *self.windows.names], maintain_order=True)
        out, failed = self.leaving.by_watermark(due)
        outputs = outputs_of(out, late_rows if self.late_read else None, failed)
        delta = live.sort(SLICE, maintain_order=True)
        return Given(outputs, state.then(live, taken.after), delta, late_rows.height, failed.count)

    def _parted(
        self, found: pl.DataFrame, state: KeyRows, taken: Taken, touched: Hashes
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Sessions of touched keys that go on, and all that have ended."""
        if taken.after is None:
            return found, found.clear()
        ended = state.ended(taken.before, taken.after, touched)
        due = pl.concat([found.filter(pl.col(END) <= taken.after), ended])
        return found.filter(pl.col(END) > taken.after), due

    # Sessions

    def _joined(self, rows: pl.DataFrame, old: pl.DataFrame, places: pl.Series) -> pl.DataFrame:
        """The sessions that rows in time and sessions of their keys become."""
        if not rows.height:
            return old
        names = self.windows.names
        fresh = rows.select(*self.windows.keys, pl.col(TIME).alias(_BEGIN))
        fresh = fresh.with_columns((pl.col(_BEGIN) + self.gap).alias(_STOP))
        known = old.select(*names, pl.col(START).alias(_BEGIN), pl.col(END).alias(_STOP))
        parts = pl.concat([known, fresh])
        numbers, begins, stops = _sessions(parts, names)
        mine = pl.Series(START, numbers[old.height :])
        partials = self.windows.grouped(rows, mine, places)
        before = old.with_columns(pl.Series(START, numbers[: old.height]))
        if before.height:
            partials = self.windows.merged([before, partials])
        place = partials[START].to_numpy()
        found = partials.with_columns(
            pl.Series(START, begins[place]),
            pl.Series(END, stops[place]),
            pl.Series(HASH, hashed(partials, names)),
            pl.lit(0, pl.Int64).alias(EPOCH),
        )
        return found.select(list(self.state_schema))

    def _late(self, times: pl.DataFrame, old: pl.DataFrame, before: int | None) -> pl.Series | None:
        """Which rows are late; None: none is."""
        if before is None or not times.height:
            return None
        behind = times[TIME] + self.gap <= before
        if not behind.any():
            return None
        names = self.windows.names
        known = old.select(*names, pl.col(START).alias(_BEGIN), pl.col(END).alias(_STOP))
        fresh = times.select(*names, pl.col(TIME).alias(_BEGIN))
        fresh = fresh.with_columns((pl.col(_BEGIN) + self.gap).alias(_STOP))
        parts = pl.concat([known, fresh])
        keys = _numbered(parts, names)
        asked = set(keys[old.height :][behind.to_numpy()].tolist())
        bounds = zip(keys.tolist(), parts[_BEGIN].to_list(), parts[_STOP].to_list(), strict=True)
        live: dict[int, list[tuple[int, int]]] = {key: [] for key in asked}
        late = np.zeros(parts.height, dtype=bool)
        for at, (key, begin, stop) in enumerate(bounds):
            if key in asked:
                late[at] = not _takes(live[key], begin, stop, before)
        return pl.Series(late[old.height :])


def _takes(sessions: list[tuple[int, int]], begin: int, stop: int, watermark: int) -> bool:
    """Merge a record with the sessions it touches, unless all of it then has ended."""
    touched = [each for each in sessions if each[0] < stop and begin < each[1]]
    merged = (min([begin, *(b for b, _ in touched)]), max([stop, *(s for _, s in touched)]))
    if merged[1] <= watermark:
        return False
    for each in touched:
        sessions.remove(each)
    sessions.append(merged)
    return True


def _numbered(frame: pl.DataFrame, names: list[str]) -> _Numbers:
    """A number for each row's key, the same for equal keys."""
    order, keys = _by_key(frame, names)
    found = np.empty(frame.height, dtype=np.int64)
    found[order] = keys
    return found


def _by_key(frame: pl.DataFrame, names: list[str]) -> tuple[_Numbers, _Numbers]:
    """Rows key by key, those of a key as they came, and the number of the key of each."""
    if not names:
        return np.arange(frame.height, dtype=np.int64), np.zeros(frame.height, dtype=np.int64)
    groups = frame.select(names).with_row_index("row").group_by(names).agg("row")
    rows = groups["row"].explode().to_numpy().astype(np.int64)
    lengths = groups["row"].list.len().to_numpy()
    return rows, np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def _sessions(parts: pl.DataFrame, names: list[str]) -> tuple[_Numbers, _Numbers, _Numbers]:
    """The session of each stretch of time of a key, and the bounds of the sessions."""
    order, keys = _by_key(parts, names)
    begin, stop = (parts[name].to_numpy()[order] for name in (_BEGIN, _STOP))
    other = keys[1:] != keys[:-1]
    if not (other | (begin[1:] >= begin[:-1])).all():
        again = np.lexsort((begin, keys))
        order, begin, stop = order[again], begin[again], stop[again]
    reached = stop
    if not (other | (stop[1:] >= stop[:-1])).all():
        sofar = pl.DataFrame({_KEY: keys, _STOP: stop}).select(pl.col(_STOP).cum_max().over(_KEY))
        reached = sofar.to_series().to_numpy()
    new = np.ones(len(keys), dtype=bool)
    new[1:] = other | (begin[1:] >= reached[:-1])
    numbers = np.empty(len(keys), dtype=np.int64)
    numbers[order] = np.cumsum(new) - 1
    firsts = np.flatnonzero(new)
    lasts = np.append(firsts[1:], len(keys)) - 1
    return numbers, begin[firsts], reached[lasts]
