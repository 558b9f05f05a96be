"""Functions of frames: of whole epochs, and of any cut of their rows."""

from datetime import datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import RunError
from anabranch.kernels.bundle import OFFSET, PARTITION, TIME, in_order, sub, visible
from anabranch.kernels.failures import Failed
from anabranch.kernels.stateless.chain import lower_chain
from anabranch.program.operators.operator import OUT
from anabranch.testing import run_sequential
from tests.kernels.inline import Choices, logged, run_inline

SCHEMA = pl.Schema({"t": pl.Datetime("us"), "n": pl.Int64()})
MADE = {"n": pl.Int64, "m": pl.Int64}
TOLD = ["operator", "reason", "error", "traceback", "record", "epoch"]

records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.datetimes(datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 9)),
            "n": st.integers(0, 5),
        }
    ),
    max_size=12,
)


@ab.operator(selectivity="one")
def doubled(frame):
    return frame.select("n", m=pl.col("n") * 2)


@ab.operator(selectivity="at-most-one")
def thinned(frame):
    return doubled(frame.filter(pl.col("n") % 2 == 0))


def repeated(frame):
    return doubled(frame.select(pl.col("n").repeat_by("n")).explode("n", empty_as_null=False))


def not_three(frame):
    if (frame["n"] == 3).any():
        raise ValueError("three")
    return doubled(frame)


def nonsense(frame):
    return None if (frame["n"] == 4).any() else frame.select("n", m=pl.lit("x"))


FUNCTIONS = [doubled, thinned, repeated, not_three, nonsense]


def program(rows, function, *, partitions=1, letters=False, **options):
    made = ab.Program("batches")
    source = ab.sources.Records(rows, schema=SCHEMA, partitions=partitions)
    stream = made.read(source, event_time="t", lateness="5 s")
    stream = stream.map_batches(function, out=MADE, **options)
    (stream.dead_letters if letters else stream).write(ab.sinks.Memory("out"))
    return made


def lowered(made, *, ordered=True):
    _, op, _ = made.freeze().operators
    return lower_chain([op], [SCHEMA], tuple(op.outputs[OUT].schema), ordered)


def bundle(rows):
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return frame.with_columns(
        pl.col("t").to_physical().alias(TIME),
        pl.lit(0, pl.Int32).alias(PARTITION),
        pl.int_range(pl.len()).alias(OFFSET),
    )


# Of any cut


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=40)
@given(records, st.integers(1, 5))
def test_any_cut_gives_the_rows_of_the_sequential_run(function, rows, cut):
    made = program(rows, function, elementwise=True, on_error="skip")
    chain = lowered(made)

    parts = [chain.run(part) for part in bundle(rows).iter_slices(cut)] or [chain.run(bundle(rows))]
    frames = [frame for frame, _ in parts]

    assert run_sequential(made) == {"out": visible(in_order(frames[::-1])).rows(named=True)}
    failed = [n for n in (row["n"] for row in rows) if n in _bad(function)]
    assert len(failed) == sum(left.count for _, left in parts)


@pytest.mark.slow
@pytest.mark.parametrize("function", [thinned, repeated, not_three])
@settings(max_examples=40)
@given(records)
def test_rows_keep_the_place_and_the_time_of_the_row_they_were_made_of(function, rows):
    chain = lowered(program(rows, function, elementwise=True, on_error="skip"))
    given_rows = bundle(rows)

    whole, _ = chain.run(given_rows)
    one_by_one = pl.concat([chain.run(row)[0] for row in given_rows.iter_slices(1)] or [whole])

    assert one_by_one.equals(whole)
    assert whole.columns[-4:] == [TIME, PARTITION, OFFSET, sub(1)]


@pytest.mark.slow
@pytest.mark.parametrize("function", [not_three, nonsense])
@settings(max_examples=40)
@given(rows=records)
def test_letters_of_any_cut_are_the_sequential_run_s(function, rows):
    made = program(rows, function, elementwise=True, on_error="dead_letter", letters=True)
    expected = [{name: row[name] for name in TOLD[:-1]} for row in run_sequential(made)["out"]]

    _, left = lowered(made).run(bundle(rows))

    assert left.letters is not None
    assert expected == left.letters.select(TOLD[:-1]).rows(named=True)


def test_an_error_that_ends_the_run_tells_the_record():
    rows = [{"t": datetime(2024, 1, 1), "n": n} for n in (1, 3, 2, 3)]
    made = program(rows, not_three, elementwise=True)
    with pytest.raises(RunError) as expected:
        run_sequential(made)

    with pytest.raises(Failed) as found:
        lowered(made).run(bundle(rows))

    error = found.value.error
    assert f"{error.operator} failed on {error.record}: {error.text}" in expected.value.what


def test_the_function_is_not_called_for_no_rows():
    def never(frame):
        raise AssertionError(frame)

    rows, _ = lowered(program([], never, elementwise=True)).run(bundle([]))
    assert [*MADE, TIME, PARTITION, OFFSET, sub(1)] == rows.columns


@pytest.mark.parametrize(
    ("function", "hidden_columns", "calls"),
    [(doubled, True, 1), (doubled, False, 1), (repeated, False, 1), (repeated, True, 3)],
)
def test_a_bundle_is_one_call_where_nobody_asks_what_came_of_which(function, hidden_columns, calls):
    heights = []

    @ab.operator(selectivity="one" if function is doubled else None)
    def watched(frame):
        heights.append(frame.height)
        return function(frame)

    rows = bundle([{"t": datetime(2024, 1, 1), "n": n} for n in (1, 0, 2)])
    chain = lowered(program([], watched, elementwise=True), ordered=hidden_columns)

    found, _ = chain.run(rows if hidden_columns else visible(rows))

    assert calls == len(heights)
    assert function(visible(rows)).equals(visible(found))
    assert hidden_columns == (sub(1) in found.columns)


def _bad(function):
    return {not_three: {3}, nonsense: set(range(6))}.get(function, set())


# Of whole epochs


@pytest.mark.slow
@given(records, st.integers(1, 3), st.integers(1, 6), st.sampled_from([not_three, nonsense]))
def test_letters_of_an_epoch_are_the_sequential_run_s(rows, partitions, epoch_rows, function):
    options = {"on_error": "dead_letter", "partitions": partitions}
    for letters in (True, False):
        made = program(rows, function, letters=letters, **options)
        log = logged(made, epoch_rows)

        ran = run_inline(made, log, Choices(seed=epoch_rows))

        assert ran.error is None
        (expected,) = run_sequential(made, log=log).values()
        names = TOLD if letters else [*MADE]
        assert _only(names, expected) == _only(names, ran.rows)


def _only(names, rows):
    return [{name: row[name] for name in names} for row in rows]
