"""How Spark's JVM is started: what it is given, and that it does without what cannot be had."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from anabranch import config
from anabranch.spark.java import VECTOR_OPTION, find_java
from anabranch.spark.jvm import GATEWAY, LAUNCHER_OPTIONS, SUBMIT, entry

COUNTS = """
import sys
from pathlib import Path
from anabranch.spark.session import begin, spark_context

cache = Path(sys.argv[1])
begin(master="local[1]", cache=cache)
attached = spark_context(master="local[1]", cache=cache)
print(attached.sc.parallelize(range(10), 1).map(lambda n: n + 1).sum(), attached.sc.sparkUser())
attached.stop()
"""

JAR = """
import sys
from anabranch.spark.session import spark_context

attached = spark_context(master="local[1]", conf={"spark.jars": sys.argv[1]})
loader = attached.sc._jvm.java.lang.Thread.currentThread().getContextClassLoader()
print(loader.getResource("found.txt") is not None, attached.sc.parallelize(range(3), 1).count())
attached.stop()
"""


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
def test_jvm_gets_the_options_of_spark_s_own_launcher():
    home = Path(pyspark.__file__).parent
    java = find_java(config.environment(), config.cache_directory())
    printed = subprocess.run(
        [
            java.home / "bin" / "java",
            *("-cp", f"{home}/jars/*"),
            *("org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"),
            "pyspark-shell",
        ],
        env={"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "JAVA_HOME": str(java.home)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")

    given = [each.strip() for each in printed]
    first = given.index("-XX:+IgnoreUnrecognizedVMOptions")
    theirs = [option for option in given[first:] if option.startswith("-")]

    assert {*theirs} - {*LAUNCHER_OPTIONS} == {
        VECTOR_OPTION,
        "-Dderby.connection.requireAuthentication=false",
    }
    assert {*LAUNCHER_OPTIONS} <= {*theirs}


@pytest.mark.parametrize(
    ("master", "conf", "environment"),
    [
        ("yarn", {}, {}),
        ("local[2]", {}, {"SPARK_CONF_DIR": "/etc/spark"}),
        ("local[2]", {"spark.jars.packages": "a:b:1"}, {}),
        ("local[2]", {"spark.kerberos.keytab": "k"}, {}),
    ],
)
def test_spark_submit_is_asked_where_it_has_something_to_do(master, conf, environment):
    command = entry(master, conf, environment)

    given = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    assert [SUBMIT, *given, "pyspark-shell"] == command


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]"])
def test_it_is_not_asked_where_it_has_not(master):
    assert [GATEWAY] == entry(master, {"spark.driver.memory": "2g", "spark.jarsy": "x"}, {})


@pytest.mark.spark
@pytest.mark.slow
def test_jars_that_a_user_gives_are_seen_by_the_driver(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as jar:
        jar.writestr("found.txt", "found")

    done = run(JAR, tmp_path / "a.jar")

    assert "True 3\n" == done.stdout, done.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_without_a_cache_spark_starts_without_a_word(tmp_path):
    (tmp_path / "file").touch()

    done = run(COUNTS, tmp_path / "file" / "cache")

    assert (f"55 {user()}\n", "") == (done.stdout, done.stderr)


@pytest.mark.spark
@pytest.mark.slow
def test_an_archive_is_made_used_and_done_without_when_it_is_spoilt(tmp_path):
    first = run(COUNTS, tmp_path)
    (archive,) = tmp_path.glob("spark-*.jsa")
    size = archive.stat().st_size
    again = run(COUNTS, tmp_path)
    assert size == archive.stat().st_size
    archive.chmod(0o600)
    os.truncate(archive, size // 2)
    spoilt = run(COUNTS, tmp_path)

    assert [f"55 {user()}\n"] * 3 == [each.stdout for each in (first, again, spoilt)]
    assert [""] * 3 == [each.stderr for each in (first, again, spoilt)]


def user():
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name
