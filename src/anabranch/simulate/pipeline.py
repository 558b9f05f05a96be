"""The continuous engine's core under a clock that is only imagined, with any number of workers.

Worklists, reorder buffers, estimates and policies are the shipped ones. Each worker is a generator
that says how long it is at what it does; whoever is done first goes on first, and of equals whoever
has said so first. So a run is a function of its arguments, and sixteen workers need no processor.

What it leaves out: caches, the interpreter's lock, and whatever else makes two workers slower than
one alone. `Costs.contention` stands for that, and is nothing unless it is given.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from anabranch.engine.core import Bundle, Core, Reordering, Scheme, Work
from anabranch.engine.estimates import Estimates
from anabranch.engine.threads import TIME_SLICE, Size
from anabranch.ordering.worklist import Fragment
from anabranch.scheduling.pipeline_view import Choice

Pause: TypeAlias = float | None
"""Seconds for which a worker is busy; None: until somebody wakes it."""


def nothing(at: int, bundle: Any) -> float:
    """To go on takes no time."""
    del at, bundle
    return 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What things take, in seconds of one worker."""

    operate: Callable[[int, Fragment[Any]], float]
    """A fragment, by operator."""
    onward: Callable[[int, Any], float] = nothing
    """A bundle that goes on from an operator; meanwhile no other goes on from there."""
    add: float = 0.0
    """To put an output into a reorder buffer; with a lock, under it."""
    contention: float = 0.0
    """By how much of itself a fragment takes longer for each other worker at its operator."""

    def __post_init__(self) -> None:
        """Refuse time that goes back."""
        if self.add < 0 or self.contention < 0:
            message = f"costs are at least 0, got add {self.add}, contention {self.contention}"
            raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Rules:
    """Who works, and by which rules."""

    workers: int
    choose: Choice
    scheme: Scheme = field(default_factory=Scheme)
    time_slice: float = TIME_SLICE
    capacity: float = 10_000.0
    """Tuples that queues hold together, by queue-size throttling."""
    ahead: int | None = None
    """A bundle comes as soon as fewer wait at the first operator; None: all are there at first."""

    def __post_init__(self) -> None:
        """Refuse what would never end."""
        if self.workers < 1:
            message = f"{self.workers} workers: at least one is needed"
            raise ValueError(message)
        if self.time_slice <= 0:
            message = f"a time slice of {self.time_slice} s: a worker would get nothing done"
            raise ValueError(message)
        if self.ahead is not None and self.ahead < 1:
            message = f"{self.ahead} bundles ahead: at least one is needed"
            raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that workers have spent on one operator."""

    name: str
    operating: float
    sending: float
    """Having outputs go on, and adding them."""
    blocked: float
    """Without room, without the lock, or without a partition that nobody is at work on."""
    refused: int
    """Outputs that had no room; each is counted as often as it was tried."""
    tuples: int
    """That it took."""

    @property
    def each(self) -> float:
        """Seconds of workers for a tuple, blocked ones included; 0 if it took none."""
        total = self.operating + self.sending + self.blocked
        return total / self.tuples if self.tuples else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    workers: int
    tuples: int
    """That came in."""
    began: tuple[float, ...]
    """When the first fragment of each bundle was taken by the first operator."""
    left: tuple[float, ...]
    """When each left behind the last one."""
    operators: tuple[Spent, ...]
    outputs: tuple[Any, ...]
    """What left, in that order."""

    @property
    def seconds(self) -> float:
        """Until the last had left."""
        return self.left[-1] if self.left else 0.0

    @property
    def throughput(self) -> float:
        """Tuples of the input a second; endless if nothing took any time."""
        return self.tuples / self.seconds if self.seconds else float("inf")

    @property
    def latencies(self) -> tuple[float, ...]:
        """From the first operator to the exit, of all but the first and the last fifth.

        Prasaad et al. 2018, section 7, leave those out as well: beginning and end are no flow.
        """
        count = len(self.left)
        first, last = count // 5, max(count - count // 5, 1)
        pairs = zip(self.began[first:last], self.left[first:last], strict=True)
        return tuple(end - begin for begin, end in pairs)

    @property
    def mean_latency(self) -> float:
        """Of those, on average; 0 if there is none."""
        found = self.latencies
        return sum(found) / len(found) if found else 0.0

    def latency(self, share: float) -> float:
        """The least that is not below this share of those; 0 if there is none."""
        found = sorted(self.latencies)
        return found[min(int(share * len(found)), len(found) - 1)] if found else 0.0

    @property
    def blocked(self) -> float:
        """Seconds in which workers were blocked."""
        return sum(each.blocked for each in self.operators)

    @property
    def refused(self) -> int:
        """Outputs that had no room."""
        return sum(each.refused for each in self.operators)

    @property
    def utilisation(self) -> tuple[float, ...]:
        """The share of all workers' time in which each operator was operated."""
        total = self.seconds * self.workers
        return tuple(each.operating / total if total else 0.0 for each in self.operators)


class StuckError(RuntimeError):
    """All workers wait for one another."""

    @classmethod
    def after(cls, left: int, of: int, waiting: Sequence[int]) -> StuckError:
        """Say how far it came."""
        return cls(f"{left} of {of} bundles have left and nobody goes on; waiting: {[*waiting]}")


class _Place:
    """What is counted of one operator, and who waits for it."""

    def __init__(self) -> None:
        self.operating = self.sending = self.blocked = 0.0
        self.tuples = 0
        self.locked = False
        self.for_lock: deque[int] = deque()
        self.for_room: list[tuple[int, int]] = []
        """Workers, each with the number that is to fit."""


class Simulation:
    """One pipeline in virtual time; it runs once."""

    def __init__(
        self, works: Sequence[Work], costs: Costs, rules: Rules, *, size: Size = len
    ) -> None:
        """Begin at second 0. `size` says how many tuples a fragment has, or a bundle's content."""
        self._costs, self._rules, self._size = costs, rules, size
        self._core = Core(works, self._leave, rules.scheme)
        self._places = [_Place() for _ in works]
        self._most = [operator.most for operator in self._core.operators]
        self._estimates = Estimates.of(len(works), 0.0)
        self._now, self._order = 0.0, 0
        self._due: list[tuple[float, int, int]] = []
        self._idle: deque[int] = deque()
        self._stalled: deque[int] = deque()
        self._began: dict[int, float] = {}
        self._left: list[float] = []
        self._outputs: list[Any] = []

    def run(self, bundles: Sequence[Mapping[int, Any]]) -> Outcome:
        """Go on until all bundles have left.

        Raises:
            StuckError: Nobody goes on though some have not left.
        """
        self._source = self._feed(bundles)
        next(self._source, None)
        workers = [self._work(number) for number in range(self._rules.workers)]
        for number in range(len(workers)):
            self._wake(number)
        while self._due:
            self._now, _, number = heapq.heappop(self._due)
            pause = next(workers[number])
            if pause is not None:
                self._wake(number, pause)
        if len(self._left) < len(bundles):
            raise StuckError.after(len(self._left), len(bundles), self._waiting())
        return self._outcome(bundles)

    def _outcome(self, bundles: Sequence[Mapping[int, Any]]) -> Outcome:
        spent = (
            Spent(
                operator.work.name,
                place.operating,
                place.sending,
                place.blocked,
                operator.buffer.refused,
                place.tuples,
            )
            for operator, place in zip(self._core.operators, self._places, strict=True)
        )
        return Outcome(
            self._rules.workers,
            sum(self._size(part) for bundle in bundles for part in bundle.values()),
            tuple(self._began[serial] for serial in range(len(bundles))),
            tuple(self._left),
            tuple(spent),
            tuple(self._outputs),
        )

    def _feed(self, bundles: Sequence[Mapping[int, Any]]) -> Iterator[None]:
        """Add bundles as long as few wait; asked again whenever one has been taken."""
        first, ahead = self._core.operators[0].worklist, self._rules.ahead
        for bundle in bundles:
            while ahead is not None and len(first) >= ahead:
                yield
            self._core.add(bundle)
            self._tell()

    def _leave(self, serial: int, bundle: Mapping[int, Any]) -> None:
        assert serial == len(self._left), f"bundle {serial} leaves as number {len(self._left)}"
        self._left.append(self._now)
        self._outputs.append(bundle[0])

    # Who goes on when.

    def _wake(self, worker: int, after: float = 0.0) -> None:
        heapq.heappush(self._due, (self._now + after, self._order, worker))
        self._order += 1

    def _tell(self) -> None:
        """There may be work for one worker more; who gets some tells the next one.

        One is enough: whoever asks is told the same, so where one gets nothing, none would.
        """
        able = zip(self._core.operators, self._estimates.operators, strict=True)
        if self._idle and any(
            each.workers < operator.most and len(operator.worklist) for operator, each in able
        ):
            self._wake(self._idle.popleft())

    def _moved(self, at: int) -> None:
        """Something has been done at an operator: whoever waited for that looks again."""
        self._tell()
        if self._stalled:
            self._wake(self._stalled.popleft())
        place, fits = self._places[at], self._core.operators[at].buffer.fits
        if place.for_room:
            for worker, serial in place.for_room:
                if fits(serial):
                    self._wake(worker)
            place.for_room = [each for each in place.for_room if not fits(each[1])]

    # What a worker does.

    def _waiting(self) -> list[int]:
        return [len(operator.worklist) for operator in self._core.operators]

    def _choice(self) -> int | None:
        view = self._estimates.view(self._waiting(), self._most, self._rules.time_slice)
        return self._rules.choose(replace(view, capacity=self._rules.capacity))

    def _work(self, worker: int) -> Iterator[Pause]:
        while True:
            at = self._choice()
            if at is None:
                self._idle.append(worker)
                yield None
                continue
            self._estimates = self._estimates.begin(at)
            began, waited = self._now, len(self._core.operators[at].worklist)
            fragments, taken, given = yield from self._turn(worker, at)
            spent = self._now - began
            self._estimates = self._estimates.end(at, self._now, spent, taken, given)
            if fragments or waited != len(self._core.operators[at].worklist):
                self._tell()
            else:
                # What waits is of partitions that others are at work on, or has no room.
                self._stalled.append(worker)
                yield from self._blocked(at)

    def _blocked(self, at: int) -> Iterator[Pause]:
        since = self._now
        yield None
        self._places[at].blocked += self._now - since

    def _turn(self, worker: int, at: int) -> Generator[Pause, None, tuple[int, int, int]]:
        """Operate for a time slice; how many fragments, and tuples, were taken, and tuples made."""
        end, fragments, taken, given = self._now + self._rules.time_slice, 0, 0, 0
        place = self._places[at]
        for fragment in self._core.fragments(at, lambda: self._now >= end):
            self._begin(at, fragment)
            if not fragments:
                self._moved(at)
            fragments, taken = fragments + 1, taken + self._size(fragment.content)
            others = self._estimates.operators[at].workers - 1
            takes = self._costs.operate(at, fragment) * (1 + self._costs.contention * others)
            yield takes
            place.operating += takes
            bundle = self._core.operate(at, fragment)
            if bundle is not None:
                given += self._size(bundle.content)
                yield from self._send(worker, at, bundle)
            self._moved(at)
        place.tuples += taken
        return fragments, taken, given

    def _begin(self, at: int, fragment: Fragment[Any]) -> None:
        if at == 0:
            self._began.setdefault(fragment.serial, self._now)
            next(self._source, None)

    def _send(self, worker: int, at: int, bundle: Bundle) -> Iterator[Pause]:
        if self._rules.scheme.reordering is Reordering.LOCKED:
            yield from self._with_lock(worker, at, bundle)
            return
        buffer = self._core.operators[at].buffer
        yield from self._adding(at)
        while True:
            added = buffer.add(bundle.serial, bundle.content)
            yield from self._going_on(at)
            if added:
                return
            if not buffer.fits(bundle.serial):
                self._places[at].for_room.append((worker, bundle.serial))
                yield from self._blocked(at)

    def _with_lock(self, worker: int, at: int, bundle: Bundle) -> Iterator[Pause]:
        """As `LockedReorderBuffer.send` does it, with a lock that goes to whoever came first."""
        place = self._places[at]
        if place.locked:
            place.for_lock.append(worker)
            yield from self._blocked(at)
        place.locked = True
        yield from self._adding(at)
        self._core.operators[at].buffer.add(bundle.serial, bundle.content)
        yield from self._going_on(at)
        if place.for_lock:
            # Stays locked: it is handed over.
            self._wake(place.for_lock.popleft())
        else:
            place.locked = False

    def _adding(self, at: int) -> Iterator[Pause]:
        yield self._costs.add
        self._places[at].sending += self._costs.add

    def _going_on(self, at: int) -> Iterator[Pause]:
        """Have all leave that may, each in its time; none where another worker does."""
        for _, content in self._core.operators[at].buffer.leaving():
            takes = self._costs.onward(at, content)
            self._moved(at)
            yield takes
            self._places[at].sending += takes
        self._moved(at)
