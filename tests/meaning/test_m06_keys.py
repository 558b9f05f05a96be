"""M6: the order of keys, and their equality."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import anabranch as ab

Cut = ab.testing.Cut
NAN, INF = float("nan"), float("inf")


def keyed(keys, dtype, **more):
    """A program that reads rows n = 0, 1, ... at time 1 with these keys; it and the stream."""
    program = ab.Program("case")
    rows = [{"t": 1, "n": n, "k": k} for n, k in enumerate(keys)]
    source = ab.sources.Records(rows, schema={"t": pl.Int64, "n": pl.Int64, "k": dtype}, **more)
    return program, program.read(source, name="in", event_time="t")


def seen(value):
    """A value that compares as itself: NaN equals nothing in Python, so it is told as text."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def by_key(keys, dtype):
    """The groups of one window of 10 ms, in the order in which they leave: (key, ns)."""
    program, stream = keyed(keys, dtype)
    windows = stream.window(ab.tumbling("10 ms"), by="k")
    windows.agg(ns=ab.collect("n")).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program)["out"]
    assert {(row["window_start"], row["window_end"]) for row in rows} == {(0, 10)}
    return [(seen(row["k"]), row["ns"]) for row in rows]


def counted(record, state):
    """How many records of its key came so far."""
    state.value = (state.value or 0) + 1
    return {"n": record["n"], "seen": state.value}


def test_floats_go_null_first_by_value_nan_last_and_both_zeros_are_one():
    """null < -inf < -1.5 < 0.0 = -0.0 < 2.0 < inf < NaN.

    All records are in [0, 10), which leaves at the end of time by key. NaN occurs twice (rows 0, 6)
    and is one key; -0.0 (row 3) and 0.0 (row 7) are one key; null is a key (row 2).
    """
    keys = [NAN, 2.0, None, -0.0, INF, -1.5, NAN, 0.0, -INF]
    assert by_key(keys, pl.Float64) == [
        (None, [2]),
        (-INF, [8]),
        (-1.5, [5]),
        (0.0, [3, 7]),
        (2.0, [1]),
        (INF, [4]),
        ("NaN", [0, 6]),
    ]


def test_nans_of_any_sign_and_payload_are_one_key():
    """Key equality is NaN = NaN, and there are many NaNs in a float.

    -NaN and inf - inf differ from NaN in their bits; all three records are of one group.
    """
    assert by_key([NAN, -NAN, INF - INF], pl.Float64) == [("NaN", [0, 1, 2])]


def test_single_floats_are_keys_too():
    """Float32 has the same order: null, -0.0 = 0.0, 0.5, NaN."""
    assert by_key([NAN, 0.5, -0.0, None, 0.0], pl.Float32) == [
        (None, [3]),
        (0.0, [2, 4]),
        (0.5, [1]),
        ("NaN", [0]),
    ]


@pytest.mark.parametrize("keys", [[-0.0, 0.0], [0.0, -0.0], [-0.0]])
def test_the_key_of_a_result_is_the_positive_zero(keys):
    """Equal keys have one spelling in results, whichever came first: 0.0.

    Python calls -0.0 and 0.0 equal, so the sign is looked at.
    """
    [(key, _)] = by_key(keys, pl.Float64)
    assert math.copysign(1.0, key) == 1.0


def test_booleans_go_null_false_true():
    """null first, false < true."""
    assert by_key([True, None, False, True], pl.Boolean) == [
        (None, [1]),
        (False, [2]),
        (True, [0, 3]),
    ]


def test_integers_go_by_value():
    """-10 < -9 < 2 < 10, as numbers and not as text; null first."""
    assert by_key([10, 2, -9, None, -10], pl.Int64) == [
        (None, [3]),
        (-10, [4]),
        (-9, [2]),
        (2, [1]),
        (10, [0]),
    ]


def test_integers_that_are_one_as_floats_are_two_keys():
    """2**53 and 2**53 + 1 differ by one, which a Float64 could not tell."""
    big = 2**53
    assert by_key([big + 1, big, big + 1], pl.Int64) == [(big, [1]), (big + 1, [0, 2])]


def test_unsigned_integers_above_the_signed_range():
    """2**63 is more than 2**63 - 1, not negative."""
    assert by_key([2**63, 2**63 - 1, 0], pl.UInt64) == [(0, [2]), (2**63 - 1, [1]), (2**63, [0])]


def test_strings_go_by_their_bytes():
    """UTF-8 bytes: no dictionary, no case folding.

    "" has no byte and is first (behind null). "B" is 42, "a" 61, "a0" 61 30, "aa" 61 61, "z" 7A,
    "é" C3 A9, U+FFFF EF BF BF, the smiley F0 9F 98 80: UTF-16 would put the smiley (D83D ...)
    before U+FFFF.
    """
    keys = ["é", "z", "a", "B", "", None, "aa", "a0", "\U0001f600", "\uffff"]
    assert [key for key, _ in by_key(keys, pl.String)] == [
        None, "", "B", "a", "a0", "aa", "z", "é", "\uffff", "\U0001f600",
    ]  # fmt: skip


def test_strings_of_the_same_look_and_other_bytes_are_two_keys():
    """é as one code point (C3 A9) and as e with an accent (65 CC 81) are not equal; 65 < C3."""
    assert by_key(["\u00e9", "e\u0301", "\u00e9"], pl.String) == [
        ("e\u0301", [1]),
        ("\u00e9", [0, 2]),
    ]


def test_bytes_go_by_their_bytes():
    """Unsigned: null, b"", 00, 00 FF, 7F, 80."""
    keys = [b"\x80", b"\x7f", b"\x00\xff", b"", None, b"\x00"]
    assert [key for key, _ in by_key(keys, pl.Binary)] == [
        None, b"", b"\x00", b"\x00\xff", b"\x7f", b"\x80",
    ]  # fmt: skip


def test_dates_durations_and_decimals_go_by_value():
    """Whatever has a value is ordered by it, null first."""
    days = [date(2024, 3, 1), None, date(1969, 12, 31), date(2024, 2, 29)]
    assert [key for key, _ in by_key(days, pl.Date)] == [None, days[2], days[3], days[0]]
    spans = [timedelta(days=1), timedelta(seconds=-1), timedelta(hours=25)]
    assert [key for key, _ in by_key(spans, pl.Duration("us"))] == [spans[1], spans[0], spans[2]]
    prices = [Decimal("10.00"), Decimal("-2.50"), Decimal("9.99")]
    assert [key for key, _ in by_key(prices, pl.Decimal(10, 2))] == [
        prices[1], prices[2], prices[0],
    ]  # fmt: skip


def test_timestamps_go_by_instant():
    """Before 1970 is before 1970; null is first; microseconds count."""
    at = datetime(1970, 1, 1)
    keys = [at, at - timedelta(microseconds=1), None, at + timedelta(days=1), at]
    assert by_key(keys, pl.Datetime("us")) == [
        (None, [2]),
        (keys[1], [1]),
        (at, [0, 4]),
        (keys[3], [3]),
    ]


def test_timestamps_of_the_hour_that_comes_twice_are_two_keys_in_the_order_of_their_instants():
    """By instant, not by what the clock on the wall says.

    In Berlin on 2024-10-27 the clock shows 02:30 at 00:30 UTC and, set back, at 01:30 UTC again;
    02:10 is shown again at 01:10 UTC. By instant: 00:30 (row 1), 01:10 (row 2), 01:30 (row 0).
    """
    utc = [datetime(2024, 10, 27, *at, tzinfo=UTC) for at in ((1, 30), (0, 30), (1, 10))]
    keys = [at.astimezone(ZoneInfo("Europe/Berlin")) for at in utc]
    groups = by_key(keys, pl.Datetime("us", "Europe/Berlin"))
    # In UTC, since Python itself compares the wall clocks within one zone.
    assert [(key.astimezone(UTC), ns) for key, ns in groups] == [
        (utc[1], [1]),
        (utc[2], [2]),
        (utc[0], [0]),
    ]


def test_the_hour_that_comes_twice_is_two_keys_of_state():
    """Key equality is the same relation as in the order: by instant.

    02:30 of summer time and 02:30 of winter time in Berlin: two keys, each with one record; the
    third record has the first one's instant.
    """
    utc = [datetime(2024, 10, 27, hour, 30, tzinfo=UTC) for hour in (0, 1, 0)]
    keys = [at.astimezone(ZoneInfo("Europe/Berlin")) for at in utc]
    program, stream = keyed(keys, pl.Datetime("us", "Europe/Berlin"))
    made = stream.key_by("k").process(counted, out={"n": pl.Int64, "seen": pl.Int64})
    made.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"n": 0, "seen": 1},
        {"n": 1, "seen": 1},
        {"n": 2, "seen": 2},
    ]


def test_tuples_go_by_column():
    """The first `by` column decides, the second among its equals, each by its own order.

    Keys (a, b): the first column null < "A" < "b"; within "b" the second null < -1.0 < 0.0 < NaN.
    """
    program = ab.Program("case")
    keys = [("b", NAN), ("b", -0.0), ("A", 9.0), (None, 5.0), ("b", None), ("b", -1.0), ("b", 0.0)]
    rows = [{"t": 1, "a": a, "b": b} for a, b in keys]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t")
    windows = stream.window(ab.tumbling("10 ms"), by=["a", "b"])
    windows.agg(c=ab.count()).write(ab.sinks.Memory("out"))
    found = ab.testing.run_sequential(program)["out"]
    assert [(row["a"], seen(row["b"]), row["c"]) for row in found] == [
        (None, 5.0, 1),
        ("A", 9.0, 1),
        ("b", None, 1),
        ("b", -1.0, 1),
        ("b", 0.0, 2),
        ("b", "NaN", 1),
    ]


def test_the_order_of_the_by_columns_is_the_users():
    """by=["b", "a"] compares b first and shows b first.

    (a, b): (1, 2), (2, 1): by b first, (2, 1) precedes (1, 2).
    """
    program = ab.Program("case")
    rows = [{"t": 1, "a": 1, "b": 2}, {"t": 1, "a": 2, "b": 1}]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t")
    windows = stream.window(ab.tumbling("10 ms"), by=["b", "a"])
    windows.agg(c=ab.count()).write(ab.sinks.Memory("out"))
    found = ab.testing.run_sequential(program)["out"]
    assert [tuple(row.items()) for row in found] == [
        (("window_start", 0), ("window_end", 10), ("b", 1), ("a", 2), ("c", 1)),
        (("window_start", 0), ("window_end", 10), ("b", 2), ("a", 1), ("c", 1)),
    ]


def test_windows_leave_by_end_and_start_before_they_leave_by_key():
    """(end, start, key): the key is the last to be asked.

    Records: key 2 at 1, key 1 at 12, key null at 13. [0, 10) leaves before [10, 20), though its
    key is the greatest; within [10, 20) null before 1.
    """
    program = ab.Program("case")
    rows = [{"t": 1, "k": 2}, {"t": 12, "k": 1}, {"t": 13, "k": None}]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t")
    stream.window(ab.tumbling("10 ms"), by="k").agg(c=ab.count()).write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"window_start": 0, "window_end": 10, "k": 2, "c": 1},
        {"window_start": 10, "window_end": 20, "k": None, "c": 1},
        {"window_start": 10, "window_end": 20, "k": 1, "c": 1},
    ]


def test_state_of_a_key_follows_key_equality():
    """NaN is one key, both zeros are one key, null is a key.

    Keys NaN, 0.0, null, -0.0, NaN, null: the second of each sees 2. Rows stay in their order.
    """
    program, stream = keyed([NAN, 0.0, None, -0.0, NAN, None], pl.Float64)
    made = stream.key_by("k").process(counted, out={"n": pl.Int64, "seen": pl.Int64})
    made.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"n": n, "seen": seen_} for n, seen_ in enumerate([1, 1, 1, 2, 2, 2])
    ]


def test_sessions_merge_by_key_equality():
    """A session's key is compared as any other.

    Gap 10 ms. NaN at 1 and NaN at 9: one session [1, 19). 0.0 at 1 and -0.0 at 5: one, [1, 15).
    Ends: 15 before 19.
    """
    program = ab.Program("case")
    rows = [{"t": t, "k": k} for t, k in ((1, NAN), (1, 0.0), (9, NAN), (5, -0.0))]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t")
    stream.window(ab.session("10 ms"), by="k").agg(c=ab.count()).write(ab.sinks.Memory("out"))
    found = ab.testing.run_sequential(program)["out"]
    assert [{**row, "k": seen(row["k"])} for row in found] == [
        {"window_start": 1, "window_end": 15, "k": 0.0, "c": 2},
        {"window_start": 1, "window_end": 19, "k": "NaN", "c": 2},
    ]


def test_a_join_matches_by_key_equality_and_null_matches_nothing():
    """NaN finds NaN, -0.0 finds 0.0; null does not find null (M13).

    Left epoch first: rows 0 NaN, 1 null, 2 -0.0. Then right: a NaN, b null, c 0.0. Each right
    record arrives later and brings its pair: a with 0, b with nothing, c with 2.
    """
    program, left = keyed([NAN, None, -0.0], pl.Float64)
    rows = [{"t": 1, "m": m, "k": k} for m, k in (("a", NAN), ("b", None), ("c", 0.0))]
    right = program.read(ab.sources.Records(rows), name="right", event_time="t")
    pairs = left.join(right, on="k", within="1 ms").select("n", "m")
    pairs.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [{"n": 0, "m": "a"}, {"n": 2, "m": "c"}]


def test_a_join_of_several_columns_needs_all_equal_and_none_null():
    """(1, null) matches nothing, not even (1, null); (1, NaN) matches (1, NaN) and not (2, NaN)."""
    program = ab.Program("case")
    keys = [(1, None), (1, NAN), (2, NAN)]
    sides = []
    for name in ("l", "r"):
        rows = [{"t": 1, "a": a, "b": b, name: n} for n, (a, b) in enumerate(keys)]
        sides.append(program.read(ab.sources.Records(rows), name=name, event_time="t"))
    pairs = sides[0].join(sides[1], on=["a", "b"], within="1 ms").select("l", "r")
    pairs.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [{"l": 1, "r": 1}, {"l": 2, "r": 2}]


def test_deduplicate_passes_the_first_of_each_key():
    """Keys are equal as in M6; null is a key like any other here.

    NaN (0), null (1), -0.0 (2) pass; NaN (3), 0.0 (4), null (5) have passed; 1.0 (6) passes.
    """
    program, stream = keyed([NAN, None, -0.0, NAN, 0.0, None, 1.0], pl.Float64)
    stream.key_by("k").deduplicate().select("n").write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [{"n": n} for n in (0, 1, 2, 6)]


def test_lookup_finds_by_key_equality_and_null_finds_nothing():
    """NaN is found, -0.0 finds 0.0, null finds nothing though the table has a null key.

    how="left": the rows that find nothing (null, 7.0) keep null beside them.
    """
    program, stream = keyed([NAN, -0.0, None, 7.0], pl.Float64)
    table = pl.DataFrame({"k": [0.0, NAN, None], "v": ["zero", "nan", "null"]})
    stream.lookup(table, on="k", how="left").select("n", "v").write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"n": 0, "v": "nan"},
        {"n": 1, "v": "zero"},
        {"n": 2, "v": None},
        {"n": 3, "v": None},
    ]


@pytest.mark.parametrize("keys", [[0.0, -0.0], [NAN, -NAN]])
def test_a_table_with_both_zeros_or_two_nans_has_a_key_twice(keys):
    """Duplicate keys are an error (M13), and these are duplicates; with many=True both are found.

    In table order: x, then y.
    """
    table = pl.DataFrame({"k": keys, "v": ["x", "y"]})
    _, stream = keyed([keys[1]], pl.Float64)
    with pytest.raises(ab.AnabranchError):
        stream.lookup(table, on="k")
    program, stream = keyed([keys[1]], pl.Float64)
    stream.lookup(table, on="k", many=True).select("n", "v").write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [{"n": 0, "v": "x"}, {"n": 0, "v": "y"}]


def test_two_null_keys_in_a_table_are_no_duplicates():
    """Null matches nothing, so null keys of a table can never be found, however many."""
    program, stream = keyed([1.0], pl.Float64)
    table = pl.DataFrame({"k": [None, None, 1.0], "v": ["x", "y", "z"]})
    stream.lookup(table, on="k").select("n", "v").write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [{"n": 0, "v": "z"}]


def test_a_new_version_of_a_table_with_a_key_twice_fails_the_run():
    """The rule about duplicates holds for every version that the log brings."""
    program, stream = keyed([0.0], pl.Float64)
    table = pl.DataFrame({"k": [0.0], "v": ["x"]})
    stream.lookup(table, on="k", name="table").write(ab.sinks.Memory("out"))
    double = pl.DataFrame({"k": [0.0, -0.0], "v": ["x", "y"]})
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program, log=[Cut("in", {0: (0, 1)}, tables={"table": double})])


def test_rows_windows_are_of_keys_as_all_others():
    """`ab.rows(2)` counts the records of equal keys: two NaNs are two of one key.

    NaN, 0.0, NaN (second of NaN: emits 0, 2), -0.0 (second of 0.0: emits 1, 3).
    """
    program, stream = keyed([NAN, 0.0, NAN, -0.0], pl.Float64)
    windows = stream.window(ab.rows(2), by="k").agg(ns=ab.collect("n"))
    windows.select("k", "ns").write(ab.sinks.Memory("out"))
    found = ab.testing.run_sequential(program)["out"]
    assert [(seen(row["k"]), row["ns"]) for row in found] == [("NaN", [0, 2]), (0.0, [1, 3])]


def test_a_key_of_nulls_alone():
    """A column without a type but Null has one key.

    Two records with null: one group.
    """
    assert by_key([None, None], pl.Null) == [(None, [0, 1])]
