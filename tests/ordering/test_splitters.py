from __future__ import annotations

import random

import numpy as np
import pytest

from anabranch.ordering.outbox import WhenFull
from anabranch.ordering.pulse_merger import PulseMerger
from anabranch.ordering.round_robin_merger import RoundRobinMerger
from anabranch.ordering.run import BEFORE, Run, last_key, order_keys
from anabranch.ordering.sequence_merger import SequenceMerger
from anabranch.ordering.splitters import (
    KeyedSplitter,
    RoundRobinSplitter,
    ShuffleSplitter,
    Strategy,
)
from tests.ordering.network import Region, run_until_stuck, values

ROWS = 60


def test_blocks_go_round_and_one_goes_on_in_the_next_bundle():
    splitter = RoundRobinSplitter(2, block=4)
    splitter.split("abcdef", 6)
    first = splitter.send()
    splitter.split("gh", 2)

    assert [(0, 0, 4), (1, 4, 6)] == [(channel, run.start, run.stop) for channel, run in first]
    assert [(1, 0, 2)] == [(channel, run.start, run.stop) for channel, run in splitter.send()]


def test_a_pulse_on_every_channel_once_each_has_had_so_many_rows():
    splitter = KeyedSplitter(2, pulse_every=2)
    pulses = []
    for _ in range(9):
        splitter.split("r", np.array([0]))
        pulses.append({channel: run.pulse for channel, run in splitter.send()})

    counted = [number for number, sent in enumerate(pulses) if 1 in sent]
    assert [3, 7] == counted
    assert [{0: 3, 1: 3}, {0: 7, 1: 7}] == [pulses[number] for number in counted]
    assert all({0: BEFORE} == sent for at, sent in enumerate(pulses) if at not in counted)


def test_pulses_within_a_bundle_travel_as_one_behind_each_channels_rows():
    splitter = KeyedSplitter(3, pulse_every=1)
    splitter.split("abcdefgh", np.array([0, 1, 0, 1, 0, 1, 0, 0]))

    found = [(channel, run.numbers.tolist(), run.pulse) for channel, run in splitter.send()]
    assert [(0, [0, 2, 4, 6, 7], 5), (1, [1, 3, 5], 5), (2, [], 5)] == found


def test_when_input_runs_dry_all_channels_learn_how_far_it_went_once():
    splitter = KeyedSplitter(2, pulse_every=10)
    splitter.split("abc", np.array([0, 0, 0]))
    splitter.send()
    splitter.flush()

    assert [(0, 0, 2), (1, 0, 2)] == [(c, len(run), run.pulse) for c, run in splitter.send()]
    splitter.flush()
    assert [] == splitter.send()


@pytest.mark.parametrize("strategy", [Strategy.ROUND_ROBIN, Strategy.SEQUENCE])
def test_strategies_without_pulses_send_none(strategy):
    splitter = RoundRobinSplitter(2, block=1, strategy=strategy, pulse_every=1)
    splitter.split("ab", 2)
    splitter.flush()

    assert [BEFORE, BEFORE] == [run.pulse for _, run in splitter.send()]


def test_before_it_waits_every_other_channel_is_told_once():
    splitter = KeyedSplitter(3, pulse_every=100)
    splitter.split("abc", np.array([0, 0, 1]))

    assert [(1, 1, BEFORE), (2, 0, 2)] == sent(splitter, [0, 1, 1])
    assert [(1, 0, 2)] == sent(splitter, [0, 1, 1])
    assert [] == sent(splitter, [0, 1, 1])
    assert [(0, 2, BEFORE)] == sent(splitter, [1, 0, 0])
    assert 2 == splitter.statistics().extra_pulses


def sent(splitter, room):
    return [(channel, len(run), run.pulse) for channel, run in splitter.send(room)]


def all_dropped_on_channel_1(when_full, capacity, seed):
    """Every second row goes to channel 1, which drops it; no counted pulse comes before the end."""
    splitter = RoundRobinSplitter(
        2, block=1, strategy=Strategy.PULSES, pulse_every=ROWS, when_full=when_full
    )

    def work(run):
        kept = values(run) % 2 == 0
        return run.made(values(run)[kept], run.numbers[kept])

    region = Region(splitter, PulseMerger(2), 2, capacity, work)
    inputs = [lambda row=row: splitter.split(np.array([row]), 1) for row in range(ROWS)]
    return run_until_stuck(region, [*inputs, splitter.flush], random.Random(seed)), region.output


@pytest.mark.parametrize("capacity", [1, 2, 5])
@pytest.mark.parametrize("seed", range(20))
def test_a_channel_that_drops_everything_stops_nobody(capacity, seed):
    finished, output = all_dropped_on_channel_1(WhenFull.PULSE, capacity, seed)

    assert (True, list(range(0, ROWS, 2))) == (finished, output)


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_without_pulses_before_waiting_it_would_stop_for_ever(capacity):
    finished, output = all_dropped_on_channel_1(WhenFull.WAIT, capacity, seed=1)

    assert (False, [0]) == (finished, output)


@pytest.mark.parametrize("strategy", [Strategy.ROUND_ROBIN, Strategy.SEQUENCE])
@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_dropped_no_pulse_is_needed_with_capacity_1(strategy, seed):
    rows = np.arange(ROWS)
    merger = RoundRobinMerger(3, 2) if strategy is Strategy.ROUND_ROBIN else SequenceMerger(3)
    splitter = RoundRobinSplitter(3, block=2, strategy=strategy)
    region = Region(splitter, merger, 3, 1, lambda run: run)
    inputs = [lambda at=at: splitter.split(rows[at : at + 5], 5) for at in range(0, ROWS, 5)]

    assert run_until_stuck(region, inputs, random.Random(seed))
    assert rows.tolist() == region.output


def test_a_splitter_takes_nothing_while_something_waits():
    splitter = RoundRobinSplitter(1, block=1)
    splitter.split("a", 1)

    with pytest.raises(ValueError, match=r"^a splitter takes no rows while"):
        splitter.split("b", 1)


def test_a_channel_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"^channels 0 to 2: there are 2$"):
        KeyedSplitter(2).split("ab", np.array([0, 2]))


def test_rows_by_key_cannot_take_turns():
    with pytest.raises(ValueError, match=r"^rows routed by key do not come back in turns"):
        KeyedSplitter(2, strategy=Strategy.ROUND_ROBIN)


@pytest.mark.parametrize("numbers", [[3, 3], [1, 2]])
def test_a_shuffle_refuses_numbers_that_repeat(numbers):
    splitter = ShuffleSplitter(2)
    splitter.route(Run("a", 0, 1, np.array([2])), np.array([0]))
    splitter.send()

    with pytest.raises(ValueError, match=r"give rows their `order_keys`$"):
        splitter.route(Run("ab", 0, 2, np.array(numbers)), np.array([0, 1]))


def test_order_keys_sort_as_number_then_sub_and_a_pulse_covers_its_number():
    keys = order_keys(np.array([4, 4, 5]), np.array([0, 9, 0])).tolist()

    assert sorted(keys) == keys
    assert keys[1] < last_key(4) < keys[2]
    assert BEFORE == last_key(BEFORE)


@pytest.mark.parametrize(("number", "sub"), [(2**43, 0), (0, 2**20)])
def test_what_does_not_fit_into_an_order_key_is_refused(number, sub):
    with pytest.raises(OverflowError, match=r"does not fit into an order key$"):
        order_keys(np.array([number]), np.array([sub]))


@pytest.mark.parametrize(
    ("stop", "numbers", "match"),
    [(-1, None, r"has less than no rows$"), (2, np.array([1]), r"^1 numbers for 2 rows$")],
)
def test_a_run_that_cannot_be_is_refused(stop, numbers, match):
    with pytest.raises(ValueError, match=match):
        Run("ab", 0, stop, numbers)
