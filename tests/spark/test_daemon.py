import os
import subprocess
import sys

import pytest

CLOSED = """
import socket
from {module} import worker

ours, theirs = socket.socketpair()
theirs.close()
print(worker(ours, True))
"""

IMPORTED = """
import sys
import anabranch.spark.daemon as daemon
print({"pyspark", "polars", "pyarrow", "numpy", "pandas", "dataclasses"} & {*sys.modules})
daemon.load_before_fork()
print({"polars", "pyarrow", "numpy", "pandas"} & {*sys.modules})
"""


def run(script):
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PYTHONPATH": os.pathsep.join(sys.path),
            # As Spark sets it.
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        },
    )


@pytest.mark.slow
def test_worker_that_spark_has_closed_ends_without_a_word():
    done = run(CLOSED.format(module="anabranch.spark.daemon"))

    assert ("1\n", "") == (done.stdout, done.stderr)


@pytest.mark.slow
def test_spark_s_own_worker_does_not():
    assert "BrokenPipeError" in run(CLOSED.format(module="pyspark.daemon")).stderr


@pytest.mark.slow
def test_daemon_loads_little_and_before_a_fork_nothing_that_starts_threads():
    assert "set()\nset()\n" == run(IMPORTED).stdout


@pytest.mark.spark
def test_contexts_of_ours_use_it(spark_context):
    name = spark_context.parallelize([0], 1).map(
        lambda _: __import__("sys").modules["__main__"].__spec__.name
    )

    assert ["anabranch.spark.daemon"] == name.collect()
