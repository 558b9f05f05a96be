"""A program that runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, final

from anabranch.errors import AnabranchError, RunError
from anabranch.runtime.loop import Loop

_POLL_S = 0.02
"""How long a query without work waits before it looks at its source again."""
_REMEMBERED = 100


@final
class Query:
    """One running program: its own thread drives it from cycle to cycle."""

    def __init__(
        self,
        name: str,
        identity: str,
        loop: Loop,
        explanation: str,
        close: Callable[[], None],
    ) -> None:
        """Begin to run; users call `program.start(...)`."""
        self.name, self.id = name, identity
        self._loop, self._explanation, self._close = loop, explanation, close
        self._progress: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._asked: deque[Callable[[], None]] = deque()
        self._wake, self._ended = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._idle = False
        self._totals = {"epochs": 0, "rows": 0, "commits": 0}
        loop.on_progress = self._note
        self._thread = threading.Thread(target=self._live, name=f"anabranch-{name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        """Say which query and how it is."""
        return f"<Query {self.name!r}: {self.status['message']}>"

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing, in the form of Spark's."""
        if not self.is_active:
            message = "Stopped" if self._error is None else f"Failed: {self._error}"
        else:
            message = "Waiting for data to arrive" if self._idle else "Processing new data"
        active = self.is_active and not self._idle
        return {"message": message, "isDataAvailable": active, "isTriggerActive": active}

    @property
    def last_progress(self) -> dict[str, Any] | None:
        """The newest commit's figures."""
        return self._progress[-1] if self._progress else None

    @property
    def recent_progress(self) -> list[dict[str, Any]]:
        """The figures of the last hundred commits."""
        return list(self._progress)

    def explain(self) -> str:
        """How the program runs."""
        return self._explanation

    def exception(self) -> Exception | None:
        """The error that ended it."""
        return self._error

    def await_termination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end; raises the query's error. With a timeout (s): whether it ended."""
        ended = self._ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return ended if timeout is not None else None

    def process_all_available(self) -> None:
        """Wait until all that the source holds now is committed."""
        reached = threading.Event()
        self._ask(lambda: self._loop.when_caught_up(reached.set))
        self._wait_for(reached)

    def rescale(self, n: int) -> None:
        """Go on with `n` lanes; returns when the first commit at the new width is there."""
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            message = f"rescale: the number of lanes must be at least 1, got {n!r}"
            raise RunError(message)
        reached = threading.Event()
        self._ask(lambda: self._loop.rescale(n, reached.set))
        self._wait_for(reached)

    def stop(self, drain: bool = True) -> None:  # noqa: FBT001, FBT002 - the public form
        """End it: with `drain` behind what is planned, else at once; what is committed stays."""
        if not drain:
            self._loop.abandon()
        self._ask(lambda: self._loop.stop(drain=drain))
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _ask(self, what: Callable[[], None]) -> None:
        self._asked.append(what)
        self._wake.set()

    def _wait_for(self, reached: threading.Event) -> None:
        while not reached.wait(0.1):
            if self._ended.is_set():
                if self._error is not None:
                    raise self._error
                return

    def statistics(self) -> dict[str, Any]:
        """Totals since the start: epochs, rows and commits."""
        return dict(self._totals)

    def _note(self, progress: dict[str, Any]) -> None:
        first, last = progress["anabranch"]["epochs"]
        self._totals["epochs"] += last - first + 1
        self._totals["rows"] += progress["numInputRows"]
        self._totals["commits"] += 1
        self._progress.append(progress)

    def _live(self) -> None:
        try:
            self._loop.warm_up()
            while not self._loop.over:
                self._wake.clear()
                while self._asked:
                    self._asked.popleft()()
                self._idle = not self._loop.over and not self._loop.step()
                if self._idle:
                    self._wake.wait(_POLL_S)
        except AnabranchError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - a query's error belongs to who waits for it
            self._error = RunError(f"the query failed: {type(error).__name__}: {error}")
            self._error.__cause__ = error
        finally:
            self._finish()

    def _finish(self) -> None:
        try:
            self._loop.close()
            self._close()
        except Exception as error:  # noqa: BLE001 - the first error is the one that counts
            self._error = self._error or error
        finally:
            self._ended.set()
