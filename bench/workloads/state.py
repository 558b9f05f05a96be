"""The state that operators are handed, as far as the workloads use it, for the type checker."""

from __future__ import annotations

from typing import Any, Protocol


class State(Protocol):
    """The state of one key."""

    value: Any
    map: dict[Any, Any]

    def timer_at(self, t: Any, /) -> None:
        """Ask for `on_timer` when the watermark has come to t, of the event time's type."""
