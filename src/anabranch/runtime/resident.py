"""What of a lane's state is to be on disk, so that the rest fits into the memory it may have.

Layers of state are each more than twice as large as the next. The larger one is, the longer ago it
was made and the longer it stays: the largest are the coldest, and few of them are most of it. So
the largest go first. They go when there is too much, and so many of them that a part of the memory
is free again: the small layers, which are made anew with every epoch, then come and go in that part
and nothing is written for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHARE = 0.4
"""Of a machine's memory, for the state of all its lanes; the JVM, rows and work need the rest."""
DECODED = 0.25
"""Of a lane's, for what is decoded: it can be made again of the rest."""
_FREE = 0.25
"""Of a lane's, that is free when some of its state has gone to disk."""
_LEAST = 1 << 16
"""Pieces with fewer bytes stay where they are: they are no more than a few for each layer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A frame or an array of a state."""

    number: int
    size: int
    """Bytes."""
    on_disk: bool = False
    fixed: bool = False
    """Whether it cannot be put there."""


def to_disk(pieces: Sequence[Piece], memory: int) -> tuple[int, ...]:
    """The numbers of the pieces that are to go to disk, where a state may have so much in memory.

    >>> sizes = {1: 500, 2: 4_000, 3: 900, 4: 2_000}
    >>> pieces = [Piece(number, size) for number, size in sizes.items()]
    >>> to_disk(pieces, 8_000), to_disk(pieces, 7_000), to_disk(pieces, 2_000)
    ((), (2,), (2, 4))
    """
    least = min(_LEAST, memory // 64)
    here = [piece for piece in pieces if not piece.on_disk]
    resident = sum(piece.size for piece in here)
    if resident <= memory:
        return ()
    found = []
    for piece in sorted(here, key=lambda each: each.size, reverse=True):
        if resident <= (1 - _FREE) * memory:
            break
        if not piece.fixed and piece.size > least:
            found.append(piece.number)
            resident -= piece.size
    return tuple(found)


def share_of(machine: int, lanes: int, cores: int) -> int:
    """The bytes of state that a lane may have in memory, where nobody says how many.

    More lanes than a machine has cores are on several machines.

    >>> share_of(16 << 30, lanes=2, cores=8) == (16 << 30) // 5
    True
    """
    return int(SHARE * machine) // max(1, min(lanes, cores))
