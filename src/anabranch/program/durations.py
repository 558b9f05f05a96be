"""Lengths of event time, as whole microseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from anabranch.errors import ProgramError

MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}

_FORM = re.compile(r"^\s*(\d+)\s*([a-z]+)\s*$")


def parse_duration(value: str | timedelta, what: str, *, zero: bool = False) -> int:
    """Turn a duration into microseconds, or refuse it by its name.

    >>> parse_duration("10 s", "size")
    10000000
    """
    micros = _micros(value, what)
    if micros < 0 or (micros == 0 and not zero):
        message = f"{what} must be a positive duration, got {value!r}"
        raise ProgramError(message, so='write it like "10 s" or "500 ms"')
    return micros


def _micros(value: str | timedelta, what: str) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    found = _FORM.match(value) if isinstance(value, str) else None
    if found is None or found[2] not in MICROSECONDS:
        message = f"{what} is no duration: {value!r}"
        so = 'write it like "10 s", "500 ms", "5 min", "1 h", "1 d", or pass a timedelta'
        raise ProgramError(message, so=so)
    return int(found[1]) * MICROSECONDS[found[2]]
