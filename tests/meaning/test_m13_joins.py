"""M13: which rows a join pairs, when they leave, what is late; and lookups.

Two sources, `left` with columns k, t, l and `right` with columns k, t, r, each of one partition with
lateness 0 and event times in milliseconds in column `t`: at the end of an epoch a source's
watermark is its greatest `t` so far, and the join's is the lesser of the two (none before both have
spoken). In the results t is the left row's time, t_right the right one's.
"""

import json

import polars as pl
import pytest

import anabranch as ab

NOTHING = frozenset()
NAN = float("nan")


def joining(left, right, *, within="10 ms", how="inner", key=pl.String):
    """A program that joins rows (k, t) of two sources; l and r number them from 1."""
    program = ab.Program("m13")
    one = ab.sources.Records(numbered(left, "l"), {"k": key, "t": pl.Int64, "l": pl.Int64})
    two = ab.sources.Records(numbered(right, "r"), {"k": key, "t": pl.Int64, "r": pl.Int64})
    a = program.read(one, name="left", event_time="t")
    b = program.read(two, name="right", event_time="t")
    return program, a.join(b, on="k", within=within, how=how, name="join")


def numbered(pairs, name):
    """Rows of pairs (k, t) with a number."""
    return [{"k": k, "t": t, name: i} for i, (k, t) in enumerate(pairs, 1)]


def log(*epochs):
    """Epochs of (source, first row, row behind the last); "left." finishes the source."""
    return [
        ab.testing.Cut(
            name.rstrip("."),
            {0: (start, end)},
            finished=frozenset({0}) if name.endswith(".") else NOTHING,
        )
        for name, start, end in epochs
    ]


def joined(program, stream, epochs):
    """The results as (k, l, r)."""
    stream.write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=epochs)["out"]
    return [(row["k"], row["l"], row["r"]) for row in out]


# Pairs


def test_a_pair_is_two_rows_of_one_key_at_most_d_apart():
    """d = 10, the distance itself included, to either side.

    Left: 1 at 0, 2 at 20. Right: 1 at 10: 10 from each: pairs (1, 1), (2, 1), the partners in the
    order in which they arrived. 2 at 31: 11 from 20: none. 3 at 9: 9 from 0, 11 from 20: (1, 3).
    4 at 10 of another key: none.
    """
    program, stream = joining([("a", 0), ("a", 20)], [("a", 10), ("a", 31), ("a", 9), ("b", 10)])
    stream.write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=log(("left", 0, 2), ("right", 0, 4)))["out"]
    assert out == [
        {"k": "a", "t": 0, "l": 1, "t_right": 10, "r": 1},
        {"k": "a", "t": 20, "l": 2, "t_right": 10, "r": 1},
        {"k": "a", "t": 0, "l": 1, "t_right": 9, "r": 3},
    ]
    assert list(out[0]) == ["k", "t", "l", "t_right", "r"]


def test_a_pair_leaves_with_its_later_record_in_the_order_of_these():
    """Later by the log (M5), not by event time: whichever side it is on.

    Epoch 0, right: 1 at 5, 2 at 3. Epoch 1, left: 1 at 4: partners in order of arrival: right 1,
    right 2. Epoch 2, right: 3 at 4: partner left 1. Epoch 3, left: 2 at 6: right 1, 2, 3.
    """
    program, stream = joining([("a", 4), ("a", 6)], [("a", 5), ("a", 3), ("a", 4)])
    epochs = log(("right", 0, 2), ("left", 0, 1), ("right", 2, 3), ("left", 1, 2))
    assert joined(program, stream, epochs) == [
        ("a", 1, 1), ("a", 1, 2), ("a", 1, 3), ("a", 2, 1), ("a", 2, 2), ("a", 2, 3)
    ]  # fmt: skip


def test_null_matches_nothing_and_nan_matches_nan():
    """Keys are equal by M6: NaN = NaN, -0.0 = 0.0; null matches nothing, not even null.

    Left: null, NaN, -0.0; right: null, 0.0, NaN. Pairs: right 2 (0.0) with left 3 (-0.0), right 3
    (NaN) with left 2 (NaN).
    """
    program, stream = joining(
        [(None, 1), (NAN, 1), (-0.0, 1)], [(None, 1), (0.0, 1), (NAN, 1)], key=pl.Float64
    )
    out = joined(program, stream, log(("left", 0, 3), ("right", 0, 3)))
    assert [(left, right) for _, left, right in out] == [(3, 2), (2, 3)]


def test_keys_of_several_columns_must_all_be_equal_and_none_null():
    """on=["k", "i"]: (a, 1) matches (a, 1); (a, null) does not match (a, null)."""
    program = ab.Program("m13")
    one = ab.sources.Records([{"k": "a", "i": 1, "t": 1}, {"k": "a", "i": None, "t": 1}])
    two = ab.sources.Records(
        [{"i": None, "k": "a", "t": 1}, {"i": 1, "k": "a", "t": 1}, {"i": 2, "k": "a", "t": 1}]
    )
    a = program.read(one, name="left", event_time="t")
    b = program.read(two, name="right", event_time="t")
    a.join(b, on=["k", "i"], within="1 ms").write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [{"k": "a", "i": 1, "t": 1, "t_right": 1}]


def test_within_nothing_only_rows_of_the_same_instant_match():
    """within="0 ms": left at 5; right at 4, 5, 6: only 5."""
    program, stream = joining([("a", 5)], [("a", 4), ("a", 5), ("a", 6)], within="0 ms")
    assert joined(program, stream, log(("left", 0, 1), ("right", 0, 3))) == [("a", 1, 2)]


def test_a_pair_has_the_later_of_the_two_event_times():
    """Behind the join, windows of 10: left at 8 and right at 12 make a pair at 12: [10, 20).

    Whichever comes first: the second pair is right at 19 with left at 21 that came before it: 21.
    """
    program, stream = joining([("a", 8), ("b", 21)], [("a", 12), ("b", 19)])
    stream.window(ab.tumbling("10 ms")).agg(ls=ab.collect("l")).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program)["out"]
    assert out == [
        {"window_start": 10, "window_end": 20, "ls": [1]},
        {"window_start": 20, "window_end": 30, "ls": [2]},
    ]


def test_clashing_columns_of_the_right_get_a_suffix():
    """Left k, v, t; right t, w, k, v: left's columns, then right's without the key: t, w, v.

    t and v clash: t_right, w, v_right.
    """
    program = ab.Program("m13")
    one = ab.sources.Records([{"k": "a", "v": 1, "t": 1}])
    two = ab.sources.Records([{"t": 2, "w": 3, "k": "a", "v": 4}])
    a = program.read(one, name="left", event_time="t")
    b = program.read(two, name="right", event_time="t")
    a.join(b, on="k", within="5 ms").write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program)["out"]
    assert out == [{"k": "a", "v": 1, "t": 1, "t_right": 2, "w": 3, "v_right": 4}]
    assert list(out[0]) == ["k", "v", "t", "t_right", "w", "v_right"]


def test_a_clash_that_the_suffix_does_not_mend_is_refused():
    """Left has v and v_right, right has v: the result would have v_right twice."""
    program = ab.Program("m13")
    one = ab.sources.Records([{"k": "a", "v": 1, "v_right": 2, "t": 1}])
    two = ab.sources.Records([{"k": "a", "v": 4, "s": 1}])
    a = program.read(one, name="left", event_time="t")
    b = program.read(two, name="right", event_time="s")
    with pytest.raises(ab.ProgramError):
        a.join(b, on="k", within="5 ms")


def test_a_stream_joined_with_itself_takes_each_record_on_the_left_first():
    """A diamond appends the branch number (M5): of each record the left copy, then the right copy.

    1 and 2 of key a at 0 and 3, 3 of key b. Record 1: on the left there is no right yet; on the
    right it finds left 1: (1, 1). Record 2: on the left it finds right 1: (2, 1); on the right, in
    the order of arrival, left 1 and left 2: (1, 2), (2, 2). Record 3: (3, 3).
    """
    program = ab.Program("m13")
    rows = [{"k": k, "t": t, "v": v} for v, (k, t) in enumerate((("a", 0), ("a", 3), ("b", 3)), 1)]
    stream = program.read(ab.sources.Records(rows), name="left", event_time="t")
    stream.join(stream, on="k", within="5 ms").select("v", "v_right").write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program)["out"]
    assert [(row["v"], row["v_right"]) for row in out] == [(1, 1), (2, 1), (1, 2), (2, 2), (3, 3)]


def test_a_stream_joined_with_its_own_windows_pairs_in_phase_1():
    """A window's result arrives behind the records of its epoch, at its end - 1 us.

    1 at 3, 2 at 9, 3 at 12; the result of [0, 10), n = 2, has time 9.999 ms. d = 7: it matches 1
    (6.999 away), 2 (0.999) and 3 (2.001), which all came before it, in the order of arrival. The
    result of [10, 20), n = 1, at 19.999: 3 is 7.999 away: none.
    """
    program = ab.Program("m13")
    rows = [{"k": "a", "t": t, "v": v} for v, t in enumerate((3, 9, 12), 1)]
    stream = program.read(ab.sources.Records(rows), name="left", event_time="t")
    counts = stream.window(ab.tumbling("10 ms"), by="k").agg(n=ab.count())
    paired = stream.join(counts, on="k", within="7 ms")
    paired.select("v", "n", "window_end").write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"v": 1, "n": 2, "window_end": 10},
        {"v": 2, "n": 2, "window_end": 10},
        {"v": 3, "n": 2, "window_end": 10},
    ]


# What can still match


def test_a_stored_row_can_match_while_its_time_plus_d_is_not_behind_the_watermark():
    """d = 10. Left 1 at 0 is stored; the watermark before the next epoch is 10: 0 + 10 >= 10.

    Epoch 0, left: 0, 10: watermark 10; epoch 1, right: 1 at 10 of another key: the join's is 10.
    Epoch 2, right: 2 at 4, behind the watermark but not too late (4 + 10 >= 10): pairs with left 1.
    """
    program, stream = joining([("a", 0), ("z", 10)], [("y", 10), ("a", 4)])
    epochs = log(("left", 0, 2), ("right", 0, 1), ("right", 1, 2))
    assert joined(program, stream, epochs) == [("a", 1, 2)]


def test_a_stored_row_behind_that_matches_nothing_however_near_it_is():
    """The same with watermark 11: 0 + 10 < 11: left 1 is no more.

    Right 2 at 4 is not too late itself (4 + 10 >= 11), and only 4 away from 0, yet has no partner.
    """
    program, stream = joining([("a", 0), ("z", 11)], [("y", 11), ("a", 4)])
    epochs = log(("left", 0, 2), ("right", 0, 1), ("right", 1, 2))
    assert joined(program, stream, epochs) == []


def test_a_record_too_late_to_match_is_a_dead_letter():
    """Too late: its time + d < the watermark before its epoch. d = 5, watermark 20.

    Left 3 at 14: 19 < 20: late. Left 4 at 15: 20 >= 20: not late; its partner right 2 at 20 is 5
    away: a pair. Right 3 at 0: late as well. Both letters say the operator and where they are from.
    """
    program, stream = joining(
        [("y", 1), ("y", 20), ("a", 14), ("a", 15)], [("y", 20), ("a", 20), ("a", 0)], within="5 ms"
    )
    stream.dead_letters.drop("epoch").write(ab.sinks.Memory("letters"))
    stream.select("l", "r").write(ab.sinks.Memory("out"))
    epochs = log(("left", 0, 2), ("right", 0, 2), ("left", 2, 4), ("right", 2, 3))
    rows = ab.testing.run_sequential(program, log=epochs)
    assert rows["out"] == [{"l": 2, "r": 1}, {"l": 4, "r": 2}]
    letters = [{**row, "record": json.loads(row["record"])} for row in rows["letters"]]
    same = {
        "operator": "join", "partition": "0", "reason": "late", "error": None, "traceback": None
    }  # fmt: skip
    assert letters == [
        same | {"source": "left", "offset": 2, "record": {"k": "a", "t": 14, "l": 3}},
        same | {"source": "right", "offset": 2, "record": {"k": "a", "t": 0, "r": 3}},
    ]


def test_a_record_is_too_late_by_its_own_time_though_a_near_partner_is_still_stored():
    """d = 5, watermark 20. Right 1 at 15 is stored and can match (15 + 5 >= 20).

    Left 2 at 14 is 1 away from it, but 14 + 5 < 20: too late, a dead letter, no pair. Left 3 at 15
    is not: it pairs with right 1, and with right 2 at 20, which is 5 away.
    """
    program, stream = joining(
        [("z", 20), ("a", 14), ("a", 15)], [("a", 15), ("a", 20)], within="5 ms"
    )
    stream.dead_letters.select("reason", "offset").write(ab.sinks.Memory("letters"))
    stream.select("l", "r").write(ab.sinks.Memory("out"))
    epochs = log(("left", 0, 1), ("right", 0, 2), ("left", 1, 3))
    assert ab.testing.run_sequential(program, log=epochs) == {
        "letters": [{"reason": "late", "offset": 1}],
        "out": [{"l": 3, "r": 1}, {"l": 3, "r": 2}],
    }


# Outer joins


def test_a_late_record_of_an_outer_side_is_a_dead_letter_and_not_an_unmatched_row():
    """full, d = 5, watermark 20: left 2 at 14 and a null key at 3 are late: letters, and that is all.

    Left 1 and right 1 at 20 have different keys, and leave unmatched at the end of time.
    """
    program, stream = joining(
        [("z", 20), ("a", 14), (None, 3)], [("y", 20)], within="5 ms", how="full"
    )
    stream.dead_letters.select("reason", "offset").write(ab.sinks.Memory("letters"))
    stream.select("l", "r").write(ab.sinks.Memory("out"))
    epochs = log(("left", 0, 1), ("right", 0, 1), ("left.", 1, 3), ("right.", 1, 1))
    assert ab.testing.run_sequential(program, log=epochs) == {
        "letters": [{"reason": "late", "offset": 1}, {"reason": "late", "offset": 2}],
        "out": [{"l": 1, "r": None}, {"l": None, "r": 1}],
    }


def test_the_unmatched_of_both_sides_leave_by_time_then_side_then_arrival():
    """d = 5, full. Left: 1 a at 0, 2 b at 7, 3 c at 7. Right: 1 x at 7, 2 y at 3, 3 a at 2.

    Epoch 0 is left, epoch 1 right: right 3 pairs with left 1 (2 away). The watermark is 7: no match
    is possible any more for what has time + 5 < 7, that is time < 2: only left 1, which has had
    one. Then both finish: at the end of time the rest leave: right 2 at 3; at 7 first the left
    ones, in the order of their arrival: 2, 3; then right 1. The key column has the key of the side
    that is there.
    """
    program, stream = joining(
        [("a", 0), ("b", 7), ("c", 7)], [("x", 7), ("y", 3), ("a", 2)], within="5 ms", how="full"
    )
    stream.write(ab.sinks.Memory("out"))
    epochs = log(("left", 0, 3), ("right", 0, 3), ("left.", 3, 3), ("right.", 3, 3))
    missing_left, missing_right = {"t": None, "l": None}, {"t_right": None, "r": None}
    pair = {"k": "a", "t": 0, "l": 1, "t_right": 2, "r": 3}
    assert ab.testing.run_sequential(program, log=epochs[:3])["out"] == [pair]
    assert ab.testing.run_sequential(program, log=epochs)["out"] == [
        pair,
        {"k": "y", **missing_left, "t_right": 3, "r": 2},
        {"k": "b", "t": 7, "l": 2, **missing_right},
        {"k": "c", "t": 7, "l": 3, **missing_right},
        {"k": "x", **missing_left, "t_right": 7, "r": 1},
    ]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [("a", 1, 2)]),
        ("left", [("a", 1, 2), ("b", 2, None)]),
        ("right", [("a", 1, 2), ("c", None, 1)]),
        ("full", [("a", 1, 2), ("b", 2, None), ("c", None, 1)]),
    ],
)
def test_only_the_unmatched_of_an_outer_side_leave(how, expected):
    """Left: 1 a, 2 b; right: 1 c, 2 a; all at 1: one pair; at the end b is left's, c is right's."""
    program, stream = joining([("a", 1), ("b", 1)], [("c", 1), ("a", 1)], how=how)
    epochs = log(("left.", 0, 2), ("right.", 0, 2))
    assert joined(program, stream, epochs) == expected


def test_a_row_that_had_a_partner_once_never_leaves_unmatched():
    """full, d = 10: left 1 pairs with right 1; right 2 at 50 has none: only it leaves unmatched."""
    program, stream = joining([("a", 1)], [("a", 2), ("a", 50)], how="full")
    epochs = log(("left.", 0, 1), ("right.", 0, 2))
    assert joined(program, stream, epochs) == [("a", 1, 1), ("a", None, 2)]


def test_rows_with_a_null_key_of_an_outer_side_leave_unmatched_like_others():
    """left: 1 null at 1, 2 b at 0: nothing matches; they leave by time, not when they come.

    d = 10. Watermark 11 (both sides at 11): 1 + 10 is not less than 11: only 2 leaves (0 + 10 < 11).
    Watermark 12: 1 leaves.
    """
    left = [(None, 1), ("b", 0), ("z", 11), ("z", 12)]
    right = [(None, 1), ("y", 11), ("y", 12)]
    epochs = log(("left", 0, 3), ("right", 0, 2), ("left", 3, 4), ("right", 2, 3))
    program, stream = joining(left, right, how="left")
    assert joined(program, stream, epochs[:2]) == [("b", 2, None)]
    program, stream = joining(left, right, how="left")
    assert joined(program, stream, epochs) == [("b", 2, None), (None, 1, None)]


def test_an_unmatched_row_waits_as_long_as_it_can_match():
    """left, d = 5, left 1 at 0. At watermark 5 it can match (0 + 5 >= 5), and does: right 2 at 5.

    With 6 in place of 5 it has left, unmatched, before right 2 at 5 comes; that one finds nothing.
    """
    epochs = log(("left", 0, 2), ("right", 0, 1), ("right", 1, 2))
    program, stream = joining([("a", 0), ("z", 5)], [("y", 5), ("a", 5)], within="5 ms", how="left")
    assert joined(program, stream, epochs) == [("a", 1, 2)]
    program, stream = joining([("a", 0), ("z", 6)], [("y", 6), ("a", 5)], within="5 ms", how="left")
    assert joined(program, stream, epochs) == [("a", 1, None)]


def test_unmatched_rows_come_behind_the_pairs_of_their_epoch():
    """Phase 1 comes after phase 0: left 1 at 0 leaves with the watermark of the epoch that pairs 2.

    d = 5, left. Epoch 0, left: 1 a at 0, 2 b at 20: watermark 20. Epoch 1, right: 1 b at 20: the
    pair (2, 1); then the watermark 20 lets 1 go (0 + 5 < 20).
    """
    program, stream = joining([("a", 0), ("b", 20)], [("b", 20)], within="5 ms", how="left")
    epochs = log(("left", 0, 2), ("right", 0, 1))
    assert joined(program, stream, epochs) == [("b", 2, 1), ("a", 1, None)]


def test_the_watermark_behind_an_outer_join_is_held_back_by_d():
    """So the unmatched are not late downstream. left, d = 5, behind it windows of 10.

    Left 1 a at 8. After epochs 0 and 1 the join's watermark is 12: 8 + 5 >= 12: 1 stays; behind the
    join it is 12 - 5 = 7: [0, 10) is open. After epochs 2 and 3 it is 14: 8 + 5 < 14: 1 leaves,
    with event time 8, into [0, 10), which is not closed, since the watermark before was 7; it is 9
    now: the window stays. After epochs 4 and 5: 15 - 5 = 10: [0, 10) leaves with one row. Were the
    watermark not held back, [0, 10) would have closed at 12, and the row come too late.
    """
    left, right = [("a", 8), ("z", 12), ("z", 14), ("z", 15)], [("y", 12), ("y", 14), ("y", 15)]
    epochs = log(
        ("left", 0, 2), ("right", 0, 1), ("left", 2, 3), ("right", 1, 2), ("left", 3, 4), ("right", 2, 3)
    )  # fmt: skip

    def windows(count):
        program, stream = joining(left, right, within="5 ms", how="left")
        stream.select("l").write(ab.sinks.Memory("rows"))
        windowed = stream.window(ab.tumbling("10 ms"))
        windowed.late.write(ab.sinks.Memory("late"))
        windowed.agg(ls=ab.collect("l")).write(ab.sinks.Memory("out"))
        return ab.testing.run_sequential(program, log=epochs[:count])

    assert windows(2) == {"rows": [], "late": [], "out": []}
    assert windows(4) == {"rows": [{"l": 1}], "late": [], "out": []}
    out = [{"window_start": 0, "window_end": 10, "ls": [1]}]
    assert windows(6) == {"rows": [{"l": 1}], "late": [], "out": out}


def test_the_watermark_behind_an_inner_join_is_its_own():
    """inner, d = 5, windows of 10 behind it: a pair at 8; the join's watermark 10 lets [0, 10) go."""
    program, stream = joining([("a", 8), ("z", 10)], [("a", 8), ("y", 10)], within="5 ms")
    stream.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=log(("left", 0, 2), ("right", 0, 2)))["out"]
    assert out == [{"window_start": 0, "window_end": 10, "n": 1}]


def test_two_outer_joins_hold_the_watermark_back_twice():
    """left join with d = 5 behind a left join with d = 5: the watermark behind both is w - 10.

    Left 1 a at 8 leaves the first join unmatched when 8 + 5 < w, at w = 14; it enters the second
    join at 8, where the watermark before was 7 (12 - 5): not late (8 + 5 >= 7). It leaves that one
    when 8 + 5 < w - 5, that is at w = 19; behind both the watermark is then 19 - 10 = 9: the window
    [0, 10) takes it, and leaves when w - 10 = 10, at w = 20.
    """
    times = (12, 14, 18, 19, 20)
    program = ab.Program("m13")
    one = ab.sources.Records(numbered([("a", 8), *(("z", t) for t in times)], "l"))
    two = ab.sources.Records(numbered([("y", t) for t in times], "r"))
    a = program.read(one, name="left", event_time="t")
    b = program.read(two, name="right", event_time="t")
    first = a.join(b, on="k", within="5 ms", how="left").select("k", "l", t1="t")
    second = first.join(b.select("k", q="r"), on="k", within="5 ms", how="left")
    second.select("l").write(ab.sinks.Memory("rows"))
    windowed = second.window(ab.tumbling("10 ms"))
    windowed.agg(ls=ab.collect("l")).write(ab.sinks.Memory("out"))
    epochs = log(("left", 0, 2), ("right", 0, 1))
    for i in range(1, 5):
        epochs += log(("left", i + 1, i + 2), ("right", i, i + 1))
    runs = [ab.testing.run_sequential(program, log=epochs[:n]) for n in (6, 8, 10)]
    assert runs[0] == {"rows": [], "out": []}
    assert runs[1] == {"rows": [{"l": 1}], "out": []}
    out = [{"window_start": 0, "window_end": 10, "ls": [1]}]
    assert runs[2] == {"rows": [{"l": 1}], "out": out}


# Lookups


NAMES = pl.DataFrame({"name": ["one", "two", "none"], "k": [1, 2, None]})


def looking(rows, table, **options):
    """The rows beside those of a table, by k."""
    program = ab.Program("m13")
    source = ab.sources.Records(rows, {"k": pl.Int64, "v": pl.String})
    stream = program.read(source, name="left")
    return program, stream.lookup(table, on="k", name="names", **options)


def found(rows, table, cuts=None, **options):
    """What such a lookup gives."""
    program, stream = looking(rows, table, **options)
    stream.write(ab.sinks.Memory("out"))
    return ab.testing.run_sequential(program, log=cuts)["out"]


def keys(*ks):
    """Rows with these keys."""
    return [{"k": k, "v": f"v{i}"} for i, k in enumerate(ks)]


def test_a_lookup_keeps_the_rows_it_finds_in_their_order():
    """2, 3, null, 1: 3 is not in the table, null matches nothing though the table has a null key."""
    out = found(keys(2, 3, None, 1), NAMES)
    assert out == [{"k": 2, "v": "v0", "name": "two"}, {"k": 1, "v": "v3", "name": "one"}]
    assert list(out[0]) == ["k", "v", "name"]


def test_a_left_lookup_keeps_all_rows():
    """2, 3, null: what is not found has null beside it."""
    assert found(keys(2, 3, None), NAMES, how="left") == [
        {"k": 2, "v": "v0", "name": "two"},
        {"k": 3, "v": "v1", "name": None},
        {"k": None, "v": "v2", "name": None},
    ]


def test_several_rows_of_the_table_are_given_in_its_order_with_many():
    """The table has c, a for 1 and b for 2. Rows 1, 2, 1, 3: c, a; b; c, a; left: null."""
    table = pl.DataFrame({"k": [1, 2, 1], "name": ["c", "b", "a"]})
    out = found(keys(1, 2, 1, 3), table, many=True)
    assert [(row["v"], row["name"]) for row in out] == [
        ("v0", "c"), ("v0", "a"), ("v1", "b"), ("v2", "c"), ("v2", "a")
    ]  # fmt: skip
    out = found(keys(3, 2), table, many=True, how="left")
    assert [(row["v"], row["name"]) for row in out] == [("v0", None), ("v1", "b")]


def test_duplicate_keys_in_the_table_are_refused_without_many():
    """One row to one: which of two rows would it be? An error, whether looked up or not."""
    table = pl.DataFrame({"k": [1, 2, 1], "name": ["c", "b", "a"]})
    with pytest.raises(ab.AnabranchError):
        found(keys(2), table)


def test_duplicate_keys_by_m6_are_duplicates():
    """0.0 and -0.0 are one key, NaN and NaN are one."""
    for pair in ([0.0, -0.0], [NAN, NAN]):
        table = pl.DataFrame({"k": pair, "name": ["a", "b"]})
        program = ab.Program("m13")
        stream = program.read(ab.sources.Records([{"k": 1.5}]), name="left")
        with pytest.raises(ab.AnabranchError):
            looked_up(program, stream, table)


def looked_up(program, stream, table):
    """Write the lookup and run it: it may be refused at either."""
    stream.lookup(table, on="k").write(ab.sinks.Memory("out"))
    return ab.testing.run_sequential(program)["out"]


def test_float_keys_are_looked_up_by_m6():
    """NaN finds NaN, -0.0 finds 0.0."""
    program = ab.Program("m13")
    stream = program.read(ab.sources.Records([{"k": k} for k in (NAN, -0.0, 1.0)]), name="left")
    table = pl.DataFrame({"k": [0.0, NAN], "name": ["zero", "nan"]})
    assert [row["name"] for row in looked_up(program, stream, table)] == ["nan", "zero"]


def test_columns_of_the_table_that_clash_get_a_suffix():
    """The stream has v, the table has v and w: v_right, w."""
    table = pl.DataFrame({"v": ["table"], "k": [1], "w": [2]})
    assert found(keys(1), table) == [{"k": 1, "v": "v0", "v_right": "table", "w": 2}]


def test_the_version_of_the_table_holds_from_its_epoch_on():
    """Versions are in the log (M1): epoch 1 brings one with another name for 1, and 3 for the first time.

    Rows 1, 3 | 1, 3 | 1, 2: the first epoch has the table as written; the second and third have
    the new one, in which 2 is missing.
    """
    table = pl.DataFrame({"name": ["uno", "tres"], "k": [1, 3]})
    cuts = [
        ab.testing.Cut("left", {0: (0, 2)}),
        ab.testing.Cut("left", {0: (2, 4)}, tables={"names": table}),
        ab.testing.Cut("left", {0: (4, 6)}),
    ]
    out = found(keys(1, 3, 1, 3, 1, 2), NAMES, cuts)
    assert [(row["v"], row["name"]) for row in out] == [
        ("v0", "one"), ("v2", "uno"), ("v3", "tres"), ("v4", "uno")
    ]  # fmt: skip


def test_a_new_version_with_duplicate_keys_fails_the_run():
    """What is refused when it is written is an error of the run when the log brings it."""
    table = pl.DataFrame({"name": ["uno", "eins"], "k": [1, 1]})
    cuts = [ab.testing.Cut("left", {0: (0, 1)}, tables={"names": table})]
    with pytest.raises(ab.RunError):
        found(keys(2), NAMES, cuts)


def test_the_rows_that_a_window_makes_are_looked_up_in_the_version_of_their_epoch():
    """A row caused by a watermark belongs to that watermark's epoch (M7), and so does its lookup.

    Epoch 0: t = 5, watermark 5. Epoch 1 brings a new table and t = 10: [0, 10) leaves, n = 1, and
    finds "uno".
    """
    program = ab.Program("m13")
    stream = program.read(ab.sources.Records([{"t": 5}, {"t": 10}]), name="left", event_time="t")
    counts = stream.window(ab.tumbling("10 ms")).agg(k=ab.count())
    counts.lookup(NAMES, on="k", name="names").write(ab.sinks.Memory("out"))
    table = pl.DataFrame({"name": ["uno"], "k": [1]})
    cuts = [
        ab.testing.Cut("left", {0: (0, 1)}, finished=NOTHING),
        ab.testing.Cut("left", {0: (1, 2)}, finished=NOTHING, tables={"names": table}),
    ]
    out = ab.testing.run_sequential(program, log=cuts)["out"]
    assert out == [{"window_start": 0, "window_end": 10, "k": 1, "name": "uno"}]
