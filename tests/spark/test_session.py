import subprocess
import sys
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.spark.jvm import Jvm
from anabranch.spark.session import (
    begin,
    context_of,
    settings,
    spark_context,
    worker_environment,
)

ALONE = """
from pathlib import Path
from anabranch.spark.session import spark_context, _shared

with_ours = spark_context(master="local[1]", app_name="alone")
again = spark_context()
print(again.sc is with_ours.sc, with_ours.owned, with_ours.sc.master)
directory = _shared._jvm.directory.path
print(oct(directory.stat().st_mode & 0o777), directory.exists())
print(with_ours.sc.parallelize(range(10), 1).map(lambda n: n + 1).sum())
with_ours.stop()
print(again.sc.parallelize(range(3), 1).count())
again.stop()
second = spark_context(master="local[2]")
print(second.sc.master, second.sc.parallelize(range(4), 2).count())
print(directory)
"""

TWICE = """
import os, signal
from anabranch.spark.session import spark_context, _shared

first = spark_context(master="local[1]")
pid = first.sc._jvm.java.lang.ProcessHandle.current().pid()
os.kill(pid, signal.SIGKILL)
_shared._jvm.process.wait()
print(spark_context(master="local[1]").sc.parallelize(range(5), 1).count())
first.stop()
print(spark_context(master="local[1]").sc.parallelize(range(6), 1).count())
"""


STOPPED = """
import threading
from anabranch.spark.session import spark_context

attached = spark_context(master="local[1]")
names = lambda: [each.name for each in threading.enumerate() if "serve_forever" in each.name]
print(len(names()))
attached.stop()
for each in threading.enumerate():
    if each.name == "anabranch-stop":
        each.join()
print(len(names()))
"""


def run(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.spark
@pytest.mark.slow
def test_own_context_is_shared_silent_and_leaves_nothing():
    done = run(ALONE)

    *lines, directory = done.stdout.splitlines()
    assert ["True True local[1,4]", "0o700 True", "55", "3", "local[2,4] 4"] == lines
    assert "" == done.stderr
    assert not Path(directory).exists()


@pytest.mark.spark
@pytest.mark.slow
def test_another_jvm_is_started_when_the_first_was_killed():
    assert "5\n6\n" == run(TWICE).stdout


@pytest.mark.spark
@pytest.mark.slow
def test_stopped_context_s_server_ends_too():
    assert "1\n0\n" == run(STOPPED).stdout


@pytest.mark.spark
def test_running_context_of_ours_is_used_again(spark_context):
    attached = sys.modules["anabranch.spark.session"].spark_context()

    assert attached.sc is spark_context
    attached.stop()
    assert spark_context._jsc is not None


@pytest.mark.spark
def test_given_context_is_used_and_not_stopped(spark_context):
    attached = sys.modules["anabranch.spark.session"].spark_context(spark_context)

    attached.stop()

    assert (spark_context, False) == (attached.sc, attached.owned)
    assert spark_context._jsc is not None


def test_what_the_user_sets_stands():
    found = settings("local[2]", {"spark.ui.enabled": "true"}, Path("/tmp/x"))

    assert ("true", "localhost") == (found["spark.ui.enabled"], found["spark.driver.host"])


def test_sockets_are_not_used_where_their_paths_would_be_too_long():
    found = settings("local[2]", {}, Path("/tmp") / ("x" * 80))

    assert "false" == found["spark.python.unix.domain.socket.enabled"]


def test_executors_of_a_local_cluster_get_the_memory_they_may_have():
    assert "512m" == settings("local-cluster[2,1,512]", {}, Path("/x"))["spark.executor.memory"]


def test_spark_connect_is_refused_with_what_to_do():
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()

    with pytest.raises(AnabranchError, match=r"(?s)^this is a Spark Connect session.*so .*classic"):
        context_of(session)


def test_what_is_no_session_is_refused():
    with pytest.raises(AnabranchError, match=r"^int is no Spark session"):
        spark_context(3)


def test_stopped_session_is_refused():
    stopped = type("SparkContext", (), {"_jsc": None})()

    with pytest.raises(AnabranchError, match=r"^this Spark session is stopped"):
        context_of(stopped)


def test_program_that_cannot_be_run_is_refused_before_anything_is_started(monkeypatch):
    monkeypatch.setattr(Jvm, "launch", lambda *_: pytest.fail("a JVM was started"))
    program = ab.Program("hidden")
    numbers = program.read(ab.sources.Records([{"n": 1}])).rename({"n": "__ab_time"})
    numbers.write(ab.sinks.Memory("out"))

    with pytest.raises(ab.ProgramError, match="__ab_time"):
        program.start()


def test_nobody_s_processes_are_begun_for_a_spark_that_is_given(monkeypatch):
    monkeypatch.setattr(Jvm, "launch", lambda *_: pytest.fail("a JVM was started"))

    begin(object(), master="local[1]")


def test_workers_have_what_spark_would_give_them():
    chosen = settings("local[2]", {"spark.executorEnv.MINE": "1"}, Path("/tmp/x"))

    found = worker_environment({"PYTHONPATH": "/theirs", "HOME": "/h"}, chosen)

    assert ("1", "1", "0", "/h") == tuple(
        found[name] for name in ("MINE", "OMP_NUM_THREADS", "PYTHONHASHSEED", "HOME")
    )
    assert found["PYTHONPATH"].endswith(":/theirs")
