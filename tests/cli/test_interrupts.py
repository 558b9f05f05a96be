"""Ctrl-C in a real process on a real Spark: once ends it in order, twice at once, nothing lost."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from anabranch.cli.interrupts import Asked, Interrupts, interrupts
from anabranch.cli.live import screen
from anabranch.cli.on_spark import DRAINING, STOPPING, _watch
from anabranch.cli.programs import load
from anabranch.errors import AnabranchError
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, run_sequential

PROGRAM = """
import socket
from contextlib import suppress

import anabranch as ab

def hold(row):
    "Row 13 is worked on for as long as somebody holds the connection."
    if row["n"] == 13:
        with suppress(OSError), socket.create_connection(("127.0.0.1", {port})) as there:
            there.sendall(b"held")
            there.recv(1)
    return row

def shown(rows, epoch):
    with suppress(OSError), socket.create_connection(("127.0.0.1", {port})) as there:
        there.sendall(b"shown")

program = ab.Program("held")
schema = {{"n": int, "t": int}}
rows = program.read(ab.sources.Files("{home}/in", format="jsonl", schema=schema), event_time="t")
held = rows.map(hold, out=schema)
held.window(ab.tumbling("4 ms"), by="n").agg(count=ab.count()).write(
    ab.sinks.Files("{home}/out", format="parquet"), name="counts")
held.write(ab.sinks.Callback(shown), name="shown")
"""

GUARD_S = 120
"""A test that waits longer hangs, and is told so."""


class Run:
    """A run in a process of its own, and the connections of its functions."""

    def __init__(self, home: Path):
        self.home = home
        (home / "in").mkdir()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(GUARD_S)
        self.file = home / "held.py"
        port = self.server.getsockname()[1]
        self.file.write_text(PROGRAM.format(home=home, port=port))
        self.process = None

    def put(self, name, numbers):
        """New rows, whole or not at all."""
        draft = self.home / name
        draft.write_text("".join(json.dumps({"n": n, "t": n}) + "\n" for n in numbers))
        draft.rename(self.home / "in" / name)

    def start(self, *given):
        command = [sys.executable, "-m", "anabranch.cli", "run", self.file, "--json"]
        command += ["--master", "local[2]", "--checkpoint", self.home / "ckpt", *given]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
        )

    def accept(self, said):
        """The connection of a function that says this."""
        there, _ = self.server.accept()
        there.settimeout(GUARD_S)
        assert said == there.recv(len(said)).decode()
        return there

    def ask(self, number, answer):
        """Send a signal, and wait until the run has said that it understood."""
        self.process.send_signal(number)
        while line := self.process.stderr.readline():
            if answer in line:
                return
        pytest.fail(f"it ended and never said: {answer}")

    def end(self):
        out, err = self.process.communicate(timeout=GUARD_S)
        return self.process.returncode, json.loads(out), err

    def counts(self):
        files = sorted((self.home / "out").glob("*.parquet"))
        return [row for file in files for row in pl.read_parquet(file).to_dicts()]

    def expected(self):
        return run_sequential(load(str(self.file)), log=self.home / "ckpt")["counts"]


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path)
    yield made
    made.server.close()
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def held(run):
    """A run with an epoch that is committed and one that is under way."""
    run.put("a.jsonl", range(10))
    run.start("--trigger", "10 ms")
    run.accept("shown").close()
    run.put("b.jsonl", range(10, 20))
    return run.accept("held")


@pytest.mark.spark
@pytest.mark.slow
def test_asked_once_it_finishes_what_is_under_way(run):
    working = held(run)
    run.ask(signal.SIGINT, DRAINING)
    run.server.close()
    working.close()

    code, facts, _ = run.end()

    assert (0, True, "drained") == (code, facts["ok"], facts["ended"])
    found = recover(LocalStore(run.home / "ckpt"))
    assert ((), ()) == (found.plans, found.unpublished)
    assert 20 == facts["programs"][0]["rows"]
    assert run.expected() == run.counts()
    assert run.counts(), "windows before the watermark are out"


@pytest.mark.spark
@pytest.mark.slow
def test_asked_twice_it_stops_at_once_and_the_next_run_goes_on(run):
    working = held(run)
    run.ask(signal.SIGTERM, DRAINING)
    run.ask(signal.SIGINT, STOPPING)

    code, facts, err = run.end()

    assert (130, False, "stopped") == (code, facts["ok"], facts["ended"])
    assert "Interrupted" == facts["error"]["type"]
    assert "Traceback" not in err
    assert 10 == facts["programs"][0]["rows"], "the epoch under way is not committed"
    assert run.expected() == run.counts()
    run.server.close()
    working.close()
    run.start("--trigger", "now")
    code, facts, err = run.end()
    assert (0, 10) == (code, facts["programs"][0]["rows"]), err
    assert run.expected() == run.counts()
    assert 0 == len(recover(LocalStore(run.home / "ckpt")).plans)


def test_signals_are_counted_and_handlers_put_back():
    before = signal.getsignal(signal.SIGINT)

    with interrupts() as asked:
        asked.starting = False
        signal.raise_signal(signal.SIGTERM)
        assert (Asked.DRAIN, 143) == (asked.asked, asked.code)
        signal.raise_signal(signal.SIGINT)
        assert (Asked.STOP, 130) == (asked.asked, asked.code)

    assert before is signal.getsignal(signal.SIGINT)


def test_before_anything_runs_ctrl_c_ends_it_at_once():
    with interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_third_time_not_even_the_end_is_waited_for():
    asked = Interrupts()
    asked.starting = False
    asked.note(signal.SIGINT)
    asked.note(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        asked.note(signal.SIGINT)


class Several:
    """A query that runs until it is told to stop, or fails by itself."""

    def __init__(self, name, error=None):
        self.name, self.stopped, self.error = name, [], error
        self.status, self.recent_progress = {"message": "Processing new data"}, []
        self._ended = threading.Event()
        if error is not None:
            self._ended.set()

    @property
    def is_active(self):
        return not self._ended.is_set()

    def exception(self):
        return self.error

    def statistics(self):
        return {"rows": 0, "epochs": 0}

    def await_termination(self, timeout):
        self._ended.wait(timeout)

    def stop(self, *, drain):
        self.stopped.append(drain)
        self._ended.set()


def test_where_one_of_several_fails_the_others_are_drained(capsys):
    failed, other = Several("failed", AnabranchError("no")), Several("other")
    asked = Interrupts()
    asked.starting = False

    with screen(MockClock()) as shown:
        _watch([failed, other], shown, asked)

    assert ([], [True]) == (failed.stopped, other.stopped)
    assert DRAINING not in capsys.readouterr().err, "nobody has asked for it"


def test_all_of_several_are_asked_to_drain_at_once(capsys):
    queries = [Several("one"), Several("two")]
    asked = Interrupts()
    asked.starting = False
    asked.note(signal.SIGINT)

    with screen(MockClock()) as shown:
        _watch(queries, shown, asked)

    assert [[True], [True]] == [each.stopped for each in queries]
    assert DRAINING in capsys.readouterr().err
