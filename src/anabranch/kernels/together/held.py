"""State of rows that wait for a watermark: large runs that rarely change, small ones in front.

What an epoch adds is a piece, and pieces are never changed. Those that are committed are put
together when one is no longer more than twice as large as the next, so that a row is copied a
logarithmic number of times; rows that the watermark has passed are left out of the copies, and a
piece of which the half has been passed is copied without them. An epoch asks each piece for the few
rows it needs: how many wait makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

import polars as pl

from anabranch.kernels.layers import (
    Piece,
    Slices,
    earlier,
    require_folded,
    side_by_side,
    tidied,
)
from anabranch.kernels.results import END
from anabranch.kernels.shelf import Shelf

LEAST = -(2**63)


class Held(Piece, Protocol):
    """Rows that wait, as one immutable value."""

    def only(self, slices: Slices) -> Self:
        """The same, of which these slices alone count; no row is copied."""

    def passed(self, bound: int) -> int:
        """How many of all of them have a time before this one."""

    def kept(self, bound: int) -> Self:
        """Those that do not."""

    def before(self, newer: Self) -> Self:
        """These and newer ones, in one."""

    def delta(self, bound: int | None) -> pl.DataFrame:
        """All of it as a delta, sorted by slice, with the bound beside it."""


_Held = TypeVar("_Held", bound=Held)


@dataclass(frozen=True, slots=True)
class Layer(Generic[_Held]):
    """What came in up to a version since the layer below."""

    version: int
    held: _Held
    bound: int | None
    """At this version rows with a time before this one have gone; None: none has."""


@dataclass(frozen=True, slots=True)
class HeldState(Generic[_Held]):
    """Rows that wait, and some that have gone and are asked for no more."""

    layers: tuple[Layer[_Held], ...]
    """Committed ones first, each more than twice as large as the next; then one an epoch."""
    base: int
    """The version up to which layers are committed."""
    saved: int = 0
    """So many rows may be copied to tidy layers, at a fold."""

    @classmethod
    def of(cls, held: _Held, bound: int | None, version: int) -> HeldState[_Held]:
        """A state of which everything is committed."""
        first = Layer(version, held if bound is None else held.kept(bound), bound)
        return HeldState((first,), version)

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.layers[-1].version

    @property
    def oldest(self) -> int:
        """The base's version."""
        return self.base

    @property
    def height(self) -> int:
        """How many rows it has in memory."""
        return sum(layer.held.height for layer in self.layers)

    def __iter__(self) -> Iterator[_Held]:
        """The pieces, the oldest first; empty ones are left out."""
        return (layer.held for layer in self.layers if layer.held.height)

    def at(self, version: int) -> HeldState[_Held]:
        """The state at an earlier version."""
        self._require_known(version)
        # Rows that have gone since then are still there: `fold` alone lets them go.
        kept = tuple(layer for layer in self.layers if layer.version <= version)
        return replace(self, layers=kept)

    def then(self, held: _Held, bound: int | None) -> HeldState[_Held]:
        """The state after one more epoch."""
        return replace(self, layers=(*self.layers, Layer(self.version + 1, held, bound)))

    def after(self, more: HeldState[_Held]) -> HeldState[_Held]:
        """The state after more epochs, of which this is what came in and how far time went."""
        (layer,) = more.layers
        # Time goes on, and where nothing came in nobody has said how far.
        then = self.then(layer.held, _later(self.layers[-1].bound, layer.bound))
        return then.fold(then.version)

    def fold(self, version: int) -> HeldState[_Held]:
        """The same state with fewer layers, without most of what had gone at this version."""
        self._require_known(version)
        old = [layer for layer in self.layers if layer.version <= version]
        bound = old[-1].bound
        settled = [_fewer(layer.held, bound) for layer in old if layer.version <= self.base]
        fresh = [layer.held for layer in old if layer.version > self.base]
        while len(fresh) > 1:
            fresh[-2:] = [_together(fresh[-2], fresh[-1], bound)]
        none, settled = settled[0], [held for held in settled if held.height]
        if fresh and fresh[0].height:
            settled += fresh
            while len(settled) > 1 and settled[-2].height <= 2 * settled[-1].height:
                settled[-2:] = [_together(settled[-2], settled[-1], bound)]
        settled, saved = tidied(settled, self.saved, lambda some, _: _all_together(some, bound))
        layers = tuple(Layer(version, held, bound) for held in settled or [none])
        return HeldState((*layers, *self.layers[len(old) :]), version, saved)

    def only(self, slices: Slices) -> HeldState[_Held]:
        """The same state, of these slices alone."""
        kept = (replace(layer, held=layer.held.only(slices)) for layer in self.layers)
        return replace(self, layers=tuple(kept))

    def joined(self, other: HeldState[_Held]) -> HeldState[_Held]:
        """This state and one of other slices, both folded."""
        require_folded(self.version, self.oldest)
        require_folded(other.version, other.oldest)
        bound = earlier(self.layers[-1].bound, other.layers[-1].bound)
        both = side_by_side(*([x.held for x in state.layers] for state in (self, other)))
        return replace(self, layers=tuple(Layer(self.version, held, bound) for held in both))

    def shelved(self, shelf: Shelf) -> HeldState[_Held]:
        """The same state, with the pieces that a shelf gave back."""
        layers = (replace(layer, held=layer.held.shelved(shelf)) for layer in self.layers)
        return replace(self, layers=tuple(layers))

    def whole(self, slices: Slices | None = None) -> pl.DataFrame:
        """All rows that still wait, or those of some slices."""
        if slices is not None:
            return self.only(slices).whole()
        bound = self.layers[-1].bound
        held = _all_together([layer.held for layer in self.layers], bound)
        return (held if bound is None else held.kept(bound)).delta(bound)

    def _require_known(self, version: int) -> None:
        if not self.oldest <= version <= self.version:
            message = f"no state at version {version}: {self.oldest} to {self.version} are known"
            raise LookupError(message)


def bound_of(watermark: int | None, within: int) -> int | None:
    """Rows with a time before this one can meet none with a time of the watermark or later.

    >>> bound_of(100, 10), bound_of(None, 10), bound_of(END, 10) == END
    (90, None, True)
    """
    if watermark is None or watermark == END:
        return watermark
    return max(LEAST, watermark - within)


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _fewer(held: _Held, bound: int | None) -> _Held:
    """Without the rows that have gone, where copying the others pays."""
    if bound is None or 2 * held.passed(bound) < held.height:
        return held
    return held.kept(bound)


def _all_together(pieces: Sequence[_Held], bound: int | None) -> _Held:
    held = list(pieces)
    while len(held) > 1:
        held[-2:] = [_together(held[-2], held[-1], bound)]
    return held[0].alone()


def _together(older: _Held, newer: _Held, bound: int | None) -> _Held:
    older, newer = older.alone(), newer.alone()
    if bound is not None:
        older, newer = older.kept(bound), newer.kept(bound)
    return older.before(newer)
