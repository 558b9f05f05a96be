"""Progress as lines in a file: whole lines, and no trouble with the file ends a query."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch import config
from anabranch.api.starting import start
from anabranch.config import Outlets
from anabranch.epoch.triggers import available_now
from anabranch.observe.progress_file import ProgressFile, append
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from tests.runtime.test_inline import made

PATIENCE_S = 60


def ran(tmp_path, file, *, count=60):
    outlets = Outlets(progress=file)
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, outlets=outlets)
    program = made("campaign_views", tmp_path, count=count).freeze()
    query = start(program, settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)
    return query


def lines(file):
    text = file.read_text()
    assert "" == text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_every_commit_is_a_line_that_is_what_the_query_tells(tmp_path):
    query = ran(tmp_path, tmp_path / "progress.jsonl")

    assert len(query.recent_progress) > 1
    assert query.recent_progress == lines(tmp_path / "progress.jsonl")


def test_another_run_goes_on_at_the_end(tmp_path):
    file = tmp_path / "progress.jsonl"
    file.write_text('{"before": true}\n')

    query = ran(tmp_path, file)

    assert [{"before": True}, *query.recent_progress] == lines(file)


def test_a_line_that_a_crash_left_unfinished_is_ended_first(tmp_path):
    file = tmp_path / "progress.jsonl"
    file.write_text('{"before": tr')

    append(file, b"{}")
    append(file, b"[]")

    assert '{"before": tr\n{}\n[]\n' == file.read_text()


def test_a_file_that_is_moved_away_is_begun_again(tmp_path):
    file, moved = tmp_path / "progress.jsonl", tmp_path / "progress.1"

    append(file, b"1")
    file.rename(moved)
    append(file, b"2")

    assert ("1\n", "2\n") == (moved.read_text(), file.read_text())


def test_two_writers_do_not_mix_lines(tmp_path):
    file = tmp_path / "progress.jsonl"
    code = (
        "import sys; from pathlib import Path; from anabranch.observe.progress_file import append\n"
        "for _ in range(200): append(Path(sys.argv[1]), sys.argv[2].encode() * 5000)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(file), letter]) for letter in "ab"]
    assert [0, 0] == [writer.wait(PATIENCE_S) for writer in writers]

    assert sorted(["a" * 5000, "b" * 5000] * 200) == sorted(file.read_text().splitlines())


def test_a_place_that_cannot_be_written_to_is_told_once_and_the_query_goes_on(tmp_path, caplog):
    query = ran(tmp_path, tmp_path / "none" / "progress.jsonl")

    assert 60 == query.statistics()["rows"]
    assert query.statistics()["commits"] > 1
    (told,) = caplog.messages
    where = tmp_path / "none" / "progress.jsonl"
    assert (
        f"progress of 'campaign-views' cannot be written to {where}: No such file or directory\n"
        "  so    the query goes on, and tries again at each commit; mend that, or choose another "
        "file (ANABRANCH_PROGRESS, or --progress of anabranch run)"
    ) == told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_full_disk_is_told_once_and_the_query_goes_on(tmp_path, caplog):
    query = ran(tmp_path, Path("/dev/full"))

    assert 60 == query.statistics()["rows"]
    (told,) = caplog.messages
    assert "No space left on device" in told


FULL = """
import resource, sys
from pathlib import Path
from anabranch.observe.progress_file import append

file = Path(sys.argv[1])
append(file, b"first")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
try:
    append(file, b"second")
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
append(file, b"third")
"""


def test_what_was_written_of_a_line_before_the_disk_was_full_is_taken_back(tmp_path):
    """The file may have 10 bytes: "first" and its end are 6, so 4 of "second" fit."""
    file = tmp_path / "progress.jsonl"
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, check=True
    )

    assert "File too large" == run.stdout.strip()
    assert "first\nthird\n" == file.read_text()


def test_what_cannot_be_written_now_may_be_later(tmp_path):
    told = []
    progress = ProgressFile("q", tmp_path / "later" / "file", told.append)

    progress.note({"batchId": 0})
    progress.note({"batchId": 1})
    (tmp_path / "later").mkdir()
    progress.note({"batchId": 2})

    assert 1 == len(told)
    assert [{"batchId": 2}] == lines(tmp_path / "later" / "file")


def test_a_pipe_that_nobody_empties_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    told = []
    progress = ProgressFile("q", tmp_path / "pipe", told.append)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(200):
            progress.note({"text": "x" * 1000})
    finally:
        os.close(reader)

    assert 1 == len(told)


def test_a_name_that_no_encoding_has_is_written_with_marks_in_its_place(tmp_path):
    progress = ProgressFile("q", tmp_path / "file", pytest.fail)

    progress.note({"name": "\ud800é"})

    assert [{"name": "?é"}] == lines(tmp_path / "file")


def test_the_file_is_where_it_was_meant_when_the_query_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert tmp_path / "p.jsonl" == config.outlets({"ANABRANCH_PROGRESS": "p.jsonl"}).progress
    assert config.outlets({"ANABRANCH_PROGRESS": ""}).progress is None
