"""Schneider's graphs in virtual time: efficient where work is heavy, bounded by order where not."""

import polars as pl
import pytest

from anabranch.spark.session import spark_context
from bench.backlog import runs
from bench.benches import scale
from bench.benches.scale import GRAPHS, Ground
from bench.continuous.operators import Kind, Operator, Query
from bench.harness import registry
from bench.harness.report import Report, Row
from bench.harness.stand import Settings, Stand
from bench.kernels.tasks import Tasks
from bench.scale import applications, channels, growth, paper
from bench.scale.applications import APPLICATIONS
from tests.bench.test_report import HEADER

QUICK = Stand(Settings(runs=1, warmups=0, quick=True))


def query(*, sequential=0.0, onward=1e-6, cost=1e-3):
    """A head, a stage by key, one that is not parallel, and so much to go on in order."""
    return Query(
        "some",
        (
            Operator("heads", Kind.STATELESS, cost, 1.0, onward),
            Operator("stage 0", Kind.PARTITIONED, cost, 1.0, onward),
            Operator("stage 1", Kind.STATEFUL, sequential, 1.0, onward),
        ),
    )


def ratios(name, *, onward, work, channels):
    ground = Ground(onward, (1, channels), (work,), 40 * channels)
    return {row.system: row.ratio for row in scale.scaled(name, ground) if row.against}


def test_all_of_it_can_be_found():
    assert all(registry.find("scale").has(name) for name in (*GRAPHS, *scale.KERNELS))


def test_what_is_asked_for_is_chosen_by_name():
    of = [scale.asked(Stand(Settings(cases=each))) for each in ((), ("twitter-*", "shuffle"))]

    assert [list(scale.NAMES), ["shuffle", "twitter-nlp", "twitter-cep"]] == of


@pytest.mark.parametrize("name", GRAPHS)
def test_heavy_work_scales(name):
    (found,) = ratios(name, onward=1e-6, work=1000, channels=8).values()

    assert 7.5 < found <= 8.0


@pytest.mark.parametrize(
    ("name", "most"), [("stateless", 3.0), ("stateful", 3.0), ("shuffle", 6.0)]
)
def test_what_goes_on_in_order_bounds_light_work(name, most):
    """A tuple costs 10 us and goes on in 5 us, one at a time, at each operator."""
    (found,) = ratios(name, onward=5e-6, work=10, channels=32).values()

    assert most - 1 < found <= most + 1e-9


def test_an_events_cost_is_told_by_input_and_by_keys():
    stand = Stand(Settings(runs=1, warmups=0, quick=True))
    found = [row for name in growth.NAMES for row in growth.measured(stand, name)]

    assert ["1 x", "4 x", "16 x", "1,000 keys", "10,000 keys"] == [row.system for row in found]
    assert all(row.value > 0 for row in found)
    assert all(row.against in {None, "1 x", "1,000 keys"} for row in found)


def test_what_grows_is_summed_right():
    tasks, given = Tasks(growth.program()), [growth.epoch(number, 7) for number in range(3)]
    made = [frame for each in given for frame in tasks.epoch([each])]
    made += tasks.epoch([given[0].clear()], last=True)

    kept = pl.concat(given).filter(pl.col("v") % 10 != 0)
    expected = kept.group_by("k").agg(total=(pl.col("v") * 3).sum()).sort("k")
    whole = pl.concat(made).filter(pl.col("window_start") == pl.lit(0).cast(pl.Datetime("us")))
    assert expected.rows() == whole.select("k", "total").sort("k").rows()


def test_speed_ups_follow_from_costs_alone():
    costs = {width: query(sequential=1e-4) for width in (1, 2, 8, 32)}

    found = channels.speedups(costs, {}, 400)

    assert found == channels.speedups(costs, {}, 400)
    assert 1.0 == found[1]
    assert all(speedup <= width + 1e-9 for width, speedup in found.items())
    assert found[2] < found[8] < found[32] <= 2.1 / 0.1


def test_costs_below_those_of_one_channel_are_chance_and_make_nothing_faster():
    found = channels.speedups({1: query(), 4: query(cost=1e-4, onward=0.0)}, {}, 400)

    assert 3.5 < found[4] <= 4.0


def test_dividing_rows_costs_speed_up():
    found = channels.speedups({1: query(), 4: query(cost=2e-3)}, {}, 400)

    assert 1.8 < found[4] <= 2.0 + 1e-9


def test_few_keys_are_few_channels():
    """Of two milliseconds one is by key, and two keys give two channels something to do there."""
    found = channels.speedups({1: query(), 32: query()}, {0: 2}, 400)

    assert 3.0 < found[32] <= 4.1


@pytest.mark.parametrize("name", paper.FIGURES)
def test_a_figure_of_the_paper_says_where_it_is_from(name):
    for figure in paper.FIGURES[name]:
        assert figure.where.startswith("section 5.")
        assert f"{figure.speedup:g}" in figure.quote
        assert figure.where in paper.told(name)
        assert 1 < figure.speedup <= figure.channels


def test_ours_is_told_beside_the_papers_where_it_has_a_figure():
    one, four, theirs = paper.beside("finance", {1: 1.0, 4: 3.6})

    assert ("speedup_1", "anabranch", None) == (one.metric, one.system, one.ratio)
    assert ("schneider-paper", 3.6 / 3.2) == (four.against, four.ratio)
    assert ("speedup_4", "schneider-paper", 3.2) == (theirs.metric, theirs.system, theirs.value)


def test_graphs_are_told_beside_the_paper_with_their_dearest_work():
    stand = Stand(Settings(runs=1, warmups=0, quick=True))
    rows = list(scale.beside_paper(stand, "shuffle", Ground(1e-6, (1, 32), (10, 1000), 320)))

    assert ["speedup_16", "speedup_32"] == [row.metric for row in rows if row.against]
    assert [paper.told("shuffle")] == stand.notes
    assert [] == list(scale.beside_paper(QUICK, "shuffle", Ground(1e-6, (1, 8), (100,), 80)))


@pytest.mark.slow
@pytest.mark.parametrize("name", scale.KERNELS)
def test_a_kernel_is_measured_at_each_width(name, monkeypatch):
    monkeypatch.setattr(channels, "QUICK_PARTS", 1)
    ground = Ground(1e-6, (1, 2), (100,), 80)

    rows = list(scale.kernel(QUICK, name, ground))

    Report("scale", HEADER, tuple(rows))
    assert {"cost, 1", "cost, 2", "onward, 1", "onward, 2", "speedup_1", "speedup_2"} == {
        row.metric for row in rows
    }
    (two,) = (row.value for row in rows if row.metric == "speedup_2")
    assert 0.2 < two <= 2.0 + 1e-9
    assert all(row.value > 0 for row in rows if row.metric.startswith("onward"))


def test_what_is_not_parallel_is_not_in_the_paper():
    """Figure 11: of the operators of all five, Finance's Combine and PageRank's Add."""
    alone = {
        name: [kind is Kind.STATEFUL for kind in channels.operators.kinds(each.make(10_000, 1))]
        for name, each in APPLICATIONS.items()
    }

    assert {"finance", "pagerank"} == {name for name, kinds in alone.items() if any(kinds)}
    assert [False, False, True, False] == alone["finance"]
    assert [False, *[False, True] * 3] == alone["pagerank"]


def test_a_speed_up_on_spark_is_the_ratio_with_the_least_and_greatest_of_any_two(monkeypatch):
    one = Row("network", "throughput", "rows/s", "1 core, 1 lane", 10.0, 8.0, 12.0, 3)
    two = Row(
        "network", "throughput", "rows/s", "2 cores, 2 lanes", 18.0, 16.0, 20.0, 3,
        "1 core, 1 lane", 1.8,
    )  # fmt: skip
    monkeypatch.setattr(runs, "measured", lambda _stand, _workloads: [one, two])

    *_, found = applications.on_spark(QUICK, ["network"])

    assert ("speedup", 1.8, 16 / 12, 20 / 8) == (found.metric, found.value, found.low, found.high)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_kernels_backlog_is_a_program_whose_regions_are_known(name):
    workload = APPLICATIONS[name].workload()

    assert "times on two cores" in runs._reason(name, workload, 1.2)


@pytest.mark.spark
@pytest.mark.slow
def test_kernels_give_the_same_rows_with_one_lane_and_with_two():
    """So little may be committed at once, in no time that could be taken: no figure is looked at."""
    attached = spark_context(master="local[2]")
    try:
        for name, each in APPLICATIONS.items():
            workload, rows = each.workload(), 2 * each.part
            first = workload.make(rows)
            runs.throughput(attached.sc, first, rows, 1)
            second = workload.make(rows)
            runs.throughput(attached.sc, second, rows, 2)
            assert any(frame.height for frame in runs.results(first).values()), name
            runs.require_same(name, runs.results(first), second)
    finally:
        attached.stop()
