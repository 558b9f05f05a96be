"""The state of tumbling and sliding windows: partials of panes, sorted by start.

Partials of many keys that stay idle must not be added up again and again: committed ones are in
layers, each more than twice as large as the next, and a layer is added to the one below it only
when it has grown. Where many values of a key are kept whole several layers of one size may stand
side by side (`layout`). Panes that have left are cut off at the front of a layer when it is folded.

Nobody waits while much is added up. Layers of more than `SMALL` rows stay as they are until they
are half as many rows as all below them. Then a *sweep* begins: slices are divided into classes, and
each fold takes the next few, adds up what all layers have of them, and makes it a layer of its own,
a *shard*. When the sweep is over there are nothing but shards, and what came meanwhile. Where
hardly two partials were of one pane and key the next one waits until far more has come: of a
million keys most come once before their windows end, and what does not add up is no smaller then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import polars as pl

from anabranch.kernels.layers import (
    Slices,
    alike,
    counting,
    earlier,
    mine,
    narrowed,
    require_folded,
    side_by_side,
    tidied,
)
from anabranch.kernels.shelf import Shelf
from anabranch.kernels.windows.layout import Layout
from anabranch.kernels.windows.panes import START
from anabranch.kernels.windows.windows import SLICE, Windows

SMALL = 2**15
"""Rows that are added up at once: 1,000,000 with six aggregates take 1.3 to 2 s, these 50 ms."""
SHARD = 2**13
"""Rows of a shard, about, where there are slices enough; more where more comes at once."""
PACE = 4
"""Rows that a sweep takes for each that comes in: then what comes meanwhile is a quarter of all."""
WORTH = 0.75
"""A sweep that leaves a greater part of the rows than this has gained little."""
PATIENCE, MOST_PATIENCE = 2, 2**22
"""Behind such a one rows may come for each that it left, and at most so many, before the next. What
waits is in layers of their own, and each costs every fold some microseconds."""


@dataclass(frozen=True, slots=True)
class Class:
    """The slices with one remainder; `of` is a power of two, so that classes nest or are apart."""

    of: int
    at: int

    def has(self, other: Class) -> bool:
        """Whether all slices of another class are in this one."""
        return other.of >= self.of and other.at % self.of == self.at

    def meets(self, other: Class) -> bool:
        """Whether there is a slice in both."""
        return self.has(other) or other.has(self)


@dataclass(frozen=True, slots=True)
class Sweep:
    """How far all layers that there were are made shards."""

    next: Class
    slices: int
    """All are below this number."""
    taken: int = 0
    made: int = 0
    """Rows that were added up, and what they added up to."""

    @classmethod
    def of(cls, layers: Sequence[Layer], size: int) -> Sweep:
        """The one that begins: as many classes as make shards of about this size, of all slices.

        Layers hold at least one row.
        """
        slices = 1 + max(int(each.frame[SLICE].to_numpy().max()) for each in layers)
        rows, count = sum(each.height for each in layers), 1
        while count < slices and rows > count * size:
            count *= 2
        return cls(Class(count, 0), slices)

    @property
    def left(self) -> Slices:
        """The slices that are behind the next class."""
        return _left(self.next.of, self.next.at, self.slices)

    def then(self) -> Sweep | None:
        """The sweep behind the next class; None: it is over."""
        if self.next.at + 1 == self.next.of:
            return None
        return replace(self, next=replace(self.next, at=self.next.at + 1))

    def counted(self, taken: int, made: int) -> Sweep:
        """The same, that so many rows have been added up to so many."""
        return replace(self, taken=self.taken + taken, made=self.made + made)

    @property
    def patience(self) -> int:
        """How many rows may come behind it before there is another."""
        if self.made <= WORTH * self.taken:
            return 0
        return min(PATIENCE * self.made, MOST_PATIENCE)


@lru_cache(maxsize=256)
def _left(of: int, at: int, slices: int) -> Slices:
    return frozenset(each for each in range(slices) if each % of > at)


@dataclass(frozen=True, slots=True)
class Layer:
    """Partials that came into the state together, sorted by start."""

    version: int
    made: pl.DataFrame
    """All of them, also the first ones, which may have been cut off since."""
    closed: int | None = None
    """At this version panes that start here or before count no longer."""
    layout: Layout = Layout.COPIES
    """Whether it may stand beside others of its size."""
    added: bool = True
    """Whether there is one partial a pane and key, or several that are still to be added up."""
    settled: bool = False
    """Whether a fold has put it in its place."""
    slices: Slices | None = None
    """The slices that count of it; None: all."""
    cut: int = 0
    """How many of the first partials are cut off."""
    shard: Class | None = None
    """The class that all its slices are of, if it was made by a sweep."""
    swept: bool = False
    """Whether a sweep under way takes it."""

    @property
    def frame(self) -> pl.DataFrame:
        """The partials that are not cut off."""
        return self.made.slice(self.cut) if self.cut else self.made

    @property
    def height(self) -> int:
        """How many partials it has, whether they count or not."""
        return self.made.height - self.cut

    @property
    def divided(self) -> bool:
        """Whether some may be of slices that count no longer."""
        return self.slices is not None

    def alone(self) -> Layer:
        """The same without those."""
        return self._of(mine(self.frame, self.slices))

    def without(self, closed: int | None) -> Layer:
        """The same without panes that start at `closed` or before.

        Their memory goes when they are many.
        """
        frame = self.frame
        if closed is None or not frame.height or frame[START][0] > closed:
            return self
        gone = int(frame[START].search_sorted(closed, side="right"))
        if 2 * (self.cut + gone) < self.made.height:
            return replace(self, cut=self.cut + gone)
        return replace(self, made=_copied(frame.slice(gone)), cut=0)

    def only(self, slices: Slices) -> Layer:
        """The same, of which these slices alone count."""
        found = narrowed(self.slices, slices)
        if self.shard is not None:
            found = frozenset(each for each in found if each % self.shard.of == self.shard.at)
        if found:
            return replace(self, slices=found)
        return self._of(self.made.clear())

    def of_class(self, wanted: Class) -> pl.DataFrame:
        """The partials of a class that count."""
        frame = self.frame
        if self.shard is not None and wanted.has(self.shard):
            return mine(frame, self.slices)
        if self.shard is not None and not wanted.meets(self.shard):
            return frame.clear()
        flags = (frame[SLICE].to_numpy() & (wanted.of - 1)) == wanted.at
        if self.slices is not None:
            flags &= counting(self.slices, frame[SLICE])
        return frame.filter(pl.Series(flags))

    def behind(self, sweep: Sweep) -> Layer | None:
        """What is left of it behind the next class of a sweep; None: nothing."""
        if self.shard is not None and sweep.next.has(self.shard):
            return None
        found = self.only(sweep.left)
        return found if found.height else None

    def shelved(self, shelf: Shelf) -> Layer:
        """The same, with the pieces that a shelf gave back."""
        return replace(self, made=shelf.frame(self.made))

    def summed(self, frame: pl.DataFrame) -> Layer:
        """The same with other partials, one a pane and key, all of which count."""
        return replace(self._of(frame), added=True)

    @property
    def kept(self) -> bool:
        """Whether a sweep has made it, or will take it: it is not added to others before."""
        return self.swept or self.shard is not None

    def free(self) -> Layer:
        """The same, as if there were no sweeps."""
        return replace(self, shard=None, swept=False) if self.kept else self

    def _of(self, frame: pl.DataFrame) -> Layer:
        return replace(self, made=frame, cut=0, slices=None)


@dataclass(frozen=True, slots=True)
class PaneState:
    """Partials of panes that may still count, in the order in which they are added."""

    windows: Windows
    layers: tuple[Layer, ...]
    base: int = 0
    """The version up to which layers are committed."""
    saved: int = 0
    """So many rows may be copied to tidy layers, at a fold."""
    sweep: Sweep | None = None
    """The one that is under way."""
    patience: int = 0
    """Fewer rows than that are not worth another one."""

    @classmethod
    def from_deltas(
        cls, windows: Windows, deltas: Iterable[pl.DataFrame], version: int = 0
    ) -> PaneState:
        """The state after epochs with these deltas, in order."""
        layer = Layer(version, windows.merged(list(deltas)), settled=True)
        return cls(windows, (layer,), version)

    @property
    def version(self) -> int:
        """How many epochs it is made of."""
        return self.layers[-1].version

    @property
    def oldest(self) -> int:
        """The base's version."""
        return self.base

    def at(self, version: int) -> PaneState:
        """The state at an earlier version."""
        self._require(version)
        return replace(self, layers=tuple(x for x in self.layers if x.version <= version))

    def then(self, delta: pl.DataFrame, closed: int | None, *, added: bool = True) -> PaneState:
        """The state after one more epoch, with partials sorted by start."""
        layer = Layer(self.version + 1, delta, closed, self.windows.layout(delta), added)
        return replace(self, layers=(*self.layers, layer))

    def together(self, since: int) -> tuple[PaneState, pl.DataFrame]:
        """The same state with all that came after a version in one layer; and that as a delta.

        Chunks stay what they are, and the delta has them one behind the other.
        """
        self._require(since)
        closed = self.layers[-1].closed
        recent = [each.without(closed) for each in self.layers if each.version > since]
        older = tuple(each for each in self.layers if each.version <= since)
        if not recent:
            return self, pl.DataFrame(schema=self.windows.partial_schema)
        if any(each.layout is not Layout.COPIES for each in recent):
            frames = [self._added(each.alone()).frame for each in recent]
            return replace(self, base=self.version), pl.concat(frames)
        layer = recent[-1].summed(self._sum(recent))
        return replace(self, layers=(*older, layer), base=self.version), layer.frame

    def after(self, deltas: Iterable[pl.DataFrame]) -> PaneState:
        """The state after more epochs with these deltas, folded."""
        more = self.then(self.windows.merged(list(deltas)), self.layers[-1].closed)
        return more.fold(more.version)

    def fold(self, version: int) -> PaneState:
        """The same state with fewer layers, without the panes that had left at this version."""
        self._require(version)
        old = [each for each in self.layers if each.version <= version]
        closed = old[-1].closed
        kept = [each.without(closed) for each in old]
        full = [each for each in kept if each.height]
        if all(each.layout is Layout.COPIES for each in full):
            at = max((at for at, each in enumerate(full, 1) if each.kept), default=0)
            loose = [each for each in self._settled(full[at:], SMALL) if each.height]
            settled, sweep, patience = self._swept([*full[:at], *loose], kept[-1].height)
            saved = 0
        else:
            grouped = self._settled([each.free() for each in full])
            settled, saved = tidied(
                grouped, self.saved, self._together, lambda layer: layer.layout.value
            )
            sweep, patience = None, 0
        settled = settled or [kept[-1].free()]
        layers = [replace(each, version=version, settled=True) for each in settled]
        layers[-1] = replace(layers[-1], closed=closed)
        newer = tuple(each for each in self.layers if each.version > version)
        return replace(
            self, layers=(*layers, *newer), base=version, saved=saved, sweep=sweep,
            patience=patience,
        )  # fmt: skip

    def only(self, slices: Slices) -> PaneState:
        """The same state, of these slices alone."""
        return replace(self, layers=tuple(each.only(slices) for each in self.layers))

    def joined(self, other: PaneState) -> PaneState:
        """This state and one of other slices, both folded."""
        require_folded(self.version, self.oldest)
        require_folded(other.version, other.oldest)
        both = side_by_side(self.layers, other.layers)
        layers = [replace(each, version=self.version, swept=False) for each in both]
        closed = earlier(self.layers[-1].closed, other.layers[-1].closed)
        layers[-1] = replace(layers[-1], closed=closed)
        return replace(self, layers=tuple(layers), sweep=None)

    def shelved(self, shelf: Shelf) -> PaneState:
        """The same state, with the pieces that a shelf gave back."""
        return replace(self, layers=tuple(each.shelved(shelf) for each in self.layers))

    def _settled(self, layers: Sequence[Layer], most: float = float("inf")) -> list[Layer]:
        """The same partials, where too many layers are of one size in one layer.

        First it is settled which belong together, then they are added up, all at once: to add the
        layers of many epochs one by one to those before them takes two to three times as long.
        Added up they may be fewer; then a later fold takes them together with those behind them.
        No layer of more than `most` rows comes of it.
        """
        groups = list[tuple[Layer, ...]]()
        for layer in layers:
            groups.append((layer,))
            while not layer.settled and (count := _alike(groups)) > layer.layout.value:
                group = tuple(each for group in groups[-count:] for each in group)
                if _rows(group) > most:
                    break
                groups[-count:] = [group]
        return [self._together(group) for group in groups]

    def _swept(self, layers: list[Layer], came: int) -> tuple[list[Layer], Sweep | None, int]:
        """The same partials, some more of them in shards; the sweep under way, and the patience.

        `came` rows are new: the more come, the more are swept.
        """
        sweep, patience, room = self.sweep, self.patience, max(SHARD, PACE * came)
        if sweep is None:
            if not _worn(layers, patience):
                return layers, None, patience
            layers, sweep = [replace(each, swept=True) for each in layers], Sweep.of(layers, room)
        while sweep is not None and room > 0:
            parts = [each.of_class(sweep.next) for each in layers if each.swept]
            shards, rows = self._shards(parts, sweep.next), sum(part.height for part in parts)
            room -= max(1, rows)
            layers = [*shards, *_behind(layers, sweep)]
            sweep = sweep.counted(rows, _rows(shards))
            patience = sweep.patience
            sweep = sweep.then()
        return layers, sweep, patience

    def _shards(self, parts: Sequence[pl.DataFrame], made: Class) -> list[Layer]:
        """The shard that is made of these partials, if there are any."""
        full = [part for part in parts if part.height]
        if not full:
            return []
        version = self.layers[-1].version
        return [Layer(version, self.windows.merged(full), settled=True, shard=made)]

    def _together(self, group: Sequence[Layer], last: bool = False) -> Layer:  # noqa: FBT001, FBT002
        del last  # partials hide nothing that is below them
        if len(group) == 1:
            # A large one is added up with others: by a sweep, or when its windows end.
            return group[0] if group[0].height > SMALL else self._added(group[0])
        return group[-1].summed(self._sum(group))

    def _added(self, layer: Layer) -> Layer:
        return layer if layer.added else layer.summed(self._sum([layer]))

    def _sum(self, layers: Sequence[Layer]) -> pl.DataFrame:
        return self.windows.merged([mine(each.frame, each.slices) for each in layers])

    def whole(self, slices: Slices | None = None) -> pl.DataFrame:
        """All partials that still count, or those of some slices."""
        if slices is not None:
            return self.only(slices).whole()
        closed = self.layers[-1].closed
        found = self._sum([each.without(closed) for each in self.layers])
        return found.sort(SLICE, maintain_order=True)

    def between(self, low: int, high: int, *, added: bool = True) -> list[pl.DataFrame]:
        """The partials of panes that start from `low` to `high`, layer by layer.

        Each is added up: there is one partial a pane and key, unless nobody needs that.
        """
        found = []
        for layer in self.layers:
            starts = layer.frame[START]
            begin = int(starts.search_sorted(low, side="left"))
            end = int(starts.search_sorted(high, side="right"))
            if end > begin:
                part = mine(layer.frame.slice(begin, end - begin), layer.slices)
                whole = layer.added or not added
                found.append(part if whole else self.windows.merged([part]))
        return [part for part in found if part.height]

    def _require(self, version: int) -> None:
        if not self.base <= version <= self.version:
            message = f"no state at version {version}: {self.base} to {self.version} are known"
            raise LookupError(message)


def _alike(groups: Sequence[Sequence[Layer]]) -> int:
    """How many of the last groups are of one size, before they are one."""
    return alike([_rows(group) for group in groups])


def _rows(layers: Iterable[Layer]) -> int:
    return sum(each.height for each in layers)


def _worn(layers: Sequence[Layer], patience: int) -> bool:
    """Whether there is enough to add up, or to forget, for a sweep to begin."""
    if not layers:
        return False
    shards = _rows(each for each in layers if each.shard is not None)
    loose = _rows(layers) - shards
    return loose > max(SMALL, shards // 2, patience) or any(each.divided for each in layers)


def _behind(layers: Sequence[Layer], sweep: Sweep) -> list[Layer]:
    """The layers behind the next class of a sweep: what it has still to take is less."""
    found = [each.behind(sweep) if each.swept else each for each in layers]
    return [each for each in found if each is not None]


def _copied(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows in memory of their own."""
    return frame.select(pl.all().gather(pl.arange(pl.len())))
