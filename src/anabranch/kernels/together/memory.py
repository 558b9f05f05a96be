"""Memory that every epoch frees and the next one asks for again.

glibc gives back to the system what is free at the end of its heap as soon as that is more than
twice the largest block freed so far, and blocks larger than all of those it never keeps. What is
asked for again then comes page by page, each of them cleared first: for arrays of some megabytes
that takes longer than what is done with them.
"""

from __future__ import annotations

import numpy as np

_LARGEST = 2**25 - 2**16
"""Of larger blocks glibc learns nothing."""


def keep_freed(size: int) -> None:
    """Let about twice so many bytes stay with the process when they are freed.

    A block that is freed untouched costs no more than two calls of the system, once: it is what the
    allocator learns from. Where another one is used nothing happens.
    """
    np.empty(min(size, _LARGEST), np.uint8)
