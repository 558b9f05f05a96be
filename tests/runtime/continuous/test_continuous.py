"""Programs that are resident give what the oracle gives on their log, whatever ends their task."""

import logging
import queue
import threading
from concurrent.futures import Future

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.starting import start
from anabranch.clock import SystemClock
from anabranch.errors import ProgramError, RunError
from anabranch.runtime.assembly import Settings
from anabranch.runtime.continuous import loop as loops
from anabranch.simulate.inline import InlineExecutor
from anabranch.simulate.residence import ThreadPlacer
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import (
    ABORT,
    EOF,
    PAUSE,
    TestingSource,
    assert_same_as_sequential,
    assert_same_rows,
)
from anabranch.testing.strategies import networks, programs
from tests.runtime.continuous.resident import Residence, assert_as_logged, numbers, totals

STEPS = ["before plan", "after plan", "before commit", "after commit", "publish", "acknowledge"]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2, 3]))
def test_any_program(data, width):
    program = data.draw(programs(partitions=data.draw(st.sampled_from([1, 2]))))

    assert_same_as_sequential(program, trigger=ab.continuous(), widths=[width])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2]))
def test_any_network(data, width):
    assert_same_as_sequential(data.draw(networks()), trigger=ab.continuous(), widths=[width])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2]))
def test_any_loop(data, width):
    program = data.draw(networks(max_sources=2, max_pieces=4, min_loops=1))

    assert_same_as_sequential(
        program, trigger=ab.continuous(), widths=[width], crash_at=["after commit"]
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), crashes=st.lists(st.sampled_from(STEPS), min_size=1, max_size=3))
def test_any_program_through_crashes_of_its_driver(data, crashes):
    program = data.draw(programs())

    assert_same_as_sequential(program, trigger=ab.continuous(), widths=[2], crash_at=crashes)


def test_another_width_while_it_runs(tmp_path):
    program = totals(numbers(4_000), ab.sinks.Memory("out"))

    assert_same_as_sequential(program, trigger=ab.continuous(), rescale_at={2: 3})


@pytest.mark.parametrize("visible", ["early", "commit"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_run_from_its_beginning_to_its_end(tmp_path, visible, partitions):
    out = ab.sinks.Memory("out", visible=visible)
    residence = Residence(tmp_path / "ckpt", totals(numbers(3_000, partitions), out))

    residence.start().await_termination()

    assert_as_logged(residence, out.rows)


class Killing:
    """Kills the task when so many rows have been shown, again and again."""

    def __init__(self, every, times):
        self.every, self.left, self.rows, self.rewound = every, times, 0, []
        self.shown, self.over = {}, threading.Event()
        self.placer, self.killed = None, 0

    def take(self, rows, epoch):
        assert epoch not in self.shown, "shown twice without a rewind"
        self.shown[epoch] = rows
        self.rows += len(rows)
        # What a task had sent before it was killed is shown all the same.
        if self.rows < self.every or self.killed == self.placer.placed:
            return
        if self.left:
            self.rows, self.left = 0, self.left - 1
            self.killed = self.placer.placed
            self.placer.kill()
        else:
            self.over.set()

    def rewind(self, after):
        self.rewound.append(after)
        self.shown = {epoch: rows for epoch, rows in self.shown.items() if epoch <= after}

    @property
    def all(self):
        return [row for epoch in sorted(self.shown) for row in self.shown[epoch]]


@pytest.mark.parametrize("every", [1, 40, 200])
def test_a_task_that_is_killed_goes_on_behind_the_last_commit(tmp_path, every):
    killing = Killing(every, times=3)
    sink = ab.sinks.Callback(killing.take, visible="early", on_rewind=killing.rewind)
    source = ab.sources.Generator(
        lambda n: pl.DataFrame({"n": n, "k": n % 7, "t": n * 10}),
        schema={"n": pl.Int64, "k": pl.Int64, "t": pl.Int64},
        rate=20_000,
        vectorized=True,
    )
    residence = Residence(tmp_path / "ckpt", totals(source, sink))
    query = residence.start()
    killing.placer = residence.placer

    killing.over.wait()
    query.stop()

    assert (4, 3) == (residence.placer.placed, len(killing.rewound))
    assert_as_logged(residence, killing.all)


def test_what_was_cut_before_a_kill_is_cut_alike_behind_it(tmp_path):
    """Early rows of an epoch that come again are the same: the driver knew how it was cut."""
    seen, again, over = {}, [], threading.Event()

    def take(rows, epoch):
        if epoch in seen:
            again.append((seen[epoch], rows))
        seen[epoch] = rows
        if len(seen) == 20 and residence.placer.placed == 1:
            residence.placer.kill()
        if len(again) >= 20 and len(seen) > 40:
            over.set()

    program = ab.Program("seen")
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rate=2_000)
    program.read(source, name="in").write(ab.sinks.Callback(take, visible="early"), name="out")
    residence = Residence(tmp_path / "ckpt", program)
    query = residence.start(ab.continuous("1 ms", "60 s"))

    over.wait()
    query.stop()

    assert all(first == second for first, second in again)
    found = [row["n"] for epoch in sorted(seen) for row in seen[epoch]]
    assert list(range(len(found))) == found


def test_a_task_that_never_gets_anywhere_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "ATTEMPTS", 3)
    sink = ab.sinks.Callback(lambda *_: residence.placer.kill(), visible="early")
    program = ab.Program("hopeless")
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rate=1_000)
    program.read(source, name="in").write(sink, name="out")
    residence = Residence(tmp_path / "ckpt", program)

    with pytest.raises(RunError, match="the resident task ended 3 times in a row"):
        residence.start(ab.continuous("1 ms", "60 s")).await_termination()


def test_more_workers_than_a_node_has_cores_are_sent_to_epochs(tmp_path):
    program = ab.Program("wide")
    program.read(numbers(10), name="in").write(ab.sinks.Memory("out"), name="out")
    clock = SystemClock()
    settings = Settings(ab.continuous("1 ms", "20 ms"), tmp_path / "ckpt", 3, slices=8, keep=None)

    with pytest.raises(ProgramError, match=r"wide: 3 workers are too many") as found:
        start(program.freeze(), settings, ThreadPlacer(clock, most_workers=2), clock=clock)

    assert "2 cores" in str(found.value)
    assert "ab.epochs" in str(found.value)
    assert not (tmp_path / "ckpt").exists()


def test_a_query_is_not_rescaled_beyond_its_node(tmp_path):
    program = ab.Program("wide")
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rate=1_000)
    program.read(source, name="in").write(ab.sinks.Memory("out"), name="out")
    clock = SystemClock()
    settings = Settings(ab.continuous("1 ms", "20 ms"), tmp_path / "ckpt", 1, slices=8, keep=None)
    query = start(program.freeze(), settings, ThreadPlacer(clock, most_workers=2), clock=clock)

    with pytest.raises(RunError, match=r"rescale: 3 workers are too many for one node") as found:
        query.rescale(3)

    assert "ab.epochs" in str(found.value)
    query.rescale(2)
    assert 2 == query.last_progress["anabranch"]["lanes"]
    query.stop()


def test_a_query_changes_its_trigger_at_a_commit(tmp_path):
    items = [{"n": n, "k": n % 3, "t": n * 10} for n in range(120)]
    ended = [each for n, item in enumerate(items) for each in ([EOF] * (n % 30 == 29), [item])]
    out = ab.sinks.Memory("out")

    def program():
        source = TestingSource([one for each in ended for one in each])
        return totals(source, out)

    residence = Residence(tmp_path / "ckpt", program())
    residence.start().await_termination()
    settings_ = Settings(ab.available_now(10), tmp_path / "ckpt", 3, slices=8, keep=None)
    start(program().freeze(), settings_, InlineExecutor()).await_termination()
    residence.program = program()
    residence.start(lanes=1).await_termination()
    start(program().freeze(), settings_, InlineExecutor()).await_termination()
    residence.program = program()
    residence.start().await_termination()

    residence.program = program()
    assert_as_logged(residence, out.rows)
    commits = recover(LocalStore(tmp_path / "ckpt")).history
    assert {1, 2, 3} == {each.lanes for each in commits if not each.is_opening}


def test_the_plans_of_a_commit_are_one_file(tmp_path):
    source = ab.sources.Generator(
        lambda n: {"n": n}, schema={"n": pl.Int64}, rows=4_000, rate=20_000
    )
    program = ab.Program("logged")
    program.read(source, name="in").write(ab.sinks.Memory("out"), name="out")
    residence = Residence(tmp_path / "ckpt", program)

    residence.start(ab.continuous("20 ms", "50 ms")).await_termination()

    commits = [each for each in recover(LocalStore(tmp_path / "ckpt")).history if each.plans]
    assert all(1 == len(each.plans) for each in commits)
    paths = [path for each in commits for path in each.plans]
    assert len(set(paths)) == len(paths)
    left = {f"epochs/{file.name}" for file in (tmp_path / "ckpt" / "epochs").iterdir()}
    assert set(paths) == left


def test_what_is_available_is_committed_when_it_is_said_to_be(tmp_path):
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rate=10_000)
    program, out = ab.Program("available"), ab.sinks.Memory("out")
    program.read(source, name="in").write(out, name="out")
    residence = Residence(tmp_path / "ckpt", program)
    query = residence.start(ab.continuous("1 ms", "60 s"))

    for _ in range(3):
        there = source.latest()[0]
        query.process_all_available()
        assert there <= len(out.rows)
    query.stop()

    assert [*range(len(out.rows))] == [row["n"] for row in out.rows]
    assert len(out.rows) == sum(each["numInputRows"] for each in query.recent_progress)


def test_a_savepoint_of_a_running_query_is_gone_on_from(tmp_path):
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rate=10_000)
    program, out = ab.Program("saved"), ab.sinks.Memory("out")
    program.read(source, name="in").write(out, name="out")
    query = Residence(tmp_path / "ckpt", program).start()
    query.process_all_available()
    query.savepoint(tmp_path / "saved")
    query.stop()
    out = ab.sinks.Memory("out")
    other = ab.Program("saved")
    other.read(source, name="in").write(out, name="out")

    again = Residence(tmp_path / "saved", other).start()
    again.process_all_available()
    again.stop()

    numbers_ = [row["n"] for row in out.rows]
    assert numbers_
    assert numbers_ == list(range(numbers_[0], numbers_[0] + len(numbers_)))


def test_another_width_is_there_with_the_first_commit_that_has_it(tmp_path):
    source = ab.sources.Generator(
        lambda n: pl.DataFrame({"n": n, "k": n % 7, "t": n * 10}),
        schema={"n": pl.Int64, "k": pl.Int64, "t": pl.Int64},
        rate=5_000,
        vectorized=True,
    )
    out = ab.sinks.Memory("out")
    residence = Residence(tmp_path / "ckpt", totals(source, out))
    query = residence.start()
    query.process_all_available()

    query.rescale(3)
    assert 3 == query.last_progress["anabranch"]["lanes"]
    query.rescale(1)
    assert 1 == query.last_progress["anabranch"]["lanes"]
    query.stop()

    assert_as_logged(residence, out.rows)


def test_items_that_end_kill_and_pause(tmp_path):
    items = [{"n": 1}, EOF, {"n": 2}, ABORT, {"n": 3}, PAUSE("10 ms"), {"n": 4}]
    out = ab.sinks.Memory("out")
    program = ab.Program("interrupted")
    program.read(TestingSource(items), name="in").write(out, name="out")
    residence = Residence(tmp_path / "ckpt", program)

    residence.start().await_termination()
    assert [{"n": 1}] == out.rows
    with pytest.raises(RunError, match="killed by its source before epoch"):
        residence.start().await_termination()
    assert [{"n": 1}] == out.rows
    residence.start().await_termination()
    assert [{"n": n} for n in range(1, 5)] == out.rows


def test_an_error_of_the_program_says_whose_line_it_is(tmp_path):
    def careful(record):
        return {"n": 10 // (record["n"] - 7)}

    program = ab.Program("failing")
    program.read(numbers(20), name="in").map(careful, out={"n": pl.Int64}).write(
        ab.sinks.Memory("out"), name="out"
    )
    query = Residence(tmp_path / "ckpt", program).start()

    with pytest.raises(RunError, match="ZeroDivisionError") as told:
        query.await_termination()
    assert __file__ == told.value.file


def test_an_error_of_a_sink_that_shows_rows_early_ends_the_query(tmp_path):
    def refuse(rows, epoch):
        message = "full"
        raise OSError(message)

    program = ab.Program("refused")
    program.read(numbers(20), name="in").write(
        ab.sinks.Callback(refuse, visible="early"), name="out"
    )
    query = Residence(tmp_path / "ckpt", program).start()

    with pytest.raises(RunError, match="refuse failed on epoch 0: OSError: full"):
        query.await_termination()


def test_files_of_a_commit_are_one(tmp_path):
    source = ab.sources.Generator(
        lambda n: {"n": n}, schema={"n": pl.Int64}, rows=4_000, rate=20_000
    )
    program = ab.Program("files")
    program.read(source, name="in").write(
        ab.sinks.Files(tmp_path / "out", format="parquet"), name="out"
    )
    query = Residence(tmp_path / "ckpt", program).start(ab.continuous("5 ms", "50 ms"))

    query.await_termination()

    files = sorted((tmp_path / "out").glob("part-*"))
    assert len(files) <= len(query.recent_progress)
    rows = pl.concat([pl.read_parquet(file) for file in files])
    assert list(range(4_000)) == rows["n"].to_list()


def test_why_and_status_say_how_it_is(tmp_path):
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rate=100)
    program = ab.Program("told")
    program.read(source, name="in").write(ab.sinks.Memory("out"), name="out")
    query = Residence(tmp_path / "ckpt", program).start()
    query.process_all_available()

    assert query.is_active
    assert query.why()
    assert query.statistics()["rows"] >= 0
    query.stop(drain=False)
    assert not query.is_active


def test_a_task_that_finds_no_slot_is_told_of(tmp_path, monkeypatch):
    class Full(ThreadPlacer):
        def place(self, orders, address):
            return Future()

    class Heard(logging.Handler):
        def emit(self, record):
            said.put(record.getMessage())

    said, heard = queue.SimpleQueue(), Heard()
    logging.getLogger("anabranch").addHandler(heard)
    monkeypatch.setattr(loops, "UNPLACED_S", 0.0)
    program = ab.Program("waiting")
    program.read(numbers(10), name="in").write(ab.sinks.Memory("out"), name="out")
    clock = SystemClock()
    settings = Settings(ab.continuous("1 ms", "20 ms"), tmp_path / "ckpt", 1, slices=8, keep=None)
    query = start(program.freeze(), settings, Full(clock), clock=clock)

    assert "waiting: its task has waited for one of Spark's slots" in said.get()
    logging.getLogger("anabranch").removeHandler(heard)
    query.stop(drain=False)


def test_a_program_with_a_table_that_is_loaded_again_is_refused(tmp_path):
    program = ab.Program("looking")
    loaded = program.read(numbers(10), name="in").lookup(
        lambda: pl.DataFrame({"k": [1], "name": ["a"]}), on="k", refresh="1 s"
    )
    loaded.write(ab.sinks.Memory("out"), name="out")

    with pytest.raises(ProgramError, match="loaded again and again"):
        Residence(tmp_path / "ckpt", program).start()


def test_checkpoints_are_not_more_often_than_the_log():
    with pytest.raises(ProgramError, match="checkpoint_every must be at least every"):
        ab.continuous("1 s", "100 ms")


def test_it_goes_on_when_its_user_does_not_wait(tmp_path):
    """A stop that is asked for by the sink's own function does not wait for itself."""
    ready, held = threading.Event(), {}

    def once(rows, epoch):
        ready.wait()
        held.pop("query", held["kept"]).stop()

    program = ab.Program("stopped")
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rate=1_000)
    program.read(source, name="in").write(ab.sinks.Callback(once), name="out")
    residence = Residence(tmp_path / "ckpt", program)
    held["kept"] = residence.start()
    ready.set()

    held["kept"].await_termination()
    assert_same_rows(residence.expected()["out"][:1], [{"n": 0}])
