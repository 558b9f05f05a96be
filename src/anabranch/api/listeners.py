"""Who is told of all queries of a session, in the form of Spark's listeners."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.api.query import Query

_LOG = logging.getLogger("anabranch")


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a query; the names are those of Spark's events."""

    id: str
    runId: str
    name: str
    progress: dict[str, Any] | None = None
    exception: str | None = None


class Listeners:
    """All of them; what goes wrong in one is logged, and harms nobody else."""

    def __init__(self) -> None:
        """Nobody listens."""
        self._all: tuple[Any, ...] = ()

    def add(self, listener: Any) -> None:
        """Tell it from now on."""
        self._all = (*self._all, listener)

    def remove(self, listener: Any) -> None:
        """Tell it no more."""
        self._all = tuple(each for each in self._all if each is not listener)

    def started(self, query: Query) -> None:
        """A query begins."""
        self._tell("onQueryStarted", Event(query.id, query.run_id, query.name))

    def progress(self, query: Query, progress: dict[str, Any]) -> None:
        """A query has committed something."""
        event = Event(query.id, query.run_id, query.name, progress)
        self._tell("onQueryProgress", event)

    def terminated(self, query: Query) -> None:
        """A query has ended."""
        error = query.exception()
        text = None if error is None else str(error)
        self._tell("onQueryTerminated", Event(query.id, query.run_id, query.name, exception=text))

    def _tell(self, method: str, event: Event) -> None:
        for listener in self._all:
            call = getattr(listener, method, None)
            try:
                if call is not None:
                    call(event)
                elif callable(listener) and event.progress is not None:
                    listener(event.progress)
            except Exception:  # noqa: BLE001 - a listener harms no query
                _LOG.exception("a listener failed at %s of %s", method, event.name)
