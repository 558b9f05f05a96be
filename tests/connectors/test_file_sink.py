import errno
import json
import math
import os
import pickle
import shutil
import tempfile
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from pyarrow import parquet

from anabranch.connectors import file_source
from anabranch.connectors.file_sink import GROUP_ROWS, Files
from anabranch.errors import CheckpointError, ProgramError, RunError

N = {"n": pl.Int64}
KINDS = ["parquet", "arrow", "csv", "jsonl"]
STEPS = ("open", "mkdir", "link", "rename", "unlink", "fsync")


class Crash(BaseException):
    """The end of a process: nothing catches it, and nothing is done after it."""


@contextmanager
def crash_at(step, when):
    """Die before or after the step-th call that changes the disk."""
    real = {name: getattr(os, name) for name in STEPS}
    calls = []

    def dying(name):
        def call(*args, **kwargs):
            calls.append(name)
            if len(calls) > step or (len(calls) == step and when == "before"):
                raise Crash
            result = real[name](*args, **kwargs)
            if len(calls) == step:
                raise Crash
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, dying(name))
        with suppress(Crash):
            yield calls


@contextmanager
def failing(name, code, times=1):
    """Let the first calls of a function of `os` fail as the system would."""
    real, left = getattr(os, name), [code] * times

    def call(*args, **kwargs):
        if left:
            raise OSError(left.pop(), "injected")
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, call)
        yield


def no_link(*_args, **_kwargs):
    raise OSError(errno.EPERM, "this file system has no links")


def batches(*groups):
    return [pa.RecordBatch.from_pydict({"n": pa.array(g, pa.int64())}) for g in groups]


def staged(sink, *parts, epoch=0, attempt="a"):
    messages = [sink.write(batches(*part), epoch, attempt) for part in parts]
    return json.loads(json.dumps(messages))


def visible(path):
    """What a reader that lists the directory sees."""
    read = {
        ".parquet": pl.read_parquet,
        ".arrow": pl.read_ipc,
        ".csv": pl.read_csv,
        ".jsonl": pl.read_ndjson,
    }
    return {
        each.name: read[each.suffix](each)["n"].to_list()
        for each in sorted(path.glob("*.*"))
        if each.is_file()
    }


def staging(path):
    return sorted(each.name for each in (path / "_staging").glob("*"))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_published_files_are_named_by_epoch_and_in_the_order_of_messages(tmp_path, kind):
    sink = Files(tmp_path, format=kind)

    sink.publish(staged(sink, [[1, 2], [3]], [[4]], epoch=12), 12)

    assert {
        f"part-0000000012-00000.{kind}": [1, 2, 3],
        f"part-0000000012-00001.{kind}": [4],
    } == visible(tmp_path)
    assert [] == staging(tmp_path)


def test_nothing_staged_is_visible(tmp_path, kind):
    sink = Files(tmp_path, format=kind)

    (message,) = staged(sink, [[1]])

    assert {} == visible(tmp_path)
    assert [message["staged"]] == staging(tmp_path)
    source = file_source.Files(tmp_path, format=kind, schema=N)
    assert {0: [0, 0]} == source.latest()


def test_no_rows_make_no_file(tmp_path, kind):
    sink = Files(tmp_path / "out", format=kind)

    messages = staged(sink, [], [[], []])
    sink.publish(messages, 0)
    sink.abort(messages, 0)

    assert [{"staged": None, "rows": 0, "format": kind}] * 2 == messages
    assert not (tmp_path / "out").exists()


def test_an_empty_message_keeps_the_numbers_of_the_others(tmp_path):
    sink = Files(tmp_path, format="parquet")

    sink.publish(staged(sink, [], [[1]]), 0)

    assert ["part-0000000000-00001.parquet"] == list(visible(tmp_path))


def test_two_tasks_of_one_attempt_write_two_files(tmp_path):
    sink = Files(tmp_path, format="parquet")

    one, other = staged(sink, [[1]], [[2]], attempt="../x y")

    assert one["staged"] != other["staged"]
    assert one["staged"].startswith("0000000000-___x_y-")
    assert sorted([one["staged"], other["staged"]]) == staging(tmp_path)


def test_the_source_reads_in_order_what_the_sink_wrote(tmp_path, kind):
    sink = Files(tmp_path, format=kind)
    for epoch in range(12):
        sink.publish(staged(sink, [[2 * epoch]], [[2 * epoch + 1]], epoch=epoch), epoch)

    source = file_source.Files(tmp_path, schema=N)
    splits = source.plan({}, source.latest())

    assert list(range(24)) == [
        n for s in splits for b in source.read(s) for n in b["n"].to_pylist()
    ]


def test_abort_removes_what_was_staged_and_nothing_else(tmp_path):
    sink = Files(tmp_path, format="parquet")
    kept, lost = staged(sink, [[1]], attempt="won"), staged(sink, [[2]], attempt="lost")
    sink.publish(kept, 0)

    sink.abort(lost, 0)
    sink.abort(lost, 0)
    sink.abort(kept, 0)

    assert {"part-0000000000-00000.parquet": [1]} == visible(tmp_path)
    assert [] == staging(tmp_path)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("links", [True, False])
def test_publishing_again_after_a_crash_at_any_step_ends_in_the_same_place(
    tmp_path, monkeypatch, when, links
):
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    expected = {f"part-0000000003-0000{i}.parquet": [i, i] for i in range(3)}
    for step in range(1, 100):
        path = tmp_path / str(step)
        sink = Files(path, format="parquet")
        messages = staged(sink, *[[[i, i]] for i in range(3)], epoch=3)

        with crash_at(step, when) as calls:
            sink.publish(messages, 3)

        assert visible(path).items() <= expected.items()
        for _ in range(2):
            Files(path, format="parquet").publish(messages, 3)
            assert expected == visible(path)
            assert [] == staging(path)
        if len(calls) < step:
            break
    assert step > 6  # three names given, and three removed, at least
    assert len(calls) < step


@settings(deadline=None, max_examples=40)  # how fast the machine is says nothing
@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=2), max_size=3),
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["before", "after"])), max_size=4),
    st.sampled_from(KINDS),
)
def test_any_number_of_crashes_loses_nothing_and_shows_nothing_twice(parts, crashes, kind):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "out"
        sink = Files(path, format=kind)
        messages = staged(sink, *parts)
        wanted = [n for part in parts for group in part for n in group]

        for step, when in crashes:
            with crash_at(step, when):
                sink.publish(messages, 0)
        sink.publish(messages, 0)

        assert wanted == [n for rows in visible(path).values() for n in rows]
        assert [] == staging(path)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_task_that_dies_at_any_step_shows_nothing_and_its_repetition_does(tmp_path, kind, when):
    for step in range(1, 100):
        path = tmp_path / str(step) / "out"
        sink = Files(path, format=kind)
        with crash_at(step, when) as calls:
            sink.write(batches([1]), 0, "dies")
        assert {} == visible(path)

        sink.publish(staged(sink, [[1]], attempt="lives"), 0)

        assert {f"part-0000000000-00000.{kind}": [1]} == visible(path)
        if len(calls) < step:
            break
    assert len(calls) < step


def test_rows_are_on_the_disk_before_they_are_shown_and_shown_before_the_first_name_goes(tmp_path):
    sink = Files(tmp_path, format="parquet")
    messages = staged(sink, [[1]])
    with crash_at(1000, "before") as calls:
        messages += staged(sink, [[2]])
    assert ["fsync", "open", "fsync"] == calls  # the file, then its directory

    with crash_at(1000, "before") as calls:
        sink.publish(messages, 0)

    assert ["link", "link", "open", "fsync", "unlink", "unlink"] == calls


@pytest.mark.parametrize("name", ["link", "fsync", "unlink"])
def test_what_the_system_refuses_is_told_and_can_be_done_later(tmp_path, name):
    sink = Files(tmp_path, format="parquet")
    messages = staged(sink, [[1]])

    with failing(name, errno.EIO), pytest.raises(RunError, match=r"^Files: cannot publish "):
        sink.publish(messages, 0)
    sink.publish(messages, 0)

    assert {"part-0000000000-00000.parquet": [1]} == visible(tmp_path)
    assert [] == staging(tmp_path)


@pytest.mark.parametrize("name", ["fsync", "mkdir"])
def test_a_full_disk_fails_the_task_and_leaves_nothing(tmp_path, name):
    sink = Files(tmp_path / "out", format="parquet")

    with failing(name, errno.ENOSPC), pytest.raises(RunError, match=r"^Files: cannot write "):
        sink.write(batches([1]), 0, "a")

    assert [] == staging(tmp_path / "out")


@pytest.mark.parametrize("links", [True, False])
def test_a_file_of_another_run_is_not_overwritten(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    before, after = Files(tmp_path, format="parquet"), Files(tmp_path, format="parquet")
    before.publish(staged(before, [[1]]), 0)
    messages = staged(after, [[2]])

    with pytest.raises(RunError, match=r"is there already, written by another run\n"):
        after.publish(messages, 0)

    assert {"part-0000000000-00000.parquet": [1]} == visible(tmp_path)


def test_a_copy_of_the_directory_can_be_published_too(tmp_path):
    sink = Files(tmp_path / "a", format="parquet")
    messages = staged(sink, [[1]])
    with crash_at(1, "after"):  # both names are there
        sink.publish(messages, 0)
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    Files(tmp_path / "b", format="parquet").publish(messages, 0)

    assert {"part-0000000000-00000.parquet": [1]} == visible(tmp_path / "b")
    assert [] == staging(tmp_path / "b")


def test_a_committed_file_that_somebody_removed_is_told(tmp_path):
    sink = Files(tmp_path, format="parquet")
    messages = staged(sink, [[1]])
    shutil.rmtree(tmp_path / "_staging")

    with pytest.raises(RunError, match=r" is neither staged nor published\n"):
        sink.publish(messages, 0)


@pytest.mark.parametrize(
    "message",
    [
        None,
        "a.parquet",
        {},
        {"staged": None, "rows": 3, "format": "parquet"},
        {"staged": 3, "rows": 1, "format": "parquet"},
        {"staged": "a.parquet", "rows": 1, "format": "exe"},
        *(
            {"staged": name, "rows": 1, "format": "parquet"}
            for name in ("", "..", ".a", "../a", "/etc/passwd", "a/b", "a\\b", "a\0", "a\n")
        ),
    ],
)
def test_a_strange_message_is_refused_before_anything_is_done(tmp_path, message):
    sink = Files(tmp_path, format="parquet")
    good = staged(sink, [[1]])

    for act in (sink.publish, sink.abort):
        with pytest.raises(CheckpointError, match=r"^a message of a Files sink cannot be read\n"):
            act([*good, message], 0)

    assert {} == visible(tmp_path)
    assert [good[0]["staged"]] == staging(tmp_path)


def test_a_message_keeps_its_format_when_the_program_changed(tmp_path):
    messages = staged(Files(tmp_path, format="arrow"), [[1]])

    Files(tmp_path, format="parquet").publish(messages, 0)

    assert {"part-0000000000-00000.arrow": [1]} == visible(tmp_path)


def test_an_error_of_the_rows_is_passed_on_and_leaves_nothing(tmp_path, kind):
    def rows():
        yield from batches(range(GROUP_ROWS))
        raise FileNotFoundError("of the user's own")

    with pytest.raises(FileNotFoundError, match=r"^of the user's own$"):
        Files(tmp_path, format=kind).write(rows(), 0, "a")

    assert [] == staging(tmp_path)


def test_rows_are_written_as_they_come(tmp_path, kind):
    sink = Files(tmp_path, format=kind)
    sizes = []

    def rows():
        for _ in range(4):
            yield from batches(range(GROUP_ROWS))
            sizes.append(sum(f.stat().st_size for f in (tmp_path / "_staging").glob("*")))

    sink.write(rows(), 0, "a")

    assert 0 < sizes[1] < sizes[3]


def test_small_batches_share_a_row_group(tmp_path):
    sink = Files(tmp_path, format="parquet")

    sink.publish([sink.write(batches(*([i] for i in range(100))), 0, "a")], 0)

    assert 1 == parquet.ParquetFile(tmp_path / "part-0000000000-00000.parquet").num_row_groups


def test_a_type_that_the_format_cannot_hold_is_told(tmp_path):
    def rows():
        for word in "ab":
            array = pa.array([word] * GROUP_ROWS).dictionary_encode()
            yield pa.RecordBatch.from_arrays([array], ["w"])

    with pytest.raises(RunError, match=r"^Files: cannot write .*\n  since Dictionary replacement"):
        Files(tmp_path, format="arrow").write(rows(), 0, "a")

    assert [] == staging(tmp_path)


def test_nonsense_is_refused_where_it_is_written(tmp_path):
    with pytest.raises(ProgramError, match=r"^Files: no format 'orc'\n") as refused:
        Files(tmp_path, format="orc")
    assert "parquet, arrow, csv, jsonl" == refused.value.have
    (tmp_path / "file").touch()
    with pytest.raises(ProgramError, match=r"/file is a file, not a directory to write into\n"):
        Files(tmp_path / "file", format="parquet")


@pytest.mark.parametrize(
    ("kind", "compression", "found"),
    [
        ("parquet", None, "SNAPPY"),
        *(("parquet", name, name.upper()) for name in ("snappy", "zstd", "gzip", "lz4", "brotli")),
        ("parquet", "none", "UNCOMPRESSED"),
    ],
)
def test_parquet_is_compressed_as_is_said(tmp_path, kind, compression, found):
    sink = Files(tmp_path, format=kind, compression=compression)

    sink.publish(staged(sink, [range(99)]), 0)

    (path,) = tmp_path.glob("part-*")
    assert found == parquet.read_metadata(path).row_group(0).column(0).compression
    assert [list(range(99))] == list(visible(tmp_path).values())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_arrow_is_compressed_as_is_said(tmp_path, compression):
    sizes = {}
    for name in (None, "none", compression):
        sink = Files(tmp_path / str(name), format="arrow", compression=name)
        sink.publish(staged(sink, [[7] * 10_000]), 0)
        (path,) = (tmp_path / str(name)).glob("part-*")
        sizes[name] = path.stat().st_size
        assert [[7] * 10_000] == list(visible(tmp_path / str(name)).values())

    assert sizes[compression] < sizes["none"] / 10
    assert sizes[None] == sizes["none"]


@pytest.mark.parametrize(
    ("kind", "compression"),
    [("parquet", "zip"), ("arrow", "gzip"), ("csv", "gzip"), ("jsonl", "zstd")],
)
def test_a_compression_that_the_format_has_not_is_refused(tmp_path, kind, compression):
    refusal = rf"^Files: {kind} cannot be compressed by '{compression}'\n"
    with pytest.raises(ProgramError, match=refusal):
        Files(tmp_path, format=kind, compression=compression)


TYPES = {
    "flag": pl.Boolean,
    "big": pl.UInt64,
    "ratio": pl.Float64,
    "single": pl.Float32,
    "price": pl.Decimal(20, 3),
    "word": pl.String,
    "kind": pl.Enum(["a", 'b"']),
    "day": pl.Date,
    "at": pl.Datetime("us"),
    "fine": pl.Datetime("ns"),
    "zoned": pl.Datetime("ms", "America/New_York"),
}
NESTED = {
    "tags": pl.List(pl.String),
    "point": pl.Struct({"x": pl.Float64, "seen": pl.List(pl.Datetime("us", "UTC"))}),
}
TIMES = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))
WORDS = st.text(st.sampled_from('ab",\n\r {}\\é\u2028\x00'), max_size=5)
VALUES = {
    "flag": st.booleans(),
    "big": st.integers(0, 2**64 - 1),
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "price": st.decimals(-(10**15), 10**15, places=3),
    "word": WORDS,
    "kind": st.sampled_from(["a", 'b"']),
    "day": st.dates(),
    "at": TIMES,
    "fine": TIMES,
    "zoned": TIMES.map(lambda t: t.replace(microsecond=0, tzinfo=UTC)),
    "tags": st.lists(st.none() | WORDS, max_size=3),
    "point": st.fixed_dictionaries(
        {
            "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "seen": st.none() | st.lists(TIMES.map(lambda t: t.replace(tzinfo=UTC)), max_size=2),
        }
    ),
}


@pytest.mark.slow
@settings(deadline=None)  # how fast the machine is says nothing
@given(st.sampled_from(["csv", "jsonl"]), st.data())
def test_the_source_finds_in_text_the_very_values_that_were_written(kind, data):
    schema = TYPES if kind == "csv" else TYPES | NESTED
    some = data.draw(st.lists(st.sampled_from(list(schema)), min_size=1, unique=True))
    schema = {name: schema[name] for name in some}
    values = st.fixed_dictionaries({name: st.none() | VALUES[name] for name in some})
    frame = pl.DataFrame(data.draw(st.lists(values, min_size=1, max_size=5)), schema=schema)
    with tempfile.TemporaryDirectory() as directory:
        sink = Files(directory, format=kind)
        sink.publish([sink.write(frame.to_arrow().to_batches(), 0, "a")], 0)
        source = file_source.Files(directory, schema=schema)
        (split,) = source.plan({}, source.latest())

        assert_frame_equal(frame, source.frame(split), check_exact=True)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("csv", pl.Series("w", [[1]])),
        ("csv", pl.Series("w", [b"x"])),
        ("jsonl", pl.Series("w", [b"x"])),
        ("jsonl", pl.Series("w", [timedelta(1)])),
    ],
)
def test_a_type_without_a_spelling_is_told(tmp_path, kind, column):
    rows = column.to_frame().to_arrow().to_batches()

    with pytest.raises(RunError, match=rf"^Files: {kind} holds no column of type .* 'w' is\n"):
        Files(tmp_path, format=kind).write(rows, 0, "a")

    assert [] == staging(tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf], [{"x": math.nan}]])
def test_json_has_no_nan_and_none_is_made_null_in_silence(tmp_path, value):
    rows = pl.Series("w", [None, value], strict=False).to_frame().to_arrow().to_batches()

    with pytest.raises(RunError, match=r"^Files: jsonl holds no NaN and no infinity, as 'w' has"):
        Files(tmp_path, format="jsonl").write(rows, 0, "a")

    assert [] == staging(tmp_path)


def test_a_copy_in_another_process_and_place_writes_the_same_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink = Files("out", format="parquet")
    monkeypatch.chdir("/")

    messages = staged(pickle.loads(pickle.dumps(sink)), [[1]])
    sink.publish(messages, 0)

    assert {"part-0000000000-00000.parquet": [1]} == visible(tmp_path / "out")
