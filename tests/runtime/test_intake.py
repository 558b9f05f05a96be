import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.bundles import EvenBundles, StreamBoxBundles
from anabranch.epoch.row_limit import RowLimit
from anabranch.runtime.intake import Intake


class Growing(ab.sources.Source):
    """Two partitions to which rows come when a test says so."""

    schema = pl.Schema({"n": pl.Int64()})

    def __init__(self):
        self.ends = {0: 0, 1: 0}

    def partitions(self):
        return (0, 1)

    def latest(self):
        return dict(self.ends)

    def plan(self, start, end):
        return [(p, start[p], end[p]) for p in start]

    def read(self, split):
        raise AssertionError(split)


def intake(source, **options):
    program = ab.Program("p")
    program.read(source, **options).write(ab.sinks.Memory("out"))
    (read,) = program.freeze().sources
    return Intake(read, None)


def test_a_partition_is_idle_when_it_has_been_empty_for_long():
    source = Growing()
    taken = intake(source, idle_timeout="10 s")
    source.ends = {0: 3, 1: 0}

    first = taken.look(now=0.0)
    taken.take(first)

    assert frozenset() == first.idle
    assert frozenset() == taken.look(now=9.0).idle
    # The second was empty since 0 s, the first since 9 s.
    assert {1} == taken.look(now=10.0).idle
    assert {0, 1} == taken.look(now=19.0).idle


def test_a_partition_that_speaks_again_is_not_idle():
    source = Growing()
    taken = intake(source, idle_timeout="10 s")
    taken.look(now=0.0)
    source.ends = {0: 1, 1: 0}

    assert {1} == taken.look(now=20.0).idle
    # What is there and was not taken is blocked, not idle.
    assert {1} == taken.look(now=40.0).idle


def test_without_a_timeout_nothing_is_idle():
    taken = intake(Growing())
    taken.look(now=0.0)

    assert frozenset() == taken.look(now=1e9).idle


@pytest.mark.parametrize(
    ("policy", "splits"),
    [
        (None, [(0, 0, 90_000), (1, 0, 10_000)]),
        (
            EvenBundles(4),
            [(0, 0, 25_000), (0, 25_000, 50_000), (0, 50_000, 75_000), (0, 75_000, 90_000),
             (1, 0, 10_000)],
        ),
        (EvenBundles(2), [(0, 0, 90_000), (1, 0, 10_000)]),
        (StreamBoxBundles(1), [(0, 0, 80_000), (0, 80_000, 90_000), (1, 0, 10_000)]),
    ],
)  # fmt: skip
def test_splits_are_as_the_policy_says(policy, splits):
    source = Growing()
    taken = intake(source)
    source.ends = {0: 90_000, 1: 10_000}

    found = taken.splits(taken.look(), policy)

    assert splits == [split for _, split in found]
    assert [split[0] for split in splits] == [index for index, _ in found]


def test_a_backlog_is_cut_by_the_limit_where_the_user_has_not_said():
    source = Growing()
    source.ends = {0: 100, 1: 30}

    offer = intake(source).look(0.0, RowLimit(80))

    assert {0: (0, 40), 1: (0, 30)} == offer.offsets
    assert offer.more


def test_what_the_user_has_said_counts_and_not_the_limit():
    program = ab.Program("p")
    source = Growing()
    program.read(source).write(ab.sinks.Memory("out"))
    (read,) = program.freeze().sources
    source.ends = {0: 100, 1: 30}

    offer = Intake(read, 70).look(0.0, RowLimit(80))

    assert {0: (0, 70), 1: (0, 30)} == offer.offsets
