"""Regions of drawn programs: safe by the rules, and safe when they are put to the test.

The rules are written down here once more, from the definitions; and what a parallel region may do,
to see only some of the keys, is done: the oracle must not notice.
"""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import OUT

EVENTS = {"t": pl.Int64, "k": pl.String, "l": pl.String, "n": pl.Int64}

RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(0, 9_000),
            "k": st.sampled_from(["a", "b", None]),
            "l": st.sampled_from(["x", "y"]),
            "n": st.integers(-5, 5),
        }
    ),
    min_size=3,
    max_size=25,
)


# Pieces: one operator each, over streams that have at least these columns


def running(record, state):
    state.value = (state.value or 0) + record["n"]
    return {"t": record["t"], "k": record["k"], "l": record["l"], "n": state.value}


def swapped(record):
    return {"t": record["t"], "k": record["l"], "l": record["k"], "n": record["n"]}


def doubled(record):
    yield {"t": record["t"], "k": record["k"], "l": record["l"], "n": record["n"]}
    if record["n"] > 0:
        yield {"t": record["t"], "k": record["k"], "l": "z", "n": record["n"]}


def later(value, record):
    return {**record, "n": value["n"] - record["n"]}


def process(*key):
    return lambda s: s.key_by(*key).process(running, out=EVENTS)


def first_of(*key):
    return lambda s: s.key_by(*key).deduplicate()


def window(*key):
    others = {name: ab.max(name) for name in ("t", "k", "l") if name not in key}
    return lambda s: s.window(ab.tumbling("2 s"), by=list(key)).agg(**others, n=ab.count())


PIECES = {
    "filter": lambda s: s.filter(pl.col("n") > -3),
    "shift": lambda s: s.with_columns(n=pl.col("n") + 1),
    "spoil k": lambda s: s.with_columns(k=pl.col("l")),
    "spoil l": lambda s: s.with_columns(l=pl.col("k").fill_null("none")),
    "swap": lambda s: s.map(swapped, out=EVENTS),
    "double": lambda s: s.flat_map(doubled, out=EVENTS),
    "rename": lambda s: s.select("t", "n", k="l", l="k"),
    "whole": lambda s: s.in_time_order(),
    "reduce": lambda s: s.key_by("k").reduce(later),
    "process k": process("k"),
    "process k l": process("k", "l"),
    "first k": first_of("k"),
    "first l": first_of("l"),
    "first l k": first_of("l", "k"),
    "window k": window("k"),
    "window k l": window("k", "l"),
}
KEYED = sorted(
    name for name in PIECES if name.split()[0] in ("reduce", "process", "first", "window")
)
BETWEEN = st.lists(st.sampled_from(sorted(set(PIECES) - set(KEYED))), max_size=2)
NAMES = st.lists(st.tuples(BETWEEN, st.sampled_from(KEYED)), min_size=2, max_size=4).map(
    lambda pairs: [name for between, keyed in pairs for name in (*between, keyed)]
)
"""Keys with something between them: what lies there decides whether they may share a region."""


def program(names, records=()):
    made = ab.Program("drawn")
    source = ab.sources.Records(list(records), schema=EVENTS)
    stream = made.read(source, event_time="t", lateness="1 d")
    for name in names:
        stream = PIECES[name](stream)
    stream.write(ab.sinks.Memory("out"))
    return made


def rows_of(made):
    return Counter(tuple(row.items()) for row in ab.testing.run_sequential(made)["out"])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(names=NAMES, records=RECORDS)
def test_a_region_does_not_notice_that_it_sees_only_some_keys(names, records):
    for region in program(names).compile().regions:
        if region.key is None:
            continue
        # Piece i is operator i + 1, behind the source.
        inside = [names[number - 1] for number in region.operators]
        parts = {}
        for record in records:
            parts.setdefault(tuple(record[name] for name in region.key), []).append(record)

        together = rows_of(program(inside, records))

        assert together == sum(
            (rows_of(program(inside, part)) for part in parts.values()), Counter()
        )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(names=NAMES, records=RECORDS)
def test_a_stateless_region_does_not_notice_that_it_sees_only_some_rows(names, records):
    for region in program(names).compile().regions:
        inside = [names[number - 1] for number in region.operators if 0 < number <= len(names)]
        if not region.parallel or region.key is not None or not inside:
            continue
        parts = (program(inside, [record]) for record in records)

        assert rows_of(program(inside, records)) == sum(map(rows_of, parts), Counter())


# The rules


@st.composite
def graphs(draw):
    """Programs with branches, several sources, and sinks of both kinds."""
    made = ab.Program("drawn")
    streams = [
        made.read(ab.sources.Records([], schema=EVENTS), event_time="t", lateness="1 s")
        for _ in range(draw(st.integers(1, 2)))
    ]
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            stream = draw(st.sampled_from(streams))
            for name in draw(NAMES):
                stream = PIECES[name](stream)
            streams.append(stream)
            continue
        left, right = (draw(st.sampled_from(streams)).select(*EVENTS) for _ in range(2))
        kind = draw(st.sampled_from(["union", "merge", "join"]))
        if kind == "join":
            streams.append(left.join(right, on="k", within="1 s"))
        else:
            streams.append(getattr(left, kind)(right))
    for number, stream in enumerate(draw(st.lists(st.sampled_from(streams), max_size=3))):
        stream.write(ab.sinks.Memory(f"out-{number}"), ordered=draw(st.booleans()))
    return made


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(made=graphs())
def test_regions_keep_the_rules(made):
    plan = made.compile()
    homes = plan.homes()
    assert len(plan.graph.operators) == len(homes) == sum(len(r.operators) for r in plan.regions)
    for region in filter(lambda region: region.parallel, plan.regions):
        check_chain(plan, region)
        check_keys(plan, region)
        assert all(plan.traits[number].parallelisable for number in region.operators)
    for op in plan.graph.operators:
        if isinstance(op, Write) and op.ordered:
            assert not homes[op.id].parallel


def check_chain(plan, region):
    """One entry, one exit, and inside one reader each."""
    for before, behind in zip(region.operators, region.operators[1:], strict=False):
        assert [before] == [port.operator for port in plan.graph[behind].inputs]
        assert (behind,) == plan.graph.readers(before)


def check_keys(plan, region):
    """The region's key is part of every key and is carried to it, and never empty."""
    operators = plan.operators(region)
    keyed = [op for op in operators if plan.traits[op.id].state == "keyed"]
    assert bool(keyed) == bool(region.key) == (region.key is not None)
    if not keyed:
        return
    assert not any(isinstance(op, Read) for op in operators)
    carried = set(plan.graph.output(operators[0].inputs[0]).schema)
    for op in operators:
        traits = plan.traits[op.id]
        if traits.state == "keyed":
            assert set(region.key) <= set(traits.key)
            assert set(region.key) <= carried
        carried &= set(traits.forwards)
        if OUT in op.outputs:
            given = plan.graph.output(op.inputs[0]).schema
            assert all(op.outputs[OUT].schema[name] == given[name] for name in traits.forwards)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_fused_operators_are_in_one_region_or_refused(data):
    made = data.draw(graphs())
    graph = made.freeze()
    numbers = st.integers(0, len(graph.operators) - 1)
    pairs = data.draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=3))
    for one, other in pairs:
        made._builder.fuse(one, other)
    try:
        plan = made.compile()
    except ab.ProgramError as refused:
        assert "cannot be kept in one region" in refused.what
        return
    homes = plan.homes()
    assert all(homes[one] == homes[other] for one, other in pairs)
    assert len(homes) == len(graph.operators)
    for region in filter(lambda region: region.parallel, plan.regions):
        check_chain(plan, region)
        check_keys(plan, region)
