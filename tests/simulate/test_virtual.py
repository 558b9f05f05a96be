"""The machines in virtual time: everything is committed, and the figures follow from the costs."""

import pytest

from anabranch.epoch.machine import Rules
from anabranch.simulate.virtual import Costs, Load, Simulation

FREE = Costs(job=0.02, head_row=0.0, lane_epoch=0.0, commit=0.001)


def test_an_idle_query_has_the_latency_of_two_jobs_and_a_commit():
    """One epoch a second: its heads are one job, its lanes the next, then it is committed."""
    report = Simulation(Rules(every=1.0), Load(rate=1000, seconds=20), FREE).run()

    assert report.rows == 20_000
    assert report.median_latency == pytest.approx(0.041)
    assert max(report.latencies) == pytest.approx(0.041)


def test_all_rows_are_committed_when_the_load_is_more_than_one_epoch_a_cycle():
    load = Load(rate=5_000_000, seconds=5, max_rows=50_000)
    report = Simulation(Rules(every=0.0), load, Costs()).run()

    assert report.rows == 25_000_000
    assert len(report.latencies) >= 500


def test_a_backlog_is_taken_in_larger_bites():
    """At 25 ms a job and 50,000 rows an epoch, one epoch a cycle could follow 2 M rows/s only."""
    load = Load(rate=6_000_000, seconds=10, max_rows=50_000)
    report = Simulation(Rules(every=0.0), load, Costs(head_row=1 / 40_000_000)).run()

    assert report.cycles < 0.5 * len(report.latencies)
    assert report.ended < 11


def test_the_same_run_is_the_same_again():
    load = Load(rate=123_457, seconds=7, max_rows=10_000)
    one, other = (Simulation(Rules(every=0.3), load, Costs()).run() for _ in range(2))

    assert one.latencies == other.latencies
