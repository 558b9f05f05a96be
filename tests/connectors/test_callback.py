"""A function gets every epoch's rows on the driver, in order, and again after a crash."""

import pickle
import threading
from functools import partial

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.cli import main
from anabranch.epoch.triggers import available_now
from anabranch.errors import CheckpointError, ProgramError, RunError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import UNKIND, InlineExecutor
from anabranch.state import envelope
from anabranch.state.commits import Commits
from anabranch.state.layout import Commit
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import run

PATIENCE_S = 60


class Crash(BaseException):
    """The end of a process; nothing catches it."""


class Taken:
    """Keeps what it gets; it could not travel to a task."""

    def __init__(self):
        self.epochs, self._lock = [], threading.Lock()

    def __call__(self, rows, epoch):
        with self._lock:
            self.epochs.append((epoch, rows))

    @property
    def numbers(self):
        return [epoch for epoch, _ in self.epochs]

    @property
    def rows(self):
        return [row for _, rows in self.epochs for row in rows]


def made(name, fn, *, ordered=True):
    program, rows, schema = PROGRAMS[name]
    source = ab.sources.Records(rows(60), schema=schema, partitions=2)
    return program(source, ab.sinks.Callback(fn), ordered=ordered)


def numbers(fn, count=6):
    program = ab.Program("numbers")
    program.read(ab.sources.Records([{"n": n} for n in range(count)])).write(ab.sinks.Callback(fn))
    return program


def query(program, tmp_path, rows=2, in_flight=1):
    """With one epoch under way at a time, each has a commit of its own."""
    settings = Settings(
        available_now(rows), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=in_flight
    )
    return start(program.freeze(), settings, InlineExecutor())


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_gets_what_the_program_means_an_epoch_at_a_time(name, ordered, tmp_path):
    taken = Taken()
    run(made(name, taken, ordered=ordered), tmp_path / "ckpt", seed=3, mischief=UNKIND, lanes=4)

    expected = run_sequential(made(name, print), log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, taken.rows, ordered=ordered)
    assert sorted(set(taken.numbers)) == taken.numbers
    assert len(taken.epochs) > 1


def test_rows_are_a_list_of_dicts_of_plain_values(tmp_path):
    taken = Taken()
    run(numbers(taken), tmp_path / "ckpt", rows=4)

    expected = [(0, [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]), (1, [{"n": 4}, {"n": 5}])]
    assert expected == taken.epochs


def test_an_epoch_without_rows_is_none(tmp_path):
    taken = Taken()
    program = ab.Program("some")
    stream = program.read(ab.sources.Records([{"n": n} for n in (1, 2, 0, 0, 3, 0)]))
    stream.filter(pl.col("n") > 0).write(ab.sinks.Callback(taken))
    run(program, tmp_path / "ckpt", rows=2)

    assert [(0, [{"n": 1}, {"n": 2}]), (2, [{"n": 3}])] == taken.epochs


def test_a_program_that_gives_nothing_calls_nobody():
    sink = ab.sinks.Callback(Taken())

    sink.publish([sink.write([], 0, "a"), sink.write([], 0, "b")], 0)
    sink.publish([], 1)

    assert [] == sink._fn.epochs


def test_the_sequential_run_explain_and_compile_call_nobody():
    taken = Taken()
    program = numbers(taken)

    assert 6 == len(run_sequential(program)["write-1"])
    assert "write-1" in program.explain()
    program.compile()
    assert [] == taken.epochs


def test_the_command_line_gives_it_the_rows_of_a_sequential_run(tmp_path, capsys):
    file = tmp_path / "calls.py"
    file.write_text(
        "import anabranch as ab\n"
        "program = ab.Program('calls')\n"
        "rows = program.read(ab.sources.Records([{'n': 1}, {'n': 2}]))\n"
        "rows.write(ab.sinks.Callback(lambda rows, epoch: print(epoch, rows)))\n"
    )

    assert 0 == main(["run", "--sequential", str(file)])

    assert "0 [{'n': 1}, {'n': 2}]\n" in capsys.readouterr().out


# What does not travel


def test_the_function_stays_where_it_is():
    sink = ab.sinks.Callback(Taken())

    travelled = pickle.loads(pickle.dumps(sink))

    assert travelled._fn is None
    rows = pl.DataFrame({"n": [7]}).to_arrow().to_batches()
    sink.publish([travelled.write(rows, 0, "a")], 0)
    assert [(0, [{"n": 7}])] == sink._fn.epochs


# What goes wrong


@pytest.mark.parametrize("error", [ValueError("no room"), SystemExit("no room")])
@pytest.mark.parametrize("in_flight", [1, 16])
def test_an_error_ends_the_query_and_the_epochs_of_its_commit_come_again(
    error, in_flight, tmp_path
):
    taken = Taken()

    def save(rows, epoch):
        taken(rows, epoch)
        if taken.numbers == [0, 1]:
            raise error

    with pytest.raises(RunError) as failed:
        query(numbers(save), tmp_path, in_flight=in_flight).await_termination(PATIENCE_S)
    first = first_of_the_commit_with(1, tmp_path / "ckpt")
    assert query(numbers(save), tmp_path).await_termination(PATIENCE_S)

    told = f"Callback: {save.__qualname__} failed on epoch 1: {type(error).__name__}: no room"
    assert "sink 'write-1' could not publish epoch 1" == failed.value.what
    assert told == failed.value.why
    assert error is failed.value.__cause__.__cause__
    assert [0, 1, *range(first, 3)] == taken.numbers
    require_the_same_rows_each_time(taken)


def first_of_the_commit_with(epoch, checkpoint):
    commits = [
        Commit.from_bytes(file.name, file.read_bytes())
        for file in (checkpoint / "commits").iterdir()
    ]
    (first,) = [each.first for each in commits if each.first <= epoch <= each.last]
    return first


def require_the_same_rows_each_time(taken):
    expected = {0: [0, 1], 1: [2, 3], 2: [4, 5]}
    assert all(expected[epoch] == [row["n"] for row in rows] for epoch, rows in taken.epochs)


@pytest.mark.parametrize("drain", [True, False])
def test_the_function_may_stop_its_query(tmp_path, drain):
    """As users of Spark's foreachBatch do when they have seen what they wanted."""
    started, seen = threading.Event(), []

    def enough(rows, epoch):
        seen.append(epoch)
        assert started.wait(PATIENCE_S)
        query.stop(drain=drain)

    program = ab.Program("enough")
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64})
    program.read(source).write(ab.sinks.Callback(enough))
    settings = Settings(ab.epochs("1 ms", 5), tmp_path / "ckpt", 1)
    query = start(program.freeze(), settings, InlineExecutor())
    started.set()

    assert query.await_termination(PATIENCE_S)
    assert query.exception() is None
    assert [*range(len(seen))] == seen != []


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_what_was_committed_and_not_published_is_given_first_by_the_next_run(
    epoch, tmp_path, monkeypatch
):
    taken = Taken()
    publish = Commits.publish

    def dies(self):
        if self.statistics().last_epoch == epoch:
            raise Crash
        publish(self)

    with monkeypatch.context() as patched:
        patched.setattr(Commits, "publish", dies)
        with pytest.raises(Crash):
            died(numbers(taken), tmp_path)
    before = taken.numbers
    assert query(numbers(taken), tmp_path).await_termination(PATIENCE_S)

    assert list(range(epoch)) == before
    assert [0, 1, 2] == taken.numbers
    require_the_same_rows_each_time(taken)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_driver_that_dies_in_the_function_gives_the_epoch_again(epoch, tmp_path):
    taken = Taken()

    def save(rows, number):
        taken(rows, number)
        if number == epoch and taken.numbers.count(number) == 1:
            raise Crash

    with pytest.raises(Crash):
        died(numbers(save), tmp_path)
    assert query(numbers(save), tmp_path).await_termination(PATIENCE_S)

    assert sorted([0, 1, 2, epoch]) == taken.numbers
    require_the_same_rows_each_time(taken)


def died(program, tmp_path):
    """Run a program in this thread until it dies; nothing is closed behind it."""
    settings = Settings(available_now(2), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=1)
    loop = assemble(program.freeze(), settings, InlineExecutor(), MockClock()).loop
    try:
        while not loop.over:
            loop.step()
    finally:
        loop.close()


def test_rows_that_no_commit_can_hold_are_refused_before_they_are_committed(tmp_path, monkeypatch):
    taken = Taken()
    with monkeypatch.context() as patched:
        patched.setattr(envelope, "LARGEST", 4_000)
        with pytest.raises(RunError, match=r"bytes; 4,000 are the most\n.*Callback sinks"):
            query(numbers(taken, 2_000), tmp_path, 1_000).await_termination(PATIENCE_S)
    assert [] == taken.epochs

    assert query(numbers(taken, 2_000), tmp_path, 1_000).await_termination(PATIENCE_S)
    assert list(range(2_000)) == [row["n"] for row in taken.rows]


@pytest.mark.parametrize("message", [None, 7, "no Arrow", {"rows": 1}])
def test_a_message_that_is_none_is_refused(message):
    with pytest.raises(CheckpointError, match="a message of a Callback sink cannot be read"):
        ab.sinks.Callback(Taken()).publish([message], 0)


# What is refused where it is written


def generates(rows, epoch):
    yield rows


async def waits(rows, epoch):
    return rows


class Waits:
    async def __call__(self, rows, epoch):
        return rows


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (None, "fn must be a function of rows and an epoch, got None"),
        ("table", "fn must be a function of rows and an epoch, got 'table'"),
        (generates, "generates is a generator or a coroutine function"),
        (waits, "waits is a generator or a coroutine function"),
        (partial(waits), "waits is a generator or a coroutine function"),
        (Waits(), "Waits is a generator or a coroutine function"),
        (lambda rows: None, "<lambda> cannot be called with rows and an epoch"),
        (lambda rows, epoch, more: None, "<lambda> cannot be called with rows and an epoch"),
        ([].append, "list.append cannot be called with rows and an epoch"),
    ],
)
def test_what_could_not_take_rows_is_refused(fn, told):
    with pytest.raises(ProgramError) as refused:
        ab.sinks.Callback(fn)

    assert f"Callback: {told}" == refused.value.what
    assert __file__ == refused.value.file
    assert refused.value.so


@pytest.mark.parametrize("fn", [print, Taken(), partial(print, "rows"), max, lambda *given: None])
def test_what_can_be_called_with_two_is_taken(fn):
    ab.sinks.Callback(fn)
