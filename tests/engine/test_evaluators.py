"""Evaluator processes give what the same tasks give here, and whoever waits learns of their end."""

import os
import random
import select
import signal
import subprocess
import sys
import threading
from itertools import starmap
from pathlib import Path

import polars as pl
import pytest
from pyspark import cloudpickle

import anabranch
from anabranch.engine.evaluators import EvaluatorDied, EvaluatorFailed, Evaluators
from anabranch.engine.home import LocalHome
from anabranch.engine.interpreter import free_threaded
from anabranch.engine.requests import packed, unpacked
from anabranch.kernels.results import TaskError
from tests.engine.evaluating import (
    epochs_of,
    frames_of,
    lowered,
    outputs_of,
    same_frames,
    shipped,
)

ROOT = Path(__file__).resolve().parents[2]
OUT = {"k": pl.String, "n": pl.Int64}
pytestmark = pytest.mark.slow


def rows_of(seed, count=120):
    chance = random.Random(seed)
    return [
        {"k": chance.choice("abcdefgh"), "n": chance.randrange(9), "t": n * 100, "w": ""}
        for n in range(count)
    ]


def row(n, w=""):
    return {"k": "a", "n": n, "t": 0, "w": str(w)}


def doing():
    """A piece whose functions do what rows say; made here, so that they travel by value."""

    def heads(record):
        if record["n"] == -1:
            raise ValueError("in the head")
        return record

    def does(record, state):
        match record["n"]:
            case -2:
                raise ValueError("in the stage")
            case -3:
                os._exit(3)
            case -4:
                sys.exit(4)
            case -5:
                # Tell that it has come so far, and never come back.
                Path(record["w"]).write_text(str(os.getpid()))
                signal.pause()
            case -6:
                os.write(1, b"to the descriptor\n" * 1000)
                print("to the stream\n" * 1000)  # noqa: T201 - as users do
                sys.stdout.close()
            case -7:
                # A child that keeps all descriptors and lives on.
                if os.fork() == 0:
                    os.read(os.open(record["w"], os.O_RDONLY), 1)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            case -8:
                Path(record["w"]).write_text("here")
            case -9:
                Path(record["w"]).read_text()
        state.value = (state.value or 0) + record["n"]
        state.list.append(record["n"])
        yield {"k": record["k"], "n": state.value + len(state.list)}

    schema = {"k": pl.String, "n": pl.Int64, "t": pl.Int64, "w": pl.String}
    return lambda s: s.map(heads, out=schema).key_by("k").process(does, out=OUT)


@pytest.fixture(scope="module")
def tasks():
    return lowered(doing(), rows_of(0), partitions=2)


@pytest.fixture(scope="module")
def shared(tasks):
    """Two evaluators that no test harms; each test has partitions of its own."""
    with Evaluators(2, shipped(tasks)) as found:
        yield found


@pytest.fixture
def alone(tasks):
    with Evaluators(1, shipped(tasks)) as found:
        yield found


def epoch(tasks, *rows):
    (found,) = epochs_of(tasks, rows, len(rows))
    return found


def part(tasks, *rows):
    """The one partition's part of an epoch of one key."""
    (found,) = [each for each in epoch(tasks, *rows) if each.parts]
    return found


def test_partitions_are_at_home_there_as_they_are_here(tasks, shared):
    rows = rows_of(1)
    here = [LocalHome(tasks.stages[0], tasks.owners) for _ in range(2)]
    there = list(starmap(shared.home, [(0, 0), (0, 1)]))
    for number, given in enumerate(epochs_of(tasks, rows, 13)):
        for ours, theirs, each in zip(here, there, given, strict=True):
            expected = ours.take(each)
            found = theirs.take(each)
            assert outputs_of(expected) == outputs_of(found)
            assert (expected.epoch, expected.late) == (found.epoch, found.late)
            if number % 4 == 3:
                same_frames(ours.changed(), theirs.changed())
    for ours, theirs in zip(here, there, strict=True):
        same_frames(ours.changed(), theirs.changed())
        assert {} == theirs.changed()
        same_frames(ours.whole(), theirs.whole())


def test_what_changed_makes_the_same_state_elsewhere(tasks, shared):
    *before, last = epochs_of(tasks, rows_of(2), 11)
    home, elsewhere = shared.home(0, 10), shared.home(0, 11)
    deltas = {}
    for number, given in enumerate(before):
        assert not isinstance(home.take(given[0]), TaskError)
        if number % 3 == 0:
            for operator, delta in home.changed().items():
                deltas.setdefault(operator, []).append(delta)
    for operator, delta in home.changed().items():
        deltas.setdefault(operator, []).append(delta)
    elsewhere.restore(deltas)

    assert outputs_of(home.take(last[0])) == outputs_of(elsewhere.take(last[0]))
    same_frames(home.changed(), elsewhere.changed())


def test_heads_are_run_there(tasks, shared):
    for start, frame in frames_of(rows_of(3), 50):
        expected, found = tasks.heads[0].run(frame, 0, start), shared.head(0, frame, 0, start)
        assert (expected.rows_in, expected.greatest_time) == (found.rows_in, found.greatest_time)
        same_frames(expected.parts[0], found.parts[0])


def test_an_error_of_the_user_is_a_value_and_changes_nothing(tasks, shared):
    home = shared.home(0, 20)
    home.take(part(tasks, row(5)))
    before = home.whole()

    in_head = shared.head(0, pl.DataFrame([row(-1)]), 0, 0).error
    in_stage = home.take(part(tasks, row(-2)))

    assert "ValueError: in the head" == in_head.text
    assert "ValueError: in the stage" == in_stage.text
    assert in_stage.traceback[0].endswith("in does")
    same_frames(before, home.whole())


def test_what_is_our_own_fault_is_told_with_its_traceback(shared):
    with pytest.raises(EvaluatorFailed, match="IndexError") as raised:
        shared.whole(7, 0)

    assert "evaluator.py" in raised.value.__notes__[0]


def test_what_users_print_harms_nothing(capfd, tasks):
    with Evaluators(1, shipped(tasks)) as evaluators:
        assert [{"k": "a", "n": -5}] == outputs_of(evaluators.take(0, 0, part(tasks, row(-6))))
        assert [{"k": "a", "n": -3}] == outputs_of(evaluators.take(0, 0, part(tasks, row(1))))

    out, err = capfd.readouterr()
    assert not out
    assert 1000 == err.count("to the descriptor") == err.count("to the stream")


@pytest.mark.parametrize(
    ("n", "how"), [(-3, "ended with exit code 3"), (-4, "ended with exit code 4")]
)
def test_a_function_that_ends_its_process_is_told(tasks, alone, n, how):
    with pytest.raises(EvaluatorDied, match=f"^evaluator process 0 {how} while it had to answer"):
        alone.take(0, 0, part(tasks, row(n)))
    with pytest.raises(EvaluatorDied, match=how):
        alone.whole(0, 0)


def caught(into, call, *arguments):
    """A thread that calls, and keeps what is raised."""

    def run():
        try:
            call(*arguments)
        except Exception as error:
            into.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def begun(evaluators, tasks, tmp_path, errors):
    """Threads that wait for an evaluator which is in a user's function, and its process."""
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    first = caught(errors, evaluators.take, 0, 0, part(tasks, row(-5, fifo)))
    process = int(fifo.read_text())
    more = [caught(errors, evaluators.changed, 0, 0) for _ in range(3)]
    return [first, *more], process


def test_all_who_wait_are_told_when_it_is_killed_in_mid_request(tasks, alone, tmp_path):
    errors = []
    threads, process = begun(alone, tasks, tmp_path, errors)
    assert (process,) == alone.processes

    os.kill(process, signal.SIGKILL)
    for thread in threads:
        thread.join()

    assert 4 == len(errors)
    for error in errors:
        assert isinstance(error, EvaluatorDied)
        assert "was killed by SIGKILL (signal 9)" in str(error)


def test_others_go_on_when_one_is_killed(tasks):
    with Evaluators(2, shipped(tasks)) as evaluators:
        os.kill(evaluators.processes[0], signal.SIGKILL)
        with pytest.raises(EvaluatorDied, match="process 0 was killed by SIGKILL"):
            evaluators.whole(0, 0)
        evaluators.take(0, 1, part(tasks, row(1)))


def test_to_close_ends_it_in_mid_request_and_tells_who_waits(tasks, tmp_path):
    errors, evaluators = [], Evaluators(1, shipped(tasks))
    threads, process = begun(evaluators, tasks, tmp_path, errors)

    evaluators.close()
    for thread in threads:
        thread.join()
    evaluators.close()

    assert 4 == len(errors)
    assert {"evaluator process 0 was closed"} == {error.what for error in errors}
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(EvaluatorDied, match="was closed"):
        evaluators.whole(0, 0)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system tells by the socket alone")
def test_its_end_is_seen_though_a_child_of_its_has_the_descriptors(tasks, alone, tmp_path):
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    with pytest.raises(EvaluatorDied, match="SIGKILL"):
        alone.take(0, 0, part(tasks, row(-7, fifo)))
    with fifo.open("w"):
        pass  # the child ends


def test_who_is_interrupted_leaves_no_answer_for_the_next(tasks, alone, monkeypatch):
    (process,) = alone._evaluators

    def interrupted(deadline=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(process._answers, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        alone.whole(0, 0)
    monkeypatch.undo()

    with pytest.raises(EvaluatorDied, match="was interrupted"):
        alone.take(0, 0, part(tasks, row(1)))


class _Unknown:
    def __reduce__(self):
        return __import__, ("no_such_module",)


def test_what_cannot_be_loaded_is_told_at_once(tasks):
    with pytest.raises(EvaluatorDied, match="could not load the program: ModuleNotFoundError"):
        Evaluators(2, cloudpickle.dumps(_Unknown()))


def test_a_process_that_cannot_even_start_is_told(tasks, tmp_path, monkeypatch, capfd):
    (tmp_path / "polars.py").write_text("raise ImportError('broken')")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(EvaluatorDied, match="ended with exit code 1 while it had to load"):
        Evaluators(1, shipped(tasks))

    assert "ImportError: broken" in capfd.readouterr().err


PARENT = """
import signal, sys, threading
from tests.engine.evaluating import lowered, shipped
from tests.engine.test_evaluators import Evaluators, doing, part, row
tasks = lowered(doing(), [row(1)])
evaluators = Evaluators(2, shipped(tasks))
print(*evaluators.processes, flush=True)
threading.Thread(target=evaluators.take, args=(0, 0, part(tasks, row(-5, sys.argv[1])))).start()
signal.pause()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="who is not a parent cannot wait for it")
def test_none_outlives_its_parent_idle_or_in_a_function(tmp_path):
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    path = os.pathsep.join([str(Path(anabranch.__file__).parents[1]), str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(fifo)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        processes = [int(each) for each in parent.stdout.readline().split()]
        ends = [os.pidfd_open(each) for each in processes]
        assert int(fifo.read_text()) in processes
        parent.kill()

    for end in ends:
        assert select.select([end], [], [], 60)[0], "an evaluator is still there"
        os.close(end)


def test_messages_may_be_larger_than_rings(tasks):
    rows = rows_of(4, 3000)
    with Evaluators(1, shipped(tasks), room=4096) as evaluators:
        for here, there in zip(
            epoch(tasks, *rows), [evaluators.home(0, 0), evaluators.home(0, 1)], strict=True
        ):
            expected = LocalHome(tasks.stages[0], tasks.owners).take(here)
            assert outputs_of(expected) == outputs_of(there.take(here))


def test_several_are_asked_at_once(tasks, shared, tmp_path):
    fifo, errors = tmp_path / "met", []
    os.mkfifo(fifo)

    # Each is in its function until the other one is, too.
    threads = [
        caught(errors, shared.take, 0, partition, part(tasks, row(n, fifo)))
        for partition, n in ((30, -8), (31, -9))
    ]
    for thread in threads:
        thread.join(60)

    assert not errors
    assert not any(thread.is_alive() for thread in threads)


def test_frames_travel_as_they_are():
    frame = pl.DataFrame(
        {"a": [1, None], "b": ["x", None], "c": [[1], []], "d": [{"e": 1.5}, None]},
        schema_overrides={"a": pl.UInt16},
    )
    for each in (frame, frame.clear(), pl.DataFrame(height=3)):
        (found,) = unpacked(packed([each]))
        assert each.schema == found.schema
        assert each.equals(found)


@pytest.mark.parametrize(("locked", "expected"), [(True, False), (False, True)])
def test_where_there_is_no_lock_threads_serve_python_too(locked, expected):
    class Interpreter:
        _is_gil_enabled = staticmethod(lambda: locked)

    assert expected == free_threaded(Interpreter)
    assert not free_threaded(object())
