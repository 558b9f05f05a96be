"""A running combination is the oracle's, whatever its values are and whatever fails."""

from datetime import UTC, datetime
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.keyed.reduce import ReduceKernel
from anabranch.program.log import Cut
from tests.kernels.alone import WAYS, run_alone
from tests.kernels.keyed_cases import assert_as_sequential, by, logs, sources


def added(value, record):
    return {**record, "n": (value["n"] or 0) + (record["n"] or 0), "s": value["s"]}


def changed_in_place(value, record):
    value["n"] = (value["n"] or 0) + 1
    record["s"] = "never seen"
    return value


def named_otherwise(value, record):
    return {"n": record["n"], "s": f"{value['s']}{record['s']}"[-5:]}


def fails_at_times(value, record):
    value["s"] = "spoilt"
    if record["n"] == 3:
        raise ValueError(3)
    if record["n"] == 4:
        return {"n": "no number"}
    return None if record["n"] == 5 else {**record, "n": (value["n"] or 0) + 1}


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_values_are_those_of_the_sequential_run(data):
    program, stream = data.draw(sources())
    fn = data.draw(st.sampled_from([added, changed_in_place, named_otherwise]))
    stream.key_by(*data.draw(by)).reduce(fn).write(ab.sinks.Memory("out"))

    assert_as_sequential(program, data.draw(logs(program)), ReduceKernel.of)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_record_that_fails_leaves_the_value_as_it_was(data):
    program, stream = data.draw(sources())
    reduced = stream.key_by(*data.draw(by)).reduce(fails_at_times, on_error="dead_letter")
    reduced.write(ab.sinks.Memory("out"))
    reduced.dead_letters.write(ab.sinks.Memory("letters"), name="letters")

    assert_as_sequential(program, data.draw(logs(program)), ReduceKernel.of)


def cuts(rows, *ends):
    return [
        Cut("events", {0: (start, end)})
        for start, end in zip([0, *ends], [*ends, rows], strict=True)
    ]


NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
TYPED = {
    "k": pl.String,
    "f": pl.Float64,
    "g": pl.Float32,
    "d": pl.Decimal(20, 3),
    "at": pl.Datetime("us", "Europe/Berlin"),
    "words": pl.List(pl.String),
    "told": pl.String,
}


def tells_what_it_sees(value, record):
    told = [value["f"], value["g"], value["d"], value["at"], value["words"]]
    value["words"].append("x")
    given = {"f": 1, "g": 0.1, "d": Decimal("1.5"), "at": NOON, "words": value["words"]}
    return {**record, **given, "told": repr(told)}


def test_where_an_epoch_ends_is_not_seen_in_the_type_of_a_value():
    row = {"k": "a", "f": 0.5, "g": 0.5, "d": Decimal(1), "at": NOON, "words": [], "told": ""}
    found = []
    for log in (cuts(4), cuts(4, 1, 2, 3)):
        program = ab.Program("p")
        stream = program.read(ab.sources.Records([row] * 4, schema=TYPED), name="events")
        stream.key_by("k").reduce(tells_what_it_sees).write(ab.sinks.Memory("out"), name="out")
        found += [run_alone(program, log, ReduceKernel.of, ways).rows["out"] for ways in WAYS]
    assert len(found[0]) == 4
    assert "ZoneInfo(key='Europe/Berlin')" in found[0][3]["told"]
    assert all(each == found[0] for each in found)


def test_an_error_names_the_first_record_that_failed():
    program = ab.Program("p")
    rows = [{"n": n, "s": "x"} for n in (1, 2, 3, 4)]
    stream = program.read(ab.sources.Records(rows), name="events")
    stream.key_by("s").reduce(fails_at_times, name="sum").write(ab.sinks.Memory("out"), name="out")
    ran = run_alone(program, cuts(4, 1), ReduceKernel.of, WAYS[0])
    assert ran.error is not None
    assert (ran.error.operator, ran.error.text) == ("sum", "ValueError: 3")
    assert ran.error.record == '{"n": 3, "s": "x"}'
    assert ran.rows["out"] == rows[:1]


def test_a_delta_has_one_row_a_key_that_was_touched():
    program = ab.Program("p")
    stream = program.read(ab.sources.Records([{"k": "a", "n": 1}]), name="events")
    stream.key_by("k").reduce(lambda value, _: value).write(ab.sinks.Memory("out"))
    graph = program.freeze()
    (op,) = [op for op in graph.operators if op.kind == "reduce"]
    kernel = ReduceKernel.of(graph, op)
    shape = kernel.restore(()).whole()
    assert shape.columns == ["slice", "__ab_k0", "v0", "v1"]
