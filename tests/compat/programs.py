"""Programs whose checkpoints are kept: together they have state of every kind.

They must not be changed: a checkpoint is opened with the program that made it. What is new gets a
program of its own.
"""

import polars as pl

import anabranch as ab
from tests.runtime.programs import CALLS, EVENTS, calls, events

COUNT = 60
SEEN = {"caller": pl.String, "n": pl.Int64, "last": pl.Int64, "others": pl.String}
QUIET = {"caller": pl.String, "at": pl.Int64}


def seen(call, state):
    """A value with containers in it, a list and a map."""
    before = state.value or {"n": 0, "kinds": frozenset(), "span": (None, 1.5)}
    state.value = {
        "n": before["n"] + 1,
        "kinds": before["kinds"] | {call["callee"]},
        "span": (call["t"], before["span"][1]),
    }
    state.list.append(call["x"])
    state.map[call["callee"]] = call["t"]
    yield {
        "caller": call["caller"],
        "n": state.value["n"],
        "last": state.list[len(state.list) // 2],
        "others": " ".join(sorted(state.value["kinds"])),
    }


class Quiet(ab.KeyedOperator):
    """Tells when a caller has not called for a while."""

    out = QUIET

    def on_record(self, record, state):
        state.value = record["t"]
        state.timer_at(record["t"] + 400)

    def on_timer(self, at, state):
        if state.value is not None and at - state.value >= 400:
            yield {"caller": state.key, "at": at}


def read_calls(program):
    return program.read(
        ab.sources.Records(calls(COUNT), schema=CALLS), name="calls", event_time="t"
    )


def keyed(sink):
    program = ab.Program("keyed")
    by_caller = read_calls(program).key_by("caller")
    by_caller.process(seen, out=SEEN, name="seen").write(sink("seen"), name="seen-out")
    by_caller.process(Quiet, out=QUIET, name="quiet").write(sink("quiet"), name="quiet-out")
    return program


def greater(value, call):
    return call if call["x"] > value["x"] else value


def single(sink):
    program = ab.Program("single")
    by_callee = read_calls(program).key_by("callee")
    by_callee.reduce(greater, name="greatest").write(sink("greatest"), name="greatest-out")
    by_callee.deduplicate(within="500 ms", name="once").write(sink("once"), name="once-out")
    steps = [ab.step("low", pl.col("x") < 50), ab.step("high", pl.col("x") >= 50, times=2)]
    by_callee.match(steps, within="2 s", skip=True, name="rise").write(
        sink("rise"), name="rise-out"
    )
    return program


def read_events(program):
    source = ab.sources.Records(events(COUNT), schema=EVENTS)
    return program.read(source, name="events", event_time="t", lateness="2 s")


def windows(sink):
    program = ab.Program("windows")
    read = read_events(program)
    many = {
        "n": ab.count(), "total": ab.sum("price"), "mean": ab.mean("price"), "least": ab.min("price"),
        "most": ab.max("price"), "first": ab.first("ad"), "last": ab.last("ad"),
        "kinds": ab.count_distinct("kind"), "middle": ab.quantile("price", 0.5),
        "top": ab.top_k("ad", 2), "all": ab.collect("price"), "spread": ab.var("price"),
    }  # fmt: skip
    for name, window in (
        ("tumbling", ab.tumbling("1 s")),
        ("sliding", ab.sliding("2 s", "1 s")),
        ("session", ab.session("300 ms")),
    ):
        read.window(window, by="kind").agg(**many).write(sink(name), name=f"{name}-out")
    rows = read.window(ab.rows(5, 2), by="kind").agg(n=ab.count(), total=ab.sum("price"))
    rows.write(sink("rows"), name="rows-out")
    return program


def together(sink):
    program = ab.Program("together")
    read = read_calls(program)
    low, high = read.filter(pl.col("x") < 50), read.filter(pl.col("x") >= 50)
    paired = low.join(high, on="caller", within="700 ms", how="full", name="pairs")
    paired.write(sink("pairs"), name="pairs-out")
    low.merge(high).write(sink("merged"), name="merged-out")
    return program


PROGRAMS = {each.__name__: each for each in (keyed, single, windows, together)}
