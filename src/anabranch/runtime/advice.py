"""What helps when a query has failed too often, as far as the reason tells."""

from __future__ import annotations

import re

_MEMORY = re.compile(
    r"MemoryError|OutOfMemoryError|bad_alloc|malloc of size|memory allocation of|"
    r"Cannot allocate memory"
)
_DISK = re.compile(r"No space left on device|Disk quota exceeded|File too large")


def advice(reason: str) -> str | None:
    """What to do about a reason; None: nothing that could be told before.

    >>> advice("pyarrow.lib.ArrowMemoryError: malloc of size 64 failed")
    'let there be fewer rows in an epoch (max_rows of the trigger), more lanes, or more memory; ...'
    >>> advice("java.io.IOException: No space left on device")
    'make room on the disk that is named; started again, it goes on behind its last commit'
    >>> advice("ZeroDivisionError: division by zero") is None
    True
    """
    again = "started again, it goes on behind its last commit"
    if _MEMORY.search(reason):
        helps = "let there be fewer rows in an epoch (max_rows of the trigger), more lanes, or "
        return f"{helps}more memory; {again}"
    return f"make room on the disk that is named; {again}" if _DISK.search(reason) else None
