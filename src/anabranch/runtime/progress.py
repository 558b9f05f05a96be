"""A commit's figures, in the form of Spark's `StreamingQueryProgress`; ours are in `anabranch`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anabranch.runtime.deployment import Deployment
from anabranch.state.layout import Commit


def progress_of(  # noqa: PLR0913 - all that is told
    deployment: Deployment,
    commit: Commit,
    *,
    rows: Mapping[str, int],
    seconds: float,
    latencies: Sequence[float],
    spent: Mapping[str, float],
    tasks: Mapping[str, float],
) -> dict[str, Any]:
    """What a commit brought and what it took; times given are in seconds, times told in ms."""
    watermark, total = _least(commit.watermarks.values()), sum(rows.values())
    return {
        "name": deployment.program,
        "batchId": commit.last,
        "numInputRows": total,
        "processedRowsPerSecond": total / seconds if seconds else 0.0,
        "batchDuration": round(1000 * seconds, 3),
        "durationMs": {"triggerExecution": round(1000 * seconds, 3), **_in_ms(spent)},
        "eventTime": {} if watermark is None else {"watermark": watermark},
        "stateOperators": [],
        "sources": [
            {
                "description": name,
                "numInputRows": count,
                "endOffset": list(commit.positions.get(name, {}).items()),
            }
            for name, count in rows.items()
        ],
        "sink": {"description": ", ".join(deployment.outputs)},
        "anabranch": {
            "epochs": [commit.first, commit.last],
            "lanes": deployment.lanes,
            "latencyMs": [round(1000 * each, 3) for each in latencies],
            "tasksMs": _in_ms(tasks),
        },
    }


def _in_ms(spent: Mapping[str, float]) -> dict[str, float]:
    return {name: round(1000 * seconds, 3) for name, seconds in spent.items()}


def _least(watermarks: Iterable[int | None]) -> int | None:
    found = list(watermarks)
    return (
        None if None in found else min((each for each in found if each is not None), default=None)
    )
