"""The memory of a process and of its machine.

Every epoch frees memory, and the next one asks for it again. glibc gives large blocks back to the
system when they are freed, and what is asked for again comes page by page, each of them cleared
first. For arrays of some megabytes that takes longer than what is done with them: of a join's 40 ms
an epoch it was 17.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20
"""glibc takes no more for the size from which blocks are the system's own."""
_KEPT = 256 << 20
_MEMINFO = Path("/proc/meminfo")
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_UNKNOWN = 4 << 30


@cache
def keep_freed() -> bool:
    """Let up to 256 MB stay with this process when they are freed; says whether it can be told.

    Once for a process. Where another allocator than glibc's is used nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST) and mallopt(_TRIM_THRESHOLD, _KEPT))


def machine_memory(meminfo: Path = _MEMINFO, limits: tuple[Path, ...] = _LIMITS) -> int:
    """The bytes that this machine, or the container that this process is in, has."""
    found = [_whole(meminfo), *map(_limit, limits)]
    return min((each for each in found if each), default=_UNKNOWN)


def _whole(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("MemTotal:")), None)


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max": there is none
