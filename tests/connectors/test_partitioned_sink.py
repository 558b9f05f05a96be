"""Rows in directories by the values of columns: what others read there, and what a crash leaves."""

import errno
import json
import os
from datetime import date, datetime
from pathlib import Path

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.starting import start
from anabranch.connectors.file_sink import Files
from anabranch.connectors.partition_directories import NULL, is_partition
from anabranch.errors import CheckpointError, ProgramError, RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from tests.connectors.test_file_sink import KINDS, crash_at, no_link, staging

SCHEMA = {"day": pl.Date, "k": pl.String, "n": pl.Int64}
ROWS = pl.DataFrame(
    [
        {"day": date(2026, 1, 1 + n % 3), "k": None if n % 7 == 0 else f"k/{n % 2}", "n": n}
        for n in range(40)
    ],
    schema=SCHEMA,
)
READERS = {
    "parquet": pl.read_parquet,
    "arrow": pl.read_ipc,
    "csv": pl.read_csv,
    "jsonl": pl.read_ndjson,
}


def stage(sink, *frames, epoch=0, attempt="a"):
    messages = [sink.write(frame.to_arrow().to_batches(), epoch, attempt) for frame in frames]
    return json.loads(json.dumps(messages))


def found(path):
    """The files that a reader sees, by directory, and the numbers in each."""
    return {
        each.relative_to(path).as_posix(): READERS[each.suffix[1:]](each)["n"].to_list()
        for each in sorted(path.rglob("part-*"))
        if "_staging" not in each.parts
    }


def by_polars(path):
    return pl.scan_parquet(
        path / "**" / "part-*.parquet",
        hive_partitioning=True,
        hive_schema={"day": pl.Date, "k": pl.String},
    ).collect()


def by_duckdb(path):
    files = str(path / "**" / "part-*.parquet")
    types = "{'day': DATE, 'k': VARCHAR}"
    query = f"select * from read_parquet('{files}', hive_partitioning=true, hive_types={types})"
    return duckdb.sql(query).pl()


@pytest.mark.parametrize("read", [by_polars, by_duckdb])
def test_others_read_the_columns_from_the_directories(tmp_path, read):
    sink = Files(tmp_path, format="parquet", partition_by=["day", "k"])

    sink.publish(stage(sink, ROWS[:25], ROWS[25:], epoch=3), 3)

    assert ROWS.equals(read(tmp_path).select("day", "k", "n").sort("n"))
    assert f"day=2026-01-01/k={NULL}/part-0000000003-00000.parquet" in found(tmp_path)
    assert "day=2026-01-02/k=k%2F1/part-0000000003-00001.parquet" in found(tmp_path)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)  # how fast the machine is says nothing
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
        .filter(lambda text: len(text.encode()) < 80)
        .map(lambda text: "x" + text)
        | st.sampled_from(
            ["a=b", "../x", ".", "..", " ", "%2F", "a\nb", "ä/ö", "'\"\\*?[]{}", "~"]
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_text_comes_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("any")
    rows = pl.DataFrame({"k": texts, "n": range(len(texts))})
    sink = Files(path, format="parquet", partition_by="k")

    sink.publish(stage(sink, rows), 0)

    assert len({*texts}) == len(found(path))
    assert all(is_partition(str(Path(name).parent)) for name in found(path))
    pattern = path / "**" / "part-*.parquet"
    read = pl.scan_parquet(pattern, hive_partitioning=True, hive_schema={"k": pl.String}).collect()
    assert rows.equals(read.select("k", "n").sort("n"))
    query = f"select k, n from read_parquet('{pattern}', hive_types={{'k': VARCHAR}}) order by n"
    assert rows.rows() == duckdb.sql(query).fetchall()


def test_values_of_all_plain_types_have_names(tmp_path):
    rows = pl.DataFrame(
        {
            "b": [True, None],
            "i": [-1, 2],
            "e": pl.Series(["x", "y"], dtype=pl.Enum(["x", "y"])),
            "c": pl.Series(["u", "v"], dtype=pl.Categorical),
            "d": [date(2026, 1, 31), None],
            "t": [datetime(2026, 1, 31, 12, 30), datetime(2026, 1, 31, 12, 30, 0, 5)],
            "n": [0, 1],
        }
    )
    sink = Files(tmp_path, format="parquet", partition_by=["b", "i", "e", "c", "d", "t"])
    sink.require(rows.schema)

    sink.publish(stage(sink, rows), 0)

    names = [str(Path(name).parent) for name in found(tmp_path)]
    clock = "t=2026-01-31%2012%3A30%3A00"
    assert [
        f"b=__HIVE_DEFAULT_PARTITION__/i=2/e=y/c=v/d=__HIVE_DEFAULT_PARTITION__/{clock}.000005",
        f"b=true/i=-1/e=x/c=u/d=2026-01-31/{clock}.000000",
    ] == names
    read = pl.scan_parquet(
        tmp_path / "**" / "part-*.parquet",
        hive_partitioning=True,
        hive_schema={**rows.schema, "e": pl.String, "c": pl.String, "n": pl.Int64},
    )
    assert rows["t"].to_list() == read.collect().sort("n")["t"].to_list()


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_a_directory_keep_their_order(tmp_path, kind):
    sink = Files(tmp_path, format=kind, partition_by="k")
    rows = pl.DataFrame({"k": ["a", "b"] * 5, "n": range(10)})
    for epoch in range(2):
        sink.publish(stage(sink, rows[:4], rows[4:4], rows[4:], epoch=epoch), epoch)

    assert {
        f"k={k}/part-000000000{epoch}-0000{part}.{kind}": numbers[part]
        for k, numbers in {
            "a": {0: [0, 2], 2: [4, 6, 8]},
            "b": {0: [1, 3], 2: [5, 7, 9]},
        }.items()
        for epoch in range(2)
        for part in numbers
    } == found(tmp_path)
    assert [] == staging(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_the_contract_of_sinks(tmp_path, kind):
    rows = pl.DataFrame({"k": [f"k{n // 6}" for n in range(120)], "n": range(120)})

    def read():
        """All rows in the order of their numbers: of several directories there is no other."""
        shown = found(tmp_path / "out")
        pairs = [{"k": name.partition("/")[0][2:], "n": n} for name in shown for n in shown[name]]
        return sorted(pairs, key=lambda row: row["n"])

    def make():
        return Files(tmp_path / "out", format=kind, partition_by="k")

    ab.testing.check_sink(make(), read=read, rows=rows, again=make)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("links", [True, False])
def test_publishing_again_after_a_crash_at_any_step_ends_in_the_same_place(
    tmp_path, monkeypatch, when, links
):
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    rows = pl.DataFrame({"k": ["a", "b", "a"], "n": [0, 1, 2]})
    names = [f"k={k}/part-0000000003-0000{n}.parquet" for k in "ab" for n in range(2)]
    expected = dict(zip(names, [[0, 2], [0, 2], [1], [1]], strict=True))
    for step in range(1, 100):
        path = tmp_path / str(step)
        sink = Files(path, format="parquet", partition_by="k")
        messages = stage(sink, rows, rows, epoch=3)

        with crash_at(step, when) as calls:
            sink.publish(messages, 3)

        assert found(path).items() <= expected.items()
        for _ in range(2):
            Files(path, format="parquet").publish(messages, 3)
            assert expected == found(path)
            assert [] == staging(path)
        if len(calls) < step:
            break
    assert len(calls) < step


def test_a_task_that_dies_leaves_what_the_next_run_sweeps(tmp_path):
    rows = pl.DataFrame({"k": ["a", "b"], "n": [0, 1]})
    for step in range(1, 100):
        path = tmp_path / str(step)
        sink = Files(path, format="parquet", partition_by="k")
        with crash_at(step, "after") as calls:
            stage(sink, rows, attempt="dies")
        kept = stage(sink, rows, attempt="lives")
        sink.sweep(kept)
        assert 2 == len(staging(path))
        sink.abort(kept, 0)
        assert [] == staging(path)
        assert {} == found(path)
        if len(calls) < step:
            break
    assert len(calls) < step


@pytest.mark.parametrize(
    "pieces",
    [
        [["x.parquet", "../k=1"]],
        [["x.parquet", ""]],
        [["../x.parquet", "k=1"]],
        [["x.parquet"]],
        [["x.parquet", "k=1", "more"]],
        ["x.parquet"],
    ],
)
def test_a_strange_message_is_refused_before_anything_is_done(tmp_path, pieces):
    message = {"staged": pieces, "rows": 1, "format": "parquet"}
    sink = Files(tmp_path / "out", format="parquet", partition_by="k")
    for act in (
        lambda: sink.publish([message], 0),
        lambda: sink.abort([message], 0),
        lambda: sink.sweep([message]),
    ):
        with pytest.raises(CheckpointError, match=r"^a message of a Files sink cannot be read"):
            act()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("good", [0, 3])
def test_a_full_disk_fails_the_task_and_leaves_no_piece(tmp_path, monkeypatch, good):
    sink = Files(tmp_path, format="parquet", partition_by="k")
    stage(sink, pl.DataFrame({"k": ["a"], "n": [0]}), attempt="before")
    before, left, sync = staging(tmp_path), [None] * good, os.fsync

    def full(handle):
        if not left:
            raise OSError(errno.ENOSPC, "injected")
        left.pop()
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="make room on that disk"):
        stage(sink, pl.DataFrame({"k": ["a", "b", "c"], "n": [0, 1, 2]}))
    assert before == staging(tmp_path)


@pytest.mark.parametrize("text", ["", NULL])
def test_a_text_that_readers_would_take_for_null_is_refused(tmp_path, text):
    sink = Files(tmp_path, format="parquet", partition_by="k")
    with pytest.raises(
        RunError, match=r"^Files: a row has '.*' in 'k', by which it is partitioned"
    ):
        stage(sink, pl.DataFrame({"k": ["a", text], "n": [0, 1]}))
    assert [] == staging(tmp_path)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (7, r"partition_by must be a column or a list of columns, got 7"),
        ([], r"partition_by must be a column or a list of columns, got \[\]"),
        (["k", "k"], r"partition_by names a column twice"),
        ("_k", r"partition_by names '_k', whose directories would be hidden"),
    ],
)
def test_nonsense_is_refused_where_the_sink_is_made(tmp_path, given, match):
    with pytest.raises(ProgramError, match=rf"^Files: {match}"):
        Files(tmp_path, format="parquet", partition_by=given)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("m", r"partition_by names 'm', which is no column of the stream\n"),
        (["k", "x"], r"partition_by names 'x', whose type Float64 has no plain text\n"),
        ("l", r"partition_by names 'l', whose type List\(Int64\) has no plain text\n"),
        ("z", r"partition_by names 'z', whose type Datetime\(.*'UTC'\) has no plain text\n"),
        (["k", "x", "l", "z"], "partition_by names 'x'"),
    ],
)
def test_columns_that_name_no_directories_are_refused_where_the_program_is_written(
    tmp_path, given, match
):
    types = {"k": pl.String, "x": pl.Float64, "l": pl.List(pl.Int64), "z": pl.Datetime("us", "UTC")}
    stream = ab.Program("p").read(ab.sources.Records([], schema=types))
    with pytest.raises(ProgramError, match=match) as refused:
        stream.write(ab.sinks.Files(tmp_path, format="parquet", partition_by=given))
    assert __file__ == refused.value.file


def test_something_must_be_left_to_write(tmp_path):
    stream = ab.Program("p").read(ab.sources.Records([{"k": "a"}]))
    with pytest.raises(ProgramError, match="nothing is left to write"):
        stream.write(ab.sinks.Files(tmp_path, format="parquet", partition_by=["k"]))


def test_a_type_that_a_text_format_does_not_hold_is_refused_where_the_program_is_written(tmp_path):
    stream = ab.Program("p").read(ab.sources.Records([{"k": [1]}]))
    with pytest.raises(ProgramError, match="csv holds no column of type List"):
        stream.write(ab.sinks.Files(tmp_path, format="csv"))


def test_a_run_divides_what_the_sequential_one_gives(tmp_path):
    program = ab.Program("p")
    read = program.read(ab.sources.Records(ROWS.rows(named=True), schema=SCHEMA, partitions=2))
    sums = read.key_by("k").reduce(lambda a, b: {**b, "n": a["n"] + b["n"]})
    sums.write(ab.sinks.Files(tmp_path / "out", format="parquet", partition_by="day"), name="out")
    how = Settings(ab.available_now(7), tmp_path / "ckpt", 2, slices=8)
    assert start(program.freeze(), how, InlineExecutor()).await_termination(60)

    expected = ab.testing.run_sequential(program, log=tmp_path / "ckpt")["out"]
    for day in {row["day"] for row in expected}:
        mine = [row["n"] for row in expected if row["day"] == day]
        files = {name: ns for name, ns in found(tmp_path / "out").items() if f"day={day}/" in name}
        assert mine == [n for ns in files.values() for n in ns]
