"""Programs of several sources, stages and sinks on a real Spark, cut off and gone on with."""

import polars as pl
import pytest

import anabranch as ab
from anabranch.program.operators.edges import Write
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import written
from tests.spark.test_operators import EVENTS, events
from tests.spark.test_spine import cut_off, ended

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def read(program, count, **options):
    source = ab.sources.Records(events(count), schema=EVENTS, partitions=2)
    return program.read(source, event_time="t", lateness="100 ms", **options)


def inverse(record):
    return {**record, "n": 60 // record["n"]}


def counted(stream, by):
    return stream.window(ab.tumbling("200 ms"), by=by).agg(rows=ab.count(), x=ab.sum("x"))


def several_levels(program, sinks):
    """A key, then another, then none: three stages, each behind an exchange."""
    stream = read(program, 400)
    by_key = stream.key_by("k").process(running, out=EVENTS)
    by_number = counted(by_key, "n")
    by_number.write(sinks("by-number"), name="by-number")
    by_number.window(ab.tumbling("1 s")).agg(windows=ab.count()).write(
        sinks("in-all"), name="in-all"
    )


def running(record, state):
    state.value = (state.value or 0) + 1
    yield {**record, "x": float(state.value)}


def several_sources(program, sinks):
    """Two streams, joined, and each alone; one sink takes rows in any order."""
    left, right = read(program, 300), read(program, 200, name="right")
    joined = left.join(right.select("t", "k", m="n"), on="k", within="60 ms", how="full")
    joined.write(sinks("joined"), name="joined")
    counted(left.union(right), "k").write(sinks("counts"), name="counts")
    left.filter(pl.col("n") > 3).write(sinks("some"), name="some", ordered=False)


def dead_letters(program, sinks):
    """What fails in a head, and behind an operator that holds rows."""
    stream = read(program, 300)
    mapped = stream.map(inverse, out=EVENTS, on_error="dead_letter")
    mapped.write(sinks("good"), name="good")
    mapped.dead_letters.write(sinks("bad"), name="bad")
    held = stream.in_time_order().map(inverse, out=EVENTS, on_error="dead_letter")
    held.dead_letters.select("partition", "offset", "epoch", "error").write(
        sinks("held"), name="held"
    )
    windows = stream.window(ab.tumbling("100 ms"), by="k")
    windows.agg(n=ab.count()).write(sinks("windows"), name="windows")
    windows.late.write(sinks("late"), name="late")


def a_loop(program, sinks):
    """Between two stages that are divided: rows go round until their number is used up."""
    stream = read(program, 300).key_by("k").process(running, out=EVENTS)
    back = program.feedback(EVENTS, event_time="t")
    both = stream.union(back)
    fewer = both.map(inverse, out=EVENTS, on_error="dead_letter")
    back.close(fewer.filter(pl.col("n") > 20).with_columns(n=pl.col("n") % 7))
    fewer.dead_letters.write(sinks("bad"), name="bad")
    counted(both, "k").write(sinks("counts"), name="counts")


PROGRAMS = [several_levels, several_sources, dead_letters, a_loop]


def made(build, home):
    program = ab.Program("network")
    build(program, lambda name: ab.sinks.Files(home / name, format="parquet"))
    return program


@pytest.mark.parametrize("exchange", ["files", "shuffle"])
@pytest.mark.parametrize("build", PROGRAMS)
def test_a_network_gives_what_it_means(build, exchange, tmp_path, spark_context, monkeypatch):
    monkeypatch.setenv("ANABRANCH_EXCHANGE", exchange)

    def start(**options):
        program = made(build, tmp_path)
        return program.start(spark_context, checkpoint=tmp_path / "ckpt", slices=16, **options)

    first = start(trigger=ab.epochs("5 ms", 3), parallelism=2)
    cut_off(first)
    ended(start(trigger=ab.available_now(40), parallelism=3))

    program = made(build, tmp_path)
    expected = run_sequential(program, log=tmp_path / "ckpt")
    for write in program.freeze().of(Write):
        rows, wanted = written(tmp_path / write.name), expected[write.name]
        if not write.ordered:
            rows, wanted = sorted(rows, key=repr), sorted(wanted, key=repr)
        assert_same_rows(wanted, rows)
        assert rows, write.name
