"""Two parallel regions with a shuffle between them, every queue bounded, in any order of steps."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.ordering.outbox import WhenFull
from anabranch.ordering.pulse_merger import PulseMerger
from anabranch.ordering.run import BEFORE, Run, last_key, order_keys
from anabranch.ordering.shuffle_merger import ShuffleMerger
from anabranch.ordering.splitters import KeyedSplitter, ShuffleSplitter
from tests.ordering.network import applied, expected, gathered, run_until_stuck, values


def pulses(merger, *arriving):
    return [merger.receive(channel, run).pulse for channel, run in arriving]


def test_of_the_copies_of_a_pulse_one_goes_on():
    merger = ShuffleMerger(3)

    found = pulses(merger, *((channel, Run.bare(p)) for p in (4, 9) for channel in (0, 1, 2)))

    assert [BEFORE, BEFORE, 4, BEFORE, BEFORE, 9] == found


def test_a_pulse_goes_on_when_it_is_true_and_later_copies_are_dropped():
    merger = ShuffleMerger(2)
    row = Run("r", 0, 1, np.array([12]))

    assert [BEFORE, 9, BEFORE] == pulses(merger, (0, Run.bare(9)), (1, row), (1, Run.bare(9)))
    assert [12] == merger.receive(0, Run.bare(12)).numbers.tolist()


def test_a_pulse_rides_behind_the_rows_before_it_with_their_numbers():
    merger = ShuffleMerger(2)
    merger.receive(0, Run(np.array([7, 8]), 0, 2, np.array([2, 5]), pulse=6))

    merged = merger.receive(1, Run(np.array([9]), 0, 1, np.array([3]), pulse=6))

    run = merged.as_run(gathered(merged))
    assert ([7, 9, 8], [2, 3, 5], 6) == (run.rows.tolist(), run.numbers.tolist(), run.pulse)


class TwoRegions:
    """Split, operators, shuffle, operators, merge: every queue holds at most `capacity` runs."""

    def __init__(
        self, width, capacity, *, every, copies, drop, when_full=WhenFull.PULSE, skewed=False
    ):
        self.splitter = KeyedSplitter(width, pulse_every=every)
        self.shuffles = [ShuffleSplitter(width, when_full=when_full) for _ in range(width)]
        self.mergers = [ShuffleMerger(width) for _ in range(width)]
        self.last = PulseMerger(width)
        self.first_pipes, self.mid_pipes, self.last_pipes = (
            [deque() for _ in range(width)] for _ in range(3)
        )
        self.between = [[deque() for _ in range(width)] for _ in range(width)]
        self.width, self.capacity, self.copies, self.drop = width, capacity, copies, drop
        self.skewed, self.output, self.pulses = skewed, [], 0

    def steps(self):
        each = range(self.width)
        return [
            self.split,
            *(lambda i=i: self.first(i) for i in each),
            *(lambda i=i: self.shuffle(i) for i in each),
            *(lambda i=i, j=j: self.middle(i, j) for i in each for j in each),
            *(lambda j=j: self.second(j) for j in each),
            *(lambda j=j: self.merge(j) for j in each),
        ]

    def split(self):
        return self.put(self.splitter.send(self.room(self.first_pipes)), self.first_pipes)

    def first(self, i):
        """Several rows of one, then routed by another key: so they get order keys."""
        if not self.first_pipes[i] or self.shuffles[i].blocked:
            return False
        made = applied(self.first_pipes[i].popleft(), self.copies)
        subs = made.rows % 8
        keyed = Run(made.rows, 0, len(made), order_keys(made.numbers, subs), last_key(made.pulse))
        owners = np.zeros_like(subs) if self.skewed else made.rows * 5 // 3 % self.width
        self.shuffles[i].route(keyed, owners)
        return True

    def shuffle(self, i):
        return self.put(self.shuffles[i].send(self.room(self.between[i])), self.between[i])

    def middle(self, i, j):
        waiting, merger = self.between[i][j], self.mergers[j]
        full = len(self.mid_pipes[j]) >= self.capacity
        if not waiting or full or self.no_place(merger, i, waiting[0]):
            return False
        merged = merger.receive(i, waiting.popleft())
        if len(merged) or merged.pulse != BEFORE:
            self.mid_pipes[j].append(merged.as_run(gathered(merged)))
        return True

    def second(self, j):
        if not self.mid_pipes[j] or len(self.last_pipes[j]) >= self.capacity:
            return False
        run = self.mid_pipes[j].popleft()
        kept = ~np.isin(values(run), self.drop)
        if kept.any() or run.pulse != BEFORE:
            self.last_pipes[j].append(run.made(values(run)[kept], run.numbers[kept]))
        return True

    def merge(self, j):
        waiting = self.last_pipes[j]
        if not waiting or self.no_place(self.last, j, waiting[0]):
            return False
        self.pulses += waiting[0].pulse != BEFORE
        self.output += gathered(self.last.receive(j, waiting.popleft())).tolist()
        return True

    def room(self, pipes):
        return [self.capacity - len(pipe) for pipe in pipes]

    def no_place(self, merger, channel, run):
        return len(run) > 0 and merger.statistics().runs[channel] >= self.capacity

    def put(self, sent, pipes):
        for channel, run in sent:
            pipes[channel].append(run)
        return bool(sent)


@settings(max_examples=250, deadline=None)
@given(
    width=st.integers(1, 4),
    capacity=st.sampled_from([1, 1, 2, 8]),
    every=st.integers(1, 50),
    copies=st.lists(st.sampled_from([0, 0, 1, 1, 2, 3]), max_size=40),
    size=st.integers(1, 9),
    dropped=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
def test_order_holds_and_nothing_stops_through_two_regions(
    *, width, capacity, every, copies, size, dropped, seed
):
    whole = expected(copies)
    drop = whole[::dropped]
    network = TwoRegions(width, capacity, every=every, copies=copies, drop=drop)
    rows = np.arange(len(copies))
    bundles = [
        lambda part=rows[at : at + size]: network.splitter.split(part, part * 7 // 2 % width)
        for at in range(0, len(copies), size)
    ]

    run_until_stuck(network, [*bundles, network.splitter.flush], random.Random(seed))

    assert [row for row in whole if row not in set(drop)] == network.output


@pytest.mark.parametrize("width", [2, 4])
def test_pulses_do_not_multiply_from_region_to_region(width):
    rows = 96
    network = TwoRegions(width, rows, every=1, copies=[1] * rows, drop=[])
    bundles = [
        lambda at=at: network.splitter.split(np.arange(at, at + width), np.arange(width))
        for at in range(0, rows, width)
    ]

    run_until_stuck(network, bundles, random.Random(3))

    sent = rows // width
    assert sent <= network.pulses <= sent * width
    assert expected([1] * rows) == network.output


@pytest.mark.parametrize(
    ("when_full", "seeds_that_finish"), [(WhenFull.PULSE, 20), (WhenFull.WAIT, 0)]
)
def test_a_shuffle_that_would_wait_tells_the_other_channels_too(when_full, seeds_that_finish):
    copies = [1] * 60
    finished = 0
    for seed in range(20):
        network = TwoRegions(
            2, 1, every=60, copies=copies, drop=[], when_full=when_full, skewed=True
        )
        split = network.splitter.split
        bundles = [lambda row=row, s=split: s(np.array([row]), np.array([0])) for row in range(60)]
        run_until_stuck(network, [*bundles, network.splitter.flush], random.Random(seed))
        finished += expected(copies) == network.output

    assert seeds_that_finish == finished
