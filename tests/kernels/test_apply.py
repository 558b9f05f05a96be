"""Frames that a user's function gives for a window: taken as they are where rows would be the same."""

from datetime import time

import polars as pl
import pytest

import anabranch as ab

ROWS = [{"t": t, "k": t % 3} for t in range(40)]
OUT = {"n": pl.Int64, "at": pl.List(pl.Int64), "x": pl.Float64, "s": pl.String}


def counted(key, frame):
    (k,) = key
    return pl.DataFrame(
        {"n": [frame.height], "at": [frame["t"].to_list()], "x": [k / 3], "s": [f"{k}"]}, OUT
    )


def several(key, frame):
    return counted(key, frame)[[0, 0, 0]]


def nothing(key, frame):
    return counted(key, frame).clear()


def turned(key, frame):
    """Columns stand in another order."""
    return counted(key, frame).select("s", "x", "at", "n")


def less(key, frame):
    """A column that is not there is null."""
    return counted(key, frame).drop("at")


def other(key, frame):
    """Whole numbers are floats too, as they are in rows."""
    return counted(key, frame).with_columns(x=pl.lit(1, pl.Int64))


def fine(key, frame):
    """More digits than Python's times have."""
    return pl.DataFrame({"of_day": pl.Series([1_000_000_001], dtype=pl.Int64).cast(pl.Time)})


def windowed(fn, out=None):
    program = ab.Program("applied")
    stream = program.read(ab.sources.Records(ROWS), name="in", event_time="t")
    made = stream.window(ab.tumbling("10 ms"), by="k").apply(fn, out=out or OUT)
    made.write(ab.sinks.Memory("out"), name="out")
    return program


@pytest.mark.parametrize("fn", [counted, several, nothing, turned, less, other])
def test_a_frame_gives_what_its_rows_would(fn):
    ab.testing.assert_same_as_sequential(windowed(fn), trigger=ab.available_now(7))


def test_what_rows_would_round_is_rounded():
    program = windowed(fine, {"of_day": pl.Time})

    ab.testing.assert_same_as_sequential(program, trigger=ab.available_now(7))
    found = ab.testing.run_sequential(program)["out"]
    assert {time(0, 0, 1)} == {row["of_day"] for row in found}


def wide(key, frame):
    return counted(key, frame).with_columns(more=1)


def text(key, frame):
    return counted(key, frame).with_columns(n=pl.lit("1"))


@pytest.mark.parametrize(
    ("fn", "why"), [(wide, "unknown column 'more'"), (text, "column 'n' is Int64")]
)
def test_a_frame_that_does_not_fit_is_an_error_of_its_window(fn, why):
    with pytest.raises(ab.RunError, match=why):
        ab.testing.assert_same_as_sequential(windowed(fn))
