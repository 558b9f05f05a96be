"""Texts as whole numbers, so that they are counted by sorting numbers instead of hashing texts.

Arrow keeps a text as a view of 16 bytes: its length and, if it is short, the text itself; else its
first bytes and where it begins in which buffer. Of texts of at most 7 bytes, or of more than 12,
what tells one view from another has room in 8 bytes. Equal codes are equal texts. Short texts that
are equal have equal codes, too; long ones only where they are kept once: texts of a dictionary, as
Parquet has them, are.

3.3 million words of 100,000 are counted in 22 ms where hashing takes 47; 267,000 ids of 1,000, of
36 bytes, in 2 where it takes 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from anabranch.kernels.windows.fields import ROWS, VALUE
from anabranch.kernels.windows.panes import START, Run

Codes: TypeAlias = npt.NDArray[np.uint64]

_SHORT, _INLINE = 7, 12
"""The most bytes of a text that is all in its code, and of one that is all in its view."""
_ROOM = 2**16
"""Buffers, and bytes of a long text, are fewer."""
_SAMPLE = 4096
"""Codes that are looked at to tell whether long texts are kept once."""
_BYTE, _HALF, _WORD = (np.uint64(bits) for bits in (8, 16, 32))
_TAIL, _LOW = np.uint64(2**24 - 1), np.uint64(_ROOM - 1)


@dataclass(frozen=True, slots=True)
class CodedTexts:
    """A column of texts, none of them null, as numbers."""

    codes: Codes
    array: pa.Array
    """The texts in Arrow's form."""
    short: bool

    @classmethod
    def of(cls, texts: pl.Series) -> CodedTexts | None:
        """None where they have no such form, or where there is little to gain."""
        if not len(texts) or texts.null_count():
            return None
        array = texts.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
        words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)
        words = words[array.offset : array.offset + len(array)]
        first, second = words[:, 0], words[:, 1]
        lengths = words.view(np.uint32)[:, 0]
        most = int(lengths.max())
        if most <= _SHORT:
            # The bytes behind the fourth go where a length of three bits leaves room.
            return cls(first | (second << _BYTE), array, short=True)
        least, buffers = int(lengths.min()), len(array.buffers()) - 2
        if least <= _INLINE or most >= _ROOM or buffers >= _ROOM:
            return None
        codes = second | ((first & _LOW) << _HALF)
        few = len(np.unique(codes[:_SAMPLE])) <= min(len(codes), _SAMPLE) // 2
        return cls(codes, array, short=False) if few else None

    def counted(self, runs: Sequence[Run]) -> pl.DataFrame:
        """How often each text is in each run: `start`, `value` and `n`."""
        found = [np.unique(self.codes[a:b], return_counts=True) for _, a, b in runs]
        codes, counts = (np.concatenate(each) for each in zip(*found, strict=True))
        starts = np.repeat([start for start, _, _ in runs], [len(each) for each, _ in found])
        texts = self._short(codes) if self.short else self._long(codes)
        numbers = (pl.Series(START, starts), pl.Series(ROWS, counts.astype(np.int64)))
        counted = pl.DataFrame([numbers[0], texts.alias(VALUE), numbers[1]])
        # What was kept twice has two codes.
        return counted if self.short else counted.group_by(START, VALUE).agg(pl.col(ROWS).sum())

    def _short(self, codes: Codes) -> pl.Series:
        tail = (codes >> _BYTE) & _TAIL
        return _texts(codes ^ (tail << _BYTE), tail, [])

    def _long(self, codes: Codes) -> pl.Series:
        lengths, buffers, begins = (codes >> _HALF) & _LOW, codes & _LOW, codes >> _WORD
        heads, data = np.zeros(len(codes), np.uint64), self.array.buffers()[2:]
        for number in np.unique(buffers).tolist():
            bytes_, here = np.frombuffer(data[number], np.uint8), buffers == number
            places = begins[here].astype(np.int64)[:, None] + np.arange(4)
            heads[here] = bytes_[places].view("<u4").ravel()
        return _texts(lengths | (heads << _WORD), codes ^ (lengths << _HALF), data)


def _texts(first: Codes, second: Codes, data: list[pa.Buffer]) -> pl.Series:
    """A column of these views."""
    views = np.stack([first, second], axis=1)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(views)), *data]
    found = pl.from_arrow(pa.Array.from_buffers(pa.string_view(), len(views), buffers))
    assert isinstance(found, pl.Series)
    return found
