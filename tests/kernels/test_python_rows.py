"""Python functions one behind the other: what they get and give, with and without frames between."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.kernels.bundle import hidden
from anabranch.kernels.failures import Failed
from anabranch.kernels.letters import Left
from anabranch.kernels.region import lower
from anabranch.kernels.stateless import functions
from anabranch.kernels.stateless.held_values import held_values, is_exact
from anabranch.kernels.stateless.python_rows import Picker, records_of
from anabranch.testing import run_sequential
from tests.kernels.inline import Choices, logged, run_inline

stateless = ab.operator(state="stateless")


class Text(str):
    """A text that is more than one."""


EXACT: dict[str, Any] = {
    "Boolean": pl.Boolean(),
    "Int8": pl.Int8(),
    "Int64": pl.Int64(),
    "UInt64": pl.UInt64(),
    "Float64": pl.Float64(),
    "String": pl.String(),
    "Binary": pl.Binary(),
    "Date": pl.Date(),
    "Datetime": pl.Datetime("us"),
    "Null": pl.Null(),
}
ROUNDING: dict[str, Any] = {
    "Float32": pl.Float32(),
    "Milliseconds": pl.Datetime("ms"),
    "Zoned": pl.Datetime("us", "UTC"),
    "Decimal": pl.Decimal(10, 2),
    "Enum": pl.Enum(["a", "b"]),
    "Categorical": pl.Categorical(),
    "List": pl.List(pl.Int64()),
    "Struct": pl.Struct({"a": pl.Int64()}),
}
VALUES = [
    None, True, 0, 1, -1, 127, 128, 2**53, 2**53 + 1, 2**63, -(2**63), 2**64 - 1, 2**64, 10**400,
    0.0, -0.0, 0.1, 1e300, math.nan, math.inf, "a", "é", "\ud800", "", Text("a"), b"a", b"\xff",
    date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, microsecond=1),
    datetime(2024, 10, 27, 2, fold=1), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.50"), Decimal("1.505"), [1, 2], [1.5], {"a": 1},
    {"b": 1},
]  # fmt: skip
"""Each fits some types and not others; some are changed by a column."""
MIDDLE = {"n": pl.Int64(), "at": pl.Int64()}
OUT = {"at": pl.Int64(), "seen": pl.String()}
ROWS = [{"t": at, "at": at} for at in range(30)]


def chain_of(made):
    """The one chain of a program's head."""
    (node,) = lower(plan_of(made.freeze())).heads[0].nodes
    return node.work


def made_by(chosen):
    """A function that gives chosen values, or rows that have other columns."""

    @stateless
    def gives(record):
        return chosen[record["at"] % len(chosen)]

    return gives


@stateless
def tells(record):
    """What a function gets, with its types; it changes what it got."""
    at = record.pop("at", None)
    seen = {"at": at, "seen": repr({name: (type(v), v) for name, v in record.items()})}
    for value in record.values():
        if isinstance(value, list):
            value.append(3)
    return seen


@stateless
def is_known(record):
    at, record["at"] = record["at"], 99
    return at is None or 6 // (at - 4) < 9


@stateless
def repeats(record):
    for number in range((record["at"] or 0) % 3):
        shared = {"n": number, **record}
        yield shared
        shared["at"] = -1
    if record["at"] == 7:
        raise ValueError("seven")


def program(*pieces):
    made = ab.Program("rows")
    stream = made.read(
        ab.sources.Records(ROWS, schema={"t": pl.Int64, "at": pl.Int64}), event_time="t"
    )
    for piece in pieces:
        stream = piece(stream)
    stream.write(ab.sinks.Memory("out"))
    return made


def both(made):
    """What a head's chain gives, and the same with a frame behind every function."""
    chain = chain_of(made)
    frame = pl.DataFrame(ROWS, schema={"t": pl.Int64, "at": pl.Int64}).select(chain.live)
    return _told(chain.run, frame), _told(lambda rows: _apart(chain, rows), frame)


def _told(run, frame):
    try:
        rows, left = run(frame)
    except Failed as failed:
        return failed.error
    return rows.rows(named=True), left.count


def _apart(chain, rows):
    count = 0
    for step in chain.steps:
        rows, left = step.run(rows)
        count += left.count
    return rows.select(*chain.out, *hidden(rows)), Left(count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*EXACT, *ROUNDING])
@settings(max_examples=50)
@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4), st.data())
def test_a_function_gets_what_a_column_would_have_held(kind, values, data):
    dtype = {**EXACT, **ROUNDING}[kind]
    on_error = data.draw(st.sampled_from(["fail", "skip"]))
    gives = made_by([{"v": value, "at": at} for at, value in enumerate(values)])
    made = program(
        lambda s: s.map(gives, out={"v": dtype, "at": pl.Int64}, on_error=on_error),
        lambda s: s.map(tells, out=OUT),
    )

    together, apart = both(made)

    assert repr(apart) == repr(together)


@pytest.mark.slow
@given(st.data())
def test_functions_together_are_functions_one_by_one(data):
    errors = st.sampled_from(["skip", "skip", "fail"])
    odd = [{"at": 4}, {"n": 1, "at": 1}, {"n": 1, "at": 1, "x": 0}, {"n": 1.5}, None, 7]
    chosen = data.draw(st.lists(st.sampled_from(odd), min_size=1, max_size=4))
    pool = {
        "map": lambda how: lambda s: s.map(made_by(chosen), out=MIDDLE, on_error=how),
        "filter": lambda how: lambda s: s.filter(is_known, on_error=how),
        "flat_map": lambda how: (
            lambda s: s.flat_map(repeats, out={"t": pl.Int64, **MIDDLE}, on_error=how)
        ),
    }
    names = data.draw(st.lists(st.sampled_from(sorted(pool)), min_size=1, max_size=4))
    made = program(*(pool[name](data.draw(errors)) for name in names))

    together, apart = both(made)

    assert apart == together


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
@pytest.mark.parametrize("chunk", [1, 3, 2_000])
def test_functions_together_give_what_the_sequential_run_gives(monkeypatch, chunk, on_error):
    monkeypatch.setattr(functions, "CHUNK", chunk)
    gives = made_by([{"n": 1, "at": 4}, {"at": 2}, {"n": True, "at": 1}, {"n": 3, "at": 8}])
    made = program(
        lambda s: s.filter(is_known, on_error="skip"),
        lambda s: s.flat_map(repeats, out={"t": pl.Int64, **MIDDLE}, on_error="skip"),
        lambda s: s.map(gives, out=MIDDLE, on_error="skip"),
        lambda s: s.filter(is_known, on_error="skip"),
        lambda s: s.flat_map(repeats, out=MIDDLE, on_error="skip"),
        lambda s: s.map(tells, out=OUT, on_error=on_error),
    )

    for epoch_rows in (1, 7):
        log = logged(made, epoch_rows)
        ran = run_inline(made, log, Choices(split_rows=9))
        assert ran.error is None
        assert run_sequential(made, log=log) == {"out": ran.rows}


def test_an_error_names_its_operator_and_the_record_that_it_got():
    gives = made_by([{"n": at, "at": at} for at in range(30)])
    made = program(
        lambda s: s.map(gives, out=MIDDLE),
        lambda s: s.filter(is_known),
        lambda s: s.map(tells, out=OUT),
    )

    error, _ = both(made)

    assert "filter-1" == error.operator
    assert "ZeroDivisionError: integer division or modulo by zero" == error.text
    assert '{"n": 4, "at": 4}' == error.record


def test_functions_that_a_column_lies_between_are_not_fused():
    shapes = []
    for dtype in (pl.Int64(), pl.Float32(), pl.List(pl.Int64())):
        gives = made_by([{"v": None, "at": 1}])
        made = program(
            lambda s, dtype=dtype, gives=gives: s.map(gives, out={"v": dtype, "at": pl.Int64}),
            lambda s: s.map(tells, out=OUT),
        )
        shapes.append(len(chain_of(made)._fused))
    assert [1, 2, 2] == shapes


@pytest.mark.parametrize("kind", EXACT)
@given(st.lists(st.sampled_from(VALUES), max_size=4))
def test_values_that_are_held_are_those_of_the_column(kind, values):
    dtype = EXACT[kind]
    assert is_exact(dtype)

    held = held_values(values, dtype)

    if held is not None:
        column = Picker(pl.Schema({"v": dtype})).frame([(value,) for value in values])["v"]
        assert repr(column.to_list()) == repr(list(held))


def test_no_other_type_is_exact():
    assert not any(map(is_exact, ROUNDING.values()))


@given(st.lists(st.none() | st.datetimes(), max_size=4))
def test_times_become_records_as_polars_makes_them(times):
    frame = pl.DataFrame({"t": times}, schema={"t": pl.Datetime("us")})
    assert [{"t": each} for each in frame["t"].to_list()] == records_of(frame, ["t"])


def test_a_frame_of_no_rows_keeps_its_columns():
    made = program(lambda s: s.map(made_by([{"n": 1}]), out=MIDDLE), lambda s: s.filter(is_known))
    chain = chain_of(made)
    rows, left = chain.run(pl.DataFrame(schema={"t": pl.Int64, "at": pl.Int64, "__ab_o": pl.Int64}))
    assert {**MIDDLE, "__ab_o": pl.Int64()} == dict(rows.schema)
    assert Left() == left
