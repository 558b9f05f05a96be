"""On a real Spark: records at which a worker process dies or never ends."""

import os
import signal
from dataclasses import replace

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings
from anabranch.spark.executor import SparkExecutor
from anabranch.testing import assert_same_rows, run_sequential

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]

SCHEMA = {"t": pl.Int64, "k": pl.String, "n": pl.Int64, "kill": pl.String}


def harm(kind):
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    while kind == "loops":
        pass


@ab.operator(out=SCHEMA, state="stateless", pure=True)
def in_heads(record):
    if record["n"] == 3:
        harm(record["kill"])
    yield record


@ab.operator(out={"n": pl.Int64, "sum": pl.Int64}, state="keyed", pure=True)
def in_lanes(record, state):
    if record["n"] == 8:
        harm(record["kill"])
    state.value = (state.value or 0) + record["n"]
    yield {"n": record["n"], "sum": state.value}


def program_of(kind, out, letters):
    program = ab.Program("poison")
    rows = [{"t": at, "k": "ab"[at % 2], "n": at, "kill": kind} for at in range(12)]
    read = program.read(
        ab.sources.Records(rows, schema=SCHEMA), event_time="t", on_error="dead_letter", name="in"
    )
    read.flat_map(in_heads).key_by("k").process(in_lanes).write(out, name="out")
    read.dead_letters.write(letters, name="letters")
    return program


@pytest.mark.parametrize(
    ("kind", "exchange"), [("dies", "files"), ("dies", "shuffle"), ("loops", "files")]
)
def test_the_query_goes_on_without_them(spark_context, tmp_path, kind, exchange):
    out, letters = ab.sinks.Memory("out"), ab.sinks.Memory("letters")
    program = program_of(kind, out, letters)
    graph = program.freeze()
    settings = Settings(available_now(6), tmp_path / "ckpt", 2, slices=8, keep=None)
    if kind == "loops":
        settings = replace(settings, job_timeout=5.0)

    query = start(graph, settings, SparkExecutor(spark_context, graph, exchange))

    assert query.await_termination(300), query.why()
    assert [3, 8] == [letter["offset"] for letter in letters.rows]
    again = program_of(kind, ab.sinks.Memory("out"), ab.sinks.Memory("letters"))
    expected = run_sequential(again, log=tmp_path / "ckpt")
    assert_same_rows(expected["out"], out.rows)
    assert_same_rows(expected["letters"], letters.rows)
    assert 10 == len(out.rows)
