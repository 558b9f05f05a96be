"""A rows window where it stays: the last rows of each key, in arrays that are changed in place.

A key has a place, and at its place a column has room for the rows that windows to come may read,
the oldest first. An epoch's rows are laid out behind those of their keys, all by arithmetic on
numbers: no query of Polars, each of which costs what 1,000 rows do. The common aggregates of whole
numbers are taken from there; for any other aggregate, and where there are nulls, the kernel's own
way is taken from the same layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.bundle import SLICE as ROW_SLICE
from anabranch.kernels.bundle import TIME, hidden
from anabranch.kernels.kernel import Taken
from anabranch.kernels.resident import ResidentGiven, UnfitError
from anabranch.kernels.stateless.columns import framed
from anabranch.kernels.windows.fields import Field
from anabranch.kernels.windows.key_places import KeyPlaces
from anabranch.kernels.windows.keys import EPOCH, HASH, SLICE, KeyRows, hashed, ranges
from anabranch.kernels.windows.laid import LAST, SEEN, Laid, listed
from anabranch.kernels.windows.results import outputs_of

if TYPE_CHECKING:
    from anabranch.kernels.windows.rows import RowsKernel

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Array: TypeAlias = npt.NDArray[Any]

_LONGEST = 256
"""Rows of a window: a key has room for all but one, whether it has had so many or not."""
_FEW = 16
"""Rows of a window whose extremes are found row by row."""
_ROOM = 1024
_NEVER = -1
_EXTREME = {"min": np.minimum, "max": np.maximum}


class ResidentRows:
    """The state of a rows window, and what it does with epochs."""

    def __init__(self, kernel: RowsKernel) -> None:
        """Begin with no keys."""
        self._kernel = kernel
        self._width = kernel.count - 1
        self._quick = _quick_fields(kernel)
        self._nothing: tuple[list[str], ResidentGiven] | None = None
        self._begin()

    @staticmethod
    def holds(kernel: RowsKernel) -> bool:
        """Whether rows of these types can be kept in arrays, and keys be compared as they are."""
        keys = all(
            not (dtype.is_float() or dtype.is_nested() or dtype == pl.Null)
            for dtype in kernel.windows.key_types
        )
        same = all(
            kernel.windows.schema[name] == dtype
            for name, dtype in zip(kernel.windows.by, kernel.windows.key_types, strict=True)
        )
        return (
            keys
            and same
            and kernel.count <= _LONGEST
            and all(_is_fixed(dtype) for dtype in _columns(kernel).values())
        )

    def _begin(self) -> None:
        windows = self._kernel.windows
        self._places = KeyPlaces()
        self._keys = pl.DataFrame(schema=dict(zip(windows.by, windows.key_types, strict=True)))
        self._alike = len(windows.by) == 1 and windows.key_types[0].is_integer()
        """Whether no two keys have one hash, since it is another form of a whole number."""
        self._columns = {n: _Column(n, t, self._width) for n, t in _columns(self._kernel).items()}
        self._hash = np.empty(0, dtype=np.uint64)
        self._slice = np.empty(0, dtype=np.uint16)
        self._count = np.empty(0, dtype=np.int64)
        self._seen = np.empty(0, dtype=np.int64)
        self._epoch = np.empty(0, dtype=np.int64)
        self._dirty = np.empty(0, dtype=bool)
        self._taken: tuple[int, _Epoch] | None = None

    # Epochs

    def take(self, taken: Taken) -> ResidentGiven:
        """Each record with the last ones of its key."""
        (rows,) = taken.rows
        self._taken = None
        if not rows.height:
            return self._of_nothing(rows)
        epoch = self._laid(rows, self._placed(rows))
        given = self._quickly(epoch) if self._quick is not None else None
        if given is None:
            given = self._as_kernel(epoch)
        self._taken = (taken.epoch, epoch)
        return given

    def settle(self) -> None:
        """Keep of each key that had rows the last ones."""
        if self._taken is None:
            return
        (number, epoch), self._taken = self._taken, None
        lengths = np.minimum(self._width, epoch.lengths)
        last = epoch.order[ranges(epoch.begins + epoch.lengths - lengths, lengths)]
        room = ranges(epoch.keys * self._width, lengths)
        for name, column in self._columns.items():
            column.put(room, *epoch.values[name], last)
        self._count[epoch.keys] = lengths
        self._seen[epoch.keys] = epoch.seen % self._kernel.step
        self._epoch[epoch.keys] = number
        self._dirty[epoch.keys] = True

    def _of_nothing(self, rows: pl.DataFrame) -> ResidentGiven:
        """What becomes of no rows, which is asked for with every watermark."""
        if self._nothing is None or self._nothing[0] != rows.columns:
            kernel = self._kernel
            found, failed = kernel.emitted(rows, rows.select(list(kernel.kept)), Laid.none())
            outputs = outputs_of(found, rows if kernel.late_read else None, failed)
            self._nothing = (rows.columns, ResidentGiven(outputs))
        return self._nothing[1]

    def _placed(self, rows: pl.DataFrame) -> _Numbers:
        """The place of each row's key."""
        by = self._kernel.windows.by
        hashes = hashed(rows, by)
        places, fresh = self._places.of(hashes)
        if len(fresh):
            self._grow(len(self._places))
            new = slice(len(self._places) - len(fresh), len(self._places))
            self._hash[new], self._slice[new] = hashes[fresh], rows[ROW_SLICE].to_numpy()[fresh]
            if by:
                keys = framed((rows[name] for name in by), rows.height)[fresh]
                self._keys = pl.concat([self._keys, keys], rechunk=True)
                self._alike = self._alike and not keys[by[0]].null_count()
        if by and not (self._alike and not rows[by[0]].null_count()):
            known = self._keys_at(places)
            if not all(each.equals(rows[each.name], null_equal=True) for each in known):
                message = "two keys with one hash"
                raise UnfitError(message)
        return places

    def _grow(self, keys: int) -> None:
        if keys <= len(self._hash):
            return
        room = max(_ROOM, 2 * keys)
        self._hash, self._slice = _larger(self._hash, room), _larger(self._slice, room)
        self._count, self._seen = _larger(self._count, room), _larger(self._seen, room)
        self._epoch, self._dirty = _larger(self._epoch, room, _NEVER), _larger(self._dirty, room)
        for column in self._columns.values():
            column.grow(room)

    def _laid(self, rows: pl.DataFrame, places: _Numbers) -> _Epoch:
        """The epoch's rows behind those that are kept of their keys."""
        arrived = np.argsort(places, kind="stable")
        ordered = places[arrived]
        begins = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
        fresh = np.diff(begins, append=len(ordered))
        keys = ordered[begins]
        had = self._count[keys]
        lengths = had + fresh
        ends = np.cumsum(lengths)
        group = np.repeat(np.arange(len(keys)), fresh)
        numbers = np.arange(len(ordered)) - begins[group]
        first = ends - lengths
        at = np.empty(len(ordered), dtype=np.int64)
        at[arrived] = first[group] + had[group] + numbers
        kept = int(had.sum())
        order = np.empty(kept + len(ordered), dtype=np.int64)
        order[at] = np.arange(kept, kept + len(ordered))
        order[ranges(first, had)] = np.arange(kept)
        total = np.empty(len(ordered), dtype=np.int64)
        total[arrived] = self._seen[keys][group] + numbers + 1
        groups = np.empty(len(ordered), dtype=np.int64)
        groups[arrived] = group
        room = ranges(keys * self._width, had)
        values = {name: each.behind(room, rows[name]) for name, each in self._columns.items()}
        seen = self._seen[keys] + fresh
        return _Epoch(rows, keys, first, lengths, order, at, groups, total, seen, kept, values)

    def _as_kernel(self, epoch: _Epoch) -> ResidentGiven:
        """The windows as the kernel makes them, of the same layout."""
        had = epoch.lengths - np.bincount(epoch.groups, minlength=len(epoch.keys))
        keys = [
            pl.concat([old, epoch.rows[old.name]])
            for old in self._keys_at(np.repeat(epoch.keys, had))
        ]
        others = [_series(n, *epoch.values[n], each.dtype) for n, each in self._columns.items()]
        values = pl.DataFrame([*keys, *others])
        found, failed = self._kernel.emitted(epoch.rows, values, epoch.laid())
        late = epoch.rows.clear() if self._kernel.late_read else None
        return ResidentGiven(outputs_of(found, late, failed), 0, failed.count)

    def _keys_at(self, places: _Numbers) -> list[pl.Series]:
        """The columns of the keys at these places."""
        if not self._kernel.windows.by:
            return []
        return self._keys[pl.Series(places.astype(np.uint32))].get_columns()

    def _quickly(self, epoch: _Epoch) -> ResidentGiven | None:
        """The windows of whole numbers; None: there are nulls, or sums that may be too large."""
        assert self._quick is not None
        windows, rows = self._kernel.windows, epoch.rows
        emits, ends = None, epoch.at
        if self._kernel.step > 1:
            emits = np.flatnonzero(epoch.total % self._kernel.step == 0)
            ends, rows = ends[emits], rows[pl.Series(emits.astype(np.uint32))]
        begins = np.maximum(epoch.first_of(emits), ends - self._width)
        times, timeless = epoch.values[TIME]
        if timeless is not None:
            return None
        bounds = [
            ("window_start", times[epoch.order[begins]]),
            ("window_end", times[epoch.order[ends]]),
        ]
        found: dict[str, pl.Series] = {
            name: _shown(name, micros, windows.time.tick, windows.time.dtype)
            for name, micros in bounds
        }
        found |= {name: rows[name] for name in windows.by}
        for each in self._quick:
            values = each.over(epoch, begins, ends, self._kernel.count)
            if values is None:
                return None
            found[each.field.name] = _typed(each.field.name, values, each.field.dtype)
        hide = [rows[name] for name in hidden(rows)]
        out = framed([*(found[name] for name in windows.schema), *hide], rows.height)
        late = epoch.rows.clear() if self._kernel.late_read else None
        return ResidentGiven({"out": out} if late is None else {"out": out, "late": late})

    # Deltas

    def changed(self) -> pl.DataFrame:
        """Of each key that had rows since: all that is kept of it."""
        found = self._frame(np.flatnonzero(self._dirty))
        self._dirty[:] = False
        return found

    def whole(self, slices: frozenset[int] | None = None) -> pl.DataFrame:
        """All that is kept, or that of some slices."""
        known = self._epoch != _NEVER
        if slices is not None:
            known &= np.isin(self._slice, np.fromiter(slices, dtype=np.uint16))
        return self._frame(np.flatnonzero(known))

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Have what these deltas say; keys with one hash raise `UnfitError`."""
        self._begin()
        windows = self._kernel.windows
        given = KeyRows.from_deltas(self._kernel.state_schema, deltas).whole()
        _, fresh = self._places.of(given[HASH].to_numpy())
        if len(fresh) < given.height:
            message = "two keys with one hash"
            raise UnfitError(message)
        self._grow(given.height)
        by_place = given[fresh]
        own = slice(0, given.height)
        self._hash[own] = by_place[HASH].to_numpy()
        self._slice[own] = by_place[SLICE].to_numpy()
        self._epoch[own] = by_place[EPOCH].to_numpy()
        self._seen[own] = by_place[SEEN].to_numpy()
        self._count[own] = by_place[LAST].list.len().fill_null(0).to_numpy()
        names = dict(zip(windows.names, windows.by, strict=True))
        self._keys = by_place.select(windows.names).rename(names)
        if windows.by:
            self._alike = self._alike and not self._keys[windows.by[0]].null_count()
        rows = by_place.select(LAST).explode(LAST, empty_as_null=False, keep_nulls=False)
        rows = rows.unnest(LAST)
        keys = np.arange(given.height, dtype=np.int64)
        room = ranges(keys * self._width, self._count[own])
        for name, column in self._columns.items():
            column.put(room, *_plain(rows[name]), np.arange(rows.height))

    def _frame(self, keys: _Numbers) -> pl.DataFrame:
        """What is kept of these keys, as a delta."""
        kernel, windows = self._kernel, self._kernel.windows
        keys = keys[np.argsort(self._slice[keys], kind="stable")]
        lengths = self._count[keys]
        room = ranges(keys * self._width, lengths)
        # Of the rows that are kept, their keys are kept once.
        own = self._keys_at(np.repeat(keys, lengths))
        rows = pl.DataFrame([*own, *(each.series(room) for each in self._columns.values())])
        flat = rows.select(list(kernel.kept)).to_struct(LAST)
        columns = {
            SLICE: pl.Series(self._slice[keys]),
            HASH: pl.Series(self._hash[keys]),
            EPOCH: pl.Series(self._epoch[keys]),
            SEEN: pl.Series(self._seen[keys]),
            LAST: listed(flat, lengths),
            **dict(zip(windows.names, self._keys_at(keys), strict=True)),
        }
        schema = kernel.state_schema
        return pl.DataFrame({name: columns[name].cast(schema[name]) for name in schema})


def _columns(kernel: RowsKernel) -> dict[str, pl.DataType]:
    """What is kept of a row beside its key."""
    return {n: t for n, t in kernel.kept.items() if n not in kernel.windows.by}


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch's rows, laid out key by key behind those that are kept of their keys."""

    rows: pl.DataFrame
    keys: _Numbers
    """The place of each key that has rows, in the order of the layout."""
    begins: _Numbers
    lengths: _Numbers
    """Where the rows of a key are in the layout."""
    order: _Numbers
    """Which row stands where: the kept ones are before the epoch's own."""
    at: _Numbers
    """Where each of the epoch's rows stands."""
    groups: _Numbers
    """Which of the keys it is of."""
    total: _Numbers
    """How many records of its key went by with it."""
    seen: _Numbers
    """How many in all, by key."""
    kept: int
    values: Mapping[str, tuple[_Array, _Array | None]]
    """Each column of the kept rows, then of the epoch's, and which of them are null, if any."""

    def first_of(self, emits: _Numbers | None) -> _Numbers:
        """Where the rows of the key of each row begin that emits; None: of all rows."""
        return self.begins[self.groups if emits is None else self.groups[emits]]

    def laid(self) -> Laid:
        """The layout as the kernel knows it."""
        total = np.zeros(len(self.order), dtype=np.int64)
        total[self.at] = self.total
        number = np.arange(len(self.order)) - np.repeat(self.begins, self.lengths)
        none = np.empty(0, dtype=np.int64)
        return Laid(self.order, number, self.begins, self.lengths, none, total, self.seen)


class _Column:
    """A column of the rows that are kept, as much room for each key."""

    def __init__(self, name: str, dtype: pl.DataType, width: int) -> None:
        self.name, self.dtype, self._width = name, dtype, width
        self.values = pl.Series([], dtype=dtype).to_physical().to_numpy()
        self.nulls: _Array | None = None

    def grow(self, keys: int) -> None:
        self.values = _larger(self.values, keys * self._width)
        if self.nulls is not None:
            self.nulls = _larger(self.nulls, keys * self._width)

    def behind(self, room: _Numbers, values: pl.Series) -> tuple[_Array, _Array | None]:
        """What is kept there, and these values behind it."""
        fresh, nulls = _plain(values)
        found = np.concatenate([self.values[room], fresh])
        if nulls is None and self.nulls is None:
            return found, None
        old = np.zeros(len(room), dtype=bool) if self.nulls is None else self.nulls[room]
        new = np.zeros(len(fresh), dtype=bool) if nulls is None else nulls
        both = np.concatenate([old, new])
        return found, both if both.any() else None

    def put(self, room: _Numbers, values: _Array, nulls: _Array | None, rows: _Numbers) -> None:
        """Keep some rows of these values there."""
        self.values[room] = values[rows]
        if nulls is not None and self.nulls is None:
            self.nulls = np.zeros(len(self.values), dtype=bool)
        if self.nulls is not None:
            self.nulls[room] = False if nulls is None else nulls[rows]

    def series(self, room: _Numbers) -> pl.Series:
        """What is kept there."""
        nulls = None if self.nulls is None else self.nulls[room]
        return _series(self.name, self.values[room], nulls, self.dtype)


@dataclass(frozen=True, slots=True)
class _Quick:
    """An aggregate of whole numbers, or one that takes a value as it is."""

    field: Field
    column: str | None
    """None: it counts rows."""

    def over(self, epoch: _Epoch, begins: _Numbers, ends: _Numbers, count: int) -> _Array | None:
        """The aggregate of each window; None: not of these values."""
        kind = self.field.kind
        if self.column is None:
            return ends - begins + 1
        values, nulls = epoch.values[self.column]
        if nulls is not None:
            return None
        match kind:
            case "count":
                return ends - begins + 1
            case "first" | "last":
                return values[epoch.order[begins if kind == "first" else ends]]
            case "min" | "max":
                return _extreme(values[epoch.order], begins, ends, count, _EXTREME[kind])
        return _added(values[epoch.order], begins, ends, count, mean=kind == "mean")


def _added(
    laid: _Array, begins: _Numbers, ends: _Numbers, count: int, *, mean: bool
) -> _Array | None:
    if max(-int(laid.min()), int(laid.max())) * count >= (2**53 if mean else 2**63):
        return None  # they may be more than a float can tell, or than there is room for
    sums = np.cumsum(laid, dtype=np.int64)
    found = sums[ends] - sums[begins] + laid[begins]
    return np.asarray(found / (ends - begins + 1) if mean else found)


def _extreme(
    laid: _Array, begins: _Numbers, ends: _Numbers, count: int, which: np.ufunc
) -> _Array | None:
    if count > _FEW:
        return None
    found = laid[ends]
    for back in range(1, count):
        found = which(found, laid[np.maximum(begins, ends - back)])
    return np.asarray(found)


def _quick_fields(kernel: RowsKernel) -> Sequence[_Quick] | None:
    """All aggregates, if there is a quick way for each."""
    windows = kernel.windows
    if windows.kept is not None or kernel.leaving.apply is not None or windows.revised:
        return None
    found = [_quick_field(field, windows.by) for field in windows.fields]
    return [each for each in found if each is not None] if None not in found else None


def _quick_field(field: Field, by: Sequence[str]) -> _Quick | None:
    if field.of is None:
        return _Quick(field, None) if field.kind == "rows" else None
    (expression,), roots = field.of.expressions, [*field.of.roots]
    bare = len(roots) == 1 and expression.meta.undo_aliases().meta.eq(pl.col(roots[0]))
    if not bare or roots[0] in by:
        return None
    whole = field.given.is_integer() and field.given != pl.UInt64
    quick = {
        **dict.fromkeys(("whole", "mean"), whole),
        **dict.fromkeys(_EXTREME, whole or field.given.is_temporal()),
        **dict.fromkeys(("count", "first", "last"), True),
    }
    return _Quick(field, roots[0]) if quick.get(field.kind, False) else None


def _is_fixed(dtype: pl.DataType) -> bool:
    """Whether values are of one size."""
    return dtype.is_integer() or dtype.is_float() or dtype.is_temporal() or dtype == pl.Boolean


def _plain(values: pl.Series) -> tuple[_Array, _Array | None]:
    """Values as numbers, and which of them are null, if any."""
    plain = values.to_physical() if values.dtype.is_temporal() else values
    if not plain.null_count():
        return plain.to_numpy(), None
    nothing = False if plain.dtype == pl.Boolean else 0
    return plain.fill_null(nothing).to_numpy(), plain.is_null().to_numpy()


def _series(name: str, values: _Array, nulls: _Array | None, dtype: pl.DataType) -> pl.Series:
    found = _typed(name, values, dtype)
    if nulls is None or not nulls.any():
        return found
    return found.scatter(np.flatnonzero(nulls), None)


def _typed(name: str, values: _Array, dtype: pl.DataType) -> pl.Series:
    found = pl.Series(name, values)
    return found if found.dtype == dtype else found.cast(dtype)


def _shown(name: str, micros: _Numbers, tick: int, dtype: pl.DataType) -> pl.Series:
    """Times in the type in which the user sees them."""
    return _typed(name, micros if tick == 1 else micros // tick, dtype)


def _larger(array: _Array, room: int, fill: int = 0) -> _Array:
    found = np.full(room, fill, dtype=array.dtype)
    found[: len(array)] = array
    return found
