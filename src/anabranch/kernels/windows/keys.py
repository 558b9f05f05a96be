"""State by key as frames: what an epoch says of a key replaces all that was said of it before.

Rows are found by a hash of their key. Two keys with one hash are taken together: whoever asks for
one gets both, and writes both again. Layers are sorted by hash, each more than twice as large as
the next, so a key costs a few bisections and idle keys cost nothing.

Where rows have an `end`, one that has passed the watermark counts no longer, and nobody says so: a
row that replaces others lasts at least as long as they do. So rows that are gone need no mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

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

    @classmethod
    def of(cls, version: int, frame: pl.DataFrame, closed: int | None = None) -> Layer:
        """Index rows."""
        frame = frame.sort(HASH, maintain_order=True)
        if END not in frame.columns:
            return cls(version, frame, frame[HASH].to_numpy(), None, None, closed)
        ends = frame[END].to_numpy()
        order = np.argsort(ends, kind="stable")
        return cls(version, frame, frame[HASH].to_numpy(), order, ends[order], closed)

    def knows(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of these hashes it has."""
        if not len(self.hashes):
            return np.zeros(len(hashes), dtype=bool)
        at = np.searchsorted(self.hashes, hashes)
        return np.asarray(self.hashes[np.minimum(at, len(self.hashes) - 1)] == hashes)

    def rows_of(self, hashes: Hashes) -> pl.DataFrame:
        """All rows with these hashes."""
        begin = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - begin
        return self.frame[ranges(begin, counts)]

    def ended(self, low: int | None, high: int) -> Places:
        """The rows that end behind `low` and at `high` or before."""
        if self.ends is None or self.by_end is None:
            return np.empty(0, dtype=np.int64)
        begin = 0 if low is None else int(np.searchsorted(self.ends, low, side="right"))
        return self.by_end[begin : int(np.searchsorted(self.ends, high, side="right"))]

    def without(self, closed: int | None) -> Layer:
        """Without rows that have left, if they are most of it."""
        if closed is None or 2 * len(self.ended(None, closed)) <= self.frame.height:
            return self
        return Layer.of(self.version, self.frame.filter(pl.col(END) > closed), closed)


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows by key, in layers, the later the truer."""

    schema: pl.Schema
    layers: tuple[Layer, ...]
    base: int = 0
    """The version up to which layers are committed."""

    @classmethod
    def from_deltas(
        cls, schema: pl.Schema, deltas: Iterable[pl.DataFrame], version: int = 0
    ) -> KeyRows:
        """The state after epochs with these deltas, in order."""
        every = pl.concat([pl.DataFrame(schema=schema), *(x.select(list(schema)) for x in deltas)])
        # Rows say when they were true: a frame may be several epochs' deltas.
        found = every.filter(pl.col(EPOCH) == pl.col(EPOCH).max().over(HASH))
        return cls(schema, (Layer.of(version, found),), version)

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

    def fold(self, version: int) -> KeyRows:
        """The same state with fewer layers, without rows that had left at this version."""
        self._require(version)
        old = [each for each in self.layers if each.version <= version]
        closed = old[-1].closed
        settled: list[Layer] = []
        for layer in old:
            settled.append(replace(layer, version=min(layer.version, version)))
            while len(settled) > 1 and _small(settled[-2], settled[-1]):
                both = _over(settled[-2].frame, settled[-1].frame)
                if closed is not None:
                    both = both.filter(pl.col(END) > closed)
                settled[-2:] = [Layer.of(settled[-1].version, both, closed)]
        settled = [each.without(closed) for each in settled]
        settled[-1] = replace(settled[-1], version=version, closed=closed)
        newer = tuple(each for each in self.layers if each.version > version)
        return replace(self, layers=(*settled, *newer), base=version)

    def whole(self) -> pl.DataFrame:
        """All rows that still count."""
        found = self.layers[0].frame
        for layer in self.layers[1:]:
            found = _over(found, layer.frame)
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


def _small(older: Layer, newer: Layer) -> bool:
    return older.frame.height <= 2 * newer.frame.height


def _over(older: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    """Rows of both, the newer ones in place of older ones of the same hash."""
    if not older.height or not newer.height:
        return newer if newer.height else older
    kept = older.filter(~pl.Series(np.isin(older[HASH].to_numpy(), newer[HASH].to_numpy())))
    return pl.concat([kept, newer])
