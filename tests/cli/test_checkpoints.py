"""`anabranch state`, `why` and `top`: what a checkpoint tells; `bench`: what is measured."""

import json

import polars as pl
import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.cli.checkpoints import seen
from anabranch.cli.state import told
from anabranch.cli.top import table
from anabranch.testing import MockClock
from tests.runtime.test_inline import made, run


@pytest.fixture
def checkpoint(tmp_path):
    run(made("campaign_views", tmp_path, partitions=2), tmp_path / "ckpt")
    return tmp_path / "ckpt"


def test_state_says_how_far_a_query_is_and_what_it_keeps(checkpoint, capsys):
    assert 0 == main(["state", str(checkpoint), "--json"])

    found = json.loads(capsys.readouterr().out)
    (source,) = found["sources"]
    assert (True, 1, 8, 2) == (found["ok"], found["run"], found["slices"], found["lanes"])
    assert (5, 0, 0) == (found["epochs"], found["planned"], found["unpublished"])
    assert ("events", 2, 60) == (source["name"], source["partitions"], source["rows"])
    assert all(each["bytes"] > 0 and each["files"] > 0 for each in found["operators"])
    assert found["operators"]


def test_state_tells_it_in_words(checkpoint, capsys):
    assert 0 == main(["state", str(checkpoint)])

    out = capsys.readouterr().out
    found = seen(checkpoint)
    assert out.startswith(told(found) + "\n")
    assert out.startswith(f"{found.program}: {found.epochs} epoch")
    assert "rows of 2 partitions, watermark " in out
    assert "8 slices in 2 lanes" in out


def test_a_checkpoint_that_was_only_begun_is_one(tmp_path, capsys):
    run(made("campaign_views", tmp_path), tmp_path / "ckpt", stop_after=0)

    assert 0 == main(["state", str(tmp_path / "ckpt")])
    assert "0 epochs committed, 0 planned" in capsys.readouterr().out
    assert 0 == main(["top", str(tmp_path / "ckpt"), "--once"])


def test_why_says_what_is_waited_for(checkpoint, capsys):
    assert 0 == main(["why", str(checkpoint), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert 0 == main(["why", str(checkpoint)])

    assert facts["ok"]
    assert seen(checkpoint).program in facts["why"]
    assert facts["why"].splitlines()[0] in capsys.readouterr().out
    (source,) = facts["sources"]
    assert ("events", [], [0, 1]) == (source["name"], source["held_by"], source["finished"])
    assert (seen(checkpoint).epochs - 1, []) == (facts["committed"], facts["planned"])


def test_top_has_a_line_for_each_query(checkpoint, capsys):
    assert 0 == main(["top", str(checkpoint), str(checkpoint), "--once"])
    out = capsys.readouterr().out
    assert 0 == main(["top", str(checkpoint), "--json"])

    (query,) = json.loads(capsys.readouterr().out)["queries"]
    assert 2 == sum(line.strip().startswith(query["program"]) for line in out.splitlines())


def test_top_shows_the_least_watermark_and_the_age_of_the_last_commit(checkpoint):
    found = seen(checkpoint)

    cells = [next(iter(column.cells)) for column in table([found], MockClock()).columns]

    assert found.program == cells[0]
    assert cells[4].endswith(" ago") or cells[4] == "-"


@pytest.mark.parametrize("command", ["state", "why", "top"])
def test_what_is_no_checkpoint_is_left_as_it_is(command, tmp_path, capsys):
    assert 1 == main([command, str(tmp_path / "none"), "--json"])

    error = json.loads(capsys.readouterr().out)["error"]
    assert "CheckpointError" == error["type"]
    assert "is no checkpoint" in error["message"]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", ["state", "why", "top"])
def test_looking_changes_nothing(command, checkpoint):
    def content():
        return {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}

    before = content()
    assert 0 == main([command, str(checkpoint), "--json"])
    assert before == content()


def test_a_damaged_checkpoint_is_told(checkpoint, capsys):
    newest = max((checkpoint / "commits").iterdir())
    newest.chmod(0o600)
    newest.write_bytes(newest.read_bytes()[:-3])

    assert 1 == main(["state", str(checkpoint)])
    assert "CheckpointError" in capsys.readouterr().err


def test_top_takes_a_sensible_time_between_looks(tmp_path):
    with pytest.raises(SystemExit) as left:
        main(["top", str(tmp_path), "--every", "0"])
    assert 2 == left.value.code


def test_bench_says_which_there_are(capsys):
    assert 0 == main(["bench", "--json"])

    assert "ysb" in json.loads(capsys.readouterr().out)["benchmarks"]


def test_a_benchmark_that_is_none_is_a_failure(capsys):
    assert 1 == main(["bench", "nothing_like_it", "--json"])

    assert "nothing_like_it" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_rows_of_a_bounded_run_are_counted(tmp_path):
    program = ab.Program("counted")
    rows = [{"n": n, "t": n} for n in range(25)]
    program.read(ab.sources.Records(rows), event_time="t").filter(pl.col("n") > 2).write(
        ab.sinks.Files(tmp_path / "out", format="parquet")
    )
    run(program, tmp_path / "ckpt")

    found = seen(tmp_path / "ckpt")
    assert ([25], (), 4) == ([each.rows for each in found.sources], found.operators, found.epochs)
