"""Programs over CSV and JSON Lines, run and judged by the oracle."""

import datetime as dt
import json

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import assert_same_as_sequential, assert_same_rows, run_sequential

PATIENCE_S = 60
SCHEMA = {"t": pl.Datetime("us"), "k": pl.String, "n": pl.Int32}


def give(home, name, rows):
    """Write a file under a hidden name, then rename it."""
    (home / "in").mkdir(exist_ok=True)
    if name.endswith("jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        header = dict.fromkeys(key for row in rows for key in row)
        lines = [",".join(str(row.get(key, "")) for key in header) for row in rows]
        text = "\n".join([",".join(header), *lines])
    (home / "in" / f".{name}").write_text(text)
    (home / "in" / f".{name}").rename(home / "in" / name)


def good(first, count=4):
    begin = dt.datetime(2026, 1, 1)
    return [
        {"t": (begin + dt.timedelta(seconds=i)).isoformat(), "k": f"k{i % 3}", "n": i}
        for i in range(first, first + count)
    ]


def counted(record, state):
    state.value = (state.value or 0) + record["n"]
    yield {"k": record["k"], "sum": state.value}


def program(home, suffix, **options):
    made = ab.Program("text")
    source = ab.sources.Files(home / "in", format=suffix, schema=SCHEMA, **options)
    read = made.read(source, name="in", event_time="t")
    sums = read.key_by("k").process(counted, out={"k": pl.String, "sum": pl.Int64}, name="sum")
    sums.write(ab.sinks.Files(home / "out", format=suffix), name="out")
    return made


def written(home, suffix):
    """What is in the files that were written, read as the next program would."""
    if not (home / "out").exists():
        return []
    source = ab.sources.Files(home / "out", format=suffix, schema={"k": pl.String, "sum": pl.Int64})
    splits = source.plan({}, source.latest())
    return [row for split in splits for row in source.frame(split).rows(named=True)]


def run(home, suffix, lanes=2, **options):
    settings = Settings(
        ab.available_now(3), home / "ckpt", lanes, slices=8, keep=None, in_flight=16
    )
    query = start(program(home, suffix, **options).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)


@pytest.fixture(params=["csv", "jsonl"])
def suffix(request):
    return request.param


DRIFTS = {
    "new": (lambda row: {**row, "extra": 1}, "column 'extra' is "),
    "renamed": (lambda row: {"t": row["t"], "k": row["k"], "m": 1}, "column '"),
    "as text": (lambda row: {**row, "n": "x"}, "column 'n' is Int32, got "),
    "widened": (lambda row: {**row, "n": 1 << 40}, "column 'n' is Int32, got "),
    "zoned time": (lambda row: {**row, "t": row["t"] + "Z"}, "column 't' is Datetime("),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_file_whose_columns_changed_stops_the_query_until_it_is_mended(drift, suffix, tmp_path):
    change, why = DRIFTS[drift]
    give(tmp_path, f"a.{suffix}", good(0, 5))
    run(tmp_path, suffix)
    give(tmp_path, f"b.{suffix}", good(5))
    give(tmp_path, f"c.{suffix}", [change(row) for row in good(9)])
    for _ in range(2):
        with pytest.raises(RunError) as caught:
            run(tmp_path, suffix)
        assert f"c.{suffix} cannot be read: " in str(caught.value)
        assert why in str(caught.value)
        assert len(written(tmp_path, suffix)) <= 9

    give(tmp_path, f"c.{suffix}", good(9))
    run(tmp_path, suffix, lanes=3)

    expected = run_sequential(program(tmp_path, suffix), log=tmp_path / "ckpt")["out"]
    assert 13 == len(expected)
    assert_same_rows(expected, written(tmp_path, suffix))


def test_a_file_that_grew_between_runs_stops_the_next(suffix, tmp_path):
    give(tmp_path, f"a.{suffix}", good(0))
    run(tmp_path, suffix)
    give(tmp_path, f"a.{suffix}", good(0, 5))
    give(tmp_path, f"b.{suffix}", good(5))

    with pytest.raises(RunError, match=rf"a\.{suffix} has changed since it was first seen"):
        run(tmp_path, suffix)


def test_runs_through_crashes_and_at_any_width_are_the_sequential_one(suffix, tmp_path):
    give(tmp_path, f"a.{suffix}", good(0, 7))
    give(tmp_path, f"b.{suffix}", good(7, 5))

    assert_same_as_sequential(
        program(tmp_path, suffix, bounded=True), crash_at=[1], trigger=ab.available_now(3)
    )
