"""Spark as a neighbour: its DataFrames as sources and tables, and what is made, given as them."""

import gc
import json
import pickle
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import CheckpointError, ProgramError, RunError
from anabranch.spark import spark_sink
from anabranch.spark.spark_table import collected
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import run as run_inline
from tests.runtime.test_inline import written
from tests.spark.test_spine import ended, promptly

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOON = datetime(2024, 6, 1, 12, 0, 0, 123456)


@pytest.fixture(scope="session")
def session(spark_context):
    from pyspark.sql import SparkSession

    return SparkSession(spark_context)


@pytest.fixture
def events(session):
    """Clicks in three partitions, in order of time in each."""
    return session.range(0, 90, 1, 3).selectExpr(
        "id", "id * 100 as t", "concat('u', id % 5) as user", "cast(id % 7 as double) as price"
    )


def windows(source, sink):
    program = ab.Program("windows")
    (
        program.read(source, event_time="t", lateness="1 s")
        .filter(pl.col("id") % 3 != 0)
        .window(ab.tumbling("2 s"), by="user")
        .agg(clicks=ab.count(), price=ab.sum("price"))
        .write(sink, name="out")
    )
    return program


def rows_of(source):
    """All rows, by partition."""
    ends = source.latest()
    return [
        [
            row
            for split in source.plan({p: 0}, {p: ends[p]})
            for batch in source.read(split)
            for row in pl.DataFrame(batch).rows(named=True)
        ]
        for p in source.partitions()
    ]


# The source


def test_partitions_of_a_data_frame_are_partitions_of_the_source(session):
    source = ab.sources.Spark(session.range(0, 10, 1, 3))

    assert [0, 1, 2] == list(source.partitions())
    assert {0: 3, 1: 3, 2: 4} == source.latest()
    assert [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]] == [[r["id"] for r in p] for p in rows_of(source)]


def test_nothing_is_run_to_explain_a_program(session):
    df = session.range(3).selectExpr("id", "raise_error('it was run') as t")
    program = ab.Program("p")
    program.read(ab.sources.Spark(df)).write(ab.sinks.Memory("out"))

    assert "2 operators" in program.explain()
    with pytest.raises(RunError, match="the rows of the DataFrame could not be had") as error:
        run_sequential(program)
    assert "it was run" in str(error.value)


TYPES = {
    "boolean": ("true", pl.Boolean(), True),
    "tinyint": ("1Y", pl.Int8(), 1),
    "smallint": ("1S", pl.Int16(), 1),
    "int": ("1", pl.Int32(), 1),
    "bigint": ("1L", pl.Int64(), 1),
    "float": ("float(1.5)", pl.Float32(), 1.5),
    "double": ("1.5D", pl.Float64(), 1.5),
    "string": ("'é'", pl.String(), "é"),
    "char": ("cast('a' as char(3))", pl.String(), "a"),
    "binary": ("x'00ff'", pl.Binary(), b"\x00\xff"),
    "date": ("date'2024-06-01'", pl.Date(), date(2024, 6, 1)),
    "decimal": ("12.50BD", pl.Decimal(4, 2), Decimal("12.50")),
    "timestamp": (
        f"timestamp'{NOON} UTC'",
        pl.Datetime("us", "UTC"),
        NOON.replace(tzinfo=UTC),
    ),
    "timestamp_ntz": (f"timestamp_ntz'{NOON}'", pl.Datetime("us"), NOON),
    "far": ("timestamp_ntz'0001-01-01 00:00:00'", pl.Datetime("us"), datetime(1, 1, 1)),
    "interval": ("interval '1 2' day to hour", pl.Duration("us"), timedelta(days=1, hours=2)),
    "null": ("null", pl.Null(), None),
    "array": ("array(1, null)", pl.List(pl.Int32()), [1, None]),
    "map": (
        "map('a', 1)",
        pl.List(pl.Struct({"key": pl.String(), "value": pl.Int32()})),
        [{"key": "a", "value": 1}],
    ),
    "struct": (
        f"named_struct('x', array(timestamp'{NOON} UTC'), 'm', map(1, null))",
        pl.Struct(
            {
                "x": pl.List(pl.Datetime("us", "UTC")),
                "m": pl.List(pl.Struct({"key": pl.Int32(), "value": pl.Null()})),
            }
        ),
        {"x": [NOON.replace(tzinfo=UTC)], "m": [{"key": 1, "value": None}]},
    ),
}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_every_type_that_has_a_polars_type_is_read_as_it(session, zone):
    texts = [f"{text} as `{name}`" for name, (text, _, _) in TYPES.items()]
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = session.sql(f"select {', '.join(texts)}")
        source = ab.sources.Spark(df)
        rows = rows_of(source)
    finally:
        session.conf.set("spark.sql.session.timeZone", before)

    assert {name: dtype for name, (_, dtype, _) in TYPES.items()} == dict(source.schema)
    assert [[{name: value for name, (_, _, value) in TYPES.items()}]] == rows


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("interval '1' month as a", "column 'a' is INTERVAL MONTH"),
        ("parse_json('1') as a", "column 'a' is VARIANT"),
        ("array(named_struct('b', interval '1' year)) as a", r"column 'a\[\].b' is INTERVAL YEAR"),
        ("1 as a, 2 as a", "two columns are called 'a'"),
    ],
)
def test_a_type_that_has_none_is_refused_where_it_is_written(session, text, told):
    with pytest.raises(ProgramError, match=told) as error:
        ab.sources.Spark(session.sql(f"select {text}"))

    assert __file__ == error.value.file
    assert error.value.so


def test_a_stream_is_refused_and_said_what_to_use(session):
    stream = session.readStream.format("rate").load()

    with pytest.raises(ProgramError, match="is a stream of Spark's") as error:
        ab.sources.Spark(stream)
    assert "Files(...)" in error.value.so
    with pytest.raises(ProgramError, match="is a stream of Spark's"):
        ab.Program("p").read(ab.sources.Records([{"timestamp": 1}])).lookup(stream, on="timestamp")


@pytest.mark.parametrize("given", [[1], pl.DataFrame({"n": [1]}), "table", None])
def test_what_is_no_data_frame_is_refused(given):
    with pytest.raises(ProgramError, match="not a Spark DataFrame"):
        ab.sources.Spark(given)


@pytest.fixture(scope="module")
def other_process():
    """What a process says that stops its Spark, starts another, and is killed."""
    program = [sys.executable, str(Path(__file__).with_name("neighbour_work.py"))]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert -signal.SIGKILL == run.returncode, run.stderr
    return json.loads(run.stdout)


def test_a_data_frame_of_a_spark_that_is_gone_is_refused(other_process):
    assert "this Spark session is stopped" in other_process["made of a stopped one"]
    for when in ("read after the stop", "read on another"):
        assert "stopped, or another than the one in use" in other_process[when]
    assert [0, 1, 2] == other_process["read before the stop"]


def test_what_a_killed_process_kept_is_removed_by_the_next(session, other_process):
    directory = Path(other_process["kept in"])
    assert directory.exists()

    ab.sources.Spark(session.range(3)).partitions()

    assert not directory.parent.exists()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(0, 40),
    partitions=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 40), max_size=3),
)
def test_a_range_gives_the_same_rows_however_it_is_cut(session, rows, partitions, cuts):
    df = session.range(0, rows, 1, partitions).selectExpr("id", "cast(id as string) as text")
    source = ab.sources.Spark(df)
    whole = rows_of(source)

    assert list(range(rows)) == [row["id"] for part in whole for row in part]
    for partition, expected in enumerate(whole):
        end = len(expected)
        bounds = [0, *sorted(min(cut, end) for cut in cuts), end]
        ranges = list(pairwise(bounds))
        parts = [source.frame((partition, low, high), ["text"]) for low, high in ranges]
        assert [row["text"] for row in expected] == pl.concat(parts)["text"].to_list()


def test_rows_stay_what_they_were_when_they_are_random(session):
    df = session.range(0, 200_000, 1, 2).selectExpr("id", "rand() as x")
    source = ab.sources.Spark(df)

    assert {0: 100_000, 1: 100_000} == source.latest()
    copy = pickle.loads(pickle.dumps(source))
    for split in ((0, 65_000, 66_000), (1, 0, 100_000)):
        assert source.frame(split).equals(source.frame(split))
        assert source.frame(split).equals(copy.frame(split))
        assert source.frame(split)["id"].to_list() == list(
            range(split[0] * 100_000 + split[1], split[0] * 100_000 + split[2])
        )


def test_the_kept_rows_go_with_the_source(session):
    source = ab.sources.Spark(session.range(3))
    directory = source._rows().directory

    assert directory.parent.parent == Path(tempfile.gettempdir())
    assert directory.exists()
    del source
    gc.collect()
    assert not directory.parent.exists()


@pytest.mark.parametrize("trigger", [ab.available_now(4), ab.available_now()])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_run_gives_what_its_log_means(session, events, tmp_path, lanes, trigger):
    sink = ab.sinks.Files(tmp_path / "out", format="parquet")
    program = windows(ab.sources.Spark(events), sink)

    # Started on nothing: the DataFrame's own Spark is the one of this process.
    ended(program.start(trigger=trigger, checkpoint=tmp_path / "ckpt", parallelism=lanes))

    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))
    assert session.range(1).count() == 1, "the Spark that was there is left running"


def test_two_data_frames_are_two_sources(session, events, tmp_path):
    program = ab.Program("joined")
    clicks = program.read(ab.sources.Spark(events), event_time="t", name="clicks")
    users = events.selectExpr("user", "t", "id as other").where("id % 4 = 0")
    other = program.read(ab.sources.Spark(users), event_time="t", name="users")
    pairs = clicks.join(other, on="user", within="1 s")
    pairs.write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")

    ended(program.start(session, trigger=ab.available_now(7), checkpoint=tmp_path / "ckpt"))

    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))


def test_a_run_goes_on_with_a_data_frame_that_is_made_again(session, events, tmp_path):
    sink = ab.sinks.Files(tmp_path / "out", format="parquet")
    first = windows(ab.sources.Spark(events), sink)
    assert 4 == run_inline(first, tmp_path / "ckpt", stop_after=4, in_flight=2)
    again = session.range(0, 90, 1, 3).selectExpr(*EVENTS)
    program = windows(ab.sources.Spark(again), sink)
    assert 3 <= run_inline(program, tmp_path / "ckpt"), "there was nothing left to read"

    assert_same_rows(
        run_sequential(program, log=tmp_path / "ckpt")["out"], written(tmp_path / "out")
    )


EVENTS = ("id", "id * 100 as t", "concat('u', id % 5) as user", "cast(id % 7 as double) as price")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda df: df.where("id < 60"), "it had 90 rows then, and has 60 now"),
        (lambda df: df.withColumn("price", df.price + 1), "as many, but others, or in another"),
        (lambda df: df.coalesce(1), "as many, but others, or in another"),
    ],
)
def test_a_data_frame_that_gives_other_rows_is_refused(events, tmp_path, changed, why):
    sink = ab.sinks.Files(tmp_path / "out", format="parquet")
    run_inline(windows(ab.sources.Spark(events), sink), tmp_path / "ckpt", stop_after=4)

    with pytest.raises(CheckpointError, match="no longer gives the rows") as error:
        run_inline(windows(ab.sources.Spark(changed(events)), sink), tmp_path / "ckpt")
    assert why in error.value.why


def test_rows_that_are_kept_are_read_by_the_next_run(session, tmp_path):
    def program():
        df = session.range(0, 40, 1, 2).selectExpr(*EVENTS[:3], "rand() as price")
        source = ab.sources.Spark(df, directory=tmp_path / "kept")
        return windows(source, ab.sinks.Files(tmp_path / "out", format="parquet"))

    assert 4 == run_inline(program(), tmp_path / "ckpt", stop_after=4, in_flight=2)
    last = program()
    assert 3 <= run_inline(last, tmp_path / "ckpt"), "there was nothing left to read"

    expected = run_sequential(last, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))
    assert 1 == len(list((tmp_path / "kept").iterdir())), "it was run once"


@pytest.mark.parametrize(
    "memory", [None, {}, {"rows": [1], "digest": "../../etc"}, {"rows": [-1], "digest": "0" * 32}]
)
def test_a_memory_that_is_none_is_refused(session, memory):
    with pytest.raises(CheckpointError, match="the memory of a Spark source cannot be read"):
        ab.sources.Spark(session.range(3)).recall(memory)


# The sink


class Taken:
    """A function for the sink that keeps what it gets; it could not travel to a task."""

    def __init__(self, session=None):
        self.session, self.epochs, self.schema = session, [], None

    def __call__(self, df, epoch):
        self.schema = df.schema
        self.epochs.append((epoch, [row.asDict(recursive=True) for row in df.collect()]))

    @property
    def rows(self):
        return [row for _, rows in self.epochs for row in rows]


@pytest.mark.parametrize("handed_over", [spark_sink.HANDED_OVER, 0])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_function_gets_every_epoch_in_order(
    session, events, tmp_path, lanes, handed_over, monkeypatch
):
    monkeypatch.setattr(spark_sink, "HANDED_OVER", handed_over)
    taken = Taken(session)
    program = windows(ab.sources.Spark(events), ab.sinks.Spark(taken))

    ended(
        program.start(trigger=ab.available_now(9), checkpoint=tmp_path / "ckpt", parallelism=lanes)
    )

    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, taken.rows)
    numbers = [epoch for epoch, _ in taken.epochs]
    assert sorted(set(numbers)) == numbers
    assert all(rows for _, rows in taken.epochs)


@pytest.mark.parametrize("handed_over", [spark_sink.HANDED_OVER, 0])
def test_rows_of_many_tasks_are_in_order(session, tmp_path, handed_over, monkeypatch):
    monkeypatch.setattr(spark_sink, "HANDED_OVER", handed_over)
    taken = Taken()
    program = ab.Program("many")
    source = ab.sources.Generator(lambda n: {"n": n}, schema={"n": pl.Int64}, rows=50, partitions=4)
    program.read(source).filter(pl.col("n") < 45).write(ab.sinks.Spark(taken), name="out")

    ended(program.start(session, trigger=ab.available_now(9), checkpoint=tmp_path / "ckpt"))

    assert_same_rows(run_sequential(program, log=tmp_path / "ckpt")["out"], taken.rows)


SINK_TYPES = {
    "u8": (pl.UInt8, 255, "smallint", 255),
    "u32": (pl.UInt32, 2**32 - 1, "bigint", 2**32 - 1),
    "u64": (pl.UInt64, 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    "i8": (pl.Int8, -1, "tinyint", -1),
    "f32": (pl.Float32, 1.5, "float", 1.5),
    "flag": (pl.Boolean, True, "boolean", True),
    "text": (pl.String, "é", "string", "é"),
    "raw": (pl.Binary, b"\x00", "binary", b"\x00"),
    "enum": (pl.Enum(["a", "b"]), "b", "string", "b"),
    "day": (pl.Date, date(2024, 6, 1), "date", date(2024, 6, 1)),
    "naive": (pl.Datetime("us"), NOON, "timestamp_ntz", NOON),
    "millis": (pl.Datetime("ms"), datetime(2024, 6, 1), "timestamp_ntz", datetime(2024, 6, 1)),
    "instant": (pl.Datetime("us", "UTC"), NOON.replace(tzinfo=UTC), "timestamp", NOON),
    "span": (pl.Duration("us"), timedelta(hours=1), "interval day to second", timedelta(hours=1)),
    "money": (pl.Decimal(10, 2), Decimal("1.25"), "decimal(10,2)", Decimal("1.25")),
    "list": (pl.List(pl.UInt8), [1, None], "array<smallint>", [1, None]),
    "pair": (pl.Array(pl.Int64, 2), [1, 2], "array<bigint>", [1, 2]),
    "nested": (
        pl.Struct({"x": pl.List(pl.Enum(["a"]))}),
        {"x": ["a"]},
        "struct<x:array<string>>",
        {"x": ["a"]},
    ),
}


@pytest.mark.parametrize("handed_over", [spark_sink.HANDED_OVER, 0])
def test_every_type_that_spark_has_is_given_as_it(session, handed_over, monkeypatch):
    monkeypatch.setattr(spark_sink, "HANDED_OVER", handed_over)
    taken = Taken()
    frame = pl.DataFrame(
        {name: pl.Series([v, None], dtype=dtype) for name, (dtype, v, _, _) in SINK_TYPES.items()}
    )
    sink = ab.sinks.Spark(taken)
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        sink.publish([sink.write(frame.to_arrow().to_batches(), 0, "a")], 0)
    finally:
        session.conf.set("spark.sql.session.timeZone", before)

    assert {n: t for n, (_, _, t, _) in SINK_TYPES.items()} == {
        field.name: field.dataType.simpleString() for field in taken.schema.fields
    }
    first, second = taken.rows
    assert set(second.values()) == {None}
    shown = {**first, "instant": first["instant"].astimezone(UTC).replace(tzinfo=None)}
    assert {n: v for n, (_, _, _, v) in SINK_TYPES.items()} == shown


@pytest.mark.parametrize("dtype", [pl.Time, pl.Null])
def test_a_type_that_spark_has_not_is_refused_before_it_is_committed(dtype):
    frame = pl.DataFrame({"a": pl.Series([None], dtype=dtype)})

    with pytest.raises(RunError, match=f"column 'a' is {dtype}, which Spark cannot hold"):
        ab.sinks.Spark(Taken()).write(frame.to_arrow().to_batches(), 0, "a")


def staged(sink, number, epoch):
    return sink.write(pl.DataFrame({"n": [number]}).to_arrow().to_batches(), epoch, "a")


@pytest.mark.parametrize("where", ["chosen", "temporary"])
def test_a_new_process_gives_what_a_dead_one_had_staged(session, tmp_path, where):
    directory = tmp_path / "staged" if where == "chosen" else None
    dead = ab.sinks.Spark(print, directory=directory)
    message = staged(dead, 7, 3)
    taken = Taken()
    sink = ab.sinks.Spark(taken, directory=directory)

    sink.publish([message], 3)

    assert [(3, [{"n": 7}])] == taken.epochs


def test_an_epoch_that_was_given_and_is_gone_is_not_given_again(session, tmp_path):
    """The driver died after the function had returned, and before that was acknowledged."""
    taken = Taken()
    sink = ab.sinks.Spark(taken, directory=tmp_path)
    message = staged(sink, 7, 3)

    sink.publish([message], 3)
    sink.publish([message], 3)

    assert [(3, [{"n": 7}])] == taken.epochs


def test_rows_that_were_never_given_and_are_gone_are_an_error(session, tmp_path):
    sink = ab.sinks.Spark(Taken(), directory=tmp_path)
    first, second = staged(sink, 1, 0), staged(sink, 2, 1)
    sink.publish([first], 0)
    next((tmp_path / "_staging").iterdir()).unlink()

    with pytest.raises(RunError, match="rows of epoch 1 are gone before fn has had them"):
        sink.publish([second], 1)


def test_an_error_of_the_function_is_told_and_the_epoch_comes_again(session, tmp_path):
    seen = []

    def fails_once(df, epoch):
        seen.append(epoch)
        if len(seen) == 2:
            raise ValueError("no room")

    def program():
        made = ab.Program("fails")
        source = ab.sources.Records([{"n": n} for n in range(6)])
        made.read(source).write(ab.sinks.Spark(fails_once, directory=tmp_path / "staged"))
        return made

    def start():
        options = {"trigger": ab.available_now(2), "checkpoint": tmp_path / "ckpt"}
        return program().start(session, **options)

    with pytest.raises(RunError, match=r"fails_once failed on epoch 1: ValueError: no room"):
        promptly(start().await_termination)
    ended(start())

    assert [0, 1, 1, 2] == seen
    assert not list((tmp_path / "staged" / "_staging").iterdir())


def test_a_losing_attempt_is_forgotten_and_leftovers_are_swept(tmp_path):
    sink = ab.sinks.Spark(print, directory=tmp_path)
    lost, kept, left = staged(sink, 1, 0), staged(sink, 2, 0), staged(sink, 3, 0)

    sink.abort([lost], 0)
    sink.sweep([kept])

    assert [kept["staged"]] == [path.name for path in (tmp_path / "_staging").iterdir()]
    assert left["staged"] != kept["staged"]


def test_an_empty_epoch_is_none(tmp_path):
    sink = ab.sinks.Spark(Taken(), directory=tmp_path)

    sink.publish([sink.write([], 0, "a")], 0)

    assert [] == sink._fn.epochs


@pytest.mark.parametrize(
    "message", [None, {}, {"staged": "../x", "rows": 1, "in": "/"}, {"staged": "x", "rows": 1}]
)
def test_a_message_that_is_none_is_refused(message, tmp_path):
    with pytest.raises(CheckpointError, match="a message of a Spark sink cannot be read"):
        ab.sinks.Spark(Taken(), directory=tmp_path).publish([message], 0)


def test_a_message_cannot_name_a_file_elsewhere(tmp_path):
    other = tmp_path / "other" / "_staging"
    other.mkdir(parents=True)
    pl.DataFrame({"secret": [1]}).write_parquet(other / "x.parquet")
    taken = Taken()
    message = {"staged": "x.parquet", "rows": 1, "in": str(tmp_path / "other")}

    with pytest.raises(RunError, match="gone before fn has had them"):
        ab.sinks.Spark(taken, directory=tmp_path / "own").publish([message], 0)
    assert [] == taken.epochs


def test_what_is_no_function_is_refused():
    with pytest.raises(ProgramError, match="fn must be a function of a DataFrame and an epoch"):
        ab.sinks.Spark("table")


# The table


def test_a_lookup_in_a_data_frame_gives_what_it_means(session, events, tmp_path):
    names = session.sql(
        "select concat('u', id) as user, id * 10 as age, timestamp_seconds(id) as since,"
        " map('a', id) as tags from range(0, 4)"
    )
    program = ab.Program("named")
    clicks = program.read(ab.sources.Spark(events), event_time="t")
    clicks.lookup(names, on="user", how="left").write(
        ab.sinks.Files(tmp_path / "out", format="parquet"), name="out"
    )

    ended(program.start(trigger=ab.available_now(11), checkpoint=tmp_path / "ckpt"))

    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert pl.Datetime("us", "UTC") == clicks.lookup(names, on="user").schema["since"]
    assert {0, 10, 20, 30, None} == {row["age"] for row in expected}
    assert_same_rows(expected, written(tmp_path / "out"))


def test_a_table_is_collected_once_and_in_order(session):
    df = session.range(0, 1000, 1, 4).orderBy("id", ascending=False)

    assert list(range(999, -1, -1)) == collected(df, "t")["id"].to_list()


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"most_rows": 99}, "it has more than 99 rows"),
        ({"most_bytes": 799}, "it has 800 bytes, and 799 may be"),
    ],
)
def test_a_table_that_is_too_large_is_refused_with_what_to_do(session, limits, why):
    with pytest.raises(ProgramError, match="too large for a lookup table") as error:
        collected(session.range(100), "lookup-1", **limits)

    assert why in error.value.why
    assert "ab.sources.Spark(df)" in error.value.so


def test_two_rows_of_one_key_are_refused_where_the_lookup_is_written(session):
    numbers = ab.Program("p").read(ab.sources.Records([{"id": 1}]))

    with pytest.raises(ProgramError, match="the table has several rows for id") as error:
        numbers.lookup(session.sql("select 1L as id from range(2)"), on="id")
    assert __file__ == error.value.file
