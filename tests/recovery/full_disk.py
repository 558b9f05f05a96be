"""A disk that is full from some byte on, or has no room for one more file, or cannot be written to.

No disk is needed for it, nor the right to mount one: the system's calls are wrapped, and those that
reach a file of this disk fail as the kernel lets them fail, the last write having been done in part.
"""

import errno
import io
import os
from pathlib import Path

CALLS = ("open", "mkdir", "link", "rename", "unlink", "write", "writev")


class Disk:
    """All files whose path `holds` says yes to; `room` is in bytes, or in calls that change something.

    `mode` "bytes": so many can still be written. "files": so many can still be made, of any size.
    "read-only": after so many changes of any kind there are no more.
    """

    def __init__(self, holds, mode, room, patch):
        self._holds, self._mode, self._room = holds, mode, room
        self._real = {name: getattr(os, name) for name in CALLS}
        self.used, self.refused = 0, 0
        for name in CALLS:
            patch.setattr(os, name, getattr(self, f"_{name}"))
        disk, real_open = self, Path.open

        def path_open(path, mode="r", *arguments, **named):
            if not disk._holds(str(path)) or not set(mode) & set("wxa"):
                return real_open(path, mode, *arguments, **named)
            disk._make()
            raw = _Raw(disk, str(path), mode)
            return raw if named.get("buffering") == 0 else io.BufferedWriter(raw)

        patch.setattr(Path, "open", path_open)

    def _left(self):
        return self._room is None or self.used < self._room

    def _take(self, amount=1):
        if not self._left():
            self.refused += 1
            code = errno.EROFS if self._mode == "read-only" else errno.ENOSPC
            raise OSError(code, os.strerror(code))
        self.used += amount

    def _make(self):
        if self._mode in ("files", "read-only"):
            self._take()

    def _change(self):
        if self._mode == "read-only":
            self._take()

    def _mine(self, path, dir_fd):
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        elif dir_fd is not None:
            path = Path(f"/proc/self/fd/{dir_fd}").readlink() / path
        return self._holds(os.fspath(path))

    def _open(self, path, flags, mode=0o777, *, dir_fd=None):
        if flags & os.O_CREAT and self._mine(path, dir_fd):
            self._make()
        return self._real["open"](path, flags, mode, dir_fd=dir_fd)

    def _mkdir(self, path, mode=0o777, *, dir_fd=None):
        if self._mine(path, dir_fd):
            self._make()
        self._real["mkdir"](path, mode, dir_fd=dir_fd)

    def _link(self, old, new, *, src_dir_fd=None, dst_dir_fd=None, follow_symlinks=True):
        if self._mine(new, dst_dir_fd):
            self._change()
        self._real["link"](
            old,
            new,
            src_dir_fd=src_dir_fd,
            dst_dir_fd=dst_dir_fd,
            follow_symlinks=follow_symlinks,
        )

    def _rename(self, old, new, **named):
        if self._mine(new, None):
            self._change()
        self._real["rename"](old, new, **named)

    def _unlink(self, path, *, dir_fd=None):
        if self._mine(path, dir_fd):
            self._change()
        self._real["unlink"](path, dir_fd=dir_fd)

    def _write(self, file, data):
        data = memoryview(data).cast("B")
        if not self._mine(file, None):
            return self._real["write"](file, data)
        if self._mode == "read-only":
            self._take()
        elif self._mode == "bytes" and data:
            room = len(data) if self._room is None else self._room - self.used
            data = data[: max(room, 0)]
            self._take(len(data) or 1)
        return self._real["write"](file, data)

    def _writev(self, file, pieces):
        if not self._mine(file, None):
            return self._real["writev"](file, pieces)
        return self._write(file, b"".join(pieces))


class _Raw(io.FileIO):
    """A file of the disk that Python writes to without asking `os`."""

    def __init__(self, disk, path, mode):
        super().__init__(path, mode)
        self._disk = disk

    def write(self, data):
        return self._disk._write(self.fileno(), data)
