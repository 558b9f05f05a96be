"""Programs that are resident in a long task of a real Spark, and processes that die under them."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import config
from anabranch.errors import RunError
from anabranch.testing import assert_same_as_sequential, assert_same_rows, run_sequential
from anabranch.testing.strategies import programs

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.spark

SCHEMA = {"n": pl.Int64, "k": pl.Int64, "t": pl.Int64}
RATE = 4_000


def running(record, state):
    """Plain Python with state: the sum so far."""
    state.value = (state.value or 0) + record["n"]
    yield {**record, "n": state.value}


def program_over(source, sink):
    program = ab.Program("resident")
    (
        program.read(source, name="in", event_time="t", lateness="20 ms")
        .map(lambda record: {**record, "n": record["n"] + 1}, out=SCHEMA)
        .key_by("k")
        .process(running, out=SCHEMA)
        .window(ab.tumbling("50 ms"), by="k")
        .agg(last=ab.max("n"), rows=ab.count())
        .write(sink, name="out")
    )
    return program


def numbers(rows=None, rate=None):
    return ab.sources.Generator(
        lambda n: pl.DataFrame({"n": n, "k": n % 7, "t": n * 10}),
        schema=SCHEMA,
        rows=rows,
        rate=rate,
        vectorized=True,
    )


def test_a_program_as_in_its_sequential_run(spark_context, tmp_path):
    out = ab.sinks.Memory("out", visible="early")
    program = program_over(numbers(2_000), out)
    trigger = ab.continuous("5 ms", "100 ms")

    query = program.start(
        spark_context, trigger=trigger, checkpoint=tmp_path / "ckpt", parallelism=2
    )
    query.await_termination()

    assert "plain Python in 2 evaluator processes: map-1, process-1" in query.explain()
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, out.rows)


def test_it_is_compared_by_the_test_kit(spark_context):
    program = program_over(numbers(600), ab.sinks.Memory("out"))

    assert_same_as_sequential(
        program, trigger=ab.continuous(), widths=[2], crash_at=["after commit"], spark=spark_context
    )


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), policy=st.sampled_from(["lp", "ct", "et", "qst", "nem"]))
def test_any_program_in_processes_whatever_the_policy(spark_context, data, policy):
    """Its plain Python in two evaluators."""
    program = data.draw(programs(partitions=data.draw(st.sampled_from([1, 2]))))
    with config.saying({"ANABRANCH_PIPELINE_POLICY": policy}):
        assert_same_as_sequential(program, trigger=ab.continuous(), widths=[2], spark=spark_context)


@pytest.mark.slow
def test_an_executor_that_is_killed(tmp_path):
    """Its task goes on in the other one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.resident_cluster", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr[-4000:]
    assert {"rewound": 1} == json.loads(done.stdout.splitlines()[-1])


def test_an_error_of_a_function_says_whose_line_it_is(spark_context, tmp_path):
    program = ab.Program("failing")
    program.read(numbers(50), name="in").map(
        lambda record: {"n": 10 // (record["n"] - 7)}, out={"n": pl.Int64}
    ).write(ab.sinks.Memory("out"), name="out")
    query = program.start(spark_context, trigger=ab.continuous(), checkpoint=tmp_path / "ckpt")

    with pytest.raises(RunError, match="ZeroDivisionError") as told:
        query.await_termination()
    assert __file__ == told.value.file


class Shown:
    """Rows as they are shown early, and what was taken back."""

    def __init__(self):
        self.epochs, self.rewound, self.enough = {}, [], threading.Event()
        self.wanted = 60

    def take(self, rows, epoch):
        assert epoch not in self.epochs, "shown twice without a rewind"
        self.epochs[epoch] = rows
        if sum(map(len, self.epochs.values())) >= self.wanted:
            self.enough.set()

    def rewind(self, after):
        self.rewound.append(after)
        self.epochs = {epoch: rows for epoch, rows in self.epochs.items() if epoch <= after}

    @property
    def rows(self):
        return [row for epoch in sorted(self.epochs) for row in self.epochs[epoch]]

    def wait_for_more(self):
        self.wanted = len(self.rows) + 60
        self.enough.clear()
        self.enough.wait()


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def evaluator(query):
    found = [
        child
        for child in children(query._loop.pid)
        if b"anabranch.engine.evaluator" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    assert 2 == len(found)
    return found[0]


def kill_task(query, _):
    os.kill(query._loop.pid, signal.SIGKILL)


def kill_evaluator(query, _):
    os.kill(evaluator(query), signal.SIGKILL)


def cancel_job(_, spark_context):
    spark_context.cancelAllJobs()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [kill_task, kill_evaluator, cancel_job])
def test_whatever_ends_the_task_nothing_is_lost_and_the_order_is_kept(
    spark_context, tmp_path, fault
):
    shown = Shown()
    sink = ab.sinks.Callback(shown.take, visible="early", on_rewind=shown.rewind)
    program = program_over(numbers(rate=RATE), sink)
    trigger = ab.continuous("5 ms", "300 ms")
    query = program.start(
        spark_context, trigger=trigger, checkpoint=tmp_path / "ckpt", parallelism=2
    )
    shown.wait_for_more()

    before = query._loop.pid
    fault(query, spark_context)
    while query._loop.pid == before:
        shown.wait_for_more()
    shown.wait_for_more()
    query.stop()

    assert 1 == len(shown.rewound)
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, shown.rows)
