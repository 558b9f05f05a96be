"""What a program's author reads: the words, the JSON of the contract, the drawing."""

import json
import re
from functools import cache

import polars as pl
import pytest

import anabranch as ab
from anabranch.compiler.explain.forms import explain
from tests.compiler import programs

TOLD = {"ysb": "YSB", "figure_5": "figure 5", "fraud": "fraud"}
EXTENSIONS = {"text": "txt", "json": "json", "mermaid": "mmd"}


@cache
def plan_of(title):
    return programs.ALL[title]().compile()


def explained(title, form):
    """Lines move whenever a file is edited, and the tests may run anywhere."""
    text = explain(plan_of(title), form)
    if form == "json":
        text = re.sub(r'"file": "[^"]*/((?:tests|bench)/[^"]*)"', r'"file": "\1"', text)
        return re.sub(r'"line": \d+', '"line": 0', text) + "\n"
    return re.sub(r"\.py:\d+", lambda found: ".py:" + "0" * (len(found[0]) - 4), text) + "\n"


@pytest.mark.parametrize("form", EXTENSIONS)
@pytest.mark.parametrize("name", TOLD)
def test_the_texts_are_the_ones_we_wrote(name, form, golden):
    golden(f"explain_{name}.{EXTENSIONS[form]}", explained(TOLD[name], form))


@pytest.mark.parametrize("title", programs.ALL)
def test_a_hundred_columns_are_enough(title):
    text = explain(plan_of(title))
    assert [] == [line for line in text.splitlines() if len(line) > 100]
    assert text.count("┌") == text.count("└") == len(plan_of(title).regions)


@pytest.mark.parametrize("title", programs.ALL)
def test_the_json_is_that_of_the_contract(title):
    facts = json.loads(explain(plan_of(title), "json"))

    assert ["program", "operators", "regions", "joints"] == list(facts)
    for op in facts["operators"]:
        assert [
            "name", "kind", "region", "state", "key", "selectivity", "forwards", "pure",
            "declared", "reasons",
        ] == list(op)  # fmt: skip
        assert op["state"] in ("stateless", "keyed", "whole", "unknown")
        assert op["selectivity"] in ("one", "at-most-one", "any", "unknown")
        assert op["reasons"]
        assert all(["text", "file", "line"] == list(each) for each in op["reasons"])
        assert op["name"] in facts["regions"][op["region"]]["operators"]
    for number, region in enumerate(facts["regions"]):
        assert [
            "id", "operators", "parallel", "key", "routing", "ordering", "because",
        ] == list(region)  # fmt: skip
        assert number == region["id"]
        assert region["routing"] in ("round-robin", "hash", "none")
        assert region["ordering"] in ("round-robin", "sequence", "sequence+pulses", "none")
        assert region["parallel"] == (region["routing"] != "none")
        assert (region["key"] is None) == (region["routing"] != "hash")
    for joint in facts["joints"]:
        assert ["from", "to", "kind", "strategy"] == list(joint)
    names = [op["name"] for op in facts["operators"]]
    assert sorted(names) == sorted(n for region in facts["regions"] for n in region["operators"])


@pytest.mark.parametrize("title", programs.ALL)
def test_joints_fit_their_regions(title):
    facts = json.loads(explain(plan_of(title), "json"))
    parallel = {region["id"]: region["parallel"] for region in facts["regions"]} | {None: None}

    expected = {
        "parallel-source": [(None, True)],
        "split": [(False, True)],
        "shuffle": [(True, True)],
        "merge": [(True, False), (False, False)],
        "parallel-sink": [(True, None)],
    }
    for joint in facts["joints"]:
        assert (parallel[joint["from"]], parallel[joint["to"]]) in expected[joint["kind"]]


def test_names_cannot_break_the_drawing():
    program = ab.Program("quotes")
    stream = program.read(ab.sources.Records([{"n": 1}]), name='say "hi" #1')
    stream.write(ab.sinks.Memory("out"))

    assert 'n0["say #quot;hi#quot; #35;1"]' in program.explain("mermaid")


def test_an_unknown_form_is_refused():
    with pytest.raises(ab.ProgramError, match="have  text, json, mermaid"):
        programs.figure_1().explain("xml")


def test_what_is_declared_is_told_as_declared():
    @ab.operator(out={"n": pl.Int64}, pure=True)
    def fn(record):
        return record

    program = ab.Program("declared")
    program.read(ab.sources.Records([{"n": 1}])).map(fn).write(ab.sinks.Memory("out"))

    text = program.explain()
    assert "declared  pure: by its author, not proved" in text
    assert "fn is declared pure=True" in text
