"""CSV and JSON Lines as sources: read by their schema or refused, and the same at every reading."""

import json
import math
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.connectors import text_blocks
from anabranch.connectors.file_source import Files
from anabranch.connectors.rows import BATCH_ROWS
from anabranch.errors import CheckpointError, ProgramError, RunError

N = {"n": pl.Int64}
NS = {"n": pl.Int64, "s": pl.String}
FORMATS = ["csv", "jsonl"]
TEXTS = st.text(st.sampled_from("ab\",\n\r \t'{}[]:\\é\u2028\x00"), max_size=6)


def spelled(suffix, rows, columns):
    """A file as other programs write it."""
    if suffix == "jsonl":
        return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
    quoted = [["" if v is None else _in_quotes(v) for v in row] for row in [columns, *rows]]
    return "".join(",".join(row) + "\n" for row in quoted)


def _in_quotes(value):
    """Texts are quoted only where they must be: `\r\n` at a row's end is another line end."""
    text = str(value)
    plain = text and not set(text) & set('",\n\r')
    return text if plain else '"' + text.replace('"', '""') + '"'


def put(path, numbers):
    path.write_text(spelled(path.suffix[1:], [[n] for n in numbers], ["n"]))
    return path


def rows_between(source, start, end):
    splits = json.loads(json.dumps(source.plan({0: start}, {0: end})))
    return [
        row
        for split in splits
        for batch in source.read(split)
        for row in pl.DataFrame(batch).rows()
    ]


def everything(source):
    return rows_between(source, source.first(0), source.latest()[0])


def told(source):
    """What is told of the rows that cannot be read, by their places, and all the other rows."""
    found, rows = {}, []
    (split,) = source.plan({}, source.latest())
    for number, row in enumerate(source.frame(split).rows(named=True)):
        unread = row.pop(source.unread, None)
        if unread is None:
            rows.append(tuple(row.values()))
        else:
            assert {None} == {*row.values()}
            found[number] = unread
    return found, rows


def content(path, text, schema=NS):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return everything(Files(path, schema=schema))


def refusal(path, text, schema=NS):
    """What is told of the first row that cannot be read, or of the file itself."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found, *_ = told(Files(path, schema=schema))[0].values()
    assert str(path) == found["file"]
    return found


@pytest.fixture(params=FORMATS)
def suffix(request):
    return request.param


# ---- Ranges -----------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None)  # how fast the machine is says nothing
@given(
    st.sampled_from(FORMATS),
    st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | TEXTS), max_size=12),
    st.integers(1, 40),
    st.data(),
)
def test_any_cuts_of_any_text_give_the_rows_that_were_written(suffix, rows, block, data):
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK_BYTES", block)
        (Path(directory) / f"a.{suffix}").write_text(spelled(suffix, rows, list(NS)), newline="")
        source = Files(directory, schema=NS)
        end = source.latest()[0]

        at, found = [0, 0], []
        while at < end:
            after = source.limit(0, at, end, data.draw(st.integers(1, 5)))
            part = rows_between(source, at, after)
            assert part == rows_between(source, at, after)
            found += part
            at = after

        assert rows == found == everything(source)


def test_both_keep_the_contract_of_sources(tmp_path, suffix):
    schema = {"at": pl.Datetime("us"), **NS}
    names, later = iter("bcdefgh"), iter(range(5, 99))

    def more():
        start = next(later)
        rows = [[f"2026-01-01T00:00:{start + i:02}", i, f"x,{i}\n"] for i in range(7)]
        hidden = tmp_path / ".new"
        hidden.write_text(spelled(suffix, rows, list(schema)))
        hidden.rename(tmp_path / f"{next(names)}.{suffix}")

    more()
    make = lambda: Files(tmp_path, schema=schema)  # noqa: E731 - what makes it anew
    ab.testing.check_source(make(), advance=more, again=make, event_time="at")
    ab.testing.check_source(make(), rows=5, advance=more)


def test_batches_are_bounded(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", range(BATCH_ROWS + 10))
    source = Files(path, schema=N)
    source.latest()

    (split,) = source.plan({0: [0, 1]}, {0: [0, BATCH_ROWS + 5]})
    heights = [batch.num_rows for batch in source.read(split)]

    assert max(heights) <= BATCH_ROWS
    assert BATCH_ROWS + 4 == sum(heights)


def test_a_cut_inside_a_file_is_read_from_a_block_near_it(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 16)
    source = Files(put(tmp_path / f"a.{suffix}", range(1000, 1100)), schema=N)
    end = source.latest()[0]
    middle = source.limit(0, [0, 0], end, 50)

    (split,) = source.plan({0: middle}, {0: source.limit(0, middle, end, 3)})

    assert 0 < split["near"][1] < (tmp_path / f"a.{suffix}").stat().st_size
    assert [(1050,), (1051,), (1052,)] == [
        row for batch in source.read(split) for row in pl.DataFrame(batch).rows()
    ]


# ---- Types ------------------------------------------------------------------------------------

PLAIN = {
    "flag": pl.Boolean,
    "small": pl.UInt8,
    "ratio": pl.Float64,
    "price": pl.Decimal(10, 2),
    "kind": pl.Enum(["a", "b"]),
    "day": pl.Date,
    "at": pl.Datetime("us"),
    "zoned": pl.Datetime("ms", "Europe/Berlin"),
}


def test_values_are_of_the_declared_types(tmp_path, suffix):
    row = ["true", 255, 1, "12.5", "b", "2026-01-31", "2026-01-31T12:00:00.000001",
           "2026-01-31T12:00:00+02:00"]  # fmt: skip
    if suffix == "jsonl":
        row[0], row[3] = True, 12.5
    text = spelled(suffix, [row, [None] * len(row)], list(PLAIN))

    found, nothing = content(tmp_path / f"a.{suffix}", text, PLAIN)

    assert (True, 255, 1.0, Decimal("12.50"), "b", date(2026, 1, 31)) == found[:6]
    assert datetime(2026, 1, 31, 12, 0, 0, 1) == found[6]
    assert datetime(2026, 1, 31, 10, tzinfo=UTC) == found[7]
    assert (None,) * len(row) == nothing


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("flag", "yes"), ("small", 256), ("small", -1), ("small", 1.5), ("small", "x"),
        ("ratio", "much"), ("price", "1.234"), ("kind", "c"), ("day", "31.1.2026"),
        ("at", "2026-02-30T00:00:00"), ("at", "2026-01-31T00:00:00.0000001"),
        ("at", "2026-01-31T00:00:00Z"), ("zoned", "2026-01-31T00:00:00"), ("at", "soon"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_named_by_file_line_and_column(
    tmp_path, suffix, column, value
):
    rows = [[None] * len(PLAIN) for _ in range(100)]
    rows[70][list(PLAIN).index(column)] = value
    line = 71 + (suffix == "csv")

    refused = refusal(tmp_path / f"a.{suffix}", spelled(suffix, rows, list(PLAIN)), PLAIN)

    assert line == refused["line"]
    assert f"column {column!r} is {pl.Schema(PLAIN)[column]}, got " in refused["why"]
    assert str(value) in refused["why"]
    assert str(value) in refused["text"]


def test_a_value_that_does_not_fit_is_told_though_nobody_reads_its_column(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_text(spelled(suffix, [["x", "y"]], ["n", "s"]))
    source = Files(path, schema=NS)
    (split,) = source.plan({}, source.latest())

    frame = source.frame(split, ["s"])

    assert ["s", "unread"] == frame.columns
    assert frame["unread"][0]["why"].startswith("column 'n' is Int64, got ")


@pytest.mark.parametrize("dtype", [pl.Time, pl.Duration, pl.Binary, pl.Null, pl.Int128])
def test_a_type_without_a_spelling_is_refused_at_once(tmp_path, suffix, dtype):
    with pytest.raises(ProgramError, match=rf"^Files: {suffix} holds no column of type"):
        Files(tmp_path, format=suffix, schema={"n": dtype})


def test_a_schema_must_be_given(tmp_path, suffix):
    put(tmp_path / f"a.{suffix}", [1])

    with pytest.raises(ProgramError, match=rf"^Files: {suffix} says no types, so ") as refused:
        Files(tmp_path)

    assert 'pass schema={"column": pl.Int64, ...}' == refused.value.so


# ---- CSV --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("n,s\n1,a\n2,b", [(1, "a"), (2, "b")]),
        ("s,n\r\na,1\r\n", [(1, "a")]),
        ("\ufeffn,s\n1,a\n", [(1, "a")]),
        ('\ufeff"n","s"\n1,a\n', [(1, "a")]),
        ("n,s\n\n1,a\n\r\n\n", [(1, "a")]),
        ('n,s\n,\n,""\n', [(None, None), (None, "")]),
        ('n,s\n1,"a,""b""\r\n\n c"\n', [(1, 'a,"b"\r\n\n c')]),
        ("n,s\n 1 , a \n", [(1, " a ")]),
        ("n,s\n1,NULL\n", [(1, "NULL")]),
        ("n,s\n", []),
    ],
)
def test_csv_is_read_as_rfc_4180_has_it(tmp_path, text, rows):
    assert rows == content(tmp_path / "a.csv", text)


def test_an_empty_line_of_a_single_column_is_a_null(tmp_path):
    assert [(1,), (None,), (2,)] == content(tmp_path / "a.csv", "n\n1\n\n2\n", N)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("n,s\n1,a\n1\n", 3, "it has 1 values, and the header has 2 names"),
        ('n,s\n1,"a\n\nb"\n1,a,b\n', 5, "it has 3 values, and the header has 2 names"),
        ('n,s\n1,a"b\n', 2, "a quote or a carriage return is in a field that is not in quotes"),
        ('n,s\n1,"a\n', 2, "a quote or a carriage return is in a field that is not in quotes"),
        ('n,s\n1,"a"b\n', 2, "a quote or a carriage return is in a field that is not in quotes"),
        ("n,s\n1,a\rb\n", 2, "a quote or a carriage return is in a field that is not in quotes"),
        ('n,s\n"",a\n', 2, "column 'n' is Int64, got '\"\"'"),
    ],
)
def test_a_row_that_is_no_csv_is_named_by_its_line(tmp_path, text, line, why):
    refused = refusal(tmp_path / "a.csv", text)

    assert (line, why) == (refused["line"], refused["why"])


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("n", "column 's' is missing, expected String"),
        ("n,S", "column 's' is missing, expected String"),
        ("n,s,m", "column 'm' is String, expected no such column"),
        ("n,s,n", "column 'n' is there twice"),
    ],
)
def test_a_header_of_other_columns_is_refused(tmp_path, header, why):
    refused = refusal(tmp_path / "a.csv", header + "\n1,a\n1,a,b\n")

    assert f"it does not have the columns of its source: {why}" == refused["why"]
    assert (None, None) == (refused["line"], refused["text"])


@pytest.mark.parametrize("text", ["", "\n1,a\n", "\ufeff"])
def test_a_file_without_a_header_is_refused(tmp_path, text):
    assert refusal(tmp_path / "a.csv", text)["why"].startswith("it has no header")


def test_csv_holds_nothing_nested(tmp_path):
    with pytest.raises(ProgramError, match=r"^Files: csv holds no column of type List"):
        Files(tmp_path, format="csv", schema={"n": pl.List(pl.Int64)})


def test_a_quote_that_is_never_closed_does_not_take_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(text_blocks, "RECORD_BYTES", 1000)

    with pytest.raises(RunError, match=r"^Files: the record at line 3 of ") as refused:
        content(tmp_path / "a.csv", 'n,s\n1,a\n2,"' + "x\n" * 1000)

    assert "look for a quote that is not closed, or for lost line ends" == refused.value.so


# ---- JSON Lines -------------------------------------------------------------------------------

NESTED = {"p": pl.Struct({"x": pl.Int32, "days": pl.List(pl.Date)}), "n": pl.Float64}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('{"n": 1, "s": "a"}\n{"s": null, "n": 2}', [(1, "a"), (2, None)]),
        ('{"s": "b"}\r\n {} \n\n \t\n{"n":1}\n', [(None, "b"), (None, None), (1, None)]),
        ('\ufeff{"n": 1}\n', [(1, None)]),
        ('{"s": "\\u00e9\\n\\u2028 \u2028}{"}\n', [(None, "é\n\u2028 \u2028}{")]),
        ("", []),
    ],
)
def test_json_lines_are_objects_with_missing_keys_for_nulls(tmp_path, text, rows):
    assert rows == content(tmp_path / "a.jsonl", text)


def test_nested_values_are_read_by_the_schema(tmp_path):
    text = '{"p": {"days": ["2026-01-31", null], "x": 1}, "n": 1}\n{"p": {}}\n{"p": null, "n": NaN}'

    first, second, third = content(tmp_path / "a.jsonl", text, NESTED)

    assert ({"x": 1, "days": [date(2026, 1, 31), None]}, 1.0) == first
    assert ({"x": None, "days": None}, None) == second
    assert third[0] is None
    assert math.isnan(third[1])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"n": 1} {"n": 2}', "it is no JSON: Extra data"),
        ('{"n": 1', "it is no JSON: Expecting"),
        ('{"n":\n1}', "it is no JSON: Expecting"),
        ('{"n": 1},', "it is no JSON: Extra data"),
        ("[1, 2]", "it is no JSON object but [1, 2]"),
        ('{"n": 1, "m": "x"}', "column 'm' is \"x\", expected no such column"),
        ('{"n": 1, "n": 2}', "JSON parse error: Column(/n) was specified twice"),
        ('{"n": "1"}', "column 'n' is Int64, got \"1\""),
        ('{"n": 1.0}', "column 'n' is Int64, got 1.0"),
        ('{"n": true}', "column 'n' is Int64, got true"),
        ('{"n": 9223372036854775808}', "column 'n' is Int64, got 9223372036854775808"),
        ('{"s": 1}', "column 's' is String, got 1"),
        ('{"s": "\\ud800"}', "column 's' is String, got "),
    ],
)
def test_a_line_that_does_not_fit_is_named_with_its_reason(tmp_path, text, why):
    refused = refusal(tmp_path / "a.jsonl", f'{{"n": 1}}\n\n{{}}\n{text}\n{{}}\n')

    assert 4 == refused["line"]
    assert refused["why"].startswith(why)


@pytest.mark.parametrize("value", ['{"y": 1}', '{"x": 1.5}', '{"days": ["soon"]}', "[]", "1"])
def test_a_nested_value_that_does_not_fit_is_refused(tmp_path, value):
    refused = refusal(tmp_path / "a.jsonl", f'{{"p": {value}}}\n', NESTED)

    assert refused["why"].startswith("column 'p' is Struct(")
    assert value in refused["why"]


# ---- Files that are not whole -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        ("csv", b"n,s\n1,\xc3\xa9\n2,a\xff\n3,b\n", {1: (3, 4, "2,a\\xff")}),
        (
            "csv",
            b'n,s\n1,"a\n\xff\n"\n3,b\n4,\xff\n',
            {0: (2, 1, '1,"a\n\\xff\n"'), 2: (6, 3, "4,\\xff")},
        ),
        ("csv", b"\xef\xbb\xbfn,s\n\n1,\xff", {0: (3, 3, "1,\\xff")}),
        ("jsonl", b'\n{"s": "\xe9"}\n{"s": "\xc3\xa9"}\n', {0: (2, 8, '{"s": "\\xe9"}')}),
    ],
)
def test_a_row_that_is_not_utf_8_is_told_with_its_place(
    tmp_path, monkeypatch, suffix, text, expected
):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(text)
    for block in (8, 1000):
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block)

        found, _ = told(Files(path, schema=NS))

        assert list(expected) == list(found)
        for number, (line, place, shown) in expected.items():
            assert (line, shown) == (found[number]["line"], found[number]["text"])
            assert f"it is not UTF-8: byte {place} of line " in found[number]["why"]


def test_a_header_that_is_not_utf_8_takes_the_file(tmp_path):
    refused = refusal(tmp_path / "a.csv", "n,s\n1,a\n".encode("utf-16"))

    assert refused["why"].startswith("its header cannot be read: it is not UTF-8: byte 1 of line 1")
    assert refused["line"] is None


def test_a_file_that_is_written_under_another_name_is_seen_once_it_is_renamed(tmp_path, suffix):
    source = Files(tmp_path, format=suffix, schema=N)
    for hidden in (f"_a.{suffix}", f".a.{suffix}", f"a.{suffix}.tmp"):
        put(tmp_path / hidden, [1])
        assert [] == everything(source)
        (tmp_path / hidden).unlink()
    put(tmp_path / f".a.{suffix}", [1, 2]).rename(tmp_path / f"a.{suffix}")

    assert [(1,), (2,)] == everything(source)


def test_a_file_that_grows_after_it_was_seen_is_refused(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", [1, 2])
    source = Files(tmp_path, schema=N)
    end = source.latest()[0]
    before = path.stat().st_size
    put(path, [1, 2, 3])

    for refused in (
        lambda: rows_between(source, [0, 0], end),
        lambda: source.limit(0, [0, 0], end, 1),
        source.latest,
    ):
        with pytest.raises(RunError, match=r"has changed since it was first seen") as failed:
            refused()
        assert str(path) in failed.value.what
        assert f"it has {path.stat().st_size} bytes, and had {before}" == failed.value.why


def test_a_file_that_has_grown_since_its_rows_were_committed_is_refused(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", [1, 2])
    before = Files(tmp_path, schema=N)
    end = before.latest()[0]
    after = Files(tmp_path, schema=N)
    after.recall(json.loads(json.dumps(before.memory())))
    put(path, [1, 2, 3])

    assert end == after.latest()[0]
    for committed in (end, [0, 1]):
        after.recall(before.memory())
        with pytest.raises(RunError, match=r"has changed since it was first seen"):
            after.plan({0: committed}, {0: end})


def test_a_new_run_may_find_a_mended_file_of_which_nothing_was_committed(tmp_path, suffix):
    put(tmp_path / f"a.{suffix}", [1, 2])
    put(tmp_path / f"b.{suffix}", ["bad"])
    before = Files(tmp_path, schema=N)
    end = before.latest()[0]
    ((_, unread),) = rows_between(before, [1, 0], end)
    assert unread["why"].startswith("column 'n' is Int64, got")
    put(tmp_path / f"b.{suffix}", [3])
    after = Files(tmp_path, schema=N)
    after.recall(json.loads(json.dumps(before.memory())))

    assert end == after.latest()[0]
    assert [(3,)] == rows_between(after, [1, 0], end)


def test_a_vanished_file_is_named_and_one_that_was_read_may_go(tmp_path, suffix):
    path = put(tmp_path / f"a.{suffix}", [1])
    source = Files(tmp_path, schema=N)
    end = source.latest()[0]
    path.unlink()

    with pytest.raises(RunError, match=rf"^Files: .*/a\.{suffix} has vanished\n"):
        rows_between(source, [0, 0], end)
    put(tmp_path / f"b.{suffix}", [2])
    assert [(2,)] == rows_between(source, end, source.latest()[0])


@pytest.mark.parametrize(
    "memory", [None, ["a"], [["a"]], [["a", -1]], [["a", "1"]], [["../a", 1]], [["a", 1], "b"]]
)
def test_a_strange_memory_is_refused(tmp_path, suffix, memory):
    source = Files(tmp_path, format=suffix, schema=N)

    with pytest.raises(CheckpointError, match=r"^the memory of a Files source "):
        source.recall(memory)


# ---- Rows that do not fit ---------------------------------------------------------------------


@settings(deadline=None, max_examples=50)  # how fast the machine is says nothing
@given(
    st.sampled_from(FORMATS),
    st.lists(st.none() | st.integers(0, 9) | st.just("bad"), max_size=20),
    st.integers(8, 60),
    st.data(),
)
def test_a_row_that_does_not_fit_is_told_where_it_is_and_all_others_are_read(
    suffix, values, block, data
):
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK_BYTES", block)
        path = Path(directory) / f"a.{suffix}"
        rows = [[value, f"{number}\n"] for number, value in enumerate(values)]
        path.write_text(spelled(suffix, rows, list(NS)))
        source = Files(path, schema=NS)

        found, read = told(source)

        bad = [number for number, value in enumerate(values) if value == "bad"]
        assert bad == list(found)
        assert [tuple(row) for row in rows if row[0] != "bad"] == read
        for number, wrong in found.items():
            assert (str(path), "bad" in wrong["text"]) == (wrong["file"], True)
            assert (2 * number + 2 if suffix == "csv" else number + 1) == wrong["line"]
            assert wrong["why"].startswith("column 'n' is Int64, got ")
        at = source.limit(0, [0, 0], source.latest()[0], data.draw(st.integers(1, 20)))
        parts = [rows_between(source, [0, 0], at), rows_between(source, at, source.latest()[0])]
        assert [len(row) > len(NS) and row[-1] is not None for part in parts for row in part] == [
            value == "bad" for value in values
        ]


def test_no_column_is_added_where_all_rows_fit(tmp_path, suffix):
    source = Files(put(tmp_path / f"a.{suffix}", [1, 2]), schema=N)
    (split,) = source.plan({}, source.latest())

    assert ["n"] == source.frame(split).columns
    assert ["n"] == [name for batch in source.read(split) for name in batch.schema.names]


def test_the_column_has_another_name_where_the_files_have_that(tmp_path, suffix):
    schema = {"unread": pl.Int64, "unread_": pl.Int64}
    assert "unread__" == Files(tmp_path, format=suffix, schema=schema).unread


def test_a_source_with_such_rows_keeps_the_contract(tmp_path, suffix):
    put(tmp_path / f"a.{suffix}", [1, "x", 2, "y", None])
    (tmp_path / f"b.{suffix}").write_text("m\n1\n2\n")
    put(tmp_path / f"c.{suffix}", [1, 2])

    ab.testing.check_source(
        Files(tmp_path, schema=N), advance=lambda: put(tmp_path / f"a0.{suffix}", ["x", 1])
    )
