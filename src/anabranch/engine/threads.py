"""Workers as threads: for work that lets go of the interpreter's lock, as kernels on frames do.

Each asks for an operator when it has none, is given to one for a time slice, and asks again. Where
one fails, none goes on: what is behind a bundle that was lost must not leave.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch.clock import Clock
from anabranch.engine.core import Core
from anabranch.engine.estimates import Estimates
from anabranch.scheduling.pipeline_view import Choice

TIME_SLICE = 0.005
PATIENCE_S = 0.001
"""How long a worker waits that found nothing where something waits: another is at work on it."""

Size = Callable[[Any], int]
"""How many tuples a fragment has, or a bundle that is made."""


class Threads:
    """A core at work. `add` gives it bundles; `drain` waits until all have left."""

    def __init__(
        self,
        core: Core,
        choose: Choice,
        workers: int,
        clock: Clock,
        *,
        size: Size = len,
        time_slice: float = TIME_SLICE,
    ) -> None:
        """Begin; there are so many workers until `close`."""
        self._core, self._choose, self._clock = core, choose, clock
        self._size, self._time_slice = size, time_slice
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._rested = threading.Condition(lock)
        """Apart: workers at rest who told it by `_changed` would wake each other for ever."""
        self._estimates = Estimates.of(len(core.operators), clock.elapsed())
        self._most = [operator.most for operator in core.operators]
        self._idle, self._closing = 0, False
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"anabranch-worker-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, content: Mapping[int, Any]) -> int:
        """Take a bundle; its number.

        Raises:
            Exception: What went wrong in a worker, once something has.
        """
        self.refuse()
        serial = self._core.add(content)
        self._tell()
        return serial

    def do(self, content: Mapping[int, Any]) -> None:
        """Take a bundle and do all its work here, in the calling thread; raises what goes wrong.

        A small one is through before a worker is awake, and threads that share the interpreter's
        lock hold each other up. Workers may be at work beside it.
        """
        self.refuse()
        self._core.add(content)
        for at in range(len(self._core.operators)):
            for fragment in self._core.fragments(at, _never):
                bundle = self._core.operate(at, fragment)
                if bundle is not None and not self._core.put(at, bundle, self._failed):
                    self.refuse()

    def refuse(self) -> None:
        """Raise what went wrong in a worker, if something has."""
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        """Wait until nothing is left to do; raises as `add` does."""
        with self._rested:
            self._rested.wait_for(lambda: self._error is not None or self._at_rest())
        self.refuse()

    def close(self) -> None:
        """End the workers, each behind what it is at."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def estimates(self) -> Estimates:
        """What is known of the operators."""
        return self._estimates

    def _at_rest(self) -> bool:
        return self._idle == len(self._threads) and not any(self._waiting())

    def _waiting(self) -> list[int]:
        return [len(operator.worklist) for operator in self._core.operators]

    def _tell(self) -> None:
        # Who is idle has said so, under the lock, before he looked for work for the last time.
        if self._idle:
            with self._changed:
                self._changed.notify_all()

    def _run(self) -> None:
        try:
            while (at := self._next()) is not None:
                began = self._clock.elapsed()
                taken, given = self._work(at, began)
                now = self._clock.elapsed()
                with self._changed:
                    ended = self._estimates.end(at, now, now - began, taken, given)
                    self._estimates = ended
                    if not taken:
                        self._changed.wait(PATIENCE_S)
        except BaseException as error:  # noqa: BLE001 - told to who adds or drains
            with self._changed:
                self._error = self._error or error
                self._closing = True
                self._changed.notify_all()
                self._rested.notify_all()
            self._core.wake()

    def _failed(self) -> bool:
        return self._error is not None

    def _next(self) -> int | None:
        """The operator to go to; None: there is nothing more to do."""
        with self._changed:
            self._idle += 1
            try:
                while not self._closing:
                    view = self._estimates.view(self._waiting(), self._most, self._time_slice)
                    if (at := self._choose(view)) is not None:
                        self._estimates = self._estimates.begin(at)
                        return at
                    if self._at_rest():
                        self._rested.notify_all()
                    self._changed.wait()
                return None
            finally:
                self._idle -= 1

    def _work(self, at: int, began: float) -> tuple[int, int]:
        """Operate for a time slice; how many tuples were taken and made."""
        taken = given = 0
        for fragment in self._fragments(at, began):
            taken += self._size(fragment.content)
            bundle = self._core.operate(at, fragment)
            if bundle is not None:
                given += self._size(bundle.content)
                if not self._core.put(at, bundle, self._failed):
                    break
                self._tell()
        return taken, given

    def _fragments(self, at: int, began: float) -> Iterator[Any]:
        end = began + self._time_slice
        return self._core.fragments(at, lambda: self._closing or self._clock.elapsed() >= end)


def _never() -> bool:
    return False
