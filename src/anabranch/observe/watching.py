"""Those who watch a query from outside: whatever befalls them, it goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from anabranch.clock import Clock
from anabranch.config import Address, Outlets
from anabranch.errors import AnabranchError
from anabranch.observe.facts import Facts
from anabranch.observe.metrics import Metrics
from anabranch.observe.progress_file import ProgressFile

_LOG = logging.getLogger("anabranch")


class Watcher(Protocol):
    """One who is told of every commit, by the query's thread."""

    def note(self, progress: Mapping[str, Any]) -> None:
        """Take a commit's figures."""
        ...

    def close(self) -> None:
        """The query is over."""
        ...


class Watching:
    """All watchers of a query. One that fails is told of once, and left out from then on."""

    def __init__(self, watchers: Sequence[Watcher] = ()) -> None:
        """Begin with these."""
        self._watchers = list(watchers)

    def note(self, progress: Mapping[str, Any]) -> None:
        """Tell all of a commit."""
        for watcher in tuple(self._watchers):
            if not _told_if_failed(partial(watcher.note, progress)):
                self._watchers.remove(watcher)
                _told_if_failed(watcher.close)

    def close(self) -> None:
        """Tell all that the query is over."""
        while self._watchers:
            _told_if_failed(self._watchers.pop().close)


def _told_if_failed(call: Callable[[], None]) -> bool:
    """Whether it went well; else it is told."""
    try:
        call()
    except AnabranchError as error:
        _tell(error)
    except Exception:  # noqa: BLE001 - nothing that watches a query may end it
        _LOG.exception("what watches a query has failed; the query goes on without it")
    else:
        return True
    return False


def _tell(error: AnabranchError) -> None:
    _LOG.warning("%s", error)


def watching(name: str, outlets: Outlets, facts: Callable[[], Facts], clock: Clock) -> Watching:
    """Those whom the configuration asks for; one that cannot be had is told of and left out.

    `facts` are asked for from any thread.
    """
    found: list[Watcher] = []
    if (address := outlets.metrics) is not None:
        _told_if_failed(lambda: found.append(_Shown(name, address, facts, clock)))
    if outlets.progress is not None:
        found.append(ProgressFile(name, outlets.progress, _tell))
    if outlets.telemetry:
        _told_if_failed(lambda: found.append(_told(name, facts, clock)))
    return Watching(found)


def _told(name: str, facts: Callable[[], Facts], clock: Clock) -> Watcher:
    """A query's figures through OpenTelemetry, which need not be installed."""
    try:
        from anabranch.observe.telemetry import Told, telemetry
    except ImportError as error:
        message = f"telemetry of {name!r} is not given: OpenTelemetry is not installed"
        so = "the query goes on; to have it, pip install 'anabranch[otel]', else leave "
        so += "ANABRANCH_OTEL (--otel of anabranch run) out"
        raise AnabranchError(message, so=so) from error
    return Told(name, telemetry(), lambda: len(facts().epochs), clock)


class _Shown:
    """A query's figures where Prometheus reads them."""

    def __init__(
        self, name: str, address: Address, facts: Callable[[], Facts], clock: Clock
    ) -> None:
        # A server is slow to import, and most queries have none.
        from anabranch.observe.endpoint import hide, show

        self._metrics, self._facts = Metrics(name), facts
        self._hide = partial(hide, show(address, clock, name, self._now), name)

    def _now(self) -> Metrics:
        """As of the last commit, but for what is under way: between commits that says most."""
        return replace(self._metrics, epochs_under_way=len(self._facts().epochs))

    def note(self, progress: Mapping[str, Any]) -> None:
        self._metrics = self._metrics.after(progress)

    def close(self) -> None:
        self._hide()
