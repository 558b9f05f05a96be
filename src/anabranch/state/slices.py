"""Slices: keys are divided by a hash that no version, machine or width changes.

A key's hash is a function of its values as M6 compares them, so equal keys are in one slice: -0.0
and 0.0, every NaN, null. It is part of the format of checkpoints: golden values hold it in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.errors import ProgramError
from anabranch.state.balance import balanced, rebalanced

_Words: TypeAlias = npt.NDArray[np.uint64]

MOST_SLICES = 2**16
FEWEST_SLICES = 128
"""Of those that are chosen: a query that begins on a laptop may go on elsewhere."""
SLICES_PER_CORE = 16
"""Of those that are chosen: at full width lanes then differ by a sixteenth at most."""
_NULL = np.uint64(0x9AE16A3B2F90404F)
_SEED = np.uint64(0x243F6A8885A308D3)
_LONGEST = 256
"""Longer texts are hashed one at a time: a vector as long as the longest would be mostly empty."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Which lane each slice is in.

    >>> Owners.spread(slices=4, lanes=2)
    Owners(slices=4, lanes=2, of=(0, 0, 1, 1))
    """

    slices: int
    lanes: int
    of: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse owners that leave a slice without a lane."""
        if not 1 <= self.slices <= MOST_SLICES or self.lanes < 1:
            message = f"{self.slices} slices in {self.lanes} lanes: at least one of each is needed"
            raise ProgramError(message, so=f"use 1 to {MOST_SLICES} slices")
        if len(self.of) != self.slices or not all(0 <= lane < self.lanes for lane in self.of):
            message = f"every one of {self.slices} slices needs one of {self.lanes} lanes"
            raise ProgramError(message, have=str(self.of))

    @classmethod
    def spread(cls, slices: int = 128, lanes: int = 1) -> Self:
        """Contiguous ranges of nearly equal length; more lanes than slices are refused."""
        _check_width(slices, lanes)
        return cls(slices, lanes, tuple(number * lanes // slices for number in range(slices)))

    def moved_to(
        self,
        lanes: int,
        costs: Sequence[float] | None = None,
        nodes: Mapping[int, str] | None = None,
    ) -> Owners:
        """The owners at another width, or at this one with the load balanced: few slices move.

        `costs` has a measured cost of each slice, in any unit; without them all are equal. Lanes
        that stay keep what they can. For equal costs lanes have numbers of slices that differ by at
        most one, and no fewer moves lead there. By costs: loads differ by no more than a slice
        where slices are small enough for that, and the hottest slices are in different lanes.
        `nodes` says where lanes are: slices of lanes that go stay on their node if it is as good.

        At the same width nothing moves as long as the greatest load is below `REBALANCE_ABOVE`
        times the mean, or moving would not lower it by much (`REBALANCE_GAIN`). To move twice with
        the same costs is to move once. More lanes than slices are refused.

        >>> Owners.spread(slices=6, lanes=2).moved_to(3).of
        (0, 0, 2, 1, 1, 2)
        >>> Owners.spread(slices=6, lanes=3).moved_to(2).of
        (0, 0, 1, 1, 0, 1)
        >>> Owners.spread(slices=6, lanes=2).moved_to(2, costs=[5, 5, 1, 1, 1, 1]).of
        (0, 1, 0, 1, 1, 0)
        """
        _check_width(self.slices, lanes)
        if lanes == self.lanes:
            of = rebalanced(self.of, lanes, costs)
            return self if of == self.of else Owners(self.slices, lanes, of)
        return Owners(self.slices, lanes, balanced(self.of, lanes, costs, nodes))

    def moves(self, before: Owners) -> Mapping[int, tuple[int, int]]:
        """The slices that were in another lane before, with the lanes they left and went to.

        >>> Owners.spread(slices=4, lanes=2).moves(Owners.spread(slices=4, lanes=1))
        {2: (0, 1), 3: (0, 1)}
        """
        if before.slices != self.slices:
            message = f"{before.slices} slices cannot become {self.slices}"
            raise ValueError(message)
        both = enumerate(zip(before.of, self.of, strict=True))
        return {number: (source, target) for number, (source, target) in both if source != target}

    def gained(self, before: Owners, lane: int) -> tuple[int, ...]:
        """The slices that a lane has and did not have before.

        >>> Owners.spread(slices=4, lanes=2).gained(Owners.spread(slices=4, lanes=1), 1)
        (2, 3)
        """
        found = self.moves(before).items()
        return tuple(number for number, (_, target) in found if target == lane)

    def lane_of(self, slices: pl.Series) -> pl.Series:
        """The lane of each of these slices."""
        return pl.Series(np.asarray(self.of, dtype=np.uint32)[slices.to_numpy()])

    def slices_of(self, lane: int) -> tuple[int, ...]:
        """The slices in a lane."""
        return tuple(number for number, owner in enumerate(self.of) if owner == lane)


def _check_width(slices: int, lanes: int) -> None:
    if lanes > slices:
        message = f"{lanes} lanes cannot share {slices} slices"
        raise ProgramError(message, so="take more slices or fewer lanes")
    if lanes < 1:
        message = f"{slices} slices need at least one lane, got {lanes}"
        raise ProgramError(message)


def slices_for(cores_per_node: Sequence[int], most: int = MOST_SLICES) -> int:
    """How many slices a query should have whose lanes may use these cores (`slices="auto"`).

    ChronoStream (III-F) takes one slice for each core of all nodes that may ever be provisioned,
    N_max, since more cost it something. Here slices are units of ownership and not of execution, so
    more of them cost little, and they are worth something: the load of n lanes can be evened out to
    n / slices, hot slices can be parted, and lanes may be more than cores. So it is the power of
    two, which makes finding a key's slice cheap, from `FEWEST_SLICES` and `SLICES_PER_CORE` for
    each core, but no more than `most`. The number holds for the life of a checkpoint. More cores
    than `most` slices are refused: lanes that have no slice have no work.

    >>> slices_for([2])
    128
    >>> slices_for([8, 8, 4])
    512
    >>> slices_for([64] * 16, most=4096)
    4096
    """
    lanes = sum(cores_per_node)
    if lanes < 1 or min(cores_per_node) < 0:
        message = f"nodes with {list(cores_per_node)} cores have no lanes to divide slices among"
        raise ProgramError(message, so="say how many cores each node has")
    if not 1 <= most <= MOST_SLICES or lanes > most:
        message = f"{lanes} lanes cannot share {most} slices"
        raise ProgramError(message, so=f"take fewer cores, or up to {MOST_SLICES} slices")
    wanted = max(FEWEST_SLICES, SLICES_PER_CORE * lanes)
    return min(1 << (wanted - 1).bit_length(), most)


def slice_of(frame: pl.DataFrame, columns: Sequence[str], slices: int) -> pl.Series:
    """The slice of each row's key, as UInt16; without columns all rows are in slice 0.

    >>> slice_of(pl.DataFrame({"k": [0.0, -0.0, None]}), ["k"], 128).to_list()
    [10, 10, 91]
    """
    if not 1 <= slices <= MOST_SLICES:
        message = f"{slices} slices: 1 to {MOST_SLICES} are possible"
        raise ProgramError(message)
    if not columns or slices == 1:
        return pl.zeros(frame.height, pl.UInt16, eager=True)
    hashes, number = key_hash(frame, columns), np.uint64(slices)
    # A mask is the same as the remainder, at a tenth of the time.
    is_power = slices & (slices - 1) == 0
    found = hashes & (number - np.uint64(1)) if is_power else hashes % number
    return pl.Series(found.astype(np.uint16))


def key_hash(frame: pl.DataFrame, columns: Sequence[str]) -> _Words:
    """64 bits of each row's key."""
    found = np.full(frame.height, _SEED, dtype=np.uint64)
    for name in columns:
        found = _mix(found ^ _column(frame[name]))
    return found


def _column(values: pl.Series) -> _Words:
    plain = _plain(values)
    if plain.dtype == pl.Null:
        return np.full(len(plain), _NULL)
    hashed = _texts(plain) if plain.dtype == pl.Binary else _mix(_bits(plain))
    if plain.null_count():
        hashed = np.where(plain.is_null().to_numpy(), _NULL, hashed)
    return hashed


def _plain(values: pl.Series) -> pl.Series:
    """Values as Int64, UInt64, Float64, Binary or Null."""
    dtype = values.dtype
    match dtype:
        case pl.Null() | pl.Binary() | pl.UInt64() | pl.Int64():
            return values
        case pl.Float64() | pl.Float32():
            return values.cast(pl.Float64)
        case pl.Datetime() | pl.Duration():
            unit = dtype.time_unit
            micros = values.to_physical()
            return micros * 1000 if unit == "ms" else micros
        case pl.Enum() | pl.Categorical() | pl.Decimal():
            return values.cast(pl.String).cast(pl.Binary)
        case pl.String():
            return values.cast(pl.Binary)
        case _ if dtype.is_nested():
            message = f"a key column of {dtype} has no order"
            raise ProgramError(message)
        case _:
            return values.to_physical().cast(pl.Int64)


def _bits(values: pl.Series) -> _Words:
    # To fill in for nulls is a query, whether there are any or not.
    numbers = (values.fill_null(0) if values.null_count() else values).to_numpy()
    if values.dtype == pl.Float64:
        # Adding 0.0 turns -0.0 into 0.0 (in NumPy; Polars adds nothing); one NaN stands for all.
        numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
    found: _Words = numbers.view(np.uint64)
    return found


def _mix(x: _Words) -> _Words:
    """The finaliser of splitmix64 (Steele, Lea, Flood, 2014), with its step before it."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    moved = x >> np.uint64(30)
    x ^= moved
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= np.right_shift(x, np.uint64(27), out=moved)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= np.right_shift(x, np.uint64(31), out=moved)
    return x


def _texts(values: pl.Series) -> _Words:
    """Bytes, eight at a time: their length, then each word of eight (the last filled with zeros).

    All rows take a step together, so a step costs a few passes over those that are long enough.
    """
    import pyarrow as pa

    array = values.fill_null(b"").to_arrow().cast(pa.large_binary())
    _, at, raw = array.buffers()
    offsets = np.frombuffer(at, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    text = np.zeros(int(offsets[-1]) + 8, dtype=np.uint8)
    if raw is not None:
        text[:-8] = np.frombuffer(raw, dtype=np.uint8)[: int(offsets[-1])]
    # Words that begin at any byte; the last eight bytes are zeros, so none reads beyond the end.
    words = np.ndarray(len(text) - 7, dtype="<u8", buffer=text.data, strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    found = _mix(lengths.astype(np.uint64))
    _take_words(found, words, starts, np.minimum(lengths, _LONGEST))
    for row in np.flatnonzero(lengths > _LONGEST):
        digest = hashlib.blake2b(text[starts[row] : offsets[row + 1]].tobytes(), digest_size=8)
        found[row] = int.from_bytes(digest.digest(), "little")
    return found


_KEEP = np.array([2 ** (8 * n) - 1 for n in range(9)], dtype=np.uint64)
"""What to keep of a word of which n bytes belong to the text."""


def _take_words(
    found: _Words, words: _Words, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> None:
    for step in range(0, int(lengths.max(initial=0)), 8):
        left = lengths - step
        if left.min() > 0:
            found[:] = _mix(found ^ (words[starts + step] & _KEEP[np.minimum(left, 8)]))
            continue
        rows = np.flatnonzero(left > 0)
        word = words[starts[rows] + step] & _KEEP[np.minimum(left[rows], 8)]
        found[rows] = _mix(found[rows] ^ word)
