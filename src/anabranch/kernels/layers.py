"""State in layers when slices come and go: nothing is copied then, but later, a little at a time.

A layer never changes. Where slices leave a state, its layers are told which ones still count, and
whoever looks at a few of their rows leaves out the others. Where slices come in, the layers that
hold them are put beside those that are there. A slice counts in a layer for good or not at all: one
that leaves and comes back does so in other layers, and what is left of it in older ones stays
hidden. So a state may have layers with rows that count no longer, and more layers than it would
have made by itself. Folds put that right: each saves up for the layers that can be tidied at the
least cost, so the first ones after a switch take no longer than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.shelf import Shelf
from anabranch.state.slices import MOST_SLICES

Slices: TypeAlias = frozenset[int]
Flags: TypeAlias = npt.NDArray[np.bool_]

STEP = 2**14
"""So many rows each fold may tidy, or save up for: a layer of 5,000,000 waits for 300 folds."""
LARGE = 2**18
"""Layers of more rows than this stand beside others of their size: to put two of 1,500,000 cells
together takes 2.7 s, and all that is gained is a search less."""
FEW = 8
"""But only where there are not more layers than this."""
MOST = 24
"""With more layers than this some are put together at once: every one costs every epoch a search.
By themselves layers would be as many for a state of 16,000,000 rows."""


def require_folded(version: int, oldest: int) -> None:
    """Refuse to join states of which earlier versions may be asked for."""
    if oldest != version:
        message = f"states are joined when they are folded: versions {oldest} to {version} are open"
        raise ValueError(message)


def earlier(one: int | None, other: int | None) -> int | None:
    """Of two bounds behind which rows count, the one that lets none go that may count.

    Two states of one epoch have passed the same watermarks, but one that was restored may not know.
    The next epoch tells.
    """
    return None if one is None or other is None else min(one, other)


def narrowed(known: Slices | None, to: Slices) -> Slices:
    """The slices of a layer that still count, of which None are all."""
    return to if known is None else known & to


def counting(slices: Slices, column: pl.Series) -> Flags:
    """Which rows are of these slices."""
    found: Flags = _table(slices)[column.to_numpy()]
    return found


def mine(rows: pl.DataFrame, slices: Slices | None, column: str = "slice") -> pl.DataFrame:
    """The rows that are of these slices; None: all are."""
    if slices is None or not rows.height:
        return rows
    return rows.filter(pl.Series(counting(slices, rows[column])))


@lru_cache(maxsize=64)
def _table(slices: Slices) -> Flags:
    found = np.zeros(MOST_SLICES, dtype=bool)
    found[list(slices)] = True
    return found


class Piece(Protocol):
    """What layers are made of here."""

    @property
    def height(self) -> int:
        """How many rows it has, whether they count or not."""

    @property
    def divided(self) -> bool:
        """Whether some of them may be of slices that count no longer."""

    def alone(self) -> Self:
        """The same without those."""

    def shelved(self, shelf: Shelf) -> Self:
        """The same, with the pieces that a shelf gave back."""


_Piece = TypeVar("_Piece", bound=Piece)


def side_by_side(one: Sequence[_Piece], other: Sequence[_Piece]) -> list[_Piece]:
    """The layers of two states, of slices that are not the same, the larger first.

    Those of one state stay in their order, which is all that matters: what is said of a key is in
    layers of one of the two.
    """
    found, left, right = list[_Piece](), list(one), list(other)
    while left and right:
        found.append((left if left[0].height >= right[0].height else right).pop(0))
    return [*found, *left, *right]


def alike(sizes: Sequence[int]) -> int:
    """How many of the last layers are at most twice as large as the last one.

    >>> alike([9, 2, 4, 2])
    3
    """
    larger = (at for at, size in enumerate(reversed(sizes[:-1]), 1) if size > 2 * sizes[-1])
    return next(larger, len(sizes))


def tidied(
    layers: Sequence[_Piece],
    saved: int,
    together: Callable[[Sequence[_Piece], bool], _Piece],
    room: Callable[[_Piece], int] = lambda _: 1,
) -> tuple[list[_Piece], int]:
    """Layers with less that is hidden, and fewer of a size; and what is saved up for the rest.

    `together` makes one layer of several, and is told whether none is below them; `room` is how
    many layers of its size may stand beside one.
    """
    found, saved = list(layers), saved + STEP
    while (group := _cheapest(found, room)) is not None:
        cost = sum(each.height for each in found[group])
        if cost > saved and len(found) <= MOST:
            return found, saved
        saved = max(0, saved - cost)
        some = found[group]
        found[group] = [some[0].alone() if len(some) == 1 else together(some, group.start == 0)]
    return found, 0


def _cheapest(layers: Sequence[_Piece], room: Callable[[_Piece], int]) -> slice | None:
    """The layers of fewest rows that are better rewritten, alone or as one."""
    sizes = [each.height for each in layers]
    groups = [slice(at, at + 1) for at, each in enumerate(layers) if each.divided]
    for end, each in enumerate(layers, 1):
        count = alike(sizes[:end])
        large = sum(sizes[end - count : end]) > LARGE and len(layers) <= FEW
        if count > room(each) and not large:
            groups.append(slice(end - count, end))
    return min(groups, key=lambda group: sum(sizes[group.start : group.stop]), default=None)
