"""Structured Streaming on the same rows: how long after it is due a row is seen.

`python -m bench.continuous.structured OPTIONS`, as JSON; the answer is the last line, as JSON. Rows
become due as they do for `Due`, and come in files, one every 20 ms, since nothing it reads gives
rows sooner from within one machine. It has no window of the last rows of a key: in the place of the
operator with state there is a running sum by key, in update mode, which is less work; `python` has
a plain Python function of each row before it. Batches follow one another without a pause.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.continuous.due import Due
from bench.harness.machine import ROOT
from bench.peers.plain_spark import session

CORES = 2
FILE_S = 0.02
"""A file of rows every so many seconds."""
PATIENCE_S = 300
WARM_UP, WARM_UP_ROWS = 10, 10_000
"""Batches before the first that counts, and rows of each."""
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def latencies(kind: str, rate: float, warm: float, counted: float) -> dict[str, float]:
    """The latencies of rows that were due when it had warmed up, in milliseconds, by quantile."""
    options = {"kind": kind, "rate": rate, "warm": warm, "counted": counted}
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(options)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        message = f"Structured Streaming failed:\n{done.stderr[-3000:]}"
        raise RuntimeError(message)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass
class Seen:
    """Up to which row all were seen, and when."""

    due: list[float]
    at: list[float]

    def batch(self, rows: Any, number: int) -> None:
        """Take a batch: its newest row tells how far all rows have come."""
        from pyspark.sql import functions as f

        del number
        (newest,) = rows.agg(f.max("due")).collect()[0]
        if newest is not None:
            self.due.append(newest / 1e6)
            self.at.append(time.time())

    def seconds(self, low: float, high: float, rate: float) -> np.ndarray[Any, Any]:
        """The latencies of rows that were due in between; rows are due evenly.

        >>> Seen([1.0, 3.0], [1.5, 3.5]).seconds(0.0, 3.0, 1.0).tolist()
        [1.5, 0.5, 1.5]
        """
        due = np.arange(low, high, 1 / rate)
        due = due[due <= max(self.due, default=low)]
        batch = np.searchsorted(np.maximum.accumulate(self.due), due)
        return np.asarray(np.array(self.at)[batch] - due)


def feed(folder: Path, source: Due, over: threading.Event) -> None:
    """Write what is due, a file every so often, until all is."""
    done, number = 0, 0
    while done < source.rows and not over.wait(FILE_S):
        due = source.latest()[0]
        if due > done:
            hidden = folder / f".{number}"
            source.frame((done, due)).write_parquet(hidden)
            hidden.rename(folder / f"{number:06}.parquet")
            done, number = due, number + 1


def warm_up(query: Any, folder: Path) -> None:
    """A few batches before anything is counted: its first ones take seconds."""
    for number in range(WARM_UP):
        hidden = folder / f".warm{number}"
        Due(WARM_UP_ROWS, 1e6, time.time() - 1).frame((0, WARM_UP_ROWS)).write_parquet(hidden)
        hidden.rename(folder / f"warm{number}.parquet")
        query.processAllAvailable()


def started(spark: Any, kind: str, home: Path, seen: Seen) -> Any:
    """The query, at work."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType

    rows = spark.readStream.schema("n BIGINT, k BIGINT, due BIGINT").parquet(str(home / "in"))
    rows = rows.where("n % 100 != 99").withColumn("m", f.expr("n * 3 + 1"))
    if kind == "python":
        plain = f.udf(lambda value: value + 1, LongType(), useArrow=False)
        rows = rows.withColumn("m", plain("m"))
    made = rows.groupBy("k").agg(
        f.max("n").alias("n"), f.max("due").alias("due"), f.sum("m").alias("m")
    )
    made = made.withColumn("m", f.expr("m div 4")).where("m >= 0")
    writing = made.writeStream.outputMode("update").foreachBatch(seen.batch)
    return writing.option("checkpointLocation", str(home / "checkpoint")).start()


def main(options: Mapping[str, Any]) -> None:
    """Run for as long as is counted, and tell."""
    seconds, rate = options["warm"] + options["counted"], options["rate"]
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as place:
        home = Path(place)
        (home / "in").mkdir()
        spark, seen, over = (
            session("continuous", CORES, home, SETTINGS),
            Seen([], []),
            threading.Event(),
        )
        query = started(spark, options["kind"], home, seen)
        warm_up(query, home / "in")
        begin = time.time()
        source = Due(int(seconds * rate), rate, begin)
        feeding = threading.Thread(target=feed, args=(home / "in", source, over))
        feeding.start()
        feeding.join()
        query.processAllAvailable()
        query.stop()
        spark.stop()
    found = seen.seconds(begin + options["warm"], begin + seconds, rate) * 1e3
    print(json.dumps({name: float(np.quantile(found, at)) for name, at in _QUANTILES.items()}))


_QUANTILES = {"latency_p50": 0.5, "latency_p99": 0.99}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
