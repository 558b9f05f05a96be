"""Encoded state in parts: for each key a few bytes, or as many as it has elements or timers.

Parts are found by their key, numbered, and replaced or removed one by one, so that what an epoch
writes is what it changed. A store is layers, the later the truer: small ones are dicts, large ones
frames sorted by key, in which many keys are found by one bisection. No layer ever changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.layers import (
    Slices,
    counting,
    earlier,
    mine,
    narrowed,
    require_folded,
    side_by_side,
    tidied,
)
from anabranch.kernels.shelf import Shelf

SLICE, KEY, PART, VALUE = "slice", "key", "part", "value"
SCHEMA = {SLICE: pl.UInt16(), KEY: pl.Binary(), PART: pl.Int64(), VALUE: pl.Binary()}

LARGE = 4_096
"""Layers of so many parts or more are frames; below, a dict is smaller and faster."""

_Numbers: TypeAlias = npt.NDArray[np.int64]
Parts: TypeAlias = dict[int, bytes | None]
"""What a key's parts are now, by number; None: there is none any more."""
ByKey: TypeAlias = Mapping[bytes, tuple[int, Parts]]
"""Parts by encoded key, with the key's slice."""
_NO_PARTS: Parts = {}


class Changes:
    """Parts that an epoch changed, each once; in columns, as most are written and not sought."""

    def __init__(self) -> None:
        """Begin with none."""
        self._slices: list[int] = []
        self._keys: list[bytes] = []
        self._parts: list[int] = []
        self._values: list[bytes | None] = []

    def __len__(self) -> int:
        """How many parts."""
        return len(self._keys)

    def add_one(self, number: int, code: bytes, part: int, value: bytes | None) -> None:
        """A part of a key in the slice of this number."""
        self._slices.append(number)
        self._keys.append(code)
        self._parts.append(part)
        self._values.append(value)

    def add(self, number: int, code: bytes, parts: Parts) -> None:
        """Parts of a key in the slice of this number."""
        self._slices += [number] * len(parts)
        self._keys += [code] * len(parts)
        self._parts += parts
        self._values += parts.values()

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All of them, in their order."""
        columns = [self._slices, self._keys, self._parts, self._values]
        return pl.DataFrame(columns, schema=SCHEMA, orient="col")

    def by_key(self) -> ByKey:
        """All of them by their key."""
        found: dict[bytes, tuple[int, Parts]] = {}
        self.put_into(found)
        return found

    def put_into(self, found: dict[bytes, tuple[int, Parts]]) -> None:
        """Put them by their key over what is known."""
        for number, code, part, value in zip(
            self._slices, self._keys, self._parts, self._values, strict=True
        ):
            if (known := found.get(code)) is None:
                found[code] = (number, {part: value})
            else:
                known[1][part] = value

    @classmethod
    def of(cls, by_key: ByKey) -> Changes:
        """Parts that are known by their key."""
        found = cls()
        for code, (number, parts) in by_key.items():
            found.add(number, code, parts)
        return found


class Alive(Protocol):
    """Says which parts may still count at a watermark."""

    def __call__(self, rows: pl.DataFrame, closed: int) -> pl.DataFrame:
        """The rows that may."""


class Few:
    """A layer of few parts."""

    def __init__(self, by_key: ByKey) -> None:
        """Take them as they are."""
        self.by_key = by_key
        self.count = sum(len(parts) for _, parts in by_key.values())

    def add_to(self, found: list[Parts], codes: Sequence[bytes], slices: Slices | None) -> None:
        """Put what is known of these keys over what is known from below."""
        for at, code in enumerate(codes):
            known = self.by_key.get(code)
            if known is not None and (slices is None or known[0] in slices):
                found[at].update(known[1])

    def only(self, slices: Slices) -> Few:
        """The parts of these slices."""
        return Few({code: each for code, each in self.by_key.items() if each[0] in slices})

    def shelved(self, shelf: Shelf) -> Few:
        """They are in no columns."""
        del shelf
        return self

    def frame(self) -> pl.DataFrame:
        """All parts, in no order."""
        return Changes.of(self.by_key).frame


class Many:
    """A layer of many parts, sorted by key."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """Take them, sorted."""
        self.rows = rows
        self.count = rows.height

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be found out again."""
        return {"rows": self.rows, "count": self.count}

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Many:
        """Sort them."""
        return cls(rows.sort(KEY, maintain_order=True))

    def add_to(self, found: list[Parts], codes: Sequence[bytes], slices: Slices | None) -> None:
        """Put what is known of these keys over what is known from below."""
        keys, asked = self.rows[KEY], pl.Series(codes, dtype=pl.Binary)
        begin = keys.search_sorted(asked, side="left").to_numpy().astype(np.int64)
        counts = keys.search_sorted(asked, side="right").to_numpy() - begin
        places = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        rows, owners = self.rows[places], np.repeat(np.arange(len(codes)), counts)
        if slices is not None:
            keep = counting(slices, rows[SLICE])
            rows, owners = rows.filter(pl.Series(keep)), owners[keep]
        for at, part, value in zip(
            owners.tolist(), rows[PART].to_list(), rows[VALUE].to_list(), strict=True
        ):
            found[at][part] = value

    def only(self, slices: Slices) -> Many:
        """The parts of these slices."""
        return Many(mine(self.rows, slices))

    def shelved(self, shelf: Shelf) -> Many:
        """The same, with the pieces that a shelf gave back."""
        found = Many(shelf.frame(self.rows))
        if "_by_part" in vars(self):
            order, parts = self._by_part
            vars(found)["_by_part"] = shelf.array(order), shelf.array(parts)
        return found

    def between(self, low: int | None, high: int) -> pl.DataFrame:
        """The parts with a number in (low, high], without those that went."""
        order, parts = self._by_part
        begin = 0 if low is None else int(np.searchsorted(parts, low, side="right"))
        end = int(np.searchsorted(parts, high, side="right"))
        return self.rows[order[begin:end]].filter(pl.col(VALUE).is_not_null())

    @cached_property
    def _by_part(self) -> tuple[_Numbers, _Numbers]:
        """Where the parts are in the order of their numbers, and those numbers."""
        parts = self.rows[PART].to_numpy()
        order = np.argsort(parts, kind="stable")
        return order, parts[order]

    def frame(self) -> pl.DataFrame:
        """All parts."""
        return self.rows


@dataclass(frozen=True)
class Layer:
    """What changed up to a version since the layer below."""

    version: int
    body: Few | Many
    closed: int | None = None
    """The watermark at the end of this version's epoch, as far as it is known."""
    slices: Slices | None = None
    """The slices that count of it; None: all."""

    @property
    def height(self) -> int:
        """How many parts it has, whether they count or not."""
        return self.body.count

    @property
    def divided(self) -> bool:
        """Whether some may be of slices that count no longer."""
        return self.slices is not None

    def alone(self) -> Layer:
        """The same without those."""
        if self.slices is None:
            return self
        return replace(self, body=self.body.only(self.slices), slices=None)

    def only(self, slices: Slices) -> Layer:
        """The same, of which these slices alone count."""
        found = narrowed(self.slices, slices)
        return replace(self, slices=found) if found else replace(self, body=Few({}), slices=None)

    def shelved(self, shelf: Shelf) -> Layer:
        """The same, with the pieces that a shelf gave back."""
        return replace(self, body=self.body.shelved(shelf))

    def frame(self) -> pl.DataFrame:
        """All parts that count."""
        return mine(self.body.frame(), self.slices)


@dataclass(frozen=True)
class PartStore:
    """Parts by key in versions."""

    layers: tuple[Layer, ...]
    base: int
    large: int = LARGE
    alive: Alive | None = field(default=None, compare=False)
    saved: int = 0
    """So many parts may be copied to tidy layers, at a fold."""

    @classmethod
    def from_frames(
        cls,
        frames: Iterable[pl.DataFrame],
        version: int,
        *,
        large: int = LARGE,
        alive: Alive | None = None,
    ) -> PartStore:
        """The parts after these changes, in order."""
        store = cls((), version, large, alive)
        rows = _newest(list(frames), gone=False)
        return replace(store, layers=(Layer(version, store._body(rows)),))

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.layers[-1].version

    def find(self, codes: Sequence[bytes]) -> list[Parts]:
        """The parts of each of these keys, also those that went; nobody may change them."""
        full = [layer for layer in self.layers if layer.height]
        if not full or not codes:
            return [_NO_PARTS] * len(codes)
        found: list[Parts] = [{} for _ in codes]
        for layer in full:
            layer.body.add_to(found, codes, layer.slices)
        return found

    def between(self, low: int | None, high: int) -> pl.DataFrame:
        """Parts with numbers in (low, high], of a store of large layers; some may have gone."""
        found = [
            mine(layer.body.between(low, high), layer.slices)
            for layer in self.layers
            if isinstance(layer.body, Many) and layer.body.count
        ]
        return pl.concat(found) if found else pl.DataFrame(schema=SCHEMA)

    def at(self, version: int) -> PartStore:
        """The store at an earlier version."""
        return replace(self, layers=tuple(e for e in self.layers if e.version <= version))

    def then(self, changes: Changes, closed: int | None) -> PartStore:
        """The store after one more epoch."""
        many = changes and len(changes) >= self.large
        body = Many.of(changes.frame) if many else Few(changes.by_key())
        return replace(self, layers=(*self.layers, Layer(self.version + 1, body, closed)))

    def after(self, frames: Iterable[pl.DataFrame]) -> PartStore:
        """The store after more changes, in order, as one more epoch."""
        body = self._body(_newest(list(frames), gone=True))
        layer = Layer(self.version + 1, body, self.layers[-1].closed)
        return replace(self, layers=(*self.layers, layer))

    def all_gone(self, keys: pl.DataFrame) -> pl.DataFrame:
        """What says of some keys that none of the parts that they have is there any more."""
        found, known = Changes(), keys.unique(KEY, maintain_order=True)
        codes = known[KEY].to_list()
        for number, code, there in zip(known[SLICE], codes, self.find(codes), strict=True):
            found.add(number, code, dict.fromkeys(there))
        return found.frame

    def fold(self, version: int) -> PartStore:
        """The same store with fewer layers; large ones are copied rarely, as they grow."""
        known = [layer for layer in self.layers if layer.version <= version]
        closed = known[-1].closed
        settled = [layer for layer in known if layer.version <= self.base and layer.body.count]
        fresh = [layer for layer in known if layer.version > self.base and layer.body.count]
        if fresh:
            settled.append(self._together(fresh, closed, last=not settled))
            while len(settled) > 1 and settled[-2].height <= 2 * settled[-1].height:
                settled[-2:] = [self._together(settled[-2:], closed, last=len(settled) == 2)]
        settled, saved = tidied(
            settled, self.saved, lambda layers, last: self._together(layers, closed, last=last)
        )
        top = settled.pop() if settled else Layer(version, Few({}))
        settled.append(replace(top, version=version, closed=closed))
        newer = tuple(layer for layer in self.layers if layer.version > version)
        return replace(self, layers=(*settled, *newer), base=version, saved=saved)

    def only(self, slices: Slices) -> PartStore:
        """The same store, of these slices alone."""
        return replace(self, layers=tuple(layer.only(slices) for layer in self.layers))

    def joined(self, other: PartStore) -> PartStore:
        """This store and one of other slices, both folded."""
        require_folded(self.version, self.base)
        require_folded(other.version, other.base)
        both = side_by_side(self.layers, other.layers)
        layers = [replace(layer, version=self.version) for layer in both]
        closed = earlier(self.layers[-1].closed, other.layers[-1].closed)
        layers[-1] = replace(layers[-1], closed=closed)
        return replace(self, layers=tuple(layers))

    def shelved(self, shelf: Shelf) -> PartStore:
        """The same store, with the pieces that a shelf gave back."""
        return replace(self, layers=tuple(layer.shelved(shelf) for layer in self.layers))

    def frame(self) -> pl.DataFrame:
        """All parts there are."""
        rows = _newest([layer.frame() for layer in self.layers], gone=False)
        return self._counting(rows, self.layers[-1].closed)

    def _together(self, layers: Sequence[Layer], closed: int | None, *, last: bool) -> Layer:
        """Layers as one; what went is kept where it hides something below."""
        if len(layers) == 1 and not last:
            return layers[0]
        if sum(layer.body.count for layer in layers) < self.large:
            return Layer(layers[-1].version, _few(layers, gone=not last), closed)
        rows = _newest([layer.frame() for layer in layers], gone=not last)
        rows = self._counting(rows, closed) if last else rows
        return Layer(layers[-1].version, self._body(rows), closed)

    def _counting(self, rows: pl.DataFrame, closed: int | None) -> pl.DataFrame:
        return rows if self.alive is None or closed is None else self.alive(rows, closed)

    def _body(self, rows: pl.DataFrame) -> Few | Many:
        return Many.of(rows) if rows.height >= self.large else Few(_by_key(rows))


def _by_key(rows: pl.DataFrame) -> ByKey:
    found: dict[bytes, tuple[int, Parts]] = {}
    for number, code, part, value in rows.select(list(SCHEMA)).iter_rows():
        found.setdefault(code, (number, {}))[1][part] = value
    return found


def _few(layers: Sequence[Layer], *, gone: bool) -> Few:
    found: dict[bytes, tuple[int, Parts]] = {}
    for body in (layer.alone().body for layer in layers):
        for code, (number, parts) in (
            body.by_key if isinstance(body, Few) else _by_key(body.rows)
        ).items():
            found[code] = (number, {**found.get(code, (number, {}))[1], **parts})
    if not gone:
        left = {code: (number, _there(parts)) for code, (number, parts) in found.items()}
        found = {code: each for code, each in left.items() if each[1]}
    return Few(found)


def _there(parts: Parts) -> Parts:
    return {part: value for part, value in parts.items() if value is not None}


def _newest(frames: Sequence[pl.DataFrame], *, gone: bool) -> pl.DataFrame:
    """What these frames say together, the later the truer; with `gone` also which parts went."""
    known = [frame.select(list(SCHEMA)) for frame in frames if frame.height]
    if not known:
        return pl.DataFrame(schema=SCHEMA)
    # One frame may be the changes of several epochs, one behind the other.
    last = pl.concat(known).unique([KEY, PART], keep="last", maintain_order=True)
    return last if gone else last.filter(pl.col(VALUE).is_not_null())
