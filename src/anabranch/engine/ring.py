"""Messages from one process to one other, through memory that both have.

A ring is a stretch of memory that bytes go round in, one sender's to one receiver. A message is its
length and its bytes; what does not fit at once goes in pieces, so a message may be of any length.

Two numbers count all bytes that ever went in (`TAIL`, the sender's) and out (`HEAD`, the
receiver's), two more tell who is about to wait. Each is written by one side alone and is one
aligned word of 8 bytes, which x86-64 and arm64 write and read in one piece. What the processor may
do in another order than it is written here (arm64 much, x86-64 a load before an earlier store) it
may not do across a fence, and there is one around every use of such a word (`SharedWords`). So they
are as if all processes took turns:

- whoever sees that `TAIL` has grown sees the bytes, and whoever sees that `HEAD` has grown may
  write over what was there;
- no wake-up is missed. Who waits says so first, and then looks once more; who changes something
  does so first, and then looks whether somebody waits. One of the two sees the other.

Nobody spins, which in Python would keep all other threads from work: who waits sleeps in the
system's `poll`, without the interpreter's lock, at a socket (the bell) that the other side writes
to. The socket is closed when the other side's process ends, however it does, and that wakes too.

Nothing has a name in a file system, so nothing is left behind by whoever is killed.
"""

from __future__ import annotations

import math
import mmap
import os
import select
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from anabranch.clock import Clock, SystemClock

ROOM = 1 << 20
"""Bytes of a ring: some tens of bundles of 300 rows."""
TAIL, HEAD, RECEIVER_WAITS, SENDER_WAITS = 0, 8, 16, 24
"""The words' places, each on a cache line of its own: two sides would wait for one line."""
_WORD = 8
_WORDS = 4 * 64
"""Bytes before the messages'."""
_LENGTH = 8
_MANY = 4096
"""Wake-ups that are taken at once; one is as good as many."""


class RingClosed(Exception):
    """The other side is gone: nothing more comes, or nobody takes what is sent."""


class Words(Protocol):
    """Numbers that both sides have; every operation is one step."""

    def load(self, at: int) -> int | None:
        """What a word holds."""

    def store(self, at: int, value: int) -> None:
        """Have a word hold this."""


class Wakes(Protocol):
    """A bell: what one side waits at and the other rings."""

    def ring(self) -> None:
        """Wake the other side, or have it not go to sleep; raises `RingClosed` if it is gone."""

    def wait(self, seconds: float | None) -> None:
        """Sleep until the other side rings, or for so long; raises `RingClosed` if it is gone."""

    def close(self) -> None:
        """Let the other side know that this one is gone."""


class SharedWords:
    """Words in shared memory; one thread of a side uses them at a time."""

    def __init__(self, memory: memoryview) -> None:
        self._words = memory.cast("Q")
        self._lock = threading.Lock()
        self._lock.acquire()

    def load(self, at: int) -> int:
        """What a word holds; nothing behind this is done before it."""
        found = self._words[at]
        self._fence()
        return found

    def store(self, at: int, value: int) -> None:
        """Have a word hold this; nothing before it is done later, and nothing behind it earlier."""
        self._fence()
        self._words[at] = value
        self._fence()

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()

    def _fence(self) -> None:
        # Python has no fence, but a lock is let go with release and taken with acquire semantics,
        # and nothing passes a release that an acquire follows: on x86-64 both are locked
        # instructions, on arm64 they are kept in order as they are.
        self._lock.release()
        self._lock.acquire()


class Bell:
    """One of two connected sockets."""

    def __init__(self, connected: socket.socket, gone: int | None = None) -> None:
        """`gone` is a descriptor that is readable when the other side's process has ended.

        Without one it is the socket that tells; it does not where a process that the other side
        has forked keeps it open.
        """
        connected.settimeout(0.0)
        self._socket, self._gone = connected, gone
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        if gone is not None:
            self._poll.register(gone, select.POLLIN)

    def ring(self) -> None:
        """Wake the other side."""
        try:
            self._socket.send(b"!", getattr(socket, "MSG_NOSIGNAL", 0))
        except BlockingIOError:
            pass  # so many wake-ups that it has not taken: it will wake
        except OSError as error:
            raise _closed() from error

    def wait(self, seconds: float | None) -> None:
        """Sleep until the other side rings, or for so long."""
        # Whole milliseconds, and not fewer than are left: else it would be called again and again.
        found = self._poll.poll(None if seconds is None else math.ceil(seconds * 1000))
        if any(descriptor == self._gone for descriptor, _ in found):
            raise _closed()
        if found:
            try:
                rung = self._socket.recv(_MANY)
            except BlockingIOError:
                return
            except OSError as error:
                raise _closed() from error
            if not rung:
                raise _closed()

    def close(self) -> None:
        """Let the other side know that this one is gone."""
        self._socket.close()


def _closed() -> RingClosed:
    message = "the process at the other end of the ring is gone"
    return RingClosed(message)


class _End:
    """What both ends of a ring do; each is used by one thread at a time."""

    def __init__(
        self, words: Words, data: memoryview, bell: Wakes, flags: tuple[int, int], clock: Clock
    ) -> None:
        """`flags` are the words that tell whether this side waits, and whether the other does."""
        self._words, self._data, self._bell, self._clock = words, data, bell, clock
        self._waits, self._other_waits = flags

    def _load(self, at: int) -> int:
        found = self._words.load(at)
        assert found is not None
        return found

    def _publish(self, at: int, value: int) -> None:
        """Let the other side have what was written, or read, up to here."""
        self._words.store(at, value)
        if self._load(self._other_waits):
            self._bell.ring()

    def _wait(self, ready: Callable[[], bool], deadline: float | None) -> None:
        """Sleep until the other side has done something, unless it is `ready` already."""
        seconds = None if deadline is None else deadline - self._clock.elapsed()
        if seconds is not None and seconds <= 0:
            message = "the process at the other end of the ring took too long"
            raise TimeoutError(message)
        self._words.store(self._waits, 1)
        try:
            if not ready():
                self._bell.wait(seconds)
        finally:
            self._words.store(self._waits, 0)

    def close(self) -> None:
        """Let the other side know that this one is gone, and let go of the memory."""
        self._bell.close()
        if isinstance(self._words, SharedWords):
            self._words.close()
        self._data.release()


class Sender(_End):
    """The end at which messages go in. `send` waits; `begin` and `push` never do."""

    def __init__(
        self, words: Words, data: memoryview, bell: Wakes, clock: Clock | None = None
    ) -> None:
        super().__init__(words, data, bell, (SENDER_WAITS, RECEIVER_WAITS), clock or SystemClock())
        self._tail = self._load(TAIL)
        self._left: deque[memoryview] = deque()

    def send(self, message: bytes | bytearray, deadline: float | None = None) -> None:
        """Have all of a message in the ring, or taken out of it already.

        Behind an exception a part of it may be, and nothing more can be sent.

        Raises:
            RingClosed: Nobody will take it.
            TimeoutError: There was no room for all of it at the deadline, on the clock's `elapsed`.
        """
        self.begin(message)
        while not self.push():
            self._wait(lambda: self._room() > 0, deadline)

    def begin(self, message: bytes | bytearray) -> None:
        """Take a message; the one before it is all in the ring."""
        assert not self._left, "one message at a time"
        length = len(message).to_bytes(_LENGTH, "little")
        self._left.extend(memoryview(each) for each in (length, message) if each)

    def push(self) -> bool:
        """Put as much of the message into the ring as there is room for; whether that is all."""
        room, tail = self._room(), self._tail
        while room and self._left:
            piece = self._left.popleft()
            at = tail % len(self._data)
            count = min(room, len(piece), len(self._data) - at)
            self._data[at : at + count] = piece[:count]
            room, tail = room - count, tail + count
            if count < len(piece):
                self._left.appendleft(piece[count:])
        if tail != self._tail:
            self._tail = tail
            self._publish(TAIL, tail)
        return not self._left

    def _room(self) -> int:
        return len(self._data) - (self._tail - self._load(HEAD))


class Receiver(_End):
    """The end at which messages come out. `receive` waits; `pull` never does."""

    def __init__(
        self, words: Words, data: memoryview, bell: Wakes, clock: Clock | None = None
    ) -> None:
        super().__init__(words, data, bell, (RECEIVER_WAITS, SENDER_WAITS), clock or SystemClock())
        self._head = self._load(HEAD)
        self._into, self._filled, self._known = bytearray(_LENGTH), 0, False

    def receive(self, deadline: float | None = None) -> bytearray:
        """The next message. What came before the other side was gone comes all the same.

        Raises:
            RingClosed: There is none, and none will come.
            TimeoutError: It was not all here at the deadline, on the clock's `elapsed`.
        """
        while (message := self.pull()) is None:
            try:
                self._wait(lambda: self._there() > 0, deadline)
            except RingClosed:
                # What it did last it may have done between our look and its end.
                if (message := self.pull()) is None:
                    raise
                return message
        return message

    def pull(self) -> bytearray | None:
        """Take what there is of one message; the message, once all of it came."""
        there, head, found = self._there(), self._head, None
        while there and found is None:
            at = head % len(self._data)
            count = min(there, len(self._into) - self._filled, len(self._data) - at)
            self._into[self._filled : self._filled + count] = self._data[at : at + count]
            there, head, self._filled = there - count, head + count, self._filled + count
            found = self._complete()
        if head != self._head:
            self._head = head
            # A sender that is gone needs no room; what it has sent comes out all the same.
            with suppress(RingClosed):
                self._publish(HEAD, head)
        return found

    def _there(self) -> int:
        return self._load(TAIL) - self._head

    def _complete(self) -> bytearray | None:
        """The message, if all of it is here; behind its length wait for its bytes."""
        if self._filled == len(self._into) and not self._known:
            self._into, self._filled = bytearray(int.from_bytes(self._into, "little")), 0
            self._known = True
        if not self._known or self._filled < len(self._into):
            return None
        found = self._into
        self._into, self._filled, self._known = bytearray(_LENGTH), 0, False
        return found


@dataclass(frozen=True, slots=True)
class Descriptors:
    """One end of a ring as a process is given it; `sender` or `receiver` opens it, once."""

    memory: int
    bell: int

    def sender(self, gone: int | None = None) -> Sender:
        """Open the end at which messages go in; `gone` as a `Bell` takes it."""
        return Sender(*self._opened(gone))

    def receiver(self, gone: int | None = None) -> Receiver:
        """Open the end at which messages come out; `gone` as a `Bell` takes it."""
        return Receiver(*self._opened(gone))

    def close(self) -> None:
        """Close an end that was not opened here: it was given to another process."""
        os.close(self.memory)
        os.close(self.bell)

    def _opened(self, gone: int | None) -> tuple[SharedWords, memoryview, Bell]:
        # The map is unmapped when its last view is released.
        view = memoryview(mmap.mmap(self.memory, 0))
        os.close(self.memory)
        bell = Bell(socket.socket(fileno=self.bell), gone)
        return SharedWords(view[:_WORDS]), view[_WORDS:], bell


def new_ring(room: int = ROOM) -> tuple[Descriptors, Descriptors]:
    """A ring of so many bytes, at least one: its sender's end and its receiver's."""
    assert room > 0
    memory = _memory(_WORDS + room)
    ours, theirs = socket.socketpair()
    return Descriptors(memory, ours.detach()), Descriptors(os.dup(memory), theirs.detach())


def _memory(size: int) -> int:
    """Memory without a name, all of it zero: it is gone with the last who has it."""
    if hasattr(os, "memfd_create"):
        found = os.memfd_create("anabranch-ring")
    else:
        with tempfile.TemporaryFile() as file:
            found = os.dup(file.fileno())
    os.truncate(found, size)
    return found
