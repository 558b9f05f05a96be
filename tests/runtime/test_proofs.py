"""A function that is not what it was when it was proved is refused where it runs."""

import pickle

import polars as pl
import pytest
from pyspark import cloudpickle

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import MockClock

ROWS = [{"k": "a", "n": n} for n in range(20)]
OUT = {"k": pl.String, "n": pl.Int64}
FACTOR = 2
LEVEL = 0


def times(record):
    return {**record, "n": record["n"] * FACTOR}


def running(record, state):
    state.value = (state.value or 0) + record["n"] * FACTOR
    yield {**record, "n": state.value}


def raised(record):
    global LEVEL  # noqa: PLW0603 - what must be noticed
    LEVEL += 1
    return record


def levelled(record):
    return {**record, "n": LEVEL}


def mapped(stream):
    return stream.map(times, out=OUT)


def processed(stream):
    return stream.key_by("k").process(running, out=OUT)


def raised_behind(stream):
    """A function that another one of the same program pulls the rug from under."""
    return stream.map(levelled, out=OUT).map(raised, out=OUT)


def made(piece):
    program = ab.Program("proofs")
    piece(program.read(ab.sources.Records(ROWS))).write(ab.sinks.Memory("out"))
    return program


def start(piece):
    settings = Settings(available_now(3), None, 2, slices=8)
    return assemble(made(piece).freeze(), settings, InlineExecutor(), MockClock())


def run(assembled):
    try:
        while not assembled.loop.over:
            assembled.loop.step()
    finally:
        assembled.loop.close()
        assembled.close()


@pytest.mark.parametrize("piece", [mapped, processed])
def test_a_global_that_changes_while_it_runs_ends_the_query(piece, monkeypatch):
    assembled = start(piece)
    assembled.loop.step()
    monkeypatch.setattr(__import__(__name__, fromlist=["x"]), "FACTOR", 3)

    with pytest.raises(RunError) as caught:
        run(assembled)

    assert "the global `FACTOR`" in str(caught.value)
    assert "since the function was analysed" in str(caught.value)


def test_nothing_changes_and_it_runs(monkeypatch):
    run(start(mapped))
    run(start(processed))


def test_what_another_function_changes_is_not_proved():
    plan = plan_of(made(raised_behind).freeze())
    assert ["map-1", "map-2"] == [plan.graph[number].name for number in plan.unproved]


@pytest.mark.parametrize("piece", [mapped, processed])
def test_proofs_hold_where_functions_arrive_by_value(piece):
    plan = plan_of(made(piece).freeze())
    proofs = [proof for place in (*plan.heads, *plan.stages) for proof in place.proofs]
    assert 1 == len(proofs)

    for travelled in pickle.loads(cloudpickle.dumps(proofs)):
        assert travelled.changed() is None


def declared(record):
    return {**record, "n": record["n"] * FACTOR}


def test_what_is_declared_rests_on_its_author():
    marked = ab.operator(state="stateless")(declared)
    plan = plan_of(made(lambda stream: stream.map(marked, out=OUT)).freeze())
    assert () == plan.heads[0].proofs
