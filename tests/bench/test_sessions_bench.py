"""The bench of sessions: its delays, its shapes, and one short run."""

import time

import numpy as np
import pytest

import anabranch as ab
from anabranch.testing import run_sequential
from bench.benches import sessions
from bench.harness import registry
from bench.harness.report import Report
from bench.harness.stand import Settings, Stand
from bench.sessions.delayed import LONGEST_S, Delayed, delays
from bench.sessions.figures import FIGURES
from bench.sessions.runs import SYSTEMS, TINY, run
from bench.sessions.shapes import SHAPES
from tests.bench.test_report import HEADER


def test_all_of_it_can_be_found():
    bench = registry.find("sessions")

    assert all(bench.has(name) for name in ("load-60", "load-100", "load-130"))
    assert {"klink", "spark-fifo", "spark-fair"} <= set(SYSTEMS)


@pytest.mark.parametrize("law", ["uniform", "zipf"])
def test_delays_are_what_the_law_says_and_the_same_again(law):
    found = delays(law, 10_000, seed=3)

    assert np.array_equal(found, delays(law, 10_000, seed=3))
    assert 0 <= found.min() < found.max() <= LONGEST_S
    # Zipf's are mostly short.
    assert (np.median(found) < 0.2 * LONGEST_S) == (law == "zipf")


def test_rows_come_in_blocks_and_all_of_them():
    source = Delayed(1_000, 2.0, "uniform", seed=1)

    assert {0: 0} == source.latest()
    source.go(time.time() - 100.0)
    assert {0: 2_000} == source.latest()
    assert source.finished(0)
    (split,) = source.plan({0: 0}, {0: 2_000})
    frame = source.frame(split)
    assert frame["t"].is_sorted()
    assert 1_000_000 - 1_000 <= frame["t"][1_000] - frame["t"][0] <= 1_000_000
    source.go(time.time() + 100.0)
    assert {0: 0} == source.latest()


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_gives_windows(name):
    source = Delayed(80, 12.0, "uniform", seed=1)
    source.go(time.time() - 100.0)
    program = SHAPES[name](source, ab.sinks.Memory("out"), name)

    assert run_sequential(program)["out"]


@pytest.mark.parametrize("name", ["figure-8", "figure-9", "nodes-1000"])
def test_a_figure_gives_the_same_rows_again(name):
    rows = list(FIGURES[name](True))

    assert {name} == {row.case for row in rows}
    assert rows == list(FIGURES[name](True))
    Report("sessions", HEADER, tuple(rows))  # refuses what is no report


def test_the_estimates_are_within_their_intervals_as_often_as_the_papers():
    found = {row.metric: row.value for row in FIGURES["figure-9"](True) if row.system == "klink"}

    assert found["accuracy_uniform_90"] >= 0.95
    assert found["accuracy_uniform_95"] >= 0.98
    assert found["accuracy_zipf_90"] >= 0.85
    assert found["accuracy_zipf_95"] >= 0.95


def test_a_decision_is_timed_among_many():
    rows = sessions.deciding(Stand(Settings(runs=1, warmups=0)))

    assert ["decision_10", "decision_100", "decision_1000"] == [row.metric for row in rows]


@pytest.mark.spark
@pytest.mark.slow
def test_a_short_run_comes_to_its_end():
    """On a busy machine no window may have fired by then: no figure is looked at."""
    found = run("klink", 2_000, TINY, seed=1)

    assert "klink" == found.policy
    assert found.deciding > 0
