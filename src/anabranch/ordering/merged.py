"""What leaves a merger: parts of runs, and the order of their rows. Rows are not touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anabranch.ordering.run import BEFORE, Numbers, Run


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A part of a run that leaves, and the channel it came on."""

    channel: int
    run: Run


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows `start` to `stop` of one piece's bundle, which stand together in the output."""

    channel: int
    rows: object
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Pieces whose rows, one piece behind the other, then taken by `order`, are the output.

    Without `order` they are in order as they stand, so a bundle is made by one concatenation, or
    by one and a gather. `pulse` is set by mergers between regions alone.
    """

    pieces: tuple[Piece, ...] = ()
    order: Numbers | None = None
    pulse: int = BEFORE

    def __len__(self) -> int:
        return sum(len(piece.run) for piece in self.pieces)

    @property
    def numbers(self) -> Numbers:
        """The rows' sequence numbers in order."""
        if not self.pieces:
            return np.empty(0, dtype=np.int64)
        numbers = np.concatenate([piece.run.numbered for piece in self.pieces])
        return numbers if self.order is None else numbers[self.order]

    def segments(self) -> tuple[Segment, ...]:
        """The output in order, as few parts of bundles as can be."""
        if self.order is None:
            return tuple(_segment(piece, 0, len(piece.run)) for piece in self.pieces)
        bounds = np.cumsum([0, *(len(piece.run) for piece in self.pieces)])
        owners = np.searchsorted(bounds, self.order, side="right") - 1
        breaks = (np.diff(self.order) != 1) | (np.diff(owners) != 0)
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(self.order)]
        return tuple(
            _segment(
                self.pieces[owner := int(owners[start])],
                at := int(self.order[start] - bounds[owner]),
                at + stop - start,
            )
            for start, stop in pairwise(edges)
        )

    def as_run(self, rows: object) -> Run:
        """The run of the rows that were gathered, for what comes behind a merger in a shuffle."""
        return Run(rows, 0, len(self), self.numbers, self.pulse)


NOTHING = Merged()


def numbered(pieces: Sequence[Piece]) -> Merged:
    """The pieces in the order of their numbers; of one channel they are given as they came."""
    if len(pieces) == 1:
        return Merged((pieces[0],))
    spans = [(piece.run.first, piece.run.last) for piece in pieces]
    return in_order(pieces, spans, lambda: [piece.run.numbered for piece in pieces])


def in_order(
    pieces: Sequence[Piece],
    spans: Sequence[tuple[int, int]],
    numbers: Callable[[], list[Numbers]],
) -> Merged:
    """Merge sorted pieces; `spans` has the first and last number of each.

    Rows are compared only where pieces overlap. The sort is stable and finds ascending parts, so it
    merges; rows of one number are of one channel and stay in their order.
    """
    ranked = sorted(range(len(pieces)), key=lambda at: spans[at])
    if all(spans[one][1] <= spans[other][0] for one, other in pairwise(ranked)):
        return Merged(tuple(pieces[at] for at in ranked))
    return Merged(tuple(pieces), np.argsort(np.concatenate(numbers()), kind="stable"))


def _segment(piece: Piece, start: int, stop: int) -> Segment:
    run = piece.run
    return Segment(piece.channel, run.rows, run.start + start, run.start + stop)
