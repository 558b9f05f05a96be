"""The four kinds of window (M9). Lengths are microseconds of event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows side by side, from multiples of their size since 1970-01-01 UTC."""

    size: int


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size that start at every multiple of the slide."""

    size: int
    slide: int


@dataclass(frozen=True, slots=True)
class SessionGap:
    """Windows that last while a key's records are less than a gap apart."""

    gap: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The last so many records of a key, at every step-th record."""

    count: int
    step: int


Window: TypeAlias = Tumbling | Sliding | SessionGap | Rows


def tumbling(size: str | timedelta) -> Tumbling:
    """Windows side by side.

    >>> tumbling("10 s")
    Tumbling(size=10000000)
    """
    return Tumbling(parse_duration(size, "tumbling: size"))


def sliding(size: str | timedelta, slide: str | timedelta) -> Sliding:
    """Windows of `size` that start every `slide`; a slide above the size leaves gaps."""
    return Sliding(parse_duration(size, "sliding: size"), parse_duration(slide, "sliding: slide"))


def session(gap: str | timedelta) -> SessionGap:
    """Windows that end when a key has been silent for `gap`."""
    return SessionGap(parse_duration(gap, "session: gap"))


def rows(n: int, step: int | None = None) -> Rows:
    """The last `n` records of a key, emitted at every `step`-th record (by default every n-th).

    >>> rows(4, step=1)
    Rows(count=4, step=1)
    """
    step = n if step is None else step
    for what, value in (("rows: n", n), ("rows: step", step)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            message = f"{what} must be a whole number of at least 1, got {value!r}"
            raise ProgramError(message)
    return Rows(n, step)


def lengths(window: Window) -> tuple[tuple[str, int], ...]:
    """The lengths of event time a window is made of, with their names."""
    match window:
        case Tumbling(size):
            return (("size", size),)
        case Sliding(size, slide):
            return (("size", size), ("slide", slide))
        case SessionGap(gap):
            return (("gap", gap),)
        case Rows():
            return ()
