"""Tumbling and sliding windows give what the sequential run gives, however work is divided."""

from dataclasses import dataclass, replace
from functools import partial
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.kernel import Taken
from anabranch.kernels.results import END
from anabranch.kernels.windows import grid
from anabranch.kernels.windows.kernel import WindowKernel
from anabranch.kernels.windows.layout import Layout
from anabranch.program.log import Cut
from anabranch.program.operators.windowed import WindowAggregate
from tests.kernels.alone import WAYS, run_alone
from tests.kernels.window_cases import AGGREGATES, assert_as_sequential, cases, told

TUMBLING = st.sampled_from([ab.tumbling("2 s"), ab.tumbling("1500 ms"), ab.tumbling("1 ms")])
SLIDING = st.sampled_from(
    [
        ab.sliding("2 s", "1 s"),
        ab.sliding("3 s", "2 s"),
        ab.sliding("2500 ms", "700 ms"),
        ab.sliding("1 s", "3 s"),
        ab.sliding("2 s", "2 s"),
        ab.sliding("1 s", "50 ms"),
    ]
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(case=cases(TUMBLING))
def test_tumbling_windows(case):
    assert_as_sequential(case, WindowKernel.of)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(case=cases(SLIDING))
def test_sliding_windows(case):
    assert_as_sequential(case, WindowKernel.of)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(case=cases(TUMBLING | SLIDING, allowed=True))
def test_windows_that_leave_again(case):
    assert_as_sequential(case, WindowKernel.of)


# Functions over windows


def as_frame(key, frame):
    first = frame["t"].min()
    return frame.select("t", "n").with_columns(first=first, key=pl.lit(repr(key)))


def as_dict(key, frame):
    return {"n": frame.height, "key": repr(key), "t": frame["t"][-1]}


def as_list(key, frame):
    return [{"n": n, "first": frame["t"][0]} for n in frame["n"].to_list()[:2]]


def sometimes_fails(key, frame):
    if frame["n"].sum() % 3 == 0:
        raise ValueError(frame["n"].to_list())
    return {"n": "text"} if frame["n"].sum() % 3 == 1 else {"n": 1}


def as_nothing(key, frame):
    return None


OUT = {"t": pl.Int64, "n": pl.Int64, "first": pl.Int64, "key": pl.String}
FUNCTIONS = [as_frame, as_dict, as_list, as_nothing]


def applied(fn, on_error="fail"):
    return lambda windowed: windowed.apply(fn, out=OUT, on_error=on_error)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), fn=st.sampled_from(FUNCTIONS), allowed=st.booleans())
def test_functions_over_windows(data, fn, allowed):
    case = data.draw(cases(TUMBLING | SLIDING, allowed=allowed, made=applied(fn)))
    assert_as_sequential(case, WindowKernel.of)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(data=st.data(), on_error=st.sampled_from(["fail", "skip"]))
def test_functions_that_fail(data, on_error):
    case = data.draw(cases(TUMBLING, made=applied(sometimes_fails, on_error)))
    assert_as_sequential(case, WindowKernel.of)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), allowed=st.booleans())
def test_windows_that_a_function_fails_on_become_letters(data, allowed):
    made = partial(told, fn=sometimes_fails, out=OUT)
    case = data.draw(cases(TUMBLING | SLIDING, allowed=allowed, made=made))
    assert_as_sequential(case, WindowKernel.of)


def fails(key, frame):
    raise ValueError(key)


def test_a_function_sees_its_window_and_the_error_says_which():
    program = ab.Program("applied")
    source = ab.sources.Records([{"t": 1, "k": "a"}], schema={"t": pl.Int64, "k": pl.String})

    windowed = program.read(source, event_time="t").window(ab.tumbling("10 ms"), by="k")
    windowed.apply(fails, out={"n": pl.Int64}).write(ab.sinks.Memory("out"))
    (read,) = program.freeze().sources
    log = [Cut(read.name, dict.fromkeys(source.partitions(), (0, 1)))]
    ran = run_alone(program, log, WindowKernel.of, WAYS[0])
    assert ran.error is not None
    assert ran.error.text == "ValueError: ('a',)"
    assert ran.error.record == '{"window_start": 0, "window_end": 10, "k": "a"}'


# Many windows at a time

SLID = [
    "rows", "known", "total", "large", "truths", "floats", "nans", "halves", "money", "spans",
    "low", "high", "soonest", "longest", "mean", "mean_f", "mean_d", "mean_u", "var", "var_f",
]  # fmt: skip


def slid(draw):
    names = draw.sample(SLID, 5)
    return lambda windowed: windowed.agg(**{name: AGGREGATES[name] for name in names})


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 10**9])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), draw=st.randoms(use_true_random=False))
def test_windows_of_a_grid_are_those_of_their_panes(room, data, draw):
    case = data.draw(cases(SLIDING, made=slid(draw)))
    with mock.patch.object(grid, "ROOM", room):
        assert_as_sequential(case, WindowKernel.of)


def test_a_grid_is_made_where_most_keys_are_in_most_panes():
    kernel = kernel_of(ab.sliding("4 s", "1 s"), n=ab.count(), low=ab.min("n"))
    windows = kernel.windows
    dense = panes_of(kernel, [(second, key) for second in range(8) for key in range(9)])
    sparse = panes_of(
        kernel, [(second, 10 * second + key) for second in range(8) for key in range(3)]
    )

    found = windows.slid([dense], 0, 3_000_000)

    assert windows.slid([sparse], 0, 3_000_000) is None
    assert windows.slid([dense], 0, 0) is None
    assert found is not None
    assert [(s * 1_000_000, 4, k) for s in range(4) for k in range(9)] == found.select(
        "start", "n", "k0"
    ).rows()


# Values that are kept whole

WHOLE = [
    "different", "colours", "median", "tenth", "all", "lists", "instants", "top", "top_f", "top_by",
    "range", "len", "ends", "sorted", "joined", "kinds",
]  # fmt: skip


def whole(draw):
    names = draw.sample(WHOLE, 4)
    return lambda windowed: windowed.agg(**{name: AGGREGATES[name] for name in names})


@pytest.mark.slow
@pytest.mark.parametrize("layout", Layout)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), draw=st.randoms(use_true_random=False), allowed=st.booleans())
def test_no_layout_shows(layout, data, draw, allowed):
    case = data.draw(cases(TUMBLING | SLIDING, allowed=allowed, made=whole(draw)))
    with mock.patch.object(Layout, "of", return_value=layout):
        assert_as_sequential(case, WindowKernel.of)


@pytest.mark.parametrize(("values", "layers"), [(1, 1), (20, 3)])
def test_chunks_stand_side_by_side_until_there_are_many(values, layers):
    """Of 19 bundles 17 become one; lists of few values are copied together at once."""
    kernel = kernel_of(ab.tumbling("1 h"), all=ab.collect("n"))
    state = kernel.restore(())
    for epoch in range(19):
        rows = rows_of([(epoch, 0)] * values)
        state = kernel.run(Taken(epoch, [rows], None, None), state).state.fold(epoch + 1)

    (found,) = kernel.run(Taken(19, [rows_of([])], None, END), state).rows["out"]["all"]

    assert layers == len(state.layers)
    assert [second for second in range(19) for _ in range(values)] == found.to_list()


def test_layouts_are_chosen_by_values_a_key():
    assert Layout.of(pl.Series([], dtype=pl.Int64)) is Layout.COPIES
    assert Layout.of(pl.Series([1, 2, 3])) is Layout.COPIES
    assert Layout.of(pl.Series([100, 1])) is Layout.CHUNKS


def kernel_of(window, **aggregates):
    program = ab.Program("by hand")
    source = ab.sources.Records([], schema={"t": pl.Int64, "k": pl.Int64, "n": pl.Int64})
    stream = program.read(source, event_time="t")
    stream.window(window, by="k").agg(**aggregates).write(ab.sinks.Memory("out"))
    graph = program.freeze()
    return WindowKernel.of(graph, next(iter(graph.of(WindowAggregate))))


def rows_of(rows):
    """Rows (second, key), whose number is their second."""
    seconds, keys = [int(s) for s, _ in rows], [int(k) for _, k in rows]
    columns = {"k": keys, "n": seconds, TIME: [1_000_000 * s for s in seconds]}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
    return frame.with_columns(pl.lit(0, pl.UInt16).alias(SLICE))


def panes_of(kernel, rows):
    given = kernel.run(Taken(0, [rows_of(rows)], None, None), kernel.restore(()))
    return given.delta.sort("start")


# Partials made before the lane


@dataclass(frozen=True)
class Before:
    """A kernel that gets its rows in pieces, as partials."""

    kernel: WindowKernel

    @classmethod
    def of(cls, graph, op):
        return cls(replace(WindowKernel.of(graph, op), combined=True))

    def restore(self, deltas, version=0):
        return self.kernel.restore(deltas, version)

    def run(self, taken, state):
        rows, windows = taken.rows[0], self.kernel.windows
        parts = [
            pl.DataFrame(schema={**windows.partial_schema, PARTITION: pl.Int32, OFFSET: pl.Int64})
        ]
        for begin in range(0, rows.height, 3):
            piece = rows.slice(begin, 3)
            outside = self.kernel.panes.outside(piece[TIME])
            inside = piece if outside is None else piece.filter(~outside)
            partials = windows.grouped(inside, self.kernel.panes.starts(inside[TIME]))
            place = pl.lit(0, pl.Int32).alias(PARTITION), pl.lit(begin, pl.Int64).alias(OFFSET)
            parts.append(partials.with_columns(place))
        both = pl.concat(parts).sample(fraction=1, shuffle=True, seed=taken.epoch)
        return self.kernel.run(replace(taken, rows=[both.drop(SLICE, strict=False)]), state)


UNORDERED = {
    "rows": ab.count(), "total": ab.sum("n"), "floats": ab.sum("f"), "high": ab.max("f"),
    "mean": ab.mean("n"), "var": ab.var("n"), "different": ab.count_distinct("k"),
    "top": ab.top_k("k", 2),
}  # fmt: skip
ORDERED = {"first": ab.first("n"), "last": ab.last("n"), "all": ab.collect("n"),
           "joined": pl.col("k").drop_nulls().str.join("-")}  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), tumbling=st.booleans())
def test_partials_made_before_the_lane(data, tumbling):
    aggregates = UNORDERED | (ORDERED if tumbling else {})
    windows = TUMBLING if tumbling else SLIDING
    case = data.draw(cases(windows, made=lambda w: w.agg(**aggregates), late=False))
    assert_as_sequential(case, Before.of)
