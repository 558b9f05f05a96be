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

from anabranch.kernels.windows.layout import Layout
from anabranch.kernels.windows.panes import START
from anabranch.kernels.windows.windows import SLICE, Windows


@dataclass(frozen=True, slots=True)
class Layer:
    """Partials that came into the state together, sorted by start."""

    version: int
    frame: pl.DataFrame
    closed: int | None = None
    """At this version panes that start here or before count no longer."""
    layout: Layout = Layout.COPIES
    """Whether it may stand beside others of its size."""
    added: bool = True
    """Whether there is one partial a pane and key, or several that are still to be added up."""


@dataclass(frozen=True, slots=True)
class PaneState:
    """Partials of panes that may still count, in the order in which they are added."""

    windows: Windows
    layers: tuple[Layer, ...]
    base: int = 0
    """The version up to which layers are committed."""

    @classmethod
    def from_deltas(
        cls, windows: Windows, deltas: Iterable[pl.DataFrame], version: int = 0
    ) -> PaneState:
        """The state after epochs with these deltas, in order."""
        return cls(windows, (Layer(version, windows.merged(list(deltas))),), version)

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
        recent = [
            replace(each, frame=_without(each.frame, closed))
            for each in self.layers
            if each.version > since
        ]
        older = tuple(each for each in self.layers if each.version <= since)
        if not recent:
            return self, pl.DataFrame(schema=self.windows.partial_schema)
        if any(each.layout is not Layout.COPIES for each in recent):
            frames = [self._added(each).frame for each in recent]
            return replace(self, base=self.version), pl.concat(frames)
        layer = replace(recent[-1], frame=self._sum(recent), added=True)
        return replace(self, layers=(*older, layer), base=self.version), layer.frame

    def fold(self, version: int) -> PaneState:
        """The same state with fewer layers, without the panes that had left at this version."""
        self._require(version)
        old = [each for each in self.layers if each.version <= version]
        closed = old[-1].closed
        kept = [replace(each, frame=_without(each.frame, closed)) for each in old]
        settled = self._settled([*(each for each in kept[:-1] if each.frame.height), kept[-1]])
        settled[-1] = replace(settled[-1], version=version, closed=closed)
        newer = tuple(each for each in self.layers if each.version > version)
        return replace(self, layers=(*settled, *newer), base=version)

    def _settled(self, layers: Sequence[Layer]) -> list[Layer]:
        """The same partials, where too many layers are of one size in one layer.

        First it is settled which belong together, then they are added up, all at once: to add the
        layers of many epochs one by one to those before them takes two to three times as long.
        """
        groups = list[tuple[Layer, ...]]()
        for layer in layers:
            groups.append((layer,))
            while (count := _alike(groups)) > layer.layout.value:
                groups[-count:] = [tuple(each for group in groups[-count:] for each in group)]
        return [self._together(group) for group in groups]

    def _together(self, group: Sequence[Layer]) -> Layer:
        if len(group) == 1:
            return self._added(group[0])
        return replace(group[-1], frame=self._sum(group), added=True)

    def _added(self, layer: Layer) -> Layer:
        return layer if layer.added else replace(layer, frame=self._sum([layer]), added=True)

    def _sum(self, layers: Sequence[Layer]) -> pl.DataFrame:
        return self.windows.merged([each.frame for each in layers])

    def whole(self) -> pl.DataFrame:
        """All partials that still count."""
        closed = self.layers[-1].closed
        frames = [_without(each.frame, closed) for each in self.layers]
        return self.windows.merged(frames).sort(SLICE, maintain_order=True)

    def between(self, low: int, high: int) -> list[pl.DataFrame]:
        """The partials of panes that start from `low` to `high`, layer by layer, each added up."""
        found = []
        for layer in self.layers:
            starts = layer.frame[START]
            begin = int(starts.search_sorted(low, side="left"))
            end = int(starts.search_sorted(high, side="right"))
            if end > begin:
                part = layer.frame.slice(begin, end - begin)
                found.append(part if layer.added else self.windows.merged([part]))
        return found

    def _require(self, version: int) -> None:
        if not self.base <= version <= self.version:
            message = f"no state at version {version}: {self.base} to {self.version} are known"
            raise LookupError(message)


def _alike(groups: Sequence[Sequence[Layer]]) -> int:
    """How many of the last groups are at most twice as large as the last one, before they are one.

    Added up a group may be smaller; then the next fold takes it together with those behind it.
    """
    sizes = [sum(each.frame.height for each in group) for group in groups]
    larger = (at for at, size in enumerate(reversed(sizes[:-1]), 1) if size > 2 * sizes[-1])
    return next(larger, len(groups))


def _without(frame: pl.DataFrame, closed: int | None) -> pl.DataFrame:
    """Partials of panes that start behind `closed`; the others' memory goes when they are many."""
    if closed is None or not frame.height or frame[START][0] > closed:
        return frame
    begin = int(frame[START].search_sorted(closed, side="right"))
    kept = frame.slice(begin)
    return kept if 2 * kept.height > frame.height else _copied(kept)


def _copied(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows in memory of their own."""
    return frame.select(pl.all().gather(pl.arange(pl.len())))
