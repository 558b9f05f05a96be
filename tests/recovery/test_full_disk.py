"""Disks that are full, out of files or read-only: scenario 16 of the reliability notes.

Wherever it happens, in the checkpoint, between tasks or in the sink: the query says which disk, nothing
that counts is damaged, and once there is room the next run goes on to the same output.
"""

import pytest

from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.runtime.exchange import exchange_root
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_rows, run_sequential
from tests.recovery.full_disk import Disk
from tests.runtime.test_inline import made, written

PATIENCE_S = 60
POINTS = 8
WORDS = {
    "bytes": "No space left on device",
    "files": "No space left on device",
    "read-only": "Read-only file system",
}


def place(name, home):
    match name:
        case "checkpoint":
            return lambda path: path.startswith(str(home / "ckpt"))
        case "exchange":
            return lambda path: "anabranch-exchange-" in path
        case "sink":
            return lambda path: path.startswith(str(home / "out"))
    raise ValueError(name)


def run(home, lanes=2):
    settings = Settings(available_now(7), home / "ckpt", lanes, slices=8, keep=2, in_flight=16)
    query = start(made("fraud", home).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)


def use(where, mode, home, monkeypatch, room=None):
    """Run on such a disk; what was used of it, and the error."""
    with monkeypatch.context() as patched:
        disk = Disk(place(where, home), mode, room, patched)
        try:
            run(home)
        except Exception as error:
            return disk, error
    return disk, None


@pytest.mark.slow
@pytest.mark.parametrize("mode", WORDS)
@pytest.mark.parametrize("where", ["checkpoint", "exchange", "sink"])
def test_a_disk_without_room_ends_the_run_and_the_next_goes_on(where, mode, tmp_path, monkeypatch):
    whole, error = use(where, mode, tmp_path / "whole", monkeypatch)
    assert error is None
    assert whole.used > POINTS, f"{whole.used} of {where} are too few to be cut at"
    failed = 0
    for point in range(POINTS):
        home, room = tmp_path / str(point), whole.used * point // POINTS
        disk, error = use(where, mode, home, monkeypatch, room)
        if error is None:
            assert not disk.refused, "what could not be done was not told"
        else:
            failed += 1
            assert disk.refused
            check_told(error, where, WORDS[mode])
        if (home / "ckpt" / "metadata").exists():
            recover(LocalStore(home / "ckpt"))  # nothing that was committed is damaged
        run(home, lanes=3)
        check(home)
    assert failed >= POINTS - 2


def check_told(error, where, words):
    assert isinstance(error, RunError), repr(error)
    told = str(error)
    assert words in told
    disk = {"checkpoint": "/ckpt", "exchange": str(exchange_root()), "sink": "/out"}[where]
    assert disk in told, "it says which disk"
    if words.startswith("No space"):
        assert "make room" in told, "it says what helps"


def check(home):
    expected = run_sequential(made("fraud", home), epoch_rows=7)["out"]
    assert_same_rows(expected, written(home / "out"))
    left = [path.name for path in (home / "ckpt").rglob(".tmp-*")]
    staged = [path.name for path in (home / "out" / "_staging").glob("*")]
    assert ([], []) == (left, staged)
