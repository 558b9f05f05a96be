"""State in versions: each is a value, and a new one leaves the one before it as it was.

A version is the state after an epoch. A view holds a base and one overlay for each epoch behind it;
`at` drops the newest overlays (an attempt was lost), `fold` puts the oldest into the base (they are
committed). What an epoch changes is its delta, and state is nothing but the fold of its deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import polars as pl

from anabranch.kernels.encoded import Entry, as_frame, newest
from anabranch.kernels.windows import SLICE, START, Windows


class StateView(Protocol):
    """The state of one operator in one lane, at a version."""

    @property
    def version(self) -> int:
        """How many epochs it is made of."""

    @property
    def oldest(self) -> int:
        """The oldest version that `at` still knows: the base's."""

    def at(self, version: int) -> Self:
        """The state at an earlier version."""

    def fold(self, version: int) -> Self:
        """The same state, with everything up to this version in the base."""

    def whole(self) -> pl.DataFrame:
        """All of it as one delta, sorted by slice: folding it alone gives the state again."""


# Windows


@dataclass(frozen=True, slots=True)
class Piece:
    """Partials that came into the state together, sorted by start."""

    version: int
    frame: pl.DataFrame
    closed: int | None = None
    """At this version windows that start here or before have left, as far as it is known."""

    def between(self, low: int | None, high: int) -> pl.DataFrame:
        """The partials of windows that start behind `low` and at `high` or before."""
        starts = self.frame[START]
        begin = 0 if low is None else int(starts.search_sorted(low, side="right"))
        end = int(starts.search_sorted(high, side="right"))
        return self.frame.slice(begin, max(0, end - begin))


@dataclass(frozen=True, slots=True)
class WindowState:
    """Partials of windows that may still change, and of some that have left and do not count."""

    windows: Windows
    pieces: tuple[Piece, ...]
    """The base, then an overlay an epoch; added in this order."""

    @classmethod
    def from_deltas(
        cls, windows: Windows, deltas: Iterable[pl.DataFrame], version: int = 0
    ) -> WindowState:
        """The state after epochs with these deltas, in order."""
        return cls(windows, (Piece(version, windows.merged(list(deltas))),))

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.pieces[-1].version

    @property
    def oldest(self) -> int:
        """The base's version."""
        return self.pieces[0].version

    def at(self, version: int) -> WindowState:
        """The state at an earlier version."""
        _require_known(self, version)
        # Windows that have left since then are still there: `fold` alone lets them go.
        return replace(self, pieces=tuple(p for p in self.pieces if p.version <= version))

    def then(self, delta: pl.DataFrame, closed: int | None) -> WindowState:
        """The state after one more epoch."""
        return replace(self, pieces=(*self.pieces, Piece(self.version + 1, delta, closed)))

    def fold(self, version: int) -> WindowState:
        """The same state with fewer pieces, without the windows that had left at this version."""
        _require_known(self, version)
        old = [piece for piece in self.pieces if piece.version <= version]
        closed = old[-1].closed
        frames = [each.frame for each in old]
        if closed is not None:
            frames = [frame.filter(pl.col(START) > closed) for frame in frames]
        base = Piece(version, self.windows.merged(frames), closed)
        return replace(self, pieces=(base, *self.pieces[len(old) :]))

    def whole(self) -> pl.DataFrame:
        """All partials that still count."""
        return self.fold(self.version).pieces[0].frame.sort(SLICE, maintain_order=True)

    def due(self, low: int | None, high: int) -> list[pl.DataFrame]:
        """The partials of windows with a start in (low, high], piece by piece."""
        return [piece.between(low, high) for piece in self.pieces]


# Keyed state

LARGE = 4_096
"""Layers of so many keys or more are Arrow; below, a dict is smaller and faster."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What changed up to a version since the layer below, by encoded key."""

    version: int
    entries: Mapping[bytes, Entry]


@dataclass(frozen=True, slots=True)
class KeyedState:
    """Encoded state a key, in layers; decoded cells are a cache beside them."""

    layers: tuple[Layer, ...]
    """Committed ones first, each more than twice as large as the next; then one an epoch."""
    base: int = 0
    """The version up to which layers are committed."""
    cache: Any = field(default=None, compare=False, repr=False)
    """Decoded cells of this version; the one who runs takes them, and they are nobody else's."""

    @classmethod
    def from_deltas(cls, deltas: Iterable[pl.DataFrame], version: int = 0) -> KeyedState:
        """The state after epochs with these deltas, in order."""
        return cls((Layer(version, newest(list(deltas), gone=False)),), version)

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.layers[-1].version

    @property
    def oldest(self) -> int:
        """The base's version."""
        return self.base

    def find(self, code: bytes) -> bytes | None:
        """A key's encoded state."""
        for layer in reversed(self.layers):
            if (entry := layer.entries.get(code)) is not None:
                return entry[1]
        return None

    def at(self, version: int) -> KeyedState:
        """The state at an earlier version."""
        _require_known(self, version)
        kept = tuple(layer for layer in self.layers if layer.version <= version)
        return KeyedState(kept, self.base)

    def then(self, entries: Mapping[bytes, Entry], cache: Any = None) -> KeyedState:
        """The state after one more epoch."""
        return KeyedState((*self.layers, Layer(self.version + 1, entries)), self.base, cache)

    def fold(self, version: int) -> KeyedState:
        """The same state with fewer layers; large ones are copied rarely, as they grow."""
        _require_known(self, version)
        settled = [layer for layer in self.layers if layer.version <= self.base]
        fresh = [layer for layer in self.layers if self.base < layer.version <= version]
        if fresh:
            settled.append(_squashed(version, fresh, gone=bool(settled)))
        while len(settled) > 1 and len(settled[-2].entries) <= 2 * len(settled[-1].entries):
            # Below the last layer there is nothing that a key which went would have to hide.
            settled[-2:] = [_squashed(version, settled[-2:], gone=len(settled) > 2)]
        settled[-1] = Layer(version, settled[-1].entries)
        newer = tuple(layer for layer in self.layers if layer.version > version)
        return KeyedState((*settled, *newer), version, self.take_cache())

    def take_cache(self) -> Any:
        """The decoded cells, which this view has no longer: whoever runs changes them."""
        cache = self.cache
        object.__setattr__(self, "cache", None)
        return cache

    def whole(self) -> pl.DataFrame:
        """All keys that have state."""
        layers = [as_frame(layer.entries) for layer in self.layers]
        return newest(layers, gone=False).frame.sort(SLICE, maintain_order=True)


def delta_of(entries: Mapping[bytes, Entry]) -> pl.DataFrame:
    """What an epoch changed as a frame, sorted by slice."""
    return as_frame(entries).sort(SLICE, maintain_order=True)


def _squashed(version: int, layers: Sequence[Layer], *, gone: bool) -> Layer:
    """Layers as one, the later the truer; keys that went are kept where they hide others below."""
    if sum(len(layer.entries) for layer in layers) >= LARGE:
        return Layer(version, newest([as_frame(layer.entries) for layer in layers], gone=gone))
    entries: dict[bytes, Entry] = {}
    for layer in layers:
        entries.update(layer.entries)
    if not gone:
        entries = {code: entry for code, entry in entries.items() if entry[1] is not None}
    return Layer(version, entries)


def _require_known(state: StateView, version: int) -> None:
    if not state.oldest <= version <= state.version:
        message = f"no state at version {version}: {state.oldest} to {state.version} are known"
        raise LookupError(message)
