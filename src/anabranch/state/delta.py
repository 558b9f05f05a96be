r"""What a lane changed in an operator's state, as one file: sorted and indexed by slice.

    anabranch delta v2\n         the version line
    <Arrow IPC stream>          the frame, written by Polars, sorted by its column `slice`
    {"operator": ...}           the trailer: JSON, with the length and CRC32C of all before it
    <length> <crc32c> ABDELTA1  the footer: of the trailer, 4 + 4 bytes, little end first, and 8

The version line says how to read the rest, the footer where the trailer is, the trailer which rows
belong to which slice. Nothing in it is unpickled, and no byte of it can change unnoticed.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import polars as pl
from crc32c import crc32c

from anabranch.connectors.untrusted_arrow import NotWhole, read_stream
from anabranch.state.envelope import (
    Fields,
    Json,
    as_count,
    as_int,
    as_line,
    as_text,
    mapping_of,
    optional,
    pair_of,
    parse_object,
    refuse,
    refuse_newer,
    tuple_of,
)
from anabranch.state.layout import DeltaName

SLICE = "slice"

Kind: TypeAlias = Literal["delta", "snapshot"]
"""What changed, or all that is there."""

_VERSION = 2
_HEADER = b"anabranch delta v%d\n" % _VERSION
_HEADER_FORM = re.compile(rb"anabranch delta v([0-9]{1,9})\n")
_FOOTER = struct.Struct("<II8s")
_MAGIC = b"ABDELTA1"


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes of epochs `first` to `last` in one lane's state of an operator.

    `parent` is the id of the lane's delta before this one (None: there is none whose slices it
    has, or it is a snapshot); `watermark` is the operator's after `last`, in microseconds. The
    frame has a column `slice` of UInt16; what else is in it is the operator's own.

    >>> slices = pl.Series("slice", [3, 1, 3], pl.UInt16)
    >>> frame = pl.DataFrame([slices, pl.Series("n", [1, 2, 3])])
    >>> delta = Delta("count", lane=0, run=1, first=4, last=5, id="0a", frame=frame)
    >>> delta.index
    {1: (0, 1), 3: (1, 2)}
    >>> delta.of_slice(3)["n"].to_list()
    [1, 3]
    >>> unpack(pack(delta)) == delta
    True
    """

    operator: str
    lane: int
    run: int
    first: int
    last: int
    id: str
    frame: pl.DataFrame = field(compare=False)
    parent: str | None = None
    watermark: int | None = None
    kind: Kind = "delta"
    slice_key: tuple[str, ...] | None = None
    """The columns by whose hash rows have their slices; None: all are in one."""
    slices: tuple[int, ...] | None = None
    """Of a snapshot: it is all that there was of these; None: of all that its lane had."""
    index: Mapping[int, tuple[int, int]] = field(init=False)
    """Of each slice its first row, and how many."""

    def __post_init__(self) -> None:
        """Sort the frame by slice, the rows of each as they were, and index it."""
        if self.frame.schema.get(SLICE) != pl.UInt16:
            message = f"a delta has a column {SLICE!r} of UInt16, got {self.frame.schema}"
            raise ValueError(message)
        if not 0 <= self.first <= self.last:
            message = f"a delta of epochs {self.first} to {self.last}"
            raise ValueError(message)
        if self.frame[SLICE].null_count():
            message = "a row of a delta is of no slice"
            raise ValueError(message)
        if self.slices is not None and self.kind != "snapshot":
            message = "only a snapshot is all that there is of some slices"
            raise ValueError(message)
        if not self.frame[SLICE].is_sorted():
            object.__setattr__(self, "frame", self.frame.sort(SLICE, maintain_order=True))
        object.__setattr__(self, "index", _index(self.frame[SLICE]))

    @property
    def path(self) -> str:
        """Where this delta is kept."""
        snapshot = self.kind == "snapshot"
        return DeltaName(self.operator, self.last, self.run, self.lane, self.id, snapshot).path

    def of_slice(self, slice_: int) -> pl.DataFrame:
        """The rows of one slice."""
        return self.frame.slice(*self.index.get(slice_, (0, 0)))


def pack(delta: Delta) -> bytes:
    """A delta as the bytes of its file."""
    stream = io.BytesIO()
    stream.write(_HEADER)
    delta.frame.write_ipc_stream(stream)
    body = stream.getvalue()
    trailer = as_line(_trailer(delta, body))
    return body + trailer + _FOOTER.pack(len(trailer), crc32c(trailer), _MAGIC)


def unpack(data: bytes, path: str = "of a delta") -> Delta:
    """The delta in the bytes read from `path`, or a CheckpointError that names it."""
    _check_version(path, data)
    body, trailer = _divide(path, data)
    fields = Fields(path, parse_object(path, trailer))
    length, check = fields.take("length", as_count), fields.take("crc32c", as_count)
    if length != len(body) or check != crc32c(body):
        refuse(path, "its length or checksum is wrong: it is cut off, or was damaged")
    index = fields.take("index", mapping_of(as_count, pair_of(as_count, as_count)))
    delta = _delta(path, fields, _read_frame(path, body[len(_HEADER) :]))
    if dict(delta.index) != index:
        refuse(path, "its index of slices is not that of its rows")
    return delta


def check_chain(deltas: Sequence[Delta]) -> None:
    """Refuse deltas of one lane that do not follow each other, as a loser's would not."""
    for older, newer in pairwise(deltas):
        if newer.parent != older.id or newer.first <= older.last:
            why = f"it follows {newer.parent!r}, and the commits name {older.path} before it"
            refuse(newer.path, why)


def _trailer(delta: Delta, body: bytes) -> dict[str, Json]:
    return {
        "operator": delta.operator,
        "lane": delta.lane,
        "run": delta.run,
        "epochs": [delta.first, delta.last],
        "id": delta.id,
        "parent": delta.parent,
        "watermark": delta.watermark,
        "kind": delta.kind,
        "slice_key": None if delta.slice_key is None else list(delta.slice_key),
        **({} if delta.slices is None else {"slices": list(delta.slices)}),
        "index": [[slice_, list(rows)] for slice_, rows in delta.index.items()],
        "length": len(body),
        "crc32c": crc32c(body),
    }


def _check_version(path: str, data: bytes) -> None:
    header = _HEADER_FORM.match(data)
    if header is None:
        refuse(path, "it does not begin as a delta does")
    if int(header[1]) < _VERSION:
        refuse(path, f"its format is v{int(header[1])}, this version reads v{_VERSION} alone")
    if int(header[1]) != _VERSION or header[0] != _HEADER:
        refuse_newer(path, f"v{int(header[1])}", f"v{_VERSION}")


def _divide(path: str, data: bytes) -> tuple[bytes, bytes]:
    """What is before the trailer, and the trailer."""
    if len(data) < len(_HEADER) + _FOOTER.size:
        refuse(path, "it is cut off")
    length, check, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    begin = len(data) - _FOOTER.size - length
    if magic != _MAGIC or begin < len(_HEADER):
        refuse(path, "it does not end as a delta does: it is cut off, or was damaged")
    trailer = data[begin : len(data) - _FOOTER.size]
    if check != crc32c(trailer):
        refuse(path, "the checksum of its trailer is wrong: it was damaged")
    return data[:begin], trailer


def _read_frame(path: str, stream: bytes) -> pl.DataFrame:
    try:
        return read_stream(stream)
    except NotWhole as error:
        refuse(path, f"its rows are not whole: {error}", error)


def _delta(path: str, fields: Fields, frame: pl.DataFrame) -> Delta:
    first, last = fields.take("epochs", pair_of(as_count, as_count))
    values: dict[str, Any] = {
        "operator": fields.take("operator", as_text),
        "lane": fields.take("lane", as_count),
        "run": fields.take("run", as_count),
        "id": fields.take("id", as_text),
        "parent": fields.take("parent", optional(as_text)),
        "watermark": fields.take("watermark", optional(as_int)),
        "kind": fields.take("kind", _as_kind),
        "slice_key": fields.take("slice_key", optional(tuple_of(as_text))),
        "slices": fields.take("slices", tuple_of(as_count)) if "slices" in fields else None,
    }
    fields.finish()
    try:
        return Delta(first=first, last=last, frame=frame, **values)
    except ValueError as error:
        refuse(path, str(error), error)


def _as_kind(value: Json) -> Kind:
    kinds: dict[Json, Kind] = {"delta": "delta", "snapshot": "snapshot"}
    if as_text(value) not in kinds:
        message = f"neither 'delta' nor 'snapshot': {value!r}"
        raise ValueError(message)
    return kinds[value]


def _index(slices: pl.Series) -> dict[int, tuple[int, int]]:
    runs = slices.rle().struct.unnest()
    starts = runs["len"].cum_sum() - runs["len"]
    return dict(zip(runs["value"], zip(starts, runs["len"], strict=True), strict=True))
