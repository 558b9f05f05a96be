"""Flink's process: `python -m bench.peers.flink ORDER RESULT`, by an interpreter with PyFlink.

Flink SQL on a local cluster in one JVM. One query a case, which reads two directories that it
watches: its file source takes files that appear together in no particular order, so each phase is
one file a directory, of rows in order.

SQL has no join of a stream with a small table that keeps the time of rows and does not keep the
rows too, unless another store is asked for each. So there are two ways to look up ads: `join`
counts views by ad first and joins the counts, `each` has a Python function look up every view.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.task import ADS, CORES, LATENESS_MS, WINDOW_MS, Task, answer, read, run

SETTINGS = {
    "parallelism.default": "1",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.storage": "filesystem",
    "pipeline.auto-watermark-interval": "50 ms",
    "pipeline.object-reuse": "true",
    "python.fn-execution.arrow.batch.size": "10000",
    "python.fn-execution.bundle.size": "10000",
    "python.fn-execution.bundle.time": "20",
    "restart-strategy.type": "none",
    "state.backend.type": "hashmap",
    "table.local-time-zone": "UTC",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}
"""Every part of the input is a pipeline of its own, so there are `CORES` of parallelism 1."""

_WATCHED = "1 ms"
_LATENESS = f"INTERVAL '{LATENESS_MS // 1000}' SECOND"
_WINDOW = f"INTERVAL '{WINDOW_MS // 1000}' SECOND"


def main(arguments: list[str]) -> None:
    """Do what is ordered."""
    tasks = read(Path(arguments[0]))
    Path(arguments[1]).write_text(json.dumps([_run(task) for task in tasks]))


def _run(task: Task) -> dict[str, Any]:
    query = _Query(task)
    try:
        timed = run(task, query)
    finally:
        query.stop()
    query.gather()
    # It closes a window when no event before its end can come: a millisecond before others do.
    return answer(task, timed, _watermark_ms(task, task.last) + 1)


def _watermark_ms(task: Task, files: int) -> int:
    """The least of the parts' watermarks: the one without the last rows of all."""
    return task.due_ms(files, before=CORES) - LATENESS_MS


class _Query:
    """The query of one case, under way from its first input on."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._out = task.home / "out"
        self._seen: set[str] = set()
        self._ended_ms = 0
        for part in range(CORES):
            self._input(part).mkdir(parents=True)
        self._job = _start(task, [self._input(part) for part in range(CORES)], self._out)

    def give(self, first: int, last: int) -> None:
        for part in range(CORES):
            # Hidden until both parts are there; the name is all that has to be changed then.
            self._draft(part).hardlink_to(self._task.text(first, last, part))
        for part in range(CORES):
            self._draft(part).rename(self._input(part) / f"{first:05d}.csv")

    def committed(self, files: int) -> bool:
        for path in self._parts():
            if path.name not in self._seen:
                self._seen.add(path.name)
                ends = [_millis(row[1]) for row in _lines(path)]
                self._ended_ms = max([self._ended_ms, *ends])
        # There is one writer, and all rows of a window reach it before the same checkpoint.
        due = (_watermark_ms(self._task, files) + 1) // WINDOW_MS * WINDOW_MS
        return self._ended_ms >= due

    def stop(self) -> None:
        self._job.get_job_client().cancel().result()

    def gather(self) -> None:
        """Turn the committed files into one that the race reads."""
        rows = [row for path in self._parts() for row in _lines(path)]
        arrow: Any = import_module("pyarrow")
        at = arrow.timestamp("us")
        table = arrow.table(
            {
                "window_start": arrow.array([_millis(row[0]) * 1000 for row in rows]).cast(at),
                "window_end": arrow.array([_millis(row[1]) * 1000 for row in rows]).cast(at),
                "campaign_id": [row[2] for row in rows],
                "views": [int(row[3]) for row in rows],
            }
        )
        self._task.output.mkdir(parents=True)
        import_module("pyarrow.parquet").write_table(table, self._task.output / "all.parquet")

    def _input(self, part: int) -> Path:
        return self._task.home / f"in-{part}"

    def _draft(self, part: int) -> Path:
        return self._input(part) / ".draft"

    def _parts(self) -> list[Path]:
        """Those that are committed: others have hidden names."""
        return sorted(self._out.glob("part-*"))


def _start(task: Task, inputs: list[Path], out: Path) -> Any:
    tables: Any = import_module("pyflink.table")
    common: Any = import_module("pyflink.common")
    settings = {
        **SETTINGS,
        "execution.checkpointing.dir": (task.home / "checkpoint").as_uri(),
        "execution.checkpointing.interval": task.options["interval"],
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
    }
    configuration = common.Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    streaming = tables.EnvironmentSettings.new_instance().in_streaming_mode()
    environment = tables.TableEnvironment.create(
        streaming.with_configuration(configuration).build()
    )
    for part, path in enumerate(inputs):
        environment.execute_sql(_events(part, path))
    environment.execute_sql(_sink(out))
    looked_up = {"join": _joined, "each": _called}[task.options["lookup"]]
    return environment.execute_sql(looked_up(environment, task.work / ADS))


def _events(part: int, path: Path) -> str:
    return f"""
        CREATE TABLE events_{part} (
            ad_id STRING,
            event_type STRING,
            due BIGINT,
            event_time AS TO_TIMESTAMP_LTZ(due, 3),
            WATERMARK FOR event_time AS event_time - {_LATENESS}
        ) WITH (
            'connector' = 'filesystem',
            'path' = '{path.as_uri()}',
            'format' = 'csv',
            'source.monitor-interval' = '{_WATCHED}'
        )
    """


def _counted(key: str, of: str) -> str:
    """Views by window and a key, whatever it is made of; a count of each part, one below another.

    Each part counts on its own, so that not every row has to reach another task.
    """
    return " UNION ALL ".join(
        f"""
        SELECT window_start, window_end, window_time AS closed, {key}, COUNT(*) AS n
        FROM TUMBLE(
            (SELECT {of} AS {key}, event_time FROM events_{part} WHERE event_type = 'view'),
            DESCRIPTOR(event_time),
            {_WINDOW}
        )
        GROUP BY window_start, window_end, window_time, {key}
        """
        for part in range(CORES)
    )


def _sink(out: Path) -> str:
    return f"""
        CREATE TABLE campaign_views (
            window_start TIMESTAMP(3),
            window_end TIMESTAMP(3),
            campaign_id STRING,
            n BIGINT
        ) WITH (
            'connector' = 'filesystem',
            'path' = '{out.as_uri()}',
            'format' = 'csv',
            'sink.parallelism' = '1'
        )
    """


def _joined(environment: Any, ads: Path) -> str:
    """Views are counted by ad, and the counts joined: a temporal join keeps the time of rows."""
    environment.execute_sql(f"""
        CREATE TABLE ads (
            ad_id STRING,
            campaign_id STRING,
            since AS TO_TIMESTAMP_LTZ(0, 3),
            WATERMARK FOR since AS since,
            PRIMARY KEY (ad_id) NOT ENFORCED
        ) WITH ('connector' = 'filesystem', 'path' = '{ads.as_uri()}', 'format' = 'csv')
    """)
    environment.execute_sql(f"CREATE TEMPORARY VIEW counted AS {_counted('ad_id', 'ad_id')}")
    environment.execute_sql("""
        CREATE TEMPORARY VIEW joined AS SELECT campaign_id, closed, n
        FROM counted AS c JOIN ads FOR SYSTEM_TIME AS OF c.closed AS a ON c.ad_id = a.ad_id
    """)
    return f"""
        INSERT INTO campaign_views
        SELECT window_start, window_end, campaign_id, SUM(n)
        FROM TABLE(TUMBLE(TABLE joined, DESCRIPTOR(closed), {_WINDOW}))
        GROUP BY window_start, window_end, campaign_id
    """


def _called(environment: Any, ads: Path) -> str:
    """The ad of each view is looked up by a vectorised Python function, in other processes."""
    campaigns = dict(_lines(ads))

    def campaign_of(ad_id: Any) -> Any:
        return ad_id.map(campaigns)

    types: Any = import_module("pyflink.table").DataTypes
    udf: Any = import_module("pyflink.table.udf").udf
    function = udf(campaign_of, result_type=types.STRING(), func_type="pandas")
    environment.create_temporary_system_function("campaign_of", function)
    return f"""
        INSERT INTO campaign_views
        SELECT window_start, window_end, campaign_id, SUM(n)
        FROM ({_counted("campaign_id", "campaign_of(ad_id)")})
        GROUP BY window_start, window_end, campaign_id
    """


def _lines(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def _millis(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    # The gateway's JVM outlives its client unless it sees it gone; threads of Py4J would keep us.
    os._exit(0)
