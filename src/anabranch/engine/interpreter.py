"""What the interpreter lets threads do."""

from __future__ import annotations

import sys


def free_threaded(interpreter: object = sys) -> bool:
    """Whether threads run Python at once: there is no interpreter's lock, or it is off.

    Where it holds, threads serve plain Python as well as evaluator processes do, and nothing has to
    be sent. A build without the lock turns it on when a module is imported that needs it, so the
    answer is good for as long as nothing more is imported.

    >>> free_threaded(object())  # older than 3.13: there always is a lock
    False
    """
    locked = getattr(interpreter, "_is_gil_enabled", None)
    return locked is not None and not locked()
