"""A place for resident tasks in this process, where they can be made to die.

The connection is a real one. A task that is killed loses it in the middle of whatever it does, and
what it had not sent is lost: as far as its driver can tell, that is how a process dies.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from anabranch.clock import Clock
from anabranch.runtime.continuous.channel import Address, Channel
from anabranch.runtime.continuous.messages import Orders
from anabranch.runtime.continuous.resident_task import reside
from anabranch.runtime.executor import JobFailed


class ThreadPlacer:
    """Runs resident tasks as threads."""

    def __init__(self, clock: Clock, slots: int = 2, most_workers: int | None = None) -> None:
        """Let tasks have so many workers, or at most so many where that is asked for."""
        self._clock, self._slots, self._most_workers = clock, slots, most_workers
        self._channel: Channel | None = None
        self.placed = 0

    @property
    def slots(self) -> int:
        """How many workers a task has."""
        return self._slots

    @property
    def most_workers(self) -> int | None:
        """As many as were said; None: threads are not counted."""
        return self._most_workers

    @property
    def host(self) -> str:
        """Here."""
        return "localhost"

    def place(self, orders: Orders, address: Address) -> Future[None]:
        """Start a task."""
        done: Future[None] = Future()
        self.placed += 1

        def run() -> None:
            try:
                channel = self._channel = Channel.to(address)
                try:
                    reside(orders, channel, self._clock)
                finally:
                    channel.close()
            except BaseException as error:  # noqa: BLE001 - as Spark tells of a task that failed
                done.set_exception(JobFailed(f"{type(error).__name__}: {error}", died=True))
            else:
                done.set_result(None)

        threading.Thread(target=run, name="anabranch-resident", daemon=True).start()
        return done

    def cancel(self) -> None:
        """Cut the connection of the task that was placed last."""
        if self._channel is not None:
            self._channel.close()

    kill = cancel

    def close(self) -> None:
        """Nothing is placed any more."""
        self.cancel()
