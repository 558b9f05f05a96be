"""What leaves, and when: in order, and as soon as nothing smaller can still come."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.ordering.pulse_merger import PulseMerger
from anabranch.ordering.round_robin_merger import RoundRobinMerger
from anabranch.ordering.run import BEFORE, Repeats, Run
from anabranch.ordering.sequence_merger import SequenceMerger
from anabranch.ordering.splitters import KeyedSplitter, RoundRobinSplitter, Strategy
from tests.ordering.network import applied, by_segments, cut_up, expected, gathered, values

CASES = settings(max_examples=400, deadline=None)


class Certain:
    """By hand: what has been shown, and what could still come of it. One row at a time."""

    def __init__(self, channels, repeats):
        self.rows = [[] for _ in range(channels)]
        self.pulses = [BEFORE] * channels
        self.closed = [False] * channels
        self.repeats = repeats is not Repeats.NEVER

    def show(self, channel, run):
        self.rows[channel] += zip(run.numbers.tolist(), values(run).tolist(), strict=True)
        self.pulses[channel] = max(self.pulses[channel], run.pulse)

    def can_come(self, channel, number):
        if self.closed[channel] or number <= self.pulses[channel]:
            return False
        if any(number == n for at, rows in enumerate(self.rows) for n, _ in rows if at != channel):
            return False
        last = self.rows[channel][-1][0] if self.rows[channel] else BEFORE
        return number >= last if self.repeats and last != BEFORE else number > last

    def output(self):
        rows = sorted((row for rows in self.rows for row in rows), key=lambda row: row[0])
        possible = [
            number
            for number in range((rows[-1][0] if rows else BEFORE) + 1)
            if any(self.can_come(channel, number) for channel in range(len(self.rows)))
        ]
        least = min(possible, default=None)
        return [value for number, value in rows if least is None or number <= least]


@st.composite
def dealt(draw, most_copies, strategies=(Strategy.PULSES,)):
    """Channels with the runs that arrive on them, made by a splitter and an operator."""
    channels = draw(st.integers(1, 8))
    least = 0 if Strategy.PULSES in strategies else 1
    copies = draw(st.lists(st.integers(least, most_copies), max_size=40))
    strategy = draw(st.sampled_from(strategies))
    every = draw(st.integers(1, 6))
    block = draw(st.integers(1, 5))
    keyed = strategy is not Strategy.ROUND_ROBIN and draw(st.booleans())
    splitter = (
        KeyedSplitter(channels, strategy=strategy, pulse_every=every)
        if keyed
        else RoundRobinSplitter(channels, block, strategy=strategy, pulse_every=every)
    )
    arriving = [[] for _ in range(channels)]
    at = 0
    while at < len(copies):
        size = min(draw(st.integers(1, 12)), len(copies) - at)
        bundle = np.arange(at, at + size)
        if keyed:
            owners = draw(st.lists(st.integers(0, channels - 1), min_size=size, max_size=size))
            splitter.split(bundle, np.array(owners))
        else:
            splitter.split(bundle, size)
        if draw(st.booleans()) or at + size == len(copies):
            splitter.flush()
        for channel, run in splitter.send():
            arriving[channel].append(run)
        at += size
    return channels, block, copies, arriving


def interleaved(draw, arriving):
    """Each channel's runs in order, channels in any."""
    turns = draw(st.permutations([at for at, runs in enumerate(arriving) for _ in runs]))
    queues = [iter(runs) for runs in arriving]
    return [(channel, next(queues[channel])) for channel in turns]


def operated(draw, run, copies):
    made = applied(run, copies)
    return cut_up(made, draw(st.lists(st.integers(0, 12), max_size=4)))


@pytest.mark.parametrize(
    ("most_copies", "repeats"),
    [(1, Repeats.NEVER), (1, Repeats.ON_ONE_CHANNEL), (4, Repeats.ON_ONE_CHANNEL)],
)
@CASES
@given(data=st.data())
def test_rows_leave_in_order_as_soon_as_it_is_certain(most_copies, repeats, data):
    channels, _, copies, arriving = data.draw(dealt(most_copies=most_copies))
    made = [
        [part for run in runs for part in operated(data.draw, run, copies)] for runs in arriving
    ]
    merger, certain, output = PulseMerger(channels, repeats=repeats), Certain(channels, repeats), []

    for channel, run in interleaved(data.draw, made):
        merged = merger.receive(channel, run)
        certain.show(channel, run)
        output += gathered(merged).tolist()
        assert gathered(merged).tolist() == by_segments(merged)
        assert certain.output() == output

    assert expected(copies) == output


@CASES
@given(data=st.data())
def test_what_waits_leaves_when_channels_close_without_a_pulse(data):
    channels, _, copies, arriving = data.draw(dealt(most_copies=4))
    repeats = Repeats.ON_ONE_CHANNEL
    merger, certain, output = PulseMerger(channels, repeats=repeats), Certain(channels, repeats), []
    silent = [
        [made.part(0, len(made)) for run in runs for made in [applied(run, copies)]]
        for runs in arriving
    ]

    for channel, run in interleaved(data.draw, silent):
        certain.show(channel, run)
        output += gathered(merger.receive(channel, run)).tolist()
        assert certain.output() == output
    for channel in data.draw(st.permutations(range(channels))):
        certain.closed[channel] = True
        output += gathered(merger.close(channel)).tolist()
        assert certain.output() == output

    assert expected(copies) == output


@CASES
@given(data=st.data())
def test_by_sequence_a_row_leaves_when_all_before_it_are_there(data):
    channels, _, copies, arriving = data.draw(dealt(most_copies=1, strategies=(Strategy.SEQUENCE,)))
    made = [
        [part for run in runs for part in operated(data.draw, run, copies)] for runs in arriving
    ]
    merger, shown, output = SequenceMerger(channels), set(), []

    for channel, run in interleaved(data.draw, made):
        output += gathered(merger.receive(channel, run)).tolist()
        shown |= set(run.numbers.tolist())
        first_missing = next(number for number in range(len(copies) + 1) if number not in shown)
        assert [8 * number for number in range(first_missing)] == output

    assert expected(copies) == output


@CASES
@given(data=st.data())
def test_by_round_robin_a_row_leaves_when_all_before_it_are_there(data):
    strategies = (Strategy.ROUND_ROBIN,)
    channels, block, copies, arriving = data.draw(dealt(most_copies=1, strategies=strategies))
    merger, shown, output = RoundRobinMerger(channels, block), set(), []

    for channel, run in interleaved(data.draw, arriving):
        merged = merger.receive(channel, run)
        output += gathered(merged).tolist()
        assert gathered(merged).tolist() == by_segments(merged)
        shown |= set(np.asarray(run.rows)[run.start : run.stop].tolist())
        first_missing = next(number for number in range(len(copies) + 1) if number not in shown)
        assert list(range(first_missing)) == output

    assert list(range(len(copies))) == output


def test_of_a_row_that_became_several_each_leaves_as_it_comes_and_the_next_number_waits():
    merger = PulseMerger(2, repeats=Repeats.ON_ONE_CHANNEL)

    assert [] == numbers(merger.receive(1, tuples(1)))
    assert [0, 0] == numbers(merger.receive(0, tuples(0, 0)))
    assert [0] == numbers(merger.receive(0, tuples(0)))
    assert [1] == numbers(merger.receive(0, Run.bare(0)))
    assert [1] == numbers(merger.receive(1, tuples(1)))


def test_a_number_left_behind_while_it_was_leaving_settles_no_other():
    merger = PulseMerger(3, repeats=Repeats.ON_ONE_CHANNEL)
    merger.receive(0, tuples(0))
    merger.receive(1, Run.bare(2))
    merger.receive(2, Run.bare(2))

    assert [2] == numbers(merger.receive(0, Run(None, 0, 1, np.array([2]), pulse=2)))
    assert [] == numbers(merger.receive(0, Run.bare(3)))
    assert [] == numbers(merger.receive(1, tuples(4)))
    assert [3, 4] == numbers(merger.receive(2, Run(None, 0, 1, np.array([3]), pulse=3)))


def test_long_interleaved_runs_leave_at_once_when_the_missing_one_comes():
    merger = SequenceMerger(3)
    rows = np.arange(3000)
    for channel in (1, 2):
        assert 0 == len(merger.receive(channel, tuples(*rows[channel::3])))

    merged = merger.receive(0, tuples(*rows[::3]))

    assert rows.tolist() == numbers(merged)
    assert 3000 == len(merged.segments())


def test_blocks_that_follow_one_another_are_not_sorted():
    merger = PulseMerger(2)
    merger.receive(1, tuples(4, 6, 7))

    merged = merger.receive(0, Run(None, 0, 2, np.array([1, 3]), pulse=7))

    assert merged.order is None
    assert [0, 1] == [channel for channel, _ in groupby(merged.segments(), lambda s: s.channel)]


def test_by_sequence_a_missing_number_is_waited_for_until_all_channels_are_closed():
    merger = SequenceMerger(2)
    merger.receive(0, tuples(1, 3))

    assert [] == numbers(merger.close(1))
    assert [1, 3] == numbers(merger.close(0))


def test_by_round_robin_nobody_waits_for_a_closed_channel():
    merger = RoundRobinMerger(2, block=1)

    assert ["a"] == [each.rows for each in merger.receive(0, Run("a", 0, 1)).segments()]
    assert [] == list(merger.receive(0, Run("b", 0, 1)).segments())
    assert ["b"] == [each.rows for each in merger.close(1).segments()]


@pytest.mark.parametrize("merger", [SequenceMerger(2), PulseMerger(2)])
def test_numbers_that_fall_on_a_channel_are_refused(merger):
    merger.receive(0, tuples(5))

    with pytest.raises(ValueError, match=r"^channel 0 shows 4 after it was at 5$"):
        merger.receive(0, tuples(4))


def test_a_row_behind_its_channels_pulse_is_refused():
    merger = PulseMerger(2)
    merger.receive(0, Run.bare(7))

    with pytest.raises(ValueError, match=r"^channel 0 shows 6 after it was at 7$"):
        merger.receive(0, tuples(6))


def test_rows_without_numbers_are_for_round_robin_alone():
    with pytest.raises(ValueError, match=r"^these rows have no sequence numbers"):
        SequenceMerger(1).receive(0, Run("rows", 0, 1))


def tuples(*given):
    return Run(np.array(given), 0, len(given), np.array(given, dtype=np.int64))


def numbers(merged):
    return merged.numbers.tolist()
