"""Labels: what must not be concluded about a function, and a demonstration that this is true.

Functions are labelled behind their definition, not decorated: they are as users write them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

RECORD = {"id": 7, "x": 3, "name": "Ann", "tags": ["a", "b"], "at": 1_700_000_000}
STRENGTH = ("one", "at-most-one", "any", "unknown")

Demo = Callable[[Any], bool]
"""Takes the function; whether what it shows really happened."""


class State:
    """A key's state as a function sees it."""

    def __init__(self, key: Any = "k") -> None:
        self.key, self.watermark = key, 0
        self.clear()

    def clear(self) -> None:
        self.value: Any = None
        self.list: list[Any] = []
        self.map: dict[Any, Any] = {}
        self.timers: list[Any] = []

    def timer_at(self, at: Any) -> None:
        self.timers.append(at)


@dataclass(frozen=True)
class Case:
    """A function, and what must not be concluded about it."""

    name: str
    call: Any
    state: bool = False
    record: dict[str, Any] = field(default_factory=lambda: RECORD)
    is_safe: bool = False
    demo: Demo | None = None
    """Shows that it is unsafe."""
    why: str = ""
    """Why it is unsafe, where no demonstration is practicable."""
    least: str = "one"
    """Selectivity may be said to be this or weaker."""
    changed: tuple[str, ...] = ()
    """Columns that must not be said to be forwarded."""

    @property
    def is_unsafe(self) -> bool:
        """Whether it must not be proved."""
        return self.demo is not None or bool(self.why)


CASES: list[Case] = []


def unsafe(call: Any, demo: Demo | str, *, state: bool = False, name: str = "", **more: Any) -> Any:
    """It keeps something, reads what can change or has an effect: `proved` must be False."""
    shown = {"why": demo} if isinstance(demo, str) else {"demo": demo}
    return _added(Case(name or _name(call), call, state, **shown, **more))


def gives(call: Any, least: str, record: Any = None, *, state: bool = False, name: str = "") -> Any:
    """Of this record it gives no row ("at-most-one") or several ("any")."""
    return _added(Case(name or _name(call), call, state, record or RECORD, least=least))


def changes(
    call: Any, *columns: str, record: Any = None, state: bool = False, name: str = ""
) -> Any:
    """Of this record these columns do not leave as they came in."""
    return _added(Case(name or _name(call), call, state, record or RECORD, changed=columns))


def safe(call: Any, record: Any = None, *, state: bool = False, name: str = "") -> Any:
    """It may be proved, and should be."""
    return _added(Case(name or _name(call), call, state, record or RECORD, is_safe=True))


def rows(call: Any, record: dict[str, Any] = RECORD, state: Any = None) -> list[Any]:
    """The rows given out for one fresh record; copied at each yield, as at operators' borders."""
    on_record = getattr(call, "on_record", call)
    given = (copy.deepcopy(record),) if state is None else (copy.deepcopy(record), state)
    out = on_record(*given)
    if isinstance(out, Iterator):
        return [copy.deepcopy(row) for row in out]
    if out is None:
        return []
    return list(copy.deepcopy(out)) if isinstance(out, list | tuple) else [copy.deepcopy(out)]


def exact(value: Any) -> tuple[str, str]:
    """A value with its type: 1, 1.0 and True are three values."""
    return type(value).__name__, repr(value)


# Demonstrations


def twice(record: dict[str, Any] = RECORD, state: Callable[[], Any] = lambda: None) -> Demo:
    """Two calls with equal arguments give different rows."""
    return lambda call: repr(rows(call, record, state())) != repr(rows(call, record, state()))


def marks(*things: Any, record: dict[str, Any] = RECORD, state: bool = False) -> Demo:
    """A call changes how these things elsewhere look."""
    return touches(lambda: repr(things), record=record, state=state)


def touches(
    probe: Callable[[], Any], record: dict[str, Any] = RECORD, *, state: bool = False
) -> Demo:
    """A call changes what the probe reads."""

    def shown(call: Any) -> bool:
        before = probe()
        rows(call, record, State() if state else None)
        return bool(probe() != before)

    return shown


def between(change: Callable[[], Any], record: dict[str, Any] = RECORD) -> Demo:
    """Two calls differ when something that anybody may do was done between them."""

    def shown(call: Any) -> bool:
        before = rows(call, record)
        change()
        return before != rows(call, record)

    return shown


def per_process(call: Any) -> bool:
    """Two processes give different rows; shown for all of them together, in two processes."""
    raise NotImplementedError


def _added(case: Case) -> Any:
    assert all(case.name != other.name for other in CASES), case.name
    CASES.append(case)
    return case.call


def _name(call: Any) -> str:
    return str(getattr(call, "__name__", type(call).__name__))
