"""Event times: whole microseconds inside, the column's own type outside (M7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from anabranch.kernels.results import END
from anabranch.program.schema import TimeType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FARTHEST = 2**62
"""No event time is farther from 1970 (146,000 years): bounds of windows then fit into 64 bits."""


def shown(at: int | None, kind: TimeType | None) -> Any:
    """An event time in the column's own type; None before time, the type's last at its end.

    >>> shown(2_000_000, TimeType(pl.Int64(), 1000))
    2000
    """
    if kind is None or at is None:
        return None
    if not isinstance(kind.dtype, pl.Datetime):
        return END if at == END else at // kind.tick
    zone = None if kind.dtype.time_zone is None else ZoneInfo(kind.dtype.time_zone)
    if at == END:
        return datetime.max.replace(tzinfo=zone)
    known = _EPOCH + timedelta(microseconds=at // kind.tick * kind.tick)
    return known.replace(tzinfo=None) if zone is None else known.astimezone(zone)


def shown_column(micros: pl.Expr, kind: TimeType) -> pl.Expr:
    """A column of microseconds in the type of the event times."""
    return (micros if kind.tick == 1 else micros // kind.tick).cast(kind.dtype)


def micros_of(values: pl.Series, kind: TimeType) -> pl.Series:
    """Event times as Int64 microseconds; OverflowError where they are beyond all time."""
    physical = values.to_physical() if values.dtype.is_temporal() else values
    bounds = (physical.min(), physical.max())
    if any(each is not None and abs(each) * kind.tick > FARTHEST for each in bounds):  # type: ignore[operator,arg-type]
        message = f"an event time is beyond {FARTHEST} us from 1970"
        raise OverflowError(message)
    whole = physical if physical.dtype == pl.Int64 else physical.cast(pl.Int64)
    return whole if kind.tick == 1 else whole * kind.tick
