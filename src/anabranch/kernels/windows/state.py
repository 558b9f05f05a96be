"""The state of tumbling and sliding windows: partials of panes, sorted by start.

Partials of many keys that stay idle must not be added up again and again: committed ones are in
layers, each more than twice as large as the next, and a layer is added to the one below it only
when it has grown. Where many values of a key are kept whole several layers of one size may stand
side by side (`layout`). Panes that have left are cut off at the front of a layer when it is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from anabranch.kernels.layers import (
    Slices,
    alike,
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
        if found:
            return replace(self, slices=found)
        return self._of(self.made.clear())

    def shelved(self, shelf: Shelf) -> Layer:
        """The same, with the pieces that a shelf gave back."""
        return replace(self, made=shelf.frame(self.made))

    def summed(self, frame: pl.DataFrame) -> Layer:
        """The same with other partials, one a pane and key, all of which count."""
        return replace(self._of(frame), added=True)

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
        settled, saved = self._settled([each for each in kept if each.height])
        settled = settled or [kept[-1]]
        layers = [replace(each, version=version, settled=True) for each in settled]
        layers[-1] = replace(layers[-1], closed=closed)
        newer = tuple(each for each in self.layers if each.version > version)
        return replace(self, layers=(*layers, *newer), base=version, saved=saved)

    def only(self, slices: Slices) -> PaneState:
        """The same state, of these slices alone."""
        return replace(self, layers=tuple(each.only(slices) for each in self.layers))

    def joined(self, other: PaneState) -> PaneState:
        """This state and one of other slices, both folded."""
        require_folded(self.version, self.oldest)
        require_folded(other.version, other.oldest)
        both = side_by_side(self.layers, other.layers)
        layers = [replace(each, version=self.version) for each in both]
        closed = earlier(self.layers[-1].closed, other.layers[-1].closed)
        layers[-1] = replace(layers[-1], closed=closed)
        return replace(self, layers=tuple(layers))

    def shelved(self, shelf: Shelf) -> PaneState:
        """The same state, with the pieces that a shelf gave back."""
        return replace(self, layers=tuple(each.shelved(shelf) for each in self.layers))

    def _settled(self, layers: Sequence[Layer]) -> tuple[list[Layer], int]:
        """The same partials, where too many layers are of one size in one layer.

        First it is settled which belong together, then they are added up, all at once: to add the
        layers of many epochs one by one to those before them takes two to three times as long.
        Added up they may be fewer; then a later fold takes them together with those behind them.
        """
        groups = list[tuple[Layer, ...]]()
        for layer in layers:
            groups.append((layer,))
            while not layer.settled and (count := _alike(groups)) > layer.layout.value:
                groups[-count:] = [tuple(each for group in groups[-count:] for each in group)]
        found = [self._together(group) for group in groups]
        return tidied(found, self.saved, self._together, lambda layer: layer.layout.value)

    def _together(self, group: Sequence[Layer], last: bool = False) -> Layer:  # noqa: FBT001, FBT002
        del last  # partials hide nothing that is below them
        if len(group) == 1:
            return self._added(group[0])
        return group[-1].summed(self._sum(group))

    def _added(self, layer: Layer) -> Layer:
        if layer.added:
            return layer
        return layer.summed(self._sum([layer]))

    def _sum(self, layers: Sequence[Layer]) -> pl.DataFrame:
        return self.windows.merged([mine(each.frame, each.slices) for each in layers])

    def whole(self, slices: Slices | None = None) -> pl.DataFrame:
        """All partials that still count, or those of some slices."""
        if slices is not None:
            return self.only(slices).whole()
        closed = self.layers[-1].closed
        found = self._sum([each.without(closed) for each in self.layers])
        return found.sort(SLICE, maintain_order=True)

    def between(self, low: int, high: int) -> list[pl.DataFrame]:
        """The partials of panes that start from `low` to `high`, layer by layer, each added up."""
        found = []
        for layer in self.layers:
            starts = layer.frame[START]
            begin = int(starts.search_sorted(low, side="left"))
            end = int(starts.search_sorted(high, side="right"))
            if end > begin:
                part = mine(layer.frame.slice(begin, end - begin), layer.slices)
                found.append(part if layer.added else self.windows.merged([part]))
        return [part for part in found if part.height]

    def _require(self, version: int) -> None:
        if not self.base <= version <= self.version:
            message = f"no state at version {version}: {self.base} to {self.version} are known"
            raise LookupError(message)


def _alike(groups: Sequence[Sequence[Layer]]) -> int:
    """How many of the last groups are of one size, before they are one."""
    return alike([sum(each.height for each in group) for group in groups])


def _copied(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows in memory of their own."""
    return frame.select(pl.all().gather(pl.arange(pl.len())))
