"""Rows that a source could not read: the kernel does with them what the oracle does."""

import json
from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.connectors.base import Source
from anabranch.errors import ProgramError, RunError
from anabranch.testing import run_sequential
from tests.connectors.torn import Torn
from tests.kernels.inline import Choices, logged, run_inline

SCHEMA = {"t": pl.Datetime("us"), "k": pl.String, "n": pl.Int64}
BEGIN = datetime(2024, 1, 1)

items = st.lists(
    st.sampled_from(["torn", 'to"rn,'])
    | st.fixed_dictionaries(
        {
            "t": st.none() | st.integers(0, 9).map(lambda s: BEGIN + timedelta(seconds=s)),
            "k": st.sampled_from(["a", "b"]),
            "n": st.integers(0, 5),
        }
    ),
    max_size=12,
)


def program(given, partitions, shape, on_error, event_time):
    made = ab.Program("p")
    source = Torn(given, SCHEMA, partitions)
    read = made.read(source, event_time=event_time, lateness="2 s", on_error=on_error)
    {
        "letters": lambda s: s.dead_letters,
        "rows": lambda s: s,
        "one column": lambda s: s.select("k"),
        "no column": lambda s: s.select(x=pl.lit(1)),
        "sums": lambda s: s.key_by("k").reduce(lambda a, b: {**a, "n": a["n"] + b["n"]}),
    }[shape](read).write(ab.sinks.Memory("out"))
    return made


@given(
    items,
    st.integers(1, 2),
    st.sampled_from(
        [("letters", "dead_letter"), ("rows", "dead_letter"), ("rows", "skip")]
        + [(shape, "skip") for shape in ("one column", "no column", "sums")]
    ),
    st.sampled_from([None, "t"]),
    st.integers(1, 5),
)
def test_rows_and_letters_are_the_sequential_program_s(
    given, partitions, shape, event_time, epoch_rows
):
    made = program(given, partitions, *shape, event_time)
    expected = run_sequential(made, epoch_rows=epoch_rows)["out"]

    ran = run_inline(made, logged(made, epoch_rows), Choices())

    assert expected == ran.rows
    assert ran.error is None
    timeless = [each for each in given if isinstance(each, dict) and each["t"] is None]
    torn = [each for each in given if isinstance(each, str)]
    assert len(torn) + (len(timeless) if event_time else 0) == ran.letters


@pytest.mark.parametrize("event_time", [None, "t"])
@pytest.mark.parametrize("shape", ["rows", "one column", "no column", "sums"])
def test_a_run_that_may_not_fail_tells_the_row_whatever_its_program_looks_at(shape, event_time):
    rows = [{"t": BEGIN, "k": "a", "n": 1}, "torn"]
    made = program(rows, 1, shape, "fail", event_time)

    error = run_inline(made, logged(made, 5), Choices()).error

    assert ("read-1", None) == (error.operator, error.record)
    assert "line 2 of torn-0 cannot be read: it is torn" == error.text
    assert error.so.startswith("mend the file")
    with pytest.raises(RunError, match=r"^read-1 failed: line 2 of torn-0 cannot be read: it is"):
        run_sequential(made)


def test_a_letter_tells_why_and_the_text():
    made = program(["a,b"], 1, "letters", "dead_letter", None)

    (letter,) = run_inline(made, logged(made, 5), Choices()).rows

    record = json.loads(letter.pop("record"))
    assert {"file": "torn-0", "line": 1, "text": "a,b"} == record
    assert {
        "operator": "read-1",
        "source": "read-1",
        "partition": "0",
        "offset": 0,
        "epoch": 0,
        "reason": "unread",
        "error": "it is torn",
        "traceback": None,
    } == letter


def test_a_row_that_is_passed_over_is_quarantined_whether_it_can_be_read_or_not():
    made = program(["torn", "torn"], 1, "letters", "dead_letter", "t")
    log = [ab.testing.Cut("read-1", {0: (0, 2)}, quarantined=frozenset({(0, 1)}))]
    expected = run_sequential(made, log=log)["out"]
    assert ["unread", "quarantined"] == [each["reason"] for each in expected]

    assert expected == run_inline(made, log, Choices()).rows


def test_the_column_for_such_rows_is_none_of_the_source_s_own():
    source = Torn([], {"torn": pl.Int64})
    with pytest.raises(ProgramError, match=r"could not read in one of its own columns, 'torn'"):
        ab.Program("p").read(source)


def test_a_column_of_another_type_is_told():
    class Wrong(Torn):
        def read(self, split):
            yield from pl.DataFrame({"n": [1], "torn": ["x"]}).to_arrow().to_batches()

    made = ab.Program("p")
    made.read(Wrong(["torn"], {"n": pl.Int64})).write(ab.sinks.Memory("out"))

    error = run_inline(made, logged(made, 5), Choices()).error

    assert "'torn' is String, expected Struct" in error.text
    with pytest.raises(RunError, match="the source gave other columns than it said"):
        run_sequential(made)


def test_most_sources_have_no_such_rows():
    assert Source.unread is None
    assert ab.sources.Records([{"n": 1}]).unread is None
