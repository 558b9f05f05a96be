"""Joins give what the sequential run gives, and keep only what can still match (M13)."""

from dataclasses import replace
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import anabranch as ab
from anabranch.kernels.bundle import OFFSET, PARTITION, PHASE, SLICE, TIME, in_order, key_part
from anabranch.kernels.kernel import Taken
from anabranch.kernels.results import END
from anabranch.kernels.together import join_near, join_pairs, join_reach, join_run
from anabranch.kernels.together.join import JoinKernel
from anabranch.kernels.together.join_run import Run
from anabranch.program.operators.together import Join
from anabranch.state.slices import Owners
from anabranch.testing import assert_same_rows, run_sequential
from tests.kernels.alone import WAYS, Ways, _Run, run_alone
from tests.kernels.together import Lowered, logs, two_streams

HOW = ["inner", "left", "right", "full"]


@pytest.mark.slow
@pytest.mark.parametrize("ways", WAYS, ids=str)
@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    loose=st.sampled_from([0, join_pairs.LOOSE]),
    many=st.sampled_from([0, 1, join_run.MANY]),
    bits=st.sampled_from([join_near.HASH, np.uint64(2**63)]),
)
def test_any_join_gives_what_the_sequential_run_gives(ways, data, loose, many, bits):
    """Few rows a key or many, few stored rows or many, keys with the same bits or without."""
    program, left, right = data.draw(two_streams())
    joined = left.join(
        right,
        on=data.draw(st.sampled_from(["k", ["k", "j"], ["j", "k"]])),
        within=data.draw(st.sampled_from(["0 ms", "1 ms", "5 ms", "100 ms"])),
        how=data.draw(st.sampled_from(HOW)),
    )
    joined.write(ab.sinks.Memory("out"))
    joined.dead_letters.write(ab.sinks.Memory("letters"))
    log = data.draw(logs(program))

    with (
        mock.patch.object(join_pairs, "LOOSE", loose),
        mock.patch.object(join_run, "MANY", many),
        mock.patch.object(join_run, "HASH", bits),
    ):
        ran = run_alone(program, log, Lowered(JoinKernel), ways)

    expected = run_sequential(program, log=log)
    assert ran.error is None
    assert_same_rows(expected["out"], ran.rows["out"])
    assert_same_rows(expected["letters"], ran.rows["letters"])
    assert len(expected["letters"]) == ran.letters


def kernel_of(how="inner", within="5 ms", key=pl.String):
    """A join of rows (k, t, l) and (k, t, r)."""
    program = ab.Program("joined")
    one, two = (
        program.read(
            ab.sources.Records([], {"k": key, "t": pl.Int64, name: pl.Int64}),
            name=name,
            event_time="t",
        )
        for name in "lr"
    )
    one.join(two, on="k", within=within, how=how).write(ab.sinks.Memory("out"))
    graph = program.freeze()
    return JoinKernel.of(graph, next(iter(graph.of(Join))))


def bundle(name, keys, times, key=pl.String, first=0):
    """Rows of one partition, with times in milliseconds."""
    columns = {"k": pl.Series(keys, dtype=key), "t": times, name: range(len(times))}
    schema = {"k": key, "t": pl.Int64, name: pl.Int64}
    return pl.DataFrame(columns, schema_overrides=schema).with_columns(
        (pl.col("t") * 1000).alias(TIME),
        pl.lit(0, pl.Int32).alias(PARTITION),
        pl.int_range(first, first + len(times), dtype=pl.Int64).alias(OFFSET),
        pl.lit(0, pl.UInt16).alias(SLICE),
    )


NONE = {name: bundle(name, [], []) for name in "lr"}


@pytest.mark.parametrize("how", ["inner", "full"])
def test_nothing_is_kept_that_can_match_no_more(how):
    """d = 5 ms: rows at 1 and 2 ms, one with a partner; from the watermark 7.001 ms on none is."""
    kernel = kernel_of(how)
    taken = Taken(0, [bundle("l", ["a", "b"], [1, 2]), bundle("r", ["a"], [2])], None, 1_000)
    kept = kernel.run(taken, kernel.restore(())).state.fold(1)
    taken = Taken(1, [NONE["l"], NONE["r"]], 1_000, 7_000)
    still = kernel.run(taken, kept).state.fold(2)
    taken = Taken(2, [NONE["l"], NONE["r"]], 7_000, 7_001)
    gone = kernel.run(taken, still).state.fold(3)

    rows = [each.whole().filter(pl.col("kind") < 2).height for each in (kept, still, gone)]
    assert [3, 2, 0] == rows
    assert 0 == gone.height


def test_a_delta_has_what_changed_and_marks_for_what_matched():
    """full: the left row comes first; the right one that finds it is new, the left one marked."""
    kernel = kernel_of("full")
    first = kernel.run(
        Taken(0, [bundle("l", ["a"], [1]), NONE["r"]], None, None), kernel.restore(())
    )
    taken = Taken(1, [NONE["l"], bundle("r", ["a", "b"], [2, 3])], None, None)
    second = kernel.run(taken, first.state)

    assert [0] == first.delta["kind"].to_list()
    assert [(1, True), (1, False), (2, None)] == second.delta.select("kind", "matched").rows()


def test_a_row_that_leaves_in_its_own_epoch_is_never_kept():
    kernel = kernel_of("left")
    given = kernel.run(
        Taken(0, [bundle("l", ["a"], [1]), NONE["r"]], None, END), kernel.restore(())
    )

    assert 1 == given.rows["out"].height
    assert 0 == given.delta.height == given.state.height


def test_an_attempt_can_be_taken_back():
    kernel = kernel_of()
    first = kernel.run(
        Taken(0, [bundle("l", ["a"], [1]), NONE["r"]], None, None), kernel.restore(())
    )
    taken = Taken(1, [NONE["l"], bundle("r", ["a"], [2])], None, 20_000)
    second = kernel.run(taken, first.state)

    again = kernel.run(taken, second.state.at(1))

    assert second.rows["out"].equals(again.rows["out"])
    assert 1 == again.rows["out"].height
    with pytest.raises(LookupError, match=r"^no state at version 1: 2 to 2 are known$"):
        second.state.fold(2).at(1)


@pytest.mark.parametrize("rows", [1_000, 100_000])
def test_a_key_with_many_rows_costs_no_more_than_its_pairs(rows, monkeypatch):
    """One key, a row each millisecond, d = 1 ms: at most three partners a row are looked at."""
    looked = []

    def looking(begin, count):
        looked.append(int(count.sum()))
        return join_near.unfolded(begin, count)

    monkeypatch.setattr(join_reach, "unfolded", looking)
    kernel = kernel_of(within="1 ms")
    left, right = (bundle(name, ["a"] * rows, range(rows)) for name in "lr")
    first = kernel.run(Taken(0, [left, NONE["r"]], None, None), kernel.restore(()))
    given = kernel.run(Taken(1, [NONE["l"], right], None, None), first.state)

    assert 3 * rows - 2 == given.rows["out"].height == sum(looked)


class Rescaling(_Run):
    """Before each epoch the slices are dealt to another number of lanes."""

    past: list[pl.DataFrame]

    def _epoch(self, origins, inputs, before, after):
        self.past = self.past if origins.epoch else []
        width = self.draw.randint(1, 4)
        self.ways = replace(self.ways, width=width)
        self.owners = Owners.spread(slices=self.ways.slices, lanes=width)
        mine = [pl.col("slice").is_in(self.owners.slices_of(lane)) for lane in range(width)]
        self.states = [self.kernel.restore([d.filter(m) for d in self.past]) for m in mine]
        self.deltas = [[] for _ in range(width)]
        super()._epoch(origins, inputs, before, after)
        self.past += [delta for deltas in self.deltas for delta in deltas]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000), how=st.sampled_from(HOW))
def test_slices_can_move_between_lanes(data, seed, how):
    program, left, right = data.draw(two_streams())
    left.join(right, on="k", within="5 ms", how=how).write(ab.sinks.Memory("out"))
    log = data.draw(logs(program))

    ran = Rescaling(program.freeze(), JoinKernel.of, Ways(slices=8, seed=seed)).all(log)

    assert_same_rows(run_sequential(program, log=log)["out"], ran.rows["out"])


def test_rows_that_leave_alone_are_in_order_across_lanes_with_other_columns():
    """Two lanes, one epoch: a record, then results of a window of operator 1, at one time.

    The lane of the record has never seen a result: its rows have fewer columns.
    """
    kernel = kernel_of("left")
    record = bundle("l", ["z"], [1])
    results = bundle("l", ["c", "b"], [1, 1]).with_columns(
        pl.lit(1, pl.Int8).alias(PHASE),
        pl.lit(1, pl.Int32).alias(PARTITION),
        pl.lit(2_000, pl.Int64).alias(OFFSET),
        pl.Series(key_part(1, 0), ["b", "c"]),
    )
    lanes = [
        kernel.run(Taken(0, [rows, NONE["r"]], None, END), kernel.restore(())).rows["out"]
        for rows in (results, record)
    ]

    assert ["z", "c", "b"] == in_order(lanes)["k"].to_list()


def test_what_the_watermark_has_passed_is_not_restored():
    """The delta of the second epoch tells of a watermark that the first epoch's row is behind."""
    kernel = kernel_of()
    first = kernel.run(Taken(0, [bundle("l", ["a"], [1]), NONE["r"]], None, 1), kernel.restore(()))
    taken = Taken(1, [bundle("l", ["a"], [50]), NONE["r"]], 1, 40_000)
    second = kernel.run(taken, first.state)

    assert 1 == kernel.restore([first.delta, second.delta]).height


def test_an_outer_join_holds_the_watermark_back():
    assert (0, 5_000) == (kernel_of("inner").lag, kernel_of("full").lag)


@pytest.mark.parametrize("loose", [0, join_pairs.LOOSE])
@pytest.mark.parametrize(("watermark", "pairs"), [(10_000, 1), (10_001, 0)])
def test_a_row_that_can_match_no_more_finds_nothing_while_it_is_in_memory(loose, watermark, pairs):
    """d = 10 ms: left at 0 can match up to the watermark 10 ms, however near right at 4 ms is."""
    kernel = kernel_of(within="10 ms")
    taken = Taken(0, [bundle("l", ["a"], [0]), NONE["r"]], None, None)
    state = kernel.run(taken, kernel.restore(())).state

    with mock.patch.object(join_pairs, "LOOSE", loose):
        taken = Taken(1, [NONE["l"], bundle("r", ["a"], [4])], watermark, watermark)
        assert pairs == kernel.run(taken, state).rows["out"].height


def test_a_pair_has_the_later_of_two_times_and_its_own_place():
    """Right at 2 ms comes behind left at 4 and 1 ms: pairs at 4 and 2 ms, as the left ones came."""
    kernel = kernel_of()
    taken = Taken(0, [bundle("l", ["a", "a"], [4, 1]), NONE["r"]], None, None)
    state = kernel.run(taken, kernel.restore(())).state
    taken = Taken(1, [NONE["l"], bundle("r", ["a"], [2], first=7)], None, None)
    rows = kernel.run(taken, state).rows["out"]

    assert [(4_000, 7), (2_000, 7)] == rows.select(TIME, OFFSET).rows()


def test_letters_that_nobody_reads_are_counted_alone():
    """d = 5 ms, watermark 10 ms: a row at 4 ms is too late, one at 5 ms is not."""
    kernel = kernel_of()
    taken = Taken(0, [bundle("l", ["a", "a"], [4, 5]), NONE["r"]], 10_000, 10_000)
    given = kernel.run(taken, kernel.restore(()))

    assert ({"out"}, 1) == (set(given.rows), given.letters)
    assert 1 == given.state.height


@pytest.mark.parametrize(
    ("within", "keys", "asked"),
    [
        (20_000_000, ["500"], ["500"]),
        (20_000_000, ["9999", "0", None], ["0", "9999"]),
        (1_000, ["500"], ["499", "500", "501"]),
        (1_000, [], []),
    ],
)
def test_of_many_stored_rows_few_are_looked_at(within, keys, asked):
    """10,000 rows 1 ms apart, a key each; new ones at 500 ms find those near, or of their keys."""
    times = range(10_000)
    stored = Run.of(bundle("l", [f"{at}" for at in times], times), ["k"])
    new = Run.of(bundle("r", keys, [500] * len(keys)), ["k"])

    assert asked == stored.asked(new, within).rows["k"].to_list()
