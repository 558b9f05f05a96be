"""Slices: keys are divided by a hash that no version, machine or width changes.

A key's hash is a function of its values as M6 compares them, so equal keys are in one slice: -0.0
and 0.0, every NaN, null. It is part of the format of checkpoints: golden values hold it in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.errors import ProgramError

_Words: TypeAlias = npt.NDArray[np.uint64]

MOST_SLICES = 2**16
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
        if lanes > slices:
            message = f"{lanes} lanes cannot share {slices} slices"
            raise ProgramError(message, so="take more slices or fewer lanes")
        return cls(slices, lanes, tuple(number * lanes // slices for number in range(slices)))

    def lane_of(self, slices: pl.Series) -> pl.Series:
        """The lane of each of these slices."""
        return pl.Series(np.asarray(self.of, dtype=np.uint32)[slices.to_numpy()])

    def slices_of(self, lane: int) -> tuple[int, ...]:
        """The slices in a lane."""
        return tuple(number for number, owner in enumerate(self.of) if owner == lane)


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
        case pl.Null() | pl.Binary() | pl.UInt64():
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
    numbers = values.fill_null(0).to_numpy()
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
