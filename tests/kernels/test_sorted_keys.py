"""Windows of many keys are added up by sorting, and later: all the same."""

from contextlib import contextmanager
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.windows import sorted_keys
from anabranch.kernels.windows import state as panes
from anabranch.kernels.windows import windows as lowered
from anabranch.kernels.windows.sorted_keys import SortedKeys
from anabranch.testing import Cut
from bench.kernels.tasks import Tasks

AGGREGATES = {
    "count": lambda: {"n": ab.count()},
    "sum": lambda: {"n": ab.sum("x")},
    "several": lambda: {
        "n": ab.count("x"), "s": ab.sum("x"), "m": ab.mean("x"), "low": ab.min("x"), "b": ab.sum("b"),
    },
    "floats": lambda: {"s": ab.sum("f"), "high": ab.max("f"), "v": ab.var("x")},
    "texts": lambda: {"high": ab.max("w"), "n": ab.count()},
    "order": lambda: {"first": ab.first("x"), "all": ab.collect("x")},
}  # fmt: skip
WINDOWS = [ab.tumbling("10 ms"), ab.sliding("10 ms", "5 ms"), ab.sliding("10 ms", "3 ms")]
SCHEMA = pl.Schema(
    {"t": pl.Int64, "k": pl.Int64, "x": pl.Int64, "b": pl.Boolean, "f": pl.Float64, "w": pl.String}
)
KEYS = {
    "near": st.integers(-3, 3),
    "far": st.sampled_from([-(2**63), -1, 0, 2**40, 2**63 - 1]),
    "null": st.none() | st.integers(0, 2),
}


@contextmanager
def eager(*, small=0, patience=2):
    """Few are many, and what is large stays as it is."""
    with (
        mock.patch.object(sorted_keys, "MANY", 1),
        mock.patch.object(sorted_keys, "_DISTINCT", 0),
        mock.patch.object(lowered, "_FEW", 1),
        mock.patch.object(panes, "SMALL", small),
        mock.patch.object(panes, "PATIENCE", patience),
    ):
        yield


def rows_of(keys):
    values = st.tuples(
        st.integers(0, 4),
        keys,
        st.none() | st.integers(-3, 3) | st.sampled_from([2**40, -(2**50)]),
        st.none() | st.booleans(),
        st.none() | st.sampled_from([0.5, -0.0, 1e300, float("nan")]),
        st.none() | st.sampled_from(["", "a", "b"]),
    )
    return st.lists(
        st.lists(st.lists(values, max_size=6), min_size=1, max_size=3), min_size=1, max_size=7
    )


def timed(epochs):
    """Epochs of bundles of rows: each is 4 ms behind the one before, so nothing is late."""
    return [
        [
            pl.DataFrame([(4 * at + row[0], *row[1:]) for row in each], SCHEMA, orient="row")
            for each in bundles
        ]
        for at, bundles in enumerate(epochs)
    ]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@settings(max_examples=25)
@given(data=st.data(), small=st.sampled_from([0, 4]), patience=st.sampled_from([0, 2, 100]))
def test_what_is_sorted_and_put_off_is_what_the_oracle_says(
    window, name, keys, data, small, patience
):
    epochs = timed(data.draw(rows_of(KEYS[keys])))
    whole = pl.concat([bundle for bundles in epochs for bundle in bundles])
    program = ab.Program("sorted")
    read = program.read(ab.sources.Records(whole), name="in", event_time="t")
    read.window(window, by="k").agg(**AGGREGATES[name]()).write(ab.sinks.Memory("out"))
    ends, log = 0, []
    for bundles in epochs:
        begin, ends = ends, ends + sum(each.height for each in bundles)
        log.append(Cut("in", {0: (begin, ends)}, finished=frozenset()))
    log[-1] = Cut("in", log[-1].offsets)
    expected = ab.testing.run_sequential(program, log=log)["out"]

    with eager(small=small, patience=patience):
        tasks, found = Tasks(program), []
        for at, bundles in enumerate(epochs):
            found += tasks.epoch(bundles, last=at == len(epochs) - 1)

    ab.testing.assert_same_rows(expected, [row for frame in found for row in frame.to_dicts()])


@pytest.mark.parametrize(
    "dtype", [pl.Int8, pl.Int64, pl.UInt64, pl.Date, pl.Datetime("us"), pl.Duration("ms"), pl.Time]
)
@given(numbers=st.lists(st.integers(0, 100), min_size=1))
def test_keys_come_once_and_in_order(dtype, numbers):
    keys = pl.Series("k", numbers, pl.Int64).cast(pl.Int8 if dtype == pl.Int8 else pl.Int64)
    keys = keys.cast(pl.Int32).cast(dtype) if dtype == pl.Date else keys.cast(dtype)
    with eager():
        found = SortedKeys.of(keys)

    assert keys.unique().sort().equals(found.keys)
    assert keys.value_counts().sort("k")["count"].to_list() == found.counts().tolist()
    assert keys.gather(found.order[found.begins]).equals(found.keys)


@given(keys=st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]), min_size=1, max_size=9))
def test_keys_too_far_apart_for_the_number_of_a_row_beside_them_are_left_to_groups(keys):
    with eager():
        found = SortedKeys.of(pl.Series("k", keys, pl.Int64))

    if found is None:
        assert (max(keys) - min(keys)).bit_length() + (len(keys) - 1).bit_length() > 64
    else:
        assert sorted(set(keys)) == found.keys.to_list()


@pytest.mark.parametrize(
    "keys",
    [
        pl.Series("k", ["a", "b"]),
        pl.Series("k", [1.0, 2.0]),
        pl.Series("k", [True, False]),
        pl.Series("k", [1, None]),
        pl.Series("k", [1, 2], pl.Int128),
    ],
    ids=lambda keys: str(keys.dtype),
)
def test_keys_that_are_no_whole_numbers_are_left_to_groups(keys):
    with eager():
        assert SortedKeys.of(keys) is None


def test_few_keys_are_left_to_groups():
    rows = sorted_keys.MANY
    numbers = pl.int_range(rows, eager=True)

    assert SortedKeys.of(numbers) is not None
    assert SortedKeys.of(numbers.head(rows - 1)) is None
    assert SortedKeys.of(numbers % 1000) is None


def test_a_sweep_that_gains_nothing_is_not_repeated():
    """A million keys, none of which comes twice in a window: they are added up when it ends."""
    program = ab.Program("distinct")
    source = ab.sources.Records([], schema={"t": pl.Int64, "k": pl.Int64})
    read = program.read(source, name="in", event_time="t")
    read.window(ab.tumbling("1 h"), by="k").agg(n=ab.count()).write(ab.sinks.Memory("out"))
    tasks, merged = Tasks(program), []

    def counted(self, frames, whole=lowered.Windows.merged):
        merged.append(sum(frame.height for frame in frames))
        return whole(self, frames)

    with (
        mock.patch.object(lowered.Windows, "merged", counted),
        mock.patch.object(panes, "SMALL", 8),
    ):
        for at in range(64):
            keys = pl.int_range(16 * at, 16 * (at + 1), eager=True)
            tasks.epoch(
                [pl.DataFrame({"t": pl.repeat(at, 16, dtype=pl.Int64, eager=True), "k": keys})]
            )

    # 32, 96, 288, 864: each time there are two more rows for each that was there.
    assert sum(merged) <= 3 * 64 * 16


def test_what_was_put_off_is_added_up_when_its_window_ends():
    """Two bundles of one epoch have a key; no row of its window comes in the epoch that ends it."""
    program = ab.Program("put off")
    source = ab.sources.Records([], schema={"t": pl.Int64, "k": pl.Int64})
    read = program.read(source, name="in", event_time="t").filter(pl.col("k") > 0)
    read.window(ab.tumbling("10 ms"), by="k").agg(n=ab.count()).write(ab.sinks.Memory("out"))
    epochs = [[{"t": [0, 0, 0], "k": [1, 2, 3]}], [{"t": [10], "k": [0]}]]
    epochs += [[{"t": [11], "k": [1]}, {"t": [12], "k": [1]}], [{"t": [20], "k": [0]}]]

    with eager(patience=100):
        tasks = Tasks(program)
        found = [tasks.epoch([pl.DataFrame(each) for each in bundles]) for bundles in epochs]

    (ended,) = [frame for frame in found[-1] if frame.height]
    assert [(1, 2)] == ended.select("k", "n").rows()
