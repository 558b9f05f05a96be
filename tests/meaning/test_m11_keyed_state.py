"""M11: a key's records come one at a time, in order, with its state.

One source `events` of one partition with lateness 0 and event times in milliseconds in column `t`,
unless a case says otherwise.
"""

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

import anabranch as ab

NOTHING = frozenset()
N = {"k": pl.String, "n": pl.Int64}


def reading(rows, schema=None, **options):
    """A program that reads these rows, and the stream of them."""
    program = ab.Program("m11")
    options = {"name": "events", "event_time": "t"} | options
    return program, program.read(ab.sources.Records(rows, schema=schema), **options)


def keyed(*pairs):
    """Rows of a key and an event time."""
    return [{"k": k, "t": t} for k, t in pairs]


def cuts(*ends):
    """Epochs that end before these rows, of a source that is not finished."""
    return [
        ab.testing.Cut("events", {0: (start, end)}, finished=NOTHING)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def written(program, stream, log=None):
    """The rows of a stream."""
    stream.write(ab.sinks.Memory("out"))
    return ab.testing.run_sequential(program, log=log)["out"]


def count(record, state):
    """How many records of this key there have been."""
    state.value = (state.value or 0) + 1
    return {"k": record["k"], "n": state.value}


# What state is


def test_every_key_has_its_own_value_and_sees_its_records_in_order():
    """state.value is None at first; keys do not share it; results come with their records.

    a, b, a, null, a, b: the counts are 1, 1, 2, 1, 3, 2. Null is a key like any other (M6).
    """
    program, stream = reading(keyed(("a", 1), ("b", 2), ("a", 3), (None, 4), ("a", 5), ("b", 6)))
    out = written(program, stream.key_by("k").process(count, out=N))
    assert out == [
        {"k": "a", "n": 1},
        {"k": "b", "n": 1},
        {"k": "a", "n": 2},
        {"k": None, "n": 1},
        {"k": "a", "n": 3},
        {"k": "b", "n": 2},
    ]


def test_order_is_by_epoch_partition_and_offset_not_by_event_time():
    """Two partitions, epochs of two rows of each; rows 0..4 are in partitions 0, 1, 0, 1, 0.

    Epoch 0: partition 0 gives rows 0 and 2, then partition 1 rows 1 and 3. Epoch 1: partition 0
    gives row 4. Each record says the row before it: none, 0, 2, 1, 3. Times fall, and do not count.
    """
    program = ab.Program("m11")
    rows = [{"t": 9 - i, "k": "a", "i": i} for i in range(5)]
    stream = program.read(ab.sources.Records(rows, partitions=2), name="events", event_time="t")

    def before(record, state):
        previous, state.value = state.value, record["i"]
        return {"i": record["i"], "before": previous}

    processed = stream.key_by("k").process(before, out={"i": pl.Int64, "before": pl.Int64})
    processed.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program, epoch_rows=2)["out"] == [
        {"i": 0, "before": None},
        {"i": 2, "before": 0},
        {"i": 1, "before": 2},
        {"i": 3, "before": 1},
        {"i": 4, "before": 3},
    ]


def test_a_change_in_place_counts():
    """A key touched is changed unless its encoding is equal: state.value["n"] += 1 is a change.

    The value is set once, as a dict, and from then on only changed inside, also its inner list.
    """
    program, stream = reading(keyed(("a", 1), ("b", 2), ("a", 3), ("a", 4)))

    def inside(record, state):
        if state.value is None:
            state.value = {"n": 0, "ts": []}
        state.value["n"] += 1
        state.value["ts"].append(record["t"])
        return {"n": state.value["n"], "ts": state.value["ts"]}

    out = written(
        program,
        stream.key_by("k").process(inside, out={"n": pl.Int64, "ts": pl.List(pl.Int64)}),
        cuts(2, 3, 4),
    )
    assert out == [
        {"n": 1, "ts": [1]},
        {"n": 1, "ts": [2]},
        {"n": 2, "ts": [1, 3]},
        {"n": 3, "ts": [1, 3, 4]},
    ]


def test_state_list_and_map_are_empty_at_first_and_kept():
    """state.list appends, replaces and pops; state.map counts by another column, per key.

    Key a: x, y, x. After the first: list [1], map {x: 1}; the second: list [1, 2], map {x: 1,
    y: 1}; the third pops the first of the list before it appends: [2, 3], map {x: 2, y: 1}.
    """
    rows = [{"k": "a", "t": t, "w": w} for t, w in ((1, "x"), (2, "y"), (3, "x"))]
    program, stream = reading(rows)

    def collects(record, state):
        if len(state.list) == 2:
            del state.list[0]
        state.list.append(record["t"])
        state.map[record["w"]] = state.map.get(record["w"], 0) + 1
        return {"last": state.list, "words": json.dumps(state.map, sort_keys=True)}

    out = written(
        program,
        stream.key_by("k").process(collects, out={"last": pl.List(pl.Int64), "words": pl.String}),
        cuts(1, 2, 3),
    )
    assert out == [
        {"last": [1], "words": '{"x": 1}'},
        {"last": [1, 2], "words": '{"x": 1, "y": 1}'},
        {"last": [2, 3], "words": '{"x": 2, "y": 1}'},
    ]


def test_state_list_and_map_may_be_assigned_as_a_whole():
    """The first record finds both empty and assigns them; the second finds what was assigned."""
    program, stream = reading(keyed(("a", 1), ("a", 2)))

    def assigns(record, state):
        yield {"list": list(state.list), "map": json.dumps(state.map)}
        state.list, state.map = [1, 2], {"a": 1}

    out = written(
        program,
        stream.key_by("k").process(assigns, out={"list": pl.List(pl.Int64), "map": pl.String}),
    )
    assert out == [{"list": [], "map": "{}"}, {"list": [1, 2], "map": '{"a": 1}'}]


def test_all_promised_values_can_be_kept_and_come_back_as_they_were():
    """None, bool, int, float, str, bytes, times, Decimal; lists, tuples, sets, dicts, dataclasses.

    The second record compares what it finds with what the first one stored, types included.
    """

    program, stream = reading(keyed(("a", 1), ("a", 2)))
    kept = {
        "none": None,
        "plain": [True, 2**70, -0.5, "é", b"\x00"],
        (1, "tuple"): (date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), timedelta(-1)),
        "set": {1, 2},
        "decimal": Decimal("1.10"),
        "point": Point(1, [2]),
    }

    def keeps(record, state):
        before, state.value = state.value, kept
        same = before == kept and type(before[(1, "tuple")]) is tuple if before else None
        return {"same": same, "exact": None if before is None else str(before["decimal"])}

    out = written(
        program,
        stream.key_by("k").process(keeps, out={"same": pl.Boolean, "exact": pl.String}),
        cuts(1, 2),
    )
    assert out == [{"same": None, "exact": None}, {"same": True, "exact": "1.10"}]


@dataclass
class Point:
    """A dataclass as a user may keep one."""

    x: int
    ys: list


@pytest.mark.parametrize("bad", [object(), len, 1j, iter([1]), {"deep": [object()]}, Point])
def test_a_value_that_cannot_be_kept_is_an_error_of_its_record(bad):
    """With on_error="skip" the record is skipped and its writes undone; the others are not touched.

    Records 1, 2, 3 of key a: the second stores something that is no value. It gives no row, and
    the third finds the count 1 of the first: its count is 2. With "fail" the run fails.
    """
    rows = keyed(("a", 1), ("a", 2), ("a", 3))

    def stores(record, state):
        row = count(record, state)
        if record["t"] == 2:
            state.map["bad"] = bad
        return row

    program, stream = reading(rows)
    out = written(program, stream.key_by("k").process(stores, out=N, on_error="skip"))
    assert out == [{"k": "a", "n": 1}, {"k": "a", "n": 2}]
    program, stream = reading(rows)
    with pytest.raises(ab.RunError):
        written(program, stream.key_by("k").process(stores, out=N))


def test_state_is_kept_by_value_so_a_record_stored_is_not_changed_by_what_is_done_later():
    """Records are copied at every border: neither the stored record nor the yielded row follows.

    Each record is stored, yielded, and then changed by the function, after the yield and through a
    reference of its own that outlives the record. The next record finds what was stored at the end
    of the function, and nothing of what a later one does to an old object.
    First record (x = 1): yields x = 1, then sets its dict's x to 100 (before the function ends, so
    that the state, which holds the dict, has 100). Second record (x = 2): changes the old object
    to 1000 first: that is nobody's business; it finds 100.
    """
    rows = [{"k": "a", "t": t, "x": t} for t in (1, 2)]
    program, stream = reading(rows)
    outside = []

    def stores(record, state):
        for old in outside:
            old["x"] = 1000
        found = state.value
        state.value = record
        outside.append(record)
        row = {"x": record["x"], "found": found and found["x"]}
        yield row
        row["x"] = -1
        record["x"] = 100

    out = written(
        program, stream.key_by("k").process(stores, out={"x": pl.Int64, "found": pl.Int64})
    )
    assert out == [{"x": 1, "found": None}, {"x": 2, "found": 100}]


def test_what_is_stored_in_two_places_is_two_values():
    """State is kept by value: value, list and each element of the map are written down for themselves.

    The first record stores one dict in four places. The second changes it in one of them,
    state.value: the others still have 0.
    """
    program, stream = reading(keyed(("a", 1), ("a", 2)))
    columns = dict.fromkeys(["value", "list", "x", "y"], pl.Int64)

    def stores(record, state):
        if state.value is None:
            one = {"n": 0}
            state.value = one
            state.list.append(one)
            state.map["x"] = state.map["y"] = one
            return None
        state.value["n"] += 1
        state.map["x"]["n"] += 10
        return {
            "value": state.value["n"],
            "list": state.list[0]["n"],
            "x": state.map["x"]["n"],
            "y": state.map["y"]["n"],
        }

    out = written(program, stream.key_by("k").process(stores, out=columns), cuts(1, 2))
    assert out == [{"value": 1, "list": 0, "x": 10, "y": 0}]


def test_clear_forgets_everything_of_the_key_and_of_no_other():
    """value, list and map are as at the beginning after clear(), also within the same record.

    Key a: 1, 2 count up; 3 clears: the function sees None, [] and {} at once; 4 begins anew with 1.
    Key b is not touched: its second record counts 2.
    """
    rows = keyed(("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 5))
    program, stream = reading(rows)

    def clears(record, state):
        if record["t"] == 3:
            state.list.append(1)
            state.map["x"] = 1
            state.clear()
            assert (state.value, state.list, state.map) == (None, [], {})
            return {"k": record["k"], "n": 0}
        return count(record, state)

    out = written(program, stream.key_by("k").process(clears, out=N))
    assert [(row["k"], row["n"]) for row in out] == [
        ("a", 1), ("b", 1), ("a", 2), ("a", 0), ("a", 1), ("b", 2)
    ]  # fmt: skip


def test_keys_are_equal_by_the_relation_of_m6():
    """NaN is one key, -0.0 and 0.0 are one; state.key of one column is its value.

    NaN, 0.0, NaN, -0.0: counts 1, 1, 2, 2.
    """
    keys = [float("nan"), 0.0, float("nan"), -0.0]
    program, stream = reading([{"t": 1, "k": k} for k in keys])

    def named(record, state):
        state.value = (state.value or 0) + 1
        return {"key": str(state.key + 0.0), "n": state.value}

    out = written(program, stream.key_by("k").process(named, out={"key": pl.String, "n": pl.Int64}))
    assert [(row["key"], row["n"]) for row in out] == [
        ("nan", 1), ("0.0", 1), ("nan", 2), ("0.0", 2)
    ]  # fmt: skip


def test_the_key_of_several_columns_is_a_tuple_and_of_the_whole_stream_there_is_one_state():
    """(a, 1), (a, 2), (a, 1): counts 1, 1, 2 by two columns; 1, 2, 3 over the whole stream."""
    rows = [{"t": 1, "k": "a", "i": i} for i in (1, 2, 1)]

    def named(record, state):
        state.value = (state.value or 0) + 1
        return {"key": json.dumps(state.key), "n": state.value}

    columns = {"key": pl.String, "n": pl.Int64}
    program, stream = reading(rows)
    out = written(program, stream.key_by("k", "i").process(named, out=columns))
    assert [(row["key"], row["n"]) for row in out] == [
        ('["a", 1]', 1), ('["a", 2]', 1), ('["a", 1]', 2)
    ]  # fmt: skip
    program, stream = reading(rows)
    out = written(program, stream.process(count, out=N))
    assert [row["n"] for row in out] == [1, 2, 3]


def test_the_watermark_that_a_function_sees_is_the_one_before_its_epoch():
    """None before the first watermark; within an epoch it does not move.

    Epoch 0: 5, 9: None, None; its watermark is 9. Epoch 1: 7, 12: 9, 9. Epoch 2: 3: 12.
    """
    program, stream = reading(keyed(*(("a", t) for t in (5, 9, 7, 12, 3))))
    processed = stream.key_by("k").process(
        lambda record, state: {"t": record["t"], "w": state.watermark},
        out={"t": pl.Int64, "w": pl.Int64},
    )
    out = written(program, processed, cuts(2, 4, 5))
    assert [(row["t"], row["w"]) for row in out] == [
        (5, None), (9, None), (7, 9), (12, 9), (3, 12)
    ]  # fmt: skip


# What a function gives, and errors


def test_a_function_may_return_a_dict_a_list_or_nothing_or_yield():
    """One row, two in order, none, two in order; a missing column is null, 3 becomes 3.0.

    Records 1 (dict), 2 (list), 3 (None), 4 (a generator within).
    """
    program, stream = reading(keyed(*(("a", t) for t in (1, 2, 3, 4))))

    def gives(record, state):
        match record["t"]:
            case 1:
                return {"x": 3}
            case 2:
                return [{"i": 1}, {"x": 0.5, "i": 2}]
            case 3:
                return None
        return ({"i": i} for i in (3, 4))

    out = written(program, stream.key_by("k").process(gives, out={"i": pl.Int64, "x": pl.Float64}))
    assert out == [
        {"i": None, "x": 3.0},
        {"i": 1, "x": None},
        {"i": 2, "x": 0.5},
        {"i": 3, "x": None},
        {"i": 4, "x": None},
    ]
    assert type(out[0]["x"]) is float


def failing(record, state):
    """Write everywhere, yield, then fail at every even time."""
    state.value = (state.value or 0) + 1
    state.list.append(record["t"])
    state.map[record["t"]] = True
    yield {"n": state.value, "list": state.list, "map": len(state.map)}
    if record["t"] % 2 == 0:
        raise ValueError(f"even: {record['t']}")


FAILING = {"n": pl.Int64, "list": pl.List(pl.Int64), "map": pl.Int64}


def test_an_exception_undoes_all_that_the_record_wrote():
    """1, 2, 3, 4, 5 of one key, where even ones fail after they wrote and yielded.

    2 and 4 give no row and leave no trace: 3 finds what 1 left, 5 what 3 left.
    """
    program, stream = reading(keyed(*(("a", t) for t in (1, 2, 3, 4, 5))))
    out = written(program, stream.key_by("k").process(failing, out=FAILING, on_error="skip"))
    assert out == [
        {"n": 1, "list": [1], "map": 1},
        {"n": 2, "list": [1, 3], "map": 2},
        {"n": 3, "list": [1, 3, 5], "map": 3},
    ]


def test_an_exception_may_become_a_dead_letter():
    """The same with on_error="dead_letter": 2 and 4 are letters, with the record as JSON text.

    They are rows 1 and 3 of partition 0. The other records are as if those had not been there.
    """
    program, stream = reading(keyed(*(("a", t) for t in (1, 2, 3, 4))))
    processed = stream.key_by("k").process(
        failing, out=FAILING, on_error="dead_letter", name="fails"
    )
    processed.dead_letters.drop("epoch", "traceback").write(ab.sinks.Memory("letters"))
    processed.select("list").write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program)
    assert rows["out"] == [{"list": [1]}, {"list": [1, 3]}]
    letters = [{**row, "record": json.loads(row["record"])} for row in rows["letters"]]
    same = {"operator": "fails", "source": "events", "partition": "0", "reason": "error"}
    assert letters == [
        same | {"offset": 1, "error": "ValueError: even: 2", "record": {"k": "a", "t": 2}},
        same | {"offset": 3, "error": "ValueError: even: 4", "record": {"k": "a", "t": 4}},
    ]


def test_an_exception_fails_the_run_unless_said_otherwise():
    """on_error is "fail" by default: a RunError with the cause chained."""
    program, stream = reading(keyed(("a", 2)))
    with pytest.raises(ab.RunError) as caught:
        written(program, stream.key_by("k").process(failing, out=FAILING))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "bad", [{"m": 1}, {"n": 1.0}, {"n": True}, {"n": 2**63}, {"k": 1}, 5, "text", [None]]
)
def test_a_row_that_does_not_fit_is_an_error_of_its_record_and_undoes_its_writes(bad):
    """An unknown column, a float or bool for an int, an int out of range, what is no dict.

    The second record of three counts, then gives something that does not fit: it is skipped, and
    the third counts 2.
    """
    program, stream = reading(keyed(("a", 1), ("a", 2), ("a", 3)))

    def gives(record, state):
        row = count(record, state)
        return bad if record["t"] == 2 else row

    out = written(program, stream.key_by("k").process(gives, out=N, on_error="skip"))
    assert out == [{"k": "a", "n": 1}, {"k": "a", "n": 2}]


# reduce


def test_reduce_emits_the_new_value_for_every_record_and_the_first_as_it_is():
    """The value has the input's columns; the function is not called for a key's first record.

    Key a: x = 1; then 1 + 5 = 6; then 6 + 2 = 8. Key b: 10. t is the greatest so far: 3, then
    max(3, 2) = 3, then 9.
    """
    rows = [
        {"k": "a", "t": 3, "x": 1},
        {"k": "b", "t": 1, "x": 10},
        {"k": "a", "t": 2, "x": 5},
        {"k": "a", "t": 9, "x": 2},
    ]
    program, stream = reading(rows)

    def add(value, record):
        return {"k": "a", "t": max(value["t"], record["t"]), "x": value["x"] + record["x"]}

    out = written(program, stream.key_by("k").reduce(add))
    assert out == [
        {"k": "a", "t": 3, "x": 1},
        {"k": "b", "t": 1, "x": 10},
        {"k": "a", "t": 3, "x": 6},
        {"k": "a", "t": 9, "x": 8},
    ]


def test_a_value_that_reduce_gives_belongs_to_the_record_s_key_whatever_it_says():
    """The key is that of the records; a function that gives another in the column changes nothing.

    a: 1; a: the value says k = b, x = 3. b: its first record, as it is: 10. a: 3 + 4 = 7.
    """
    rows = [
        {"k": k, "t": t, "x": x} for t, (k, x) in enumerate(zip("aaba", (1, 2, 10, 4), strict=True))
    ]
    program, stream = reading(rows)
    out = written(
        program,
        stream.key_by("k").reduce(lambda v, r: {"k": "b", "t": r["t"], "x": v["x"] + r["x"]}),
    )
    assert [(row["k"], row["x"]) for row in out] == [("a", 1), ("b", 3), ("b", 10), ("b", 7)]


def test_a_reduction_that_fails_leaves_the_value_as_it_was():
    """1, then 2 fails after it changed its argument in place, then 3: 1 + 3 = 4, not 6 or 104."""
    rows = [{"k": "a", "t": t, "x": t} for t in (1, 2, 3)]
    program, stream = reading(rows)

    def add(value, record):
        if record["x"] == 2:
            value["x"] += 100
            raise ValueError
        return {**record, "x": value["x"] + record["x"]}

    out = written(program, stream.key_by("k").reduce(add, on_error="skip"))
    assert [row["x"] for row in out] == [1, 4]


# deduplicate


def test_deduplicate_without_within_passes_a_key_once_for_ever():
    """a, b, a, null, null, b: the first of each passes; event times play no part.

    Also with many epochs between: a watermark frees only what can no longer matter, and without
    `within` everything matters for ever.
    """
    rows = keyed(("a", 5), ("b", 6), ("a", 10**9), (None, 2), (None, 3), ("b", -5))
    program, stream = reading(rows)
    out = written(program, stream.key_by("k").deduplicate(), cuts(1, 2, 3, 4, 5, 6))
    assert out == keyed(("a", 5), ("b", 6), (None, 2))


def test_deduplicate_within_looks_at_what_passed_and_includes_the_distance_itself():
    """within 10: a record is dropped if one of its key that *passed* is at most 10 away.

    One epoch: 0 passes. 6: 0 is 6 away: dropped. 12: 0 is 12 away, and 6 did not pass: passes.
    22: 12 is exactly 10 away: dropped. 23: passes. Other keys do not matter: b at 1 passes.
    """
    rows = keyed(("a", 0), ("a", 6), ("b", 1), ("a", 12), ("a", 22), ("a", 23))
    program, stream = reading(rows)
    out = written(program, stream.key_by("k").deduplicate(within="10 ms"))
    assert out == keyed(("a", 0), ("b", 1), ("a", 12), ("a", 23))


def test_deduplicate_within_looks_both_ways_when_records_are_out_of_order():
    """Event times decide, not arrival: a record before what passed may be near it as well.

    within 10, one epoch: 50 passes. 40: exactly 10 before it: dropped. 39: 11 before: passes.
    45: near 50 and 39: dropped. 28: 11 before 39: passes. 34: 6 from 28: dropped.
    """
    program, stream = reading(keyed(*(("a", t) for t in (50, 40, 39, 45, 28, 34))))
    out = written(program, stream.key_by("k").deduplicate(within="10 ms"))
    assert [row["t"] for row in out] == [50, 39, 28]


def test_deduplicate_within_does_not_depend_on_the_epochs_for_records_that_are_not_behind():
    """0, 10, 11, 21, 22, in one epoch or in five.

    0 passes, 10 is near it, 11 passes, 21 is near that, 22 passes.
    Before the record at 10 the watermark is 0; before 11 it is 10, and so on: what passed at p
    counts while p + 10 >= the watermark before the epoch; 0 + 10 >= 10 still counts for 11, but is
    11 away.
    """
    for log in (None, cuts(1, 2, 3, 4, 5), cuts(2, 5)):
        program, stream = reading(keyed(*(("a", t) for t in (0, 10, 11, 21, 22))))
        out = written(program, stream.key_by("k").deduplicate(within="10 ms"), log)
        assert [row["t"] for row in out] == [0, 11, 22]


def test_what_passed_too_long_ago_no_longer_counts_for_a_record_behind_the_watermark():
    """Something at p counts for a record of epoch e iff p + d >= the watermark before e.

    within 10. Epoch 0: a at 0, b at 10; watermark 10. Epoch 1: a at 5, behind: 0 + 10 >= 10: still
    counts: dropped; b at 11: 1 from b at 10: dropped; watermark 11. Epoch 2: a at 6, behind:
    0 + 10 < 11: forgotten, so it passes.
    """
    rows = keyed(("a", 0), ("b", 10), ("a", 5), ("b", 11), ("a", 6))
    program, stream = reading(rows)
    out = written(program, stream.key_by("k").deduplicate(within="10 ms"), cuts(2, 4, 5))
    assert out == keyed(("a", 0), ("b", 10), ("a", 6))


def test_deduplicate_by_several_columns_passes_the_record_whole():
    """(a, 1), (a, 2), (a, 1): the third is dropped; other columns are not looked at."""
    rows = [{"t": t, "k": "a", "i": i, "x": t} for t, i in ((1, 1), (2, 2), (3, 1))]
    program, stream = reading(rows)
    assert written(program, stream.key_by("k", "i").deduplicate()) == rows[:2]


# ttl


def test_state_outlives_its_time_only_when_more_than_ttl_lies_between():
    """ttl 10: gone for a record at t if the greatest event time of the key so far + 10 < t.

    One epoch. 0: 1. 10: 0 + 10 is not less than 10: 2. 21: 10 + 10 < 21: gone: 1. 15, out of order:
    21 + 10 is not less than 15: 2. 31: 21 + 10 is not less than 31 (the greatest counts, not the
    last): 3. Key b at 31 has its own time: 1.
    """
    rows = keyed(("a", 0), ("a", 10), ("a", 21), ("a", 15), ("a", 31), ("b", 31))
    program, stream = reading(rows)
    out = written(program, stream.key_by("k").process(count, out=N, ttl="10 ms"))
    assert [(row["k"], row["n"]) for row in out] == [
        ("a", 1), ("a", 2), ("a", 1), ("a", 2), ("a", 3), ("b", 1)
    ]  # fmt: skip


def test_state_that_the_watermark_has_passed_is_gone_for_records_behind_as_well():
    """ttl 10. What was last seen at p counts for epoch e iff p + 10 >= the watermark before e.

    Epoch 0: a at 0, b at 10: 1, 1; watermark 10. Epoch 1: a at 5, behind: 0 + 10 >= 10: 2 (and its
    greatest time is 5); b at 16: 2; watermark 16. Epoch 2: a at 6, behind: 5 + 10 < 16: gone: 1.
    """
    rows = keyed(("a", 0), ("b", 10), ("a", 5), ("b", 16), ("a", 6))
    program, stream = reading(rows)
    out = written(program, stream.key_by("k").process(count, out=N, ttl="10 ms"), cuts(2, 4, 5))
    assert [(row["k"], row["n"]) for row in out] == [
        ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 1)
    ]  # fmt: skip


def test_the_time_to_live_counts_from_the_greatest_time_since_the_state_was_last_empty():
    """ttl 10: gone for a record at t if the greatest event time since it was last empty + 10 < t.

    One epoch, key a. 20 keeps nothing (it clears), so nothing of it is remembered. 5 counts 1. 16:
    the state's greatest time is 5, and 5 + 10 < 16: it is gone, and 16 counts 1 again.
    """
    program, stream = reading(keyed(("a", 20), ("a", 5), ("a", 16)))

    def clears(record, state):
        if record["t"] == 20:
            state.clear()
            return None
        return count(record, state)

    out = written(program, stream.key_by("k").process(clears, out=N, ttl="10 ms"))
    assert out == [{"k": "a", "n": 1}, {"k": "a", "n": 1}]
