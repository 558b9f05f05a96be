"""Compiling takes time linear in the number of operators: work is counted, not timed."""

import sys

import polars as pl
import pytest

import anabranch as ab
from anabranch.compiler.compile import compile_graph
from anabranch.compiler.explain.forms import FORMS, explain

EVENTS = {"t": pl.Int64, "k": pl.String, "n": pl.Int64}


def chain(size):
    """Row by row, by a key, over all, in turn, so that there are many regions."""
    program = ab.Program("chain")
    stream = program.read(ab.sources.Records([], schema=EVENTS), event_time="t", name="o0")
    for at in range(1, size - 1):
        match at % 4:
            case 0:
                stream = stream.in_time_order(name=f"o{at}")
            case 1:
                stream = stream.drop("n", name=f"o{at}") if at == 1 else keyed(stream, at, "k")
            case 2:
                stream = keyed(stream, at, "k")
            case _:
                stream = keyed(stream, at, "t")
    stream.write(ab.sinks.Memory("out"))
    return program.freeze()


def keyed(stream, at, key):
    return stream.key_by(key).deduplicate(name=f"o{at}")


def star(size):
    """One stream with many readers, of which some are fused."""
    program = ab.Program("star")
    stream = program.read(ab.sources.Records([], schema=EVENTS), event_time="t", name="o0")
    arms = [keyed(stream, at, "k") for at in range(1, size)]
    arms[0].fuse_with(arms[-1])
    return program.freeze()


def ladder(size):
    """Streams that part and meet again."""
    program = ab.Program("ladder")
    stream = program.read(ab.sources.Records([], schema=EVENTS), event_time="t", name="o0")
    for at in range(1, size, 2):
        stream = stream.union(keyed(stream, at, "k"), name=f"o{at + 1}")
    return program.freeze()


def work(call):
    """How many lines are run, loops on one line by their turns."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


SHAPES = {"chain": chain, "star": star, "ladder": ladder}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_ten_times_the_operators_are_ten_times_the_work(shape):
    small, large = (SHAPES[shape](size) for size in (100, 1_000))
    compile_graph(small)  # whatever is loaded on first use

    ratio = work(lambda: compile_graph(large)) / work(lambda: compile_graph(small))

    assert 9 < ratio < 11


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_telling_is_linear_too(form):
    small, large = (compile_graph(chain(size)) for size in (50, 500))
    explain(small, form)

    ratio = work(lambda: explain(large, form)) / work(lambda: explain(small, form))

    assert 8 < ratio < 12


@pytest.mark.slow
def test_ten_thousand_operators_compile():
    plan = compile_graph(chain(10_000))

    assert 10_000 == sum(len(region.operators) for region in plan.regions)
    assert len(plan.joints) == len(plan.regions)
