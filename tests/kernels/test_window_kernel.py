"""Tumbling and sliding windows give what the sequential run gives, however work is divided."""

from dataclasses import dataclass, replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.windows.kernel import WindowKernel
from anabranch.program.log import Cut
from tests.kernels.alone import WAYS, run_alone
from tests.kernels.window_cases import assert_as_sequential, cases

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
