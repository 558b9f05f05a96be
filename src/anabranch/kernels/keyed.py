"""Python functions with state: a key's records one at a time, in order (M11).

An epoch is first run as if nothing could go wrong, on live objects, and every key it touched is
encoded once, at its end. If anything does go wrong (an exception, a row that does not fit, a value
that cannot be kept) and the run is to go on, all of it is forgotten and the epoch is run again with
care: state is encoded around each record, so that an exception undoes that record's writes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from anabranch.connectors.rows import Misfit
from anabranch.kernels.bundle import SLICE, in_order
from anabranch.kernels.encoded import Entry
from anabranch.kernels.failures import BadRow
from anabranch.kernels.keys import canonical
from anabranch.kernels.results import EpochInput
from anabranch.kernels.rows import Made, Picker, Record, Values, gathered, records_of, several
from anabranch.kernels.state import KeyedState
from anabranch.kernels.stateless import inherited, left_out
from anabranch.kernels.times import shown
from anabranch.program.functions import OnError
from anabranch.program.operators.keyed import Process
from anabranch.program.operators.operator import OUT
from anabranch.program.schema import TimeType
from anabranch.state.codec import decode, encode

CACHED_KEYS = 1_000_000
"""More decoded keys than this are not kept from one run to the next."""

_NAN = float("nan")


@dataclass(slots=True)
class Now:
    """What all keys of an operator see of the present."""

    watermark: Any = None


class State:
    """What a user's function sees of a key's state."""

    __slots__ = ("_code", "_list", "_map", "_now", "_slice", "_was", "key", "value")

    def __init__(self, key: Any, now: Now, number: int, code: bytes, was: bytes | None) -> None:
        """Decode what is kept of a key."""
        self.key = key
        self._now, self._slice, self._code, self._was = now, number, code, was
        self.value: Any = None
        self._list: list[Any] | None = None
        self._map: dict[Any, Any] | None = None
        if was is not None:
            self.undo(was)

    def __repr__(self) -> str:
        """Show what is kept."""
        return f"State(key={self.key!r}, value={self.value!r}, list={self._list}, map={self._map})"

    @property
    def watermark(self) -> Any:
        """The watermark before the present epoch, in the event times' own type."""
        return self._now.watermark

    @property
    def list(self) -> list[Any]:
        """A list, empty at first."""
        if self._list is None:
            self._list = []
        return self._list

    @list.setter  # noqa: A003 - the public name
    def list(self, new: Iterable[Any]) -> None:
        self._list = [*new]

    @property
    def map(self) -> dict[Any, Any]:
        """A dict, empty at first."""
        if self._map is None:
            self._map = {}
        return self._map

    @map.setter  # noqa: A003 - the public name
    def map(self, new: dict[Any, Any]) -> None:
        self._map = dict(new)

    def timer_at(self, t: Any) -> None:
        """Timers need an operator that says what to do when they fire."""
        del t
        message = "timer_at needs a KeyedOperator with on_timer, on a stream with event times"
        raise TypeError(message)

    def clear(self) -> None:
        """Forget everything of this key."""
        self.value, self._list, self._map = None, None, None

    def encoded(self) -> bytes | None:
        """The state as bytes; None where nothing would be lost by forgetting it."""
        if self._map:
            return _kept((self.value, self._list or [], self._map))
        if self._list:
            return _kept((self.value, self._list))
        return None if self.value is None else _kept((self.value,))

    def changed(self, new: bytes | None) -> Iterable[tuple[bytes, Entry]]:
        """The entry of a delta if the encoding is another than before; it is now what is kept."""
        if new == self._was:
            return ()
        self._was = new
        return ((self._code, (self._slice, new)),)

    def undo(self, before: bytes | None) -> None:
        """Go back to what was encoded before."""
        kept: tuple[Any, ...] = () if before is None else decode(before)
        self.value = kept[0] if kept else None
        self._list = kept[1] if len(kept) > 1 else None
        self._map = kept[2] if len(kept) > 2 else None


def _kept(parts: tuple[Any, ...]) -> bytes:
    try:
        return encode(parts)
    except TypeError:
        for name, part in zip(("value", "list", "map"), parts, strict=False):
            try:
                encode(part)
            except TypeError as error:
                message = f"state.{name}: {error}"
                raise TypeError(message) from None
        raise


@dataclass(frozen=True)
class Processor:
    """A keyed process operator, lowered."""

    operator: str
    call: Callable[..., Any]
    takes_state: bool
    key: tuple[str, ...]
    columns: tuple[str, ...]
    types: tuple[pl.DataType, ...]
    """Of the key columns."""
    pick: Picker
    sub: str
    on_error: OnError
    time: TimeType | None
    once: bool = False
    """Whether its function must be called once a record, even if another record fails."""

    @classmethod
    def of(cls, op: Process, given: pl.Schema, sub: str, *, once: bool = False) -> Processor:
        """Lower a process operator over rows of this schema."""
        function, out = op.function, op.outputs[OUT]
        call = function.call.on_record if function.is_class else function.call
        takes_state = function.is_class or function.takes_state
        key = op.key or ()
        types = tuple(given[name] for name in key)
        pick = Picker(out.schema)
        columns, on_error = tuple(given), op.on_error
        return cls(
            op.name, call, takes_state, key, columns, types, pick, sub, on_error, out.time, once
        )

    def run(self, epoch: EpochInput, state: KeyedState, cells: Cells) -> Processed:
        """Take an epoch's rows in order; an error that ends the run raises `Failed`."""
        cells.now.watermark = shown(epoch.watermark_before, self.time)
        frame = in_order(epoch.parts)
        keys = self._keys(frame)
        frame = frame.drop(SLICE)
        if self.once and self.on_error != "fail":
            return self._carefully(frame, cells.of(keys, state))
        try:
            return self._swiftly(frame, cells.of(keys, state))
        except _Trouble:
            cells.forget()
            return self._carefully(frame, cells.of(keys, state))

    def _swiftly(self, frame: pl.DataFrame, touched: list[State]) -> Processed:
        """Run on live objects, with `_Trouble` if anything goes wrong."""
        records = records_of(frame, self.columns)
        calls = map(self.call, records, touched) if self.takes_state else map(self.call, records)
        made = gathered(calls, len(records), self.pick, stop=True)
        if made.failures:
            raise _Trouble
        try:
            return self._processed(frame, made, touched)
        except (Misfit, TypeError) as error:
            raise _Trouble from error

    def _carefully(self, frame: pl.DataFrame, touched: list[State]) -> Processed:
        """Run one record after the other; what fails is undone."""
        made = Made()
        for index, (record, cell) in enumerate(
            zip(records_of(frame, self.columns), touched, strict=True)
        ):
            before = cell.encoded()
            try:
                rows = self._one(record, cell)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                made.failures[index] = error
                cell.undo(before)
                if self.on_error == "fail":
                    break
            else:
                made.rows += rows
                made.parents += [index] * len(rows)
        letters = left_out(self.operator, frame, self.columns, made, self.on_error)
        return replace(self._processed(frame, made, touched), letters=letters)

    def _one(self, record: Record, cell: State) -> list[Values]:
        given = self.call(record, cell) if self.takes_state else self.call(record)
        rows = [self.pick(row) for row in several(given)]
        try:
            self.pick.frame(rows)
        except Misfit as misfit:
            raise BadRow(misfit.why) from None
        cell.encoded()
        return rows

    def _processed(self, frame: pl.DataFrame, made: Made, touched: list[State]) -> Processed:
        rows = self.pick.frame(made.rows).with_columns(inherited(frame, made, self.sub))
        cells = dict.fromkeys(touched)
        codes = [(cell, cell.encoded()) for cell in cells]
        return Processed(rows, {c: e for cell, new in codes for c, e in cell.changed(new)})

    def _keys(self, frame: pl.DataFrame) -> Keys:
        """Each row's key as M6 compares it, as the user sees it, and its slice."""
        slices = frame[SLICE].to_list()
        if not self.key:
            return Keys([()] * frame.height, [()] * frame.height, slices)
        exprs = [canonical(pl.col(n), d) for n, d in zip(self.key, self.types, strict=True)]
        columns = frame.select(exprs)
        seen = [_one_nan(column.to_list(), column.dtype) for column in columns]
        # Python compares times of one zone by what the clock shows, and clocks go back.
        compared = [
            column.to_physical().to_list() if _is_zoned(column.dtype) else values
            for column, values in zip(columns, seen, strict=True)
        ]
        if len(self.key) == 1:
            return Keys(compared[0], seen[0], slices)
        return Keys(list(zip(*compared, strict=True)), list(zip(*seen, strict=True)), slices)


def _one_nan(values: list[Any], dtype: pl.DataType) -> list[Any]:
    """The same object for every NaN, which then is equal to itself in a dict."""
    return [_NAN if each != each else each for each in values] if dtype.is_float() else values  # noqa: PLR0124


def _is_zoned(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime) and dtype.time_zone is not None


class _Trouble(Exception):
    """An epoch must be run again with care."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a bundle's rows."""

    compared: list[Any]
    seen: list[Any]
    slices: list[int]


@dataclass(frozen=True, slots=True)
class Processed:
    """What became of an epoch: rows in order, what changed, how many records were left out."""

    rows: pl.DataFrame
    entries: dict[bytes, Entry]
    letters: int = 0


class Cells:
    """Decoded state by key: a cache, so losing it costs time and nothing else."""

    def __init__(self) -> None:
        """Begin with none."""
        self.now = Now()
        self._live: dict[Any, State] = {}

    def of(self, keys: Keys, state: KeyedState) -> list[State]:
        """The cell of each key, decoded where it is touched for the first time."""
        found: list[State | None] = list(map(self._live.get, keys.compared))
        for at in [at for at, cell in enumerate(found) if cell is None]:
            compared = keys.compared[at]
            cell = self._live.get(compared)
            if cell is None:
                code = encode(compared if type(compared) is tuple else (compared,))
                was = state.find(code)
                cell = State(keys.seen[at], self.now, keys.slices[at], code, was)
                self._live[compared] = cell
            found[at] = cell
        return found  # type: ignore[return-value]

    def forget(self) -> None:
        """Drop all cells: they will be decoded anew."""
        self._live = {}

    def trim(self) -> None:
        """Drop all cells if they are too many."""
        if len(self._live) > CACHED_KEYS:
            self.forget()
