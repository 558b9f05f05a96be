"""The merger for sequence numbers: a row leaves when the one before it has left."""

from __future__ import annotations

from anabranch.ordering.merged import NOTHING, Merged, Piece, numbered
from anabranch.ordering.queues import MergerStatistics, Queues
from anabranch.ordering.run import BEFORE, END, Run


class SequenceMerger:
    """Rows leave by number, each right behind the last; needs exactly one row out for one in.

    A missing number is waited for until every channel is closed.
    """

    def __init__(self, channels: int) -> None:
        """For this many channels."""
        self._queues = Queues(channels)
        self._open = set(range(channels))
        self._last = BEFORE

    def receive(self, channel: int, run: Run) -> Merged:
        """Take a run that arrived; what can leave, leaves."""
        if len(run):
            self._queues.put(channel, run)
        return self._release()

    def close(self, channel: int) -> Merged:
        """Nothing more comes on a channel."""
        self._open.discard(channel)
        return self._release()

    def statistics(self) -> MergerStatistics:
        """What waits."""
        return self._queues.statistics()

    def _release(self) -> Merged:
        pieces: list[Piece] = []
        if not self._open:
            self._last = END
            pieces += self._queues.cut(END)
        while (reached := self._queues.reach(self._last)) > self._last:
            self._last = reached
            pieces += self._queues.cut(reached)
        return numbered(pieces) if pieces else NOTHING
