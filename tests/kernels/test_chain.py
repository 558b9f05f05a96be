"""Operators of expressions one behind the other, in a head that ends the program and in lanes."""

import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.kernels.bundle import hidden
from anabranch.kernels.region import lower
from anabranch.state.slices import Owners
from anabranch.testing import assert_same_rows, run_sequential
from tests.kernels.inline import Choices, logged, run_inline
from tests.kernels.linear import EVENTS, read, records


def literal(stream):
    return stream.select(a=pl.lit(1), b=pl.lit(None, pl.String))


PIECES = {
    "a literal of no column": literal,
    "a literal behind a filter": lambda s: literal(s.filter(pl.col("n") > 0)),
    "a filter by a literal": lambda s: s.filter(pl.lit(value=True)).select("k"),
    "a filter that drops all": lambda s: s.filter(pl.lit(value=False)).select("k"),
    "a filter that is null": lambda s: s.filter(pl.lit(None, pl.Boolean)).select("k"),
    "a filter that keeps all": lambda s: s.filter(pl.col("t").is_not_null()).drop("words"),
    "names that change places": lambda s: s.select(n="f", f="n", k="k").select(n="f", f="n"),
    "names renamed in a ring": lambda s: s.rename({"n": "f", "f": "n"}).select("n", "f"),
    "a column twice": lambda s: s.select("n", m="n", o=pl.col("n") + 1),
    "a name that comes back": lambda s: s.select("t", "n").with_columns(k=pl.col("n") * 2),
    "a name that comes back by all": lambda s: (
        s.select("n", "k").with_columns(f=7.5).select(pl.all(), m=pl.sum_horizontal(cs.numeric()))
    ),
    "a column over itself": lambda s: s.with_columns(n="t", t="n").with_columns(pl.col("k")),
    "an expression that nobody reads": lambda s: s.with_columns(z=pl.col("n") + 1).select("k"),
    "a struct": lambda s: s.select(p=pl.struct("n", "f")).with_columns(q=pl.col("p").struct.field("n")),
}  # fmt: skip


def program(rows, partitions, piece, *, lanes):
    made = ab.Program("chain")
    stream = read(made, rows, partitions)
    if lanes:
        stream = stream.in_time_order()
    piece(stream).write(ab.sinks.Memory("out"))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("name", PIECES)
@settings(max_examples=25)
@given(records(max_rows=12), st.integers(1, 2), st.integers(1, 5))
def test_expressions_give_what_the_sequential_run_gives(name, lanes, rows, partitions, epoch_rows):
    made = program(rows, partitions, PIECES[name], lanes=lanes)
    log = logged(made, epoch_rows)

    ran = run_inline(made, log, Choices(split_rows=3, seed=epoch_rows))

    assert ran.error is None
    assert_same_rows(run_sequential(made, log=log)["out"], ran.rows)


def test_rows_that_leave_the_program_have_no_places():
    made = program([], 1, lambda s: s.filter(pl.col("n") > 0).select("k", "n"), lanes=False)
    head = lower(plan_of(made.freeze())).heads[0].route(Owners.spread(lanes=1))
    frame = pl.DataFrame([{"t": 1, "k": "a", "n": 1}], schema={**EVENTS})

    ((rows,),) = (by_lane.values() for by_lane in head.run(frame, 0, 0).parts.values())

    assert [] == hidden(rows)
    assert [("a", 1)] == rows.rows()


def test_a_filter_that_keeps_all_copies_nothing():
    made = program([], 1, lambda s: s.filter(pl.col("n") > 0).select("n"), lanes=False)
    head = lower(plan_of(made.freeze())).heads[0].route(Owners.spread(lanes=1))
    frame = pl.DataFrame({"t": [1, 2], "n": [3, 4]}).cast(pl.Int64)

    found = head.run(frame.select(head.columns), 0, 0)
    ((rows,),) = (by_lane.values() for by_lane in found.parts.values())

    assert _address(frame["n"]) == _address(rows["n"])


def test_an_error_of_an_expression_names_its_operator():
    made = program(
        [{"t": 1, "k": "x"}],
        1,
        lambda s: (
            s.with_columns(a=pl.col("t") + 1)
            .select("a", "k")
            .with_columns(b=pl.col("k").str.to_integer())
            .select("b")
        ),
        lanes=False,
    )

    error = run_inline(made, logged(made, 1), Choices()).error

    assert "with_columns-2" == error.operator


def test_a_chain_that_has_run_travels():
    made = program([], 1, PIECES["a column twice"], lanes=False)
    head = lower(plan_of(made.freeze())).heads[0].route(Owners.spread(lanes=1))
    frame = pl.DataFrame([{"t": 1, "n": 2}], schema={**EVENTS})
    expected = head.run(frame, 0, 0).parts[0][0]

    moved = cloudpickle.loads(cloudpickle.dumps(head))

    assert expected.equals(moved.run(frame, 0, 0).parts[0][0])


def _address(column):
    return column.to_numpy(allow_copy=False).__array_interface__["data"][0]
