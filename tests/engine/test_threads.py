"""Real threads on the core: the same rows, in the same order, whoever was faster."""

import random

import pytest

from anabranch.clock import SystemClock
from anabranch.engine.core import Core, Queueing, Reordering, Scheme
from anabranch.engine.threads import Threads
from anabranch.scheduling.current_throughput import current_throughput
from anabranch.scheduling.estimated_time import estimated_time
from anabranch.scheduling.last_in_pipeline import last_in_pipeline
from anabranch.scheduling.queue_size_throttling import queue_size_throttling
from tests.engine.works import Copied, Even, Mapped, Summed, Whole, cut, linked, sequentially

POLICIES = [queue_size_throttling, last_in_pipeline, estimated_time, current_throughput]


def make():
    return [Mapped(), Summed(), Even(), Copied(), Summed(partitions=5), Whole()]


def bundles_of(seed, count=200):
    chance = random.Random(seed)
    return [
        [(chance.randrange(20), chance.randrange(9)) for _ in range(chance.choice([0, 1, 5]))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [1, 3])
def test_rows_leave_as_one_alone_makes_them(policy, workers):
    bundles, left, works = bundles_of(workers), [], linked(make())
    core = Core(works, lambda serial, bundle: left.append((serial, bundle[0])))
    threads = Threads(core, policy, workers, SystemClock(), time_slice=0.0002)
    for rows in bundles:
        threads.add(cut(rows, works[0].partitions))
    threads.drain()
    threads.close()

    assert list(enumerate(sequentially(make, bundles))) == left
    assert all(each.workers == 0 for each in threads.estimates.operators)
    assert all(each.known for each in threads.estimates.operators)


@pytest.mark.parametrize("queueing", Queueing)
@pytest.mark.parametrize("reordering", Reordering)
def test_so_they_do_however_they_wait(queueing, reordering):
    bundles, left, works = bundles_of(7), [], linked(make())
    scheme = Scheme(queueing, reordering, room=2)
    core = Core(works, lambda serial, bundle: left.append((serial, bundle[0])), scheme)
    threads = Threads(core, last_in_pipeline, 3, SystemClock(), time_slice=0.0002)
    for rows in bundles:
        threads.add(cut(rows, works[0].partitions))
    threads.drain()
    threads.close()

    assert list(enumerate(sequentially(make, bundles))) == left


@pytest.mark.parametrize("room", [1, 64])
def test_where_one_fails_nothing_behind_it_leaves_and_it_is_told(room):
    """Also where others wait for room that only the one who failed would have made."""

    class Failing(Mapped):
        def operate(self, fragment):
            if fragment.content == [(0, 13)]:
                raise ZeroDivisionError("thirteen")
            return super().operate(fragment)

    left, works = [], linked([Mapped(), Failing(), Mapped()])
    core = Core(works, lambda serial, bundle: left.append(serial), Scheme(room=room))
    threads = Threads(core, last_in_pipeline, 3, SystemClock())

    def work_off():
        for n in range(40):
            threads.add({0: [(0, n)]})
        threads.drain()

    with pytest.raises(ZeroDivisionError, match="thirteen"):
        work_off()
    threads.close()

    assert list(range(len(left))) == left
    assert len(left) <= 12, "bundle 12 is not there, nor is what comes behind it"
    with pytest.raises(ZeroDivisionError):
        threads.add({0: []})


def test_workers_at_rest_sleep():
    """Who finds that all is done must not wake others, who find that all is done."""
    asked = []

    def choose(view):
        asked.append(view)
        return last_in_pipeline(view)

    core = Core(linked([Mapped(), Mapped()]), lambda serial, bundle: None)
    threads = Threads(core, choose, 3, SystemClock())
    threads.add({0: [(0, 1)]})
    threads.drain()

    before = len(asked)
    sum(range(5_000_000))  # the interpreter's lock is theirs for as long as they want it
    threads.close()

    assert len(asked) - before <= 2 * 3, "none has anything to ask for but once more"
