"""Frames in files that the system maps into memory, whose pages it takes back when it needs them.

A file has no name from the beginning, or is without one as soon as it is open: it goes with its
last user, however that one ends, and there is never anything to clear up. Who made one keeps it
open, so that other processes of the same user on the same host can map it too, if they are told
where it is.

Polars writes, PyArrow maps: the columns of the frame then are the file's own bytes. Columns of
`Categorical`, `Enum` and `Decimal` are the exception, which Polars takes into memory.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

_Number = TypeVar("_Number", bound=np.generic)

_MOUNTS = Path("/proc/self/mounts")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ON_DISK = Path("/var/tmp")  # noqa: S108 - files in it have no names


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a file without a name is: a process of a host has it open."""

    host: str
    process: int
    number: int
    """By which the process knows it."""
    device: int
    inode: int

    @classmethod
    def of(cls, number: int) -> FilePlace:
        """The place of a file of this process."""
        known = os.fstat(number)
        return cls(_host(), os.getpid(), number, known.st_dev, known.st_ino)

    def opened(self) -> int:
        """The same file in this process.

        Raises:
            OSError: It is not there any more, or on another host.
        """
        if self.host != _host():
            raise FileNotFoundError(self.host)
        # Numbers of processes and files are given again: what is found may be another's.
        found = os.open(f"/proc/{self.process}/fd/{self.number}", os.O_RDONLY | os.O_CLOEXEC)
        known = os.fstat(found)
        if (known.st_dev, known.st_ino, known.st_uid) != (self.device, self.inode, os.getuid()):
            os.close(found)
            raise FileNotFoundError(self.inode)
        return found


class StateFiles:
    """A directory for files without names."""

    def __init__(self, directory: Path | None) -> None:
        """Take a directory of the local disk; None: one for temporary files."""
        self.directory = directory or temporary()
        self._numbers: dict[int, int] = {}
        """Of the open files, by the id of what is mapped; it goes with it."""

    def frame(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The same rows in a file.

        Raises:
            OSError: There is no room, or no such directory.
            Exception: Columns of this kind cannot be mapped.
        """
        found: pl.DataFrame = self.kept(*self._written(rows))
        return found

    def array(self, numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """The same numbers in a file; raises as `frame` does."""
        rows, number = self._written(pl.DataFrame({"numbers": numbers}))
        found: npt.NDArray[_Number] = self.kept(rows["numbers"].to_numpy(), number)
        return found

    def open(self) -> IO[bytes]:
        """A new file."""
        return tempfile.TemporaryFile(dir=self.directory, prefix="anabranch-")

    def place(self, held: pl.DataFrame | npt.NDArray[Any]) -> FilePlace | None:
        """Where the file of a frame or array is that was made here, while that is there."""
        number = self._numbers.get(id(held))
        return None if number is None else FilePlace.of(number)

    def mapped(self, place: FilePlace, *, array: bool) -> Any:
        """A frame or array in a file of another process; raises OSError."""
        number = place.opened()
        rows = _mapped(number)
        return self.kept(rows["numbers"].to_numpy() if array else rows, number)

    def _written(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        with self.open() as file:
            # One chunk: arrays are made of columns without a copy.
            rows.rechunk().write_ipc(
                file,
                compression="uncompressed",
                compat_level=pl.CompatLevel.newest(),
                record_batch_size=max(1, rows.height),
            )
            file.flush()
            found = _mapped(file.fileno())
            if found.schema != rows.schema:
                message = f"{rows.schema} is {found.schema} in a file"
                raise TypeError(message)
            return found, os.dup(file.fileno())

    def kept(self, held: Any, number: int) -> Any:
        """The same, with which an open file is to be closed."""
        self._numbers[id(held)] = number
        weakref.finalize(held, self._close, id(held)).atexit = False
        return held

    def _close(self, held: int) -> None:
        os.close(self._numbers.pop(held))


def _mapped(number: int) -> pl.DataFrame:
    import pyarrow as pa
    from pyarrow import ipc

    with pa.memory_map(f"/proc/self/fd/{number}") as file:
        found = pl.from_arrow(ipc.open_file(file).read_all(), rechunk=False)
    assert isinstance(found, pl.DataFrame)
    return found


def _host() -> str:
    """This host since it started, and within it who sees the same processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def temporary(mounts: Path = _MOUNTS, chosen: Path | None = None) -> Path:
    """The directory for temporary files, or another one where that is in memory."""
    found = chosen or Path(tempfile.gettempdir())
    if _ON_DISK.is_dir() and in_memory(found, _lines(mounts)):
        return _ON_DISK
    return found


def in_memory(directory: Path, mounts: Iterable[str]) -> bool:
    """Whether files there are in memory, by the lines of the system's table of mounts.

    >>> in_memory(Path("/tmp/x"), ["/dev/vda / ext4 rw 0 0", "none /tmp tmpfs rw 0 0"])
    True
    >>> in_memory(Path("/tmpx"), ["/dev/vda / ext4 rw 0 0", "none /tmp tmpfs rw 0 0"])
    False
    """
    directory, found = directory.resolve(), ("", "")
    for line in mounts:
        _, place, kind, *_ = line.split(" ")
        # The longest is the nearest, and of those at one place the last is on top.
        if directory.is_relative_to(place) and len(place) >= len(found[0]):
            found = place, kind
    return found[1] in _IN_MEMORY


def _lines(mounts: Path) -> list[str]:
    try:
        return mounts.read_text().splitlines()
    except OSError:
        return []
