"""State as columns: rows a key, found by the key's hash, with no Python object for any of them.

A state is a few piles of rows, each sorted by hash and immutable; a batch's keys are looked up by
bisection, so a key that nobody asks for costs nothing. Small piles are put together as they grow,
each kept more than twice as large as the next, so that large ones are copied rarely.

The columns of a delta are `slice`, the key columns in the form of M6, then what is kept. Where what
is kept can grow old, `until` says how long it counts: for epochs whose watermark before is at most
that. What no longer counts may be gone or not: whoever reads it looks at `until` himself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.bundle import SLICE, key
from anabranch.kernels.keys import canonical, canonical_type
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
from anabranch.state.slices import key_hash

SLICE_OF_STATE = "slice"
UNTIL = "until"
NEVER = -(2**63)
"""The `until` of a row that only says that its key has nothing any more."""

_AT = "at"
_Hashes: TypeAlias = npt.NDArray[np.uint64]
_Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """What the rows of a state look like, and how they add up."""

    by: tuple[str, ...]
    """The user's key columns."""
    types: tuple[pl.DataType, ...]
    kept: tuple[tuple[str, pl.DataType], ...]
    one: bool
    """Whether a key's newest row takes the place of those before; else all of them count."""

    @classmethod
    def of(
        cls, by: Sequence[str], given: pl.Schema, kept: dict[str, pl.DataType], *, one: bool
    ) -> Shape:
        """The shape of a state by these columns of the input."""
        return cls(tuple(by), tuple(given[name] for name in by), tuple(kept.items()), one)

    @property
    def keys(self) -> list[str]:
        """The names of the key columns in a state's rows."""
        return [key(number) for number in range(len(self.by))]

    @property
    def grows_old(self) -> bool:
        """Whether rows say how long they count."""
        return any(name == UNTIL for name, _ in self.kept)

    def empty(self) -> pl.DataFrame:
        """No rows."""
        types = [canonical_type(dtype) for dtype in self.types]
        keys = dict(zip(self.keys, types, strict=True))
        return pl.DataFrame(schema={SLICE_OF_STATE: pl.UInt16(), **keys, **dict(self.kept)})

    def keyed(self) -> list[pl.Expr]:
        """The slice and the key columns of a bundle's rows, as a state's rows have them."""
        found = [pl.col(SLICE).cast(pl.UInt16).alias(SLICE_OF_STATE)]
        for number, (name, dtype) in enumerate(zip(self.by, self.types, strict=True)):
            found.append(canonical(pl.col(name), dtype).alias(key(number)))
        return found

    def merged(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """What these frames say together, the later the truer; none replaces rows of its own."""
        full = [frame for frame in frames if frame.height]
        if not full:
            return self.empty()
        rows = pl.concat([frame.select(self.empty().columns) for frame in full])
        return rows if len(full) == 1 else self.latest(rows)

    def latest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of several epochs without those that later ones take the place of."""
        return rows.unique(self.keys, keep="last", maintain_order=True) if self.one else rows

    def alive(self, rows: pl.DataFrame, closed: int | None) -> pl.DataFrame:
        """The rows that may still count behind this watermark."""
        if not self.grows_old:
            return rows
        bound = NEVER + 1 if closed is None else max(closed, NEVER + 1)
        return rows.filter(pl.col(UNTIL) >= bound)


@dataclass(frozen=True)
class Pile:
    """Rows that came into the state up to a version, sorted by the hash of their key."""

    version: int
    rows: pl.DataFrame
    hashes: _Hashes = field(repr=False)
    closed: int | None = None
    """The watermark at the end of this version's epoch, as far as it is known."""
    slices: Slices | None = None
    """The slices that count of it; None: all."""

    @classmethod
    def of(cls, shape: Shape, version: int, rows: pl.DataFrame, closed: int | None) -> Pile:
        """Sort rows; of one key they stay in their order."""
        hashes = key_hash(rows, shape.keys)
        order = np.argsort(hashes, kind="stable")
        return cls(version, rows[order], hashes[order], closed)

    @property
    def height(self) -> int:
        """How many rows it has, whether they count or not."""
        return self.rows.height

    @property
    def divided(self) -> bool:
        """Whether some may be of slices that count no longer."""
        return self.slices is not None

    def alone(self) -> Pile:
        """The same without those."""
        if self.slices is None:
            return self
        keep = counting(self.slices, self.rows[SLICE_OF_STATE])
        rows, hashes = self.rows.filter(pl.Series(keep)), self.hashes[keep]
        return replace(self, rows=rows, hashes=hashes, slices=None)

    def only(self, slices: Slices) -> Pile:
        """The same, of which these slices alone count."""
        found = narrowed(self.slices, slices)
        if found:
            return replace(self, slices=found)
        return replace(self, rows=self.rows.clear(), hashes=self.hashes[:0], slices=None)

    def shelved(self, shelf: Shelf) -> Pile:
        """The same, with the pieces that a shelf gave back."""
        return replace(self, rows=shelf.frame(self.rows), hashes=shelf.array(self.hashes))

    def find(self, hashes: _Hashes) -> pl.DataFrame | None:
        """The rows with one of these hashes, each of which is given once."""
        begin = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - begin
        total = int(counts.sum())
        if not total:
            return None
        skipped = np.repeat(begin - (np.cumsum(counts) - counts), counts)
        found: pl.DataFrame = self.rows[np.arange(total) + skipped]
        return mine(found, self.slices)


@dataclass(frozen=True)
class ColumnState:
    """Rows a key in piles: the committed ones, then one an epoch."""

    shape: Shape
    piles: tuple[Pile, ...]
    base: int = 0
    """The version up to which piles are committed."""
    saved: int = 0
    """So many rows may be copied to tidy piles, at a fold."""

    @classmethod
    def from_deltas(
        cls, shape: Shape, deltas: Iterable[pl.DataFrame], version: int = 0
    ) -> ColumnState:
        """The state after epochs with these deltas, in order."""
        # One frame may be the deltas of several epochs, one behind the other.
        rows = shape.alive(shape.latest(shape.merged(list(deltas))), None)
        return cls(shape, (Pile.of(shape, version, rows, None),), version)

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.piles[-1].version

    @property
    def oldest(self) -> int:
        """The base's version."""
        return self.base

    def find(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The rows of these keys, oldest first; now and then of another with the same hash.

        Every key is given once.
        """
        full = [pile for pile in self.piles if pile.rows.height]
        if not full or not keys.height:
            return self.shape.empty()
        hashes = np.unique(key_hash(keys, self.shape.keys))
        found = [rows for pile in full if (rows := pile.find(hashes)) is not None]
        return self.shape.merged(found)

    def at(self, version: int) -> ColumnState:
        """The state at an earlier version."""
        self._require_known(version)
        return replace(self, piles=tuple(p for p in self.piles if p.version <= version))

    def then(self, delta: pl.DataFrame, closed: int | None) -> ColumnState:
        """The state after one more epoch, whose last watermark is `closed`."""
        pile = Pile.of(self.shape, self.version + 1, delta, closed)
        return replace(self, piles=(*self.piles, pile))

    def after(self, deltas: Iterable[pl.DataFrame]) -> ColumnState:
        """The state after more epochs with these deltas, folded."""
        rows = self.shape.latest(self.shape.merged(list(deltas)))
        more = self.then(rows, self.piles[-1].closed)
        return more.fold(more.version)

    def fold(self, version: int) -> ColumnState:
        """The same state with fewer piles."""
        self._require_known(version)
        known = [pile for pile in self.piles if pile.version <= version]
        closed = known[-1].closed
        settled = [pile for pile in known if pile.version <= self.base and pile.rows.height]
        fresh = [pile for pile in known if pile.version > self.base and pile.rows.height]
        if fresh:
            settled.append(self._together(fresh, closed, last=not settled))
            while len(settled) > 1 and settled[-2].height <= 2 * settled[-1].height:
                settled[-2:] = [self._together(settled[-2:], closed, last=len(settled) == 2)]
        settled, saved = tidied(
            settled, self.saved, lambda piles, last: self._together(piles, closed, last=last)
        )
        if not settled:
            settled = [Pile.of(self.shape, version, self.shape.empty(), closed)]
        settled[-1] = replace(settled[-1], version=version, closed=closed)
        newer = tuple(pile for pile in self.piles if pile.version > version)
        return ColumnState(self.shape, (*settled, *newer), version, saved)

    def only(self, slices: Slices) -> ColumnState:
        """The same state, of these slices alone."""
        return replace(self, piles=tuple(pile.only(slices) for pile in self.piles))

    def joined(self, other: ColumnState) -> ColumnState:
        """This state and one of other slices, both folded."""
        require_folded(self.version, self.oldest)
        require_folded(other.version, other.oldest)
        both = side_by_side(self.piles, other.piles)
        piles = [replace(pile, version=self.version) for pile in both]
        closed = earlier(self.piles[-1].closed, other.piles[-1].closed)
        piles[-1] = replace(piles[-1], closed=closed)
        return replace(self, piles=tuple(piles))

    def shelved(self, shelf: Shelf) -> ColumnState:
        """The same state, with the pieces that a shelf gave back."""
        return replace(self, piles=tuple(pile.shelved(shelf) for pile in self.piles))

    def whole(self, slices: Slices | None = None) -> pl.DataFrame:
        """All rows that may still count, or those of some slices."""
        if slices is not None:
            return self.only(slices).whole()
        rows = self.shape.merged([mine(pile.rows, pile.slices) for pile in self.piles])
        alive = self.shape.alive(rows, self.piles[-1].closed)
        return alive.sort(SLICE_OF_STATE, maintain_order=True)

    def _together(self, piles: Sequence[Pile], closed: int | None, *, last: bool) -> Pile:
        """Piles as one, without what no longer counts, unless it hides something further down."""
        rows = self.shape.merged([mine(pile.rows, pile.slices) for pile in piles])
        if last or not self.shape.one:
            rows = self.shape.alive(rows, closed)
        return Pile.of(self.shape, piles[-1].version, rows, closed)

    def _require_known(self, version: int) -> None:
        if not self.oldest <= version <= self.version:
            message = f"no state at version {version}: {self.oldest} to {self.version} are known"
            raise LookupError(message)


def as_delta(shape: Shape, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows as the delta of an epoch, sorted by slice."""
    return rows.select(shape.empty().columns).sort(SLICE_OF_STATE, maintain_order=True)


def arranged(frame: pl.DataFrame, columns: Sequence[str]) -> tuple[_Numbers, _Numbers]:
    """The places of a frame's rows key by key, each key's in their order, and the key's number.

    >>> order, numbers = arranged(pl.DataFrame({"k": ["b", "a", "b"]}), ["k"])
    >>> order.tolist(), numbers.tolist()
    ([0, 2, 1], [0, 0, 1])
    """
    at = pl.int_range(pl.len(), dtype=pl.Int64).alias(_AT)
    places = frame.select(*columns, at).group_by(columns, maintain_order=True).agg(_AT)[_AT]
    lengths = places.list.len().to_numpy()
    numbers = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    return places.explode(empty_as_null=False).to_numpy(), numbers
