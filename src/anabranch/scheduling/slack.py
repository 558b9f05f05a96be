"""How long a query may be left alone before its next window fires late (Klink, algorithm 1).

Slack is the time until the next sweeping watermark comes, less what it costs to work off what waits
before it. When it comes is not known: slack is the mean over when it may.

What the paper says and what is done here:

* Equation 9 takes what lies before now and leaves out what lies behind it: it is the other way.
* Equation 10 divides by a variance where a deviation is meant.
* The sum of algorithm 1 ends with the interval of confidence, and its shares do not add up to 1.
  Here it is divided by what they add up to. As cycles get short it becomes the mean of a normal law
  between two bounds, which needs no sum: a decision over many queries has no time for one.
* Where a watermark is overdue, so that now lies behind the interval, the sum has no terms: a query
  that is late would look like one that has nothing to do. Here its slack is what it is late by, and
  what its work costs, below zero.
* `min_sl` begins with 0 there, so that no query with any slack is ever chosen. Here the least is.
* Of several inputs the least slack counts (3.3); the greatest is there to be measured beside it: a
  join fires when the last of its inputs has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import NormalDist

from anabranch.scheduling.sweeps import Estimate

CYCLE_S = 0.12
CONFIDENCE = 0.95
"""The paper's r and f."""
_NORMAL = NormalDist()


def slack(due: Estimate, now: float, cost: float, *, sure: float = CONFIDENCE) -> float:
    """Seconds that a query may wait; below zero: it is late already.

    >>> slack(Estimate(10.0, 0.0), 4.0, 1.0)
    5.0
    >>> slack(Estimate(10.0, 0.5), 14.0, 1.0)
    -5.0
    >>> round(slack(Estimate(10.0, 0.5), 4.0, 1.0), 1)
    5.0
    """
    if due.deviation == 0.0:
        return due.at - now - cost
    first, last = due.within(sure)
    if now > last:
        return due.at - now - cost
    low, high = (max(now, first) - due.at) / due.deviation, (last - due.at) / due.deviation
    mass = _NORMAL.cdf(high) - _NORMAL.cdf(low)
    if mass <= 0:  # far out in the tail no share can be told from nothing
        return max(now, due.at) - now - cost
    mean = due.at + due.deviation * (_NORMAL.pdf(low) - _NORMAL.pdf(high)) / mass
    return min(max(mean, now), last) - now - cost


def of_inputs(
    slacks: Iterable[float], together: Callable[[Iterable[float]], float] = min
) -> float | None:
    """The slack of a query with several inputs; None: nothing is known of any.

    >>> of_inputs([2.0, 5.0]), of_inputs([2.0, 5.0], max), of_inputs([])
    (2.0, 5.0, None)
    """
    found = list(slacks)
    return together(found) if found else None
