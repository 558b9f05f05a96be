import math
from datetime import datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.letters import Origins, Split, letters_of
from anabranch.testing import run_sequential
from tests.kernels.inline import Choices, logged, run_inline

SCHEMA = pl.Schema({"t": pl.Datetime("us"), "n": pl.Int64(), "x": pl.Float64(), "s": pl.String()})

records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.datetimes(datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 9)),
            "n": st.integers(0, 5),
            "x": st.sampled_from([0.5, math.nan, math.inf, -math.inf, None]),
            "s": st.sampled_from(["a", 'ü"', None]),
        }
    ),
    max_size=20,
)


def not_three(record):
    if record["n"] == 3:
        raise ValueError("three")
    return {"n": record["n"], "x": record["x"]}


def halves(record):
    yield {"n": record["n"]}
    if record["n"] % 2:
        raise KeyError(record["n"])
    yield {"n": record["n"] + 10}


def is_good(record):
    return 1 / record["n"] > 0.2


def letters(rows, partitions, operator):
    program = ab.Program("p")
    source = ab.sources.Records(rows, schema=SCHEMA, partitions=partitions)
    made = operator(program.read(source, event_time="t", lateness="5 s"))
    made.dead_letters.write(ab.sinks.Memory("out"))
    return program


OPERATORS = {
    "map": lambda s: s.map(not_three, out={"n": pl.Int64, "x": pl.Float64}, on_error="dead_letter"),
    "flat_map": lambda s: s.flat_map(halves, out={"n": pl.Int64}, on_error="dead_letter"),
    "filter": lambda s: s.filter(is_good, on_error="dead_letter"),
    "both": lambda s: s.flat_map(
        lambda r: [{**r, "n": n} for n in range(r["n"])], out=SCHEMA, on_error="skip"
    ).map(not_three, out={"n": pl.Int64, "x": pl.Float64}, on_error="dead_letter"),
    "sum": lambda s: (
        s.window(ab.tumbling("2 s"), by="s")
        .agg(n=ab.count(), x=ab.sum("x"))
        .map(not_three, out={"n": pl.Int64, "x": pl.Float64}, on_error="dead_letter")
    ),
    "held sum": lambda s: (
        s.window(ab.tumbling("1 s"), by="s")
        .agg(n=ab.count(), x=ab.sum("x"))
        .with_columns(later=pl.col("window_end").dt.offset_by("3s"))
        .with_event_time("later")
        .in_time_order()
        .map(not_three, out={"n": pl.Int64, "x": pl.Float64}, on_error="dead_letter")
    ),
    "sum that finds no partner": lambda s: (
        s.window(ab.tumbling("1 s"), by="s")
        .agg(n=ab.count(), x=ab.sum("x"))
        .join(s.select("t", "s", "n").filter(pl.col("n") > 4), on="s", within="2 s", how="left")
        .map(not_three, out={"n": pl.Int64, "x": pl.Float64}, on_error="dead_letter")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
@given(records, st.integers(1, 3), st.integers(1, 6), st.integers(0, 3))
def test_letters_are_the_sequential_program_s(name, rows, partitions, epoch_rows, seed):
    program = letters(rows, partitions, OPERATORS[name])
    log = logged(program, epoch_rows)

    ran = run_inline(program, log, Choices(seed=seed, restart=seed == 1))

    assert ran.error is None
    assert run_sequential(program, log=log) == {"out": ran.rows}


def test_letters_tell_everything():
    rows = [{"t": datetime(2024, 1, 1), "n": n, "x": math.nan, "s": "a"} for n in (1, 3)]

    ran = run_inline(letters(rows, 1, OPERATORS["map"]), [], Choices())
    program = letters(rows, 1, OPERATORS["map"])
    (letter,) = run_inline(program, logged(program, 1), Choices()).rows

    assert [] == ran.rows
    assert letter.pop("traceback").endswith("in not_three")
    assert letter == {
        "operator": "map-1",
        "source": "read-1",
        "partition": "0",
        "offset": 1,
        "epoch": 1,
        "reason": "error",
        "error": "ValueError: three",
        "record": '{"t": "2024-01-01T00:00:00", "n": 3, "x": "NaN", "s": "a"}',
    }


def test_splits_tell_which_record_an_offset_is():
    rows = pl.DataFrame(
        {"n": [1, 2, 3], "__ab_p": [0, 0, 1], "__ab_o": [(1 << 40) + 2, 7, (2 << 40) + 1]},
        schema={"n": pl.Int64, "__ab_p": pl.Int32, "__ab_o": pl.Int64},
    )
    splits = [Split(0, 0, "a", 100), Split(0, 1 << 40, "a", 150), Split(1, 2 << 40, "b", 9)]

    found = Origins(4, "read-1", splits).addressed(letters_of("op", rows, ["n"], "late"))

    told = found.select("source", "partition", "offset", "epoch", "reason", "error", "record")
    assert [
        ("read-1", "a", 152, 4, "late", None, '{"n": 1}'),
        ("read-1", "a", 107, 4, "late", None, '{"n": 2}'),
        ("read-1", "b", 10, 4, "late", None, '{"n": 3}'),
    ] == told.rows()
