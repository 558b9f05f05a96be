"""Timers (M12): which are due at a watermark, and in which order they fire.

A timer is a part of its key's state, numbered by its time. At the end of an epoch no timer at or
before its watermark is left, so those of an epoch are the ones between two watermarks: they are
found by bisection, and one that has fired need not be written down as gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Generic, TypeAlias, TypeVar

import polars as pl

from anabranch.kernels.results import END
from anabranch.program.schema import TimeType

LAST_INSTANT = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
    microseconds=1
)
"""The last microsecond that a datetime can show: no row is behind it."""
ENDLESS = 100_000
"""So many timers of one key in one sweep will never end: at the end of time every timer is due."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_Key = TypeVar("_Key")
_Waiting: TypeAlias = tuple[int, Any, int, _Key]


def timer_time(value: Any, kind: TimeType) -> int:
    """A timer's time in microseconds; a naive one is UTC.

    >>> timer_time(2, TimeType(pl.Int64(), 1000))
    2000
    """
    if isinstance(kind.dtype, pl.Datetime):
        if not isinstance(value, datetime):
            message = f"expected a datetime, got {value!r}"
            raise TypeError(message)
        known = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (known - _EPOCH) // _MICROSECOND
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"expected a whole number of {kind.tick} us, got {value!r}"
        raise TypeError(message)
    if abs(value * kind.tick) > END:
        message = f"a timer at {value} is beyond all time"
        raise OverflowError(message)
    return int(value) * kind.tick


def is_due(at: int, watermark: int | None) -> bool:
    """Whether a timer fires at this watermark; at the end of time all do."""
    return watermark is not None and (watermark == END or at <= watermark)


class Sweep(Generic[_Key]):
    """The timers that are due at one watermark, also those that others set while they fire."""

    def __init__(self, watermark: int | None, order: Callable[[_Key], Any]) -> None:
        """Begin with none."""
        self._watermark, self._order, self._numbers = watermark, order, count()
        self._waiting: list[_Waiting[_Key]] = []
        self._fired: Counter[int] = Counter()

    def add(self, timers: Iterable[tuple[int, _Key]]) -> None:
        """Take those of these timers that are due."""
        due = [
            (at, self._order(key), next(self._numbers), key)
            for at, key in timers
            if is_due(at, self._watermark)
        ]
        if len(due) > len(self._waiting):
            self._waiting += due
            heapify(self._waiting)
        else:
            for each in due:
                heappush(self._waiting, each)

    def __iter__(self) -> Iterator[tuple[int, _Key]]:
        """The timers in order (time, key); one that is added comes in its turn."""
        while self._waiting:
            at, _, _, key = heappop(self._waiting)
            yield at, key

    def count(self, key: _Key) -> bool:
        """Count a timer of a key that fires; False if there is no end to them."""
        self._fired[id(key)] += 1
        return self._fired[id(key)] <= ENDLESS
