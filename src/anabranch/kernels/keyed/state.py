"""The state of a process operator: cells, elements and timers, each changed by itself.

    slice   the key's slice
    kind    0 a cell, 1 an element of a map, 2 a timer, 3 an element of a list
    key     the encoded key
    part    0, the element's number, the timer's time in microseconds; of a cell also -1, see below
    value   a cell's or an element's encoding, nothing for a timer; null: it is gone

Timers at or before the watermark have fired, and cells that were not seen for their time to live
are forgotten: neither is written down, since whoever reads knows the watermark. But whoever reads
many deltas at once does not know which watermark was when: where a key without a cell gets one, and
state has a time to live, a cell's part -1 says that the elements of before are not its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from anabranch.errors import CheckpointError
from anabranch.kernels.keyed import parts
from anabranch.kernels.keyed.cell import SEEN, Cell
from anabranch.kernels.keyed.parts import Changes, Parts, PartStore
from anabranch.kernels.layers import Slices
from anabranch.kernels.shelf import Shelf

KIND = "kind"
DECODED = 1_000
"""Bytes of a decoded key, as far as they are known; with a small value it has 600, measured."""
_CELL, _ELEMENT, _TIMER, _ENTRY = range(4)
_ANEW = -1
"""The part of a cell that says that its key begins anew. It is in deltas alone."""
_AT, _SINCE = "at", "since"


@dataclass(frozen=True)
class Changed:
    """What an epoch changed, kind by kind."""

    cells: Changes = field(default_factory=Changes)
    elements: Changes = field(default_factory=Changes)
    timers: Changes = field(default_factory=Changes)
    entries: Changes = field(default_factory=Changes)
    anew: Changes = field(default_factory=Changes)
    """The keys that had nothing, where what they had before may have been forgotten."""

    @classmethod
    def of(cls, touched: Iterable[Cell], watermark: int | None, *, ttl: bool) -> Changed:
        """What is to be kept otherwise of these cells; a TypeError names what cannot be."""
        found = cls()
        cells, elements, timers, entries = found.cells, found.elements, found.timers, found.entries
        for cell in touched:
            known = cell.known
            if (new := cell.cell_change(ttl=ttl)) is not None:
                cells.add_one(cell.slice, cell.code, 0, new[0])
                if ttl and not known:
                    found.anew.add_one(cell.slice, cell.code, _ANEW, None)
            if changed := cell.element_changes():
                elements.add(cell.slice, cell.code, changed)
            if changed := cell.entry_changes():
                entries.add(cell.slice, cell.code, changed)
            if changed := cell.timer_changes(watermark):
                timers.add(cell.slice, cell.code, changed)
        return found

    def delta(self) -> pl.DataFrame:
        """All of it as a frame, sorted by slice."""
        kinds = enumerate((self.cells, self.elements, self.timers, self.entries))
        # First, since what follows is of the key's new life.
        found = [(_CELL, self.anew), *kinds]
        return _delta([(kind, changes.frame) for kind, changes in found if changes])


class Gathered:
    """What several epochs changed, without times to live and timers: of each part the last word."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._cells, self._elements, self._entries = (
            dict[bytes, tuple[int, Parts]]() for _ in "..."
        )

    def add(self, changed: Changed) -> None:
        """Take what one more epoch changed."""
        assert not changed.anew
        assert not changed.timers
        changed.cells.put_into(self._cells)
        changed.elements.put_into(self._elements)
        changed.entries.put_into(self._entries)

    def changed(self) -> Changed | None:
        """All of it as if one epoch had done so; None: nothing."""
        if not (self._cells or self._elements or self._entries):
            return None
        of = Changes.of
        return Changed(of(self._cells), of(self._elements), entries=of(self._entries))


@dataclass(frozen=True)
class ProcessState:
    """What is kept of all keys of an operator in a lane."""

    cells: PartStore
    elements: PartStore
    """Of maps."""
    timers: PartStore
    entries: PartStore
    """The elements of lists."""
    ttl: int | None
    cache: Any = field(default=None, compare=False, repr=False)
    """Decoded cells of this version; the one who runs takes them, and they are nobody else's."""

    @classmethod
    def from_deltas(
        cls, deltas: Iterable[pl.DataFrame], version: int, ttl: int | None
    ) -> ProcessState:
        """The state after epochs with these deltas, in order."""
        known = of_this_life(_known(deltas))

        def of(kind: int, **options: Any) -> PartStore:
            return PartStore.from_frames(_of_kind(known, kind), version, **options)

        living = None if ttl is None else Living(ttl)
        # Timers are frames however few they are: they are sought by time.
        timers = of(_TIMER, large=0, alive=waiting)
        return cls(of(_CELL, alive=living), of(_ELEMENT), timers, of(_ENTRY), ttl)

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.cells.version

    @property
    def oldest(self) -> int:
        """The base's version."""
        return self.cells.base

    def load(self, fresh: list[Cell], before: int | None) -> None:
        """Give new cells what is kept of them at this watermark."""
        codes = [cell.code for cell in fresh]
        found = zip(
            fresh,
            self.cells.find(codes),
            self.elements.find(codes),
            self.entries.find(codes),
            self.timers.find(codes),
            strict=True,
        )
        for cell, kept, elements, entries, timers in found:
            waits = [
                at
                for at, value in timers.items()
                if value is not None and (before is None or at > before)
            ]
            cell.load(kept.get(0), (elements, entries), waits, ttl=self.ttl is not None)

    def at(self, version: int) -> ProcessState:
        """The state at an earlier version."""
        self._require_known(version)
        return ProcessState(
            self.cells.at(version),
            self.elements.at(version),
            self.timers.at(version),
            self.entries.at(version),
            self.ttl,
        )

    def then(self, changed: Changed, closed: int | None, cache: Any = None) -> ProcessState:
        """The state after one more epoch, whose last watermark is `closed`."""
        return ProcessState(
            self.cells.then(changed.cells, closed),
            self.elements.then(changed.elements, closed),
            self.timers.then(changed.timers, closed),
            self.entries.then(changed.entries, closed),
            self.ttl,
            cache,
        )

    def after(self, deltas: Iterable[pl.DataFrame]) -> ProcessState:
        """The state after more epochs with these deltas, folded."""
        known = _known(deltas)
        anew = pl.concat([pl.DataFrame(schema=parts.SCHEMA), *map(_begun, known)])
        known = of_this_life(known)
        more = ProcessState(
            self.cells.after(_of_kind(known, _CELL)),
            self.elements.after([self.elements.all_gone(anew), *_of_kind(known, _ELEMENT)]),
            self.timers.after(_of_kind(known, _TIMER)),
            self.entries.after([self.entries.all_gone(anew), *_of_kind(known, _ENTRY)]),
            self.ttl,
        )
        return more.fold(more.version)

    def fold(self, version: int) -> ProcessState:
        """The same state with fewer layers, without most of what no longer counts."""
        self._require_known(version)
        cells = self.cells.fold(version)
        return ProcessState(
            cells,
            self._owned(self.elements, cells).fold(version),
            self.timers.fold(version),
            self._owned(self.entries, cells).fold(version),
            self.ttl,
            self.take_cache(),
        )

    def take_cache(self) -> Any:
        """The decoded cells, which this view has no longer: whoever runs changes them."""
        cache = self.cache
        object.__setattr__(self, "cache", None)
        return cache

    def only(self, slices: Slices) -> ProcessState:
        """The same state, of these slices alone; decoded cells of them stay decoded."""
        cache = self.take_cache()
        if cache is not None:
            cache.only(slices)
        return replace(self._only(slices), cache=cache)

    def _only(self, slices: Slices) -> ProcessState:
        return ProcessState(
            self.cells.only(slices),
            self.elements.only(slices),
            self.timers.only(slices),
            self.entries.only(slices),
            self.ttl,
        )

    def joined(self, other: ProcessState) -> ProcessState:
        """This state and one of other slices, both folded; what is decoded here stays decoded."""
        return ProcessState(
            self.cells.joined(other.cells),
            self.elements.joined(other.elements),
            self.timers.joined(other.timers),
            self.entries.joined(other.entries),
            self.ttl,
            self.take_cache(),
        )

    def shelved(self, shelf: Shelf) -> ProcessState:
        """The same state, with the pieces that a shelf gave back."""
        cache = self.take_cache()
        if cache is not None and not shelf.decoded(len(cache) * DECODED):
            cache = None
        return ProcessState(
            self.cells.shelved(shelf),
            self.elements.shelved(shelf),
            self.timers.shelved(shelf),
            self.entries.shelved(shelf),
            self.ttl,
            cache,
        )

    def whole(self, slices: Slices | None = None) -> pl.DataFrame:
        """All that may still count, or what may of some slices."""
        if slices is not None:
            return self._only(slices).whole()
        elements = self._owned(self.elements, self.cells)
        entries = self._owned(self.entries, self.cells)
        stores = enumerate((self.cells, elements, self.timers, entries))
        return _delta([(kind, store.frame()) for kind, store in stores])

    def _owned(self, store: PartStore, cells: PartStore) -> PartStore:
        """Elements, which count while their cell does."""
        return replace(store, alive=None if self.ttl is None else Owned(cells))

    def _require_known(self, version: int) -> None:
        if not self.oldest <= version <= self.version:
            message = f"no state at version {version}: {self.oldest} to {self.version} are known"
            raise LookupError(message)


def waiting(rows: pl.DataFrame, closed: int) -> pl.DataFrame:
    """The timers that have not fired at this watermark."""
    return rows.filter(pl.col(parts.PART) > closed)


@dataclass(frozen=True)
class Living:
    """Which cells still count, each having been seen at most so long before the watermark."""

    ttl: int

    def __call__(self, rows: pl.DataFrame, closed: int) -> pl.DataFrame:
        """The cells that do."""
        seen = pl.col(parts.VALUE).bin.head(SEEN.size)
        times = seen.bin.reinterpret(dtype=pl.Int64, endianness="little")
        return rows.filter(times + self.ttl >= closed)


@dataclass(frozen=True)
class Owned:
    """Which elements still have a cell."""

    cells: PartStore

    def __call__(self, rows: pl.DataFrame, closed: int) -> pl.DataFrame:
        """The elements that do."""
        del closed
        return rows.join(self.cells.frame().select(parts.KEY), on=parts.KEY, how="semi")


def _known(deltas: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
    """Deltas of which all kinds are known."""
    found = list(deltas)
    for delta in found:
        _require_kinds(delta)
    return found


def _of_kind(deltas: Iterable[pl.DataFrame], kind: int) -> list[pl.DataFrame]:
    """The rows of deltas that are of a kind."""
    return [delta.filter(pl.col(KIND) == kind) for delta in deltas]


def _begun(delta: pl.DataFrame) -> pl.DataFrame:
    """The rows of a delta that say that a key begins anew."""
    anew = (pl.col(KIND) == _CELL) & (pl.col(parts.PART) == _ANEW)
    return delta.filter(anew).select(list(parts.SCHEMA))


def _require_kinds(delta: pl.DataFrame) -> None:
    """Refuse what a later version of this program may have kept."""
    unknown = delta.filter(pl.col(KIND) > _ENTRY)[KIND].unique().to_list()
    if unknown:
        message = "a state has parts of an unknown kind"
        so = f"kinds 0 to {_ENTRY} are known here"
        raise CheckpointError(message, have=f"kind {min(unknown)}", so=so)


def of_this_life(deltas: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Changes in order, without those of elements that their keys had before they began anew."""
    anew = (pl.col(KIND) == _CELL) & (pl.col(parts.PART) == _ANEW)
    if not any(frame.select(anew.any()).item() for frame in deltas if frame.height):
        return deltas
    whole = pl.concat([frame.select(*parts.SCHEMA, KIND) for frame in deltas])
    whole = whole.with_row_index(_AT)
    begun = whole.filter(anew).group_by(parts.KEY).agg(pl.col(_AT).max().alias(_SINCE))
    gone = pl.col(KIND).is_in([_ELEMENT, _ENTRY]) & (pl.col(_AT) < pl.col(_SINCE))
    left = whole.join(begun, on=parts.KEY, how="left", maintain_order="left")
    left = left.filter(~gone.fill_null(value=False) & ~anew)
    return [left.drop(_AT, _SINCE)]


def _delta(frames: list[tuple[int, pl.DataFrame]]) -> pl.DataFrame:
    found = [_of(kind, frame) for kind, frame in frames if frame.height]
    if not found:
        return _of(_CELL, pl.DataFrame(schema=parts.SCHEMA))
    rows = pl.concat(found) if len(found) > 1 else found[0]
    # By NumPy: to sort in Polars is a query, which costs more than few changes do.
    order = np.argsort(rows[parts.SLICE].to_numpy(), kind="stable")
    return rows[pl.Series(order.astype(np.uint32))]


def _of(kind: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.hstack([pl.Series(KIND, np.full(frame.height, kind, dtype=np.uint8))])
