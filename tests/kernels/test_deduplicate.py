"""Deduplication passes what the oracle passes, and forgets what can no longer matter."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.kernel import Taken
from anabranch.kernels.keyed.deduplicate import DeduplicateKernel
from tests.kernels.keyed_cases import assert_as_sequential, by, logs, sources


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_passes_is_what_passes_in_the_sequential_run(data):
    program, stream = data.draw(sources())
    within = data.draw(st.sampled_from([None, "1 ms", "5 ms", "11 ms", "1 h"]))
    passed = stream.key_by(*data.draw(by)).deduplicate(within=within)
    passed.write(ab.sinks.Memory("out"))

    assert_as_sequential(program, data.draw(logs(program)), DeduplicateKernel.of)


def lowered(within):
    program = ab.Program("p")
    rows = ab.sources.Records([{"t": 0, "k": "a"}])
    stream = program.read(rows, event_time="t").key_by("k").deduplicate(within=within)
    stream.write(ab.sinks.Memory("out"))
    graph = program.freeze()
    (op,) = [op for op in graph.operators if op.kind == "deduplicate"]
    return DeduplicateKernel.of(graph, op)


def taken(pairs, before=None, after=None):
    """An epoch of (key, milliseconds)."""
    frame = pl.DataFrame(
        {
            "t": [t for _, t in pairs],
            "k": [k for k, _ in pairs],
            TIME: [t * 1000 for _, t in pairs],
            PARTITION: [0] * len(pairs),
            OFFSET: range(len(pairs)),
            SLICE: [0] * len(pairs),
        },
        schema_overrides={PARTITION: pl.Int32, SLICE: pl.UInt16},
    )
    scaled = [None if each is None else each * 1000 for each in (before, after)]
    return Taken(0, [frame], *scaled)


def test_many_records_of_one_key_in_one_epoch_pass_as_they_would_one_by_one():
    kernel = lowered("2 ms")
    times = [3, 9, 6, 1, 0, 20, 17, 18, 23, 26, 29, 25, 32, 35, 40, 38]
    given = kernel.run(taken([("a", t) for t in times]), kernel.restore(()))
    assert given.rows["out"]["t"].to_list() == [3, 9, 6, 0, 20, 17, 23, 26, 29, 32, 35, 40]


def test_what_the_watermark_has_passed_is_neither_kept_nor_written():
    kernel = lowered("10 ms")
    first = kernel.run(taken([("a", 0), ("b", 50)], None, 30), kernel.restore(()))
    assert first.delta["__ab_k0"].to_list() == ["b"]

    second = kernel.run(taken([("c", 70)], 30, 61), first.state.fold(1))
    assert second.state.fold(2).whole()["__ab_k0"].to_list() == ["c"]


def test_only_new_keys_are_in_the_delta():
    kernel = lowered(None)
    first = kernel.run(taken([("a", 0), ("a", 1), ("b", 2)]), kernel.restore(()))
    second = kernel.run(taken([("b", 3), ("c", 4)]), first.state)

    assert first.delta["__ab_k0"].to_list() == ["a", "b"]
    assert second.delta["__ab_k0"].to_list() == ["c"]
    assert second.state.at(1).whole()["__ab_k0"].to_list() == ["a", "b"]
