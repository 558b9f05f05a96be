"""Workloads on Spark by cores: all rows are counted, and who is not twice as fast says why."""

import pytest

from anabranch.spark.session import spark_context
from bench.backlog import runs
from bench.benches import lrb, nyt, tpcxbb
from bench.harness.stand import Settings, Stand

WORKLOADS = {
    f"{bench.__name__.rpartition('.')[2]} {name}": workload
    for bench in (lrb, nyt, tpcxbb)
    for name, workload in bench.WORKLOADS.items()
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_a_program_whose_regions_are_known(name):
    assert "times on two cores" in runs._reason(name, WORKLOADS[name], 1.2)


@pytest.mark.spark
@pytest.mark.slow
def test_all_rows_of_a_backlog_are_committed_and_timed():
    attached, workload = spark_context(master="local[1]"), tpcxbb.WORKLOADS["q4"]
    try:
        assert runs.throughput(attached.sc, workload.make(480), 480, 1) > 0
    finally:
        attached.stop()


def test_who_is_not_nearly_twice_as_fast_says_why(monkeypatch):
    class Attached:
        sc = None

        def stop(self):
            pass

    monkeypatch.setattr(runs, "spark_context", lambda **_: Attached())
    monkeypatch.setattr(runs, "throughput", lambda _sc, _program, _rows, lanes: 100.0 + lanes)
    stand = Stand(Settings(runs=1, warmups=0, quick=True))

    one, two = runs.measured(stand, {"q1": tpcxbb.WORKLOADS["q1"]})

    assert (101.0, 102.0) == (one.value, two.value)
    (note,) = stand.notes
    assert note.startswith("q1, 1.01 times on two cores: in one lane by the compiler: ")
