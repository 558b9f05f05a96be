"""A query's figures, and their text as Prometheus reads it: progress in, text out.

The text is Prometheus's exposition format 0.0.4. Its names are public: dashboards are built on
them. Nothing in it is secret: labels are names of queries, sources and operators.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Self, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of latencies, in seconds: from a continuous query's to one of minutes."""

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[tuple[str, str], ...]
Sample: TypeAlias = tuple[str, Labels, float]
"""What is put behind the family's name, the labels but for the query's, and the value."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values were in which bucket.

    >>> found = Histogram().with_values([0.003, 0.25, 99.0])
    >>> found.counts[0], found.counts[5], found.counts[-1], found.total
    (1, 1, 1, 99.253)
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    """By bucket; the last one has no bound."""
    total: float = 0.0

    def with_values(self, values: Iterable[float]) -> Self:
        """Some values more."""
        counts, total = list(self.counts), self.total
        for value in values:
            counts[bisect_left(BUCKETS, value)] += 1
            total += value
        return replace(self, counts=tuple(counts), total=total)

    def samples(self) -> Iterator[Sample]:
        """Each bucket with all below it, then the sum and the number of values."""
        below = 0
        for bound, count in zip((*map(_number, BUCKETS), "+Inf"), self.counts, strict=True):
            below += count
            yield "_bucket", (("le", bound),), below
        yield "_sum", (), self.total
        yield "_count", (), below


@dataclass(frozen=True, slots=True)
class Metrics:
    """All figures of one run of a query: totals since its start, and the newest of the rest.

    >>> Metrics("clicks", epochs_under_way=2).epochs_under_way
    2
    """

    query: str
    rows: Mapping[str, int] = field(default_factory=dict)
    """Read, by source."""
    late: int = 0
    failed: int = 0
    epochs: int = 0
    commits: int = 0
    latency: Histogram = Histogram()
    spent: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what they went into."""
    epochs_under_way: int = 0
    watermarks: Mapping[str, float] = field(default_factory=dict)
    """Seconds since 1970, by source; of those that have one and are not at their end."""
    state: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by operator."""
    committed_at: float | None = None
    """Seconds since 1970."""

    def after(self, progress: Mapping[str, Any]) -> Self:
        """The figures after one more commit; `progress` is what `query.last_progress` is."""
        ours, at = progress["anabranch"], _seconds(progress["timestamp"])
        first, last = ours["epochs"]
        read = {each["description"]: each["numInputRows"] for each in progress["sources"]}
        spent = {name: ms / 1000 for name, ms in ours["timeMs"].items()}
        # An operator that changed nothing is not told of, and its state is as large as it was.
        state = {each["operatorName"]: _size(each) for each in progress["stateOperators"]}
        lags = {name: each["lagMs"] for name, each in ours["sources"].items()}
        return replace(
            self,
            rows=_added(self.rows, read),
            late=self.late + ours["lateRows"],
            failed=self.failed + ours["failedRows"],
            epochs=self.epochs + last - first + 1,
            commits=self.commits + 1,
            latency=self.latency.with_values(ms / 1000 for ms in ours["latencyMs"]),
            spent=_added(self.spent, spent),
            epochs_under_way=ours["epochsUnderWay"],
            watermarks={name: at - lag / 1000 for name, lag in lags.items() if lag is not None},
            state={**self.state, **state},
            committed_at=at,
        )

    def families(self, now: float) -> tuple[Family, ...]:
        """All figures by name, always the same names; `now`: seconds since 1970.

        How far a watermark is behind is told as of now: of a query that stands still it grows.
        """
        return _families(self, now)


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name, of one query; none where nothing is known."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]

    @property
    def head(self) -> str:
        """What it is, as text."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"

    def lines(self, query: str) -> Iterator[str]:
        """Its samples, as text."""
        for suffix, labels, value in self.samples:
            told = ",".join(f'{name}="{_escaped(text)}"' for name, text in _with(query, labels))
            yield f"{self.name}{suffix}{{{told}}} {_number(value)}\n"


def exposition(metrics: Sequence[Metrics], now: float) -> str:
    """The figures of some queries of different names, as text; `now`: seconds since 1970."""
    names = [each.query for each in metrics]
    if len(names) != len(set(names)):
        message = f"two queries of one name: {names}"
        raise ValueError(message)
    told = [each.families(now) for each in metrics]
    return "".join(
        "".join((families[0].head, *_lines(names, families)))
        for families in zip(*told, strict=True)
        if any(family.samples for family in families)
    )


def _lines(names: Sequence[str], families: Sequence[Family]) -> Iterator[str]:
    for name, family in zip(names, families, strict=True):
        yield from family.lines(name)


def _families(found: Metrics, now: float) -> tuple[Family, ...]:
    lags = {source: now - watermark for source, watermark in found.watermarks.items()}
    at = [] if found.committed_at is None else _one(found.committed_at)
    return (
        Family(
            "anabranch_rows_read_total",
            "counter",
            "Rows read and committed, by source.",
            _by("source", found.rows),
        ),
        Family(
            "anabranch_rows_late_total",
            "counter",
            "Rows that came too late for all of their windows.",
            _one(found.late),
        ),
        Family(
            "anabranch_rows_failed_total",
            "counter",
            "Rows that failed and were left out, as on_error says.",
            _one(found.failed),
        ),
        Family("anabranch_epochs_total", "counter", "Epochs committed.", _one(found.epochs)),
        Family("anabranch_commits_total", "counter", "Commits made.", _one(found.commits)),
        Family(
            "anabranch_commit_latency_seconds",
            "histogram",
            "From the cut of an epoch to its commit, one value an epoch.",
            list(found.latency.samples()),
        ),
        Family(
            "anabranch_time_seconds_total",
            "counter",
            "Time of the driver and of all tasks together, by what it went into.",
            _by("into", found.spent),
        ),
        Family(
            "anabranch_epochs_under_way",
            "gauge",
            "Epochs that are cut and not committed.",
            _one(found.epochs_under_way),
        ),
        Family(
            "anabranch_watermark_lag_seconds",
            "gauge",
            "How far the watermark of a source is behind the time now.",
            _by("source", lags),
        ),
        Family(
            "anabranch_state_bytes",
            "gauge",
            "Files that the state of an operator would be made of again.",
            _by("operator", found.state),
        ),
        Family(
            "anabranch_last_commit_timestamp_seconds",
            "gauge",
            "When the last commit was made, since 1970.",
            at,
        ),
    )


def _one(value: float) -> list[Sample]:
    return [("", (), value)]


def _by(label: str, values: Mapping[str, float]) -> list[Sample]:
    return [("", ((label, name),), value) for name, value in values.items()]


def _with(query: str, labels: Labels) -> Labels:
    return (("query", query), *labels)


def _added(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    return {**before, **{name: before.get(name, 0) + value for name, value in more.items()}}


def _size(operator: Mapping[str, Any]) -> int:
    return int(operator["customMetrics"]["stateBytes"])


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()


def _number(value: float) -> str:
    """A value as Prometheus reads it; times are exact to the microsecond, and no finer.

    >>> _number(3), _number(2.5), _number(0.1 + 0.2), _number(1_700_000_000.123)
    ('3', '2.5', '0.3', '1700000000.123')
    """
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")


def _escaped(text: str) -> str:
    r"""A label's value as the format wants it.

    >>> print(_escaped('a"b\\c'), _escaped("two\nlines"))
    a\"b\\c two\nlines
    """
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
