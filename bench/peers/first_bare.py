"""What `first_ours.py` does, with Structured Streaming: `python first_bare.py INPUTS HOME`."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(inputs: Path, home: Path) -> None:
    """The whole of it."""
    # With the default of 200 shuffle partitions every batch would be 200 tasks more.
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    query = (
        spark.readStream.schema("at TIMESTAMP, key STRING, value LONG")
        .parquet(str(inputs))
        .withWatermark("at", "1 second")
        .where(f.col("value") > 2)
        .groupBy(f.window("at", "10 seconds"), "key")
        .agg(f.count("*").alias("n"), f.sum("value").alias("total"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(home / "out"))
    )
    query.awaitTermination()

    found = spark.read.parquet(str(home / "out")).select("n", "total").collect()
    print(len(found), sum(row.n for row in found), sum(row.total for row in found), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
