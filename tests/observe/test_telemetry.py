"""Figures through OpenTelemetry: those of Prometheus, and a span a commit."""

import re
import sys
from datetime import datetime
from pathlib import Path

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import anabranch as ab
from anabranch import config
from anabranch.api.starting import start
from anabranch.cli import main
from anabranch.config import Outlets
from anabranch.epoch.triggers import available_now
from anabranch.observe import telemetry
from anabranch.observe.metrics import BUCKETS, Metrics
from anabranch.observe.telemetry import INSTRUMENTS, Telemetry, Told
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import MockClock
from tests.observe.test_metrics import told as commit
from tests.runtime.test_inline import made

PATIENCE_S = 60
PROMETHEUS = {name: family for family, (name, _) in INSTRUMENTS.items()}
SPAN_NAMES = {"query", "run_id", "first_epoch", "last_epoch", "rows_read", "rows_late"} | {
    *("rows_failed", "lanes", "jobs"),
    *(f"time_{into}_seconds" for into in ("source", "kernel", "exchange", "state", "sink")),
    *(f"time_{into}_seconds" for into in ("commit", "spark", "idle")),
}


class Sdk:
    """An application's own providers, which keep what they are told."""

    def __init__(self):
        self.reader, self.exporter = InMemoryMetricReader(), InMemorySpanExporter()
        self.meters = MeterProvider(metric_readers=[self.reader], shutdown_on_exit=False)
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def telemetry(self):
        return Telemetry(self.meters.get_meter("anabranch"), self.tracers.get_tracer("anabranch"))

    def points(self):
        """All that can be read now, by the name that Prometheus has for it."""
        data = self.reader.get_metrics_data()
        found = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        return {PROMETHEUS[each.name]: list(each.data.data_points) for each in found}

    def values(self):
        """Of counters and gauges, by labels."""
        return {
            name: {tuple(point.attributes.items()): point.value for point in points}
            for name, points in self.points().items()
            if name != "anabranch_commit_latency_seconds"
        }

    @property
    def spans(self):
        return self.exporter.get_finished_spans()


@pytest.fixture
def sdk(monkeypatch):
    """In place of the process's own, which can be set once."""
    made = Sdk()
    monkeypatch.setattr(telemetry, "_GLOBAL", [made.telemetry()])
    return made


def ran(tmp_path, name="campaign_views"):
    settings = Settings(
        available_now(7), tmp_path / "ckpt", 2, slices=8, outlets=Outlets(telemetry=True)
    )
    query = start(made(name, tmp_path).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)
    return query


def folded(query):
    found = Metrics(query.name)
    for progress in query.recent_progress:
        found = found.after(progress)
    return found


def assert_told(sdk, query):
    """Counters and the histogram are those of all of its progress, as Prometheus would have it."""
    expected, points, values = folded(query), sdk.points(), sdk.values()
    counters = [each for each in expected.families(0.0) if each.kind == "counter"]
    assert {each.name for each in counters} <= values.keys()
    for family in counters:
        told = {(("query", query.name), *labels): value for _, labels, value in family.samples}
        assert pytest.approx(told) == values[family.name]
    (latency,) = points["anabranch_commit_latency_seconds"]
    assert (BUCKETS, expected.latency.counts) == (
        latency.explicit_bounds,
        tuple(latency.bucket_counts),
    )
    assert pytest.approx(expected.latency.total) == latency.sum


def assert_spans(sdk, query):
    """One a commit, and nothing in it that its progress does not have."""
    assert len(query.recent_progress) == len(sdk.spans)
    for progress, span in zip(query.recent_progress, sdk.spans, strict=True):
        ours, found = progress["anabranch"], span.attributes
        assert ("anabranch.commit", None) == (span.name, span.parent)
        assert SPAN_NAMES == found.keys()
        assert (query.name, query.run_id) == (found["query"], found["run_id"])
        assert ours["epochs"] == [found["first_epoch"], found["last_epoch"]]
        assert progress["numInputRows"] == found["rows_read"]
        assert (ours["lateRows"], ours["failedRows"]) == (found["rows_late"], found["rows_failed"])
        assert ours["timeMs"]["kernel"] == pytest.approx(1000 * found["time_kernel_seconds"])
        committed = datetime.fromisoformat(progress["timestamp"]).timestamp()
        assert pytest.approx(committed) == span.end_time / 1e9
        took = (span.end_time - span.start_time) / 1e6
        assert pytest.approx(max(ours["latencyMs"]), abs=0.01) == took


@pytest.mark.parametrize("name", ["campaign_views", "fraud"])
def test_what_is_counted_is_what_prometheus_would_read(name, sdk, tmp_path):
    query = ran(tmp_path, name)

    assert len(query.recent_progress) > 1
    assert_told(sdk, query)
    assert_spans(sdk, query)


def test_gauges_are_told_as_of_now_and_while_the_query_runs(sdk):
    """Ten seconds behind the commit, whose watermark was 1.5 s behind then."""
    clock = MockClock(1_700_000_010.0)
    watcher = Told("q", telemetry.telemetry(), lambda: 3, clock)
    before = sdk.values()
    watcher.note({**commit(lanes=2, jobs=1), "runId": "r", "numInputRows": 100})
    during = sdk.values()
    watcher.close()
    after = sdk.values()

    mine = ("query", "q")
    assert {(mine,): 0} == before["anabranch_commits_total"]
    assert "anabranch_watermark_lag_seconds" not in before
    assert {(mine,): 3} == during["anabranch_epochs_under_way"]
    assert {(mine, ("source", "clicks")): 11.5} == during["anabranch_watermark_lag_seconds"]
    assert {(mine, ("operator", "window-1")): 4096} == during["anabranch_state_bytes"]
    assert {(mine,): 1_700_000_000.0} == during["anabranch_last_commit_timestamp_seconds"]
    assert {(mine,): 2} == after["anabranch_epochs_total"]
    assert {name for name, kind in kinds().items() if kind == "counter"} == after.keys()


def kinds():
    return {each.name: each.kind for each in Metrics("").families(0.0)}


def test_every_figure_has_an_instrument_with_its_unit_that_prometheus_would_call_so(sdk):
    """As exporters to Prometheus make names: dots, then the unit, then what kind it is."""
    assert kinds().keys() == INSTRUMENTS.keys()
    for family, (name, unit) in INSTRUMENTS.items():
        ending = {"s": "_seconds", "By": "_bytes"}.get(unit, "")
        total = "_total" if kinds()[family] == "counter" else ""
        assert family == name.replace(".", "_") + ending + total


def test_a_second_query_of_a_name_is_not_told_of_and_runs(sdk, tmp_path, caplog):
    first = Told("campaign-views", telemetry.telemetry(), lambda: 0, MockClock())

    query = ran(tmp_path)
    first.close()

    assert 60 == query.statistics()["rows"]
    assert () == sdk.spans
    assert "another query of this name runs\n  so    the query goes on" in caplog.text
    assert 60 == ran(tmp_path / "again").statistics()["rows"]
    assert sdk.spans, "the name is free again"


def test_a_name_that_no_encoding_has_is_told_with_marks_in_its_place(sdk):
    Told("\ud800é", telemetry.telemetry(), lambda: 0, MockClock())

    assert {(("query", "?é"),): 0} == sdk.values()["anabranch_commits_total"]


def test_without_the_package_it_is_told_once_and_the_query_goes_on(tmp_path, monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "anabranch.observe.telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)

    query = ran(tmp_path)

    assert 60 == query.statistics()["rows"]
    (told,) = caplog.messages
    assert (
        "telemetry of 'campaign-views' is not given: OpenTelemetry is not installed\n"
        "  so    the query goes on; to have it, pip install 'anabranch[otel]', else leave "
        "ANABRANCH_OTEL (--otel of anabranch run) out"
    ) == told


@pytest.mark.parametrize("env", [{}, {"ANABRANCH_OTEL": ""}, {"ANABRANCH_OTEL": "0"}])
def test_it_is_off_unless_asked_for(env):
    assert not config.outlets(env).telemetry
    assert config.outlets({"ANABRANCH_OTEL": "1"}).telemetry


def test_what_is_neither_on_nor_off_is_refused():
    with pytest.raises(ab.AnabranchError, match=r"^ANABRANCH_OTEL is 'yes'\n  so    give 1 "):
        config.outlets({"ANABRANCH_OTEL": "yes"})


def test_the_documentation_has_every_instrument_and_attribute():
    page = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
    row = r"^\| `(anabranch_\w+)` \|.*\| `(anabranch[\w.]+)`, `([^`]+)` \|"
    found = {family: (name, unit) for family, name, unit in re.findall(row, page, re.MULTILINE)}

    assert INSTRUMENTS == found
    spans = page.partition("`anabranch.commit`")[2].partition("\n\n")[0]
    assert SPAN_NAMES == set(re.findall(r"`(\w+)`", spans))


FILE = """
import anabranch as ab

program = ab.Program("from-a-file")
numbers = program.read(ab.sources.Records([{"n": n, "t": n} for n in range(20)]), event_time="t")
numbers.window(ab.tumbling("10 ms"), by="n").agg(c=ab.count()).write(ab.sinks.Memory("out"))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_on_spark_tells_the_providers_that_the_application_sets_even_late(
    tmp_path, spark_context, capsys
):
    """The one test that sets the process's providers: that can be done once."""
    assert telemetry.unset()
    instruments, sdk = telemetry.telemetry(), Sdk()
    file = tmp_path / "program.py"
    file.write_text(FILE)
    assert 0 == main(["run", str(file), "--trigger", "now", "--otel"])
    assert "OpenTelemetry has no provider" in capsys.readouterr().err

    metrics.set_meter_provider(sdk.meters)
    trace.set_tracer_provider(sdk.tracers)
    with config.saying({"ANABRANCH_OTEL": "1"}):
        query = made("campaign_views", tmp_path).start(
            spark_context, trigger=ab.available_now(30), parallelism=2
        )
        assert query.await_termination(PATIENCE_S), query.why()

    assert instruments is telemetry.telemetry()
    assert not telemetry.unset()
    assert 60 == query.statistics()["rows"]
    assert_told(sdk, query)
    assert_spans(sdk, query)
