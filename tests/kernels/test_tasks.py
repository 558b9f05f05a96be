"""What tasks promise one by one: errors as data, order, late records, versions, travel."""

import math
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from pyspark import cloudpickle

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.errors import RunError
from anabranch.kernels.bundle import from_blob, in_order, order_columns, to_blob, visible
from anabranch.kernels.lane_task import LaneState
from anabranch.kernels.region import lower
from anabranch.kernels.results import END, EpochInput
from anabranch.state.slices import Owners
from anabranch.testing import assert_same_rows, run_sequential
from bench.workloads import fraud, ysb
from tests.kernels.inline import Choices, logged, run_inline
from tests.kernels.linear import EVENTS, LATENESS_MS, NAN, read


def events(*rows):
    blank = {"t": 0, "k": "a", "f": 0.0, "n": 1, "words": None}
    return [{**blank, **row} for row in rows]


OWNERS = Owners.spread(slices=8, lanes=1)


def program(piece, rows, *, partitions=1, **options):
    made = ab.Program("test")
    piece(read(made, rows, partitions, **options)).write(ab.sinks.Memory("out"))
    return made


def rows_of(made) -> Any:
    """All rows of the source."""
    source: Any = made.freeze().sources[0].source
    return source._frame


def tasks(made):
    plan = plan_of(made.freeze())
    lowered = lower(plan)
    return lowered.heads[0].route(OWNERS), lowered.stages[0] if lowered.stages else None


def epoch_of(number, *parts, after=None):
    """An epoch of the one source, as the one stage takes it."""
    return EpochInput(number, {0: parts}, {"read-1": (None, after)})


def ran(task, epochs, state=None):
    """The one stage's lane, from a state on."""
    return task.run(epochs, task.restore({}) if state is None else state, OWNERS)


def only(output):
    """The rows of an epoch that go to the one sink."""
    return output.parts[0][0]


# The three programs of the spine


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("partitions", [1, 3])
def test_campaign_views(width, partitions):
    given = ysb.events(pl.Series(range(300)), rate=10)
    made = ysb.campaign_views(ab.sources.Records(given, partitions=partitions))

    ran = run_inline(made, logged(made, 40), Choices(width=width, split_rows=30, blobs=True))

    assert_same_rows(run_sequential(made, epoch_rows=40)["out"], ran.rows)


def high_mobility(partitions):
    calls = [
        {
            "time": number * 1000,
            "duration": 1,
            "caller": str(number % 5),
            "callee": str(number % 7),
            "caller_lat": float(number % 11),
            "caller_lon": 0.0,
            "callee_lat": float(number % 3),
            "callee_lon": 1.0,
        }
        for number in range(60)
    ]
    made = ab.Program("fraud")
    stream = made.read(
        ab.sources.Records(calls, schema=fraud.CALLS, partitions=partitions), event_time="time"
    )
    moves = stream.flat_map(fraud.locations).key_by("phone").process(fraud.speed)
    moves.filter(pl.col("kmh") > fraud.LIMIT_KMH).write(ab.sinks.Memory("out"))
    return made


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("partitions", [1, 3])
def test_fraud(width, partitions):
    made = high_mobility(partitions)

    ran = run_inline(made, logged(made, 7), Choices(width=width, blobs=True, restart=True))

    assert 20 < len(ran.rows)
    assert_same_rows(run_sequential(made, epoch_rows=7)["out"], ran.rows)


def exploded_words(lines):
    return lines.with_columns(word=pl.col("line").str.split(" ")).explode("word")


def yielded_words(lines):
    def words(record):
        return [{"t": record["t"], "word": word} for word in record["line"].split(" ")]

    return lines.flat_map(words, out={"t": pl.Int64, "word": pl.String})


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("words", [exploded_words, yielded_words])
def test_word_count(width, words):
    lines = [{"t": number * 300, "line": "a b" if number % 3 else "b é "} for number in range(40)]
    made = ab.Program("words")
    stream = words(made.read(ab.sources.Records(lines, partitions=2), event_time="t"))
    stream.window(ab.tumbling("2 s"), by="word").agg(n=ab.count()).write(ab.sinks.Memory("out"))

    ran = run_inline(made, logged(made, 6), Choices(width=width))

    assert_same_rows(run_sequential(made, epoch_rows=6)["out"], ran.rows)


# Errors


def fails_on_two(record):
    if record["n"] == 2:
        raise ValueError("two")
    yield record
    if record["n"] == 3:
        raise ValueError("three, after a row")


def counts_and_fails(record, state):
    state.value = (state.value or 0) + record["n"]
    state.list.append(record["n"])
    if record["n"] == 2:
        raise ValueError("two")
    yield {**record, "n": state.value}
    if record["n"] == 3:
        raise ValueError("three, after a row")


def gives_nonsense(record):
    if record["n"] == 2:
        return {**record, "n": 1.5}
    return {"t": record["t"], "other": 1} if record["n"] == 3 else record


def keeps_nonsense(record, state):
    state.value = object() if record["n"] == 2 else (state.value or 0) + 1
    return {**record, "n": state.value if isinstance(state.value, int) else 0}


FAILING = {
    "flat_map": lambda stream, **how: stream.flat_map(fails_on_two, out=EVENTS, **how),
    "map": lambda stream, **how: stream.map(gives_nonsense, out=EVENTS, **how),
    "none": lambda stream, **how: stream.map(
        lambda record: record if record["n"] != 2 else None, out=EVENTS, **how
    ),
    "filter": lambda stream, **how: stream.filter(lambda r: 1 / (r["n"] - 2) > 0, **how),
    "process": lambda stream, **how: stream.key_by("k").process(
        counts_and_fails, out=EVENTS, **how
    ),
    "nonsense": lambda stream, **how: stream.key_by("k").process(
        lambda record, state: gives_nonsense(record), out=EVENTS, **how
    ),
    "unkeepable": lambda stream, **how: stream.key_by("k").process(
        keeps_nonsense, out=EVENTS, **how
    ),
    "timer": lambda stream, **how: stream.key_by("k").process(
        lambda record, state: state.timer_at(1), out=EVENTS, **how
    ),
}
ROWS = events(*({"t": n * 100, "n": n % 5, "k": "ab"[n % 2]} for n in range(20)))


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
@pytest.mark.parametrize("group", [1, 3])
def test_a_record_that_fails_is_left_out_and_undone(kind, on_error, group):
    made = program(lambda stream: FAILING[kind](stream, on_error=on_error), ROWS)

    ran = run_inline(made, logged(made, 4), Choices(group=group, seed=group))

    assert ran.error is None
    assert ran.letters
    assert_same_rows(run_sequential(made, epoch_rows=4)["out"], ran.rows)


@pytest.mark.parametrize("kind", FAILING)
def test_an_error_that_ends_the_run_is_told_not_raised(kind):
    made = program(FAILING[kind], ROWS)
    with pytest.raises(RunError) as expected:
        run_sequential(made)

    error = run_inline(made, logged(made, 20), Choices(width=1, split_rows=20)).error

    name = next(op.name for op in made.freeze().operators[1:])
    assert name == error.operator
    assert f"{name} failed on {error.record}: " in expected.value.what
    assert cloudpickle.loads(cloudpickle.dumps(error)) == error


def test_an_error_tells_the_users_own_lines():
    made = program(FAILING["process"], ROWS)

    error = run_inline(made, logged(made, 20), Choices(width=1)).error

    assert "ValueError: two" == error.text
    (line,) = error.traceback
    assert line.startswith(__file__)
    assert line.endswith("in counts_and_fails")


def test_epochs_before_the_one_that_failed_are_kept():
    made = program(FAILING["process"], events({"n": 1}, {"n": 1}, {"n": 2}))
    head, keyed = tasks(made)
    frame = rows_of(made)
    epochs = [epoch_of(n, head.run(frame[n : n + 1], 0, n).parts[0][0]) for n in range(3)]

    result = ran(keyed, epochs)

    assert "ValueError: two" == result.error.text
    assert [0, 1] == [output.epoch for output in result.outputs]
    assert 2 == len(result.deltas) == result.state.views["process-1"].version
    again = ran(keyed, epochs[:1], result.state)
    assert [3] == only(again.outputs[0])["n"].to_list()


def test_an_expression_that_fails_names_its_operator():
    made = program(lambda s: s.with_columns(n=pl.col("k").str.to_integer()), ROWS)

    error = run_inline(made, logged(made, 20), Choices()).error

    assert "with_columns-1" == error.operator
    assert error.text.startswith("ComputeError: strict integer parsing failed")


def test_a_column_that_nobody_reads_still_fails():
    made = program(
        lambda s: s.with_columns(m=pl.col("k").str.to_integer()).filter(pl.col("n") < 0).drop("m"),
        ROWS,
    )
    assert run_inline(made, logged(made, 20), Choices()).error is not None


def test_a_null_event_time_obeys_on_error():
    rows = events({"t": 1}, {"t": None, "n": 5}, {"t": 2})
    for on_error, expected in (("skip", 2), ("dead_letter", 2)):
        made = program(lambda s: s, rows, on_error=on_error)
        ran = run_inline(made, logged(made, 9), Choices(split_rows=9))
        assert (expected, 1) == (len(ran.rows), ran.letters)
    made = program(lambda s: s, rows)
    error = run_inline(made, logged(made, 9), Choices(split_rows=9)).error
    assert "ValueError: null event time in column 't'" == error.text
    assert '"n": 5' in error.record


def test_a_source_that_gives_other_columns_is_told():
    head, _ = tasks(program(lambda s: s, ROWS))
    error = head.run(pl.DataFrame({"t": ["x"]}), 0, 0).error
    assert "read-1" == error.operator
    assert "'t' is String, expected Int64" in error.text


# Windows


def window(**aggregates):
    return lambda stream: stream.window(ab.tumbling("2 s"), by="k").agg(**aggregates)


def test_late_records_are_counted_and_left_out():
    rows = events({"t": 0}, {"t": 9_000}, {"t": 1_000}, {"t": 1_500, "k": "b"}, {"t": 8_500})
    made = program(window(n=ab.count()), rows)

    ran = run_inline(made, logged(made, 1), Choices())

    assert 2 == ran.late
    assert_same_rows(run_sequential(made, epoch_rows=1)["out"], ran.rows)


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ([2**63 - 1], True),
        ([2**63 - 1, 1], False),
        ([2**63 - 1, 2**63 - 1, -(2**63), -(2**63)], True),
        ([-(2**63), -1], False),
        ([2**62] * 2 + [-1], True),
        ([2**62] * 2, False),
    ],
)
@pytest.mark.parametrize("split_rows", [1, 9])
def test_a_sum_that_does_not_fit_is_an_error_and_only_the_whole_counts(values, fits, split_rows):
    made = program(window(n=ab.sum("n")), events(*({"n": value} for value in values)))

    ran = run_inline(made, logged(made, 2), Choices(split_rows=split_rows, group=3))

    if fits:
        assert [sum(values)] == [row["n"] for row in ran.rows]
    else:
        assert f"RunError: sum overflows Int64: {sum(values)}" == ran.error.text
        with pytest.raises(RunError, match="sum overflows"):
            run_sequential(made)


def test_sums_of_other_types():
    schema = {
        "t": pl.Datetime("ms", "Europe/Berlin"), "big": pl.UInt64, "yes": pl.Boolean,
        "single": pl.Float32, "long": pl.Duration("ms"), "small": pl.Int8,
    }  # fmt: skip
    frame = pl.DataFrame(
        {
            "t": [1, 2_001, 2_002, 2_003],
            "big": [2**63 - 5, 2**62, 2**62 - 1, None],
            "yes": [True, True, None, False],
            "single": [0.5, None, NAN, 1.0],
            "long": [1, 2, None, 4],
            "small": [None, 100, 100, 100],
        }
    ).with_columns(pl.from_epoch("t", "ms").dt.replace_time_zone("UTC"))
    frame = frame.with_columns(pl.col("t").dt.convert_time_zone("Europe/Berlin"))
    frame = frame.cast(schema)
    made = ab.Program("sums")
    stream = made.read(ab.sources.Records(frame), event_time="t")
    names = [name for name in schema if name != "t"]
    extremes = {f"max_{name}": ab.max(name) for name in names}
    extremes |= {f"min_{name}": ab.min(name) for name in [*names, "t"]}
    sums = {f"sum_{name}": ab.sum(name) for name in names}
    counts = {f"n_{name}": ab.count(name) for name in names}
    stream.window(ab.tumbling("2 s")).agg(**sums, **extremes, **counts).write(
        ab.sinks.Memory("out")
    )

    ran = run_inline(made, logged(made, 3), Choices(split_rows=2, blobs=True))

    assert_same_rows(run_sequential(made, epoch_rows=3)["out"], ran.rows)


def test_sums_of_floats_do_not_depend_on_how_epochs_are_grouped_and_folded():
    values = [0.1, 1e16, -1e16, 0.3, 1e-9, -0.1, 1e8, 3e-7]
    made = program(
        window(x=ab.sum("f")), events(*({"f": value} for value in values * 4)), partitions=2
    )

    log, found = logged(made, 3), set()
    for seed in range(6):
        chosen = Choices(
            split_rows=100, group=1 + seed, seed=seed, restart=seed % 2 == 0, fold=seed % 3 == 0
        )
        found.add(run_inline(made, log, chosen).rows[0]["x"].hex())

    assert 1 == len(found)


@pytest.mark.parametrize(
    "keys",
    [
        pl.Series(["b", "a", None, "b"], dtype=pl.Enum(["b", "a", "c"])),
        pl.Series(["b", "a", None, "b"], dtype=pl.Categorical),
        pl.Series([NAN, -0.0, 0.0, None], dtype=pl.Float32),
        pl.Series([True, None, False, True]),
        pl.Series([b"\xff", b"a", b"", b"a"]),
        pl.Series([None, None, None, None], dtype=pl.Null),
        pl.Series([datetime(2025, 10, 26, h) for h in (0, 1, 0, 2)]).dt.replace_time_zone("UTC")
        .dt.convert_time_zone("Europe/Berlin"),
        pl.Series(["1.50", "-2.25", None, "1.50"]).str.to_decimal(scale=2),
        pl.Series([2**64 - 1, 1, None, 1], dtype=pl.UInt64),
    ],
    ids=lambda keys: str(keys.dtype),
)  # fmt: skip
@pytest.mark.parametrize("kind", ["window", "process"])
def test_keys_of_every_type(keys, kind):
    def seen(record, state):
        state.value = (state.value or 0) + 1
        return {"key": str(state.key), "n": state.value}

    frame = pl.DataFrame({"t": [0, 1, 2, 3, 0, 1, 2, 3], "k": pl.concat([keys, keys.reverse()])})
    made = ab.Program("keys")
    stream = made.read(ab.sources.Records(frame, partitions=2), event_time="t")
    if kind == "window":
        stream = stream.window(ab.tumbling("1 s"), by="k").agg(n=ab.count())
    else:
        stream = stream.key_by("k").process(seen, out={"key": pl.String, "n": pl.Int64})
    stream.write(ab.sinks.Memory("out"))

    expected = run_sequential(made, epoch_rows=2)["out"]
    for width in (1, 4):
        chosen = Choices(width=width, split_rows=1, group=1, blobs=True, restart=True)
        assert_same_rows(expected, run_inline(made, logged(made, 2), chosen).rows)


# State


def test_a_version_stays_as_it_was():
    made = program(FAILING["process"], events(*({"n": 1} for _ in range(4))))
    head, keyed = tasks(made)
    frame = rows_of(made)
    epochs = [epoch_of(n, head.run(frame[n : n + 1], 0, n).parts[0][0]) for n in range(4)]

    def value(result):
        return only(result.outputs[-1])["n"].to_list()

    two = ran(keyed, epochs[:2]).state
    first, second = ran(keyed, epochs[2:3], two), ran(keyed, epochs[2:3], two)
    assert [3] == value(first) == value(second)
    four = ran(keyed, epochs[3:], first.state).state
    assert [5] == value(ran(keyed, epochs[:1], four))
    (view,) = four.views.values()

    def begun(state):
        return LaneState({"process-1": state})

    assert [2] == value(ran(keyed, epochs[:1], begun(view.at(1))))
    folded = view.fold(2)
    assert [4] == value(ran(keyed, epochs[:1], begun(folded.at(3))))
    assert [5] == value(ran(keyed, epochs[:1], begun(folded)))
    with pytest.raises(LookupError, match="no state at version 1: 2 to 4 are known"):
        folded.at(1)


def test_an_epoch_that_changes_nothing_has_an_empty_delta():
    made = program(
        lambda s: s.key_by("k").process(lambda r, state: setattr(state, "value", 1), out=EVENTS),
        events({}, {}),
    )
    head, keyed = tasks(made)
    frame = rows_of(made)
    part = head.run(frame, 0, 0).parts[0][0]

    result = ran(keyed, [epoch_of(n, part) for n in range(3)])

    assert [1, 0, 0] == [each["process-1"].height for each in result.deltas]
    assert result.deltas[0]["process-1"].schema == result.deltas[1]["process-1"].schema


def test_a_state_is_what_whole_says():
    # Of each key a cell and three elements of its list; of each window a partial.
    cases = ((FAILING["process"], 5 * (1 + 3)), (window(n=ab.count(), x=ab.sum("f")), 5))
    for piece, height in cases:
        made = program(piece, events(*({"k": k, "n": 1, "f": 0.5} for k in "abcde")))
        head, keyed = tasks(made)
        frame = rows_of(made)
        part = head.run(frame, 0, 0).parts[0][0]
        state = ran(keyed, [epoch_of(n, part) for n in range(3)]).state

        ((name, everything),) = state.whole().items()

        assert height == everything.height
        assert everything["slice"].is_sorted()
        last = epoch_of(9, part, after=END)
        expected = only(ran(keyed, [last], state).outputs[0])
        again = ran(keyed, [last], keyed.restore({name: [everything]}))
        assert expected.equals(only(again.outputs[0]))


# Travel and shape


def test_tasks_travel():
    for made in (high_mobility(1), program(window(n=ab.count()), ROWS)):
        plan = plan_of(made.freeze())
        lowered = lower(plan)
        for task in (*lowered.heads, *lowered.stages):
            assert cloudpickle.loads(cloudpickle.dumps(task)) is not None


def test_a_task_that_travelled_gives_the_same():
    made = high_mobility(1)
    head, keyed = tasks(made)
    moved_head, moved_keyed = cloudpickle.loads(cloudpickle.dumps((head, keyed)))
    frame = rows_of(made)

    part, other = (task.run(frame, 0, 0).parts[0][0] for task in (head, moved_head))
    assert part.equals(other)
    epoch = epoch_of(0, part, after=END)
    expected = only(ran(keyed, [epoch]).outputs[0])
    assert expected.equals(only(ran(moved_keyed, [epoch]).outputs[0]))


def test_rows_have_the_sinks_columns_and_order_columns_even_if_there_are_none():
    for made in (high_mobility(1), program(window(n=ab.count()), ROWS)):
        plan = plan_of(made.freeze())
        (keyed,), (write,) = lower(plan).stages, plan.graph.sinks
        rows = keyed.nothing()[write.port]
        expected = plan.graph.output(write.port).schema
        assert dict(expected) == dict(visible(rows).schema)
        assert order_columns(rows.columns)


def test_unread_columns_may_be_left_out():
    made = ysb.campaign_views(ab.sources.Records(ysb.events(pl.Series(range(9)), rate=1)))
    head, _ = tasks(made)
    assert ("ad_id", "event_type", "event_time") == head.columns
    frame = rows_of(made)
    expected = head.run(frame, 0, 0).parts[0][0].sort("k0")
    assert expected.equals(head.run(frame.select(head.columns), 0, 0).parts[0][0].sort("k0"))


def test_a_program_that_looks_at_no_column_has_all_rows():
    made = ab.Program("none")
    read = made.read(ab.sources.Records([{"n": 1, "m": 1}, {"n": 2, "m": 2}]))
    read.select(x=pl.lit(7)).write(ab.sinks.Memory("out"), name="out")
    ab.testing.assert_same_as_sequential(made, widths=(1,), trigger=ab.available_now())


def test_bundles_in_any_order_are_put_in_order():
    frame = pl.DataFrame({"x": [1, 2, 3], "__ab_p": [0, 0, 1], "__ab_o": [0, 1, 0]})
    for parts in ([frame[1:], frame[:1]], [frame[::-1]], [frame[::2], frame[1:2], frame[:0]]):
        assert [1, 2, 3] == in_order(parts)["x"].to_list()
    assert frame.equals(from_blob(to_blob(frame)))


def test_a_watermark_is_shown_in_the_columns_own_type():
    seen = []
    rows = events({"t": 1_000}, {"t": 5_000}, {"t": 6_000})
    made = program(
        lambda s: s.key_by("k").process(lambda r, state: seen.append(state.watermark), out=EVENTS),
        rows,
    )
    run_inline(made, logged(made, 1), Choices(width=1))
    assert [None, 1_000 - LATENESS_MS, 5_000 - LATENESS_MS] == seen


def test_an_event_time_beyond_all_time_is_told():
    head, _ = tasks(program(window(n=ab.count()), ROWS))
    frame = pl.DataFrame(events({"t": 2**62}), schema=EVENTS)
    assert head.run(frame, 0, 0).error.text.startswith("OverflowError: ")


def test_nan_is_the_greatest():
    made = program(window(x=ab.max("f"), y=ab.min("f")), events({"f": NAN}, {"f": 1.0}))
    (row,) = run_inline(made, logged(made, 1), Choices()).rows
    assert math.isnan(row["x"])
    assert 1.0 == row["y"]


def test_an_aggregate_that_fails_names_its_window():
    made = program(window(n=ab.sum(pl.col("k").str.to_integer())), ROWS)
    error = run_inline(made, logged(made, 20), Choices()).error
    assert "window-1" == error.operator
    assert error.text.startswith("ComputeError: ")


def test_a_window_that_ends_beyond_the_type_of_its_times_is_told():
    made = ab.Program("small")
    rows = ab.sources.Records([{"t": 120}], schema={"t": pl.Int8})
    windows = made.read(rows, event_time="t", time_unit="s").window(ab.tumbling("100 s"))
    windows.agg(n=ab.count()).write(ab.sinks.Memory("out"))
    error = run_inline(made, logged(made, 1), Choices()).error
    assert "window-1" == error.operator
