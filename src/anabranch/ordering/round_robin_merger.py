"""The merger for round-robin: rows leave in the order in which the splitter dealt them out."""

from __future__ import annotations

from collections import deque

import numpy as np

from anabranch.ordering.merged import NOTHING, Merged, Piece, in_order
from anabranch.ordering.queues import MergerStatistics
from anabranch.ordering.run import END, Numbers, Run


class RoundRobinMerger:
    """Takes turns among channels, a block each; needs no numbers, and one row out for one in.

    Row i of a channel has a place in the output that follows from the turns alone. Rows leave up to
    the first place that is still empty.

    >>> merger = RoundRobinMerger(2, block=1)
    >>> len(merger.receive(1, Run("b", 0, 2))), len(merger.receive(0, Run("a", 0, 2)))
    (0, 4)
    """

    def __init__(self, channels: int, block: int) -> None:
        """With the splitter's channels and rows a block."""
        if channels < 1 or block < 1:
            message = f"{channels} channels, blocks of {block}: at least one of each"
            raise ValueError(message)
        self._queues: list[deque[Run]] = [deque() for _ in range(channels)]
        self._block, self._channels = block, channels
        self._received = [0] * channels
        self._left = [0] * channels
        self._end = 0
        self._ends = [channel * block for channel in range(channels)]

    def receive(self, channel: int, run: Run) -> Merged:
        """Take a run that arrived; what can leave, leaves."""
        if not len(run):
            return NOTHING
        self._queues[channel].append(run)
        self._received[channel] += len(run)
        self._ends[channel] = self._place(channel, self._received[channel])
        return self._release()

    def close(self, channel: int) -> Merged:
        """Nothing more comes on a channel: nobody waits for it."""
        self._ends[channel] = END
        return self._release()

    def statistics(self) -> MergerStatistics:
        """What waits."""
        return MergerStatistics(
            tuple(len(queue) for queue in self._queues),
            tuple(sum(len(run) for run in queue) for queue in self._queues),
        )

    def _release(self) -> Merged:
        end = min(self._ends)
        if end == self._end:
            return NOTHING
        self._end = end
        pieces: list[Piece] = []
        places: list[tuple[int, int]] = []
        for channel in range(self._channels):
            due = min(self._before(channel, end), self._received[channel])
            while self._left[channel] < due:
                run = self._take(channel, due - self._left[channel])
                places.append((self._left[channel], self._left[channel] + len(run)))
                pieces.append(Piece(channel, run))
                self._left[channel] += len(run)
        return self._merged(pieces, places) if pieces else NOTHING

    def _merged(self, pieces: list[Piece], places: list[tuple[int, int]]) -> Merged:
        if len(pieces) == 1:
            return Merged((pieces[0],))
        dealt = list(zip(pieces, places, strict=True))
        spans = [
            (self._place(piece.channel, start), self._place(piece.channel, stop - 1))
            for piece, (start, stop) in dealt
        ]
        return in_order(
            pieces, spans, lambda: [self._places(piece.channel, *span) for piece, span in dealt]
        )

    def _take(self, channel: int, most: int) -> Run:
        run = self._queues[channel].popleft()
        if len(run) <= most:
            return run
        self._queues[channel].appendleft(run.part(most, len(run)))
        return run.part(0, most)

    def _place(self, channel: int, row: int) -> int:
        """The place in the output of a channel's row."""
        turn, beside = divmod(row, self._block)
        return (turn * self._channels + channel) * self._block + beside

    def _places(self, channel: int, start: int, stop: int) -> Numbers:
        turn, beside = np.divmod(np.arange(start, stop, dtype=np.int64), self._block)
        places: Numbers = (turn * self._channels + channel) * self._block + beside
        return places

    def _before(self, channel: int, place: int) -> int:
        """How many of a channel's rows have a place before this one."""
        turn, beside = divmod(place, self._block * self._channels)
        return turn * self._block + min(max(beside - channel * self._block, 0), self._block)
