"""Ctrl-C and SIGTERM while queries run: asked once they end in order, asked again at once.

A handler only counts. Whoever runs the queries looks at the count between two looks at them, so
nothing is ever interrupted halfway, least of all a commit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Asked(IntEnum):
    """What the user wants."""

    GO_ON = 0
    DRAIN = 1
    STOP = 2


class Interrupts:
    """How often it was asked to end, and by what."""

    def __init__(self) -> None:
        """Begin with never."""
        self._count = 0
        self._last = signal.SIGINT
        self.starting = True
        """Whether nothing runs yet that could be ended in order."""

    @property
    def asked(self) -> Asked:
        """What to do now."""
        return Asked(min(self._count, Asked.STOP))

    @property
    def code(self) -> int:
        """The exit status of a process that ended at once because of it, as shells count."""
        return 128 + self._last

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Count a signal.

        Raises:
            KeyboardInterrupt: There is nothing to end in order; or even stopping takes too long.
        """
        del frame
        self._count += 1
        self._last = signal.Signals(number)
        if self.starting or self._count > Asked.STOP:
            raise KeyboardInterrupt


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Count signals meanwhile; where there are no handlers, as in a thread, none come."""
    found = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {each: signal.signal(each, found.note) for each in SIGNALS}
    try:
        yield found
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
