"""A source's watermark, epoch by epoch (M4). Times are microseconds; None is before all time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.ids import Partition

END_OF_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SourceTime:
    """How far event time has come in a source."""

    partitions: tuple[Partition, ...]
    lateness: int
    timed: bool = True
    watermark: int | None = None
    greatest: Mapping[Partition, int] = field(default_factory=dict)
    finished: frozenset[Partition] = frozenset()

    def after(
        self,
        greatest: Mapping[Partition, int | None],
        *,
        idle: frozenset[Partition] = frozenset(),
        finished: frozenset[Partition] = frozenset(),
        hint: int | None = None,
    ) -> SourceTime:
        """What it is at the end of an epoch in which these times were the greatest.

        >>> time = SourceTime((0, 1), lateness=2)
        >>> time.after({0: 10}).watermark is None  # partition 1 has not spoken
        True
        >>> time.after({0: 10, 1: 7}).watermark
        5
        >>> time.after({0: 10}, finished=frozenset({1})).watermark
        8
        """
        known = dict(self.greatest)
        for partition, time in greatest.items():
            if time is not None:
                known[partition] = max(time, known.get(partition, time))
        done = self.finished | finished
        return replace(
            self,
            greatest=known,
            finished=done,
            watermark=self._watermark(known, done, idle, hint),
        )

    def _watermark(
        self,
        greatest: Mapping[Partition, int],
        finished: frozenset[Partition],
        idle: frozenset[Partition],
        hint: int | None,
    ) -> int | None:
        if finished.issuperset(self.partitions):
            return END_OF_TIME
        live = [p for p in self.partitions if p not in finished and p not in idle]
        candidates = [self.watermark, hint]
        if live and all(partition in greatest for partition in live):
            candidates.append(min(greatest[partition] for partition in live) - self.lateness)
        return max((each for each in candidates if each is not None), default=None)
