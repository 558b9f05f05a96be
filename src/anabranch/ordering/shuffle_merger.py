"""The merger between two parallel regions: numbers are kept, and each pulse goes on once."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import replace

from anabranch.ordering.merged import Merged
from anabranch.ordering.pulse_merger import PulseMerger
from anabranch.ordering.queues import MergerStatistics
from anabranch.ordering.run import BEFORE, Run


class ShuffleMerger:
    """As `PulseMerger`; what leaves carries the greatest pulse that is true of it.

    Every splitter before it sends a copy of every pulse. One goes on, as soon as nothing up to its
    number can leave any more, which may be before the last copy is here; the others are dropped.
    Else the last of s regions would get N ** s of them (Schneider et al. 2012, 4.4).
    """

    def __init__(self, channels: int) -> None:
        """For this many channels; numbers are distinct, as a `ShuffleSplitter` wants them."""
        self._merger = PulseMerger(channels)
        self._pulses: list[int] = []
        self._forwarded = BEFORE

    def receive(self, channel: int, run: Run) -> Merged:
        """Take a run that arrived; what can leave, leaves."""
        self._note(run.pulse)
        return self._pulsed(self._merger.receive(channel, run))

    def close(self, channel: int) -> Merged:
        """Nothing more comes on a channel."""
        return self._pulsed(self._merger.close(channel))

    def statistics(self) -> MergerStatistics:
        """What waits."""
        return self._merger.statistics()

    def _note(self, pulse: int) -> None:
        at = bisect_right(self._pulses, pulse)
        if pulse > self._forwarded and (at == 0 or self._pulses[at - 1] != pulse):
            insort(self._pulses, pulse)

    def _pulsed(self, merged: Merged) -> Merged:
        true = bisect_right(self._pulses, self._merger.settled)
        if not true:
            return merged
        self._forwarded = self._pulses[true - 1]
        del self._pulses[:true]
        return replace(merged, pulse=self._forwarded)
