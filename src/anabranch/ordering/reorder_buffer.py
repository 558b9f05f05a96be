"""The non-blocking reorder buffer: outputs leave by serial number, and nobody waits for who sends.

After Prasaad, Ramalingam, Rajan 2018, "Scaling Ordered Stream Processing on Shared-Memory
Multicores", figure 4 and theorem 3.1. Theirs calls itself where another output has come meanwhile;
here that is a loop, since a stack is bounded and a busy stream is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from anabranch.ordering.atomics import ATOMICS, Atomics

T = TypeVar("T")


class ReorderBuffer(Generic[T]):
    """A bounded circular buffer of outputs that are made and may not leave yet.

    Output t leaves, by `forward(t, output)`, when all before it have left, and by one worker at a
    time. An output may be many rows: what one input gives leaves as one unit.
    """

    def __init__(
        self, size: int, forward: Callable[[int, T], None], atomics: Atomics = ATOMICS
    ) -> None:
        """For outputs from 0 on, `size` of them at a time."""
        if size < 1:
            message = f"a reorder buffer of {size} outputs: at least one is needed"
            raise ValueError(message)
        self._size, self._forward = size, forward
        self._next = atomics.counter()
        self._cells = atomics.cells(size)
        self._sending = atomics.flag()
        self._moved, self._waiters = threading.Condition(), atomics.counter()
        self.refused = 0
        """How many were sent too early; a figure, not counted exactly."""

    @property
    def next(self) -> int:
        """The number of the output that is the next to leave."""
        return self._next.load()

    def fits(self, serial: int) -> bool:
        """Whether there is room for an output, now and until it is added."""
        return serial < self._next.load() + self._size

    def send(self, serial: int, output: T) -> bool:
        """Add an output, if it fits, and have all leave that may; whether it was added.

        One that is refused is to be sent again. Never waits: where another worker has outputs
        leave, that one takes this along.
        """
        added = self.add(serial, output)
        self._send_pending()
        return added

    def add(self, serial: int, output: T) -> bool:
        """Add an output, if it fits; whether it was. It leaves when somebody has it leave."""
        reached = self._next.load()
        if serial < reached:
            message = f"output {serial} is sent again: {reached} is the next"
            raise ValueError(message)
        if serial >= reached + self._size:
            self.refused += 1
            return False
        self._cells.store(serial % self._size, (output,))
        return True

    def leaving(self) -> Iterator[tuple[int, T]]:
        """Have all leave that may, each when the next is asked for; none if another worker does.

        Who begins goes on until it has ended: until then nobody else has outputs leave.
        """
        while self._sending.take():
            serial = self._next.load()
            moved = False
            while (held := self._cells.load(serial % self._size)) is not None:
                yield serial, held[0]
                self._forward(serial, held[0])
                self._cells.store(serial % self._size, None)
                self._next.add(1)
                serial, moved = serial + 1, True
            self._sending.clear()
            if moved:
                self._tell()
            # One may have come after the look above: who brought it found the flag set, and left.
            if self._cells.load(serial % self._size) is None:
                return

    def put(self, serial: int, output: T, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Send an output; where it does not fit, have others leave, then wait until it does.

        False: it was not added, since `stopped` said so; whoever changes what that says wakes those
        who wait.
        """
        while not self.send(serial, output):
            self._wait(serial, stopped)
            if stopped():
                return False
        return True

    def wake(self) -> None:
        """Have those who wait for room look whether they still should."""
        with self._moved:
            self._moved.notify_all()

    def _send_pending(self) -> None:
        for _ in self.leaving():
            pass

    def _tell(self) -> None:
        # Who waits has said so before he looked at `next`, and `next` has moved before this look.
        if self._waiters.load():
            with self._moved:
                self._moved.notify_all()

    def _wait(self, serial: int, stopped: Callable[[], bool]) -> None:
        self._waiters.add(1)
        try:
            with self._moved:
                self._moved.wait_for(lambda: self.fits(serial) or stopped())
        finally:
            self._waiters.add(-1)
