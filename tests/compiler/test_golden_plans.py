"""Each pass on each program of the papers: one golden file a pass, and the papers' own sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.compiler.compile import PASSES, compile_graph
from anabranch.compiler.strategies import ordering_of
from tests.compiler import programs

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def plans():
    return {title: compile_graph(build().freeze()) for title, build in programs.ALL.items()}


@pytest.fixture
def same(request):
    """Compare what a pass says of all programs with the file of that pass."""

    def compare(name, text):
        file = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        assert file.exists(), f"no {file.name}: run ./x test --update-golden and read what it wrote"
        assert file.read_text() == text

    return compare


def told(plans, lines):
    return "\n".join(
        f"# {title}\n" + "".join(f"{line}\n" for line in lines(plan))
        for title, plan in plans.items()
    )


def comma(names):
    return ", ".join(names) or "-"


def traits(plan):
    for op, found in zip(plan.graph.operators, plan.traits, strict=True):
        key = f" by {comma(found.key)}" if found.key else ""
        pure = "" if found.pure else "  not pure"
        said = f"  declared {comma(found.declared)}" if found.declared else ""
        yield f"{op.name}: {found.state}{key}, {found.selectivity}{pure}{said}"
        yield f"    forwards {comma(found.forwards)}"


def regions(plan):
    for region in plan.regions:
        by = f" by {comma(region.key)}" if region.key else ""
        kind = "parallel" if region.parallel else "sequential"
        names = " ".join(op.name for op in plan.operators(region))
        yield f"{region.id} {kind}{by}: {names}"
        yield f"    {region.because}"


def joint(each):
    ends = ("out" if end is None else str(end) for end in (each.before, each.behind))
    return f"{' -> '.join(ends)} {each.kind}".replace("out ->", "in ->")


def joints(plan):
    return map(joint, plan.joints)


def strategies(plan):
    for region in plan.regions:
        yield f"{region.id}: in by {region.routing}, ordered by {region.ordering}"
    for each in plan.joints:
        yield f"{joint(each)}: {each.strategy}"


WRITTEN = {"traits": traits, "regions": regions, "joints": joints, "strategies": strategies}


@pytest.mark.parametrize("name", WRITTEN)
def test_every_pass_says_what_it_said(name, plans, same):
    same(name, told(plans, WRITTEN[name]))


def test_there_is_a_file_for_every_pass():
    assert len(WRITTEN) == len(PASSES)


@pytest.mark.parametrize("title", programs.ALL)
def test_every_operator_is_in_exactly_one_region(title, plans):
    plan = plans[title]
    assert [op.id for op in plan.graph.operators] == sorted(
        number for region in plan.regions for number in region.operators
    )


# What the papers say


def named(plan):
    return [{op.name for op in plan.operators(region)} for region in plan.regions]


def home(plan, name):
    for region in plan.regions:
        if name in [op.name for op in plan.operators(region)]:
            return region
    raise AssertionError(name)


def alone(plan, *names):
    assert set(names) in named(plan)
    return home(plan, names[0])


def kinds(plan):
    return [each.kind for each in plan.joints]


def test_figure_1_is_a_source_a_shuffle_a_region_by_user_and_a_merge(plans):
    plan = plans["figure 1"]

    assert [{"ParSrc"}, {"Aggregate", "Filter"}, {"FileSink"}] == named(plan)
    assert ["parallel-source", "shuffle", "merge"] == kinds(plan)
    assert [True, True, False] == [region.parallel for region in plan.regions]
    assert ("uid",) == plan.regions[1].key


def test_figure_5_the_first_region_is_o1_since_o8_has_two_predecessors(plans):
    region = alone(plans["figure 5"], "o1")
    assert region.parallel
    assert ["o8 takes 2 streams"] == [end.text for end in region.ends]


def test_figure_5_the_next_is_o2_since_o3_is_not_parallelizable(plans):
    region = alone(plans["figure 5"], "o2")
    assert region.parallel
    assert ["o3 is over the whole stream"] == [end.text for end in region.ends]


def test_figure_5_o5_and_o6_are_one_region_though_only_o6_has_a_key(plans):
    plan = plans["figure 5"]
    region = alone(plan, "o5", "o6")
    assert (True, ("k",)) == (region.parallel, region.key)
    assert ["stateless", "keyed"] == [plan.traits[number].state for number in region.operators]


def test_figure_5_o9_and_o10_end_before_o11_for_the_key_would_be_empty(plans):
    plan = plans["figure 5"]
    region = alone(plan, "o9", "o10")
    assert (True, ("k",)) == (region.parallel, region.key)
    assert ["o11 is by l, and the region by k"] == [end.text for end in region.ends]
    keys = [plan.traits[op.id].key for op in plan.graph.operators if op.name in ("o10", "o11")]
    assert set(keys[0]) & set(keys[1]), "o10 and o11 would have been safe together"


def test_figure_5_o12_is_in_no_parallel_region_since_it_is_fused_with_o14(plans):
    plan = plans["figure 5"]
    assert not home(plan, "o12").parallel
    assert home(plan, "o12") is home(plan, "o14")


def test_figure_5_o13_is_in_the_way_since_it_has_two_predecessors(plans):
    plan = plans["figure 5"]
    (o13,) = [op for op in plan.graph.operators if op.name == "o13"]
    assert len(o13.inputs) == 2
    assert {"o12", "o13", "o14"} in named(plan)

    without = compile_graph(programs.figure_5(fused=False).freeze())
    assert home(without, "o12").parallel
    assert home(without, "o12") is not home(without, "o14")


def test_figure_5_has_fourteen_operators(plans):
    assert 14 == len(plans["figure 5"].graph.operators)


def test_table_1(same):
    lines = []
    for state in ("stateless", "keyed", "whole", "unknown"):
        row = (ordering_of(state, each) for each in ("one", "at-most-one", "any", "unknown"))
        lines.append("  ".join([f"{state:<10}", *(f"{each:<16}" for each in row)]).rstrip())
    same("table_1", "\n".join(lines) + "\n")


def test_network_monitoring_leaves_only_routing_to_the_runtime(plans):
    plan = plans["network monitoring"]
    assert ["parallel-source", "shuffle", "parallel-sink"] == kinds(plan)
    assert [True, True] == [region.parallel for region in plan.regions]
    assert ["none", "none"] == [region.ordering for region in plan.regions]


def test_pagerank_multiplies_in_parallel_and_adds_in_one_place(plans):
    plan = plans["PageRank"]
    assert home(plan, "MulAdd").parallel
    assert not home(plan, "Add").parallel
    assert {"Add"} in named(plan)
    add, iterate = home(plan, "Add").id, home(plan, "Iterate").id
    assert (add, iterate) in [(each.before, each.behind) for each in plan.joints]


def test_twitter_nlp_is_one_stateless_region_in_turn(plans):
    region = home(plans["Twitter NLP"], "NLP")
    assert (True, "round-robin", "round-robin") == (
        region.parallel,
        region.routing,
        region.ordering,
    )


def test_twitter_cep_has_a_shuffle_by_author_between_two_parallel_regions(plans):
    plan = plans["Twitter CEP"]
    parse, match = home(plan, "Parse"), home(plan, "Match")
    assert parse.parallel
    assert (True, ("author",)) == (match.parallel, match.key)
    assert ["parallel-source", "shuffle", "merge"] == kinds(plan)
    assert "none" not in (parse.ordering, match.ordering)


def test_finance_is_parallel_but_for_the_operator_that_combines_by_time(plans):
    plan = plans["finance"]
    sequential = [op for op in plan.graph.operators if not home(plan, op.name).parallel]
    assert {"merge-1", "vwap", "bargains"} == {op.name for op in sequential}


# Prasaad et al., table 1: SL stateless, PS partitioned stateful, SF stateful

PAPER = {
    "TPCx-BB 1": "SL PS PS SF",
    "TPCx-BB 1, running": "SL PS PS SF",
    "TPCx-BB 2": "SL PS SL PS SF",
    "TPCx-BB 3": "SL PS PS",
    "TPCx-BB 4": "SL PS SL SF",
    "TPCx-BB 15": "SL SL PS",
}
OURS = {
    "TPCx-BB 1": "SL PS PS SL SF SL",
    "TPCx-BB 1, running": "SL PS sort PS SF",
    "TPCx-BB 2": "SL PS SL sort PS SF",
    "TPCx-BB 3": "SL sort PS SL PS",
    "TPCx-BB 4": "SL PS SL SF",
    "TPCx-BB 15": "SL PS",
}
"""Neighbours without state are written once; `sort` is in_time_order, which the paper's input needs
not since it comes in order. The paper says nothing of the filter and renaming around its windows."""


@pytest.mark.parametrize("title", PAPER)
def test_tpcxbb_has_the_pipelines_of_the_paper(title, plans):
    plan, found = plans[title], []
    for op in plan.graph.operators:
        short = {"stateless": "SL", "keyed": "PS", "whole": "SF"}[plan.traits[op.id].state]
        short = "sort" if op.kind == "in_time_order" else short
        if op.kind not in ("read", "write") and (short != "SL" or found[-1:] != ["SL"]):
            found.append(short)

    assert OURS[title] == " ".join(found)
    assert with_state(PAPER[title].split()) == with_state(found)


def with_state(pipeline):
    return [each for each in pipeline if each in ("PS", "SF")]


@pytest.mark.parametrize("title", PAPER)
def test_tpcxbb_runs_in_one_place_only_what_is_over_the_whole_stream(title, plans):
    plan = plans[title]
    for op in plan.graph.operators:
        whole = plan.traits[op.id].state == "whole" or op.kind == "write"
        assert whole != home(plan, op.name).parallel
