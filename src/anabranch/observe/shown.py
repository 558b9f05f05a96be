"""Times and lengths as people read them. Event times are microseconds since 1970-01-01 UTC."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from anabranch.epoch.watermarks import END_OF_TIME
from anabranch.ids import Partition

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_END = "+294247-01-10T04:00:54.775Z"
"""The end of time, as Java shows this many microseconds."""

_MOST = 5
"""Names in a row; who has more partitions is told how many."""

_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def moment(micros: int | None) -> str:
    """An event time or watermark, in UTC.

    >>> moment(1_500_000), moment(None), moment(2**63 - 1)
    ('1970-01-01 00:00:01.500', 'none yet', 'the end of time')
    """
    if micros is None:
        return "none yet"
    if micros >= END_OF_TIME:
        return "the end of time"
    try:
        found = _BEGIN + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us"
    fine = "milliseconds" if found.microsecond % 1000 == 0 else "microseconds"
    return found.replace(tzinfo=None).isoformat(
        " ", timespec="seconds" if found.microsecond == 0 else fine
    )


def instant(micros: int) -> str:
    """A time as Spark's progress has it: ISO 8601 in UTC, milliseconds.

    >>> instant(1_500_000)
    '1970-01-01T00:00:01.500Z'
    """
    if micros >= END_OF_TIME:
        return _END
    try:
        found = _BEGIN + timedelta(microseconds=micros)
    except OverflowError:
        return str(micros)
    return found.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def length(seconds: float) -> str:
    """A length of time in its largest unit, and the next one where that says more.

    >>> [length(each) for each in (0.0421, 3, 42.6, 90, 3600, 200_000)]
    ['42 ms', '3 s', '42.6 s', '1 min 30 s', '1 h', '2 d 7 h']
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    at = next(at for at, (size, _) in enumerate(_UNITS) if seconds >= size)
    (size, unit), (less, smaller) = _UNITS[at], _UNITS[at + 1]
    whole, rest = divmod(seconds, size)
    small = int(rest // less)
    return f"{whole:.0f} {unit}" + (f" {small} {smaller}" if small else "")


def listed(things: Iterable[object]) -> str:
    """Some things in a row, as in a sentence; of many only the first.

    >>> listed([0]), listed("ab"), listed("abc"), listed(range(1000))
    ('0', 'a and b', 'a, b and c', '0, 1, 2, 3 and 996 more')
    """
    names = [str(thing) for thing in things]
    if len(names) > _MOST:
        names = [*names[: _MOST - 1], f"{len(names) - _MOST + 1} more"]
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def partitions(found: Iterable[Partition]) -> str:
    """Some partitions by name.

    >>> partitions([1]), partitions([0, 1])
    ('partition 1', 'partitions 0 and 1')
    """
    names = list(found)
    return f"partition{'s' if len(names) > 1 else ''} {listed(names)}"
