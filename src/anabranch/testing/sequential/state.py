"""A key's state (M11) and its timers (M12), kept by value."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from anabranch.program.schema import TimeType
from anabranch.testing.sequential.times import micros
from anabranch.testing.sequential.values import copied

_PLAIN = (bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal)


@dataclass(slots=True)
class Kept:
    """What is kept of a key between its records."""

    value: Any = None
    list: list[Any] = field(default_factory=list)
    map: dict[Any, Any] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)
    seen: int | None = None
    """The greatest event time since the key was last empty: a time to live counts from here."""

    def copy(self) -> Kept:
        """The same by value: nothing is shared, not even between its own parts."""
        elements = [copied(each) for each in self.list]
        entries = {copied(key): copied(each) for key, each in self.map.items()}
        return Kept(copied(self.value), elements, entries, set(self.timers), self.seen)

    @property
    def empty(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return self.value is None and not self.list and not self.map and not self.timers


@dataclass(slots=True)
class State:
    """What a user's function sees of a key's state."""

    key: Any
    watermark: Any
    kept: Kept = field(repr=False)
    time: TimeType | None = field(repr=False)
    can_fire: bool = field(repr=False)

    @property
    def value(self) -> Any:
        """One value, None at first."""
        return self.kept.value

    @value.setter
    def value(self, new: Any) -> None:
        self.kept.value = new

    @property
    def list(self) -> list[Any]:
        """A list, empty at first."""
        return self.kept.list

    @list.setter  # noqa: A003 - the public name
    def list(self, new: Iterable[Any]) -> None:
        self.kept.list = [*new]

    @property
    def map(self) -> dict[Any, Any]:
        """A dict, empty at first."""
        return self.kept.map

    @map.setter  # noqa: A003 - the public name
    def map(self, new: dict[Any, Any]) -> None:
        self.kept.map = dict(new)

    def timer_at(self, t: Any) -> None:
        """Fire at the first watermark at or behind `t`; the same time once."""
        if not self.can_fire or self.time is None:
            message = "timer_at needs a KeyedOperator with on_timer, on a stream with event times"
            raise TypeError(message)
        self.kept.timers.add(micros(t, self.time))

    def clear(self) -> None:
        """Forget everything of this key, timers too."""
        self.kept.value, self.kept.list, self.kept.map = None, [], {}
        self.kept.timers = set()


def require_keepable(kept: Kept) -> None:
    """Refuse values that cannot be written down."""
    for name in ("value", "list", "map"):
        _require(getattr(kept, name), f"state.{name}")


def _require(value: Any, where: str) -> None:
    if value is None or isinstance(value, _PLAIN):
        return
    if isinstance(value, dict):
        for key, each in value.items():
            _require(key, where)
            _require(each, where)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _require(each, where)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            _require(getattr(value, each.name), where)
    else:
        message = f"{where} holds a {type(value).__name__}, which cannot be kept"
        raise TypeError(message)
