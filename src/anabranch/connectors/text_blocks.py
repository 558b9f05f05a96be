"""A text file as blocks of records: each record is whole, and knows the line it begins at.

Where records begin is found by line ends alone, and in CSV by quotes: no value is looked at. So the
number of a record does not depend on whether it, or one before it, can be read.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from anabranch.connectors.places import StoredFile
from anabranch.errors import RunError

BLOCK_BYTES = 8 << 20
"""So much of a file is read at a time; its records take about as much again as columns."""
RECORD_BYTES = 64 << 20
"""A longer record is refused: a quote that is never closed would take the whole file for one."""

_BOM = b"\xef\xbb\xbf"
UNCHANGED = (
    "write files elsewhere, then rename them into the directory, and do not change them there"
)


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place between two records: how many records, bytes and lines are before it."""

    row: int = 0
    byte: int = 0
    line: int = 0


START = Mark()


@dataclass(frozen=True, slots=True)
class Block:
    """Records one behind the other: their texts without line ends, and the lines they begin at."""

    start: Mark
    end: Mark
    texts: pl.Series
    lines: pl.Series
    no_text: Mapping[int, str]
    """Why some records are no text, by their places here: their `texts` show bytes as `\\xff`."""


class Cutter(Protocol):
    """How a format cuts its text into records."""

    def whole(self, text: bytes) -> int:
        """How many bytes are there before the last record that may go on."""
        ...

    def records(self, lines: pl.DataFrame) -> pl.DataFrame:
        """Records of whole lines: columns `line` and `text`, as given."""
        ...


def blocks(
    path: StoredFile, size: int, cutter: Cutter, mark: Mark = START, step: int | None = None
) -> Iterator[Block]:
    """The records of a file of this many bytes from a mark on; one that has changed is refused."""
    with path.open("rb") as file:
        require_size(path, file.seek(0, os.SEEK_END), size)
        file.seek(mark.byte)
        held, read = b"", mark.byte
        while read < size:
            new = file.read(min(step or BLOCK_BYTES, size - read))
            if not new:
                require_size(path, read, size)
            held, read = held + new, read + len(new)
            end = len(held) if read == size else cutter.whole(held)
            if not end and len(held) > RECORD_BYTES:
                raise _too_long(path, mark.line)
            if end:
                block = _block(held[:end], mark, cutter)
                held, mark = held[end:], block.end
                yield block


def marks(path: StoredFile, size: int, cutter: Cutter) -> Sequence[Mark]:
    """Where the blocks of a file begin, and at last where it ends."""
    return [START, *(block.end for block in blocks(path, size, cutter))]


def require_size(path: StoredFile, found: int, expected: int) -> None:
    """Refuse a file that has another size than when it was first seen."""
    if found != expected:
        message = f"Files: {path} has changed since it was first seen"
        why = f"it has {found} bytes, and had {expected}"
        raise RunError(message, why=why, so=UNCHANGED)


def _block(given: bytes, start: Mark, cutter: Cutter) -> Block:
    body = given.removeprefix(_BOM) if start.byte == 0 else given
    try:
        text, strange = body.decode(), {}
    except UnicodeDecodeError:
        # No byte of a line end or a quote is ever part of another character: records stay the same.
        text, strange = body.decode(errors="backslashreplace"), _strange_lines(body, start.line + 1)
    lines = pl.Series("text", [text.removesuffix("\n")]).str.split("\n").explode()
    numbered = pl.DataFrame([lines]).with_row_index("line", start.line + 1)
    found = cutter.records(numbered)
    end = Mark(start.row + found.height, start.byte + len(given), start.line + len(lines))
    begins = found["line"].to_list() if strange else []
    no_text = {bisect_right(begins, line) - 1: why for line, why in reversed(strange.items())}
    return Block(start, end, found["text"], found["line"], no_text)


def _strange_lines(body: bytes, first: int) -> dict[int, str]:
    """Why lines are not UTF-8, by their numbers, of which this is the first."""
    found = {}
    for number, line in enumerate(body.split(b"\n"), first):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            place = f"byte {error.start + 1} of line {number} is 0x{line[error.start]:02x}"
            found[number] = f"it is not UTF-8: {place}, {error.reason}"
    return found


def _too_long(path: StoredFile, line: int) -> RunError:
    message = f"Files: the record at line {line + 1} of {path} does not end"
    why = f"it has more than {RECORD_BYTES >> 20} MiB"
    return RunError(
        message, why=why, so="look for a quote that is not closed, or for lost line ends"
    )
