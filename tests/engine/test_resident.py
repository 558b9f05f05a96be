"""Programs resident in one process give what the oracle gives on the same log."""

import random
from functools import partial

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.core import Queueing, Reordering, Scheme
from anabranch.engine.resident import TaskFailedError
from anabranch.testing import assert_same_rows, run_sequential
from anabranch.testing.strategies import cuts, networks, programs
from tests.engine.running import interleaved, threaded
from tests.kernels.inline import logged
from tests.kernels.test_moving import log_of

seeds = st.integers(0, 2**32)
schemes = st.builds(
    Scheme, st.sampled_from(Queueing), st.sampled_from(Reordering), st.sampled_from([1, 2, 64])
)


def same(program, log, run):
    expected = run_sequential(program, log=log)
    found = run(program, log)
    for name, rows in expected.items():
        assert_same_rows(rows, found[name])


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(data=st.data(), seed=seeds, scheme=schemes, partitions=st.sampled_from([1, 2, 3]))
def test_any_program_whoever_takes_the_next_step(data, seed, scheme, partitions):
    program = data.draw(programs(partitions=data.draw(st.sampled_from([1, 2]))))
    log = data.draw(cuts(program, max_rows=5))

    same(program, log, partial(interleaved, seed=seed, partitions=partitions, scheme=scheme))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=seeds, partitions=st.sampled_from([1, 2, 3]))
def test_any_network_of_programs(data, seed, partitions):
    program = data.draw(networks())
    log = log_of(random.Random(seed), program)

    same(program, log, partial(interleaved, seed=seed, partitions=partitions))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=seeds, workers=st.sampled_from([1, 2, 4]))
def test_any_program_by_threads(data, seed, workers):
    program = data.draw(programs())
    log = data.draw(cuts(program, max_rows=5))

    same(program, log, partial(threaded, seed=seed, workers=workers))


def views():
    program = ab.Program("views")
    rows = [{"k": n % 5, "n": n, "t": n * 100} for n in range(60)]
    (
        program.read(ab.sources.Records(rows, partitions=2), event_time="t", lateness="50 ms")
        .filter(pl.col("n") % 3 != 0)
        .with_columns(m=pl.col("n") * 2)
        .key_by("k")
        .reduce(lambda value, record: {**record, "m": value["m"] + record["m"]})
        .filter(pl.col("m") > 10)
        .write(ab.sinks.Memory("out"), name="out")
    )
    return program


@pytest.mark.parametrize("run", [interleaved, threaded])
def test_a_chain_of_five(run):
    program = views()
    log = logged(program, 3)

    same(program, log, partial(run, seed=1))
    assert run_sequential(program, log=log)["out"], "there is something to compare"


@pytest.mark.parametrize("run", [threaded])
def test_what_fails_is_told_and_nothing_behind_it_leaves(run):
    def careful(record):
        return {"n": 10 // (record["n"] - 7)}

    program = ab.Program("failing")
    rows = [{"n": n} for n in range(20)]
    program.read(ab.sources.Records(rows)).map(careful, out={"n": pl.Int64}).write(
        ab.sinks.Memory("out"), name="out"
    )

    with pytest.raises(TaskFailedError, match="ZeroDivisionError"):
        run(program, logged(program, 1), seed=0)
