"""Figures for Prometheus: progress in, text out."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now
from anabranch.observe.metrics import BUCKETS, Histogram, Metrics, exposition
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from tests.runtime.test_inline import made

PATIENCE_S = 60
NOW = 1_700_000_010.0
"""Ten seconds after the newest commit here."""


def told(**given):
    """A commit of epochs 4 and 5, as progress tells it, as far as metrics read it."""
    ours = {
        "epochs": [4, 5],
        "epochsUnderWay": 2,
        "lateRows": 3,
        "failedRows": 1,
        "latencyMs": [4.0, 250.0],
        "timeMs": {"source": 12.5, "kernel": 40.0, "idle": 0.0},
        "sources": {"clicks": {"lagMs": 1500.0}, "views": {"lagMs": None}},
    }
    sources = [
        {"description": "clicks", "numInputRows": 100},
        {"description": "views", "numInputRows": 0},
    ]
    return {
        "timestamp": "2023-11-14T22:13:20.000Z",
        "sources": sources,
        "stateOperators": [{"operatorName": "window-1", "customMetrics": {"stateBytes": 4096}}],
        "anabranch": {**ours, **given},
    }


def test_the_text_of_two_queries(golden):
    views = Metrics("campaign-views").after(told()).after(told(epochs=[6, 6], latencyMs=[61_000.0]))
    odd = Metrics('new"\\\nline')

    golden("metrics.txt", exposition([views, odd], NOW))


def test_a_query_that_stands_still_is_further_and_further_behind():
    found = Metrics("q").after(told())

    lags = [re.findall(r"lag_seconds{.*} (.+)", exposition([found], at)) for at in (NOW, NOW + 60)]

    assert [["11.5"], ["71.5"]] == lags


def test_a_source_without_a_watermark_or_at_its_end_has_no_lag():
    ended = {"clicks": {"lagMs": None}}

    assert "lag_seconds" not in exposition([Metrics("q").after(told(sources=ended))], NOW)


def test_state_that_did_not_change_is_as_large_as_it_was():
    quiet = {**told(), "stateOperators": []}

    assert {"window-1": 4096} == Metrics("q").after(told()).after(quiet).state


def test_figures_before_the_first_commit_are_there_and_nought():
    text = exposition([Metrics("q")], NOW)

    assert 'anabranch_commits_total{query="q"} 0\n' in text
    assert 'anabranch_commit_latency_seconds_count{query="q"} 0\n' in text
    assert "timestamp" not in text


def test_two_queries_of_one_name_cannot_be_told_apart():
    with pytest.raises(ValueError, match=r"^two queries of one name: \['q', 'q'\]$"):
        exposition([Metrics("q"), Metrics("q")], NOW)


def test_the_documentation_has_every_metric_and_no_other():
    page = Path(__file__).parents[2] / "docs" / "watching.md"
    lines = re.findall(
        r"^\| `(anabranch_\w+)` \| (\w+) \| (.+?) \|", page.read_text(), re.MULTILINE
    )
    documented = {name: (kind, re.findall(r"\w+", labels)) for name, kind, labels in lines}
    text = exposition([Metrics("q").after(told())], NOW)

    assert dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)) == {
        name: kind for name, (kind, _) in documented.items()
    }
    for name, (_, labels) in documented.items():
        (found,) = set(re.findall(rf"^{name}(?:_sum)?{{(.*)}} ", text, re.MULTILINE)[:1])
        assert labels == re.findall(r"(\w+)=", found)


@given(st.lists(st.floats(0, 100), max_size=20))
def test_each_value_is_counted_in_every_bucket_that_holds_it(values):
    *buckets, total, count = Histogram().with_values(values).samples()

    expected = [sum(value <= bound for value in values) for bound in BUCKETS]
    assert [*expected, len(values)] == [value for _, _, value in buckets]
    assert ("_sum", (), pytest.approx(sum(values))) == total
    assert ("_count", (), len(values)) == count


SAMPLE = re.compile(r'([a-z_]+){((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)} (-?[0-9.]+)')
"""A line of the format, as strict as can be."""


@given(st.text(), st.text(), st.text())
def test_whatever_things_are_called_each_line_is_a_sample_of_its_family(query, source, operator):
    progress = {
        **told(sources={source: {"lagMs": 1.0}}),
        "sources": [{"description": source, "numInputRows": 1}],
        "stateOperators": [{"operatorName": operator, "customMetrics": {"stateBytes": 1}}],
    }

    family = None
    for line in exposition([Metrics(query).after(progress)], NOW).removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
        elif not line.startswith("# TYPE "):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            assert found[1].startswith(family)


@pytest.mark.parametrize("name", ["campaign_views", "fraud"])
def test_figures_of_a_run_are_those_that_the_query_tells(name, tmp_path):
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None)
    query = start(made(name, tmp_path).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)

    found = Metrics(query.name)
    for each in query.recent_progress:
        found = found.after(each)

    totals = query.statistics()
    assert totals["rows"] == sum(found.rows.values())
    assert (totals["epochs"], totals["commits"]) == (found.epochs, found.commits)
    assert (totals["lateRows"], totals["failedRows"]) == (found.late, found.failed)
    assert totals["epochs"] == sum(found.latency.counts)
    assert totals["timeMs"] == pytest.approx({k: 1000 * s for k, s in found.spent.items()})
    assert all(size > 0 for size in found.state.values())
    assert exposition([found], NOW).count("# TYPE ") == exposition([found], NOW).count("# HELP ")
