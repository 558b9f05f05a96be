"""Memory that every epoch frees and the next one asks for again.

glibc gives large blocks back to the system when they are freed, and what is asked for again comes
page by page, each of them cleared first. For arrays of some megabytes that takes longer than what
is done with them: of a join's 40 ms an epoch it was 17.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20
"""glibc takes no more for the size from which blocks are the system's own."""
_KEPT = 256 << 20


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
