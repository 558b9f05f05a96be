"""Figures for Prometheus: progress in, text out."""

import re
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

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


def documentation():
    """Kind and labels of every metric that the documentation has."""
    page = Path(__file__).parents[2] / "docs" / "watching.md"
    lines = re.findall(
        r"^\| `(anabranch_\w+)` \| (\w+) \| (.+?) \|", page.read_text(), re.MULTILINE
    )
    return {name: (kind, re.findall(r"\w+", labels)) for name, kind, labels in lines}


def test_the_documentation_has_every_metric_and_no_other():
    documented = documentation()
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


names = st.text() | st.text('"\\\\\n\r\t ,={}#\x00\x85\u2028é', max_size=8)
"""Whatever things may be called, and above all what means something in the format."""


def parsed(text):
    """The text as Prometheus's own library reads it: families by name, samples in order."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found, "a family is told once"
        found[family.name] = family
    return found


def only(family):
    """The one sample of a family, without its name."""
    (sample,) = family.samples
    return sample.labels, sample.value


@given(names, names, names, st.integers(0, 2**62))
def test_whatever_things_are_called_prometheus_reads_what_was_told(query, source, operator, rows):
    progress = {
        **told(sources={source: {"lagMs": 1.0}}, timeMs={"idle": 2500.0}),
        "sources": [{"description": source, "numInputRows": rows}],
        "stateOperators": [{"operatorName": operator, "customMetrics": {"stateBytes": rows}}],
    }

    found = parsed(exposition([Metrics(query).after(progress)], NOW))

    # Their library leaves the end of a counter's name out.
    documented = {name.removesuffix("_total") for name in documentation()}
    assert documented == found.keys()
    of_source = {"query": query, "source": source}
    assert (of_source, rows) == only(found["anabranch_rows_read"])
    assert (of_source, 10.001) == only(found["anabranch_watermark_lag_seconds"])
    of_operator = {"query": query, "operator": operator}
    assert (of_operator, rows) == only(found["anabranch_state_bytes"])
    assert ({"query": query, "into": "idle"}, 2.5) == only(found["anabranch_time_seconds"])


@given(
    st.lists(names, min_size=1, max_size=3, unique=True),
    st.lists(st.floats(0, 100_000), max_size=20),
)
def test_histograms_of_several_queries_agree_with_themselves(queries, latencies):
    given = [
        Metrics(query).after(told(epochs=[0, 0], latencyMs=latencies[: 5 * (n + 1)]))
        for n, query in enumerate(queries)
    ]

    found = parsed(exposition(given, NOW))["anabranch_commit_latency_seconds"]

    assert "histogram" == found.type
    for n, query in enumerate(queries):
        values = [ms / 1000 for ms in latencies[: 5 * (n + 1)]]
        mine = [each for each in found.samples if each.labels["query"] == query]
        buckets = {float(each.labels["le"]): each.value for each in mine if "le" in each.labels}
        total, count = (each for each in mine if "le" not in each.labels)
        assert {**dict.fromkeys(BUCKETS), inf: None}.keys() == buckets.keys()
        assert buckets == {le: sum(value <= le for value in values) for le in buckets}
        assert (f"{found.name}_count", len(values)) == (count.name, count.value)
        assert f"{found.name}_sum" == total.name
        assert pytest.approx(sum(values), abs=1e-6) == total.value


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
    read = parsed(exposition([found], NOW))
    assert totals["rows"] == sum(each.value for each in read["anabranch_rows_read"].samples)
    assert ({"query": query.name}, totals["commits"]) == only(read["anabranch_commits"])
