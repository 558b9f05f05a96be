"""Anabranch's process: `python -m bench.peers.ours ORDER RESULT`.

One query a case. It first works off the batches of the warm-up; then those that count come all at
once and are worked off as it likes, several under way at a time: that gives the throughput. The
rest come one at a time, which gives the latency and, since nothing overlaps there, where the time
goes.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.api.query import Query
from anabranch.spark.session import spark_context
from bench.peers.work import CORES, MEMORY, Case, Found, Order, found_to_json, micros_of
from bench.workloads import ysb, ysb_files

PATIENCE_S = 240.0


def main(arguments: list[str]) -> None:
    """Do what is ordered."""
    order = Order.from_json(Path(arguments[0]).read_text())
    attached = spark_context(master=f"local[{CORES}]", conf={"spark.driver.memory": MEMORY})
    try:
        found = [_run(order, case, attached.sc) for case in order.cases]
    finally:
        attached.stop()
    Path(arguments[1]).write_text(found_to_json(found))


def _run(order: Order, case: Case, sc: Any) -> Found:
    home = order.work / case.name
    inputs = home / "in"
    inputs.mkdir(parents=True)
    _give(case, 0, case.warm, inputs)
    program = ysb.campaign_views(
        ab.sources.Files(inputs),
        lateness=ysb_files.LATENESS.replace("seconds", "s"),
        sink=ab.sinks.Files(order.output(case), format="parquet"),
    )
    query = program.start(
        sc,
        trigger=ab.epochs("1 ms", max_rows=case.rows),
        checkpoint=home / "checkpoint",
        parallelism=int(order.option(case, "width")),
        durability="power" if order.option(case, "durability") == "power" else "process",
    )
    try:
        _wait(query, case.warm - 1)
        _give(case, case.warm, case.batches, inputs)
        _wait(query, case.batches - 1)
        rows, seconds = _counted(query.recent_progress, case)
        alone = [_alone(query, case, number, inputs) for number in range(case.single)]
    finally:
        query.stop()
    last = query.last_progress
    assert last is not None
    return Found(
        case.name,
        rows,
        seconds,
        tuple(float(each["anabranch"]["latencyMs"][-1]) for each in alone),
        _parts(alone),
        (case.batches + case.single) * case.a_batch,
        micros_of(last["eventTime"]["watermark"]),
    )


def _give(case: Case, first: int, last: int, inputs: Path) -> None:
    """Let the batches from `first` to before `last` appear, all their files at once."""
    draft = inputs / f"_{first:05d}"
    case.files.link(draft, first * case.a_batch, last * case.a_batch)
    draft.rename(inputs / f"{first:05d}")


def _alone(query: Query, case: Case, number: int, inputs: Path) -> dict[str, Any]:
    epoch = case.batches + number
    _give(case, epoch, epoch + 1, inputs)
    return _wait(query, epoch)


def _wait(query: Query, epoch: int) -> dict[str, Any]:
    """Until an epoch is committed; its progress."""
    end = time.monotonic() + PATIENCE_S
    while (last := query.last_progress) is None or last["batchId"] < epoch:
        if query.await_termination(timeout=0.005) or time.monotonic() > end:
            message = f"epoch {epoch} was not committed in {PATIENCE_S:.0f} s: {query.status}"
            raise RuntimeError(message)
    return last


def _counted(progress: list[dict[str, Any]], case: Case) -> tuple[int, float]:
    """Rows that count, and seconds from the cut of their first batch to the commit of the last."""
    counted = [each for each in progress if each["anabranch"]["epochs"][0] >= case.warm]
    rows = sum(each["numInputRows"] for each in counted)
    assert rows == case.measured * case.rows, progress
    between = [each["numInputRows"] / each["inputRowsPerSecond"] for each in counted[1:]]
    return rows, counted[0]["anabranch"]["latencyMs"][0] / 1000 + sum(between)


def _parts(alone: list[dict[str, Any]]) -> dict[str, float]:
    """The parts that the driver's thread and the tasks of batches on their own took; means."""
    parts: defaultdict[str, float] = defaultdict(float)
    for each in alone:
        ours = each["anabranch"]
        told = {"cut to commit": ours["latencyMs"][-1], **each["durationMs"]}
        told |= {f"({name})": spent for name, spent in ours.get("tasksMs", {}).items()}
        for name, spent in told.items():
            parts[name] += spent / len(alone)
    # It holds the time without any work too.
    parts.pop("triggerExecution", None)
    return dict(parts)


if __name__ == "__main__":
    main(sys.argv[1:])
