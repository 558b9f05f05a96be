"""A sink that writes files, each of which appears whole and once.

    out/
     +-- part-0000000003-00000.parquet    published: epoch 3, its first message
     +-- part-0000000003-00001.parquet
     +-- _staging/                         what tasks wrote and nobody has committed yet
          +-- 0000000004-<attempt>-<unique>.parquet

With `partition_by` files are published in directories `column=value`, of which each has its own.

A staged file is complete and on the disk before its message exists. Publishing gives it a second
name, makes that durable, and only then removes the first: whatever dies in between, one of the two
names is there, and doing it again ends in the same place.
"""

from __future__ import annotations

import copy
import errno
import filecmp
import os
import re
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, final
from uuid import uuid4

import polars as pl

from anabranch.connectors.base import Sink
from anabranch.connectors.file_source import SUFFIXES, known_format
from anabranch.connectors.partition_directories import PartitionDirectories, is_partition
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
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


@final
class Files(Sink):
    """Files `part-<epoch>-<number>` in a directory, whose names are in the order of the rows.

    Exactly once: an epoch's files are named by the epoch. A reader that lists the directory sees
    whole files of committed epochs only; the files of one epoch appear one after the other. CSV and
    JSON Lines are written as the source `Files` reads them: it finds the same rows again.

    With `partition_by`, a column or a list of them, rows are divided into directories by their
    values, as Hive has them: `day=2026-01-31/part-...`. Rows of a directory keep their order.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: str,  # noqa: A002 - the public contract
        compression: str | None = None,
        partition_by: str | Sequence[str] | None = None,
    ) -> None:
        """Write below `path`, which is made when first needed."""
        # Tasks run elsewhere, where a relative path would mean another place.
        self._root = Path(path).absolute()
        self._format = known_format(format)
        self._compression = compression or COMPRESSIONS[format][0]
        if self._compression not in COMPRESSIONS[format]:
            message = f"Files: {format} cannot be compressed by {compression!r}"
            raise ProgramError(message, have=", ".join(COMPRESSIONS[format]))
        self._partitions = None if partition_by is None else PartitionDirectories.by(partition_by)
        self._durable = True
        if self._root.exists() and not self._root.is_dir():
            message = f"Files: {path} is a file, not a directory to write into"
            raise ProgramError(message, so="name a directory, or remove the file")

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
        path = self._staging / self._new_name(epoch, attempt)
        try:
            rows = self._write_file(path, first.schema, chain([first], tables))
        except BaseException:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise
        return {"staged": path.name, "rows": rows, "format": self._format}

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
        pieces, rows = list[list[str]](), 0
        try:
            for directories, frame in partitions.pieces(pl.concat(frames)) if frames else ():
                table = frame.to_arrow()
                pieces.append([self._new_name(epoch, attempt), directories])
                path = self._staging / pieces[-1][0]
                rows += self._write_file(path, table.schema, [table])
        except BaseException:
            with suppress(OSError):
                for name, _ in pieces:
                    (self._staging / name).unlink(missing_ok=True)
            raise
        return {"staged": pieces, "rows": rows, "format": self._format}

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        """Give the staged files of a committed epoch their places; done again, it changes nothing.

        A file that another run left in such a place is never overwritten.
        """
        moves = [
            (
                self._staging / piece.name,
                self._root / piece.directories / f"part-{epoch:010d}-{number:05d}{piece.suffix}",
            )
            for number, pieces in enumerate(map(_checked, messages))
            for piece in pieces
        ]
        if not moves:
            return
        with _telling("publish", self._root):
            for staged, final_place in moves:
                _make_directory(final_place.parent)
                _show(staged, final_place)
            # Before the first name goes, the second must be on the disk.
            for directory in dict.fromkeys(place.parent for _, place in moves):
                if self._durable:
                    _sync(directory)
            for staged, _ in moves:
                staged.unlink(missing_ok=True)

    def with_durability(self, durability: Literal["process", "power"]) -> Files:
        """Sync files and directories for the sake of power, or leave that to the system."""
        other = copy.copy(self)
        other._durable = durability == "power"  # noqa: SLF001 - one of us
        return other

    def abort(self, messages: Sequence[Any], epoch: int) -> None:  # noqa: ARG002
        """Remove staged files; published ones stay."""
        lost = [piece.name for message in messages for piece in _checked(message)]
        with _telling("clean up", self._staging):
            for name in lost:
                (self._staging / name).unlink(missing_ok=True)

    def sweep(self, keep: Sequence[Any]) -> None:
        """Remove staged files that no message to keep names."""
        kept = {piece.name for message in keep for piece in _checked(message)}
        with _telling("clean up", self._staging):
            for path in self._staging.glob("*") if self._staging.exists() else ():
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    @property
    def _staging(self) -> Path:
        return self._root / "_staging"

    def _new_name(self, epoch: int, attempt: str) -> str:
        # Two tasks of one attempt write at the same time, so the attempt alone is not enough.
        told = re.sub(r"[^A-Za-z0-9_-]", "_", attempt)[:64]
        return f"{epoch:010d}-{told}-{uuid4().hex}{SUFFIXES[self._format][0]}"

    def _write_file(self, path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
        rows = 0
        with ExitStack() as stack:
            # Errors of the rows' own making pass through: only what is done to the file is told.
            with _telling("write", path):
                _make_directory(path.parent)
                file = path.open("xb")
                # What is still to be written is written by closing, also after an error.
                stack.callback(_close, file, path)
                writer = self._open_writer(file, schema)
            try:
                for table in tables:
                    with _telling("write", path):
                        writer.write_table(table)
                    rows += table.num_rows
            finally:
                with _telling("write", path):
                    writer.close()
            with _telling("write", path):
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
                    _sync(path.parent)
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


def _show(staged: Path, place: Path) -> None:
    """Give a staged file its second name, unless it has it already."""
    try:
        _link(staged, place)
    except FileNotFoundError:
        if not place.exists():
            message = f"Files: {staged.name} is neither staged nor published"
            so = "restore the output directory, or start from an older savepoint into a new one"
            why = f"it was committed, and then removed from {staged.parent}"
            raise RunError(message, why=why, so=so) from None
    except FileExistsError:
        if staged.exists() and not _same(staged, place):
            message = f"Files: {place} is there already, written by another run"
            so = "write into an empty directory, or resume from the checkpoint that wrote it"
            raise RunError(message, so=so) from None


def _link(staged: Path, place: Path) -> None:
    """Name a file twice; where that cannot be, rename it if nothing is in the way."""
    try:
        place.hardlink_to(staged)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if place.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place) from None
        staged.rename(place)


def _same(staged: Path, place: Path) -> bool:
    # A copy of the directory has two files where there were two names of one.
    return staged.samefile(place) or filecmp.cmp(staged, place, shallow=False)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A staged file, and where below the root it is to be."""

    name: str
    directories: str
    suffix: str


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


def _make_directory(path: Path) -> None:
    """Make a directory and those above it durably: files in a lost directory are lost."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _close(file: IO[bytes], path: Path) -> None:
    with _telling("write", path):
        file.close()


@contextmanager
def _telling(what: str, path: Path) -> Iterator[None]:
    """Say what could not be done to which file."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        message = f"Files: cannot {what} {path}"
        so = "cast the column to a type that the format holds, such as String"
        raise RunError(message, why=str(error).splitlines()[0], so=so) from error
    except OSError as error:
        message = f"Files: cannot {what} {path}"
        helps = next((advice for codes, advice in _ADVICE if error.errno in codes), None)
        raise RunError(message, why=error.strerror or str(error), so=helps) from error


_ADVICE = (
    ({errno.ENOSPC, errno.EDQUOT}, "make room on that disk, then start again"),
    (
        {errno.EACCES, errno.EPERM},
        "give this user the right to read and write there, or choose another directory",
    ),
    ({errno.EROFS}, "mount that disk so that it can be written to, or choose another directory"),
)
