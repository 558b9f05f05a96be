"""Files whose columns change in mid-stream: scenario 14 of the reliability notes.

Columns are as declared, or the query stops before a row of the file has counted, unless `on_error` says
otherwise. It says the file and the column. Once the file is mended in its place, the next run goes on
with it.
"""

import datetime as dt

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import written

PATIENCE_S = 60
POINT = pl.Struct({"x": pl.Int32, "tags": pl.List(pl.String)})
SCHEMA = {"t": pl.Datetime("us"), "k": pl.String, "n": pl.Int32, "at": POINT}


def good(first, count=4):
    begin = dt.datetime(2026, 1, 1)
    rows = [
        {
            "t": begin + dt.timedelta(seconds=i),
            "k": f"k{i % 3}",
            "n": i,
            "at": {"x": i, "tags": ["a", None]},
        }
        for i in range(first, first + count)
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def counted(record, state):
    state.value = (state.value or 0) + record["n"]
    yield {"k": record["k"], "sum": state.value}


DRIFTS = {
    "new": (
        lambda df: df.with_columns(extra=1),
        "column 'extra' is Int32, expected no such column",
    ),
    "missing": (lambda df: df.drop("n"), "column 'n' is missing, expected Int32"),
    "renamed": (lambda df: df.rename({"n": "m"}), "column 'n' is missing, expected Int32"),
    "cased": (lambda df: df.rename({"n": "N"}), "column 'n' is missing, expected Int32"),
    "widened": (
        lambda df: df.with_columns(pl.col("n").cast(pl.Int64)),
        "column 'n' is Int64, expected Int32",
    ),
    "narrowed": (
        lambda df: df.with_columns(pl.col("n").cast(pl.Int16)),
        "column 'n' is Int16, expected Int32",
    ),
    "signless": (
        lambda df: df.with_columns(pl.col("n").cast(pl.UInt32)),
        "column 'n' is UInt32, expected Int32",
    ),
    "as text": (
        lambda df: df.with_columns(pl.col("n").cast(pl.String)),
        "column 'n' is String, expected Int32",
    ),
    "coarser time": (
        lambda df: df.with_columns(pl.col("t").cast(pl.Datetime("ms"))),
        "column 't' is Datetime(time_unit='ms', time_zone=None), expected Datetime(time_unit='us'",
    ),
    "zoned time": (
        lambda df: df.with_columns(pl.col("t").dt.replace_time_zone("UTC")),
        "column 't' is Datetime(time_unit='us', time_zone='UTC'), expected Datetime",
    ),
    "nested": (
        lambda df: df.with_columns(at=pl.struct(x=pl.col("n"), tags=pl.lit(["a"]), more=1)),
        "column 'at' is Struct",
    ),
    "nested type": (
        lambda df: df.with_columns(at=pl.struct(x=pl.col("n").cast(pl.Int64), tags=pl.lit(["a"]))),
        "column 'at' is Struct",
    ),
    "all null": (
        lambda df: df.with_columns(n=pl.lit(None)),
        "column 'n' is Null, expected Int32",
    ),
}


def program(home, *, on_error="fail", inferred=True):
    made = ab.Program("drift")
    schema = None if inferred else SCHEMA
    source = ab.sources.Files(home / "in", format="parquet", schema=schema)
    read = made.read(source, name="in", event_time="t", on_error=on_error)
    sums = read.key_by("k").process(counted, out={"k": pl.String, "sum": pl.Int64}, name="sum")
    sums.write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    if on_error == "dead_letter":
        letters = ab.sinks.Files(home / "letters", format="parquet")
        read.dead_letters.write(letters, name="letters")
    return made


def run(home, lanes=2, **options):
    settings = Settings(
        ab.available_now(3), home / "ckpt", lanes, slices=8, keep=None, in_flight=16
    )
    query = start(program(home, **options).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)


def give(home, name, frame):
    (home / "in").mkdir(exist_ok=True)
    frame.write_parquet(home / "in" / f".{name}")
    (home / "in" / f".{name}").rename(home / "in" / name)


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_file_whose_columns_changed_stops_the_query_before_a_row_of_it_counts(drift, tmp_path):
    change, why = DRIFTS[drift]
    give(tmp_path, "a.parquet", good(0, 5))
    run(tmp_path)
    give(tmp_path, "b.parquet", good(5))
    give(tmp_path, "c.parquet", change(good(9)))
    with pytest.raises(RunError) as caught:
        run(tmp_path)
    assert "c.parquet cannot be read: it does not have the columns of its source" in str(
        caught.value
    )
    assert why in str(caught.value)
    before = written(tmp_path / "out")
    assert len(before) <= 9
    with pytest.raises(RunError, match=r"c\.parquet"):
        run(tmp_path)
    assert len(written(tmp_path / "out")) <= 9

    give(tmp_path, "c.parquet", good(9))
    run(tmp_path, lanes=3)

    expected = run_sequential(program(tmp_path), log=tmp_path / "ckpt")["out"]
    assert 13 == len(expected)
    assert_same_rows(expected, written(tmp_path / "out"))
    epochs = [e.last for e in recover(LocalStore(tmp_path / "ckpt")).history if not e.is_opening]
    assert epochs == sorted(set(epochs))


def test_other_orders_and_encodings_of_the_same_columns_are_no_change(tmp_path):
    give(tmp_path, "a.parquet", good(0))
    run(tmp_path)
    give(tmp_path, "b.parquet", good(4).select("at", "n", "k", "t"))
    large = good(8).with_columns(pl.col("k").cast(pl.Categorical).cast(pl.String))
    give(tmp_path, "c.parquet", large)
    run(tmp_path)

    assert 12 == len(written(tmp_path / "out"))


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
def test_a_null_where_a_time_must_be_obeys_the_reads_policy(on_error, tmp_path):
    """Of all columns the event time alone may not be null; which row it was is told."""
    give(tmp_path, "a.parquet", good(0))
    run(tmp_path, on_error=on_error)
    holes = good(4).with_columns(
        t=pl.when(pl.col("n") == 6).then(None).otherwise("t"),
        k=pl.when(pl.col("n") == 5).then(None).otherwise("k"),
    )
    give(tmp_path, "b.parquet", holes)

    if on_error == "fail":
        with pytest.raises(RunError, match="null event time in column 't'"):
            run(tmp_path, on_error=on_error)
        give(tmp_path, "b.parquet", good(4))
        run(tmp_path, on_error=on_error)
        assert 8 == len(written(tmp_path / "out"))
    else:
        run(tmp_path, on_error=on_error)
        assert 7 == len(written(tmp_path / "out"))
    expected = run_sequential(program(tmp_path, on_error=on_error), log=tmp_path / "ckpt")
    assert_same_rows(expected["out"], written(tmp_path / "out"))
    if on_error == "dead_letter":
        (letter,) = written(tmp_path / "letters")
        assert "null event time" in letter["error"]
        assert '"n": 6' in letter["record"]
        assert (letter["source"], letter["partition"]) == ("in", "0")


def test_a_schema_that_is_declared_refuses_the_first_file_too(tmp_path):
    give(tmp_path, "a.parquet", good(0).drop("n"))

    with pytest.raises(RunError, match=r"a\.parquet cannot be read: it does not have the"):
        run(tmp_path, inferred=False)
    assert [] == written(tmp_path / "out")
