from __future__ import annotations

import pytest

from anabranch.scheduling.last_in_pipeline import last_in_pipeline
from anabranch.testing import run_sequential
from bench.benches import continuous
from bench.continuous import figures, on_threads, operators, virtual
from bench.continuous.operators import Kind, Operator, Query
from bench.harness import registry
from bench.harness.report import Report
from bench.harness.stand import Settings, Stand
from bench.workloads import tpcxbb_rows
from tests.bench.test_report import HEADER

STAND = Stand(Settings(runs=1, warmups=0, quick=True))
SHORT = Query(
    "short",
    (
        Operator("heads", Kind.STATELESS, 20e-6, 0.5, 1e-6),
        Operator("stage 0", Kind.PARTITIONED, 50e-6, 1.0, 1e-6),
        Operator("stage 1", Kind.STATEFUL, 10e-6, 1.0, 1e-6),
    ),
)
GROUND = figures.Ground({"short": SHORT}, 2e-6, 1e-6, (1, 4), 40)


def test_all_of_it_can_be_found_and_asked_for():
    bench = registry.find("continuous")

    assert all(bench.has(name) for name in figures.NAMES)
    assert list(figures.NAMES) == continuous.chosen(())
    assert ["figure-8"] == continuous.chosen(("figure-8",))


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_figure_gives_the_same_rows_again(name):
    rows = list(figures.FIGURES[name](GROUND))

    assert {name} == {row.case for row in rows}
    assert rows == list(figures.FIGURES[name](GROUND))
    Report("continuous", HEADER, tuple(rows))  # refuses what is no report


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("policy", virtual.POLICIES)
def test_no_policy_exceeds_the_bound(policy, workers):
    outcome = virtual.query(SHORT, 200, virtual.Setting(workers, policy))

    assert outcome.throughput <= virtual.bound(SHORT, outcome) * (1 + 1e-9)
    assert workers > 1 or outcome.throughput == pytest.approx(virtual.bound(SHORT, outcome))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("q1", "SL PS PS SF"),
        ("q2", "SL PS SF PS SF"),
        ("q3", "SL SF PS PS"),
        ("q4", "SL PS SF"),
        ("q15", "SL PS"),
    ],
)
def test_operators_are_measured_with_what_they_give(monkeypatch, name, kinds):
    """Stateless operators are part of what they follow; `in_time_order` has one state."""
    monkeypatch.setattr(operators, "QUICK_ROWS", 1_000)

    query = operators.measured(STAND, name)

    assert kinds.split() == [each.kind.value for each in query.operators]
    assert all(each.cost > 0 and each.onward > 0 for each in query.operators)
    through = 1.0
    for each in query.operators:
        through *= each.selectivity
    sent = run_sequential(operators.programs()[name](1_000), epoch_rows=operators.BUNDLE)["out"]
    # The oracle's input ends, and what windows still hold comes out then.
    assert through * 1_000 <= len(sent) + 1e-6


@pytest.mark.slow
def test_real_threads_are_raced_where_they_are_asked_for(monkeypatch):
    monkeypatch.setattr(operators, "QUICK_ROWS", 500)
    monkeypatch.setattr(on_threads, "POLICIES", {"last-in-pipeline": last_in_pipeline})
    settings = Settings(runs=1, warmups=0, quick=True, cases=("threads",))

    rows = continuous.cases(Stand(settings))

    assert {"threads"} == {row.case for row in rows}
    assert 5 * 2 == len(rows)


def test_rows_are_in_time_order_and_the_same_again():
    for made in (tpcxbb_rows.sales, tpcxbb_rows.clicks):
        frame = made(500, seed=3)
        assert frame["tstamp"].is_sorted()
        assert frame.equals(made(500, seed=3))
        assert not frame.equals(made(500, seed=4))
