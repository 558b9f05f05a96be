"""Slices leave states and come into others between any two epochs, for every kernel."""

import random
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from unittest import mock

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels import layers
from anabranch.kernels.bundle import SLICE
from anabranch.kernels.keyed.deduplicate import DeduplicateKernel
from anabranch.kernels.keyed.parts import PartStore
from anabranch.kernels.keyed.pattern import MatchKernel
from anabranch.kernels.keyed.process import ProcessKernel
from anabranch.kernels.keyed.reduce import ReduceKernel
from anabranch.kernels.lane_task import LaneState
from anabranch.kernels.together import join_run
from anabranch.kernels.together.join import JoinKernel
from anabranch.kernels.together.time_order import TimeOrderKernel
from anabranch.kernels.together.union import UnionKernel
from anabranch.kernels.windows.kernel import WindowKernel
from anabranch.kernels.windows.rows import RowsKernel
from anabranch.kernels.windows.sessions import SessionKernel
from anabranch.program.log import Cut
from anabranch.state.slices import slice_of
from tests.kernels import window_cases
from tests.kernels.moving import Moving
from tests.kernels.test_join import HOW
from tests.kernels.test_process_kernel import OUT, Alarms, remember
from tests.kernels.test_reduce import added
from tests.kernels.test_sessions import SESSIONS
from tests.kernels.test_window_kernel import SLIDING, TUMBLING

chances = st.integers(0, 2**32).map(random.Random)
LONG = settings(max_examples=8, deadline=None, phases=[Phase.generate])
"""What is drawn by a seed does not shrink."""


def records(chance, column="n"):
    """Rows of few keys, in rough time order, in many epochs: keys are touched again and again."""
    now, found = 0, []
    for _ in range(chance.randint(15, 45)):
        now += chance.choice([0, 1, 2, 5])
        found.append(
            {
                "t": now - chance.choice([0, 0, 1, 4, 11]),
                "k": chance.choice("abcdefgh"),
                "s": chance.choice(["x", "y"]),
                column: chance.choice([None, *range(10)]),
            }
        )
    schema = {"t": pl.Int64, "k": pl.String, "s": pl.String, column: pl.Int64}
    return ab.sources.Records(found, schema)


def log_of(chance, program):
    """Epochs of up to 5 rows, of any source; then each ends."""
    log, at = [], {}
    ends = {read.name: read.source.latest()[0] for read in program.freeze().sources}
    while left := [name for name, end in ends.items() if at.get(name, 0) < end]:
        name = chance.choice(left)
        first = at.get(name, 0)
        at[name] = min(ends[name], first + chance.randint(0, 5))
        log.append(Cut(name, {0: (first, at[name])}, finished=frozenset()))
    return [*log, *(Cut(name, {0: (end, end)}) for name, end in ends.items())]


def streams(chance, columns="n"):
    """A program and a stream for each of these columns."""
    program = ab.Program("drawn")
    found = [
        program.read(records(chance, name), name=f"of-{at}", event_time="t", lateness="3 ms")
        for at, name in enumerate(columns)
    ]
    return program, *found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("windows", "lower", "allowed"),
    [
        (TUMBLING, WindowKernel.of, False),
        (SLIDING, WindowKernel.of, False),
        (TUMBLING | SLIDING, WindowKernel.of, True),
        (SESSIONS, SessionKernel.of, False),
        (st.builds(ab.rows, st.integers(1, 5), st.integers(1, 5)), RowsKernel.of, False),
    ],
    ids=["tumbling", "sliding", "allowed late", "sessions", "rows"],
)
@LONG
@given(data=st.data(), chance=chances)
def test_windows(data, chance, windows, lower, allowed):
    case = data.draw(window_cases.cases(windows, allowed=allowed))
    Moving.of(case.program, case.log, lower).check(chance)


@pytest.mark.slow
@LONG
@given(chance=chances, ttl=st.sampled_from([None, "3 ms", "12 ms"]), timers=st.booleans())
def test_functions_with_state(chance, ttl, timers):
    program, stream = streams(chance)
    keyed = stream.key_by("k")
    made = keyed.process(Alarms(), ttl=ttl) if timers else keyed.process(remember, out=OUT, ttl=ttl)
    made.write(ab.sinks.Memory("out"))
    log = log_of(chance, program)
    Moving.of(program, log, ProcessKernel.of, forgets=ttl is not None).check(chance)


WAYS = {
    "reduce": (lambda keyed: keyed.reduce(added), ReduceKernel.of),
    "ever": (lambda keyed: keyed.deduplicate(), DeduplicateKernel.of),
    "within": (lambda keyed: keyed.deduplicate(within="11 ms"), DeduplicateKernel.of),
    "match": (
        lambda keyed: keyed.match(
            [ab.step("one", pl.col("s") == "x", 2), ab.step("two", pl.col("n") > 2)],
            within="20 ms",
            skip=True,
        ),
        MatchKernel.of,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@LONG
@given(chance=chances)
def test_rows_by_key(chance, way):
    program, stream = streams(chance)
    made, lower = WAYS[way]
    made(stream.key_by("k")).write(ab.sinks.Memory("out"))
    Moving.of(program, log_of(chance, program), lower).check(chance)


@pytest.mark.slow
@LONG
@given(chance=chances, how=st.sampled_from(HOW))
def test_joins(chance, how):
    program, left, right = streams(chance, "lr")
    joined = left.join(right, on="k", within=chance.choice(["2 ms", "9 ms"]), how=how)
    joined.write(ab.sinks.Memory("out"))
    with mock.patch.object(join_run, "MANY", chance.choice([0, 1, 4])):
        Moving.of(program, log_of(chance, program), JoinKernel.of).check(chance)


@pytest.mark.slow
@pytest.mark.parametrize("lower", [TimeOrderKernel.of, UnionKernel.of], ids=["merge", "union"])
@settings(max_examples=2, deadline=None, phases=[Phase.generate])
@given(chance=chances)
def test_two_streams_in_one_lane(chance, lower):
    program, left, right = streams(chance, "nn")
    made = left.merge(right) if lower == TimeOrderKernel.of else left.union(right)
    made.write(ab.sinks.Memory("out"))
    Moving.of(program, log_of(chance, program), lower).check(chance)


def processing(function, **options):
    """A kernel over rows (t, k), and the slices of its keys."""
    program = ab.Program("p")
    source = ab.sources.Records([{"t": t, "k": k} for t, k in enumerate("abcdefgh")])
    stream = program.read(source, event_time="t").key_by("k").process(function, **options)
    stream.write(ab.sinks.Memory("out"))
    (read,) = program.freeze().sources
    log = [Cut(read.name, {0: (0, 8)}, finished=frozenset()), Cut(read.name, {0: (8, 8)})]
    return Moving.of(program, log, ProcessKernel.of)


CALLED = []


class Calls(ab.KeyedOperator):
    """Says of which keys timers fire."""

    out = {"k": pl.String}

    def on_record(self, record, state):
        state.timer_at(100)

    def on_timer(self, at, state):
        CALLED.append(state.key)


def test_timers_of_slices_that_have_left_do_not_fire():
    moving = processing(Calls())
    records, end = moving.epochs
    state = moving.kernel.run(records, moving.kernel.restore(())).state
    (rows,) = records.rows
    mine = frozenset(rows[SLICE].to_list()[:3])
    CALLED.clear()
    moving.kernel.run(end, state.only(mine))

    assert CALLED == rows.filter(pl.col(SLICE).is_in(list(mine)))["k"].sort().to_list()
    assert 0 < len(CALLED) < 8


def test_states_are_joined_when_they_are_folded():
    moving = processing(remember_key, out={"k": pl.String})
    state = moving.kernel.run(moving.epochs[0], moving.kernel.restore(())).state

    with pytest.raises(ValueError, match="versions 0 to 1 are open"):
        state.joined(moving.kernel.restore(()))
    with pytest.raises(ValueError, match="versions 0 to 1 are open"):
        moving.kernel.restore(()).joined(state)


def remember_key(record, state):
    state.value = record["k"]


def test_a_lane_divides_the_states_of_all_its_operators():
    moving = processing(remember_key, out={"k": pl.String})
    state = moving.kernel.run(moving.epochs[0], moving.kernel.restore(())).state
    lane = LaneState({"one": state, "two": moving.kernel.restore(())}).fold()
    here = frozenset(range(4))
    there = frozenset(range(4, 128))

    both = lane.only(here).joined(lane.only(there))

    assert lane.whole(here)["one"]["slice"].is_in(list(here)).all()
    assert lane.only(here).whole()["one"].height + lane.whole(there)["one"].height == 8
    assert both.whole()["one"].sort("key").equals(lane.whole()["one"].sort("key"))
    assert both.whole()["two"].is_empty()


def test_a_large_layer_is_tidied_when_folds_have_saved_up_for_it():
    """Eight keys, half of them leave: 3 rows a fold, so the third fold drops them."""
    moving = processing(remember_key, out={"k": pl.String})
    state = moving.kernel.run(moving.epochs[0], moving.kernel.restore(())).state.fold(1)
    (rows,) = moving.epochs[0].rows
    state, heights = state.only(frozenset(rows[SLICE].to_list()[:3])), []
    with mock.patch.object(layers, "STEP", 3):
        for _ in range(3):
            state = moving.kernel.run(replace(moving.epochs[1], rows=[rows.clear()]), state).state
            state = state.fold(state.version)
            heights.append(sum(layer.height for layer in state.cells.layers))

    assert [8, 8] == heights[:2]
    assert state.whole().height == heights[2] < 8


def counted(record, state):
    state.value = (state.value or 0) + record["n"]
    return {"k": record["k"], "n": state.value}


KN = {"k": pl.String, "n": pl.Int64}
BACK = {
    "reduce": (lambda keyed: keyed.reduce(added), ReduceKernel.of, 4_096),
    "few cells": (lambda keyed: keyed.process(counted, out=KN), ProcessKernel.of, 4_096),
    "many cells": (lambda keyed: keyed.process(counted, out=KN), ProcessKernel.of, 0),
}


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("way", BACK)
def test_what_is_left_of_a_slice_stays_hidden_when_it_comes_back(way, decoded):
    """The sum of a key is 1 when it leaves, 3 when it comes back below what is left, then 7."""
    names = pl.DataFrame({"k": [f"k{at}" for at in range(200)]})
    places = slice_of(names, ["k"], 8)
    of = [names.filter(places == at)["k"].to_list() for at in range(8)]
    key = of[0][0]
    epochs = [
        [(key, 1), (of[1][0], 1)],
        [(key, 2), *((each, 1) for each in of[0][1:8])],
        [(key, 4)],
    ]
    rows = [{"t": t, "k": k, "n": n, "s": "x"} for t, (k, n) in enumerate(chain(*epochs))]
    made, lower, large = BACK[way]
    program = ab.Program("p")
    made(program.read(ab.sources.Records(rows), event_time="t").key_by("k")).write(
        ab.sinks.Memory("out")
    )
    (read,) = program.freeze().sources
    ends = [0, *accumulate(map(len, epochs))]
    log = [Cut(read.name, {0: each}, finished=frozenset()) for each in pairwise(ends)]
    moving = Moving.of(program, log, lower)
    run = moving.kernel.run
    defaults = PartStore.from_frames.__func__.__kwdefaults__
    with mock.patch.object(layers, "STEP", 0), mock.patch.dict(defaults, large=large):
        state = run(moving.epochs[0], moving.kernel.restore(())).state.fold(1)
        went = state.at(1).only(frozenset([0])) if decoded else state.only(frozenset([0]))
        went = run(moving.epochs[1], went).state.fold(2)
        stayed = state.only(frozenset([0, 1, 2])).only(frozenset([1]))
        # Even those that are asked for again do not come back.
        stayed = stayed.only(frozenset(range(8))).fold(1)
        assert {1} == {*stayed.whole()["slice"]}
        both = stayed.joined(went)
        assert both.version == 1
        given = run(moving.epochs[2], both)

    assert [7] == given.rows["out"]["n"].to_list()
