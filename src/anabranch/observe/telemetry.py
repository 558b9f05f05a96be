"""A query's figures through OpenTelemetry: the application says where they go, or nowhere.

Its API alone is used: no exporter is made here and nothing is set for the process. Meter and tracer
are those of the providers that the application has set, before the query starts or after.
The figures are those that Prometheus reads, under the names that its exporters turn into the same.
Attributes are names of queries, sources and operators, and numbers; no options, paths or records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter, get_meter_provider
from opentelemetry.trace import Tracer, get_tracer, get_tracer_provider

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.observe.metrics import BUCKETS, Family, Labels, Metrics

SCOPE = "anabranch"
"""Who made the instruments and the spans."""
SPAN = "anabranch.commit"

_API = ("opentelemetry.metrics", "opentelemetry.trace")
"""Where the API has what stands in for providers; these have no public names."""

INSTRUMENTS = {
    "anabranch_rows_read_total": ("anabranch.rows.read", "{row}"),
    "anabranch_rows_late_total": ("anabranch.rows.late", "{row}"),
    "anabranch_rows_failed_total": ("anabranch.rows.failed", "{row}"),
    "anabranch_epochs_total": ("anabranch.epochs", "{epoch}"),
    "anabranch_commits_total": ("anabranch.commits", "{commit}"),
    "anabranch_commit_latency_seconds": ("anabranch.commit.latency", "s"),
    "anabranch_time_seconds_total": ("anabranch.time", "s"),
    "anabranch_epochs_under_way": ("anabranch.epochs.under_way", "{epoch}"),
    "anabranch_watermark_lag_seconds": ("anabranch.watermark.lag", "s"),
    "anabranch_state_bytes": ("anabranch.state", "By"),
    "anabranch_last_commit_timestamp_seconds": ("anabranch.last_commit.timestamp", "s"),
}
"""Name and unit of each family; names are public."""

Families: TypeAlias = Iterable[Family]


class Telemetry:
    """The instruments of a process, and the queries that are told of just now.

    Counters and the histogram are added to at each commit, so that what a query did last is
    exported after its end. Gauges are asked for, and only while their query runs: of one that is
    over there is nothing to tell.
    """

    def __init__(self, meter: Meter, tracer: Tracer) -> None:
        """Make the instruments; a process has each once."""
        self._shown: Mapping[str, Callable[[], Families]] = {}
        """By query. Replaced, never changed: readers read it meanwhile."""
        self.tracer = tracer
        self._counters = {
            family.name: meter.create_counter(*_described(family)) for family in _all("counter")
        }
        (latency,) = _all("histogram")
        self._latency = meter.create_histogram(
            *_described(latency), explicit_bucket_boundaries_advisory=BUCKETS
        )
        for family in _all("gauge"):
            name, unit, told = _described(family)
            meter.create_observable_gauge(name, [partial(self._observed, family.name)], unit, told)

    def add(self, query: str, families: Callable[[], Families]) -> None:
        """Tell of a query's gauges; `families` is called from any thread.

        Raises:
            AnabranchError: One of this name is told of.
        """
        with _LOCK:
            if query in self._shown:
                message = f"telemetry of {query!r} is not given: another query of this name runs"
                so = "the query goes on; to tell them apart, give the program another name"
                raise AnabranchError(message, so=so)
            self._shown = {**self._shown, query: families}

    def remove(self, query: str) -> None:
        """Tell of them no more."""
        with _LOCK:
            self._shown = {name: each for name, each in self._shown.items() if name != query}

    def count(self, query: str, before: Families, after: Families) -> None:
        """Add what counters have gained; what is nought is told too, so that it is known of."""
        old = {(name, labels): value for name, labels, value in _counted(before)}
        for name, labels, value in _counted(after):
            gained = value - old.get((name, labels), 0)
            self._counters[name].add(gained, _attributes(query, labels))

    def record(self, query: str, latencies: Iterable[float]) -> None:
        """Add some latencies, in seconds."""
        for seconds in latencies:
            self._latency.record(seconds, _attributes(query, ()))

    def _observed(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        for query, families in self._shown.items():
            (family,) = (each for each in families() if each.name == name)
            for _, labels, value in family.samples:
                yield Observation(value, _attributes(query, labels))


_LOCK = threading.Lock()
"""Held by who makes the instruments, enters or leaves; never by who reads."""
_GLOBAL: list[Telemetry] = []


def telemetry() -> Telemetry:
    """What is made of the providers that the application has set, or will set."""
    with _LOCK:
        if not _GLOBAL:
            _GLOBAL.append(Telemetry(get_meter(SCOPE), get_tracer(SCOPE)))
        return _GLOBAL[0]


def unset() -> bool:
    """Whether the application has set no provider: then all that is told goes nowhere."""
    providers = get_meter_provider(), get_tracer_provider()
    return all(type(each).__module__.startswith(_API) for each in providers)


class Told:
    """A watcher that gives a query's figures, and a span for each of its commits."""

    def __init__(
        self, query: str, telemetry: Telemetry, under_way: Callable[[], int], clock: Clock
    ) -> None:
        """Begin at nought; `under_way`, asked from any thread, is the number of epochs that are."""
        self._query, self._telemetry = query, telemetry
        self._under_way, self._clock = under_way, clock
        self._metrics = Metrics(query)
        telemetry.add(query, self._now)
        telemetry.count(query, (), self._metrics.families(clock.now()))

    def _now(self) -> Families:
        found = replace(self._metrics, epochs_under_way=self._under_way())
        return found.families(self._clock.now())

    def note(self, progress: Mapping[str, Any]) -> None:
        """Add a commit's figures."""
        before, self._metrics = self._metrics, self._metrics.after(progress)
        now = self._clock.now()
        self._telemetry.count(self._query, before.families(now), self._metrics.families(now))
        seconds = [ms / 1000 for ms in progress["anabranch"]["latencyMs"]]
        self._telemetry.record(self._query, seconds)
        _span(self._telemetry.tracer, self._query, progress, max(seconds, default=0.0))

    def close(self) -> None:
        """Tell of it no more."""
        self._telemetry.remove(self._query)


def _span(tracer: Tracer, query: str, progress: Mapping[str, Any], seconds: float) -> None:
    """A commit, from the cut of its oldest epoch to when it was made; a trace of its own."""
    at = datetime.fromisoformat(progress["timestamp"])
    attributes = _of_commit(query, progress)
    begun = _nanoseconds(at - timedelta(seconds=seconds))
    span = tracer.start_span(SPAN, Context(), attributes=attributes, start_time=begun)
    span.end(_nanoseconds(at))


def _of_commit(query: str, progress: Mapping[str, Any]) -> dict[str, str | int | float]:
    ours = progress["anabranch"]
    first, last = ours["epochs"]
    return {
        **_attributes(query, (("run_id", progress["runId"]),)),
        "first_epoch": first,
        "last_epoch": last,
        "rows_read": progress["numInputRows"],
        "rows_late": ours["lateRows"],
        "rows_failed": ours["failedRows"],
        "lanes": ours["lanes"],
        "jobs": ours["jobs"],
        **{f"time_{into}_seconds": ms / 1000 for into, ms in ours["timeMs"].items()},
    }


def _all(kind: str) -> list[Family]:
    return [family for family in Metrics("").families(0.0) if family.kind == kind]


def _described(family: Family) -> tuple[str, str, str]:
    return (*INSTRUMENTS[family.name], family.help)


def _counted(families: Families) -> Iterator[tuple[str, Labels, float]]:
    for family in families:
        if family.kind == "counter":
            for _, labels, value in family.samples:
                yield family.name, labels, value


def _attributes(query: str, labels: Labels) -> dict[str, str]:
    return {name: _clean(text) for name, text in (("query", query), *labels)}


def _clean(text: str) -> str:
    r"""A name that can be exported: one with half of a character in it would end all exports.

    >>> _clean("a\ud800é")
    'a?é'
    """
    return text.encode(errors="replace").decode()


_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def _nanoseconds(at: datetime) -> int:
    """Since 1970, without the rounding of a float."""
    return (at - _BEGIN) // timedelta(microseconds=1) * 1000
