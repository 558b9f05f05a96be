"""`anabranch doctor`: what it looks at, what it mends, and that it leaves alone what is in use."""

import json
import os
import re
import socket
import tomllib
from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.cli.checks import (
    CHECKS,
    EXTRAS,
    PACKAGES,
    Finding,
    Grade,
    Machine,
    available_memory,
    examine,
    package,
)
from anabranch.cli.doctor import _lines
from anabranch.cli.leftovers import Leftover, Places, leftovers
from anabranch.clock import SystemClock
from anabranch.runtime.exchange import OwnedDirectory
from anabranch.spark.archive import DRAFT_S
from anabranch.state.layout import Lease, lease_path
from anabranch.state.store import LocalStore

ROOT = Path(__file__).resolve().parents[2]
DEAD = 2**22 + 1
"""No process has this number: Linux counts up to 2**22."""


@pytest.fixture
def places(tmp_path):
    made = Places(*(tmp_path / name for name in ("t", "shm", "cache")))
    for each in (made.temporary, made.shared, made.cache):
        each.mkdir()
    return made


def machine(places, **environment):
    return Machine(environment, places, SystemClock())


def looked(what, places, **environment):
    return CHECKS[what](machine(places, **environment))


def aged(path):
    """As if nobody had touched it for long."""
    long_ago = SystemClock().now() - 2 * DRAFT_S
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    return path


def checkpoint(root, name, process, *, old=True):
    store = LocalStore(root / f"anabranch-checkpoint-{name}")
    holder = f"{socket.gethostname()}:{process}"
    store.create(lease_path(1), Lease(1, "r", holder).to_bytes())
    return aged(Path(store.root)) if old else Path(store.root)


@pytest.mark.slow
def test_doctor_looks_at_everything_and_finds_java_without_one_on_the_machine(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("ANABRANCH_METRICS_PORT", str(taken.getsockname()[1]))

        assert 1 == main(["doctor", "--json"])

    facts = json.loads(capsys.readouterr().out)
    findings = {each["what"]: each for each in facts["findings"]}
    assert {"python", *PACKAGES, *EXTRAS, *CHECKS} == findings.keys()
    assert ["ports"] == [name for name, each in findings.items() if not each["good"]]
    assert "this machine lacks what is needed: ports" == facts["error"]["message"]
    assert [] == facts["mended"], "nothing is mended unless it is asked for"


def test_every_finding_that_is_not_good_says_what_to_do(places):
    (places.cache / "spark-0.jsa").touch()
    found = [looked(what, places, TZ="Nowhere/Land") for what in CHECKS if what != "java"]

    assert {"zones", "leftovers"} <= {each.what for each in found if each.grade is Grade.WARN}
    assert all(each.so for each in found if each.grade is not Grade.OK)


def test_packages_are_those_that_the_project_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["objects"], *extras["otel"]]
    wanted = {re.split(r"[<>=]", each)[0]: each for each in named}

    assert {**PACKAGES, **EXTRAS}.keys() == wanted.keys()
    for name, begin in {**PACKAGES, **EXTRAS}.items():
        least = re.split(r"[<>=,]+", wanted[name])[1]
        assert f"{least}.".startswith(begin), wanted[name]


def test_a_package_that_is_not_there_is_told():
    missing = package("nothing-like-it", "1.", needed=True)

    assert (Grade.FAIL, "pip install 'nothing-like-it==1.*'") == (missing.grade, missing.so)
    assert Grade.OK is package("nothing-like-it", "1.", needed=False).grade
    assert Grade.FAIL is package("rich", "1.", needed=True).grade


def test_a_cache_that_cannot_be_written_is_a_warning(places):
    places.cache.rmdir()
    places.cache.touch()

    assert Grade.WARN is looked("cache", places).grade


@pytest.mark.slow
def test_a_temporary_directory_that_is_not_there_is_a_failure(places):
    places.temporary.rmdir()

    findings = {each.what: each for each in examine(machine(places, JAVA_HOME="/nonexistent"))}
    assert Grade.FAIL is findings["temporary"].grade
    assert not findings["clock"].good


def test_memory_is_the_least_of_the_machines_and_the_containers(tmp_path):
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 9 kB\nMemAvailable: 4 kB\n")
    assert 4096 == available_memory(info, tmp_path)
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert 2000 == available_memory(info, tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert 4096 == available_memory(info, tmp_path)
    assert available_memory(tmp_path / "none", tmp_path / "none") is None


def test_what_dead_processes_left_is_found_and_what_is_in_use_is_not(places):
    used = [OwnedDirectory.create("spark", places.temporary)]
    used += [OwnedDirectory.create("exchange", places.shared)]
    dead = OwnedDirectory.create("exchange", places.shared)
    os.close(dead._lock)
    checkpoint(places.temporary, "alive", os.getpid())
    checkpoint(places.temporary, "new", DEAD, old=False)
    (places.temporary / "anabranch-checkpoint-strange").mkdir()
    aged(places.temporary / "anabranch-checkpoint-strange")
    gone = checkpoint(places.temporary, "gone", DEAD)
    try:
        found = leftovers(places, SystemClock())
    finally:
        for each in used:
            each.remove()

    assert {dead.path, gone} == {each.path for each in found}


def test_what_is_stale_in_the_cache_is_found_and_the_rest_is_not(places):
    whole, broken = "java-0123456789abcdef", "java-fedcba9876543210"
    for name, to in ((whole, places.temporary), (broken, places.temporary / "gone")):
        (places.cache / name / "bin").mkdir(parents=True)
        (places.cache / name / "bin" / "java").touch()
        (places.cache / name / "lib").symlink_to(to)
    for name in (f"{whole}-21.jsa", f"{broken}-21.jsa", "spark-b.jsa", "notes.txt", "new.draft"):
        (places.cache / name).write_text("x")
    (places.cache / "spark-a.jsa").touch()
    (places.cache / "old.draft").touch()
    aged(places.cache / "old.draft")

    found = leftovers(places, SystemClock())
    assert {broken, f"{broken}-21.jsa", "spark-a.jsa", "old.draft"} == {
        each.path.name for each in found
    }
    assert all(each.remove() for each in found)
    assert [] == leftovers(places, SystemClock())
    assert {whole, f"{whole}-21.jsa", "spark-b.jsa", "notes.txt", "new.draft"} == {
        each.name for each in places.cache.iterdir()
    }


@pytest.mark.slow
def test_fix_removes_what_is_ours_to_remove_and_says_so(places, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(places.temporary))
    monkeypatch.setattr("anabranch.cli.doctor.SHARED_MEMORY", places.shared)
    monkeypatch.setenv("ANABRANCH_CACHE", str(places.cache))
    gone = checkpoint(places.temporary, "gone", DEAD)
    mine = places.temporary / "mine"
    mine.touch()

    assert 0 == main(["doctor", "--fix"])

    out = capsys.readouterr().out
    assert f"removed {gone}: a temporary checkpoint, its process is gone\n" in out
    assert "leftovers         none" in out
    assert (False, True) == (gone.exists(), mine.exists())


def test_each_line_has_a_grade_and_what_to_do():
    findings = [
        Finding("java", Grade.FAIL, "none", "install it"),
        Finding("cores", Grade.WARN, "1", "it works"),
        Finding("python", Grade.OK, "3.11"),
    ]

    assert [
        "removed x: old",
        "FAIL java              none",
        "                       so install it",
        "WARN cores             1",
        "                       so it works",
        "OK   python            3.11",
        "1 OK, 1 WARN, 1 FAIL",
    ] == _lines(findings, [Leftover(Path("x"), "old")])
