r"""Rows on their way from head tasks to lanes: how tasks see it, and as files on one host.

A *parts file* is what one head task made of one epoch, divided by lane:

    anabranch parts 1\n
    then for each lane a header of 48 bytes and the blob:
        run 16 bytes | epoch i64 | map i32 | lane i32 | length i64 | crc32c u32 | 4 bytes of zero

It is written beside its place and renamed, so a file with its name is whole. Files lie in an
`OwnedDirectory`: private to the user, held by a lock for as long as its owner lives, so that
whoever comes later can tell what a dead run left from what a living one uses. The lock is the
kernel's: it needs no process ids, which containers that share a file system do not share.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from crc32c import crc32c

from anabranch.errors import AnabranchError, RunError

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - directories made in it are private
# Containers often have 64 MB there, which one epoch may fill.
ROOM = 2 << 30

BLOB = "blob"
"""Under this name a part that came to the driver has its blob in it."""

_MAGIC = b"anabranch parts 1\n"
_HEADER = struct.Struct("<16sqiiqI4x")
_OWNER = "owner"
_NAME = re.compile(r"anabranch-(?P<what>[a-z]+)-[0-9a-f]{12}")
_FILE = re.compile(r"(?P<epoch>\d+)_(?P<map>\d+)_(?P<attempt>[0-9A-Za-z-]+)\.parts")


class PartError(AnabranchError):
    """A part that is not what its reference says: lost, cut short, damaged, or another's."""

    @classmethod
    def of(cls, file: str, lane: int, why: str) -> PartError:
        """Name the part and say what is wrong with it."""
        return cls(f"the part of lane {lane} in {Path(file).name} cannot be used", why=why)


class Exchange(Protocol):
    """How a task hands blobs to lanes and gets those that are for its own."""

    def write(self, name: PartName, parts: Mapping[int, bytes]) -> dict[str, Any]:
        """Hand over blobs, by lane; returns what they are found by, as a value for JSON."""
        ...

    def read(self, part: Mapping[str, Any], lane: int) -> bytes | None:
        """The blob of a lane, or None if there is none for it; raises `PartError`."""
        ...


@dataclass(frozen=True, slots=True)
class FileExchange:
    """Parts as files of one host."""

    directory: Path

    def write(self, name: PartName, parts: Mapping[int, bytes]) -> dict[str, Any]:
        """Write a file of its own, whoever else tries the same."""
        own = replace(name, attempt=f"{name.attempt}-{uuid4().hex}")
        return write_parts(self.directory, own, parts).as_json()

    def read(self, part: Mapping[str, Any], lane: int) -> bytes | None:
        """Read what was written."""
        return read_part(Reference.from_json(part), lane)


@dataclass(frozen=True, slots=True)
class PartName:
    """Whose parts these are: the attempt makes two tries of the same work two files.

    >>> PartName("run-1", 7, 0, "a1").file
    '7_0_a1.parts'
    """

    run: str
    epoch: int
    map: int
    attempt: str

    def __post_init__(self) -> None:
        """Refuse what would not be found again."""
        if not _FILE.fullmatch(self.file):
            message = f"no name for a parts file: {self.file!r}"
            raise ValueError(message)

    @property
    def file(self) -> str:
        """The name of the file within its directory."""
        return f"{self.epoch}_{self.map}_{self.attempt}.parts"


@dataclass(frozen=True, slots=True)
class Reference:
    """Where parts are: small, and made of JSON values, since it travels through the driver.

    >>> reference = Reference("/dev/shm/x/7_0_a1.parts", "run-1", 7, 0, {0: (18, 100)})
    >>> Reference.from_json(reference.as_json()) == reference
    True
    """

    path: str
    run: str
    epoch: int
    map: int
    places: Mapping[int, tuple[int, int]]
    """Offset of the header and length of the blob, by lane; a lane without a part is absent."""
    node: str = ""
    """Where it was made; whoever hands it over says so."""

    def as_json(self) -> dict[str, Any]:
        """As a value for `json.dumps`."""
        places = {str(lane): list(place) for lane, place in self.places.items()}
        return {
            "path": self.path,
            "run": self.run,
            "epoch": self.epoch,
            "map": self.map,
            "places": places,
            "node": self.node,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Reference:
        """The reference that such a value stands for."""
        places = {int(lane): (int(at), int(size)) for lane, (at, size) in value["places"].items()}
        made = (value["path"], value["run"], value["epoch"], value["map"])
        return cls(*made, places, value.get("node", ""))

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(length for _, length in self.places.values())


@dataclass(frozen=True, slots=True)
class OwnedDirectory:
    """A directory of this process, readable by this user alone, gone when it is removed.

    If the process dies first, `sweep` in a later one removes it.
    """

    path: Path
    _lock: int

    @classmethod
    def create(cls, what: str, root: Path) -> OwnedDirectory:
        """Make one in `root`; `what` is a word that is part of its name."""
        # Locked before it has its name: a sweeper never sees it without its owner.
        draft = Path(tempfile.mkdtemp(prefix=".anabranch-", dir=root))
        lock = os.open(draft / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = root / f"anabranch-{what}-{secrets.token_hex(6)}"
        draft.rename(path)
        return cls(path, lock)

    def remove(self) -> None:
        """Remove it with all that is in it; a second time does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._lock)


def exchange_directory(shared: Path = SHARED_MEMORY, room: int = ROOM) -> OwnedDirectory:
    """A directory for parts: in memory where there is room, else where temporary files are."""
    root = exchange_root(shared, room)
    with _telling(root):
        sweep(root, "exchange")
        return OwnedDirectory.create("exchange", root)


def exchange_root(shared: Path = SHARED_MEMORY, room: int = ROOM) -> Path:
    """Where parts are best kept on this machine."""
    try:
        if os.access(shared, os.W_OK | os.X_OK) and shutil.disk_usage(shared).free >= room:
            return shared
    except OSError:
        pass
    return Path(tempfile.gettempdir())


def sweep(root: Path, what: str) -> list[Path]:
    """Remove this user's directories of this kind whose owners are gone; says which they were."""
    gone = []
    for path in root.iterdir():
        named = _NAME.fullmatch(path.name)
        if named and named["what"] == what and _abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
            gone.append(path)
    return gone


def abandoned(root: Path) -> list[Path]:
    """This user's directories of any kind whose owners are gone; they are left as they are."""
    try:
        found = sorted(root.iterdir())
    except OSError:
        return []
    return [path for path in found if _NAME.fullmatch(path.name) and _abandoned(path)]


def write_parts(directory: Path, name: PartName, parts: Mapping[int, bytes]) -> Reference:
    """Write the blobs of one head task; the file appears whole or not at all."""
    path = directory / name.file
    run, places, at = _digest(name.run), {}, len(_MAGIC)
    pieces: list[bytes] = [_MAGIC]
    for lane, blob in parts.items():
        crc = crc32c(blob)
        pieces += (_HEADER.pack(run, name.epoch, name.map, lane, len(blob), crc), blob)
        places[lane] = (at, len(blob))
        at += _HEADER.size + len(blob)
    draft = path.with_suffix(".draft")
    with _telling(directory):
        try:
            with draft.open("xb", buffering=0) as file:
                _write_all(file.fileno(), pieces)
            draft.rename(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
    return Reference(str(path), name.run, name.epoch, name.map, places)


def read_part(reference: Reference, lane: int) -> bytes | None:
    """The blob of a lane, or None if there is none for it.

    Raises:
        PartError: The file is gone, cut short, damaged, or of another run, epoch or task.
    """
    if lane not in reference.places:
        return None
    at, length = reference.places[lane]
    try:
        file = os.open(reference.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PartError.of(reference.path, lane, str(error.strerror)) from error
    try:
        found = _read_all(file, _HEADER.size + length, at)
    finally:
        os.close(file)
    if len(found) < _HEADER.size + length:
        raise PartError.of(reference.path, lane, f"it has {len(found)} bytes")
    blob = found[_HEADER.size :]
    expected = _HEADER.pack(
        _digest(reference.run), reference.epoch, reference.map, lane, length, crc32c(blob)
    )
    if found[: _HEADER.size] != expected:
        raise PartError.of(reference.path, lane, "it is damaged or another's")
    return blob


def clear_epochs(directory: Path, before: int) -> int:
    """Remove the parts of all epochs before this one, drafts too; says how many files."""
    with _telling(directory):
        files = list(_older(directory, before))
        for file in files:
            file.unlink(missing_ok=True)
    return len(files)


def _older(directory: Path, before: int) -> Iterator[Path]:
    for entry in directory.iterdir():
        named = _FILE.fullmatch(entry.with_suffix(".parts").name)
        if named and int(named["epoch"]) < before:
            yield entry


def _abandoned(path: Path) -> bool:
    """Whether nobody holds it; another user's is none of our business."""
    try:
        if path.is_symlink() or path.stat().st_uid != os.getuid():
            return False
        lock = os.open(path / _OWNER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)


@contextmanager
def _telling(directory: Path) -> Iterator[None]:
    """Say where rows could not be handed over, and what helps."""
    try:
        yield
    except OSError as error:
        message = f"rows cannot be handed from task to task in {directory}"
        so = "make room there, or let TMPDIR name a directory with more; then start again"
        raise RunError(message, why=str(error.strerror or error), so=so) from error


def _digest(run: str) -> bytes:
    return hashlib.blake2b(run.encode(), digest_size=16).digest()


def _write_all(file: int, pieces: list[bytes]) -> None:
    # One system call where it can be; the kernel takes up to 1024 pieces and 2 GiB at once.
    rest = [memoryview(piece) for piece in pieces if piece]
    while rest:
        done = os.writev(file, rest[:512])
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if done:
            rest[0] = rest[0][done:]


def _read_all(file: int, size: int, at: int) -> bytes:
    """So many bytes, or all there are: the kernel gives 2 GiB less a page at once, at most."""
    found = os.pread(file, size, at)
    while len(found) < size and (more := os.pread(file, size - len(found), at + len(found))):
        found += more
    return found
