"""A sink that writes files, each of which appears whole and once.

    out/
     +-- part-0000000003-00000.parquet    published: epoch 3, its first message
     +-- part-0000000003-00001.parquet
     +-- _staging/                         what tasks wrote and nobody has committed yet
          +-- 0000000004-<attempt>-<unique>.parquet

With `partition_by` files are published in directories `column=value`, of which each has its own.

A staged file is complete and on the disk before its message exists. Publishing gives it a second
name, makes that durable, and only then removes the first: whatever dies in between, one of the two
names is there, and doing it again ends in the same place. In an object store, which has no second
names, it is copied.
"""

from __future__ import annotations

import copy
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Literal, final
from uuid import uuid4

import polars as pl

from anabranch.connectors.base import Sink
from anabranch.connectors.file_source import SUFFIXES, known_format
from anabranch.connectors.object_staging import output_place
from anabranch.connectors.partition_directories import PartitionDirectories, is_partition
from anabranch.connectors.staging import STAGING, telling
from anabranch.connectors.text_reader import TEXT_FORMATS
from anabranch.connectors.text_types import require_text_types
from anabranch.connectors.text_writer import CsvWriter, JsonWriter
from anabranch.errors import CheckpointError, ProgramError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

GROUP_ROWS = 65_536
"""Small batches are put together up to so many rows: a row group each would be mostly headers."""

COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("snappy", "zstd", "gzip", "lz4", "brotli", "none"),
    "arrow": ("none", "lz4", "zstd"),
    "csv": ("none",),
    "jsonl": ("none",),
}
"""How the formats can be compressed; the first is what is done unless something else is said."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@final
class Files(Sink):
    """Files `part-<epoch>-<number>` in a directory, whose names are in the order of the rows.

    Exactly once: an epoch's files are named by the epoch. A reader that lists the directory sees
    whole files of committed epochs only; the files of one epoch appear one after the other. CSV and
    JSON Lines are written as the source `Files` reads them: it finds the same rows again.

    With `partition_by`, a column or a list of them, rows are divided into directories by their
    values, as Hive has them: `day=2026-01-31/part-...`. Rows of a directory keep their order.

    A run that begins anew, without a checkpoint or with another, counts its epochs from 0 again: it
    replaces files of epochs of the same numbers, and leaves all others there. So give a new
    checkpoint an empty directory.

    The directory may be one of an object store, such as `s3://bucket/path`.
    """

    gathers = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: str,  # noqa: A002 - the public contract
        compression: str | None = None,
        partition_by: str | Sequence[str] | None = None,
    ) -> None:
        """Write below `path`, which is made when first needed."""
        self._place = output_place(path)
        self._format = known_format(format)
        self._compression = compression or COMPRESSIONS[format][0]
        if self._compression not in COMPRESSIONS[format]:
            message = f"Files: {format} cannot be compressed by {compression!r}"
            raise ProgramError(message, have=", ".join(COMPRESSIONS[format]))
        self._partitions = None if partition_by is None else PartitionDirectories.by(partition_by)

    def require(self, schema: pl.Schema) -> None:
        """Refuse columns that the format does not hold, or that rows cannot be partitioned by."""
        if self._format in TEXT_FORMATS:
            require_text_types(schema, self._format)
        if self._partitions is not None:
            self._partitions.require(schema)

    def write(
        self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str
    ) -> Mapping[str, Any]:
        """Stage the rows in a file of their own, durably; no rows make no file.

        Where they are partitioned, in one for each directory.
        """
        if self._partitions is not None:
            return self._write_pieces(batches, self._partitions, epoch, attempt)
        tables = _groups(batches)
        first = next(tables, None)
        if first is None:
            return {"staged": None, "rows": 0, "format": self._format}
        name = self._new_name(epoch, attempt)
        with self._all_or_none([name]):
            rows = self._write_file(name, first.schema, chain([first], tables))
        return {"staged": name, "rows": rows, "format": self._format}

    def _write_pieces(
        self,
        batches: Iterable[pa.RecordBatch],
        partitions: PartitionDirectories,
        epoch: int,
        attempt: str,
    ) -> Mapping[str, Any]:
        # One file is open at a time, however many directories there are: the rows wait in memory,
        # as they did in the task that gives them.
        frames = [pl.DataFrame(batch) for batch in batches if batch.num_rows]
        pieces, names, rows = list[list[str]](), list[str](), 0
        with self._all_or_none(names):
            for directories, frame in partitions.pieces(pl.concat(frames)) if frames else ():
                table = frame.to_arrow()
                names.append(self._new_name(epoch, attempt))
                pieces.append([names[-1], directories])
                rows += self._write_file(names[-1], table.schema, [table])
        return {"staged": pieces, "rows": rows, "format": self._format}

    @contextmanager
    def _all_or_none(self, names: Sequence[str]) -> Iterator[None]:
        """Leave nothing of these staged files if one of them cannot be written."""
        try:
            yield
        except BaseException:
            with suppress(OSError, RunError):
                self._place.remove(names)
            raise

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        """Give the staged files of a committed epoch their places; done again, it changes nothing.

        A file that another run left in such a place is never overwritten.
        """
        moves = [
            (piece.name, piece.place(epoch, number))
            for number, pieces in enumerate(map(_checked, messages))
            for piece in pieces
        ]
        if moves:
            self._place.show(moves)

    def with_durability(self, durability: Literal["process", "power"]) -> Files:
        """Sync files and directories for the sake of power, or leave that to the system."""
        other = copy.copy(self)
        other._place = self._place.with_durability(power=durability == "power")  # noqa: SLF001 - one of us
        return other

    def abort(self, messages: Sequence[Any], epoch: int) -> None:  # noqa: ARG002
        """Remove staged files; published ones stay."""
        self._place.remove([piece.name for message in messages for piece in _checked(message)])

    def sweep(self, keep: Sequence[Any]) -> None:
        """Remove staged files that no message to keep names."""
        kept = {piece.name for message in keep for piece in _checked(message)}
        self._place.remove([name for name in self._place.names() if name not in kept])

    def _new_name(self, epoch: int, attempt: str) -> str:
        # Two tasks of one attempt write at the same time, so the attempt alone is not enough.
        told = re.sub(r"[^A-Za-z0-9_-]", "_", attempt)[:64]
        return f"{epoch:010d}-{told}-{uuid4().hex}{SUFFIXES[self._format][0]}"

    def _write_file(self, name: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
        rows, told = 0, f"{self._place}/{STAGING}/{name}"
        with self._place.creating(name) as file:
            # Errors of the rows' own making pass through: only what is done to the file is told.
            with telling("write", told):
                writer = self._open_writer(file, schema)
            try:
                for table in tables:
                    with telling("write", told):
                        writer.write_table(table)
                    rows += table.num_rows
            finally:
                with telling("write", told):
                    writer.close()
        return rows

    def _open_writer(self, file: IO[bytes], schema: pa.Schema) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        match self._format:
            case "csv":
                return CsvWriter(file, schema)
            case "jsonl":
                return JsonWriter(file, schema)
            case "arrow":
                name = None if self._compression == "none" else self._compression
                return pa.ipc.new_file(
                    file, schema, options=pa.ipc.IpcWriteOptions(compression=name)
                )
        return parquet.ParquetWriter(file, schema, compression=self._compression)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together until they are worth a row group; empty ones left out."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A staged file, and where below the root it is to be."""

    name: str
    directories: str
    suffix: str

    def place(self, epoch: int, number: int) -> str:
        """That place, for a message of this number."""
        name = f"part-{epoch:010d}-{number:05d}{self.suffix}"
        return f"{self.directories}/{name}" if self.directories else name


def _checked(message: object) -> list[_Piece]:
    """What a message says was staged: it may come from a checkpoint anybody wrote."""
    match message:
        case {"staged": None, "rows": 0}:
            return []
        case {"staged": str(name), "format": str(format)} if (
            _PLAIN.fullmatch(name) and format in SUFFIXES
        ):
            return [_Piece(name, "", SUFFIXES[format][0])]
        case {"staged": list(pieces), "format": str(format)} if format in SUFFIXES and all(
            map(_is_piece, pieces)
        ):
            return [_Piece(name, under, SUFFIXES[format][0]) for name, under in pieces]
    text = "a message of a Files sink cannot be read"
    raise CheckpointError(text, why=f"it names no staged file: {message!r}")


def _is_piece(piece: object) -> bool:
    match piece:
        case [str(name), str(directories)]:
            return _PLAIN.fullmatch(name) is not None and is_partition(directories)
    return False
