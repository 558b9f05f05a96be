"""The merger for sequence numbers and pulses: rows may be dropped, or several be made of one.

A number is *settled* when nothing of it can still arrive: either every channel is past it, or the
channel that has shown it can show no more of it. A row leaves when all smaller numbers are settled,
and no earlier, for the smaller one could still come.

How far a channel is past follows from what it has shown. A pulse p: past p. A row n: past n where
numbers do not repeat, else past n - 1 alone, since another row of n can be behind it. So of a row
that became several each leaves as it comes; what waits, until their channel has shown a greater
number or a pulse at least as great, are the numbers behind them on other channels.
"""

from __future__ import annotations

from anabranch.ordering.merged import NOTHING, Merged, Piece, numbered
from anabranch.ordering.queues import MergerStatistics, Queues
from anabranch.ordering.run import BEFORE, END, Repeats, Run


class PulseMerger:
    """Rows leave by number, as soon as no smaller number can arrive."""

    def __init__(self, channels: int, *, repeats: Repeats = Repeats.NEVER) -> None:
        """For this many channels."""
        self._queues = Queues(channels)
        self._repeated = repeats is not Repeats.NEVER
        # The seen-heap: how far each channel is past. Its least says what all channels are past.
        self._past = [BEFORE] * channels
        self._settled = BEFORE
        self._begun = (0, BEFORE)
        """A channel, and the number of which rows have left while more could come."""

    @property
    def settled(self) -> int:
        """No row of this number or a smaller one will leave any more."""
        return self._settled

    def receive(self, channel: int, run: Run) -> Merged:
        """Take a run that arrived; what can leave, leaves."""
        past = max(self._past[channel], run.pulse)
        if len(run):
            last = self._queues.put(channel, run, self._past[channel])
            past = max(past, last - 1 if self._repeated else last)
        self._past[channel] = past
        return self._release()

    def close(self, channel: int) -> Merged:
        """Nothing more comes on a channel: it is past every number."""
        self._past[channel] = END
        return self._release()

    def statistics(self) -> MergerStatistics:
        """What waits."""
        return self._queues.statistics()

    def _release(self) -> Merged:
        self._settled = max(self._settled, min(self._past))
        pieces = self._queues.cut(self._settled)
        while (further := self._further()) > self._settled:
            self._settled = further
            pieces += self._queues.cut(further)
        if self._repeated and self._settled < END:
            pieces += self._begin()
        return numbered(pieces) if pieces else NOTHING

    def _further(self) -> int:
        """The rule of the last number plus one: what follows the settled ones without a gap."""
        if not self._repeated:
            return self._queues.reach(self._settled)
        channel, number = self._begun
        if number == self._settled + 1 and self._past[channel] >= number:
            return number
        return self._queues.reach_complete(self._settled, self._past)

    def _begin(self) -> list[Piece]:
        """Rows of the first number that is not settled leave: only rows of their own can follow."""
        number = self._settled + 1
        rows = self._queues.cut(number)
        if rows:
            self._begun = (rows[0].channel, number)
        return rows
