"""Encoded state in parts: for each key a few bytes, or as many as it has elements or timers.

Parts are found by their key, numbered, and replaced or removed one by one, so that what an epoch
writes is what it changed. A store is layers, the later the truer: small ones are dicts, large ones
frames sorted by key, in which many keys are found by one bisection. No layer ever changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

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
        for number, code, part, value in zip(
            self._slices, self._keys, self._parts, self._values, strict=True
        ):
            found.setdefault(code, (number, {}))[1][part] = value
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

    def add_to(self, found: list[Parts], codes: Sequence[bytes]) -> None:
        """Put what is known of these keys over what is known from below."""
        for at, code in enumerate(codes):
            if (known := self.by_key.get(code)) is not None:
                found[at].update(known[1])

    def frame(self) -> pl.DataFrame:
        """All parts, in no order."""
        found = Changes()
        for code, (number, parts) in self.by_key.items():
            found.add(number, code, parts)
        return found.frame


class Many:
    """A layer of many parts, sorted by key."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """Sort them."""
        self.rows = rows.sort(KEY, maintain_order=True)
        self.count = rows.height

    def add_to(self, found: list[Parts], codes: Sequence[bytes]) -> None:
        """Put what is known of these keys over what is known from below."""
        keys, asked = self.rows[KEY], pl.Series(codes, dtype=pl.Binary)
        begin = keys.search_sorted(asked, side="left").to_numpy().astype(np.int64)
        counts = keys.search_sorted(asked, side="right").to_numpy() - begin
        places = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        rows = self.rows[places]
        owners = np.repeat(np.arange(len(codes)), counts).tolist()
        for at, part, value in zip(
            owners, rows[PART].to_list(), rows[VALUE].to_list(), strict=True
        ):
            found[at][part] = value

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


@dataclass(frozen=True)
class PartStore:
    """Parts by key in versions."""

    layers: tuple[Layer, ...]
    base: int
    large: int = LARGE
    alive: Alive | None = field(default=None, compare=False)

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
        full = [layer.body for layer in self.layers if layer.body.count]
        if not full or not codes:
            return [_NO_PARTS] * len(codes)
        found: list[Parts] = [{} for _ in codes]
        for body in full:
            body.add_to(found, codes)
        return found

    def between(self, low: int | None, high: int) -> pl.DataFrame:
        """Parts with numbers in (low, high], of a store of large layers; some may have gone."""
        found = [
            layer.body.between(low, high)
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
        body = Many(changes.frame) if many else Few(changes.by_key())
        return replace(self, layers=(*self.layers, Layer(self.version + 1, body, closed)))

    def fold(self, version: int) -> PartStore:
        """The same store with fewer layers; large ones are copied rarely, as they grow."""
        known = [layer for layer in self.layers if layer.version <= version]
        closed = known[-1].closed
        settled = [layer for layer in known if layer.version <= self.base and layer.body.count]
        fresh = [layer for layer in known if layer.version > self.base and layer.body.count]
        if fresh:
            settled.append(self._together(fresh, closed, last=not settled))
        while len(settled) > 1 and settled[-2].body.count <= 2 * settled[-1].body.count:
            settled[-2:] = [self._together(settled[-2:], closed, last=len(settled) == 2)]
        body = settled.pop().body if settled else Few({})
        settled.append(Layer(version, body, closed))
        newer = tuple(layer for layer in self.layers if layer.version > version)
        return replace(self, layers=(*settled, *newer), base=version)

    def frame(self) -> pl.DataFrame:
        """All parts there are."""
        rows = _newest([layer.body.frame() for layer in self.layers], gone=False)
        return self._counting(rows, self.layers[-1].closed)

    def _together(self, layers: Sequence[Layer], closed: int | None, *, last: bool) -> Layer:
        """Layers as one; what went is kept where it hides something below."""
        if len(layers) == 1 and not last:
            return layers[0]
        if sum(layer.body.count for layer in layers) < self.large:
            return Layer(layers[-1].version, _few(layers, gone=not last), closed)
        rows = _newest([layer.body.frame() for layer in layers], gone=not last)
        rows = self._counting(rows, closed) if last else rows
        return Layer(layers[-1].version, self._body(rows), closed)

    def _counting(self, rows: pl.DataFrame, closed: int | None) -> pl.DataFrame:
        return rows if self.alive is None or closed is None else self.alive(rows, closed)

    def _body(self, rows: pl.DataFrame) -> Few | Many:
        return Many(rows) if rows.height >= self.large else Few(_by_key(rows))


def _by_key(rows: pl.DataFrame) -> ByKey:
    found: dict[bytes, tuple[int, Parts]] = {}
    for number, code, part, value in rows.select(list(SCHEMA)).iter_rows():
        found.setdefault(code, (number, {}))[1][part] = value
    return found


def _few(layers: Sequence[Layer], *, gone: bool) -> Few:
    found: dict[bytes, tuple[int, Parts]] = {}
    for layer in layers:
        body = layer.body
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
