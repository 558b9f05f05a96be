"""A key's state while its records are taken: Python objects, decoded when they are touched.

What is kept of a key is a cell (its value and, where state has a time to live, the greatest event
time), the elements of its map and of its list, each by itself, and its timers. A cell knows what is
kept of it, and tells what is to be kept otherwise. A cell's encoding is one of

    ()                          nothing but a time to live
    (value,)
    (value, list)               a list as it was kept before its elements were; only ever read
    (value, list, True)         the same, and its map has elements
    (value, [], map, True)      its list has elements, and its map if `map` is true
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from anabranch.errors import CheckpointError
from anabranch.kernels.keyed.keys import KeyForm, Keys
from anabranch.kernels.keyed.list import Mark, StateList
from anabranch.kernels.keyed.map import StateMap
from anabranch.kernels.keyed.parts import Parts
from anabranch.kernels.keyed.timers import timer_time
from anabranch.kernels.layers import Slices
from anabranch.program.schema import TimeType
from anabranch.state.codec import decode, encode

CACHED_KEYS = 1_000_000
"""More decoded keys than this are not kept from one epoch to the next."""
_SORTED_OUT = 4_096
"""Of so many cells an epoch it is seen whether their slice has left."""

SEEN = struct.Struct("<q")
"""How the greatest event time stands before a cell's encoding."""

Find: TypeAlias = Callable[[Sequence["Cell"]], None]
"""Loads what is kept of new cells."""
Snapshot: TypeAlias = tuple[
    bytes, bytes, AbstractSet[int], int | None, Mark | dict[int, bytes] | None
]

_NO_TIMERS: AbstractSet[int] = frozenset()


@dataclass(slots=True)
class Now:
    """What all keys of an operator see of the present."""

    watermark: Any = None
    clock: TimeType | None = None
    """The type of timers' times; None: the operator has no timers."""
    fresh: list[tuple[int, Cell]] = field(default_factory=list)
    """Timers that were set and nobody has looked at yet."""


class Cell:
    """What a user's function sees of a key's state."""

    __slots__ = (
        "_elements", "_entries", "_list", "_map", "_now", "_set", "_was", "code", "compared", "key",
        "seen", "slice", "timers", "value",
    )  # fmt: skip

    def __init__(self, compared: Any, key: Any, number: int, code: bytes, now: Now) -> None:
        """Begin with nothing."""
        self.key, self.compared, self.slice, self.code = key, compared, number, code
        self._now = now
        self.value: Any = None
        self._list: StateList | None = None
        self._map: StateMap | None = None
        self._elements: dict[int, bytes] | None = None
        """Of a map that nobody has touched."""
        self._entries: dict[int, bytes] | None = None
        """The elements of a list that nobody has touched."""
        self._was: bytes | None = None
        self.timers: AbstractSet[int] = _NO_TIMERS
        self._set: AbstractSet[int] = _NO_TIMERS
        self.seen: int | None = None

    def load(
        self, cell: bytes | None, parts: tuple[Parts, Parts], timers: Iterable[int], *, ttl: bool
    ) -> None:
        """Decode what is kept of a key; `parts` are the elements of its map and of its list."""
        self._was = cell
        self._elements, self._entries = map(_there, parts)
        self._set = frozenset(timers) or _NO_TIMERS
        if cell is None and ttl:
            # Elements and timers are left of a cell that went with its time to live.
            self._clear()
            return
        self.timers = self._set
        if cell is None:
            return
        if ttl:
            (self.seen,) = SEEN.unpack_from(cell)
            cell = cell[SEEN.size :]
        kept = decode(cell)
        if len(kept) > _LONGEST:
            message = "what is kept of a key has an unknown form"
            so = f"up to {_LONGEST} are known here"
            raise CheckpointError(message, have=f"{len(kept)} parts", so=so)
        self.value = kept[0] if kept else None
        if len(kept) > 1 and kept[1]:
            self.list = kept[1]

    def __repr__(self) -> str:
        """Show what is kept."""
        return f"State(key={self.key!r}, value={self.value!r}, list={self.list}, map={self.map})"

    # What users call

    @property
    def watermark(self) -> Any:
        """The watermark before the present epoch, in the event times' own type."""
        return self._now.watermark

    @property
    def list(self) -> list[Any]:
        """A list, empty at first."""
        found = self._known_list()
        found.used = True
        return found

    @list.setter  # noqa: A003 - the public name
    def list(self, new: Iterable[Any]) -> None:
        if (known := self._known_list()) is not new:
            self._list = known.replaced(new)

    @property
    def map(self) -> dict[Any, Any]:
        """A dict, empty at first."""
        if self._map is None:
            self._map = StateMap(self._elements)
            self._elements = None
        return self._map

    @map.setter  # noqa: A003 - the public name
    def map(self, new: dict[Any, Any]) -> None:
        items = dict(new).items()
        if (known := self.map) is not new:
            known.replace(items)  # type: ignore[attr-defined]

    def timer_at(self, t: Any) -> None:
        """Fire at the first watermark at or behind `t`; the same time once."""
        clock = self._now.clock
        if clock is None:
            message = "timer_at needs a KeyedOperator with on_timer, on a stream with event times"
            raise TypeError(message)
        at = timer_time(t, clock)
        if at not in self.timers:
            self._own_timers().add(at)
        self._now.fresh.append((at, self))

    def clear(self) -> None:
        """Forget everything of this key, timers too."""
        self.value, self.timers = None, _NO_TIMERS
        self._clear()

    # What is kept

    def _clear(self) -> None:
        """Forget the elements of the map and of the list."""
        if self._map or self._elements:
            self.map.clear()
        if self._list or self._entries:
            self.list = ()

    def _known_list(self) -> StateList:
        if self._list is None:
            self._list = StateList(self._entries)
            self._entries = None
        return self._list

    def fired(self, at: int) -> None:
        """A timer waits no longer."""
        self._own_timers().discard(at)

    def _own_timers(self) -> set[int]:
        """The timers as a set that may be changed: most keys have none, and share that."""
        if not isinstance(self.timers, set):
            self.timers = set(self.timers)
        return self.timers

    @property
    def empty(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return not (
            self.value is not None
            or self.timers
            or (self._list or self._entries)
            or (self._map or self._elements)
        )

    @property
    def known(self) -> bool:
        """Whether something is kept of it, elements and timers apart."""
        return self._was is not None

    def snapshot(self) -> Snapshot:
        """All of it, to go back to; a TypeError names what cannot be kept."""
        body, items = _kept(self.value, "value"), self._items()
        # The list last: what it is now becomes what it goes back to.
        return body, items, frozenset(self.timers), self.seen, self._mark()

    def undo(self, before: Snapshot) -> None:
        """Go back to what it was at the last snapshot."""
        body, items, timers, self.seen, elements = before
        self.value = decode(body)
        self.timers = timers
        if not isinstance(elements, tuple):
            self._list, self._entries = None, elements
        elif self._list is not None:
            self._list = self._list.back(elements)
        try:
            if items == self._items():
                return
        except TypeError:  # it cannot be kept, and need not be
            pass
        self.map.replace(decode(items))  # type: ignore[attr-defined]

    def _mark(self) -> Mark | dict[int, bytes] | None:
        """The list, to go back to; as it is kept where nobody has touched it."""
        if self._list is None:
            return self._entries
        try:
            return self._list.mark()
        except TypeError as error:
            raise _unkept(error, "list") from None

    def _items(self) -> bytes:
        return _kept(tuple(self.map.items()), "map")

    def cell_change(self, *, ttl: bool) -> tuple[bytes | None] | None:
        """The cell's new encoding, None where nothing is to be kept; without a tuple: as it was."""
        new = self._encoded()
        if ttl:
            new = None if self.seen is None else SEEN.pack(self.seen) + (new or _NOTHING)
        if new == self._was:
            return None
        self._was = new
        return (new,)

    def element_changes(self) -> dict[int, bytes | None]:
        """Elements of the map that are to be kept otherwise than before."""
        if self._map is None:
            return {}
        try:
            return self._map.changes()
        except TypeError as error:
            raise _unkept(error, "map") from None

    def entry_changes(self) -> dict[int, bytes | None]:
        """Elements of the list that are to be kept otherwise than before."""
        if self._list is None:
            return {}
        try:
            return self._list.changes()
        except TypeError as error:
            raise _unkept(error, "list") from None

    def timer_changes(self, watermark: int | None) -> dict[int, bytes | None]:
        """Timers that were set or cancelled; those that the watermark has passed need no word."""
        if self.timers is self._set or self.timers == self._set:
            return {}
        found: dict[int, bytes | None] = dict.fromkeys(self.timers - self._set, b"")
        for at in self._set - self.timers:
            if watermark is None or at > watermark:
                found[at] = None
        self._set = self.timers = frozenset(self.timers)
        return found

    def _encoded(self) -> bytes | None:
        has_list, has_map = self._list or self._entries, self._map or self._elements
        if not (has_list or has_map):
            value = self.value
            if type(value) is int and _LOW <= value <= _HIGH:
                # As below: counts are what most states are, and each is encoded once an epoch.
                return _ONE_INT + _WORD.pack(value)
            return None if value is None else _kept((value,), "value")
        beside = (bool(has_map), True) if has_list else (True,)
        return _ALONE[beside] if self.value is None else _kept((self.value, [], *beside), "value")


_NOTHING = encode(())
_WORD, _LOW, _HIGH = struct.Struct("<q"), -(2**63), 2**63 - 1
_ONE_INT = encode((0,))[: -_WORD.size]
"""How the encoding of a value begins that is one whole number of 64 bits."""
_ALONE = {beside: encode((None, [], *beside)) for beside in ((False, True), (True, True), (True,))}
"""The encodings of cells without a value that have elements beside them."""
_LONGEST = 4
"""The most parts that a cell's encoding has."""


def _there(parts: Parts) -> dict[int, bytes] | None:
    """The parts that there are."""
    return {at: code for at, code in parts.items() if code is not None} or None


def _kept(value: Any, name: str) -> bytes:
    try:
        return encode(value)
    except TypeError as error:
        raise _unkept(error, name) from None


def _unkept(error: TypeError, name: str) -> TypeError:
    return TypeError(f"state.{name}: {error}")


class Cells:
    """Decoded state by key: a cache, so losing it costs time and nothing else.

    When slices leave, the cells that are there become older ones, of which only those of other
    slices are still good. They are sorted out a few at a time, or when they are touched.
    """

    def __init__(self, form: KeyForm, now: Now) -> None:
        """Begin with none."""
        self.now = now
        self._form = form
        self._live: dict[Any, Cell] = {}
        self._older: list[tuple[dict[Any, Cell], Slices]] = []
        """Cells from before slices left, and of which slices they are still good."""

    def __len__(self) -> int:
        """How many there are, good or not."""
        return len(self._live) + sum(len(older) for older, _ in self._older)

    def __bool__(self) -> bool:
        """It is there, even if nothing is in it."""
        return True

    def only(self, slices: Slices) -> None:
        """From now on cells of other slices are no good, even if these come back."""
        self._older = [(cells, kept & slices) for cells, kept in self._older]
        if self._live:
            self._older.append((self._live, slices))
            self._live = {}

    def of(self, keys: Keys, find: Find) -> list[Cell]:
        """The cell of each key, decoded where it is touched for the first time."""
        found = list(map(self._live.get, keys.compared))
        missing: dict[Any, int] = {}
        for at, cell in enumerate(found):
            if cell is None:
                missing.setdefault(keys.compared[at], at)
        if not missing:
            return found  # type: ignore[return-value]
        for older, slices in self._older:
            for key in [key for key in missing if key in older]:
                if (cell := older.pop(key)).slice in slices:
                    self._live[key] = cell
                    del missing[key]
        fresh = [
            Cell(key, keys.seen[at], keys.slices[at], self._form.code_of(key), self.now)
            for key, at in missing.items()
        ]
        find(fresh)
        self._live.update(zip(missing, fresh, strict=True))
        return list(map(self._live.__getitem__, keys.compared))

    def of_codes(self, codes: Sequence[bytes], slices: Sequence[int], find: Find) -> list[Cell]:
        """The cells of encoded keys."""
        compared = [self._form.compared_of(code) for code in codes]
        seen = [self._form.seen_of(each) for each in compared]
        return self.of(Keys(compared, seen, list(slices)), find)

    def forget(self) -> None:
        """Drop all cells: they will be decoded anew."""
        self._live, self._older = {}, []
        self.now.fresh = []

    def trim(self) -> None:
        """Sort out some older cells; drop all if they are too many."""
        if len(self) > CACHED_KEYS:
            self.forget()
        if not self._older:
            return
        older, slices = self._older[-1]
        for _ in range(min(_SORTED_OUT, len(older))):
            key, cell = older.popitem()
            if cell.slice in slices:
                self._live.setdefault(key, cell)
        if not older:
            self._older.pop()
