"""Loops in the runtime: what enters a feedback in one epoch comes out at the start of the next (M14).

Every case is compared with the oracle on the run's own log, at several widths and sizes of epochs,
through crashes and changes of width, and resident; and something must have gone round.
"""

import polars as pl
import pytest

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.testing import assert_same_as_sequential, run_sequential
from tests.runtime.test_inline import run

EVENTS = {"t": pl.Int64, "k": pl.String, "n": pl.Int64}
NAMES = {"k": pl.String, "n": pl.Int64}


def events(count=18, slow=1):
    return [{"t": i * slow, "k": "abc"[i * i % 3], "n": i % 5} for i in range(count)]


def started(count=18, partitions=1, time="t"):
    program = ab.Program("round and round")
    source = ab.sources.Records(events(count), schema=EVENTS, partitions=partitions)
    return program, program.read(source, name="events", event_time=time, lateness="2 ms")


def out(stream, name="out"):
    stream.write(ab.sinks.Memory(name), name=name)


def lower(stream):
    """A round less to go."""
    return stream.with_columns(n=pl.col("n") - 1).filter(pl.col("n") > 0)


CASES = {}


def case(make):
    CASES[make.__name__] = make
    return make


@case
def a_counter_that_goes_round():
    program, stream = started()
    back = program.feedback(EVENTS, event_time="t")
    both = stream.union(back)
    back.close(lower(both))
    out(both)
    return program


@case
def a_counter_without_event_times():
    program, stream = started(partitions=2, time=None)
    back = program.feedback(NAMES)
    both = back.union(stream.select("k", "n"))
    back.close(lower(both).select("n", "k"))
    out(both.key_by("k").process(running, out=NAMES))
    return program


@case
def closed_by_a_source():
    program, stream = started()
    back = program.feedback(EVENTS)
    back.close(stream)
    out(back)
    return program


@case
def closed_by_what_a_window_reads_too():
    """Its partials are made where rows are read; a feedback needs the rows."""
    program, stream = started(partitions=2)
    back = program.feedback(EVENTS)
    some = stream.filter(pl.col("n") > 1)
    out(some.window(ab.tumbling("4 ms"), by="k").agg(n=ab.count()), "counts")
    back.close(some)
    out(back)
    return program


@case
def closed_in_the_midst_of_a_chain():
    program, stream = started(time=None)
    back = program.feedback(EVENTS)
    some = stream.with_columns(n=pl.col("n") * 2)
    back.close(some)
    out(some.filter(pl.col("n") > 4).union(back))
    return program


@case
def closed_by_itself_and_a_source():
    program, stream = started(time=None)
    back = program.feedback(EVENTS)
    back.close(lower(back).union(stream))
    out(back)
    return program


@case
def two_that_close_each_other():
    program, stream = started(time=None)
    one, two = (program.feedback(NAMES) for _ in range(2))
    one.close(stream.select("k", "n").union(lower(two)))
    two.close(one)
    out(two.select(n=pl.lit(2)).union(one.select(n=pl.lit(1))))
    return program


@case
def two_one_within_the_other():
    program, stream = started()
    outer = program.feedback(EVENTS, event_time="t")
    inner = program.feedback(EVENTS, event_time="t")
    body = stream.union(outer).union(inner)
    inner.close(body.filter(pl.col("n") % 2 == 1).with_columns(n=pl.col("n") - 1))
    outer.close(lower(body.filter(pl.col("n") % 2 == 0)))
    out(body)
    return program


@case
def merged_with_a_source():
    program, stream = started(partitions=2)
    back = program.feedback(EVENTS, event_time="t")
    both = stream.merge(back)
    back.close(lower(both).with_columns(t=pl.col("t") + 3))
    out(both)
    return program


@case
def fed_by_a_feedback_alone():
    """Nothing ever fires there, and what passes at once passes."""
    program, stream = started()
    back = program.feedback(EVENTS, event_time="t")
    back.close(stream)
    out(back.window(ab.tumbling("4 ms")).agg(n=ab.count()), "never")
    out(back.in_time_order(), "never either")
    out(back.key_by("k").process(Alarm), "alarms")
    out(back.key_by("k").reduce(added).union(stream))
    return program


@case
def windows_behind_it():
    program, stream = started(24)
    back = program.feedback(EVENTS, event_time="t")
    both = stream.union(back)
    back.close(lower(both).with_columns(t=pl.col("t") + 2))
    for name, window in WINDOWS.items():
        windows = both.window(window, by="k")
        out(windows.late, f"late {name}")
        out(windows.agg(n=ab.sum("n"), of=ab.collect("n")), name)
    return program


@case
def closed_by_what_came_too_late():
    program, stream = started(24)
    back = program.feedback(EVENTS, event_time="t")
    windows = stream.with_columns(t=pl.col("t") - 7 * (pl.col("n") == 3)).with_event_time("t")
    windows = windows.window(ab.tumbling("4 ms"), by="k")
    out(windows.agg(n=ab.count()), "counts")
    back.close(windows.late)
    out(back)
    return program


@case
def timers_and_a_join():
    program, stream = started()
    back = program.feedback(EVENTS, event_time="t")
    alarms = stream.union(back).key_by("k").process(Alarm)
    back.close(lower(alarms))
    pairs = stream.join(back.select("t", "k", m="n"), on="k", within="6 ms", how="full")
    out(pairs)
    out(pairs.dead_letters, "letters")
    return program


@case
def windows_that_close_it():
    """A window's result goes round: it is a record then."""
    program, stream = started(24)
    back = program.feedback(EVENTS, event_time="t")
    counts = stream.union(back).window(ab.tumbling("4 ms"), by="k").agg(n=ab.count())
    back.close(counts.select("k", "n", t="window_end"))
    out(counts)
    return program


@case
def a_loop_between_stages_that_are_divided():
    program, stream = started(24, partitions=2)
    back = program.feedback(EVENTS, event_time="t")
    before = stream.key_by("k").process(running, out=EVENTS)
    both = before.union(back)
    back.close(lower(both.filter(pl.col("n") < 7)))
    out(both.window(ab.tumbling("4 ms"), by="k").agg(n=ab.count(), of=ab.collect("n")))
    return program


@case
def closed_from_a_stage_that_is_divided():
    program, stream = started(partitions=2)
    back = program.feedback(EVENTS, event_time="t")
    out(back.union(stream).key_by("k").reduce(added))
    back.close(stream.key_by("k").process(running, out=EVENTS))
    return program


@case
def batches_and_a_lookup_in_it():
    program, stream = started(time=None)
    back = program.feedback(NAMES)
    table = pl.DataFrame({"k": ["a", "b", "b"], "to": ["b", "a", "c"]})
    both = stream.select("k", "n").union(back).lookup(table, on="k", many=True)
    added_ = both.select(k="to", n="n").map_batches(totals, out=NAMES)
    back.close(lower(added_))
    out(added_)
    return program


@case
def branches_that_meet_again():
    """What goes round is no way on which they do."""
    program, stream = started(time=None)
    one = stream.with_columns(n=pl.col("n") + 10)
    back = program.feedback(EVENTS)
    two = stream.with_columns(n=pl.col("n") + 20)
    back.close(one)
    out(two.union(one).union(back.with_columns(n=pl.lit(-1, pl.Int64))).union(back))
    return program


@case
def letters_of_rows_that_went_round():
    """They tell of the record that they were in the first epoch."""
    program, stream = started(partitions=2)
    back = program.feedback(EVENTS, event_time="t")
    both = stream.union(back)
    halved = both.map(not_one, out=EVENTS, on_error="dead_letter")
    back.close(lower(halved))
    out(halved)
    out(halved.dead_letters, "letters")
    batches = both.map_batches(not_four, out=EVENTS, on_error="dead_letter")
    out(batches.dead_letters, "letters of batches")
    return program


@case
def closed_by_columns_in_another_order():
    """What comes out has them as the feedback was declared."""
    program, stream = started()
    back = program.feedback(EVENTS, event_time="t")
    both = stream.union(back)
    back.close(lower(both).select("n", "t", "k"))
    listed = back.map(not_one, out=EVENTS, on_error="dead_letter")
    out(listed)
    out(listed.dead_letters, "letters")
    return program


@case
def letters_of_what_a_watermark_made():
    """They tell of the epoch in which it was made, held and let go or not."""
    program, stream = started(24)
    back = program.feedback(EVENTS, event_time="t")
    counts = stream.window(ab.tumbling("4 ms"), by="k").agg(n=ab.count())
    back.close(counts.select("k", "n", t="window_end").union(lower(back)))
    merged = back.merge(stream)
    failing = merged.map(not_one, out=EVENTS, on_error="dead_letter")
    out(failing)
    out(failing.dead_letters, "letters")
    return program


@case
def closed_by_dead_letters():
    program, stream = started(partitions=2)
    mapped = stream.map(not_one, out=EVENTS, on_error="dead_letter")
    letters = program.feedback(dict(mapped.dead_letters.schema))
    letters.close(mapped.dead_letters)
    out(mapped)
    told = letters.map(never, out=NAMES, on_error="dead_letter")
    out(told.dead_letters, "letters about letters")
    return program


@case
def a_function_that_nobody_can_prove():
    seen = []

    def numbered(record):
        seen.append(record)
        return {**record, "n": record["n"]}

    program, stream = started()
    back = program.feedback(EVENTS, event_time="t")
    both = stream.union(back)
    back.close(lower(both.map(numbered, out=EVENTS)))
    out(both)
    return program


WINDOWS = {
    "tumbling": ab.tumbling("4 ms"),
    "sliding": ab.sliding("6 ms", "2 ms"),
    "session": ab.session("2 ms"),
    "rows": ab.rows(3, 2),
}


def running(record, state):
    state.value = (state.value or 0) + record["n"]
    yield {**record, "n": state.value % 11}


def added(value, record):
    return {**record, "n": value["n"] + record["n"]}


def totals(frame):
    return frame.group_by("k", maintain_order=True).agg(pl.col("n").max())


def not_one(record):
    if record["n"] == 1:
        message = "one"
        raise ValueError(message)
    return record


def not_four(frame):
    if (frame["n"] == 4).any():
        message = "four"
        raise ValueError(message)
    return frame


def never(record):
    raise KeyError(record["offset"])


class Alarm(ab.KeyedOperator):
    """Says when a key was silent for 3 ms."""

    out = EVENTS

    def on_record(self, record, state):
        state.value = record
        state.timer_at(record["t"] + 3)

    def on_timer(self, at, state):
        yield {**state.value, "t": at}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_a_loop_gives_what_it_means(name, rows):
    assert_same_as_sequential(
        CASES[name](), widths=(1, 2, 3), trigger=ab.available_now(max_rows=rows)
    )


@pytest.mark.parametrize("name", CASES)
def test_something_goes_round(name):
    """The cases would be none if an epoch alone gave the same."""
    cut = run_sequential(CASES[name](), epoch_rows=2)

    assert run_sequential(CASES[name]()) != cut


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_loop_goes_on_where_it_was_cut_off(name):
    crashes = [1, "after commit", "before delta 4", "publish"]

    assert_same_as_sequential(
        CASES[name](),
        widths=(2,),
        crash_at=crashes,
        rescale_at={2: 3, 5: 1},
        trigger=ab.available_now(max_rows=2),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_resident_loop_gives_what_it_means(name):
    assert_same_as_sequential(
        CASES[name](), trigger=ab.continuous(), crash_at=["after commit"], widths=(1, 2)
    )


def test_rows_come_out_in_an_epoch_that_brings_none(tmp_path):
    """Three epochs of `events`, then of `others`, which are none of the loop's."""
    program, stream = started(3)
    others = ab.sources.Records([{"t": 100 + n} for n in range(6)])
    program.read(others, name="others", event_time="t").write(ab.sinks.Memory("all others"))
    back = program.feedback(EVENTS, event_time="t")
    back.close(stream.with_columns(n=pl.lit(4, pl.Int64)).union(lower(back)))
    sink = ab.sinks.Memory("out")
    back.write(sink, name="out")

    run(program, tmp_path / "ckpt", rows=1)

    assert run_sequential(program, log=tmp_path / "ckpt")["out"] == sink.rows
    assert [4] * 3 + [3] * 3 + [2] * 3 == sorted((r["n"] for r in sink.rows), reverse=True)[:9]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_come_out_behind_the_end_of_time(rows):
    """A source is at its end and a feedback is not: what it brings is behind every watermark."""
    program, stream = started(12)
    few = ab.sources.Records(events(2), schema=EVENTS)
    early = program.read(few, name="early", event_time="t")
    back = program.feedback(EVENTS, event_time="t")
    back.close(stream)
    both = early.union(back)
    for name, window in WINDOWS.items():
        windows = both.window(window, by="k")
        out(windows.late, f"late {name}")
        out(windows.agg(n=ab.count()), name)
    out(early.merge(back), "merged")
    out(both.in_time_order(), "in order")
    out(both.key_by("k").process(Alarm), "alarms")
    out(both.key_by("k").deduplicate(within="5 ms"), "new")
    for how in ("inner", "full"):
        pairs = early.join(back.select("t", "k", m="n"), on="k", within="4 ms", how=how)
        out(pairs, f"pairs {how}")
        out(pairs.dead_letters, f"letters {how}")

    assert_same_as_sequential(program, trigger=ab.available_now(max_rows=rows), widths=(1, 2))


def test_a_null_event_time_ends_the_run_when_it_comes_out(tmp_path):
    program, stream = started(4)
    back = program.feedback(EVENTS, event_time="t", name="again")
    back.close(stream.with_columns(t=pl.lit(None, pl.Int64)))
    out(stream.union(back))

    with pytest.raises(ab.RunError, match=r"again.*null event time in column 't'") as failed:
        run(program, tmp_path / "ckpt", rows=2)

    assert __file__ == failed.value.file


def test_a_null_event_time_that_never_comes_out_is_none(tmp_path):
    program, stream = started(4)
    back = program.feedback(EVENTS, event_time="t")
    back.close(stream.with_columns(t=pl.lit(None, pl.Int64)))
    out(stream.union(back))

    run(program, tmp_path / "ckpt", rows=4)


def test_functions_that_may_know_of_each_other_are_refused_in_a_loop(tmp_path):
    seen = []

    def one(record):
        seen.append(1)
        return record

    def two(record):
        return {**record, "n": len(seen)}

    program, stream = started(time=None)
    back = program.feedback(EVENTS)
    both = stream.union(back).map(one, out=EVENTS).key_by("k").reduce(added)
    back.close(both.map(two, out=EVENTS))
    out(both)

    with pytest.raises(ab.ProgramError, match=r"cannot run together yet"):
        run(program, tmp_path / "ckpt")


@pytest.mark.slow
def test_a_loop_takes_turns_with_other_queries():
    program = a_loop_between_stages_that_are_divided()

    assert_same_as_sequential(program, policies=["klink", "fcfs"], crash_at=[2])


def test_only_the_loop_is_in_one_lane():
    program = a_loop_between_stages_that_are_divided()
    plan = plan_of(program.freeze())
    names = [[plan.graph[op].name for op in stage.operators] for stage in plan.stages]

    loop = ["feedback-1", "union-1", "filter-1", "with_columns-1", "filter-2"]
    assert [["process-1"], loop, ["window-1", "out"]] == names
    assert [("k",), None, ("k",)] == [stage.key for stage in plan.stages]
    assert [1, 2, 3] == [stage.level for stage in plan.stages]
