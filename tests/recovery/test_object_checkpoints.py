"""Runs whose checkpoint is in an object store, here a local server that speaks S3's protocol."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.errors import CheckpointError, RunError
from anabranch.objects import Bucket, ObjectUrl
from anabranch.runtime.savepoint import savepoint
from anabranch.simulate.inline import UNKIND
from anabranch.state.protocol import Fenced
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.state.stores import place_of, store_at
from anabranch.testing import assert_same_rows, run_sequential
from tests.recovery.test_savepoint import Life
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, run, written

ROOT = Path(__file__).resolve().parents[2]


def downloaded(place, directory):
    """A copy in a directory: the oracle reads checkpoints with its own eyes, and only there."""
    source, target = store_at(place), LocalStore(directory)
    for path in source.list(""):
        target.create(path, source.read(path))
    return directory


@pytest.fixture
def place(bucket):
    return place_of(f"{bucket}/queries/one")


@pytest.mark.parametrize("stop_after", [2, 8])
def test_a_run_that_crashed_goes_on_and_gives_what_it_means(stop_after, place, tmp_path):
    run(made("fraud", tmp_path), place, mischief=UNKIND, in_flight=2, stop_after=stop_after)
    run(made("fraud", tmp_path), place, seed=1, mischief=UNKIND, lanes=3)

    log = downloaded(place, tmp_path / "log")
    expected = run_sequential(made("fraud", tmp_path), log=log)["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))
    assert 2 == recover(store_at(place)).lease


def test_of_two_masters_the_first_is_fenced_and_does_no_harm(place, tmp_path):
    first = Life(made("fraud", tmp_path, count=200), place).steps(9)
    second = Life(made("fraud", tmp_path, count=200), place).steps(6)

    with pytest.raises(Fenced, match="another run owns its checkpoint"):
        first.steps()
    second.steps().end()
    first.end()

    log = downloaded(place, tmp_path / "log")
    expected = run_sequential(made("fraud", tmp_path, count=200), log=log)["out"]
    assert_same_rows(expected, written(tmp_path / "out"))
    found = recover(store_at(place))
    assert {1, 2} == {commit.run for commit in found.history}
    assert 2 == found.history[-1].run


def test_the_size_of_the_state_is_told_after_a_restart(place, tmp_path):
    Life(made("fraud", tmp_path, count=200), place).steps(9).end()
    told = []
    second = Life(made("fraud", tmp_path, count=200), place)
    second.assembled.loop.on_progress = told.append
    second.steps().end()

    sizes = store_at(place).sizes("state/")
    chains = recover(store_at(place)).chains
    (operator,) = told[-1]["stateOperators"]
    links = chains[operator["operatorName"]]
    assert sum(sizes[link.path] for link in links) == operator["customMetrics"]["stateBytes"]
    last = [link.path for link in links if link.number == links[-1].number]
    assert sum(sizes[path] for path in last) == operator["customMetrics"]["writtenBytes"]


def test_a_savepoint_goes_there_and_a_run_goes_on_from_it(place, bucket, tmp_path):
    saved = place_of(f"{bucket}/saved")
    life = Life(made("fraud", tmp_path, count=200), place).steps(9)
    last = savepoint(place, saved)
    life.end()

    Life(made("fraud", tmp_path / "there", count=200), saved, lanes=3).steps().end()

    assert last > 0
    whole = run_sequential(made("fraud", tmp_path, count=200), epoch_rows=7)["out"]
    both = [*written(tmp_path / "out"), *written(tmp_path / "there" / "out")]
    assert_same_rows(whole, both, ordered=False)


def test_a_savepoint_goes_from_there_to_a_directory_and_back(place, bucket, tmp_path):
    Life(made("fraud", tmp_path, count=200), place).steps(9).end()

    last = savepoint(place, tmp_path / "saved")
    savepoint(tmp_path / "saved", place_of(f"{bucket}/again"))

    files = LocalStore(tmp_path / "saved").list("")
    assert files == store_at(place_of(f"{bucket}/again")).list("")
    assert last == recover(store_at(place_of(f"{bucket}/again"))).commit.last


def test_a_savepoint_is_not_taken_where_something_is(place, bucket, tmp_path):
    Life(made("fraud", tmp_path, count=200), place).steps(9).end()
    saved = place_of(f"{bucket}/saved")
    savepoint(place, saved)
    before = store_at(saved).sizes("")

    with pytest.raises(RunError, match=r"^savepoint: s3://bucket-\d+/saved is there already"):
        savepoint(place, saved)

    assert before == store_at(saved).sizes("")


def test_a_savepoint_that_fails_leaves_nothing_and_one_that_was_killed_is_refused(
    place, bucket, tmp_path, monkeypatch
):
    from anabranch.runtime import savepoint as room

    Life(made("fraud", tmp_path, count=200), place).steps(9).end()
    saved, real = place_of(f"{bucket}/saved"), room._NewObjects.create

    def failing(self, path, data):
        if path.startswith("commits/"):
            raise RunError("no more", why="a test says so")
        real(self, path, data)

    with monkeypatch.context() as patched:
        patched.setattr(room._NewObjects, "create", failing)
        with pytest.raises(RunError, match=r"cannot copy the checkpoint to s3://bucket-\d+/saved"):
            savepoint(place, saved)
        assert [] == store_at(saved).list("")
        patched.setattr(room._NewObjects, "delete", lambda self, path: None)
        with pytest.raises(RunError):
            savepoint(place, saved)

    assert store_at(saved).list("")
    with pytest.raises(CheckpointError, match="if it is half of a savepoint, remove it"):
        Life(made("fraud", tmp_path / "there"), saved)


def test_the_command_line_looks_into_it(place, tmp_path, capsys):
    run(made("fraud", tmp_path), place)

    for command in (["state", "--json"], ["why", "--json"], ["top", "--once", "--json"]):
        assert 0 == main([command[0], str(place), *command[1:]])
        assert json.loads(capsys.readouterr().out)["ok"]
    assert 0 == main(["state", str(place), "--json"])
    assert json.loads(capsys.readouterr().out)["operators"][0]["bytes"] > 0
    assert 0 == main(["state", str(place), "--verify"])
    assert capsys.readouterr().out.startswith("whole: ")
    assert 0 == main(["state", str(place), "--export", str(tmp_path / "state.parquet")])
    assert pl.read_parquet(tmp_path / "state.parquet").height


def test_the_command_line_says_that_there_is_none(bucket, capsys):
    assert 1 == main(["state", f"{bucket}/nothing"])
    assert f"{bucket}/nothing is no checkpoint" in capsys.readouterr().err


def test_the_command_line_refuses_what_cannot_be(capsys):
    with pytest.raises(SystemExit):
        main(["state", "s3://key:canary@bucket/one"])

    err = capsys.readouterr().err
    assert "has credentials in it; put them into the environment" in err
    assert "canary" not in err


PROGRAM = """
import sys

import anabranch as ab
from tests.recovery.test_object_checkpoints import of_files

if __name__ == "__main__":
    bucket = sys.argv[1]

    def start():
        # Eighty epochs, sixty-four at a time: some are left behind the first commit.
        return of_files(bucket).start(
            master="local[2]",
            checkpoint=f"{bucket}/ckpt",
            trigger=ab.available_now(max_rows=25),
            parallelism=2,
        )

    query = start()
    while query.last_progress is None and query.is_active:
        query.await_termination(0.02)
    query.savepoint(f"{bucket}/saved")
    query.stop(drain=False)
    start().await_termination()
"""


def of_files(bucket):
    """A program that reads from the store and writes to it."""
    program, _, schema = PROGRAMS["fraud"]
    source = ab.sources.Files(f"{bucket}/in", format="parquet", schema=schema)
    return program(source, ab.sinks.Files(f"{bucket}/out", format="parquet"))


@pytest.mark.spark
def test_a_run_on_spark_that_was_cut_off_goes_on(bucket, s3_environment, tmp_path):
    """Tasks are processes of their own, with the credentials of their environment.

    What is read, what is written and the checkpoint are in the store.
    """
    _, rows, schema = PROGRAMS["fraud"]
    pl.DataFrame(rows(2000), schema=schema).write_parquet(tmp_path / "in.parquet")
    whole = Bucket(ObjectUrl.of(bucket), "test")
    whole.create("in/a.parquet", (tmp_path / "in.parquet").read_bytes())
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {**s3_environment, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, str(file), bucket]

    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert 0 == ended.returncode, ended.stderr
    place = place_of(f"{bucket}/ckpt")
    found = recover(store_at(place))
    assert {1, 2} == {each.run for each in found.history if not each.is_opening}
    log = downloaded(place, tmp_path / "log")
    expected = run_sequential(of_files(bucket), log=log)["out"]
    for name in whole.sizes("out/"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(whole.read(name))
    assert_same_rows(expected, written(tmp_path / "out"))
    saved = recover(store_at(place_of(f"{bucket}/saved")))
    assert 0 <= saved.commit.last < found.commit.last
