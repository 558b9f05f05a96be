"""Structured Streaming's own answer: stop, repartition the state offline, start again.

`python -m bench.elastic.structured OPTIONS`, as JSON; the answer is the last line, as JSON. The
same rows in files, the same aggregates by key in one window; state in RocksDB with changelogs,
which the repartitioning needs. Its shuffle partitions are frozen by the first batch of a
checkpoint; since 4.2 a batch of its own can rewrite the state for another number of them while the
query is stopped. Files of rows keep coming all the while, at half the rate at which it works off a
backlog itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.elastic.arriving import rows_of
from bench.elastic.ground import SHARE
from bench.peers.plain_spark import session

CORES, MEMORY = 2, "4g"
SETTINGS = {
    "spark.driver.memory": MEMORY,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
}
FILE_S = 0.5
"""A file of rows every so many seconds."""
LOOK_S = 0.01
PATIENCE_S = 900.0
LOAD_FILES = 4


class Feeding:
    """Files of rows, one after the other: first those that load the state, then at a rate."""

    def __init__(self, folder: Path, keys: int) -> None:
        folder.mkdir()
        self._folder, self.keys = folder, keys
        self._rows = self._files = 0
        self._ended = threading.Event()

    def load(self) -> None:
        """As many rows as there are keys."""
        for _ in range(LOAD_FILES):
            self._write(-(-self.keys // LOAD_FILES))

    def begin(self, rate: float) -> None:
        """Have so many rows come a second, in a thread of their own."""
        threading.Thread(target=self._feed, args=(rate,), daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _feed(self, rate: float) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self._write(int(rate * FILE_S))
            due += FILE_S

    def _write(self, rows: int) -> None:
        frame = rows_of(self._rows, self._rows + rows, self.keys)
        hidden = self._folder / f".{self._files}"
        frame.write_parquet(hidden)
        hidden.rename(self._folder / f"{self._files:06}.parquet")
        self._rows, self._files = self._rows + rows, self._files + 1


class Restarted:
    """A query that is stopped, repartitioned and started again."""

    def __init__(self, spark: Any, home: Path) -> None:
        self._spark, self._home = spark, home
        self._query: Any = None
        self._partitions = 0
        self.commits: list[float] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._over = self._idle = False

    def start(self, partitions: int, **trigger: bool) -> None:
        from pyspark.sql import functions as f

        self._spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        rows = self._spark.readStream.schema("t BIGINT, key BIGINT, v BIGINT")
        made = (
            rows.parquet(str(self._home / "in"))
            .withColumn("at", f.timestamp_millis("t"))
            .withWatermark("at", "0 seconds")
            .groupBy(f.window("at", "1 day"), "key")
            .agg(
                f.count("*").alias("n"), f.sum("v").alias("total"), f.min("v").alias("low"),
                f.max("v").alias("high"), f.avg("v").alias("mean"), f.var_samp("v").alias("spread"),
            )
        )  # fmt: skip
        # Its file sink wants an entry of every batch, which the one that repartitions has not made.
        # No filter by key here: Spark would do it before the aggregation, and keep few keys' state.
        writing = made.writeStream.format("noop").outputMode("append")
        writing = writing.option("checkpointLocation", str(self._home / "checkpoint"))
        writing = writing.trigger(**trigger) if trigger else writing
        self._query, self._partitions = writing.start(), partitions
        if not self._thread.is_alive():
            self._thread.start()

    def change(self, partitions: int) -> float:
        """Seconds from when it is asked for to the first batch at the new width."""
        asked = time.monotonic()
        self._query.stop()
        if self._last("offsets") != self._last("commits"):
            # A batch was cut off: it has to be done before, and one that ends by itself does it.
            self.start(self._partitions, availableNow=True)
            self._query.awaitTermination()
        manager = self._spark._streamingCheckpointManager  # noqa: SLF001 - it has no public name yet
        self._idle = True  # it makes a batch without rows, which is no result
        manager.repartition(str(self._home / "checkpoint"), partitions)
        time.sleep(5 * LOOK_S)
        self._idle = False
        known = len(self.commits)
        self.start(partitions)
        self.await_commits(known + 1)
        return time.monotonic() - asked

    def rows_per_second(self, feeding: Feeding) -> float:
        """How fast it works off as many rows as there are keys, all of which it knows."""
        begin = time.monotonic()
        feeding.load()
        self._query.processAllAvailable()
        return feeding.keys / (time.monotonic() - begin)

    def await_commits(self, count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while len(self.commits) < count:
            if self._query.exception() is not None:
                raise RuntimeError(str(self._query.exception()))
            if time.monotonic() > until:
                message = "Structured Streaming made no batch"
                raise RuntimeError(message)
            time.sleep(LOOK_S)

    def require_state(self, keys: int) -> None:
        """Refuse to go on with less state than was asked for: a number for that is no number."""
        held = sum(each["numRowsTotal"] for each in self._query.lastProgress["stateOperators"])
        if held < keys:
            message = f"Structured Streaming has {held} of {keys} keys in its state"
            raise RuntimeError(message)

    def stop(self) -> None:
        self._over = True
        self._query.stop()

    def _last(self, log: str) -> int:
        return max(map(int, self._batches(log)))

    def _batches(self, log: str) -> set[str]:
        """The batches that a log of the checkpoint has, by their names."""
        names = (file.name for file in (self._home / "checkpoint" / log).glob("*"))
        return {name for name in names if name.isdigit()}

    def _watch(self) -> None:
        """Note when a batch is committed: its file is there then."""
        seen: set[str] = set()
        while not self._over:
            new = self._batches("commits") - seen
            seen |= new
            if new and not self._idle:
                self.commits.append(time.monotonic())
            time.sleep(LOOK_S)


def main(options: Mapping[str, Any]) -> None:
    """Load, settle, change there and back as often as asked for; tell what it took."""
    window = options["window"]
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as place:
        home, spark = Path(place), session("elastic", CORES, Path(place), SETTINGS)
        feeding = Feeding(home / "in", options["keys"])
        feeding.load()
        query, found = Restarted(spark, home), list[dict[str, float]]()
        query.start(1)
        query.await_commits(1)
        rate = SHARE * query.rows_per_second(feeding)
        feeding.begin(rate)
        query.await_commits(len(query.commits) + 4)
        for _ in range(options["runs"]):
            for partitions in (2, 1):
                time.sleep(window)
                asked = time.monotonic()
                turn = query.change(partitions)
                time.sleep(1.0)
                query.require_state(options["keys"])
                found.append({
                    "steady": longest(query.commits, asked - window, asked),
                    "gap": longest(query.commits, asked, asked + turn + 1.0),
                    "turn": turn,
                })  # fmt: skip
        feeding.end()
        query.stop()
        spark.stop()
    print(json.dumps({"rate": rate, "changes": found}))


def longest(commits: list[float], begin: float, end: float) -> float:
    """The longest time without a commit that touches a stretch.

    >>> longest([0.0, 1.0, 5.0, 6.0], 4.5, 5.5)
    4.0
    """
    return max(two - one for one, two in pairwise(commits) if two > begin and one < end)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
