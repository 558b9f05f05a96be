"""The query to be killed, in a process of its own: says, a line each, what it has committed.

`python -m bench.recovery.driver OPTIONS`, as JSON. First come as many rows as there are keys, one
of each; then rows come at a steady rate, counted from when the checkpoint was begun, whether there
is a query to take them or not. A line on standard input ends it, once all that is planned is done.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import anabranch as ab

SCHEMA = {"k": pl.Int64}
COUNTED = {"k": pl.Int64, "n": pl.Int64}
WATCHED = 16
"""Keys whose counts are written down: enough to tell a row that is lost or counted twice."""
LOOK_S = 0.002


class Arriving(ab.sources.Source):
    """Row i has key i modulo `keys`; the first `keys` rows are there at once."""

    schema = pl.Schema(SCHEMA)

    def __init__(self, keys: int, rate: float, begun: float) -> None:
        self._keys, self._rate, self._begun = keys, rate, begun

    def arrived(self, at: float) -> int:
        """How many rows are there at a moment of the wall clock."""
        return self._keys + max(0, int((at - self._begun) * self._rate))

    def partitions(self) -> Sequence[int | str]:
        return (0,)

    def latest(self) -> Mapping[int | str, Any]:
        return {0: self.arrived(time.time())}

    def plan(
        self, start: Mapping[int | str, Any], end: Mapping[int | str, Any]
    ) -> Sequence[tuple[int, int]]:
        return [(start[0], end[0])] if start[0] < end[0] else []

    def read(self, split: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        keys = np.arange(*split, dtype=np.int64) % self._keys
        yield from pl.DataFrame({"k": keys}).to_arrow().to_batches()


def count(record: dict[str, Any], state: Any) -> Iterator[dict[str, Any]]:
    """How often a key has come."""
    state.value = (state.value or 0) + 1
    yield {"k": record["k"], "n": state.value}


def program(source: ab.sources.Source, home: Path) -> ab.Program:
    """Counts by key; of most keys nothing is written."""
    made = ab.Program("recovery")
    counted = made.read(source, name="in").key_by("k").process(count, out=COUNTED, name="count")
    watched = counted.filter(pl.col("k") < WATCHED)
    watched.write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    return made


def check(home: Path) -> None:
    """Every watched key was counted 1, 2, 3 and so on; whatever was killed."""
    files = sorted((home / "out").glob("*.parquet"))
    found = pl.concat([pl.read_parquet(file) for file in files])
    for (key,), rows in found.group_by("k", maintain_order=True):
        if rows["n"].to_list() != list(range(1, rows.height + 1)):
            message = f"key {key} was counted {rows['n'].to_list()[:20]} ..."
            raise AssertionError(message)


def main(options: Mapping[str, Any]) -> None:
    """Run until a line comes; tell of each commit."""
    home = Path(options["home"])
    source = Arriving(options["keys"], options["rate"], options["begun"])
    query = program(source, home).start(
        trigger=ab.epochs(options["every"], max_rows=options["most"]),
        checkpoint=home / "ckpt",
        parallelism=2,
        master="local[2]",
    )
    threading.Thread(target=_stop_when_told, args=(query,), daemon=True).start()
    told = None
    while query.is_active:
        progress = query.last_progress
        if progress is not None and progress is not told:
            told = progress
            _tell(query, progress)
        time.sleep(LOOK_S)
    query.await_termination()
    print("ended", flush=True)


def _tell(query: Any, progress: Mapping[str, Any]) -> None:
    ((_, end),) = progress["sources"][0]["endOffset"]
    lanes = query._loop._executor._inner._lanes  # noqa: SLF001 - whom to kill
    pids = [] if lanes is None else sorted(lanes.pids().values())
    print(json.dumps({"at": time.time(), "end": end, "lanes": pids}), flush=True)


def _stop_when_told(query: Any) -> None:
    sys.stdin.readline()
    query.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
