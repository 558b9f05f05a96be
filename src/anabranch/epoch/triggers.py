"""When epochs are cut: `ab.epochs`, `ab.available_now`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration


@dataclass(frozen=True, slots=True)
class Trigger:
    """`every` in microseconds; `max_rows` a partition; bounded: it ends with what is there."""

    every: int
    max_rows: int | None = None
    bounded: bool = False


def epochs(every: str | timedelta = "1 s", max_rows: int | None = None) -> Trigger:
    """An epoch every so often, of at most so many rows a partition, for ever.

    >>> epochs("500 ms").every
    500000
    """
    return Trigger(parse_duration(every, "epochs: every"), _rows(max_rows, "epochs"))


def available_now(max_rows: int | None = None) -> Trigger:
    """All that is there now, in epochs of at most so many rows a partition; then the query ends."""
    return Trigger(0, _rows(max_rows, "available_now"), bounded=True)


def _rows(given: int | None, what: str) -> int | None:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        message = f"{what}: max_rows must be a whole number of at least 1, got {given!r}"
        raise ProgramError(message)
    return given
