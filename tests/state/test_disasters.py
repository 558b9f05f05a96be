"""A whole query over a checkpoint that is full, damaged, hostile or in bad company.

Scenarios 6, 11, 12, 16, 18, 21, 22 and 23 of the reliability notes, as far as they concern the
checkpoint: the run says what is wrong and stops, or its output is the one it should be.
"""

import errno
import json
import os
import pickle
import shutil
import unicodedata
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.errors import AnabranchError, CheckpointError, RunError
from anabranch.runtime import assembly, tasks
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.envelope import seal
from anabranch.state.layout import lease_path
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.test_inline import made, written


def live(program, checkpoint, *, stop=None, lanes=2, rows=7, keep=None, clock=None):
    """Run to the end, or for so many steps, then let go of it as a crash would."""
    settings = Settings(available_now(rows), checkpoint, lanes, slices=8, keep=keep, in_flight=16)
    assembled = assemble(program.freeze(), settings, InlineExecutor(), clock or MockClock())
    try:
        steps = 0
        while not assembled.loop.over and (stop is None or steps < stop):
            assembled.loop.step()
            steps += 1
    finally:
        assembled.loop._pool.shutdown(wait=True)
        assembled.close()


def check(name, tmp_path):
    expected = run_sequential(made(name, tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def check_any_log(name, tmp_path):
    """As above where plans may be lost: of one partition, without timers, cuts do not show (M1)."""
    assert name == "fraud"
    expected = run_sequential(made(name, tmp_path), epoch_rows=7)["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


# Full disks: 16


class FullStore(LocalStore):
    """A disk with room for so many more files."""

    left = 0

    def _write(self, folder, name, data):
        if FullStore.left == 0:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
            raise OSError(errno.ENOSPC, "No space left on device")
        FullStore.left -= 1
        super()._write(folder, name, data)


@pytest.mark.parametrize("room", range(1, 60, 4))
def test_a_disk_that_is_full_at_any_write_ends_the_run_and_the_next_goes_on(
    room, tmp_path, monkeypatch
):
    FullStore.left = room
    with monkeypatch.context() as patched:
        patched.setattr(assembly, "store_at", FullStore)
        patched.setattr(tasks, "store_at", FullStore)
        try:
            live(made("fraud", tmp_path), tmp_path / "ckpt")
        except RunError as error:
            assert "No space left on device" in str(error)
            assert "make room on that disk" in str(error)

    live(made("fraud", tmp_path), tmp_path / "ckpt", lanes=3)

    check("fraud", tmp_path)
    left = [path for path in (tmp_path / "ckpt").rglob("*") if path.name.startswith(".tmp")]
    assert [] == left


# Damaged files: 2


def _damages(data):
    yield "empty", b""
    yield "cut", data[: len(data) // 2]
    yield "cut at its end", data[:-1]
    yield "zeros", bytes(len(data))
    middle = len(data) // 2
    yield "flipped", data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize("damage", range(5))
def test_a_damaged_file_is_named_or_not_needed(damage, tmp_path):
    """Whichever file of the checkpoint it is: never another output than the right one."""
    home = tmp_path / "home"
    live(made("fraud", home), home / "ckpt", stop=4)
    files = [file for file in sorted((home / "ckpt").rglob("*")) if file.is_file()]
    refused = set()
    for number, file in enumerate(files):
        there = tmp_path / str(number)
        shutil.copytree(home, there)
        path = there / file.relative_to(home)
        what, data = list(_damages(path.read_bytes()))[damage]
        path.write_bytes(data)
        try:
            live(made("fraud", there), there / "ckpt")
        except AnabranchError as error:
            refused.add(file)
            assert isinstance(error, CheckpointError), (what, file.name)
            assert str(path.relative_to(there / "ckpt")) in str(error)
            continue
        check_any_log("fraud", there)
        shutil.rmtree(there)
    found = recover(LocalStore(home / "ckpt"))
    needed = {
        "metadata",
        found.history[-1].path,
        *(link.path for link in found.chains["process-1"]),
    }
    assert {home / "ckpt" / path for path in needed} <= refused


@pytest.mark.slow
def test_every_file_that_is_missing_is_named_or_not_needed(tmp_path):
    home = tmp_path / "home"
    live(made("fraud", home), home / "ckpt", stop=4)
    commits = len(list((home / "ckpt" / "commits").iterdir()))
    for number, file in enumerate(sorted((home / "ckpt").rglob("*"))):
        if not file.is_file() or (file.parent.name == "commits" and int(file.name) == commits):
            # That the newest of several commits was lost cannot be known: nothing names it.
            continue
        there = tmp_path / str(number)
        shutil.copytree(home, there)
        path = there / file.relative_to(home)
        path.unlink()
        try:
            live(made("fraud", there), there / "ckpt")
        except CheckpointError as error:
            assert "is missing" in str(error), file
            continue
        check_any_log("fraud", there)


# Hostile directories: 23


@pytest.mark.parametrize("folder", ["commits", "state/process-1", "epochs", "program", "lease"])
def test_a_folder_that_is_a_link_leads_nowhere(folder, tmp_path):
    live(made("fraud", tmp_path), tmp_path / "ckpt", stop=4)
    inside, outside = tmp_path / "ckpt" / folder, tmp_path / "outside"
    inside.rename(outside)
    inside.symlink_to(outside)
    before = sorted(outside.iterdir())

    with pytest.raises(AnabranchError):
        live(made("fraud", tmp_path), tmp_path / "ckpt")

    assert before == sorted(outside.iterdir())


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_commit_that_is_no_file_is_refused_or_not_seen(kind, tmp_path):
    live(made("fraud", tmp_path), tmp_path / "ckpt", stop=4)
    newest = max((tmp_path / "ckpt" / "commits").iterdir())
    strange = newest.with_name(f"{int(newest.name) + 1:010d}")
    match kind:
        case "link":
            (tmp_path / "secret").write_text("secret")
            strange.symlink_to(tmp_path / "secret")
        case "pipe":
            os.mkfifo(strange)
        case "directory":
            strange.mkdir()

    with pytest.raises(AnabranchError) as caught:
        live(made("fraud", tmp_path), tmp_path / "ckpt")

    assert "secret" not in str(caught.value)


def test_nothing_that_is_pickled_is_opened(tmp_path):
    live(made("fraud", tmp_path), tmp_path / "ckpt", stop=4)

    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    bomb = pickle.dumps(Bomb())
    newest = max((tmp_path / "ckpt" / "commits").iterdir())
    newest.write_bytes(bomb)

    with pytest.raises(CheckpointError, match="does not begin with a version line"):
        live(made("fraud", tmp_path), tmp_path / "ckpt")

    assert not (tmp_path / "exploded").exists()


def test_a_commit_that_names_files_of_elsewhere_is_refused(tmp_path):
    live(made("fraud", tmp_path), tmp_path / "ckpt", stop=4)
    newest = recover(LocalStore(tmp_path / "ckpt")).history[-1]
    for key, value in (
        ("deltas", {"process-1": [[0, "../../secret"]]}),
        ("plans", ["../../secret"]),
        ("latest", {"calls": "metadata"}),
    ):
        content = json.loads(newest.to_bytes().splitlines()[1]) | {key: value}
        (tmp_path / "ckpt" / newest.path).write_bytes(seal(content))
        with pytest.raises(CheckpointError, match="not named as"):
            live(made("fraud", tmp_path), tmp_path / "ckpt")
    assert (tmp_path / "ckpt" / "metadata").exists()


# Leases and clocks: 6 and 12


def test_a_lease_of_long_ago_or_far_ahead_is_followed_by_the_next(tmp_path):
    """A lease is a number and nothing else: who holds it, and since when, decides nothing."""
    live(made("fraud", tmp_path), tmp_path / "ckpt", stop=3)
    (tmp_path / "ckpt" / lease_path(7_000_000)).write_bytes(b"whatever")

    live(made("fraud", tmp_path), tmp_path / "ckpt")

    assert [lease_path(7_000_001)] == LocalStore(tmp_path / "ckpt").list("lease/")
    check("fraud", tmp_path)


class JumpingClock:
    """A wall that jumps an hour to and fro at every look; what is steady stays so."""

    def __init__(self, start):
        self._now, self._looks, self._steady = start, 0, 0.0

    def now(self):
        self._looks += 1
        return self._now + (3600.0 if self._looks % 2 else -3600.0)

    def elapsed(self):
        self._steady += 0.001
        return self._steady


@pytest.mark.parametrize("name", ["fraud", "campaign_views"])
def test_a_clock_that_jumps_changes_nothing(name, tmp_path):
    for start, stop in ((1e9, 3), (0.0, 4), (-1e6, 3), (5e9, None)):
        live(made(name, tmp_path), tmp_path / "ckpt", stop=stop, clock=JumpingClock(start))

    check(name, tmp_path)


# Watermarks, as in 18 and 19


@pytest.mark.parametrize("partitions", [1, 3])
def test_watermarks_never_fall_from_run_to_run(partitions, tmp_path):
    for stop in (3, 4, 3, 3, None):
        program = made("campaign_views", tmp_path, partitions=partitions)
        live(program, tmp_path / "ckpt", stop=stop, lanes=1 + (stop or 0) % 3, rows=2)

    history = recover(LocalStore(tmp_path / "ckpt")).history
    marks = [commit.watermarks.get("events") for commit in history]
    known = [mark for mark in marks if mark is not None]
    assert known == sorted(known)
    assert marks[len(marks) - len(known) :] == known
    assert len({commit.run for commit in history}) == 5


# Keys and records of any size: 21 and 22

KEYS = [
    "", " ", "\0", "a\0b", "é", unicodedata.normalize("NFD", "é"), "שלום", "\u202egnp.exe",
    "💧", "e\u0301\u0323", "../../etc/passwd", "a/b", ".", "..", "nul\r\n", "\ufeff", "\U0010ffff",
    "x" * (1 << 20), None,
]  # fmt: skip


def _counted(rows, schema, tmp_path, name="p"):
    def count(record, state):
        state.value = (state.value or 0) + 1
        yield {**record, "n": state.value}

    program = ab.Program("any")
    source = ab.sources.Records(rows, schema=schema)
    out = {**schema, "n": pl.Int64}
    read = program.read(source, name="in")
    counted = read.key_by("k").process(count, out=out, name=name)
    counted.write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")
    return program


def test_keys_of_all_kinds_are_found_again_at_another_width(tmp_path):
    rows = [{"k": key} for key in KEYS * 3]

    def program():
        return _counted(rows, {"k": pl.String}, tmp_path, name="שלום é..%~ x")

    live(program(), tmp_path / "ckpt", stop=3, rows=9)
    live(program(), tmp_path / "ckpt", stop=3, rows=9, lanes=3)
    live(program(), tmp_path / "ckpt", rows=9, lanes=1)

    assert [(i % len(KEYS), 1 + i // len(KEYS)) for i in range(len(rows))] == [
        (KEYS.index(row["k"]), row["n"]) for row in written(tmp_path / "out")
    ]
    names = [str(path.relative_to(tmp_path)) for path in (tmp_path / "ckpt").rglob("*")]
    assert all(name.isascii() and len(Path(name).name) < 200 for name in names)


def test_numbers_at_the_edges_are_one_key_or_two_as_the_law_says(tmp_path):
    keys = [0.0, -0.0, float("nan"), -float("nan"), float("inf"), 5e-324, 1.7976931348623157e308]
    rows = [{"k": key} for key in keys * 3]

    def program():
        return _counted(rows, {"k": pl.Float64}, tmp_path)

    live(program(), tmp_path / "ckpt", stop=3, rows=5)
    live(program(), tmp_path / "ckpt", lanes=3, rows=5)

    expected = run_sequential(program(), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))
    # Zeros of both signs are one key, and so are all that is not a number.
    assert [6, 6] == [row["n"] for row in expected if row["n"] == 6]


def test_a_large_record_and_many_columns_go_through_a_checkpoint(tmp_path):
    schema = {"k": pl.String, "v": pl.String, **{f"c{i}": pl.Int64 for i in range(2000)}}
    wide = dict.fromkeys(schema, 1)
    rows = [{**wide, "k": f"k{i % 2}", "v": "y" * (8 << 20 if i == 1 else 3)} for i in range(6)]

    def program():
        program = ab.Program("large")
        read = program.read(ab.sources.Records(rows, schema=schema), name="in")
        longest = read.key_by("k").reduce(longer, name="longest")
        longest.write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")
        return program

    live(program(), tmp_path / "ckpt", stop=3, rows=1)
    live(program(), tmp_path / "ckpt", rows=1, lanes=1)

    lengths = [len(row["v"]) for row in written(tmp_path / "out")]
    assert [3, 8 << 20, 3, 8 << 20, 3, 8 << 20] == lengths


def longer(value, record):
    return record if len(record["v"]) > len(value["v"]) else value


def test_nothing_at_all_goes_through_a_checkpoint(tmp_path):
    def program():
        return _counted([], {"k": pl.String}, tmp_path)

    live(program(), tmp_path / "ckpt")
    live(program(), tmp_path / "ckpt", lanes=1)

    assert [] == written(tmp_path / "out")


# Retention


@pytest.mark.parametrize("name", ["fraud", "campaign_views"])
@pytest.mark.parametrize("keep", [1, 2])
def test_a_query_that_let_go_of_its_old_commits_can_be_started_again(name, keep, tmp_path):
    """Commits are kept for their deltas when their plans are gone already."""
    for stop in (9, 2, 5, 9, None):
        program = made(name, tmp_path, count=200)
        live(program, tmp_path / "ckpt", stop=stop, rows=3, keep=keep, lanes=1 + (stop or 1) % 2)

    assert_same_rows(
        run_sequential(made(name, tmp_path, count=200), epoch_rows=3)["out"],
        written(tmp_path / "out"),
        ordered=False,
    )
    assert len(list((tmp_path / "ckpt" / "epochs").iterdir())) <= keep * 40


def test_a_source_that_is_silent_for_long_remembers_its_files(tmp_path):
    """Its last plan, which has the list of its files, is older than all commits that are kept."""
    given = tmp_path / "in"
    given.mkdir()
    pl.DataFrame({"x": [1, 2, 3]}).write_parquet(given / "b.parquet")
    loud = [{"x": i} for i in range(100)]

    def program():
        program = ab.Program("two")
        files = program.read(ab.sources.Files(given, format="parquet"), name="files")
        many = program.read(ab.sources.Records(loud, schema={"x": pl.Int64}), name="many")
        for stream, name in ((files, "few"), (many, "lots")):
            stream.write(ab.sinks.Files(tmp_path / name, format="parquet"), name=name)
        return program

    live(program(), tmp_path / "ckpt", keep=1, rows=3, stop=8)
    # A name that sorts before the one that was read: it must not be taken for it.
    pl.DataFrame({"x": [4, 5, 6]}).write_parquet(given / "a.parquet")
    live(program(), tmp_path / "ckpt", keep=1, rows=3)

    assert [1, 2, 3, 4, 5, 6] == sorted(row["x"] for row in written(tmp_path / "few"))
    assert loud == written(tmp_path / "lots")
