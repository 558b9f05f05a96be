"""How many rows are read and worked on at once: the size of bundles where rows come in.

Larger bundles cost less a row; smaller ones keep more evaluators busy, and their rows need not wait
for others. No output shows how rows are bundled. A policy is a value: what is learned of a cycle
gives the next one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, Self


class Bundles(Protocol):
    """Decides how an epoch's rows are divided."""

    def size(self, rows: int | None, splits: int) -> int | None:
        """The most rows of a bundle, for an epoch of so many rows in so many splits.

        `rows` is None where it is not known. None: splits are left as the source planned them.
        """

    def learn(self, rows: int, seconds: float) -> Self:
        """The policy behind a cycle that read so many rows in so long."""


@dataclass(frozen=True, slots=True)
class StreamBoxBundles:
    """The rule of StreamBox (Miao et al. 2017, section 8).

    As many bundles of an epoch as there are evaluators, of at most 80,000 rows; halved for every
    10 % that rows come in more slowly than they did at best; at least 1,000 rows.

    >>> policy = StreamBoxBundles(evaluators=4)
    >>> policy.size(100_000, splits=1), policy.size(10**6, splits=1), policy.size(100, splits=1)
    (25000, 80000, 1000)
    >>> slower = policy.learn(1000, 1.0).learn(809, 1.0)
    >>> slower.size(10**6, splits=1)
    20000
    """

    evaluators: int
    most: int = 80_000
    least: int = 1_000
    best: float = 0.0
    """Rows a second, at most so far."""
    rate: float = 0.0

    def size(self, rows: int | None, splits: int) -> int:
        """The most rows of a bundle."""
        del splits
        even = self.most if rows is None else math.ceil(rows / self.evaluators)
        return max(self.least, min(self.most, even) >> self._halvings())

    def learn(self, rows: int, seconds: float) -> StreamBoxBundles:
        """Note how fast rows come in; a cycle that read none says nothing."""
        if not rows or seconds <= 0:
            return self
        rate = rows / seconds
        return replace(self, rate=rate, best=max(self.best, rate))

    def _halvings(self) -> int:
        """How often the rate has fallen by 10 % since it was best."""
        if not self.best:
            return 0
        # A little more than 10 % is 10 %: rates are measured.
        return int(math.log(self.rate / self.best, 0.9) + 1e-9)


@dataclass(frozen=True, slots=True)
class EvenBundles:
    """As few bundles as keep all evaluators busy, of whatever size.

    Kernels here work on columns: what a bundle costs whatever its size is worth tens of thousands
    of rows, and no container is the smaller for smaller bundles, since lanes take whole epochs. So
    splits are cut only where there are fewer than evaluators.

    >>> policy = EvenBundles(evaluators=4)
    >>> policy.size(10**6, splits=2), policy.size(10**6, splits=8), policy.size(3_000, splits=1)
    (250000, None, 10000)
    """

    evaluators: int
    least: int = 10_000

    def size(self, rows: int | None, splits: int) -> int | None:
        """The most rows of a bundle."""
        if rows is None or splits >= self.evaluators:
            return None
        return max(self.least, math.ceil(rows / self.evaluators))

    def learn(self, rows: int, seconds: float) -> EvenBundles:
        """There is nothing to learn."""
        del rows, seconds
        return self
