"""Partitions that fall silent, are blocked, finish and speak again late; and drivers that start anew.

Scenarios 18 and 19 of the reliability notes. What is idle is compared with what a witness saw of the
source; which rows are late with a count that knows nothing but the rows and the log; the whole output
with the oracle.
"""

import math

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from tests.runtime.test_inline import written

SECOND = 1000
"""Event time is in milliseconds."""
WINDOW, LATENESS, IDLE_AFTER = 2 * SECOND, SECOND, 5.0
SCHEMA = {"t": pl.Int64, "k": pl.Int64}


class Taps(ab.sources.Source):
    """Two partitions to which rows come when a test says so; all that was ever there stays."""

    schema = pl.Schema(SCHEMA)

    def __init__(self):
        self.rows, self.ended = {0: [], 1: []}, set()

    def partitions(self):
        return (0, 1)

    def latest(self):
        return {partition: len(rows) for partition, rows in self.rows.items()}

    def finished(self, partition):
        return partition in self.ended

    def plan(self, start, end):
        return [(p, start[p], end[p]) for p in start if start[p] < end[p]]

    def read(self, split):
        partition, low, high = split
        rows = self.rows[partition][low:high]
        yield from pl.DataFrame(rows, schema=SCHEMA).to_arrow().to_batches()

    def add(self, partition, *times):
        self.rows[partition] += [{"t": t, "k": t % 3} for t in times]


class World:
    """A query by hand: rows come, time passes, steps are made, the driver dies and another begins."""

    def __init__(self, home, *, read_late=True, max_rows=None, in_flight=16):
        self.home, self.read_late = home, read_late
        self.options = {"max_rows": max_rows}
        self.in_flight = in_flight
        self.taps, self.clock, self.late = Taps(), MockClock(), 0
        self.assembled = None
        self.start()

    def program(self):
        program = ab.Program("idle-and-late")
        read = program.read(
            self.taps, name="in", event_time="t", lateness="1 s", idle_timeout="5 s"
        )
        windows = read.window(ab.tumbling("2 s"), by="k")
        windows.agg(n=ab.count()).write(self.sink("out"), name="out")
        if self.read_late:
            windows.late.write(self.sink("late"), name="late")
        return program

    def sink(self, name):
        return ab.sinks.Files(self.home / name, format="parquet")

    def start(self, lanes=2):
        """Let go of the driver as a crash would, and begin another."""
        self.close()
        trigger = ab.epochs("1 s", **self.options)
        given = Settings(
            trigger, self.home / "ckpt", lanes, slices=8, keep=None, in_flight=self.in_flight
        )
        graph = self.program().freeze()
        self.assembled = assemble(graph, given, InlineExecutor(), self.clock)
        self.assembled.loop.on_progress = self.note

    def note(self, progress):
        self.late += progress["anabranch"]["lateRows"]

    def step(self):
        return self.assembled.loop.step()

    def settle(self):
        """Step until there is nothing to do."""
        while not self.assembled.loop.over and self.step():
            pass

    def close(self):
        if self.assembled is not None:
            self.assembled.loop._pool.shutdown(wait=True)
            self.assembled.close()
            self.assembled = None

    def log(self):
        return log_of(self.home / "ckpt", self.program().freeze())

    def idle(self):
        return [set(cut.idle) for cut in self.log()]

    def watermarks(self):
        history = recover(LocalStore(self.home / "ckpt")).history
        return [each.watermarks.get("in") for each in history if not each.is_opening]

    def ends(self):
        return [row["window_end"] for row in written(self.home / "out")]

    def check(self):
        self.close()
        expected = run_sequential(self.program(), log=self.home / "ckpt")
        assert_same_rows(expected["out"], written(self.home / "out"))
        recounted = late_by_hand(self.taps.rows, self.log())
        if self.read_late:
            assert_same_rows(expected["late"], written(self.home / "late"))
            assert recounted == written(self.home / "late")
        assert len(recounted) == self.late
        known = [mark for mark in self.watermarks() if mark is not None]
        assert known == sorted(known), "a watermark never falls"
        return len(recounted)


def late_by_hand(rows, log):
    """The rows whose window had ended by the watermark before their epoch (M4, M9), in order."""
    mark, greatest, done, late = -math.inf, {}, set(), []
    for cut in log:
        before = mark
        for partition in sorted(cut.offsets):
            low, high = cut.offsets[partition]
            for row in rows[partition][low:high]:
                greatest[partition] = max(row["t"], greatest.get(partition, -math.inf))
                if (row["t"] // WINDOW + 1) * WINDOW <= before:
                    late.append(row)
        done |= cut.finished
        live = {0, 1} - done - cut.idle
        if done == {0, 1}:
            mark = math.inf
        elif live <= greatest.keys() and live:
            mark = max(mark, min(greatest[each] for each in live) - LATENESS)
    return late


# Silence


def let_the_other_fall_silent(world):
    """Partition 0 speaks until 1 has been silent for long enough; were both silent, neither counts."""
    world.clock.advance(IDLE_AFTER - 0.1)
    world.taps.add(0, 9900)
    world.settle()
    world.clock.advance(0.2)
    world.settle()
    assert {1} == world.idle()[-1]


def test_windows_leave_once_a_silent_partition_is_idle(tmp_path):
    """The other holds the watermark at 0 s until it has been empty for five seconds, then at 9 s."""
    world = World(tmp_path)
    world.taps.add(0, 500, 3500, 5500, 10_000)
    world.taps.add(1, 1000)
    world.settle()
    assert [] == world.ends()
    world.clock.advance(IDLE_AFTER - 0.1)
    world.taps.add(0, 10_100)
    world.settle()
    assert [] == world.ends()

    world.clock.advance(0.2)
    world.settle()

    assert [2000, 2000, 4000, 6000] == world.ends()
    assert {1} == world.idle()[-1]
    world.check()


def test_a_partition_that_never_spoke_holds_the_watermark_until_it_is_idle(tmp_path):
    world = World(tmp_path)
    world.taps.add(0, 500, 10_000)
    world.settle()
    assert [None] == world.watermarks()
    let_the_other_fall_silent(world)

    assert 9000 * 1000 == world.watermarks()[-1]
    world.check()


def test_all_of_them_idle_leave_the_watermark_where_it_was(tmp_path):
    world = World(tmp_path)
    world.taps.add(0, 4000)
    world.taps.add(1, 7000)
    world.settle()
    world.clock.advance(2 * IDLE_AFTER)
    world.settle()

    assert {0, 1} == world.idle()[-1]
    assert 3000 * 1000 == world.watermarks()[-1]
    world.check()


def test_what_is_blocked_is_not_idle(tmp_path):
    """A driver that did nothing for a minute finds rows that came in it: they were waiting."""
    world = World(tmp_path)
    world.taps.add(0, 500)
    world.taps.add(1, 500)
    world.settle()
    world.clock.advance(1)
    world.step()
    world.taps.add(0, 30_000)
    world.taps.add(1, 1500)
    world.clock.advance(60)
    world.settle()

    assert [set()] * len(world.idle()) == world.idle()
    assert 500 * 1000 == world.watermarks()[-1]
    world.check()


def test_rows_that_wait_for_their_turn_are_not_silence(tmp_path):
    """A row an epoch is taken; for as long as there are more, the partition speaks."""
    world = World(tmp_path, max_rows=1, in_flight=1)
    world.taps.add(0, *range(0, 40_000, 2000))
    world.taps.add(1, *range(0, 20_000, 1000))
    for _ in range(19):
        world.step()
        world.clock.advance(IDLE_AFTER)
    assert [set()] * len(world.idle()) == world.idle()
    world.settle()

    world.check()


def test_a_finished_partition_holds_nothing_and_is_never_idle(tmp_path):
    world = World(tmp_path)
    world.taps.add(0, 500, 10_000)
    world.taps.add(1, 600)
    world.taps.ended.add(1)
    world.settle()
    world.clock.advance(10 * IDLE_AFTER)
    world.settle()

    assert 9000 * 1000 == world.watermarks()[0]
    assert all(1 not in idle for idle in world.idle())
    world.taps.ended.add(0)
    world.settle()
    assert world.assembled.loop.over
    assert [2000, 2000, 12_000] == world.ends()
    world.check()


def test_a_partition_that_speaks_again_late_does_not_turn_the_watermark_back(tmp_path):
    """Also not behind a restart, when nobody remembers that it was idle."""
    world = World(tmp_path)
    world.taps.add(0, 500, 10_000)
    world.taps.add(1, 500)
    world.settle()
    let_the_other_fall_silent(world)
    world.start(lanes=3)
    world.taps.add(1, 700, 8500)
    world.settle()

    assert 9000 * 1000 == world.watermarks()[-1]
    assert [{"t": 700, "k": 1}] == written(tmp_path / "late")
    assert 1 == world.check()


# Everything at once

TIMES = st.lists(st.integers(0, 30 * SECOND), min_size=1, max_size=4)
ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 1), TIMES),
    st.tuples(st.just("advance"), st.sampled_from([0.1, 1.0, 2.5, 4.9, 5.0, 60.0])),
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("start"), st.integers(1, 3)),
    st.tuples(st.just("finish"), st.integers(0, 1)),
)


class Witness:
    """Since when each partition has had nothing that was not taken, as seen at every look."""

    def __init__(self, world):
        self.world, self.wrong, self.idle_seen = world, [], 0
        self.since = {}

    def watch(self):
        (intake,) = self.world.assembled.loop._intakes.values()
        self.since = {}
        look = intake.look

        def looked(now, limit=None):
            empty = {p for p, end in self.world.taps.latest().items() if intake.positions[p] == end}
            self.since = {p: self.since.get(p, now) for p in empty}
            offer = look(now, limit)
            silent = {p for p, since in self.since.items() if now - since >= IDLE_AFTER}
            expected = silent - self.world.taps.ended
            self.idle_seen += len(expected)
            if expected != offer.idle:
                self.wrong.append((now, expected, offer.idle))
            return offer

        intake.look = looked


@pytest.mark.slow
@settings(max_examples=150)
@given(actions=st.lists(ACTIONS, min_size=4, max_size=25), read_late=st.booleans())
def test_whatever_comes_when_idle_is_silent_late_is_late_and_time_goes_on(
    tmp_path_factory, actions, read_late
):
    world = World(tmp_path_factory.mktemp("world"), read_late=read_late, max_rows=3, in_flight=3)
    witness = Witness(world)
    witness.watch()
    for partition in (0, 1):
        world.taps.add(partition, 12 * SECOND)  # so that what comes is late as often as not
    world.settle()
    for action in actions:
        match action:
            case ("add", partition, times) if partition not in world.taps.ended:
                world.taps.add(partition, *times)
            case ("advance", seconds):
                world.clock.advance(seconds)
            case ("step", steps):
                for _ in range(steps):
                    if not world.assembled.loop.over:
                        world.step()
            case ("start", lanes):
                world.start(lanes)
                witness.watch()
            case ("finish", partition):
                world.taps.ended.add(partition)
    for _ in range(3):
        world.clock.advance(IDLE_AFTER)
        world.settle()

    assert [] == witness.wrong
    world.check()
    taken = {p: max((cut.offsets[p][1] for cut in world.log()), default=0) for p in (0, 1)}
    assert world.taps.latest() == taken, "all that came was taken"
