"""Operators one behind the other, each with a worklist before it and a reorder buffer behind it.

Any number of workers may operate on it at once; a driver says when. What leaves at the end leaves
in the order in which bundles were added (theorem 5.2 of Prasaad et al. 2018): a bundle has the same
number at every operator, since each adds what it makes to the next one's worklist in that order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from anabranch.ordering.atomics import ATOMICS, Atomics
from anabranch.ordering.hybrid_queue import HybridQueue
from anabranch.ordering.locked_reorder_buffer import LockedReorderBuffer
from anabranch.ordering.partitioned_queue import PartitionedQueue
from anabranch.ordering.reorder_buffer import ReorderBuffer
from anabranch.ordering.shared_queue import SharedQueue
from anabranch.ordering.worklist import Expired, Fragment, Worklist

UNBOUNDED = 1 << 30
"""Workers that may operate on a stateless operator at once."""


class Queueing(enum.Enum):
    """Which worklists partitioned operators have."""

    HYBRID = "hybrid"
    PARTITIONED = "partitioned"
    SHARED = "shared"


class Reordering(enum.Enum):
    """Which buffers operators have behind them."""

    NON_BLOCKING = "non-blocking"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class Scheme:
    """How input waits and output is put in order; no output shows it."""

    queueing: Queueing = Queueing.HYBRID
    reordering: Reordering = Reordering.NON_BLOCKING
    room: int = 64
    """Outputs that a reorder buffer holds."""


class Work(Protocol):
    """What an operator does."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def partitions(self) -> int | None:
        """In how many parts its state is, each used by one worker at a time; None: it has none."""

    def operate(self, fragment: Fragment[Any]) -> Any:
        """What becomes of a fragment, which may change the state of its partition."""

    def together(self, serial: int, made: Mapping[int, Any]) -> Any:
        """A whole bundle of what became of its fragments, by partition. In any order of numbers."""

    def onward(self, serial: int, bundle: Any) -> Mapping[int, Any]:
        """The bundle by the partitions of the operator behind; or as it is to leave, as part 0.

        In the order of numbers, one at a time, while nothing behind it goes on: it is quick.
        """


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an operator made of all of a bundle's fragments."""

    serial: int
    content: Any


class Operator:
    """One operator at work."""

    def __init__(
        self, work: Work, behind: Callable[[int, Any], None], scheme: Scheme, atomics: Atomics
    ) -> None:
        """What it makes goes on in order to what is behind it."""
        self.work = work

        def forward(serial: int, bundle: Any) -> None:
            behind(serial, work.onward(serial, bundle))

        self.most = UNBOUNDED if work.partitions is None else work.partitions
        self.worklist = _worklist(work.partitions, scheme, atomics)
        self.buffer: ReorderBuffer[Any] | LockedReorderBuffer[Any] = (
            ReorderBuffer(scheme.room, forward, atomics)
            if scheme.reordering is Reordering.NON_BLOCKING
            else LockedReorderBuffer(forward, atomics)
        )
        self._made: dict[int, dict[int, Any]] = {}
        self._lock = atomics.mutex()

    def take(self, fragment: Fragment[Any], made: Any) -> Bundle | None:
        """Keep what became of a fragment; the bundle, if that was the last one of it."""
        serial, found = fragment.serial, {fragment.partition: made}
        if fragment.fragments > 1:
            with self._lock:
                found = self._made.setdefault(serial, {}) | found
                if len(found) < fragment.fragments:
                    self._made[serial] = found
                    return None
                del self._made[serial]
        return Bundle(serial, self.work.together(serial, found))


def _worklist(partitions: int | None, scheme: Scheme, atomics: Atomics) -> Worklist[Any]:
    if partitions is None or scheme.queueing is Queueing.SHARED:
        return SharedQueue(partitions, atomics)
    if scheme.queueing is Queueing.PARTITIONED:
        return PartitionedQueue(partitions, atomics)
    return HybridQueue(partitions, atomics)


class Core:
    """A pipeline; its drivers call it from any number of workers at once."""

    def __init__(
        self,
        works: Sequence[Work],
        leave: Callable[[int, Any], None],
        scheme: Scheme = Scheme(),  # noqa: B008 - a frozen value
        atomics: Atomics = ATOMICS,
    ) -> None:
        """Bundles leave in order, one at a time, with their numbers."""
        self.operators: list[Operator] = []
        forward = leave
        for work in reversed(works):
            operator = Operator(work, forward, scheme, atomics)
            self.operators.insert(0, operator)
            forward = _into(operator)

    def add(self, content: Mapping[int, Any]) -> int:
        """Take a bundle, as fragments of the first operator's partitions; its number."""
        return self.operators[0].worklist.add(content)

    def fragments(self, at: int, expired: Expired) -> Iterator[Fragment[Any]]:
        """An operator's fragments for one worker, who operates on each before the next."""
        operator = self.operators[at]
        return operator.worklist.consume(expired, operator.buffer.fits)

    def operate(self, at: int, fragment: Fragment[Any]) -> Bundle | None:
        """Do the work; the bundle, if it is done and has to be sent."""
        operator = self.operators[at]
        return operator.take(fragment, operator.work.operate(fragment))

    def send(self, at: int, bundle: Bundle) -> bool:
        """Have a bundle go on from an operator; False: it has no room yet, send it again."""
        return self.operators[at].buffer.send(bundle.serial, bundle.content)

    def put(self, at: int, bundle: Bundle, stopped: Callable[[], bool]) -> bool:
        """Have a bundle go on from an operator, and wait for room if there is none.

        False: it was not sent, since `stopped` said so.
        """
        return self.operators[at].buffer.put(bundle.serial, bundle.content, stopped)

    def wake(self) -> None:
        """Have those who wait for room look whether they still should."""
        for operator in self.operators:
            operator.buffer.wake()


def _into(operator: Operator) -> Callable[[int, Any], None]:
    def forward(serial: int, bundle: Mapping[int, Any]) -> None:
        given = operator.worklist.add(bundle)
        assert given == serial, f"bundle {serial} became {given} at {operator.work.name}"

    return forward
