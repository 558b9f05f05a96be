"""Event times: microseconds inside, the column's own type outside (M7, api: `event_time`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from anabranch.program.schema import TimeType
from anabranch.testing.sequential.row import BEFORE_TIME, END_OF_TIME

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST_WHOLE = 2**63 - 1

LAST_INSTANT = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The last microsecond that a datetime can show."""


def micros(value: Any, kind: TimeType) -> int:
    """An event time as microseconds since 1970-01-01 UTC; a naive one is UTC."""
    if isinstance(kind.dtype, pl.Datetime):
        if not isinstance(value, datetime):
            message = f"expected a datetime, got {value!r}"
            raise TypeError(message)
        known = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (known - _EPOCH) // _MICROSECOND
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"expected a whole number of {kind.tick} us, got {value!r}"
        raise TypeError(message)
    return value * kind.tick


def shown(at: float, kind: TimeType | None) -> Any:
    """An event time in the column's own type; None before time, the type's last at its end."""
    if kind is None or at == BEFORE_TIME:
        return None
    if not isinstance(kind.dtype, pl.Datetime):
        return _LAST_WHOLE if at == END_OF_TIME else int(at) // kind.tick
    zone = None if kind.dtype.time_zone is None else ZoneInfo(kind.dtype.time_zone)
    if at == END_OF_TIME:
        return datetime.max.replace(tzinfo=zone)
    known = _EPOCH + timedelta(microseconds=int(at) // kind.tick * kind.tick)
    return known.replace(tzinfo=None) if zone is None else known.astimezone(zone)
