"""What processes of ours that are gone have left, and how it is cleared away.

Only what is certainly nobody's any more: directories whose owner holds no lock on them, temporary
checkpoints of processes that do not exist, things in the cache that can be made again and do not
work any more. What another user has, or what is not called as ours are, is not looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anabranch.clock import Clock
from anabranch.errors import CheckpointError
from anabranch.runtime.exchange import abandoned
from anabranch.spark.archive import ARCHIVES_KEPT, DRAFT_S
from anabranch.state.layout import LEASES, Lease
from anabranch.state.store import LocalStore

_JAVA = re.compile(r"java-[0-9a-f]{16}")
_JAVA_ARCHIVE = re.compile(r"(?P<home>java-[0-9a-f]{16})-.*\.jsa")


@dataclass(frozen=True, slots=True)
class Places:
    """Where we keep things for a while."""

    temporary: Path
    shared: Path
    cache: Path


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that may go, and why."""

    path: Path
    why: str

    @property
    def bytes(self) -> int:
        """How much it takes."""
        if not self.path.is_dir() or self.path.is_symlink():
            return _size(self.path)
        return sum(_size(file) for file in self.path.rglob("*"))

    def remove(self) -> bool:
        """Remove it; whether it is gone."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        return not os.path.lexists(self.path)


def leftovers(places: Places, clock: Clock) -> list[Leftover]:
    """All there are."""
    roots = {places.temporary, places.shared}
    found = [each for root in sorted(roots) for each in _of_dead_processes(root, clock)]
    return [*found, *_of_cache(places.cache, clock)]


def _of_dead_processes(root: Path, clock: Clock) -> Iterator[Leftover]:
    for path in abandoned(root):
        yield Leftover(path, "its process is gone")
    for path in _entries(root, "anabranch-checkpoint-*"):
        if _is_old(path, clock) and _is_dead(path):
            yield Leftover(path, "a temporary checkpoint, its process is gone")
    for path in _entries(root, ".anabranch-*"):
        if _is_old(path, clock):
            yield Leftover(path, "it was begun and never finished")


def _of_cache(cache: Path, clock: Clock) -> Iterator[Leftover]:
    homes = {path.name for path in _entries(cache, "java-*") if _JAVA.fullmatch(path.name)}
    broken = {name for name in homes if not _is_whole(cache / name)}
    for name in sorted(broken):
        yield Leftover(cache / name, "the Java that it leads to is gone")
    for path in _entries(cache, "java-*.jsa"):
        named = _JAVA_ARCHIVE.fullmatch(path.name)
        if named and named["home"] not in homes - broken:
            yield Leftover(path, "an archive of classes of a Java that is gone")
    for path in _entries(cache, "*.draft"):
        if _is_old(path, clock):
            yield Leftover(path, "an archive of classes that was never finished")
    yield from _archives(sorted(_entries(cache, "spark-*.jsa"), key=_written))


def _archives(found: Sequence[Path]) -> Iterator[Leftover]:
    """Those that no JVM will ever use, oldest first."""
    for at, path in enumerate(found):
        if not _size(path):
            yield Leftover(path, "an archive of classes with nothing in it")
        elif at < len(found) - ARCHIVES_KEPT:
            yield Leftover(path, "an archive of classes that newer ones have followed")


def _entries(root: Path, pattern: str) -> list[Path]:
    """This user's own."""
    with suppress(OSError):
        return sorted(path for path in root.glob(pattern) if path.lstat().st_uid == os.getuid())
    return []


def _is_old(path: Path, clock: Clock) -> bool:
    """Whether nobody has touched it for so long that nobody is just making it."""
    return clock.now() - _written(path) > DRAFT_S


def _is_dead(checkpoint: Path) -> bool:
    """Whether the process that wrote a checkpoint was here, and is no more."""
    with suppress(OSError, CheckpointError, ValueError):
        store = LocalStore(checkpoint)
        newest = max(store.list(LEASES))
        host, _, number = Lease.from_bytes(newest, store.read(newest)).holder.rpartition(":")
        return host == socket.gethostname() and not _is_alive(int(number))
    return False


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_whole(home: Path) -> bool:
    """Whether a Java's home that was prepared leads somewhere."""
    with suppress(OSError):
        links = [path for path in home.iterdir() if path.is_symlink()]
        return all(path.exists() for path in links) and (home / "bin" / "java").is_file()
    return False


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_size
    return 0


def _written(path: Path) -> float:
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0
