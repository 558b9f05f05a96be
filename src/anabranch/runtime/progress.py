"""A commit's figures, in the form of Spark's `StreamingQueryProgress`; ours are in `anabranch`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from anabranch.epoch.machine import Container
from anabranch.epoch.watermarks import END_OF_TIME
from anabranch.ids import Offset, Partition
from anabranch.observe.facts import SourceFacts
from anabranch.observe.shown import instant
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.executor import CycleResult
from anabranch.runtime.locality import Fetched
from anabranch.runtime.payload import HeadItem, Origin
from anabranch.runtime.state_sizes import Held
from anabranch.state.layout import Commit, is_snapshot

_WHERE = {
    "source": ("latestOffset", "head read"),
    "kernel": ("head kernel", "lane kernel"),
    "exchange": ("head exchange", "lane exchange"),
    "state": ("lane state",),
    "sink": ("head stage", "lane stage", "merge", "publish"),
    "commit": ("walCommit", "commitOffsets"),
    "spark": ("spark",),
    "idle": ("idle",),
}
"""Where time goes, and under which names the driver and the tasks count it."""

_NOWHERE = Fetched().take()

_OURS = ("spark", "idle")
"""What is counted beside Spark's own durations."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What the epochs of a commit brought, and what they took; times in seconds."""

    at: float
    """The wall's time."""
    epochs: Sequence[Container]
    """In log order."""
    given: int | None
    """Rows for sinks; None: some are given where nobody counts them."""
    late: int
    letters: int
    """Records that failed and were left out, as `on_error` says."""
    changed: Mapping[str, int]
    """Rows of state, by operator."""
    origins: Mapping[str, int]
    """How many slices of state were gone on from, by where it came from."""
    scaling: str
    """What was decided last of lanes and slices, and why; nothing: nothing was."""
    written: Mapping[str, int]
    """Bytes of the files that say so, by operator."""
    state: Mapping[str, int]
    """Bytes of the files that all of it would be made of again, by operator."""
    held: Mapping[str, Held]
    """What lanes have of it, by operator."""
    seconds: float
    """Since the commit before."""
    latencies: Sequence[float]
    """From its cut to its commit, of each epoch."""
    spent: Mapping[str, float]
    """By the driver, on what."""
    tasks: Mapping[str, float]
    """By all tasks together, on what."""
    backups: Mapping[str, int]
    """Of copies that lanes keep of others' state: how many there are, and are to be made."""
    jobs: int
    under_way: int
    """Epochs that are cut and not committed."""
    failures: int
    """In a row, just now."""
    sources: Sequence[SourceFacts]
    fetched: Mapping[str, int] = field(default_factory=dict)
    """Bytes that tasks got of what others had made, by where that was."""
    firings: Sequence[float] = ()
    """From the ends of windows that fired to the commit, where event times are of now."""
    session: Mapping[str, Any] = field(default_factory=dict)
    """How the query stands among others; nothing: there are none."""

    @property
    def rows(self) -> dict[str, int]:
        """Rows read, by source."""
        found = dict.fromkeys((source.name for source in self.sources), 0)
        for each in self.epochs:
            found[each.source] += each.rows
        return found

    @property
    def newest(self) -> int | None:
        """The greatest event time among the rows."""
        heads = [each.heads for each in self.epochs if each.heads is not None]
        times = [time for each in heads for time in each.greatest.values()]
        return max((time for time in times if time is not None), default=None)

    def starts(self, source: str) -> dict[Partition, Offset]:
        """Where the first epoch of a source began."""
        for each in self.epochs:
            if each.source == source:
                return {partition: start for partition, (start, _) in each.offer.offsets.items()}
        return {}

    @property
    def working(self) -> float:
        """Since the commit before, without the time in which there was nothing to do."""
        return max(self.seconds - self.spent.get("idle", 0.0), 0.0)


def progress_of(deployment: Deployment, commit: Commit, brought: Brought) -> dict[str, Any]:
    """What a commit brought and what it took; times told are in ms."""
    spent = {name: took for name, took in brought.spent.items() if name not in _OURS}
    rows = brought.rows
    total = sum(rows.values())
    given = -1 if brought.given is None else brought.given
    return {
        "name": deployment.program,
        "timestamp": instant(int(brought.at * 1_000_000)),
        "batchId": commit.last,
        "batchDuration": _ms(brought.working),
        "durationMs": {"triggerExecution": _ms(brought.working), **_in_ms(spent)},
        "eventTime": _event_time(commit, brought),
        "numInputRows": total,
        "inputRowsPerSecond": _rate(total, brought.seconds),
        "processedRowsPerSecond": _rate(total, brought.working),
        "stateOperators": [_operator(name, commit, brought) for name in commit.deltas],
        "sources": [_source(name, count, commit, brought) for name, count in rows.items()],
        "sink": {"description": ", ".join(deployment.outputs), "numOutputRows": given},
        "observedMetrics": {},
        "anabranch": {
            "epochs": [commit.first, commit.last],
            "epochsUnderWay": brought.under_way,
            "lanes": deployment.lanes,
            "jobs": brought.jobs,
            "failures": brought.failures,
            "lateRows": brought.late,
            "failedRows": brought.letters,
            "latencyMs": [_ms(each) for each in brought.latencies],
            "firingsMs": [_ms(each) for each in brought.firings],
            "session": dict(brought.session),
            "scaling": brought.scaling,
            "backups": dict(brought.backups),
            "slicesFrom": {name: brought.origins.get(name, 0) for name in get_args(Origin)},
            "bytesFrom": {**_NOWHERE, **brought.fetched},
            "timeMs": where_time_went({**brought.spent, **brought.tasks}),
            "tasksMs": _in_ms(brought.tasks),
            "sources": {each.name: _held(each, brought.at) for each in brought.sources},
        },
    }


@dataclass(frozen=True, slots=True)
class Job:
    """A cycle's job as the driver saw it."""

    heads: Sequence[Sequence[HeadItem]]
    """The splits of each task."""
    seconds: float

    def overhead(self, result: CycleResult, slots: int) -> float:
        """How many seconds Spark itself took."""
        splits = {(done.ticket, done.number): sum(done.spent.values()) for done in result.heads}
        heads = [sum(splits.get((i.ticket, i.number), 0.0) for i in items) for items in self.heads]
        lanes = [sum(done.spent.values()) for done in result.lanes.values()]
        return overhead(self.seconds, [*heads, *lanes], slots)


def where_time_went(spent: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds by what they went into.

    Tasks run beside each other and beside the driver, so together it may be more than has passed.

    >>> where_time_went({"head read": 0.25, "latestOffset": 0.5, "lane state": 1.0})["source"]
    750.0
    """
    return {
        where: _ms(sum(spent.get(name, 0.0) for name in names)) for where, names in _WHERE.items()
    }


def overhead(seconds: float, busy: Sequence[float], slots: int) -> float:
    """How much of a job's time cannot have been its tasks' work: what Spark itself took.

    With fewer slots than tasks they cannot all be at work; the least that their work takes is that
    of the longest, or all of it evenly on all slots.

    >>> overhead(1.0, [0.25, 0.5], slots=2), overhead(1.0, [0.5, 0.5, 0.5], slots=2)
    (0.5, 0.25)
    """
    least = max(max(busy, default=0.0), sum(busy) / slots)
    return max(seconds - least, 0.0)


def _event_time(commit: Commit, brought: Brought) -> dict[str, str]:
    watermark = _least(commit.watermarks.values())
    times = {"max": brought.newest, "watermark": watermark}
    return {name: instant(time) for name, time in times.items() if time is not None}


def _operator(name: str, commit: Commit, brought: Brought) -> dict[str, Any]:
    deltas = commit.deltas[name].values()
    paths = (*deltas, *commit.snapshots.get(name, ()))
    held = brought.held.get(name, Held())
    return {
        "operatorName": name,
        "numRowsUpdated": brought.changed.get(name, 0),
        "memoryUsedBytes": held.memory,
        "numShufflePartitions": commit.lanes,
        "numStateStoreInstances": len(deltas),
        "customMetrics": {
            "writtenBytes": brought.written.get(name, 0),
            "snapshots": sum(map(is_snapshot, paths)),
            "stateBytes": brought.state.get(name, 0),
            "diskBytes": held.disk,
        },
    }


def _source(name: str, rows: int, commit: Commit, brought: Brought) -> dict[str, Any]:
    return {
        "description": name,
        # As pairs: a partition may be a number, which no key in JSON is.
        "startOffset": _pairs(brought.starts(name)),
        "endOffset": _pairs(commit.positions.get(name, {})),
        "numInputRows": rows,
        "inputRowsPerSecond": _rate(rows, brought.seconds),
        "processedRowsPerSecond": _rate(rows, brought.working),
    }


def _pairs(offsets: Mapping[Partition, Offset]) -> list[list[Any]]:
    return [[partition, offset] for partition, offset in offsets.items()]


def _held(source: SourceFacts, now: float) -> dict[str, Any]:
    """A source's watermark, who holds it, and how far behind the wall's time it is."""
    watermark = source.time.watermark
    known = watermark is not None and watermark != END_OF_TIME
    return {
        "watermark": None if watermark is None else instant(watermark),
        "lagMs": _ms(now - watermark / 1_000_000) if known and watermark is not None else None,
        "heldBy": [] if source.finished else list(source.holders),
        "idle": sorted(source.idle, key=str),
        "finished": sorted(source.time.finished, key=str),
        "rowsWaiting": source.rows,
    }


def _rate(rows: int, seconds: float) -> float:
    return rows / seconds if seconds else 0.0


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def _in_ms(spent: Mapping[str, float]) -> dict[str, float]:
    return {name: _ms(seconds) for name, seconds in spent.items()}


def _least(watermarks: Iterable[int | None]) -> int | None:
    found = list(watermarks)
    return (
        None if None in found else min((each for each in found if each is not None), default=None)
    )
