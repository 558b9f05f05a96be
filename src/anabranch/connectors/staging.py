"""Where a Files sink keeps what it wrote and what it shows: a directory of a file system.

Names of staged files are plain; places are relative paths below the root.
"""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Protocol

from anabranch.errors import RunError

STAGING = "_staging"
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


class Staging(Protocol):
    """A place for staged and for published files."""

    def creating(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """A new staged file to write, which is whole and durable behind the context.

        Where that ends by an error, something of it may be left.
        """
        ...

    def show(self, moves: Sequence[tuple[str, str]]) -> None:
        """Give staged files their places; done again, it changes nothing, and nothing is lost.

        A file that another run left in such a place is never overwritten.
        """
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove staged files as far as they are there."""
        ...

    def names(self) -> list[str]:
        """All staged files; whoever asks begins a run."""
        ...

    def with_durability(self, *, power: bool) -> Staging:
        """The same place, that outlives a loss of power or need not."""
        ...


@dataclass(frozen=True, slots=True)
class LocalStaging:
    """A directory. A file is shown by a second name, and loses the first when that is durable."""

    root: Path
    durable: bool = True

    def __str__(self) -> str:
        """The path."""
        return str(self.root)

    @contextmanager
    def creating(self, name: str) -> Iterator[IO[bytes]]:
        """A new staged file."""
        path = self._staging / name
        with ExitStack() as stack:
            with telling("write", path):
                _make_directory(path.parent)
                file = path.open("xb")
                # What is still to be written is written by closing, also after an error.
                stack.callback(_close, file, path)
            yield file
            with telling("write", path):
                file.flush()
                if self.durable:
                    os.fsync(file.fileno())
                    _sync(path.parent)

    def show(self, moves: Sequence[tuple[str, str]]) -> None:
        """Give staged files their places."""
        paths = [(self._staging / name, self.root / place) for name, place in moves]
        with telling("publish", self.root):
            for staged, place in paths:
                _make_directory(place.parent)
                _show(staged, place)
            # Before the first name goes, the second must be on the disk.
            for directory in dict.fromkeys(place.parent for _, place in paths):
                if self.durable:
                    _sync(directory)
            for staged, _ in paths:
                staged.unlink(missing_ok=True)

    def remove(self, names: Iterable[str]) -> None:
        """Remove staged files."""
        with telling("clean up", self._staging):
            for name in names:
                (self._staging / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """All staged files."""
        with telling("clean up", self._staging):
            found = self._staging.glob("*") if self._staging.exists() else ()
            return [path.name for path in found]

    def with_durability(self, *, power: bool) -> LocalStaging:
        """Sync files and directories, or leave that to the system."""
        return replace(self, durable=power)

    @property
    def _staging(self) -> Path:
        return self.root / STAGING


def neither(name: str, staging: object) -> RunError:
    """A staged file is gone, and was not published."""
    message = f"Files: {name} is neither staged nor published"
    so = "restore the output directory, or start from an older savepoint into a new one"
    why = f"it was committed, and then removed from {staging}"
    return RunError(message, why=why, so=so)


def of_another_run(place: object) -> RunError:
    """A file is in the way, and it is not ours."""
    message = f"Files: {place} is there already, written by another run"
    so = "write into an empty directory, or resume from the checkpoint that wrote it"
    return RunError(message, so=so)


def _show(staged: Path, place: Path) -> None:
    """Give a staged file its second name, unless it has it already."""
    try:
        _link(staged, place)
    except FileNotFoundError:
        if not place.exists():
            raise neither(staged.name, staged.parent) from None
    except FileExistsError:
        if staged.exists() and not _same(staged, place):
            raise of_another_run(place) from None


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
    with telling("write", path):
        file.close()


@contextmanager
def telling(what: str, place: object) -> Iterator[None]:
    """Say what could not be done to which file."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        message = f"Files: cannot {what} {place}"
        so = "cast the column to a type that the format holds, such as String"
        raise RunError(message, why=str(error).splitlines()[0], so=so) from error
    except OSError as error:
        message = f"Files: cannot {what} {place}"
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
