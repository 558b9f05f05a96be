from __future__ import annotations

import fcntl
import subprocess
import sys

import pytest

from bench.harness.group import run_whole

# Ends as soon as the process that it starts has said that it is there.
_LEAVES = """
import os, subprocess, sys
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], **pipes)
sys.stdout.write(child.stdout.readline().decode())
sys.stdout.flush()
os._exit(3)
"""
_AFTER_ITS_PARENT = """
import sys
print("there", flush=True)
sys.stdin.read()  # until the process that holds the other end is gone
open("late", "w").close()
"""
_FOR_EVER = """
import fcntl, signal
file = open("held", "w")
fcntl.flock(file, fcntl.LOCK_EX)  # held for as long as this process lives
print("there", flush=True)
signal.pause()
"""


def _run(tmp_path, child, **given):
    command = [sys.executable, "-c", _LEAVES, child]
    return run_whole(command, log=tmp_path / "log", cwd=tmp_path, patience_s=60, **given)


@pytest.mark.slow
def test_what_a_command_leaves_behind_has_ended_when_it_returns(tmp_path):
    assert 3 == _run(tmp_path, _AFTER_ITS_PARENT)

    assert "there\n" == (tmp_path / "log").read_text()
    assert (tmp_path / "late").exists()


@pytest.mark.slow
def test_what_does_not_end_is_killed(tmp_path):
    assert 3 == _run(tmp_path, _FOR_EVER, grace_s=0.1)

    with (tmp_path / "held").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_killed(tmp_path):
    command = [sys.executable, "-c", "import signal; signal.pause()"]

    with pytest.raises(subprocess.TimeoutExpired):
        run_whole(command, log=tmp_path / "log", cwd=tmp_path, patience_s=0.2)
