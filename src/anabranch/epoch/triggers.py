"""When epochs are cut: `ab.epochs`, `ab.available_now`, `ab.continuous`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration


@dataclass(frozen=True, slots=True)
class Trigger:
    """`every` in microseconds; `max_rows` a partition; bounded: it ends with what is there.

    `checkpoint_every` in microseconds, where the program is resident in one long task.
    """

    every: int
    max_rows: int | None = None
    bounded: bool = False
    checkpoint_every: int | None = None


def epochs(every: str | timedelta = "1 s", max_rows: int | None = None) -> Trigger:
    """An epoch every so often, of at most so many rows a partition, for ever.

    >>> epochs("500 ms").every
    500000
    """
    return Trigger(parse_duration(every, "epochs: every"), _rows(max_rows, "epochs"))


def available_now(max_rows: int | None = None) -> Trigger:
    """All that is there now, in epochs of at most so many rows a partition; then the query ends."""
    return Trigger(0, _rows(max_rows, "available_now"), bounded=True)


def continuous(
    every: str | timedelta = "5 ms", checkpoint_every: str | timedelta = "10 s"
) -> Trigger:
    """Rows as soon as they are there, in milliseconds: the program is resident in one long task.

    What was read is written to the log `every` so often, and all is committed `checkpoint_every`
    so often. A sink sees rows after their commit, or at once if it is one that shows them early.

    >>> continuous().checkpoint_every
    10000000
    """
    log = parse_duration(every, "continuous: every")
    commit = parse_duration(checkpoint_every, "continuous: checkpoint_every")
    if commit < log:
        message = f"continuous: checkpoint_every must be at least every, got {checkpoint_every!r}"
        raise ProgramError(message, so='write it like ab.continuous("5 ms", "10 s")')
    return Trigger(log, checkpoint_every=commit)


def _rows(given: int | None, what: str) -> int | None:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        message = f"{what}: max_rows must be a whole number of at least 1, got {given!r}"
        raise ProgramError(message)
    return given
