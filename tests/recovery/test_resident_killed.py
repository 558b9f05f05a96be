"""A continuous query whose driver is killed, and its JVM with it: another goes on."""

import os
import signal
import subprocess
import sys

import polars as pl
import pytest

from anabranch.state.layout import COMMITS, Commit, commit_path, number_of
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_rows, run_sequential
from tests.recovery import resident_driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def started(home):
    command = [sys.executable, "-m", "tests.recovery.resident_driver", str(home)]
    return subprocess.Popen(command, start_new_session=True)


def committed(home):
    """The last epoch that is committed; -1: none."""
    if not (home / "ckpt" / "commits").is_dir():
        return -1
    store = LocalStore(home / "ckpt")
    numbers = [number for path in store.list(COMMITS) if (number := number_of(path)) is not None]
    if not numbers:
        return -1
    path = commit_path(max(numbers))
    return Commit.from_bytes(path, store.read(path)).last


def test_nothing_is_lost_or_seen_twice_though_all_processes_are_killed(tmp_path):
    for _ in range(2):
        before, running = committed(tmp_path), started(tmp_path)
        while committed(tmp_path) <= before + 20:
            assert running.poll() is None, "it is killed while it has work left"
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()

    assert 0 == started(tmp_path).wait()

    program = resident_driver.program(tmp_path)
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    files = sorted((tmp_path / "out").glob("part-*"))
    assert_same_rows(expected, pl.concat(map(pl.read_parquet, files)).rows(named=True))
    assert resident_driver.ROWS == sum(row["rows"] for row in expected)
