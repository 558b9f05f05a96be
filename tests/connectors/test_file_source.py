import errno
import json
import os
import pickle
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from anabranch.connectors.file_source import Files
from anabranch.connectors.rows import BATCH_ROWS
from anabranch.errors import CheckpointError, ProgramError, RunError

N = {"n": pl.Int64}
FORMATS = ["parquet", "arrow"]


def put(path, numbers, *, rows_per_group=2, schema=None):
    """A file of several row groups or batches, named by its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pl.DataFrame({"n": list(numbers)}, schema=schema or N).to_arrow()
    if path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_group)
    else:
        parquet.write_table(table, path, row_group_size=rows_per_group)
    return path


def between(source, start, end):
    splits = json.loads(json.dumps(source.plan({0: start}, {0: end})))
    return [n for split in splits for batch in source.read(split) for n in batch["n"].to_pylist()]


def only_unread(source, start, end):
    """What is told of the one row of a range, which cannot be read, the same in each way."""
    (split,) = source.plan({0: start}, {0: end})
    (batch,) = source.read(split)
    (row,) = pl.DataFrame(batch).rows(named=True)
    assert row == source.frame(split).row(0, named=True)
    first = next(iter(source.schema))
    assert [first, source.unread] == source.frame(split, [first]).columns
    assert {None} == {row[name] for name in source.schema}
    return row[source.unread]


def everything(source):
    return between(source, source.first(0), source.latest()[0])


@pytest.fixture(params=FORMATS)
def suffix(request):
    return request.param


@pytest.mark.slow
@settings(deadline=None)  # how fast the machine is says nothing
@given(st.sampled_from(FORMATS), st.lists(st.integers(0, 7), min_size=1, max_size=4), st.data())
def test_any_cuts_give_the_same_rows_in_the_same_order(suffix, sizes, data):
    with tempfile.TemporaryDirectory() as directory:
        written: list[int] = []
        for number, size in enumerate(sizes):
            rows = range(len(written), len(written) + size)
            put(Path(directory) / f"{number}.{suffix}", rows)
            written += rows
        source = Files(directory)
        end = source.latest()[0]

        at, cuts = [0, 0], []
        while at < end:
            most = data.draw(st.integers(1, 5))
            after = source.limit(0, at, end, most)
            cuts.append(between(source, at, after))
            assert at < after
            assert len(cuts[-1]) <= most
            assert cuts[-1] == between(source, at, after)
            at = after

        assert written == [n for cut in cuts for n in cut] == everything(source)


@settings(deadline=None, max_examples=30)  # how fast the machine is says nothing
@given(st.sampled_from(FORMATS), st.data())
def test_two_ranges_are_the_range_of_both(suffix, data):
    with tempfile.TemporaryDirectory() as directory:
        for name, numbers in {"a": range(5), "b": range(5, 5), "c": range(5, 9)}.items():
            put(Path(directory) / f"{name}.{suffix}", numbers)
        source = Files(directory)
        end = source.latest()[0]
        a, b, c = sorted(
            source.limit(0, [0, 0], end, data.draw(st.integers(0, 10))) for _ in range(3)
        )

        assert between(source, a, c) == between(source, a, b) + between(source, b, c)


def test_the_end_of_a_file_is_the_beginning_of_the_next(tmp_path, suffix):
    put(tmp_path / f"a.{suffix}", range(3))
    put(tmp_path / f"b.{suffix}", range(3))
    source = Files(tmp_path)
    end = source.latest()[0]

    limits = [source.limit(0, [0, 0], end, rows) for rows in (0, 2, 3, 4, 6, 99, None)]

    assert [[0, 0], [0, 2], [1, 0], [1, 1], [2, 0], [2, 0], [2, 0]] == limits
    assert [0, 1] == source.limit(0, [0, 0], [0, 1], 2)


def test_files_new_at_a_look_come_by_name_and_after_those_seen_before(tmp_path, suffix):
    put(tmp_path / f"m.{suffix}", [1])
    put(tmp_path / f"z.{suffix}", [2])
    source = Files(tmp_path)
    first_look = source.latest()[0]

    put(tmp_path / f"y.{suffix}", [4])
    put(tmp_path / f"a.{suffix}", [3])

    assert [2, 0] == first_look
    assert [1, 2] == between(source, [0, 0], first_look)
    assert [3, 4] == between(source, first_look, source.latest()[0])
    assert [f"{name}.{suffix}" for name in "mzay"] == source.memory()


def test_directories_are_walked_in_the_order_of_relative_paths(tmp_path):
    for name, n in {"b/a": 2, "b": 1, "a/z": 0, "c/d/e": 3}.items():
        put(tmp_path / f"{name}.parquet", [n])

    source = Files(tmp_path)

    assert [0, 1, 2, 3] == everything(source)
    assert ["a/z.parquet", "b.parquet", "b/a.parquet", "c/d/e.parquet"] == source.memory()


def test_hidden_and_unfinished_files_are_left_out(tmp_path):
    put(tmp_path / "seen.parquet", [1])
    for name in ("_h.parquet", ".h.parquet", "_staging/s.parquet", ".x/s.parquet"):
        put(tmp_path / name, [9])
    put(tmp_path / "h.parquet", [9]).rename(tmp_path / "h.parquet.tmp")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to("nowhere")

    assert [1] == everything(Files(tmp_path))


def test_one_file_may_be_named(tmp_path, suffix):
    path = put(tmp_path / f"_one.{suffix}", [1, 2, 3])
    put(tmp_path / f"other.{suffix}", [9])

    assert [1, 2, 3] == everything(Files(path, bounded=True))


def test_a_new_process_gives_the_numbers_their_meaning_back(tmp_path):
    put(tmp_path / "m.parquet", [1, 2, 3])
    before = Files(tmp_path)
    end = before.latest()[0]
    middle = before.limit(0, [0, 0], end, 2)
    put(tmp_path / "a.parquet", [4])

    after = Files(tmp_path)
    after.recall(json.loads(json.dumps(before.memory())))

    assert [0, 2] == middle
    assert [3, 4] == between(after, middle, after.latest()[0])
    assert ["m.parquet", "a.parquet"] == after.memory()


@pytest.mark.parametrize(
    "memory",
    [None, "a", {"a": 1}, [1], [""], ["/etc/passwd"], ["../a"], ["a/../../b"], ["a//b"], ["./a"],
     ["a\0"], ["a", "a"]],
)  # fmt: skip
def test_a_strange_memory_is_refused(tmp_path, memory):
    source = Files(tmp_path, format="parquet", schema=N)

    with pytest.raises(CheckpointError, match=r"^the memory of a Files source "):
        source.recall(memory)


def test_the_memory_of_another_file_is_refused(tmp_path):
    source = Files(put(tmp_path / "a.parquet", [1]))

    with pytest.raises(CheckpointError, match=r"does not belong to"):
        source.recall(["b.parquet"])


def test_a_split_cannot_leave_the_directory(tmp_path):
    source = Files(tmp_path, format="parquet", schema=N)

    with pytest.raises(CheckpointError, match=r"names no file in its directory"):
        list(source.read({"file": "../a.parquet", "from": 0, "to": None}))


@pytest.mark.parametrize("offset", [3, [1], [0, -1], ["0", 0], [0, 0, 0], None])
def test_a_strange_offset_is_refused(tmp_path, offset):
    source = Files(tmp_path, format="parquet", schema=N)

    with pytest.raises(CheckpointError, match=r"must be \[file number, row\]"):
        source.plan({0: [0, 0]}, {0: offset})


def test_an_offset_of_a_file_never_seen_is_refused(tmp_path):
    source = Files(tmp_path, format="parquet", schema=N)

    with pytest.raises(CheckpointError, match=r"^an offset names file 0 of .* not known\n"):
        source.plan({0: [0, 0]}, {0: [1, 0]})


def test_a_bounded_source_looks_once_and_finishes(tmp_path):
    put(tmp_path / "b.parquet", [1])
    bounded, unbounded = Files(tmp_path, bounded=True), Files(tmp_path)
    for source in (bounded, unbounded):
        source.latest()
    put(tmp_path / "a.parquet", [2])

    assert [True, False] == [source.finished(0) for source in (bounded, unbounded)]
    assert [[1, 0], [2, 0]] == [source.latest()[0] for source in (bounded, unbounded)]


def test_a_bounded_source_holds_after_a_restart_what_it_held_before(tmp_path):
    put(tmp_path / "b.parquet", [1])
    before = Files(tmp_path, bounded=True)
    before.latest()
    put(tmp_path / "a.parquet", [2])

    after = Files(tmp_path, bounded=True)
    after.recall(before.memory())

    assert {0: [1, 0]} == after.latest()


def test_a_bounded_source_that_died_before_its_look_looks(tmp_path):
    put(tmp_path / "b.parquet", [1])
    source = Files(tmp_path, bounded=True)

    source.recall(Files(tmp_path, bounded=True).memory())

    assert {0: [1, 0]} == source.latest()


def test_format_and_schema_are_those_of_the_first_file(tmp_path):
    put(tmp_path / "b.parquet", [1], schema={"n": pl.Int32})
    put(tmp_path / "a.arrow", [1])

    assert pl.Schema(N) == Files(tmp_path).schema


def test_an_empty_directory_needs_a_format_and_a_schema(tmp_path):
    with pytest.raises(ProgramError, match=r"^Files: the format of .* is not known\n") as refused:
        Files(tmp_path, schema=N)
    assert 'pass format="parquet"' == refused.value.so
    with pytest.raises(ProgramError, match=r"holds no file yet from which to take") as refused:
        Files(tmp_path, format="parquet")
    assert 'pass schema={"column": pl.Int64, ...}' == refused.value.so

    source = Files(tmp_path, format="parquet", schema=N)
    assert {0: [0, 0]} == source.latest()
    assert [] == everything(source)


def test_a_format_that_does_not_exist_is_refused_with_those_that_do(tmp_path):
    with pytest.raises(ProgramError, match=r"^Files: no format 'orc'\n") as refused:
        Files(tmp_path, format="orc")
    assert "parquet, arrow, csv, jsonl" == refused.value.have
    (tmp_path / "a.orc").write_text("n\n1\n")
    with pytest.raises(ProgramError, match=r"no format has the suffix '\.orc'\n") as refused:
        Files(tmp_path)
    assert "parquet, arrow, csv, jsonl" == refused.value.have


def test_a_directory_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ProgramError, match=r"/none does not exist\n"):
        Files(tmp_path / "none", format="parquet", schema=N)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"n": pl.Series([1], dtype=pl.Int32)}, "column 'n' is Int32, expected Int64"),
        ({"m": [1]}, "column 'n' is missing, expected Int64"),
        ({"n": [1], "m": ["x"]}, "column 'm' is String, expected no such column"),
    ],
)
def test_a_file_of_another_schema_is_named_with_the_column(tmp_path, suffix, columns, why):
    put(tmp_path / f"a.{suffix}", [1])
    source = Files(tmp_path)
    put(tmp_path / f"b.{suffix}", [1])
    frame = pl.DataFrame(columns)
    path = tmp_path / f"b.{suffix}"
    frame.write_parquet(path) if suffix == "parquet" else frame.write_ipc(path)

    told = only_unread(source, [1, 0], source.latest()[0])

    assert f"it does not have the columns of its source: {why}" == told["why"]
    assert {"file": str(path), "line": None, "text": None, "why": told["why"]} == told


def test_columns_may_be_in_another_order_and_text_in_another_encoding(tmp_path):
    parquet.write_table(pa.table({"s": pa.array(["x"]), "n": [1]}), tmp_path / "a.parquet")
    parquet.write_table(
        pa.table({"n": [2], "s": pa.array(["y"], pa.large_string())}), tmp_path / "b.parquet"
    )
    source = Files(tmp_path)

    batches = [b for s in source.plan({}, source.latest()) for b in source.read(s)]

    assert 1 == len({str(batch.schema) for batch in batches})
    assert [{"s": "x", "n": 1}, {"s": "y", "n": 2}] == pa.Table.from_batches(batches).to_pylist()


def test_a_truncated_file_is_named(tmp_path, suffix):
    put(tmp_path / f"a.{suffix}", [1])
    source = Files(tmp_path)
    path = put(tmp_path / f"b.{suffix}", range(100))
    path.write_bytes(path.read_bytes()[:-20])

    told = only_unread(source, [1, 0], source.latest()[0])

    assert str(path) == told["file"]
    assert told["why"]
    assert [2, 0] == source.limit(0, [1, 0], [2, 0], 5) == source.limit(0, [1, 0], [2, 0], 1)
    assert [1, 0] == source.limit(0, [1, 0], [2, 0], 0)


def test_a_file_that_was_cut_is_no_bad_one_when_it_is_damaged_but_a_changed_one(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", range(100))
    source = Files(tmp_path)
    end = source.latest()[0]
    middle = source.limit(0, [0, 0], end, 1)
    path.write_bytes(path.read_bytes()[:-20])
    source.recall(source.memory())

    for start, stop in [([0, 0], middle), (middle, end)]:
        with pytest.raises(RunError, match=rf"a\.{suffix} has fewer rows than it had: 0, not 1 or"):
            between(source, start, stop)
    with pytest.raises(RunError, match=rf"a\.{suffix} has fewer rows than it had: 0, not 1 or"):
        source.limit(0, middle, end, 5)


OPENERS = {"parquet": (pl.LazyFrame, "collect_schema"), "arrow": (pa, "OSFile")}


def test_a_file_that_the_system_does_not_let_read_is_no_bad_one(tmp_path, suffix, monkeypatch):
    put(tmp_path / f"a.{suffix}", [1])
    source = Files(tmp_path)
    end = source.latest()[0]
    put(tmp_path / f"b.{suffix}", [1])

    def refused(*_):
        raise PermissionError(errno.EACCES, "not for you")

    monkeypatch.setattr(*OPENERS[suffix], refused)
    with pytest.raises(RunError, match=rf"^Files: .*/a\.{suffix} cannot be read\n.*not for you"):
        between(source, [0, 0], end)


def test_names_of_files_are_no_patterns(tmp_path, suffix):
    put(tmp_path / f"a[1]*?.{suffix}", [1, 2])
    source = Files(tmp_path)
    (split,) = source.plan({}, source.latest())

    assert [1, 2] == source.frame(split)["n"].to_list() == everything(source)


def test_a_vanished_file_is_named(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", [1])
    source = Files(tmp_path)
    end = source.latest()[0]
    path.unlink()

    with pytest.raises(RunError, match=rf"^Files: .*/a\.{suffix} has vanished\n"):
        between(source, [0, 0], end)
    with pytest.raises(RunError, match=rf"^Files: .*/a\.{suffix} has vanished\n"):
        source.limit(0, [0, 0], end, 1)


def test_a_vanished_directory_is_named(tmp_path):
    put(tmp_path / "in" / "a.parquet", [1])
    source = Files(tmp_path / "in")
    (tmp_path / "in" / "a.parquet").unlink()
    (tmp_path / "in").rmdir()

    with pytest.raises(RunError, match=r"^Files: the directory .*/in cannot be read\n"):
        source.latest()


def test_a_file_that_lost_rows_is_named(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", range(9))
    source = Files(tmp_path)
    end = source.latest()[0]
    middle = source.limit(0, [0, 0], end, 6)
    put(path, range(3))

    for start, stop in [([0, 0], middle), (middle, end)]:
        with pytest.raises(RunError, match=r"has fewer rows than it had: 3, not 6 or more\n"):
            between(source, start, stop)


def test_a_file_seen_and_read_may_go(tmp_path):
    path = put(tmp_path / "a.parquet", [1])
    source = Files(tmp_path)
    end = source.latest()[0]
    path.unlink()
    put(tmp_path / "b.parquet", [2])

    assert [2] == between(source, end, source.latest()[0])


def test_batches_are_bounded(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", range(BATCH_ROWS + 10), rows_per_group=BATCH_ROWS * 2)
    source = Files(path)
    source.latest()

    (split,) = source.plan({0: [0, 1]}, {0: [0, BATCH_ROWS + 5]})
    batches = list(source.read(split))

    assert all(batch.num_rows <= BATCH_ROWS for batch in batches)
    assert BATCH_ROWS + 4 == sum(batch.num_rows for batch in batches)


def test_types_come_back_as_they_were(tmp_path, suffix):
    frame = pl.DataFrame(
        {
            "at": pl.Series([datetime(2024, 1, 1, tzinfo=UTC)], dtype=pl.Datetime("us", "UTC")),
            "kind": pl.Series(["b"], dtype=pl.Enum(["a", "b"])),
            "tags": [["x", None]],
            "who": [{"id": 1, "name": "n"}],
        }
    )
    path = tmp_path / f"a.{suffix}"
    frame.write_parquet(path) if suffix == "parquet" else frame.write_ipc(path)
    source = Files(path)

    (batch,) = source.read(source.plan({}, source.latest())[0])

    assert frame.schema == source.schema
    assert frame.equals(pl.DataFrame(batch))


def test_a_copy_in_another_process_and_place_reads_the_same(tmp_path, monkeypatch):
    put(tmp_path / "in" / "a.parquet", [1, 2])
    monkeypatch.chdir(tmp_path)
    source = Files("in")
    end = source.latest()[0]
    monkeypatch.chdir("/")

    assert [1, 2] == between(pickle.loads(pickle.dumps(source)), [0, 0], end)
