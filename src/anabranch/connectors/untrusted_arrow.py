"""Arrow that anybody may have written: looked through in all its parts before Polars reads it.

A checksum tells damage, not malice. Polars believes lengths and offsets, and ends the process where
one of them leads elsewhere or asks for more memory than there is. So a checkpoint's Arrow, and that
of a source, is checked by what reads nothing that is not there.

Nothing of ours is written compressed, and a few compressed bytes may say that they are a terabyte:
compressed rows are refused before any of them is unpacked.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import pyarrow as pa

_BITS = 8
"""The least that a row takes of a column is a bit."""
_FREE_ROWS = 1 << 20
"""So many rows may take nothing: all of their columns may be of the type that has only nulls."""

_DICTIONARY, _BATCH = 2, 3
"""The kinds of messages that hold rows (`MessageHeader` of Arrow's Message.fbs)."""
_MALFORMED = (OSError, EOFError, ValueError, MemoryError, struct.error)


class NotWhole(ValueError):
    """What is wrong with it, in one line."""


def read_stream(data: bytes) -> pl.DataFrame:
    """The rows of an Arrow IPC stream.

    >>> stream = io.BytesIO()
    >>> pl.DataFrame({"n": [1]}).write_ipc_stream(stream)
    >>> read_stream(stream.getvalue()).rows()
    [(1,)]

    Raises:
        NotWhole: It is none, in some part.
    """
    import pyarrow as pa

    try:
        for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(data)):
            _refuse_compressed(message)
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            _require_whole(reader.read_all(), len(data))
    except (*_MALFORMED, pa.ArrowException) as error:
        raise NotWhole(_line(error)) from error
    return _read(lambda: pl.read_ipc_stream(data))


def read_file(data: bytes) -> pl.DataFrame:
    """The rows of an Arrow IPC file.

    >>> file = io.BytesIO()
    >>> pl.DataFrame({"n": [1]}).write_ipc(file)
    >>> read_file(file.getvalue()).rows()
    [(1,)]

    Raises:
        NotWhole: It is none, in some part.
    """
    import pyarrow as pa

    try:
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            for begin, end in _blocks(data):
                _refuse_compressed(pa.ipc.read_message(pa.BufferReader(data[begin:end])))
            _require_whole(reader.read_all(), len(data))
    except (*_MALFORMED, pa.ArrowException) as error:
        raise NotWhole(_line(error)) from error
    return _read(lambda: pl.read_ipc(io.BytesIO(data)))


def _require_whole(table: pa.Table, size: int) -> None:
    if table.num_rows > max(_FREE_ROWS, size * _BITS):
        message = f"it says that {size} bytes are {table.num_rows} rows"
        raise NotWhole(message)
    table.validate(full=True)


def _read(read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    try:
        return read()
    except (*_MALFORMED, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise NotWhole(_line(error)) from error


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# What follows reads the few fields of Arrow's metadata that PyArrow does not show. PyArrow has
# verified the same bytes before, so every table and vector in them is where it is said to be.


def _refuse_compressed(message: pa.ipc.Message) -> None:
    table = _Table.root(message.metadata.to_pybytes())
    kind, header = table.byte(1), table.table(2)
    if kind == _DICTIONARY and header is not None:
        header = header.table(1)
    if kind in (_DICTIONARY, _BATCH) and header is not None and header.table(3) is not None:
        text = "its rows are compressed, which nothing that is written here is"
        raise NotWhole(text)


def _blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """Where a file's footer says that messages with rows are."""
    (size,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = _Table.root(data[len(data) - 10 - size : len(data) - 10])
    for field in (2, 3):
        for offset, metadata, body in footer.structs(field, "<qi4xq"):
            if not 0 <= offset <= offset + metadata + body <= len(data):
                message = "a part of it is said to lie outside"
                raise NotWhole(message)
            yield offset, offset + metadata + body


class _Table:
    """A table of FlatBuffers: its fields are found by number, and may be absent."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._int(at)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        (at,) = struct.unpack_from("<I", data, 0)
        return cls(data, at)

    def byte(self, field: int) -> int | None:
        at = self._place(field)
        return None if at is None else self._data[at]

    def table(self, field: int) -> _Table | None:
        at = self._place(field)
        return None if at is None else _Table(self._data, at + self._int(at))

    def structs(self, field: int, form: str) -> Iterator[tuple[int, ...]]:
        at = self._place(field)
        if at is not None:
            begin = at + self._int(at)
            count = self._int(begin)
            for number in range(count):
                yield struct.unpack_from(
                    form, self._data, begin + 4 + number * struct.calcsize(form)
                )

    def _place(self, field: int) -> int | None:
        (size,) = struct.unpack_from("<H", self._data, self._fields)
        if 4 + 2 * field >= size:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._fields + 4 + 2 * field)
        return self._at + offset if offset else None

    def _int(self, at: int) -> int:
        (found,) = struct.unpack_from("<i", self._data, at)
        return int(found)
