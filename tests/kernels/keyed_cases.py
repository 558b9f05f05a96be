"""Hypothesis strategies for operators by key: keys of any type, disorder, records far behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
from hypothesis import strategies as st

import anabranch as ab
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Read
from anabranch.testing import assert_same_rows
from tests.kernels.alone import WAYS, run_alone

NAN = float("nan")
BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN)

KEYS: dict[pl.DataType, list[Any]] = {
    pl.String(): ["a", "b", "", "é", "\U0001f600", None],
    pl.Int64(): [0, -1, 10, 9, None],
    pl.UInt8(): [0, 255, None],
    pl.Float64(): [0.0, -0.0, NAN, None, 1.5, float("inf")],
    pl.Float32(): [0.0, -0.0, NAN, 0.5],
    pl.Boolean(): [True, False, None],
    pl.Binary(): [b"", b"\x00", b"\xff", None],
    pl.Date(): [date(2024, 2, 29), date(1969, 12, 31), None],
    pl.Time(): [time(0), time(23, 59, 59), None],
    pl.Duration("us"): [timedelta(0), timedelta(days=-1), None],
    pl.Decimal(10, 2): [Decimal("1.50"), Decimal("-0.01"), None],
    pl.Datetime("us"): [datetime(1969, 12, 31), datetime(2024, 1, 1, microsecond=1), None],
    pl.Datetime("ms", "Europe/Berlin"): [TWICE, TWICE.replace(fold=1), None],
    pl.Enum(["z", "a"]): ["z", "a", None],
}
TIMES: dict[pl.DataType, Any] = {
    pl.Int64(): lambda ms: ms,
    pl.Datetime("us"): lambda ms: datetime(1970, 1, 1) + timedelta(milliseconds=ms),
    pl.Datetime("ms", "Europe/Berlin"): lambda ms: (
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    ).astimezone(BERLIN),
}


@st.composite
def sources(draw: Any, *, max_rows: int = 24) -> tuple[ab.Program, Any]:
    """A program that reads `t, j, k, n, s`, and its stream: `j` and `k` are of any key type."""
    kinds = [draw(st.sampled_from(list(KEYS))) for _ in range(2)]
    clock = draw(st.sampled_from(list(TIMES)))
    now, rows = draw(st.sampled_from([-7, 0, 1_000])), []
    for step in draw(st.lists(st.sampled_from([0, 1, 3, 10]), max_size=max_rows)):
        now += step
        behind = draw(st.sampled_from([0, 0, 1, 5, 11, 40]))
        rows.append(
            {
                "t": TIMES[clock](now - behind),
                "j": draw(st.sampled_from(KEYS[kinds[0]])),
                "k": draw(st.sampled_from(KEYS[kinds[1]][:3])),
                "n": draw(st.none() | st.integers(-3, 9)),
                "s": draw(st.sampled_from(["x", "y", None])),
            }
        )
    schema = {"t": clock, "j": kinds[0], "k": kinds[1], "n": pl.Int64, "s": pl.String}
    program = ab.Program("drawn")
    source = ab.sources.Records(rows, schema=schema, partitions=draw(st.integers(1, 3)))
    lateness = draw(st.sampled_from(["0 s", "2 ms"]))
    return program, program.read(source, event_time="t", lateness=lateness)


by = st.sampled_from([("k",), ("j",), ("k", "s"), ("j", "k")])


@st.composite
def logs(draw: Any, program: ab.Program, *, max_rows: int = 6) -> list[ab.testing.Cut]:
    """Epochs of a few rows; the source may stay unfinished, and empty epochs may follow."""
    log: list[Cut] = draw(ab.testing.cuts(program, max_rows=max_rows))
    (read,) = program.freeze().of(Read)
    if draw(st.booleans()):
        log = [replace(cut, finished=frozenset()) for cut in log]
    if draw(st.booleans()):
        end = read.source.latest()
        log = [*log, replace(log[-1], offsets={p: (end[p], end[p]) for p in end})]
    return log


def assert_as_sequential(program: ab.Program, log: list[ab.testing.Cut], lower: Any) -> None:
    """However work is divided and repeated, rows, letters and their order are the oracle's."""
    __tracebackhide__ = True
    expected = ab.testing.run_sequential(program, log=log)
    letters = None
    for ways in WAYS:
        ran = run_alone(program, log, lower, ways)
        assert ran.error is None
        assert_same_rows(expected["out"], ran.rows["out"])
        assert letters in (None, ran.letters)
        letters = ran.letters
        if "letters" in expected:
            assert_same_rows(expected["letters"], ran.rows["letters"])
    if "letters" in expected:
        assert len(expected["letters"]) == letters
