"""Splitters: which channel a row goes to, its sequence number, and pulses on all channels.

A splitter takes a bundle only when the one before has been sent: what it holds is bounded by one
bundle. Pulses are counted in rows, and those that fall into one bundle are sent as one, the last,
behind each channel's last run of it: runs arrive whole, so the earlier ones would say no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from anabranch.ordering.outbox import Outbox, OutboxStatistics, WhenFull
from anabranch.ordering.run import BEFORE, Numbers, Run, Taken

PULSE_EVERY = 4
"""Rows of each channel between two pulses.

By `./x bench ordering`: up to the length of a run the interval costs nothing, and in runs of one
row 4 costs little more than 64, while the merger holds fewer rows.
"""

Channels = npt.NDArray[np.integer]
"""The channel of each row."""


class Strategy(Enum):
    """How the merger behind a region puts rows in order, and so what its splitter adds to them."""

    ROUND_ROBIN = "round-robin"
    SEQUENCE = "sequence"
    PULSES = "sequence+pulses"


class _Splitter:
    """What splitters share: an outbox, and nothing taken while it is not empty."""

    def __init__(self, channels: int, when_full: WhenFull) -> None:
        self._outbox = Outbox(channels, when_full)
        self._channels = channels

    @property
    def blocked(self) -> bool:
        """Whether something is still to be sent; until then nothing is taken."""
        return self._outbox.blocked

    def send(self, room: Sequence[int] | None = None) -> list[tuple[int, Run]]:
        """The runs that go out now, with their channels, as `Outbox.send`."""
        return self._outbox.send(room)

    def statistics(self) -> OutboxStatistics:
        """What waits for room."""
        return self._outbox.statistics()

    def _require_sent(self) -> None:
        if self._outbox.blocked:
            message = "a splitter takes no rows while some of those before are not sent"
            raise ValueError(message)


class _NumberingSplitter(_Splitter):
    """Counts rows from 0, and sends a pulse on all channels once so many have been counted."""

    def __init__(
        self, channels: int, strategy: Strategy, pulse_every: int, when_full: WhenFull
    ) -> None:
        super().__init__(channels, when_full)
        if pulse_every < 1:
            message = f"a pulse every {pulse_every} rows: at least 1"
            raise ValueError(message)
        self._strategy = strategy
        # Schneider et al. 2012, 5.2: it grows with the channels, so each sees as many rows.
        self._period = pulse_every * channels
        self._next = 0

    def flush(self) -> None:
        """The input has run dry for now: a pulse behind all that was taken."""
        if self._strategy is Strategy.PULSES:
            self._outbox.flush()

    def _count(self, rows: int) -> None:
        self._next += rows
        if self._strategy is Strategy.PULSES:
            self._outbox.rise(self._next - 1)
            self._outbox.pulse(self._next // self._period * self._period - 1)


class RoundRobinSplitter(_NumberingSplitter):
    """Blocks of consecutive rows to one channel after another: for regions without state.

    >>> splitter = RoundRobinSplitter(2, block=2, strategy=Strategy.PULSES, pulse_every=1)
    >>> splitter.split("bundle", 5)
    >>> for channel, run in splitter.send():
    ...     print(channel, run.start, run.stop, run.numbers, run.pulse)
    0 0 2 [0 1] -1
    0 4 5 [4] 3
    1 2 4 [2 3] 3
    """

    def __init__(
        self,
        channels: int,
        block: int,
        *,
        strategy: Strategy = Strategy.ROUND_ROBIN,
        pulse_every: int = PULSE_EVERY,
        when_full: WhenFull = WhenFull.PULSE,
    ) -> None:
        """With this many rows a block; a merger for round-robin has to know it too."""
        super().__init__(channels, strategy, pulse_every, when_full)
        if block < 1:
            message = f"blocks of {block} rows: at least 1"
            raise ValueError(message)
        self._block = block

    def split(self, rows: object, count: int) -> None:
        """Take so many rows of a bundle; a block may go on in the next bundle."""
        self._require_sent()
        at, number = 0, self._next
        while at < count:
            turn, done = divmod(number, self._block)
            size = min(self._block - done, count - at)
            run = Run(rows, at, at + size, self._numbers(number, size))
            self._outbox.put(turn % self._channels, run)
            at, number = at + size, number + size
        self._count(count)

    def _numbers(self, first: int, size: int) -> Numbers | None:
        if self._strategy is Strategy.ROUND_ROBIN:
            return None
        return np.arange(first, first + size, dtype=np.int64)


class KeyedSplitter(_NumberingSplitter):
    """Each row to the channel its key belongs to, which the caller has computed."""

    def __init__(
        self,
        channels: int,
        *,
        strategy: Strategy = Strategy.PULSES,
        pulse_every: int = PULSE_EVERY,
        when_full: WhenFull = WhenFull.PULSE,
    ) -> None:
        """Round-robin is refused: a merger could not know whose turn it is."""
        if strategy is Strategy.ROUND_ROBIN:
            message = "rows routed by key do not come back in turns: number them"
            raise ValueError(message)
        super().__init__(channels, strategy, pulse_every, when_full)

    def split(self, rows: object, channels: Channels) -> None:
        """Take a bundle of as many rows as there are channels given."""
        self._require_sent()
        for channel, places in enumerate(_divided(channels, self._channels)):
            if len(places):
                run = Run(Taken(rows, places), 0, len(places), places + self._next)
                self._outbox.put(channel, run)
        self._count(len(channels))


class ShuffleSplitter(_Splitter):
    """Routes rows that have numbers already, and sends each pulse it gets on all channels.

    It makes no pulses, but for those before it would wait for a full channel.
    """

    def __init__(self, channels: int, *, when_full: WhenFull = WhenFull.PULSE) -> None:
        """For this many channels behind it."""
        super().__init__(channels, when_full)
        self._last = BEFORE

    def route(self, run: Run, channels: Channels) -> None:
        """Take a run; `channels` has the channel of each of its rows.

        A number that repeats is refused: on several channels its rows would lose their order.
        """
        self._require_sent()
        self._require_distinct(run)
        for channel, places in enumerate(_divided(channels, self._channels)):
            if len(places):
                taken = Taken(run.rows, places + run.start)
                self._outbox.put(channel, Run(taken, 0, len(places), run.numbered[places]))
        self._outbox.rise(max(self._last, run.pulse))
        self._outbox.pulse(run.pulse)

    def _require_distinct(self, run: Run) -> None:
        if not len(run):
            return
        numbers = run.numbered
        if run.first <= self._last or bool((numbers[1:] == numbers[:-1]).any()):
            message = "rows of one number, or numbers that fall: give rows their `order_keys`"
            raise ValueError(message)
        self._last = run.last


def _divided(channels: Channels, count: int) -> list[Numbers]:
    """The places of each channel's rows, ascending."""
    if len(channels) and not 0 <= int(channels.min()) <= int(channels.max()) < count:
        message = f"channels {int(channels.min())} to {int(channels.max())}: there are {count}"
        raise ValueError(message)
    if count == 1:
        return [np.arange(len(channels), dtype=np.int64)]
    return [np.flatnonzero(channels == channel) for channel in range(count)]
