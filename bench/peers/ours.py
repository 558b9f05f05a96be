"""Anabranch's process: `python -m bench.peers.ours ORDER RESULT`.

One query a case. Its first batches are there when it starts and are worked off as it likes, several
under way at a time: that gives the throughput. The rest come one at a time, which gives the latency
and, since nothing overlaps there, where the time goes.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.api.query import Query
from anabranch.connectors.file_sink import Files
from anabranch.runtime import loop
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.intake import Intake
from anabranch.spark.executor import SparkExecutor
from anabranch.spark.session import spark_context
from anabranch.state.commits import Commits
from bench.peers.work import CORES, MEMORY, Case, Found, Order, found_to_json
from bench.workloads import ysb, ysb_files

PATIENCE_S = 240.0


def main(arguments: list[str]) -> None:
    """Do what is ordered."""
    order = Order.from_json(Path(arguments[0]).read_text())
    watch = Stopwatch.attached()
    attached = spark_context(master=f"local[{CORES}]", conf={"spark.driver.memory": MEMORY})
    try:
        found = [_run(order, case, attached.sc, watch) for case in order.cases]
    finally:
        attached.stop()
    Path(arguments[1]).write_text(found_to_json(found))


class Stopwatch:
    """How long parts of the driver's cycle take; there from outside what progress does not say."""

    def __init__(self) -> None:
        """All at zero."""
        self.spent: defaultdict[str, float] = defaultdict(float)

    @classmethod
    def attached(cls) -> Stopwatch:
        """One that watches the runtime's own parts."""
        watch = cls()
        for owner, name, label in (
            (Intake, "look", "look at the source"),
            (Commits, "plan", "write the plan"),
            (SparkExecutor, "run", "jobs"),
            (loop, "merge", "merge and stage"),
            (Commits, "commit", "write the commit"),
            (Commits, "publish", "publish"),
            (Files, "publish", "of which the sink"),
            (Deployment, "clean", "clean the exchange"),
        ):
            setattr(owner, name, watch.timed(label, getattr(owner, name)))
        return watch

    def timed(self, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def run(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                self.spent[label] += time.perf_counter() - began

        return run


def _run(order: Order, case: Case, sc: Any, watch: Stopwatch) -> Found:
    home = order.work / case.name
    inputs = home / "in"
    inputs.mkdir(parents=True)
    for number in range(case.batches):
        _give(case, number, inputs)
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
        _wait(query, case.batches - 1)
        rows, seconds = _counted(query.recent_progress, case)
        watch.spent.clear()
        latencies = [_alone(query, case, number, inputs) for number in range(case.single)]
        spent = dict(watch.spent)
    finally:
        query.stop()
    last = query.last_progress
    assert last is not None
    return Found(
        case.name,
        rows,
        seconds,
        tuple(latencies),
        _parts(last, spent, latencies),
        (case.batches + case.single) * case.a_batch,
        last["eventTime"]["watermark"],
    )


def _give(case: Case, number: int, inputs: Path) -> None:
    """Let a batch appear, all its files at once."""
    draft = inputs / f"_{number:05d}"
    case.files.link(draft, number * case.a_batch, (number + 1) * case.a_batch)
    draft.rename(inputs / f"{number:05d}")


def _alone(query: Query, case: Case, number: int, inputs: Path) -> float:
    epoch = case.batches + number
    _give(case, epoch, inputs)
    last = _wait(query, epoch)
    return float(last["anabranch"]["latencyMs"][-1])


def _wait(query: Query, epoch: int) -> dict[str, Any]:
    """Until an epoch is committed; its progress."""
    end = time.monotonic() + PATIENCE_S
    while (last := query.last_progress) is None or last["batchId"] < epoch:
        if query.await_termination(timeout=0.005) or time.monotonic() > end:
            message = f"epoch {epoch} was not committed in {PATIENCE_S:.0f} s: {query.status}"
            raise RuntimeError(message)
    return last


def _counted(progress: list[dict[str, Any]], case: Case) -> tuple[int, float]:
    """Rows and seconds of the commits behind the one that holds the last batch of the warm-up.

    A commit may hold several batches: where the first holds all, as on tiny inputs, it counts.
    """
    behind = [each for each in progress if each["anabranch"]["epochs"][0] >= case.warm] or progress
    seconds = [each["numInputRows"] / each["processedRowsPerSecond"] for each in behind]
    return sum(each["numInputRows"] for each in behind), sum(seconds)


def _parts(
    progress: dict[str, Any], spent: dict[str, float], latencies: list[float]
) -> dict[str, float]:
    """What the progress itself says of its parts, if it does; else what was seen from outside."""
    told = {name: float(ms) for name, ms in progress["durationMs"].items()}
    if len(told) > 1 or not latencies:
        return told
    count = len(latencies)
    return {
        "cut to commit": sum(latencies) / count,
        **{label: 1000 * seconds / count for label, seconds in spent.items()},
    }


if __name__ == "__main__":
    main(sys.argv[1:])
