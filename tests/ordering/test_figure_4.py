"""The three mergers of figure 4 in Schneider et al. 2012, as its text tells them.

The drawing's queues are chosen so that every sentence of 4.3.1 to 4.3.3 about it holds.
"""

from __future__ import annotations

import numpy as np

from anabranch.ordering.pulse_merger import PulseMerger
from anabranch.ordering.round_robin_merger import RoundRobinMerger
from anabranch.ordering.run import Run
from anabranch.ordering.sequence_merger import SequenceMerger


def tuples(*numbers):
    return Run(numbers, 0, len(numbers), np.array(numbers, dtype=np.int64))


def shown(merged):
    return [(each.channel, each.rows[each.start : each.stop]) for each in merged.segments()]


def test_round_robin_channel_1_is_next_then_2_and_0_and_1_again_is_waited_for():
    merger = RoundRobinMerger(3, block=1)
    merger.receive(0, Run("a", 0, 1))
    assert [] == shown(merger.receive(2, Run("c", 0, 1)))
    assert [] == shown(merger.receive(0, Run("d", 0, 1)))

    assert [(1, "b"), (2, "c"), (0, "d")] == shown(merger.receive(1, Run("b", 0, 1)))

    assert [] == shown(merger.receive(2, Run("f", 0, 1)))
    assert [(1, "e"), (2, "f")] == shown(merger.receive(1, Run("e", 0, 1)))


def test_sequence_numbers_5_leaves_and_drains_6_and_7_and_8_is_waited_for():
    merger = SequenceMerger(3)
    assert [(0, (0, 1, 2, 3, 4))] == shown(merger.receive(0, tuples(0, 1, 2, 3, 4)))
    assert [] == shown(merger.receive(0, tuples(6, 9)))
    assert [] == shown(merger.receive(2, tuples(7, 10)))

    assert [(1, (5,)), (0, (6,)), (2, (7,))] == shown(merger.receive(1, tuples(5)))

    assert (1, 0, 1) == merger.statistics().rows
    assert [(1, (8,)), (0, (9,)), (2, (10,))] == shown(merger.receive(1, tuples(8)))


def test_pulses_8_says_that_5_never_comes_so_6_and_8_leave_and_10_waits_for_9():
    merger = PulseMerger(3)
    assert [(1, (0, 1, 2, 3, 4))] == shown(merger.receive(1, tuples(0, 1, 2, 3, 4)))
    assert [] == shown(merger.receive(0, tuples(6, 11)))
    assert [] == shown(merger.receive(2, tuples(10)))

    assert [(0, (6,)), (1, (8,))] == shown(merger.receive(1, tuples(8)))

    assert (1, 0, 1) == merger.statistics().rows
    assert [(2, (10,)), (0, (11,))] == shown(merger.receive(1, Run.bare(10)))
