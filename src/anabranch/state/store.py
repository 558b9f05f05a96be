"""Where a checkpoint is kept: files that are made once, whole, and never changed.

`create` is the fence of the whole protocol. Of any number of processes that make the same name, one
succeeds, and whoever reads the name sees all of its bytes or none.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol, TypeAlias
from uuid import uuid4

from anabranch.errors import RunError
from anabranch.state.envelope import LARGEST

Durability: TypeAlias = Literal["process", "power"]
"""What a created file outlives: the death of processes, or the loss of power as well."""


class AlreadyThere(Exception):
    """A name that was to be made exists: somebody else made it."""


class Missing(Exception):
    """A name that was to be read does not exist."""


class Store(Protocol):
    """Files by relative POSIX paths, each created once and whole."""

    def create(self, path: str, data: bytes) -> None:
        """Make a file, durably, or raise `AlreadyThere`; it is never seen in part."""
        ...

    def read(self, path: str) -> bytes:
        """All of a file, or raise `Missing`."""
        ...

    def list(self, prefix: str) -> list[str]:
        """The paths of all files that begin with `prefix`, sorted."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """The bytes of all files that begin with `prefix`, by path; one that just went is not."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file if it is there; it may come back if power is lost."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        ...

    def sweep(self) -> None:
        """Make durable what is seen, and remove what crashes left half done; a run begins with it.

        Only the owner of the lease may: a file that another process is just making is lost to it.
        """
        ...


_TEMPORARY = ".tmp-"
UNLIMITED = ("state", "tables")
"""The folders of files that may have any size; of others none is read that is too large."""
_PART = re.compile(r"[A-Za-z0-9_%~-][A-Za-z0-9_.%~-]*")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM}


class LocalStore:
    """A directory of the local file system, or of one shared by all that write.

    A file is written under another name in the same directory and linked to its own: linking fails
    where a name exists, renaming would overwrite it. Every directory on the way is opened without
    following links, so what lies outside the root is out of reach; one that everybody may write
    to, or that is somebody else's, is not used. With `durability="power"` the
    file and its directory are synced before `create` returns; a sync that fails is final for that
    file, since the kernel may have dropped what it could not write.
    """

    def __init__(self, root: str | os.PathLike[str], durability: Durability = "process") -> None:
        """Use `root`, which is made, for its owner alone, if it is not there."""
        if durability not in ("process", "power"):
            message = f"durability is 'process' or 'power', not {durability!r}"
            raise ValueError(message)
        # Tasks run elsewhere, where a relative path would mean another place.
        self.root = str(Path(root).absolute())
        self.durability = durability
        with self._telling("use", ""):
            self._make_root()

    def __repr__(self) -> str:
        """Say where, and how durable."""
        return f"LocalStore({self.root!r}, durability={self.durability!r})"

    def __str__(self) -> str:
        """The directory."""
        return self.root

    def create(self, path: str, data: bytes) -> None:
        """Make a file, durably, or raise `AlreadyThere`."""
        folders, name = _parts(path)
        with self._telling("write", path), self._folder(folders, make=True) as folder:
            try:
                self._create(folder, name, path, data)
            except FileNotFoundError:
                # A newer run swept what it took for the leavings of a dead one. It sweeps once.
                self._create(folder, name, path, data)

    def _create(self, folder: int, name: str, path: str, data: bytes) -> None:
        temporary = f"{_TEMPORARY}{name[:100]}-{uuid4().hex}"
        try:
            self._write(folder, temporary, data)
            self._link(folder, temporary, name, path)
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)

    def read(self, path: str) -> bytes:
        """All of a file, or raise `Missing`."""
        folders, name = _parts(path)
        most = None if folders and folders[0] in UNLIMITED else LARGEST
        with self._telling("read", path):
            try:
                with self._folder(folders) as folder:
                    return _read(folder, name, most)
            except FileNotFoundError:
                raise Missing(path) from None

    def list(self, prefix: str) -> list[str]:
        """The paths of all files that begin with `prefix`, sorted."""
        directory, slash, _ = prefix.rpartition("/")
        folders = folders_of(directory) if slash else ()
        with self._telling("list", prefix):
            try:
                with self._folder(folders) as folder:
                    found = list(_walk(folder, directory + slash))
            except FileNotFoundError:
                return []
        return sorted(path for path in found if path.startswith(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """The bytes of all files that begin with `prefix`, by path."""
        found = {}
        for path in self.list(prefix):
            with suppress(FileNotFoundError):
                found[path] = Path(self.root, path).lstat().st_size
        return found

    def delete(self, path: str) -> None:
        """Remove a file if it is there."""
        folders, name = _parts(path)
        with (
            self._telling("delete", path),
            suppress(FileNotFoundError),
            self._folder(folders) as folder,
        ):
            os.unlink(name, dir_fd=folder)

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        folders, name = _parts(path)
        with self._telling("look at", path):
            try:
                with self._folder(folders) as folder:
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
        return stat.S_ISREG(found.st_mode)

    def sweep(self) -> None:
        """Remove what crashes left half done, and make durable what is there."""
        with self._telling("clean up", ""), self._folder(()) as root:
            _sweep(root, sync=self.durability == "power")

    def _make_root(self) -> None:
        root = Path(self.root)
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir(mode=0o700)
        except FileExistsError:
            with self._folder(()):
                return
        if self.durability == "power":
            _sync_path(root.parent)

    @contextmanager
    def _folder(self, folders: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """A handle on a folder below the root; none of the folders on the way may be a link."""
        handle = os.open(self.root, _DIRECTORY)
        try:
            _require_private(os.fstat(handle))
            for folder in folders:
                inner = self._enter(handle, folder, make=make)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def _enter(self, handle: int, folder: str, *, make: bool) -> int:
        try:
            return _inner(handle, folder)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700, dir_fd=handle)
        if self.durability == "power":
            os.fsync(handle)
        return _inner(handle, folder)

    def _write(self, folder: int, name: str, data: bytes) -> None:
        file = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            if self.durability == "power":
                os.fsync(file)
        finally:
            os.close(file)

    def _link(self, folder: int, temporary: str, name: str, path: str) -> None:
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise AlreadyThere(path) from None
        if self.durability == "power":
            os.fsync(folder)

    @contextmanager
    def _telling(self, what: str, path: str) -> Iterator[None]:
        """Say what could not be done to which file, and what helps."""
        try:
            yield
        except OSError as error:
            message = f"checkpoint: cannot {what} {Path(self.root, path)}"
            raise RunError(message, why=_reason(error), so=_advice(error)) from error


def _inner(folder: int, name: str) -> int:
    handle = os.open(name, _DIRECTORY, dir_fd=folder)
    try:
        _require_private(os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _require_private(found: os.stat_result) -> None:
    """Refuse what others may have written, or may write while we read it.

    A group may: on many systems every user has one of his own, and makes directories for it. What
    is root's may be a volume that was made for this user, and root may use what is anybody's.
    """
    if found.st_mode & stat.S_IWOTH:
        reason = "everybody may write to it"
        raise _Refused(reason, _NOT_PRIVATE)
    if os.geteuid() not in (0, found.st_uid) and found.st_uid:
        reason = f"it belongs to another user, number {found.st_uid}"
        raise _Refused(reason, _NOT_PRIVATE)


class _Refused(OSError):
    """What the system would let us use, and what had better not be used; with what helps."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(errno.EPERM, reason)
        self.advice = advice


_NOT_PRIVATE = (
    "see who wrote what is in it, then `chmod -R o-w` the checkpoint, or run as its owner; or "
    "choose another checkpoint="
)
_NOT_OURS = (
    "nothing of Anabranch's is: see who put it there and remove it, or choose another checkpoint="
)
_NOT_WHOLE = "restore it from a copy of the checkpoint, or start from a savepoint"


def _parts(path: str) -> tuple[tuple[str, ...], str]:
    *folders, name = folders_of(path)
    return tuple(folders), name


def folders_of(path: str) -> tuple[str, ...]:
    """The parts of a path, or an error where it could lead out of a checkpoint.

    >>> folders_of("lease/1")
    ('lease', '1')
    """
    parts = tuple(path.split("/"))
    for part in parts:
        # No "..", nothing hidden, nothing empty: so no path leads out, or to a temporary file.
        if not _PART.fullmatch(part):
            message = f"not a path in a checkpoint: {path!r}"
            raise ValueError(message)
    return parts


def _read(folder: int, name: str, most: int | None) -> bytes:
    # Not waiting: opening a FIFO that somebody put there would wait for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb", buffering=0) as file:  # noqa: PTH123
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            reason = "it is not a regular file"
            raise _Refused(reason, _NOT_OURS)
        _require_private(found)
        if most is not None and found.st_size > most:
            reason = f"it has {found.st_size:,} bytes, more than any file of its kind"
            raise _Refused(reason, _NOT_WHOLE)
        if found.st_size > _memory():
            reason = f"it has {found.st_size:,} bytes, more than this machine has memory"
            raise _Refused(reason, _NOT_WHOLE)
        return file.readall()


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _walk(folder: int, prefix: str) -> Iterator[str]:
    """The paths of all regular files below, links and temporary files left out."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            handle = _inner(folder, entry.name)
            try:
                yield from _walk(handle, f"{prefix}{entry.name}/")
            finally:
                os.close(handle)
        elif entry.is_file(follow_symlinks=False):
            yield prefix + entry.name


def _sweep(folder: int, *, sync: bool) -> None:
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            handle = _inner(folder, entry.name)
            try:
                _sweep(handle, sync=sync)
            finally:
                os.close(handle)
        elif entry.name.startswith(_TEMPORARY):
            with suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=folder)
    if sync:
        os.fsync(folder)


def _sync_path(directory: Path) -> None:
    handle = os.open(directory, _DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOTDIR:
        return "a symbolic link or a file is where a directory should be"
    if error.errno == errno.ELOOP:
        return "it is a symbolic link, and none is followed"
    return error.strerror or str(error)


def _advice(error: OSError) -> str | None:
    if isinstance(error, _Refused):
        return error.advice
    return next((advice for codes, advice in _ADVICE if error.errno in codes), None)


_ADVICE = (
    (_FULL, "make room on that disk, then start again: the checkpoint is as of its last commit"),
    (_DENIED, "give this user the right to read and write there, or choose another checkpoint="),
    ({errno.EROFS}, "mount that disk so that it can be written to, or choose another checkpoint="),
    ({errno.ELOOP, errno.ENOTDIR}, "remove it, or choose another checkpoint="),
    ({errno.ENOENT}, "see whether somebody removed it, or another run is using this checkpoint"),
    (
        {errno.EIO},
        "check that disk; nothing that was not synced is counted on, so start again after",
    ),
)
