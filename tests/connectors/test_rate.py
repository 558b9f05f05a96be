"""So many rows a second: by the clock, the same in every run, the same in every process."""

import pickle
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.connectors.rate import MOST
from anabranch.connectors.rows import BATCH_ROWS
from anabranch.epoch.triggers import available_now, epochs
from anabranch.errors import CheckpointError, ProgramError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import UNKIND, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.test_inline import written

NOON = datetime(2024, 6, 1, 12)
START = NOON.replace(tzinfo=UTC).timestamp()


def rows(source, start, end):
    splits = source.plan({0: start}, {0: end})
    return [row for split in splits for row in source.frame(split).rows()]


def test_rows_become_due_by_the_clock_from_the_first_look_on():
    clock = MockClock(START)
    source = ab.sources.Rate(3, clock=clock)
    clock.advance(100)

    assert {0: 0} == source.latest()
    clock.advance(0.9)
    assert {0: 2} == source.latest()
    clock.advance(10)
    assert {0: 32} == source.latest()
    assert {0: None} == source.end()
    assert not source.finished(0)


def test_a_row_is_its_number_and_when_it_was():
    clock = MockClock(START)
    source = ab.sources.Rate(4, clock=clock)
    source.latest()
    clock.advance(1000)

    assert {"timestamp": pl.Datetime("us"), "value": pl.Int64} == dict(source.schema)
    expected = [(NOON + timedelta(milliseconds=250 * n), n) for n in range(3, 9)]
    assert expected == rows(source, 3, 9)
    assert [] == rows(source, 5, 5)


@given(st.integers(1, MOST), st.integers(0, 10**11), st.data())
def test_times_are_exact_for_as_long_as_there_are_years(per_second, seconds, data):
    """A thousand rows a second or a thousand million, 3,000 years on or a second."""
    seconds = min(seconds, 2**62 // per_second)
    value = seconds * per_second + data.draw(st.integers(0, per_second - 1))
    source = ab.sources.Rate(per_second, clock=MockClock())
    (split,) = source.plan({0: value}, {0: value + 1})

    row = source.frame(split)

    assert [value] == row["value"].to_list()
    assert [value * 1_000_000 // per_second] == row["timestamp"].to_physical().to_list()


@given(st.integers(1, 1000), st.lists(st.integers(0, 5000), min_size=3, max_size=3).map(sorted))
def test_two_ranges_are_the_range_of_both_in_order_of_time(per_second, bounds):
    source = ab.sources.Rate(per_second, clock=MockClock(START))
    a, b, c = bounds

    whole = rows(source, a, c)

    assert whole == rows(source, a, b) + rows(source, b, c)
    assert whole == sorted(whole)


def test_batches_are_bounded_and_are_the_frame():
    source = ab.sources.Rate(7, clock=MockClock(START))
    (split,) = source.plan({0: 1}, {0: BATCH_ROWS + 2})

    batches = list(source.read(split))

    assert [BATCH_ROWS, 1] == [batch.num_rows for batch in batches]
    assert source.frame(split).equals(pl.concat([pl.DataFrame(batch) for batch in batches]))
    assert ["value"] == source.frame(split, ["value"]).columns


def test_a_task_that_was_sent_the_source_before_the_first_look_gives_the_same_rows():
    clock = MockClock(START)
    source = ab.sources.Rate(2, clock=clock)
    sent = pickle.loads(pickle.dumps(source))
    clock.advance(3)
    source.latest()
    clock.advance(3)
    source.latest()

    (split,) = source.plan({0: 0}, {0: 6})

    assert source.frame(split).equals(sent.frame(split))
    assert NOON + timedelta(seconds=3) == sent.frame(split)["timestamp"][0]


def test_another_process_gives_the_same_rows_and_what_became_due_meanwhile():
    clock = MockClock(START)
    before = ab.sources.Rate(10, clock=clock)
    before.latest()
    clock.advance(3)
    before.latest()
    expected = rows(before, 0, 30)
    clock.advance(60)

    after = ab.sources.Rate(10, clock=MockClock(clock.now()))
    after.recall(before.memory())

    assert {0: 630} == after.latest()
    assert expected == rows(after, 0, 30)


def test_a_new_process_is_not_behind_by_the_time_that_it_takes_to_start():
    """It is told the memory 60 s and a half row behind the start, and looks 10 s later."""
    clock = MockClock(START)
    before = ab.sources.Rate(10, clock=clock)
    before.latest()
    clock.advance(60.0625)

    later = MockClock(clock.now())
    after = ab.sources.Rate(10, clock=later)
    after.recall(before.memory())
    later.advance(10)

    assert {0: 700} == after.latest()
    later.advance(0.0625)
    assert {0: 701} == after.latest()


@given(
    st.integers(1, 1000),
    st.lists(st.integers(0, 5000), max_size=8).map(sorted),
    st.sampled_from(["rate", "generator"]),
)
def test_rows_are_due_at_their_times_however_often_one_looks(rate, looks, kind):
    """In units of 1/1024 s, which are exact. A look after a pause has all that became due."""
    clock = MockClock(START)
    source = (
        ab.sources.Rate(rate, clock=clock)
        if kind == "rate"
        else ab.sources.Generator(
            lambda n: {"n": n}, schema={"n": pl.Int64}, rate=rate, clock=clock
        )
    )
    source.latest()
    at = 0
    for look in looks:
        clock.advance((look - at) / 1024)
        at = look
        assert {0: rate * at // 1024} == source.latest()


def test_a_clock_that_was_set_back_takes_no_rows_back():
    clock = MockClock(START)
    before = ab.sources.Rate(10, clock=clock)
    before.latest()
    clock.advance(3)
    before.latest()

    slow = MockClock(START - 3600)
    after = ab.sources.Rate(10, clock=slow)
    after.recall(before.memory())

    assert {0: 30} == after.latest()
    slow.advance(1)
    assert {0: 40} == after.latest()


@pytest.mark.parametrize(
    "memory",
    [
        None,
        3,
        {},
        {"start": 0, "rows_per_second": 1},
        {"start": 0, "rows_per_second": 1, "rows": -1},
        {"start": 0.5, "rows_per_second": 1, "rows": 1},
        {"start": 0, "rows_per_second": True, "rows": 1},
    ],
)
def test_a_strange_memory_is_refused(memory):
    with pytest.raises(CheckpointError, match=r"^the memory of a Rate cannot be read\n"):
        ab.sources.Rate(1).recall(memory)


def test_another_rate_is_refused_under_the_same_checkpoint():
    before = ab.sources.Rate(5)
    before.latest()

    with pytest.raises(CheckpointError, match="has rows at 5 a second, not at 50") as refused:
        ab.sources.Rate(50).recall(before.memory())
    assert "write Rate(5), or begin with another checkpoint" == refused.value.so


@pytest.mark.parametrize("given", [0, -1, 1.0, 0.5, True, "1", None, MOST + 1])
def test_nonsense_is_refused_where_it_is_written(given):
    with pytest.raises(ProgramError, match=r"^Rate: rows_per_second must be") as refused:
        ab.sources.Rate(given)
    assert __file__ == refused.value.file


# In queries


def per_second(source, home):
    program = ab.Program("per-second")
    (
        program.read(source, name="rate", event_time="timestamp")
        .window(ab.tumbling("1 s"))
        .agg(n=ab.count(), first=ab.min("value"), last=ab.max("value"))
        .write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    )
    return program


class Run:
    """A query over a Rate, in one process, whose time a test moves."""

    def __init__(self, home, clock, *, rows=None, mischief=None, per_second_=5):
        self.clock = clock
        self.program = per_second(ab.sources.Rate(per_second_, clock=clock), home)
        settings = Settings(epochs("1 s", rows), home / "ckpt", 2, slices=8, keep=None)
        executor = InlineExecutor(1, mischief) if mischief else InlineExecutor()
        self._assembled = assemble(self.program.freeze(), settings, executor, clock)
        self.loop = self._assembled.loop

    def live(self, seconds, step=0.5):
        """Let time pass, and do all that can be done at each moment."""
        for _ in range(int(seconds / step)):
            while self.loop.step():
                pass
            self.clock.advance(step)
        while self.loop.step():
            pass

    def close(self):
        self.loop.close()
        self._assembled.close()


def test_a_query_counts_the_same_rows_each_second(tmp_path):
    run = Run(tmp_path, MockClock(START))

    run.live(6)
    run.close()

    found = written(tmp_path / "out")
    assert_same_rows(run_sequential(run.program, log=tmp_path / "ckpt")["out"], found)
    starts = [NOON + timedelta(seconds=at) for at in range(5)]
    assert [(at, 5, 5 * n, 5 * n + 4) for n, at in enumerate(starts)] == [
        (row["window_start"], row["n"], row["first"], row["last"]) for row in found
    ]


def test_values_count_on_over_crashes_and_what_was_planned_is_the_same(tmp_path):
    """Every run ends in mid-work: what it had planned is done by the next, from another object."""
    clock = MockClock(START)
    for seconds in (1.5, 2.5, 3.5):
        run = Run(tmp_path, clock, rows=2, mischief=UNKIND)
        run.live(seconds)
        clock.advance(1)
        run.loop.step()  # planned, and not done
        run.close()
        clock.advance(2)
    run = Run(tmp_path, clock)
    run.live(4)
    run.close()

    found = written(tmp_path / "out")
    fresh = per_second(ab.sources.Rate(5), tmp_path)
    assert_same_rows(run_sequential(fresh, log=tmp_path / "ckpt")["out"], found)
    assert [(5, 5 * n, 5 * n + 4) for n in range(len(found))] == [
        (row["n"], row["first"], row["last"]) for row in found
    ]
    assert len(found) > 15


def test_values_may_be_the_event_time(tmp_path):
    clock = MockClock(START)
    program = ab.Program("by-value")
    source = ab.sources.Rate(10, clock=clock)
    stream = program.read(source, event_time="value", time_unit="ms")
    stream.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    source.latest()
    clock.advance(3.5)

    settings = Settings(available_now(), tmp_path / "ckpt", 2, slices=8, keep=None)
    run = assemble(program.freeze(), settings, InlineExecutor(), clock)
    while not run.loop.over:
        run.loop.step()
    run.loop.close()
    run.close()

    (sink,) = [op.sink for op in program.freeze().sinks]
    assert [(0, 10, 10), (10, 20, 10), (20, 30, 10)] == sink.frame().rows()


def test_it_never_ends_so_the_sequential_run_wants_a_log(tmp_path):
    program = per_second(ab.sources.Rate(5), tmp_path)

    with pytest.raises(ProgramError, match="rate never ends, so it cannot be run to its end"):
        run_sequential(program)
    log = [ab.testing.Cut("rate", {0: (0, 7)})]
    assert run_sequential(program, log=log) == run_sequential(program, log=log)
