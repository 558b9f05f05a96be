"""Committed output on its way out: in log order, each sink on its own, one epoch at a time.

An entry is published once it is *cleared*: somebody looked, after its commit, that no newer run
owns the checkpoint. A commit is acknowledged when it and all before it are published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple


class _Entry(NamedTuple):
    number: int
    epoch: int
    messages: tuple[Any, ...]


class Outbox:
    """What is committed and not yet acknowledged.

    >>> outbox = Outbox()
    >>> outbox.put(4, "out", 7, ("a",))
    >>> outbox.ask()
    True
    >>> outbox.clear()
    >>> list(outbox.take())
    [('out', 7, ('a',))]
    >>> outbox.published("out", 7)
    True
    >>> outbox.to_acknowledge()
    4
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.acknowledged: int | None = None
        self._queues: dict[str, deque[_Entry]] = {}
        self._in_flight: dict[str, int] = {}
        self._unacknowledged: deque[int] = deque()
        self._cleared = self._asked = self._newest = 0
        self._acknowledging: int | None = None
        self._superseded: list[int] = []

    @property
    def waiting(self) -> int:
        """Entries not yet published."""
        return sum(map(len, self._queues.values()))

    def put(self, number: int, sink: str, epoch: int, messages: tuple[Any, ...]) -> None:
        """Take the output of an epoch for a sink; commits come in order."""
        self._queues.setdefault(sink, deque()).append(_Entry(number, epoch, messages))
        self._newest = number
        if not self._unacknowledged or self._unacknowledged[-1] != number:
            self._unacknowledged.append(number)

    def ask(self) -> bool:
        """Whether somebody must look for a newer run now; true once for each look."""
        if self._asked > self._cleared or self._newest <= self._cleared:
            return False
        self._asked = self._newest
        return True

    def clear(self) -> None:
        """Nobody newer was seen by the look that was asked for."""
        self._cleared = self._asked

    def take(self) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
        """What may be published now: of each sink that is not at it, the next epoch."""
        for sink, queue in self._queues.items():
            if sink not in self._in_flight and queue and queue[0].number <= self._cleared:
                self._in_flight[sink] = queue[0].epoch
                yield sink, queue[0].epoch, queue[0].messages

    def published(self, sink: str, epoch: int) -> bool:
        """A sink is done with an epoch; False: that is old news."""
        if self._in_flight.get(sink) != epoch:
            return False
        del self._in_flight[sink]
        self._queues[sink].popleft()
        return True

    def published_up_to(self, newest: int) -> int:
        """The last commit that is acknowledged, with all before it, or has no output to publish."""
        return self._unacknowledged[0] - 1 if self._unacknowledged else newest

    def to_acknowledge(self) -> int | None:
        """The last commit of which all is published, once; None: no other, or one is on its way."""
        if self._acknowledging is not None:
            return None
        open_from = min((queue[0].number for queue in self._queues.values() if queue), default=None)
        done = [each for each in self._unacknowledged if open_from is None or each < open_from]
        self._acknowledging = done[-1] if done else None
        return self._acknowledging

    def was_acknowledged(self, number: int) -> bool:
        """An acknowledgement is durable; False: that is old news."""
        if self._acknowledging != number:
            return False
        if self.acknowledged is not None:
            self._superseded.append(self.acknowledged)
        self.acknowledged, self._acknowledging = number, None
        while self._unacknowledged and self._unacknowledged[0] <= number:
            self._unacknowledged.popleft()
        return True

    def superseded(self) -> list[int]:
        """Acknowledgements that a later one makes needless, once for each."""
        old, self._superseded = self._superseded, []
        return old

    def messages(self, sink: str, epoch: int) -> Iterator[Any]:
        """What is on its way to a sink of an epoch."""
        for entry in self._queues.get(sink, ()):
            if entry.epoch == epoch:
                yield from entry.messages

    def validate(self) -> None:
        """Assert what always holds."""
        assert self._cleared <= self._asked <= self._newest
        for sink, queue in self._queues.items():
            assert list(queue) == sorted(queue, key=lambda entry: (entry.number, entry.epoch))
            assert self._in_flight.get(sink) in (None, *(entry.epoch for entry in [*queue][:1]))
            assert all(entry.number in self._unacknowledged for entry in queue)
