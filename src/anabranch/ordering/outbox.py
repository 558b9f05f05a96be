"""What a splitter has to send, and how it waits where a channel is full.

A splitter that waits for a full channel can wait for ever: the merger holds that channel's rows
until another one says something, and the other one drops all it gets and has no pulse due. So,
before waiting, every other channel is told by a pulse how far the splitter is. Then the merger
lacks nothing, what it holds can leave, and the full channel moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from anabranch.ordering.run import BEFORE, Run


class WhenFull(Enum):
    """What a splitter does before it waits for a full channel."""

    PULSE = "pulse"
    """It tells every other channel how far it is."""
    WAIT = "wait"
    """It waits. Only for channels without bound, and to show what happens otherwise."""


@dataclass(frozen=True, slots=True)
class OutboxStatistics:
    """How many runs wait for each channel, and how many pulses were sent before waiting."""

    waiting: tuple[int, ...]
    extra_pulses: int


class Outbox:
    """Runs in the order of each channel, sent as far as there is room."""

    def __init__(self, channels: int, when_full: WhenFull = WhenFull.PULSE) -> None:
        """For this many channels."""
        if channels < 1:
            message = f"{channels} channels: at least one is needed"
            raise ValueError(message)
        self._waiting: list[deque[Run]] = [deque() for _ in range(channels)]
        self._pulsed = [BEFORE] * channels
        self._when_full = when_full
        self._extra_pulses = 0
        self._level = BEFORE

    @property
    def blocked(self) -> bool:
        """Whether something is still to be sent."""
        return any(self._waiting)

    def put(self, channel: int, run: Run) -> None:
        """Add a run behind those of its channel."""
        self._waiting[channel].append(run)

    def rise(self, level: int) -> None:
        """From now on no row of this number or a smaller one is put."""
        self._level = max(self._level, level)

    def pulse(self, number: int) -> None:
        """Send a pulse on every channel, behind the last run that waits for it, or alone."""
        for channel, waiting in enumerate(self._waiting):
            if number <= self._pulsed[channel]:
                continue
            if waiting:
                waiting[-1] = waiting[-1].carrying(number)
            else:
                waiting.append(Run.bare(number))
            self._pulsed[channel] = number

    def flush(self) -> None:
        """The input has run dry: every channel is to know how far it went."""
        self.pulse(self._level)

    def send(self, room: Sequence[int] | None = None) -> list[tuple[int, Run]]:
        """What goes out now, with its channel; `room` is how many runs each channel can take.

        Called again whenever there is more room, until nothing is `blocked`. A channel for which
        nothing waits is sent one pulse while another is full, as soon as it has room.
        """
        sent: list[tuple[int, Run]] = []
        for channel, waiting in enumerate(self._waiting):
            count = len(waiting) if room is None else min(len(waiting), room[channel])
            sent += [(channel, waiting.popleft()) for _ in range(count)]
        if room is not None and self._when_full is WhenFull.PULSE and self.blocked:
            used = [channel for channel, _ in sent]
            free = [places > used.count(channel) for channel, places in enumerate(room)]
            sent += self._pulses_before_waiting(free)
        return sent

    def statistics(self) -> OutboxStatistics:
        """What waits, and what waiting has cost."""
        return OutboxStatistics(tuple(len(each) for each in self._waiting), self._extra_pulses)

    def _pulses_before_waiting(self, free: list[bool]) -> list[tuple[int, Run]]:
        """Nothing waits for a channel that has room left, so the pulse is true of it."""
        told = [
            channel
            for channel, has_room in enumerate(free)
            if has_room and self._pulsed[channel] < self._level
        ]
        for channel in told:
            self._pulsed[channel] = self._level
        self._extra_pulses += len(told)
        return [(channel, Run.bare(self._level)) for channel in told]
