"""A row on its way: its order key, its event time beside it, its values, where it came from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

OrderKey: TypeAlias = tuple[Any, ...]
Record: TypeAlias = dict[str, Any]

BEFORE_TIME = float("-inf")
END_OF_TIME = float("inf")

RECORD_PHASE = 0
WATERMARK_PHASE = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """The record that caused a row; only the epoch where a watermark did."""

    epoch: int
    source: str | None = None
    partition: str | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `key` is `(epoch, phase, major, sub...)` (M5), `time` microseconds or None."""

    key: OrderKey
    time: int | None
    values: Record
    origin: Origin

    def with_values(self, values: Record) -> Row:
        """The same row with other columns."""
        return replace(self, values=values)

    def child(self, sub: int, values: Record) -> Row:
        """One of several rows made of this one."""
        return replace(self, key=(*self.key, sub), values=values)

    def at(self) -> int:
        """The event time, where the program's construction made sure that there is one."""
        assert self.time is not None
        return self.time


def caused_by_watermark(
    epoch: int, number: int, at: Any, order: Any, time: int | None, values: Record
) -> Row:
    """A row of phase 1; its major part is (the operator's number, a time, an order of equals)."""
    key = (epoch, WATERMARK_PHASE, (number, at, order))
    return Row(key, time, values, Origin(epoch))
