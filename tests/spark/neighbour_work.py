"""A process that outlives its Spark, and does not live to tidy up; see test_neighbour.py."""

import json
import os
import signal
import sys

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.spark.session import spark_context


def refusal(call):
    try:
        return str(call())
    except AnabranchError as error:
        return str(error)


def main():
    first = spark_context(master="local[1]")
    df = SparkSession(first.sc).range(0, 3, 1, 1)
    early, late = ab.sources.Spark(df), ab.sources.Spark(df)
    early.partitions()
    first.stop()
    said = {
        "made of a stopped one": refusal(lambda: ab.sources.Spark(df)),
        "read after the stop": refusal(late.partitions),
        # What is kept needs no Spark any more.
        "read before the stop": early.frame((0, 0, 3))["id"].to_list(),
    }
    second = spark_context(master="local[1]")
    said["read on another"] = refusal(late.partitions)
    kept = ab.sources.Spark(SparkSession(second.sc).range(3))
    kept.partitions()
    said["kept in"] = str(kept._rows().directory)
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
