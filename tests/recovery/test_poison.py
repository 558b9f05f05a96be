"""Records that end every process that works on them: found, then passed over or named."""

import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.isolation import least_that_dies
from anabranch.simulate.inline import Death, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, run_sequential

SCHEMA = {"t": pl.Int64, "k": pl.String, "n": pl.Int64, "kill": pl.String}
DEADLY = "a record that must not get here"


@ab.operator(out={"t": pl.Int64, "k": pl.String, "n": pl.Int64, "kill": pl.String})
def in_heads(record):
    if record["kill"] == "head":
        raise Death(DEADLY)
    yield record


@ab.operator(out={"k": pl.String, "n": pl.Int64, "sum": pl.Int64})
def in_lanes(record, state):
    if record["kill"] == "lane":
        raise Death(DEADLY)
    state.value = (state.value or 0) + record["n"]
    yield {"k": record["k"], "n": record["n"], "sum": state.value}


def rows_of(kills):
    return [{"t": at, "k": "ab"[at % 2], "n": at, "kill": kill} for at, kill in enumerate(kills)]


def program_of(kills, *, on_error="dead_letter", partitions=1):
    program = ab.Program("poison")
    source = ab.sources.Records(rows_of(kills), schema=SCHEMA, partitions=partitions)
    read = program.read(source, event_time="t", on_error=on_error, name="in")
    out, letters = ab.sinks.Memory("out"), ab.sinks.Memory("letters")
    read.flat_map(in_heads).key_by("k").process(in_lanes).write(out, name="out")
    if on_error == "dead_letter":
        read.dead_letters.write(letters, name="letters")
    return program, out, letters


def run(program, checkpoint, *, rows=7, lanes=2):
    chosen = Settings(available_now(rows), checkpoint, lanes, slices=8, keep=None, in_flight=16)
    assembled = assemble(program.freeze(), chosen, InlineExecutor(), MockClock())
    try:
        while not assembled.loop.over:
            assembled.loop.step()
    finally:
        assembled.loop.close()
        assembled.close()


def sets_of(letters):
    return {(each["partition"], each["offset"], each["reason"]) for each in letters.rows}


@pytest.mark.parametrize("where", ["head", "lane"])
def test_a_record_that_ends_processes_is_passed_over_and_told(tmp_path, where):
    kills = [None] * 30
    kills[17] = where
    program, out, letters = program_of(kills)

    run(program, tmp_path / "ckpt")

    assert {("0", 17, "quarantined")} == sets_of(letters)
    assert [at for at in range(30) if at != 17] == sorted(row["n"] for row in out.rows)
    expected = run_sequential(program_of(kills)[0], log=tmp_path / "ckpt")
    assert_same_rows(expected["out"], out.rows)
    assert_same_rows(expected["letters"], letters.rows)


@pytest.mark.parametrize("where", ["head", "lane"])
def test_without_a_word_from_the_user_the_record_is_named(tmp_path, where):
    kills = [None] * 30
    kills[17] = where
    program, out, _ = program_of(kills, on_error="fail")

    with pytest.raises(RunError, match="ends every process") as caught:
        run(program, tmp_path / "ckpt")

    assert '"n": 17' in str(caught.value)
    assert 'on_error="skip"' in str(caught.value)
    assert all(row["n"] < 17 for row in out.rows)


def test_records_without_order_and_time_are_passed_over_and_told(tmp_path):
    """Rows for sinks alone leave as they came, and so do their letters."""

    @ab.operator(out={"n": pl.Int64})
    def deadly(record):
        if record["n"] in {1, 3}:
            raise Death(DEADLY)
        yield record

    program = ab.Program("plain")
    out, letters = ab.sinks.Memory("out"), ab.sinks.Memory("letters")
    read = program.read(
        ab.sources.Records([{"n": n} for n in range(5)]), on_error="dead_letter", name="in"
    )
    read.flat_map(deadly).write(out, name="out")
    read.dead_letters.write(letters, name="letters")

    run(program, tmp_path / "ckpt")

    assert [0, 2, 4] == [row["n"] for row in out.rows]
    assert ['{"n": 1}', '{"n": 3}'] == [letter["record"] for letter in letters.rows]
    assert [1, 3] == [letter["offset"] for letter in letters.rows]


def test_skipped_records_are_told_nowhere(tmp_path):
    program, out, _ = program_of([None, "lane", None], on_error="skip")

    run(program, tmp_path / "ckpt")

    assert [0, 2] == [row["n"] for row in out.rows]


def test_a_window_closes_where_it_would_without_the_record(tmp_path):
    """The record in quarantine has the greatest time of its epoch: no watermark is of it."""

    @ab.operator(out={"t": pl.Int64, "n": pl.Int64})
    def deadly(record):
        if record["n"] == 2:
            raise Death(DEADLY)
        yield record

    rows = [{"t": t, "n": n} for n, t in enumerate([1_000, 2_000, 50_000, 3_000, 12_000])]

    def written(sink):
        program = ab.Program("windows")
        source = ab.sources.Records(rows, schema={"t": pl.Int64, "n": pl.Int64})
        read = program.read(source, event_time="t", on_error="skip")
        counted = read.flat_map(deadly).window(ab.tumbling("10 s")).agg(rows=ab.count())
        counted.write(sink, name="out")
        return program

    out = ab.sinks.Memory("out")
    run(written(out), tmp_path / "ckpt", rows=3)

    assert [3, 1] == [row["rows"] for row in out.rows]
    expected = run_sequential(written(ab.sinks.Memory("out")), log=tmp_path / "ckpt")
    assert_same_rows(expected["out"], out.rows)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    kills=st.lists(st.sampled_from([None, None, None, None, "head", "lane"]), max_size=25),
    partitions=st.integers(1, 3),
    rows=st.integers(1, 9),
    lanes=st.integers(1, 3),
)
def test_whichever_records_end_processes_the_rest_is_as_it_should_be(
    kills, partitions, rows, lanes
):
    program, out, letters = program_of(kills, partitions=partitions)
    with tempfile.TemporaryDirectory() as home:
        run(program, Path(home) / "ckpt", rows=rows, lanes=lanes)

        expected = run_sequential(
            program_of(kills, partitions=partitions)[0], log=Path(home) / "ckpt"
        )
    assert sum(kill is not None for kill in kills) == len(letters.rows)
    assert_same_rows(expected["out"], out.rows)
    assert_same_rows(expected["letters"], letters.rows)


@given(most=st.integers(1, 1_000), first=st.integers(1, 1_000))
def test_the_least_that_dies_is_found_in_few_trials(most, first):
    asked = []

    def survives(count):
        asked.append(count)
        return count < first

    assert (first if first <= most else None) == least_that_dies(most, survives)
    assert len(asked) <= 2 + most.bit_length()
