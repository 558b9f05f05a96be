"""Encoded state as Arrow: many keys in three columns, sorted by key, no Python object for any.

Such a base is immutable and can be mapped from a file as it is; a key is found by bisection, and is
a Python object only from the moment that somebody asks for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl

SLICE, KEY, VALUE = "slice", "key", "value"
SCHEMA = {SLICE: pl.UInt16(), KEY: pl.Binary(), VALUE: pl.Binary()}

Entry: TypeAlias = tuple[int, bytes | None]
"""A key's slice, and its state; None where it has none any more."""


class Encoded(Mapping[bytes, Entry]):
    """Entries by encoded key, over a frame that is sorted by key.

    >>> frame = pl.DataFrame({"slice": [7], "key": [b"k"], "value": [b"v"]}, schema=SCHEMA)
    >>> Encoded(frame)[b"k"], Encoded(frame).get(b"other")
    ((7, b'v'), None)
    """

    __slots__ = ("_keys", "frame")

    def __init__(self, frame: pl.DataFrame) -> None:
        """Take a frame of `SCHEMA`, every key once, sorted by key."""
        self.frame = frame
        self._keys = frame[KEY]

    def __getitem__(self, code: bytes) -> Entry:
        """The entry of a key."""
        at = bisect_left(self._keys, code)
        if at == len(self._keys) or self._keys[at] != code:
            raise KeyError(code)
        return self.frame[SLICE][at], self.frame[VALUE][at]

    def __iter__(self) -> Iterator[bytes]:
        """The keys, in their order."""
        return iter(self._keys)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._keys)


def as_frame(entries: Mapping[bytes, Entry]) -> pl.DataFrame:
    """Entries as a frame; in no order but their own."""
    if isinstance(entries, Encoded):
        return entries.frame
    columns: list[Sequence[Any]] = [
        [number for number, _ in entries.values()],
        list(entries),
        [value for _, value in entries.values()],
    ]
    return pl.DataFrame(columns, schema=SCHEMA, orient="col")


def newest(frames: Sequence[pl.DataFrame], *, gone: bool) -> Encoded:
    """What these frames say together, the later the truer; with `gone` also which keys went."""
    known = [frame.select(list(SCHEMA)) for frame in frames if frame.height]
    if not known:
        return Encoded(pl.DataFrame(schema=SCHEMA))
    last = pl.concat(known).unique(KEY, keep="last", maintain_order=True)
    return Encoded((last if gone else last.filter(pl.col(VALUE).is_not_null())).sort(KEY))
