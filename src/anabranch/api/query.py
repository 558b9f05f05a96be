"""A program that runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import Any, Protocol, final

from anabranch.errors import AnabranchError, RunError
from anabranch.observe.facts import Facts
from anabranch.observe.notebook import as_html
from anabranch.observe.waits import Shape
from anabranch.observe.watching import Watching
from anabranch.observe.why import why
from anabranch.runtime.continuous.loop import ContinuousLoop
from anabranch.runtime.loop import Loop
from anabranch.runtime.savepoint import savepoint
from anabranch.state.stores import place_of

_POLL_S = 0.02
"""How long a query without work waits before it looks at its source again."""
_REMEMBERED = 100
_INITIALIZING, _WAITING = "Initializing sources", "Waiting for data to arrive"
_PROCESSING, _NEXT = "Processing new data", "Waiting for next trigger"
"""What Spark's own queries say, so that those who read it need learn nothing new."""


class Company(Protocol):
    """Who is told of a query by itself, in its own thread but for its start."""

    def started(self, query: Query) -> None:
        """It is about to begin."""
        ...

    def progressed(self, query: Query, progress: dict[str, Any]) -> None:
        """It has committed something."""
        ...

    def ended(self, query: Query) -> None:
        """It has ended, and has its error, if there is one."""
        ...


@final
class Query:
    """One running program: its own thread drives it from cycle to cycle."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a query is made of
        self,
        name: str,
        identity: str,
        loop: Loop | ContinuousLoop,
        explanation: str,
        close: Callable[[], None],
        shape: Shape | None = None,
        notes: tuple[str, ...] = (),
        run_id: str | None = None,
        watching: Watching | None = None,
        company: Company | None = None,
    ) -> None:
        """Begin to run; users call `program.start(...)`.

        `id` is the same in all runs of one checkpoint, `run_id` is this run's. `notes` say what has
        changed since the runs before, as far as it may. `company` are those it shares Spark with.
        """
        self.name, self.id, self.notes = name, identity, notes
        self.run_id = run_id or identity
        self._loop, self._explanation, self._close = loop, explanation, close
        self._shape = shape
        self._progress: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._asked: deque[Callable[[], None]] = deque()
        self._wake, self._ended = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._begun = False
        self._totals, self._watching = _Totals(), watching or Watching()
        self._company = company
        loop.on_progress = self._note
        if company is not None:
            company.started(self)
        self._thread = threading.Thread(target=self._live, name=f"anabranch-{name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        """Say which query and how it is."""
        return f"<Query {self.name!r}: {self.status['message']}>"

    def _repr_html_(self) -> str:
        """Notebooks show its figures, and what it waits for."""
        return as_html(self._facts(), self.statistics(), self.last_progress, self.why())

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing, in the form of Spark's."""
        facts = self._facts()
        waiting = any(source.rows for source in facts.sources)
        active = not facts.ended and bool(facts.epochs)
        return {
            "message": self._message(facts, waiting=waiting),
            "isDataAvailable": not facts.ended and (active or waiting),
            "isTriggerActive": active,
        }

    def _message(self, facts: Facts, *, waiting: bool) -> str:
        if facts.ended:
            return "Stopped" if facts.error is None else f"Failed: {facts.error}"
        if not self._begun:
            return _INITIALIZING
        if facts.epochs:
            return _PROCESSING
        return _NEXT if waiting else _WAITING

    def why(self) -> str:
        """What it is waiting for, in words: who holds the watermark, and what would release it."""
        return why(self._facts(), self._shape)

    def _facts(self) -> Facts:
        error = None if self._error is None else str(self._error)
        return replace(self._loop.facts(), ended=not self.is_active, error=error)

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
        """Wait until all that the sources hold now is committed."""
        reached = threading.Event()
        self._ask(lambda: self._loop.when_caught_up(reached.set))
        self._wait_for(reached)

    def rescale(self, n: int) -> None:
        """Go on with `n` lanes; returns when the first commit at the new width is there.

        Where the query ends before that, or has ended, it returns as well.
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            message = f"rescale: the number of lanes must be at least 1, got {n!r}"
            raise RunError(message)
        if n > self._loop.slices:
            message = f"rescale: {n} lanes cannot share {self._loop.slices} slices"
            so = "take fewer; how many slices there are is said at the first start of a checkpoint"
            raise RunError(message, so=so)
        self._loop.refuse_width(n)
        reached = threading.Event()
        self._ask(lambda: self._loop.rescale(n, reached.set))
        self._wait_for(reached)

    def savepoint(self, path: str | PathLike[str]) -> None:
        """Copy the state and the place in the log, as of the last commit, to `path`.

        The query goes on. A program that is started with `checkpoint=path` goes on from there.
        """
        target = place_of(path)
        taken, failed = threading.Event(), list[AnabranchError]()

        def take() -> None:
            try:
                savepoint(self._loop.checkpoint, target)
            except AnabranchError as error:
                failed.append(error)
            finally:
                taken.set()

        self._ask(take)
        self._wait_for(taken)
        if failed:
            raise failed[0]
        if not taken.is_set():
            message = "savepoint: the query is over"
            raise RunError(message, so="its checkpoint= is as good as a savepoint now")

    def stop(self, drain: bool = True) -> None:  # noqa: FBT001, FBT002 - the public form
        """End it: with `drain` behind what is planned, else at once; what is committed stays.

        Returns when it has ended; called by the query's own function on the driver, at once.
        """
        if not drain:
            self._loop.abandon()
        self._ask(lambda: self._loop.stop(drain=drain))
        if threading.current_thread() is self._thread:
            return  # a sink's function asks for it: it ends when that has returned
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
        """Totals since the start, and how things are: see `last_progress` for the newest commit."""
        facts = self._facts()
        return {
            **self._totals.told(),
            "epochsUnderWay": len(facts.epochs),
            "lastCommitted": facts.committed,
            "failures": facts.failures,
        }

    def _note(self, progress: dict[str, Any]) -> None:
        told = {"id": self.id, "runId": self.run_id, **progress}
        self._totals.add(told)
        self._progress.append(told)
        self._watching.note(told)
        if self._company is not None:
            self._company.progressed(self, told)

    def _live(self) -> None:
        try:
            self._loop.warm_up()
            while not self._loop.over:
                self._wake.clear()
                while self._asked:
                    self._asked.popleft()()
                idle = not self._loop.over and not self._loop.step()
                self._begun = True
                if idle:
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
            self._watching.close()
            self._ended.set()
            if self._company is not None:
                self._company.ended(self)


class _Totals:
    """Figures of all commits since the start.

    They are replaced, never changed: other threads read them.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        names = ("epochs", "rows", "commits", "lateRows", "failedRows", "jobs")
        self._counts = dict.fromkeys(names, 0)
        self._time: dict[str, float] = {}

    def add(self, progress: dict[str, Any]) -> None:
        """Add a commit's."""
        ours = progress["anabranch"]
        first, last = ours["epochs"]
        counts = self._counts
        self._counts = {
            "epochs": counts["epochs"] + last - first + 1,
            "rows": counts["rows"] + progress["numInputRows"],
            "commits": counts["commits"] + 1,
            "lateRows": counts["lateRows"] + ours["lateRows"],
            "failedRows": counts["failedRows"] + ours["failedRows"],
            "jobs": counts["jobs"] + ours["jobs"],
        }
        spent = self._time
        self._time = {
            name: round(spent.get(name, 0.0) + more, 3) for name, more in ours["timeMs"].items()
        }

    def told(self) -> dict[str, Any]:
        """All of them, and where time went."""
        return {**self._counts, "timeMs": dict(self._time)}
