"""A savepoint: a checkpoint by itself, taken between steps, whole or not there at all."""

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap

import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.errors import CheckpointError, RunError
from anabranch.runtime import savepoint as room
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.savepoint import savepoint
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from tests.runtime.programs import LOOPS, PROGRAMS
from tests.runtime.test_inline import made, written


class Life:
    """A query in this process, step by step."""

    def __init__(self, program, checkpoint, *, lanes=2, rows=7, keep=None, mischief=KIND):
        # Two in flight: three steps take them to their commit, and there are many commits.
        settings = Settings(
            available_now(rows), checkpoint, lanes, slices=8, keep=keep, in_flight=2
        )
        executor = InlineExecutor(3, mischief)
        self.assembled = assemble(program.freeze(), settings, executor, MockClock())
        self.checkpoint = checkpoint

    def steps(self, count=None):
        loop, done = self.assembled.loop, 0
        while not loop.over and (count is None or done < count):
            loop.step()
            done += 1
        return self

    def end(self):
        self.assembled.loop.close()
        self.assembled.close()


def behind(program, checkpoint, path, last, merged):
    """What a run from a savepoint shows: all that comes behind the log up to the savepoint."""
    (merged / "commits").mkdir(parents=True)
    for root in (checkpoint, path):
        shutil.copytree(root / "epochs", merged / "epochs", dirs_exist_ok=True)
    for file in [*(checkpoint / "commits").iterdir(), *(path / "commits").iterdir()]:
        commit = json.loads(file.read_text().splitlines()[1])
        mine = commit["last"] <= last if file.is_relative_to(checkpoint) else commit["first"] > last
        if mine:
            shutil.copy(file, merged / "commits" / file.name)
    log = log_of(merged, program.freeze())
    everything = run_sequential(program, log=log)["out"]
    before = run_sequential(program, log=log[: last + 1])["out"]
    return everything[len(before) :]


def files_in(directory):
    return sorted(
        str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()
    )


@pytest.mark.parametrize("name", [*PROGRAMS, *LOOPS])
@pytest.mark.parametrize(("steps", "lanes"), [(0, 2), (1, 1), (4, 3), (9, 1), (14, 2)])
def test_a_run_goes_on_from_it_at_any_width_while_the_query_goes_on(name, steps, lanes, tmp_path):
    checkpoint, path, there = tmp_path / "ckpt", tmp_path / "saved", tmp_path / "there"
    life = Life(made(name, tmp_path), checkpoint).steps(steps)

    last = savepoint(checkpoint, path)
    assert not life.assembled.loop.over

    life.steps().end()
    expected = run_sequential(made(name, tmp_path), log=checkpoint)["out"]
    assert_same_rows(expected, written(tmp_path / "out"))
    Life(made(name, there), path, lanes=lanes, rows=5).steps().end()
    expected = behind(made(name, there), checkpoint, path, last, tmp_path / "merged")
    assert_same_rows(expected, written(there / "out"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_of_the_checkpoint_it_was_taken_of_is_needed(name, tmp_path):
    """As on another machine: the checkpoint and its output are gone."""
    checkpoint, path, there = tmp_path / "ckpt", tmp_path / "saved", tmp_path / "there"
    size = {"partitions": 2, "count": 400}
    life = Life(made(name, tmp_path, **size), checkpoint, keep=2, mischief=UNKIND).steps(40)
    last = savepoint(checkpoint, path)
    assert last > 0
    assert not life.assembled.loop.over
    life.end()
    shutil.rmtree(checkpoint)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(path, tmp_path / "elsewhere" / "saved")

    Life(made(name, there, **size), moved, lanes=3).steps().end()

    assert not checkpoint.exists()
    whole = run_sequential(made(name, there, **size), epoch_rows=7)["out"]
    assert_same_rows(whole, [*written(tmp_path / "out"), *written(there / "out")], ordered=False)


def test_it_holds_what_it_needs_and_no_lease_of_the_old_run(tmp_path):
    checkpoint, path = tmp_path / "ckpt", tmp_path / "saved"
    life = Life(made("fraud", tmp_path, count=400), checkpoint, rows=3).steps(12)
    # At another width lanes write all they have: what is older is not needed.
    life.assembled.loop.rescale(3, lambda: None)
    life.steps(20)

    last = savepoint(checkpoint, path)

    life.end()
    found = recover(LocalStore(path))
    assert last == found.commit.last
    assert () == found.plans
    assert () == found.unpublished
    assert () == found.garbage
    assert found.history[-1].number == found.acknowledged
    assert not (path / "lease").exists()
    chain = [link.path for links in found.chains.values() for link in links]
    assert sorted(chain) == [name for name in files_in(path) if name.startswith("state/")]
    assert len(chain) < sum(name.startswith("state/") for name in files_in(checkpoint))
    assert ["epochs", "program"] == sorted(
        {name.split("/")[0] for name in files_in(path)}
        - {"commits", "metadata", "published", "state"}
    )
    assert 1 == sum(name.startswith("epochs/") for name in files_in(path))


def test_a_source_remembers_where_it_was(tmp_path):
    """Offsets of files mean something only beside the list of files, which is in a plan."""
    given = tmp_path / "in"
    given.mkdir()

    def put(number):
        rows = [{"t": 1000 * number + i, "k": f"k{i % 3}"} for i in range(20)]
        pl.DataFrame(rows).write_parquet(given / f"{9 - number}.parquet")

    def program(out):
        found = ab.Program("files")
        read = found.read(ab.sources.Files(given, format="parquet"), name="in")
        counted = read.key_by("k").process(count, out={"k": pl.String, "n": pl.Int64})
        counted.write(ab.sinks.Files(out, format="parquet"), name="out")
        return found

    put(1)
    life = Life(program(tmp_path / "out"), tmp_path / "ckpt").steps()
    savepoint(tmp_path / "ckpt", tmp_path / "saved")
    life.end()
    put(2)

    Life(program(tmp_path / "there"), tmp_path / "saved").steps().end()

    rows = [*written(tmp_path / "out"), *written(tmp_path / "there")]
    assert 40 == len(rows)
    assert {"k0": 14, "k1": 14, "k2": 12} == {
        key: max(row["n"] for row in rows if row["k"] == key) for key in ("k0", "k1", "k2")
    }


def count(record, state):
    state.value = (state.value or 0) + 1
    yield {"k": record["k"], "n": state.value}


def test_a_savepoint_of_a_savepoint_is_as_good(tmp_path):
    name, first, second = "fraud", tmp_path / "first", tmp_path / "second"
    life = Life(made(name, tmp_path), tmp_path / "ckpt").steps(5)
    savepoint(tmp_path / "ckpt", first)
    life.end()
    life = Life(made(name, tmp_path), first).steps(4)
    savepoint(first, second)
    life.end()

    Life(made(name, tmp_path), second, lanes=1).steps().end()

    whole = run_sequential(made(name, tmp_path), epoch_rows=7)["out"]
    assert_same_rows(whole, written(tmp_path / "out"))
    # Runs go on being counted, so that none is taken for another.
    assert [3] == [int(each.name) for each in (second / "lease").iterdir()]


# What goes wrong


@pytest.mark.parametrize("there", ["directory", "file", "link"])
def test_a_path_where_something_is_is_refused(there, tmp_path):
    life = Life(made("fraud", tmp_path), tmp_path / "ckpt").steps(4)
    path = tmp_path / "saved"
    match there:
        case "directory":
            path.mkdir()
        case "file":
            path.write_text("mine")
        case "link":
            path.symlink_to(tmp_path / "nowhere")

    with pytest.raises(RunError) as caught:
        savepoint(tmp_path / "ckpt", path)

    life.end()
    assert f"savepoint: {path} is there already" == caught.value.what
    assert "choose a path where nothing is" == caught.value.so


def test_where_there_is_no_checkpoint_none_is_made(tmp_path):
    with pytest.raises(RunError, match="there is no checkpoint at"):
        savepoint(tmp_path / "ckpt", tmp_path / "saved")

    assert [] == list(tmp_path.iterdir())


def test_output_that_is_not_shown_yet_is_waited_for(tmp_path):
    life = Life(made("fraud", tmp_path), tmp_path / "ckpt").steps(6)
    life.end()
    (marker,) = (tmp_path / "ckpt" / "published").iterdir()
    marker.unlink()

    with pytest.raises(RunError, match="has not published epoch 0 yet"):
        savepoint(tmp_path / "ckpt", tmp_path / "saved")

    assert not (tmp_path / "saved").exists()


def test_a_damaged_file_is_not_copied(tmp_path):
    life = Life(made("fraud", tmp_path), tmp_path / "ckpt").steps(6)
    life.end()
    damaged = next((tmp_path / "ckpt" / "state").rglob("*.delta"))
    damaged.write_bytes(damaged.read_bytes()[:-3])

    with pytest.raises(CheckpointError, match="cannot be read"):
        savepoint(tmp_path / "ckpt", tmp_path / "saved")

    assert {"ckpt", "out"} == {each.name for each in tmp_path.iterdir()}


def test_a_full_disk_at_any_write_leaves_nothing_and_the_query_goes_on(tmp_path, monkeypatch):
    name, writes = "fraud", 0
    life = Life(made(name, tmp_path), tmp_path / "ckpt").steps(4)

    class FullStore(LocalStore):
        left = 0

        def _write(self, folder, name, data):
            if FullStore.left == 0:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
                raise OSError(errno.ENOSPC, "No space left on device")
            FullStore.left -= 1
            super()._write(folder, name, data)

    monkeypatch.setattr(room, "LocalStore", FullStore)
    while True:
        FullStore.left = writes
        try:
            savepoint(tmp_path / "ckpt", tmp_path / "deep" / "er" / "saved")
            break
        except RunError as error:
            assert "savepoint: cannot copy the checkpoint to" in error.what
            assert "No space left on device" in error.why
            assert error.so.startswith("make room")
        assert {"ckpt", "out"} == {each.name for each in tmp_path.iterdir()}
        writes += 1
    assert writes > 5
    life.steps().end()
    expected = run_sequential(made(name, tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("write", [0, 3, "rename"])
def test_a_process_that_is_killed_leaves_nothing_at_the_path(write, tmp_path):
    life = Life(made("fraud", tmp_path), tmp_path / "ckpt").steps(4)
    path = tmp_path / "saved"
    code = """
        import os, pathlib, sys
        from anabranch.runtime import savepoint as room
        from anabranch.state.store import LocalStore
        left = [sys.argv[3]]
        class Killed(LocalStore):
            def _write(self, folder, name, data):
                if left[0] == "0":
                    os._exit(9)
                left[0] = left[0] if left[0] == "rename" else str(int(left[0]) - 1)
                super()._write(folder, name, data)
        room.LocalStore = Killed
        pathlib.Path.rename = lambda *_: os._exit(9)
        room.savepoint(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), tmp_path / "ckpt", path, str(write)]

    assert 9 == subprocess.run(command, check=False).returncode

    assert not path.exists()
    last = savepoint(tmp_path / "ckpt", path)
    assert last == recover(LocalStore(path)).commit.last
    life.steps().end()
