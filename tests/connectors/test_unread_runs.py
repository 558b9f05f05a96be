"""Programs over files of which rows, or which themselves, cannot be read: `on_error` of `read` holds."""

import json
from datetime import datetime, timedelta

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import assert_same_as_sequential, assert_same_rows, run_sequential
from tests.runtime.test_inline import written

PATIENCE_S = 60
SCHEMA = {"t": pl.Datetime("us"), "k": pl.String, "n": pl.Int32}
BEGIN = datetime(2026, 1, 1)
WRITERS = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "csv": lambda frame, path: frame.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S"),
    "jsonl": pl.DataFrame.write_ndjson,
}


def good(first, count=4):
    rows = [{"t": BEGIN + timedelta(seconds=i), "k": f"k{i % 3}", "n": i} for i in range(first, 99)]
    return pl.DataFrame(rows[:count], schema=SCHEMA)


def give(home, name, frame):
    """A file that appears whole."""
    (home / "in").mkdir(exist_ok=True)
    WRITERS[name.rpartition(".")[2]](frame, home / "in" / f".{name}")
    (home / "in" / f".{name}").rename(home / "in" / name)


def torn(home, suffix):
    """Files of which some cannot be read, in all or in rows; how many such rows there are."""
    give(home, f"a.{suffix}", good(0, 5))
    give(home, f"b.{suffix}", good(5).rename({"n": "m"}))
    give(home, f"c.{suffix}", good(9).with_columns(pl.col("n").cast(pl.String) + "x"))
    give(home, f"d.{suffix}", good(13))
    # It is cut off before it appears: a query may be looking.
    hidden = home / "in" / f".e.{suffix}"
    WRITERS[suffix](good(17), hidden)
    hidden.write_bytes(hidden.read_bytes()[:-12])
    hidden.rename(home / "in" / f"e.{suffix}")
    give(home, f"f.{suffix}", good(21))
    return {"parquet": 3, "arrow": 3, "csv": 1 + 4 + 1, "jsonl": 4 + 4 + 1}[suffix]


def program(home, suffix, on_error="fail", event_time="t", **options):
    made = ab.Program("torn")
    source = ab.sources.Files(home / "in", format=suffix, schema=SCHEMA, **options)
    read = made.read(source, name="in", event_time=event_time, on_error=on_error)
    if on_error == "dead_letter":
        letters = ab.sinks.Files(home / "letters", format="parquet")
        read.dead_letters.write(letters, name="letters")
    # One column alone is looked at: what cannot be read may be in another.
    counts = read.key_by("k").process(counted, out={"k": pl.String, "n": pl.Int64}, name="count")
    counts.write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    return made


def counted(record, state):
    state.value = (state.value or 0) + 1
    yield {"k": record["k"], "n": state.value}


def run(home, *which, **options):
    settings = Settings(ab.available_now(3), home / "ckpt", 2, slices=8, keep=None, in_flight=16)
    query = start(program(home, *which, **options).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)
    return query


@pytest.fixture(params=list(WRITERS))
def suffix(request):
    return request.param


@pytest.mark.parametrize("event_time", [None, "t"])
def test_what_cannot_be_read_is_left_out_and_counted(suffix, event_time, tmp_path):
    unread = torn(tmp_path, suffix)

    query = run(tmp_path, suffix, "skip", event_time)

    expected = run_sequential(program(tmp_path, suffix, "skip", event_time), log=tmp_path / "ckpt")
    assert (16 if suffix in ("csv", "jsonl") else 13) == len(expected["out"])
    assert_same_rows(expected["out"], written(tmp_path / "out"))
    assert unread == sum(each["anabranch"]["failedRows"] for each in query.recent_progress)


@pytest.mark.parametrize("event_time", [None, "t"])
def test_what_cannot_be_read_is_told_in_dead_letters(suffix, event_time, tmp_path):
    unread = torn(tmp_path, suffix)
    options = ("dead_letter", event_time)

    run(tmp_path, suffix, *options)

    expected = run_sequential(program(tmp_path, suffix, *options), log=tmp_path / "ckpt")
    letters = written(tmp_path / "letters")
    assert_same_rows(expected["out"], written(tmp_path / "out"))
    assert_same_rows(expected["letters"], letters)
    assert unread == len(letters)
    assert {("in", "in", "0", "unread")} == {
        (each["operator"], each["source"], each["partition"], each["reason"]) for each in letters
    }
    records = [json.loads(each["record"]) for each in letters]
    assert [str(tmp_path / "in" / f"{name}.{suffix}") for name in "bce"] == list(
        dict.fromkeys(record["file"] for record in records)
    )
    assert "column '" in letters[0]["error"]
    if suffix in ("csv", "jsonl"):
        rows = [each for each in records if each["file"].endswith(f"/c.{suffix}")]
        assert [n + (suffix == "csv") for n in range(1, 5)] == [each["line"] for each in rows]
        assert [True] * 4 == [f"{n}x" in each["text"] for n, each in enumerate(rows, 9)]


def test_without_a_word_the_first_of_them_ends_the_run_until_it_is_mended(suffix, tmp_path):
    torn(tmp_path, suffix)
    for name, first in {"b": 5, "c": 9, "e": 17}.items():
        with pytest.raises(RunError) as caught:
            run(tmp_path, suffix)
        assert f"{name}.{suffix} cannot be read: " in str(caught.value)
        assert 'or pass on_error="skip" or "dead_letter" to read(...)' in str(caught.value)
        give(tmp_path, f"{name}.{suffix}", good(first))

    run(tmp_path, suffix)

    expected = run_sequential(program(tmp_path, suffix), log=tmp_path / "ckpt")["out"]
    assert 25 == len(expected)
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_runs_through_crashes_and_at_any_width_are_the_sequential_one(suffix, tmp_path):
    torn(tmp_path, suffix)

    assert_same_as_sequential(
        program(tmp_path, suffix, "dead_letter", bounded=True),
        crash_at=[1],
        trigger=ab.available_now(3),
    )
