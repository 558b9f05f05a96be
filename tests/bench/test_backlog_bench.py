"""Workloads on Spark by cores: all rows are counted, and who is not twice as fast says why."""

import polars as pl
import pytest

import anabranch as ab
from anabranch.spark.session import spark_context
from anabranch.testing import assert_same_rows, run_sequential
from bench.backlog import runs
from bench.benches import lrb, nyt, tpcxbb
from bench.harness.stand import Settings, Stand
from bench.scale import lanes

WORKLOADS = {
    f"{bench.__name__.rpartition('.')[2]} {name}": workload
    for bench in (lrb, nyt, tpcxbb)
    for name, workload in bench.WORKLOADS.items()
}
WORKLOADS |= lanes.WORKLOADS


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_a_program_whose_regions_are_known(name):
    assert "times on two cores" in runs._reason(name, WORKLOADS[name], 1.2)


@pytest.mark.spark
@pytest.mark.slow
def test_all_rows_of_a_backlog_are_committed_and_right():
    attached, workload = spark_context(master="local[1]"), tpcxbb.WORKLOADS["q4"]
    try:
        program = workload.make(480)
        # So little may be committed at once, in no time that could be taken: rows are looked at.
        runs.throughput(attached.sc, program, 480, 1)
        expected = run_sequential(workload.make(480))
        assert expected == {name: frame.to_dicts() for name, frame in runs.results(program).items()}
        assert any(expected.values())
    finally:
        attached.stop()


@pytest.mark.spark
@pytest.mark.slow
def test_other_workloads_give_with_two_lanes_what_the_oracle_says():
    attached = spark_context(master="local[2]")
    try:
        for name, workload in lanes.WORKLOADS.items():
            program = workload.make(240)
            runs.throughput(attached.sc, program, 240, 2)
            expected = run_sequential(workload.make(240))
            found = {each: frame.to_dicts() for each, frame in runs.results(program).items()}
            assert expected.keys() == found.keys(), name
            for sink, rows in expected.items():
                assert_same_rows(rows, found[sink])
    finally:
        attached.stop()


def test_a_source_alone_is_timed_without_what_is_made_beforehand():
    ticks = iter([0.0, 10.0, 10.0, 12.0])
    stand = Stand(Settings(runs=1, warmups=0), clock=lambda: next(ticks))
    program = ab.Program("p")
    program.read(ab.sources.Records([{"v": 1}] * 240)).write(ab.sinks.Memory("out"))

    assert 240 / runs.EPOCHS / 2.0 == runs.made(stand, program)


class Attached:
    sc = None

    def stop(self):
        pass


@pytest.mark.parametrize(
    ("two_lanes", "says"),
    [
        (101.0, ["q1, 1.01 times on two cores: in one lane by the compiler: "]),
        (190.0, []),
        (590.0, ["q1, 5.90 times on two cores: no measurement. "]),
    ],
)
def test_who_is_not_nearly_twice_as_fast_says_why(monkeypatch, two_lanes, says):
    """More than twice is no measurement, and that is said as well."""
    speeds = {1: 100.0, 2: two_lanes}
    monkeypatch.setattr(runs, "spark_context", lambda **_: Attached())
    monkeypatch.setattr(runs, "throughput", lambda _sc, _program, _rows, lanes: speeds[lanes])
    stand = Stand(Settings(runs=1, warmups=0, quick=True))

    one, two, source = runs.measured(stand, {"q1": tpcxbb.WORKLOADS["q1"]})

    assert (100.0, two_lanes) == (one.value, two.value)
    assert ("source", "source alone") == (source.metric, source.system)
    assert source.value > 0
    assert says == [note[: len(start)] for note, start in zip(stand.notes, says, strict=True)]


def _written(*values, ordered=True):
    """A program whose sink holds these rows, as after a run."""
    program, sink = ab.Program("p"), ab.sinks.Memory("out")
    program.read(ab.sources.Records([{"v": 1}])).write(sink, name="out", ordered=ordered)
    sink.publish([sink.write(pl.DataFrame({"v": values}).to_arrow().to_batches(), 0, "a")], 0)
    return program


def test_a_run_that_gives_other_rows_is_no_measurement():
    first = runs.results(_written(1, 2))

    runs.require_same("some", first, _written(1, 2))
    runs.require_same("some", first, _written(2, 1, ordered=False))
    for other in (_written(2, 1), _written(1, 3, ordered=False), _written(1)):
        with pytest.raises(RuntimeError, match=r"^some: not the rows that the first run gave$"):
            runs.require_same("some", first, other)
