"""Work that a lane's process does beside its tasks: its results are there when they are.

State is a value, so it can be written, or another made, while the lane goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Aside(Protocol):
    """Who does it."""

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Do it, now or later; one piece after the other."""
        ...


class AtOnce:
    """Does it when asked: the same each time, for tests."""

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Do it now."""
        done: Future[_T] = Future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - told where the result is asked for
            done.set_exception(error)
        return done


class InThread:
    """Does it in a thread of its own."""

    def __init__(self) -> None:
        """Begin without one."""
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Do it behind what was asked for before."""
        if self._pool is None:
            # Made where it is used: a process that is forked has no threads of its parent's.
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="anabranch-aside")
        return self._pool.submit(work)
