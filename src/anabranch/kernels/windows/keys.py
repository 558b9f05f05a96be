"""State by key as frames: what an epoch says of a key replaces all that was said of it before.

Rows are found by a hash of their key. Two keys with one hash are taken together: whoever asks for
one gets both, and writes both again. Layers are sorted by hash, each more than twice as large as
the next, so a key costs a few bisections and idle keys cost nothing.

Where rows have an `end`, one that has passed the watermark counts no longer, and nobody says so: a
row that replaces others lasts at least as long as they do. So rows that are gone need no mark.

Keys with one hash are taken to be of one slice here: what a layer says of a hash counts or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

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
from anabranch.state.slices import key_hash

HASH, END, SLICE, EPOCH = "hash", "end", "slice", "epoch"
Hashes: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layer:
    """Rows that came into the state together, sorted by hash."""

    version: int
    frame: pl.DataFrame
    hashes: Hashes
    by_end: Places | None
    """The rows in the order of their ends."""
    ends: npt.NDArray[np.int64] | None
    """Their ends, in that order."""
    closed: int | None = None
    """At this version rows that end here or before have left."""
    slices: Slices | None = None
    """The slices that count of it; None: all."""

    @classmethod
    def of(cls, version: int, frame: pl.DataFrame, closed: int | None = None) -> Layer:
        """Index rows."""
        frame = frame.sort(HASH, maintain_order=True)
        if END not in frame.columns:
            return cls(version, frame, frame[HASH].to_numpy(), None, None, closed)
        ends = frame[END].to_numpy()
        order = np.argsort(ends, kind="stable")
        return cls(version, frame, frame[HASH].to_numpy(), order, ends[order], closed)

    def __getstate__(self) -> dict[str, Any]:
        """All but what is a column of the frame."""
        return {**vars(self), "hashes": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """See that column again."""
        vars(self).update(state, hashes=state["frame"][HASH].to_numpy())

    @property
    def height(self) -> int:
        """How many rows it has, whether they count or not."""
        return self.frame.height

    @property
    def divided(self) -> bool:
        """Whether some may be of slices that count no longer."""
        return self.slices is not None

    @property
    def rows(self) -> pl.DataFrame:
        """The rows that count."""
        return mine(self.frame, self.slices, SLICE)

    def alone(self) -> Layer:
        """The same with no others."""
        return Layer.of(self.version, self.rows, self.closed)

    def only(self, slices: Slices) -> Layer:
        """The same, of which these slices alone count."""
        found = narrowed(self.slices, slices)
        if found:
            return replace(self, slices=found)
        return Layer.of(self.version, self.frame.clear(), self.closed)

    def shelved(self, shelf: Shelf) -> Layer:
        """The same, with the pieces that a shelf gave back."""
        if (frame := shelf.frame(self.frame)) is self.frame and self.by_end is None:
            return self
        hashes = self.hashes if frame is self.frame else frame[HASH].to_numpy()
        by_end = None if self.by_end is None else shelf.array(self.by_end)
        ends = None if self.ends is None else shelf.array(self.ends)
        return replace(self, frame=frame, hashes=hashes, by_end=by_end, ends=ends)

    def knows(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of these hashes it has."""
        if not len(self.hashes):
            return np.zeros(len(hashes), dtype=bool)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.asarray((self.hashes[at] == hashes) & self._counts(at))

    def rows_of(self, hashes: Hashes) -> pl.DataFrame:
        """All rows with these hashes, which it knows."""
        begin = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - begin
        return self.frame[ranges(begin, counts)]

    def ended(self, low: int | None, high: int) -> Places:
        """The rows that end behind `low` and at `high` or before."""
        places = self._ended(low, high)
        return places if self.slices is None else places[self._counts(places)]

    def without(self, closed: int | None) -> Layer:
        """Without rows that have left, if they are most of it."""
        if closed is None or 2 * len(self._ended(None, closed)) <= self.frame.height:
            return self
        return Layer.of(self.version, self.rows.filter(pl.col(END) > closed), closed)

    def _ended(self, low: int | None, high: int) -> Places:
        if self.ends is None or self.by_end is None:
            return np.empty(0, dtype=np.int64)
        begin = 0 if low is None else int(np.searchsorted(self.ends, low, side="right"))
        return self.by_end[begin : int(np.searchsorted(self.ends, high, side="right"))]

    def _counts(self, places: Places) -> npt.NDArray[np.bool_]:
        """Which of the rows at these places count."""
        if self.slices is None:
            return np.ones(len(places), dtype=bool)
        return counting(self.slices, self.frame[SLICE][places])


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows by key, in layers, the later the truer."""

    schema: pl.Schema
    layers: tuple[Layer, ...]
    base: int = 0
    """The version up to which layers are committed."""
    saved: int = 0
    """So many rows may be copied to tidy layers, at a fold."""

    @classmethod
    def from_deltas(
        cls, schema: pl.Schema, deltas: Iterable[pl.DataFrame], version: int = 0
    ) -> KeyRows:
        """The state after epochs with these deltas, in order."""
        return cls(schema, (Layer.of(version, _latest(schema, deltas)),), version)

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.layers[-1].version

    @property
    def oldest(self) -> int:
        """The base's version."""
        return self.base

    def at(self, version: int) -> KeyRows:
        """The state at an earlier version."""
        self._require(version)
        return replace(self, layers=tuple(x for x in self.layers if x.version <= version))

    def then(self, delta: pl.DataFrame, closed: int | None = None) -> KeyRows:
        """The state after one more epoch."""
        return replace(self, layers=(*self.layers, Layer.of(self.version + 1, delta, closed)))

    def after(self, deltas: Iterable[pl.DataFrame]) -> KeyRows:
        """The state after more epochs with these deltas, folded."""
        more = self.then(_latest(self.schema, deltas), self.layers[-1].closed)
        return more.fold(more.version)

    def fold(self, version: int) -> KeyRows:
        """The same state with fewer layers, without rows that had left at this version."""
        self._require(version)
        old = [each for each in self.layers if each.version <= version]
        closed = old[-1].closed

        def together(layers: Sequence[Layer], last: bool = False) -> Layer:  # noqa: FBT001, FBT002
            del last  # rows that are gone need no mark
            both = _over([each.rows for each in layers])
            if closed is not None:
                both = both.filter(pl.col(END) > closed)
            return Layer.of(version, both, closed)

        settled = [each for each in old if each.version <= self.base and each.height]
        for layer in old:
            if layer.version > self.base and layer.height:
                settled.append(layer)
                while len(settled) > 1 and _small(settled[-2], settled[-1]):
                    settled[-2:] = [together(settled[-2:])]
        settled = [each.without(closed) for each in settled]
        settled, saved = tidied(settled, self.saved, together)
        settled = settled or [Layer.of(version, pl.DataFrame(schema=self.schema))]
        settled = [replace(each, version=version) for each in settled]
        settled[-1] = replace(settled[-1], closed=closed)
        newer = tuple(each for each in self.layers if each.version > version)
        return replace(self, layers=(*settled, *newer), base=version, saved=saved)

    def only(self, slices: Slices) -> KeyRows:
        """The same state, of these slices alone."""
        return replace(self, layers=tuple(each.only(slices) for each in self.layers))

    def joined(self, other: KeyRows) -> KeyRows:
        """This state and one of other slices, both folded."""
        require_folded(self.version, self.oldest)
        require_folded(other.version, other.oldest)
        both = side_by_side(self.layers, other.layers)
        layers = [replace(each, version=self.version) for each in both]
        closed = earlier(self.layers[-1].closed, other.layers[-1].closed)
        layers[-1] = replace(layers[-1], closed=closed)
        return replace(self, layers=tuple(layers))

    def shelved(self, shelf: Shelf) -> KeyRows:
        """The same state, with the pieces that a shelf gave back."""
        return replace(self, layers=tuple(each.shelved(shelf) for each in self.layers))

    def whole(self, slices: Slices | None = None) -> pl.DataFrame:
        """All rows that still count, or those of some slices."""
        if slices is not None:
            return self.only(slices).whole()
        found = _over([each.rows for each in self.layers])
        if (closed := self.layers[-1].closed) is not None:
            found = found.filter(pl.col(END) > closed)
        return found.sort(SLICE, maintain_order=True)

    def find(self, hashes: Hashes) -> pl.DataFrame:
        """The rows of these hashes, each given once."""
        found, left = [pl.DataFrame(schema=self.schema)], hashes
        for layer in reversed(self.layers):
            known = layer.knows(left)
            if known.any():
                found.append(layer.rows_of(left[known]))
                left = left[~known]
            if not len(left):
                break
        return pl.concat(found)

    def ended(self, low: int | None, high: int, touched: Hashes) -> pl.DataFrame:
        """The rows that end behind `low` and at `high` or before, of keys not touched just now."""
        found, above = [pl.DataFrame(schema=self.schema)], list[Layer]()
        for layer in reversed(self.layers):
            places = layer.ended(low, high)
            if len(places):
                hashes = layer.hashes[places]
                stale = np.isin(hashes, touched)
                for newer in above:
                    stale |= newer.knows(hashes)
                found.append(layer.frame[places[~stale]])
            above.append(layer)
        return pl.concat(found)

    def _require(self, version: int) -> None:
        if not self.base <= version <= self.version:
            message = f"no state at version {version}: {self.base} to {self.version} are known"
            raise LookupError(message)


def hashed(frame: pl.DataFrame, columns: Sequence[str]) -> Hashes:
    """The hash of each row's key, in the form in which keys are compared."""
    return key_hash(frame, columns)


def ranges(begins: Places, counts: Places) -> Places:
    """Numbers from each begin on, so many each.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    total = int(counts.sum())
    offsets = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(begins, counts) + offsets


def _latest(schema: pl.Schema, deltas: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """What deltas say of their keys, in the end."""
    every = pl.concat([pl.DataFrame(schema=schema), *(x.select(list(schema)) for x in deltas)])
    # Rows say when they were true: a frame may be several epochs' deltas.
    return every.filter(pl.col(EPOCH) == pl.col(EPOCH).max().over(HASH))


def _small(older: Layer, newer: Layer) -> bool:
    return older.height <= 2 * newer.height


def _over(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows of all, newer ones in place of older ones of the same hash."""
    found, *newer = frames
    for frame in newer:
        if found.height and frame.height:
            stale = np.isin(found[HASH].to_numpy(), frame[HASH].to_numpy())
            found = pl.concat([found.filter(~pl.Series(stale)), frame])
        elif frame.height:
            found = frame
    return found
