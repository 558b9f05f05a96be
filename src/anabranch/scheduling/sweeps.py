"""When the next window of a stream can fire: an estimate, and how far it may be off.

A watermark that makes a window fire is a sweeping one (Farhat, Daudjee, Querzoni 2021, section 2).
It comes when the network has brought it: its own event time, and a delay that is learnt from the
epochs before. "Epoch" is the paper's here: what lies between two sweeping watermarks.

What the paper says and what is done here:

* Equation 2 adds a period to a delay, and lacks the instant from which they count. Here that is the
  event time at which the window is due, so a period is not needed at all.
* Equations 3 and 5 divide a sum of n terms by n - 1. Here a mean is a mean.
* Equation 6 is the variance of a mean of delays. What is predicted is one more delay: the variance
  of a delay, and as much again for the mean that is known from h epochs only: s^2 (1 + 1 / h).
* An interval of a normal law holds less than it says of delays with a long tail (92 of 100 by a
  Zipf law of 0.99, where 95 are asked for). Here it reaches as far as delays did.
* The delays of sweeping watermarks themselves are known as well as those of all records. Once there
  are some they are what is gone by, since a watermark is not late as a record is: it is moved by
  the first record that is far enough. Until then the delays of records have to do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

HISTORY = 400
"""Epochs that count; the paper's h."""
ENOUGH = 8
"""Sweeping watermarks from which on their own delays are gone by."""


@dataclass(frozen=True, slots=True)
class Moments:
    """How many delays there were, their sum and that of their squares, in seconds."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, *delays: float) -> Moments:
        """Of these.

        >>> Moments.of(1.0, 3.0).mean, Moments.of(1.0, 3.0).variance
        (2.0, 2.0)
        """
        return cls(len(delays), sum(delays), sum(each * each for each in delays))

    def plus(self, other: Moments) -> Moments:
        """Of both."""
        return Moments(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    def minus(self, other: Moments) -> Moments:
        """Without those, which are among them."""
        return Moments(
            self.count - other.count, self.total - other.total, self.squares - other.squares
        )

    @property
    def mean(self) -> float:
        """Of one at least."""
        return self.total / self.count

    @property
    def variance(self) -> float:
        """Of a delay; 0 while there is only one."""
        if self.count < 2:
            return 0.0
        return max(0.0, (self.squares - self.total * self.mean) / (self.count - 1))


@dataclass(frozen=True, slots=True)
class Estimate:
    """When something is expected, in seconds of the wall clock, and how sure that is."""

    at: float
    deviation: float
    seen: tuple[float, ...] = ()
    """When it would have come with each of the delays that are known, in order."""

    def within(self, confidence: float) -> tuple[float, float]:
        """Where it lies with this probability, in the middle of what it may be.

        >>> [round(each, 2) for each in Estimate(10.0, 1.0).within(0.95)]
        [8.04, 11.96]

        By a normal law, and as far as delays have gone that often: few laws of delays are normal,
        and of one with a long tail so much more lies beyond the interval than the law says.
        """
        reach = self.deviation * NormalDist().inv_cdf((1 + confidence) / 2)
        first, last = self.at - reach, self.at + reach
        if not self.seen:
            return first, last
        # As many as are left out on each side, of all that were seen and the one that comes.
        out = int((len(self.seen) + 1) * (1 - confidence) / 2)
        return min(first, self.seen[max(0, out - 1)]), max(last, self.seen[-max(1, out)])


@dataclass(frozen=True, slots=True)
class Sweeps:
    """What is known of the delays of one stream; a value: each fact gives the next one."""

    records: tuple[Moments, ...] = ()
    """Delays of records, epoch by epoch, the newest last."""
    now: Moments = Moments()
    """Those of the epoch under way."""
    sweeping: tuple[float, ...] = ()
    """Delays of sweeping watermarks, the newest last."""

    def brought(self, delays: Moments) -> Sweeps:
        """After more records, whose event times are live: those of a replay say nothing."""
        return replace(self, now=self.now.plus(delays))

    def swept(self, delay: float) -> Sweeps:
        """After a sweeping watermark that came so long behind its event time."""
        epochs = (*self.records, self.now) if self.now.count else self.records
        known = (*self.sweeping, delay)
        return Sweeps(epochs[-HISTORY:], Moments(), known[-HISTORY:])

    def next(self, due: float) -> Estimate | None:
        """When the watermark comes whose event time is `due`; None: nothing is known.

        >>> sweeps = Sweeps()
        >>> for delay in (0.2, 0.4) * 10:
        ...     sweeps = sweeps.swept(delay)
        >>> found = sweeps.next(100.0)
        >>> round(found.at, 3), round(found.deviation, 3)
        (100.3, 0.105)
        """
        if len(self.sweeping) >= ENOUGH:
            found = _predicted(due, Moments.of(*self.sweeping), len(self.sweeping))
            return replace(found, seen=tuple(sorted(due + each for each in self.sweeping)))
        every = self.now
        for epoch in self.records:
            every = every.plus(epoch)
        if not every.count:
            return None
        return _predicted(due, every, max(1, len(self.records)))


def _predicted(due: float, delays: Moments, epochs: int) -> Estimate:
    return Estimate(due + delays.mean, math.sqrt(delays.variance * (1 + 1 / epochs)))
