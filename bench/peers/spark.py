"""Structured Streaming's process: `python -m bench.peers.spark ORDER RESULT`.

Plain PySpark, native functions only, at its best documented settings (see `SETTINGS`). One query a
case with `availableNow`: batches come one after the other, so each one's own time is its latency.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl

from bench.peers.plain_spark import session
from bench.peers.work import CORES, MEMORY, Case, Found, Order, found_to_json, micros_of
from bench.workloads import ysb, ysb_files

SETTINGS = {
    "spark.driver.memory": MEMORY,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stateStore.maintenanceInterval": "60s",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
STORES = {
    "hdfs": "HDFSBackedStateStoreProvider",
    "rocksdb": "RocksDBStateStoreProvider",
}
_STATE = "org.apache.spark.sql.execution.streaming.state"


def main(arguments: list[str]) -> None:
    """Do what is ordered."""
    order = Order.from_json(Path(arguments[0]).read_text())
    spark = session("ysb", CORES, order.work, SETTINGS)
    try:
        found = [_run(order, case, spark) for case in order.cases]
    finally:
        spark.stop()
    Path(arguments[1]).write_text(found_to_json(found))


def _run(order: Order, case: Case, spark: Any) -> Found:
    home = order.work / case.name
    case.files.link(home / "in", 0, case.batches * case.a_batch)
    spark.conf.set("spark.sql.shuffle.partitions", order.option(case, "width"))
    store = f"{_STATE}.{STORES[order.option(case, 'store')]}"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    query = (
        _campaign_views(spark, home / "in", case)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(order.output(case)))
    )
    query.awaitTermination()
    progress = [dict(each) for each in query.recentProgress]
    return _found(case, progress)


def _campaign_views(spark: Any, inputs: Path, case: Case) -> Any:
    from pyspark.sql import functions as f

    schema = "user_id STRING, page_id STRING, ad_id STRING, ad_type STRING, event_type STRING, "
    schema += "event_time TIMESTAMP, ip_address STRING"
    # A local relation, so that no batch reads it from anywhere.
    ads = spark.createDataFrame(ysb.ads().to_arrow(compat_level=pl.CompatLevel.oldest()))
    seconds = f"{ysb.WINDOW.seconds} seconds"
    return (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", case.a_batch)
        .parquet(str(inputs))
        .withWatermark("event_time", ysb_files.LATENESS)
        .where(f.col("event_type") == "view")
        .select("ad_id", "event_time")
        .join(f.broadcast(ads), "ad_id")
        .groupBy(f.window("event_time", seconds), "campaign_id")
        .agg(f.count("*").alias("views"))
        .select(
            f.col("window.start").alias("window_start"),
            f.col("window.end").alias("window_end"),
            "campaign_id",
            "views",
        )
    )


def _found(case: Case, progress: list[dict[str, Any]]) -> Found:
    data = [each for each in progress if each["numInputRows"]]
    assert [each["numInputRows"] for each in data] == [case.rows] * case.batches, progress
    counted = data[case.warm :]
    durations = [each["durationMs"] for each in counted]
    names = {name for each in durations for name in each}
    parts = {name: sum(each.get(name, 0) for each in durations) / len(durations) for name in names}
    return Found(
        case.name,
        case.rows * case.measured,
        _ended(data[-1]) - micros_of(counted[0]["timestamp"]) / 1e6,
        tuple(float(each["triggerExecution"]) for each in durations),
        dict(sorted(parts.items(), key=lambda part: -part[1])),
        case.batches * case.a_batch,
        micros_of(progress[-1]["eventTime"]["watermark"]),
    )


def _ended(progress: dict[str, Any]) -> float:
    """When a batch was committed, in seconds."""
    took: int = progress["durationMs"]["triggerExecution"]
    return micros_of(progress["timestamp"]) / 1e6 + took / 1e3


if __name__ == "__main__":
    main(sys.argv[1:])
