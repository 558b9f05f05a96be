"""The runs a merger holds, one queue a channel, and the heads of the queues (the next-heap).

Schneider et al. 2012 keep heaps, since their merger handles one row at a time; here the least of N
heads is looked up once a run, and a list will do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from anabranch.ordering.merged import Piece
from anabranch.ordering.run import BEFORE, END, Numbers, Run

_WINDOW = 64
"""Numbers looked at first for an unbroken sequence; four times as many next, and so on."""


@dataclass(frozen=True, slots=True)
class MergerStatistics:
    """What each channel has waiting in a merger."""

    runs: tuple[int, ...]
    rows: tuple[int, ...]


class Queues:
    """Runs of ascending numbers, cut off from their small end."""

    def __init__(self, channels: int) -> None:
        """For this many channels."""
        if channels < 1:
            message = f"{channels} channels: at least one is needed"
            raise ValueError(message)
        # With the last number of each: reading it from an array costs as much as all else here.
        self._runs: list[deque[tuple[int, Run]]] = [deque() for _ in range(channels)]
        self._heads = [END] * channels
        self._backs = [BEFORE] * channels

    def put(self, channel: int, run: Run, past: int = BEFORE) -> int:
        """Add a run of at least one row; its last number.

        Numbers never fall on a channel, and are greater than what it is past.
        """
        first, last, queue = run.first, run.last, self._runs[channel]
        if first < self._backs[channel] or first <= past:
            shown = max(self._backs[channel], past)
            message = f"channel {channel} shows {first} after it was at {shown}"
            raise ValueError(message)
        self._backs[channel] = last
        if not queue:
            self._heads[channel] = first
        queue.append((last, run))
        return last

    def cut(self, number: int) -> list[Piece]:
        """Take out all rows of this number or a smaller one; channel by channel, as they came."""
        pieces: list[Piece] = []
        for channel, head in enumerate(self._heads):
            if head <= number and self._runs[channel]:
                pieces += self._cut_channel(channel, number)
        return pieces

    def reach(self, number: int) -> int:
        """The last number of the unbroken sequence behind this one; numbers here are greater.

        Only the first run of each channel is looked at: where one was used up, ask again after a
        cut. Numbers are distinct.
        """
        following = number + 1
        if following not in self._heads:
            return number
        last, run = self._runs[self._heads.index(following)][0]
        if last - following == len(run) - 1:
            return last
        return _unbroken([queue[0][1].numbered for queue in self._runs if queue], number)

    def reach_complete(self, number: int, complete: list[int]) -> int:
        """As `reach`, where numbers repeat: only those to which nothing can be added count.

        `complete` has the greatest such number of each channel.
        """
        if number + 1 not in self._heads:
            return number
        fronts = [
            np.unique(numbers[: np.searchsorted(numbers, complete[channel], side="right")])
            for channel, queue in enumerate(self._runs)
            if queue and (numbers := queue[0][1].numbered) is not None
        ]
        return _unbroken(fronts, number)

    def statistics(self) -> MergerStatistics:
        """What waits."""
        return MergerStatistics(
            tuple(len(queue) for queue in self._runs),
            tuple(sum(len(run) for _, run in queue) for queue in self._runs),
        )

    def _cut_channel(self, channel: int, number: int) -> list[Piece]:
        queue, pieces = self._runs[channel], []
        while queue and queue[0][0] <= number:
            pieces.append(Piece(channel, queue.popleft()[1]))
        if queue and queue[0][1].first <= number:
            last, run = queue.popleft()
            count = int(np.searchsorted(run.numbered, number, side="right"))
            pieces.append(Piece(channel, run.part(0, count)))
            queue.appendleft((last, run.part(count, len(run))))
        self._heads[channel] = queue[0][1].first if queue else END
        return pieces


def _unbroken(fronts: list[Numbers], number: int) -> int:
    """How far numbers follow one another behind this one.

    As many numbers as there could be means that none is missing, so whole windows are counted and
    only the last is sorted.
    """
    width = _WINDOW
    while True:
        windows = [
            front[slice(*np.searchsorted(front, (number + 1, number + width + 1)))]
            for front in fronts
        ]
        if sum(len(window) for window in windows) < width:
            break
        number, width = number + width, width * 4
    found = np.sort(np.concatenate(windows))
    # Distinct and ascending, so once one is missing all that follow are off as well.
    there = found == np.arange(number + 1, number + 1 + len(found))
    return number + int(np.count_nonzero(there))
