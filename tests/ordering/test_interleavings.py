"""Theorems 3.1 and 4.1 of Prasaad et al. 2018, in every interleaving of a few workers."""

import random

import pytest

from anabranch.ordering.hybrid_queue import HybridQueue
from anabranch.ordering.locked_reorder_buffer import LockedReorderBuffer
from anabranch.ordering.partitioned_queue import PartitionedQueue
from anabranch.ordering.reorder_buffer import ReorderBuffer
from anabranch.ordering.shared_queue import SharedQueue
from tests.ordering.interleaving import Case, Notes, Steps, explore, forget, step, wander


def sending(buffer_of, sent):
    """Each worker sends its outputs in order, again and again where one is refused."""

    def make():
        cells, notes = Steps(), Notes()

        def forward(serial, output):
            notes("begin", serial, output)
            notes("end", serial)

        buffer = buffer_of(forward, cells)

        def worker(serials):
            def work():
                for serial in serials:
                    forget(serial)
                    while not buffer.send(serial, f"o{serial}"):
                        step(lambda: None, lambda s=serial: buffer_fits(buffer, s))
                        forget(serial, "again")

            return work

        def check(written):
            count = sum(len(each) for each in sent)
            expected = [note for n in range(count) for note in (("begin", n, f"o{n}"), ("end", n))]
            assert expected == written, "not one at a time, each once, in order"

        return Case([worker(each) for each in sent], notes, check, cells)

    return make


def buffer_fits(buffer, serial):
    """As `fits`, without a step: it is asked by who chooses."""
    return serial < buffer._next.shown() + buffer._size


def of_size(size):
    return lambda forward, cells: ReorderBuffer(size, forward, cells)


@pytest.mark.parametrize(
    ("size", "sent"),
    [
        (1, [[0], [1]]),
        (2, [[1], [0]]),
        (3, [[0, 3], [1, 2]]),
        (1, [[0, 2], [1, 3]]),
        (2, [[2, 3], [0, 1]]),
        pytest.param(3, [[2], [1], [0]], marks=pytest.mark.slow),
        pytest.param(1, [[0], [1], [2]], marks=pytest.mark.chaos),
        pytest.param(2, [[0], [1], [2]], marks=pytest.mark.chaos),
    ],
)
def test_outputs_leave_the_reorder_buffer_in_order(size, sent):
    ended, states = explore(sending(of_size(size), sent))

    assert ended
    assert states > 50


@pytest.mark.parametrize("sent", [[[0], [1], [2]], [[2], [1], [0]], [[1, 2], [0, 3]]])
def test_outputs_leave_the_locked_buffer_in_order(sent):
    ended, _ = explore(sending(LockedReorderBuffer, sent))

    assert ended


class Forgetful(ReorderBuffer):
    """Does not look again after it has cleared the flag."""

    def _send_pending(self):
        if self._sending.take():
            serial = self._next.load()
            while (held := self._cells.load(serial % self._size)) is not None:
                self._forward(serial, held[0])
                self._cells.store(serial % self._size, None)
                self._next.add(1)
                serial += 1
            self._sending.clear()


class Hasty(ReorderBuffer):
    """Lets others have the place before the output has left."""

    def _send_pending(self):
        while self._sending.take():
            serial = self._next.load()
            while (held := self._cells.load(serial % self._size)) is not None:
                self._next.add(1)
                self._forward(serial, held[0])
                self._cells.store(serial % self._size, None)
                serial += 1
            self._sending.clear()
            if self._cells.load(serial % self._size) is None:
                return


@pytest.mark.parametrize("wrong", [Forgetful, Hasty])
def test_what_is_wrong_with_a_buffer_is_found(wrong):
    with pytest.raises(AssertionError, match=r"after \["):
        explore(
            sending(lambda forward, cells: wrong(2, forward, cells), [[0, 3], [1], [2]]),
        )


def consuming(queue_of, bundles, workers, *, slices=(), adders=0):
    """Workers consume bundles, of which the last `adders` are added meanwhile by another."""

    def make():
        cells, notes = Steps(), Notes()
        queue = queue_of(cells)
        first = len(bundles) - adders
        for bundle in bundles[:first]:
            queue.add(dict.fromkeys(bundle))
        serials = []

        def add():
            serials.extend(queue.add(dict.fromkeys(bundle)) for bundle in bundles[first:])

        def worker(number):
            turns = iter(slices[number] if number < len(slices) else ())

            def work():
                for fragment in queue.consume(lambda: next(turns, False)):
                    notes("begin", number, fragment.partition, fragment.serial)
                    notes("end", number, fragment.partition, fragment.serial)

            return work

        def check(written):
            # Whoever came too early, or had no more time, has left something.
            for fragment in queue.consume(lambda: False):
                written += [
                    (word, -1, fragment.partition, fragment.serial) for word in ("begin", "end")
                ]
            assert list(range(first, len(bundles))) == serials
            exclusive_and_in_order(written, bundles)

        crew = [worker(number) for number in range(workers)]
        return Case([*crew, *([add] if adders else [])], notes, check, cells)

    return make


def exclusive_and_in_order(written, bundles):
    at_work, done = {}, {}
    for word, worker, partition, serial in written:
        if word == "begin":
            assert partition not in at_work, f"two workers operate on partition {partition}"
            at_work[partition] = (worker, serial)
        else:
            assert at_work.pop(partition) == (worker, serial)
            done.setdefault(partition, []).append(serial)
    expected = {}
    for serial, bundle in enumerate(bundles):
        for partition in bundle:
            expected.setdefault(partition, []).append(serial)
    assert expected == done, "each fragment once, and those of a partition in order"


def hybrid(cells):
    return HybridQueue(2, cells)


@pytest.mark.parametrize(
    ("bundles", "workers", "options"),
    [
        ([[0], [0], [0]], 3, {}),
        ([[0], [1], [0]], 3, {}),
        ([[0, 1], [0]], 3, {}),
        ([[0], [1], [0], [0]], 2, {}),
        ([[0], [0], [1]], 2, {"adders": 2}),
        ([[0], [0], [0]], 2, {"slices": [[False, True]]}),
    ],
)
def test_partitions_of_the_hybrid_queue_have_one_worker_at_a_time(bundles, workers, options):
    ended, states = explore(consuming(hybrid, bundles, workers, **options))

    assert ended
    assert states > 50


@pytest.mark.parametrize("queue", [PartitionedQueue, SharedQueue])
@pytest.mark.parametrize("bundles", [[[0], [0], [1]], [[0, 1], [0]]])
def test_so_have_those_of_its_rivals(queue, bundles):
    ended, _ = explore(consuming(lambda cells: queue(2, cells), bundles, 2, adders=1))

    assert ended


class Careless(HybridQueue):
    """Looks at the clock also among what was left to it."""

    def consume(self, expired, room=None):
        while not expired():
            partition = self._turns.take()
            if partition is None:
                return
            if self._counts[partition].add(1) == 0:
                yield self._foremost(partition)
                while self._counts[partition].add(-1) > 1:
                    if expired():
                        return
                    yield self._foremost(partition)


class Shameless(HybridQueue):
    """Does not ask whether somebody is at work."""

    def consume(self, expired, room=None):
        while (partition := self._turns.take()) is not None:
            yield self._foremost(partition)


class Upside(HybridQueue):
    """Gives the turn before the fragment is there."""

    def add(self, content):
        with self._adding:
            serial, self._serial = self._serial, self._serial + 1
            for fragment in super_fragments(serial, content):
                self._turns.put(fragment.partition)
                self._queues[fragment.partition].put(fragment)
        return serial


def super_fragments(serial, content):
    from anabranch.ordering.worklist import fragments

    return fragments(serial, content)


@pytest.mark.parametrize(
    ("wrong", "options"),
    [
        (Careless, {"slices": [[False, True], [False, True]]}),
        (Shameless, {}),
        (Upside, {"adders": 2}),
    ],
)
def test_what_is_wrong_with_a_queue_is_found(wrong, options):
    with pytest.raises(AssertionError, match=r"after \["):
        explore(consuming(lambda cells: wrong(2, cells), [[0], [0], [0]], 2, **options))


@pytest.mark.parametrize("seed", range(20))
def test_larger_ones_wander(seed):
    """More workers, outputs and partitions than can be tried in all ways."""
    chance = random.Random(seed)
    serials = list(range(12))
    chance.shuffle(serials)
    # Each worker sends in ascending order, as workers do who take from one queue.
    sent = [sorted(serials[n::4]) for n in range(4)]
    wander(sending(of_size(chance.randint(1, 6)), sent), chance.randrange)
    bundles = [chance.sample(range(4), chance.randint(1, 3)) for _ in range(8)]
    wander(
        consuming(lambda cells: HybridQueue(4, cells), bundles, 4, adders=chance.randint(0, 4)),
        chance.randrange,
    )
