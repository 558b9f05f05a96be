"""The queries of a session, and who is told of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.api.listeners import Listeners

if TYPE_CHECKING:
    from anabranch.api.query import Query


class Company:
    """Who runs, who has ended; safe from any thread."""

    def __init__(self, look_round: Callable[[], None]) -> None:
        """Nobody is here; `look_round` is called at every commit of a query."""
        self.listeners = Listeners()
        self._look_round = look_round
        self._queries: list[Query] = []
        self._ended: list[Query] = []
        """Those whose end nobody has been told of."""
        self._changed, self._open = threading.Condition(), True

    @property
    def active(self) -> list[Query]:
        """Those that run, in the order in which they were started."""
        return [query for query in self._queries if query.is_active]

    def started(self, query: Query) -> None:
        """One more is about to begin."""
        with self._changed:
            self._queries = [*self.active, query]
        self.listeners.started(query)

    def progressed(self, query: Query, progress: dict[str, Any]) -> None:
        """One has committed something."""
        self._look_round()
        self.listeners.progress(query, progress)

    def ended(self, query: Query) -> None:
        """One has ended."""
        with self._changed:
            self._ended.append(query)
            self._changed.notify_all()
        self.listeners.terminated(query)

    def next_end(self, timeout: float | None) -> Query | None:
        """Wait for one that has ended, and that was not told of; None: none has, or all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._open, timeout)
            return self._ended.pop(0) if self._ended else None

    def close(self) -> None:
        """Nobody starts any more, and nobody need wait."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
