"""A Spark session as its users make one, in a process without ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch import config
from anabranch.spark.java import find_java

PLAIN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}
"""What has to do with the machine, and not with speed."""


def session(name: str, cores: int, home: Path, settings: Mapping[str, str]) -> Any:
    """A session on so many cores of this machine, with its files in a directory of ours."""
    java = find_java(config.environment(), config.cache_directory())
    os.environ |= {"JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in {**PLAIN, **settings, "spark.local.dir": str(home / "local")}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
