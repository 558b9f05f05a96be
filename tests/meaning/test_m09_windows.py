"""M9: which windows a record is in, when it is late, when windows leave and in which order.

Unless a case says otherwise event times are whole milliseconds in column `t`, there is one source
`events` of one partition, and its lateness is 0: at the end of an epoch the watermark is the
greatest `t` seen so far.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import anabranch as ab

NOTHING = frozenset()
ALL = frozenset({0})
BERLIN = ZoneInfo("Europe/Berlin")


def reading(rows, schema=None, **options):
    """A program that reads these rows, and the stream of them."""
    program = ab.Program("m09")
    options = {"name": "events", "event_time": "t"} | options
    return program, program.read(ab.sources.Records(rows, schema=schema), **options)


def at(*times):
    """Rows that say only when they happened."""
    return [{"t": t} for t in times]


def cuts(*ends, finished=False):
    """Epochs that end before these rows; the last one finishes the source or not."""
    starts = [0, *ends[:-1]]
    made = [
        ab.testing.Cut("events", {0: (start, end)}, finished=NOTHING)
        for start, end in zip(starts, ends, strict=True)
    ]
    if finished:
        made[-1] = ab.testing.Cut("events", {0: (starts[-1], ends[-1])}, finished=ALL)
    return made


def windows(program, stream, window, *, log=None, by=None, **aggregates):
    """The results of one window operator, and its late records."""
    windowed = stream.window(window, by=by)
    windowed.late.write(ab.sinks.Memory("late"))
    windowed.agg(**aggregates).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program, log=log)
    return rows["out"], rows["late"]


# Bounds


def test_tumbling_windows_start_at_multiples_of_their_size_before_1970_as_well():
    """A tumbling window takes its start and leaves its end out, for negative times too.

    Size 10. -10 is a multiple of 10, so it starts [-10, 0), which -1 is in as well; 0 is the end
    of that window, left out of it, and starts [0, 10), which 9 is in; 10 starts [10, 20). All rows
    are of one epoch with no watermark before it, so none is late. At the end of time the windows
    leave by their ends: 0, 10, 20. Rounding towards zero instead of down would put -1 into [0, 10).
    """
    program, stream = reading(at(-1, 9, -10, 10, 0))
    out, late = windows(program, stream, ab.tumbling("10 ms"), ts=ab.collect("t"))
    assert out == [
        {"window_start": -10, "window_end": 0, "ts": [-1, -10]},
        {"window_start": 0, "window_end": 10, "ts": [9, 0]},
        {"window_start": 10, "window_end": 20, "ts": [10]},
    ]
    assert late == []


def test_a_record_is_in_every_sliding_window_that_spans_it():
    """Size 10, slide 5: a record is in two windows, which start at multiples of 5.

    7 lies in the windows whose start is in (-3, 7]: 0 and 5. -1: starts in (-11, -1]: -10 and -5.
    5: starts in (-5, 5]: 0 and 5 (start included; [-5, 5) leaves its end 5 out). So [-10, 0) has
    -1; [-5, 5) has -1; [0, 10) has 7 and 5 in the order in which they came; [5, 15) the same two.
    """
    program, stream = reading(at(7, -1, 5))
    out, late = windows(program, stream, ab.sliding("10 ms", "5 ms"), ts=ab.collect("t"))
    assert out == [
        {"window_start": -10, "window_end": 0, "ts": [-1]},
        {"window_start": -5, "window_end": 5, "ts": [-1]},
        {"window_start": 0, "window_end": 10, "ts": [7, 5]},
        {"window_start": 5, "window_end": 15, "ts": [7, 5]},
    ]
    assert late == []


def test_a_slide_that_does_not_divide_the_size_gives_some_records_more_windows_than_others():
    """Size 10, slide 4: starts are multiples of 4, and 9 is in three windows, 10 in two.

    9: starts in (-1, 9]: 0, 4, 8. 10: starts in (0, 10]: 4, 8 (0 is left out, since 10 is the end
    of [0, 10)). The windows end at 10, 14, 18.
    """
    program, stream = reading(at(9, 10))
    out, _ = windows(program, stream, ab.sliding("10 ms", "4 ms"), ts=ab.collect("t"))
    assert out == [
        {"window_start": 0, "window_end": 10, "ts": [9]},
        {"window_start": 4, "window_end": 14, "ts": [9, 10]},
        {"window_start": 8, "window_end": 18, "ts": [9, 10]},
    ]


def test_a_slide_above_the_size_leaves_gaps_whose_records_are_in_no_window_and_not_late():
    """Size 5, slide 10: windows [-10, -5), [0, 5), [10, 15); what lies between counts nowhere.

    Epoch 0: 4 is in [0, 5); 5 (the end, left out), 9 and -1 are in none; -6 is in [-10, -5); 10 is
    in [10, 15). Its watermark is 10, so [-10, -5) and [0, 5) leave. Epoch 1: 7 lies behind the
    watermark 10, but in no window, so there is none that it could be late for; -7 was for
    [-10, -5), which is closed, so it is late. At the end of time [10, 15) leaves.
    """
    program, stream = reading(at(4, 5, 9, -1, -6, 10, 7, -7))
    out, late = windows(
        program,
        stream,
        ab.sliding("5 ms", "10 ms"),
        log=cuts(6, 8, finished=True),
        ts=ab.collect("t"),
    )
    assert out == [
        {"window_start": -10, "window_end": -5, "ts": [-6]},
        {"window_start": 0, "window_end": 5, "ts": [4]},
        {"window_start": 10, "window_end": 15, "ts": [10]},
    ]
    assert late == [{"t": -7}]


def test_an_empty_window_gives_no_row_and_without_by_there_is_one_group():
    """Between two windows with records there may be any number without, and none of them shows.

    5 is in [0, 10), 35 in [30, 40). [10, 20) and [20, 30) have no record: no row. Without `by` the
    columns are the bounds and the aggregates alone.
    """
    program, stream = reading([{"t": 5, "k": "a"}, {"t": 35, "k": "b"}, {"t": 36, "k": "c"}])
    out, _ = windows(program, stream, ab.tumbling("10 ms"), n=ab.count())
    assert out == [
        {"window_start": 0, "window_end": 10, "n": 1},
        {"window_start": 30, "window_end": 40, "n": 2},
    ]


def test_a_source_without_rows_has_no_windows():
    """No record, no window: the end of time alone makes no row, not even without `by`."""
    program, stream = reading([], schema={"t": pl.Int64})
    out, late = windows(program, stream, ab.tumbling("10 ms"), n=ab.count())
    assert out == []
    assert late == []


# When windows leave, and late records


def test_a_window_leaves_at_the_first_watermark_that_is_its_end():
    """A window with end <= w leaves; the end of the log is not the end of time.

    Epoch 0: 3 and 9, watermark 9: [0, 10) stays, since 10 > 9. Epoch 1: 10, watermark 10: 10 <= 10,
    it leaves with both. [10, 20) is open when the log ends, and the source is not finished: no row.
    """
    program, stream = reading(at(3, 9, 10))
    stream.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program, log=cuts(2))["out"] == []
    out = ab.testing.run_sequential(program, log=cuts(2, 3))["out"]
    assert out == [{"window_start": 0, "window_end": 10, "n": 2}]


def test_a_record_behind_the_watermark_is_late_only_if_its_window_is_closed():
    """Behind is not late: what counts is the end of the window, not the time of the record.

    Epoch 0: 3 and 12, watermark 12: [0, 10) leaves with one record. Epoch 1: 9 and 10 are both
    behind 12. The window of 9 ends at 10 <= 12: late. The window of 10 ends at 20 > 12: it counts.
    At the end of time [10, 20) has 12 and 10.
    """
    program, stream = reading(at(3, 12, 9, 10))
    out, late = windows(
        program, stream, ab.tumbling("10 ms"), log=cuts(2, 4, finished=True), ts=ab.collect("t")
    )
    assert out == [
        {"window_start": 0, "window_end": 10, "ts": [3]},
        {"window_start": 10, "window_end": 20, "ts": [12, 10]},
    ]
    assert late == [{"t": 9}]


def test_lateness_is_judged_by_the_watermark_before_the_epoch_not_within_it():
    """In one epoch a record may be as old as it likes: the watermark is that of the epoch before.

    All of 100, 5, 101 are in epoch 0, before which there is no watermark. 5 comes after 100, yet
    [0, 10) is not closed, and leaves with it at watermark 101. In two epochs, 100 first, it would
    be late.
    """
    program, stream = reading(at(100, 5, 101))
    together = windows(program, stream, ab.tumbling("10 ms"), log=cuts(3), n=ab.count())
    assert together == ([{"window_start": 0, "window_end": 10, "n": 1}], [])
    program, stream = reading(at(100, 5, 101))
    apart = windows(program, stream, ab.tumbling("10 ms"), log=cuts(1, 3), n=ab.count())
    assert apart == ([], [{"t": 5}])


def test_a_record_is_late_when_the_watermark_is_exactly_the_end_of_its_window():
    """Closed means end + allowed <= watermark; without allow_late, allowed is 0.

    Epoch 0: 10, watermark 10. Epoch 1: 9 is for [0, 10), and 10 + 0 <= 10: closed, late. No record
    was ever in [0, 10), so it gives no row.
    """
    program, stream = reading(at(10, 9))
    out, late = windows(program, stream, ab.tumbling("10 ms"), log=cuts(1, 2), n=ab.count())
    assert out == []
    assert late == [{"t": 9}]


def test_a_record_late_for_some_of_its_sliding_windows_counts_in_the_others():
    """Size 10, slide 5; late for all its windows it goes to `late`, else it does not.

    Epoch 0: 12 is in [5, 15) and [10, 20); watermark 12. Epoch 1: 7 is in [0, 10), closed since
    10 <= 12, and in [5, 15), open: it counts there and is not late. 4 is in [-5, 5) and [0, 10),
    both closed: late. At the end of time [5, 15) has 12 and 7, [10, 20) has 12; [0, 10) has none.
    """
    program, stream = reading(at(12, 7, 4))
    out, late = windows(
        program,
        stream,
        ab.sliding("10 ms", "5 ms"),
        log=cuts(1, 3, finished=True),
        ts=ab.collect("t"),
    )
    assert out == [
        {"window_start": 5, "window_end": 15, "ts": [12, 7]},
        {"window_start": 10, "window_end": 20, "ts": [12]},
    ]
    assert late == [{"t": 4}]


def test_late_records_have_their_original_columns_though_event_time_is_none_of_them():
    """The stream `late` has the columns of the windowed stream, not those of the results.

    The visible column t is dropped before the window; the event time travels beside the row (M7).
    Epoch 0 ends with watermark 20. Epoch 1: the record at 3 is late for [0, 10) and shows as it
    came, with k and x.
    """
    rows = [{"t": 20, "k": "a", "x": 1.5}, {"t": 3, "k": None, "x": 2.5}]
    program, stream = reading(rows)
    out, late = windows(
        program,
        stream.drop("t"),
        ab.tumbling("10 ms"),
        by="k",
        log=cuts(1, 2, finished=True),
        s=ab.sum("x"),
    )
    assert out == [{"window_start": 20, "window_end": 30, "k": "a", "s": 1.5}]
    assert late == [{"k": None, "x": 2.5}]


def test_late_records_keep_their_event_times_and_may_be_windowed_again():
    """A late record is a row like any other; behind `late` the same watermark holds.

    Epoch 0: 25, watermark 25. Epoch 1: 12 is late for the tumbling window [10, 20). The sliding
    windows of size 20 and slide 10 behind `late` that span 12 are [0, 20), closed (20 <= 25), and
    [10, 30), open: it counts there. At the end of time [20, 30) of the first window operator has
    25 alone, [10, 30) behind `late` has 12 alone.
    """
    program, stream = reading(at(25, 12))
    windowed = stream.window(ab.tumbling("10 ms"))
    again = windowed.late.window(ab.sliding("20 ms", "10 ms")).agg(ts=ab.collect("t"))
    again.write(ab.sinks.Memory("again"))
    windowed.agg(n=ab.count()).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program, log=cuts(1, 2, finished=True))
    assert rows["out"] == [{"window_start": 20, "window_end": 30, "n": 1}]
    assert rows["again"] == [{"window_start": 10, "window_end": 30, "ts": [12]}]


def test_a_hint_closes_windows_that_no_record_would_have_closed():
    """The watermark of an epoch is at least the source's hint (M4).

    Epoch 0: 3, with hint 10: watermark max(3, 10) = 10, so [0, 10) leaves. Epoch 1: 4 is late,
    since 10 <= 10.
    """
    program, stream = reading(at(3, 4))
    log = [
        ab.testing.Cut("events", {0: (0, 1)}, finished=NOTHING, hint=10),
        ab.testing.Cut("events", {0: (1, 2)}, finished=NOTHING),
    ]
    out, late = windows(program, stream, ab.tumbling("10 ms"), log=log, n=ab.count())
    assert out == [{"window_start": 0, "window_end": 10, "n": 1}]
    assert late == [{"t": 4}]


def test_the_window_of_two_sources_waits_for_the_slower_one():
    """An operator's watermark is the least over the sources that feed it (M4).

    Epoch 0 of `fast`: 5 and 30, its watermark is 30; `slow` has said nothing, so nothing leaves.
    Epoch 1 of `slow`: 8, watermark 8: the least is 8, [0, 10) is open. Epoch 2 of `slow`: 10: the
    least of 30 and 10 is 10: [0, 10) leaves with 5 and 8.
    """
    program = ab.Program("m09")
    fast = program.read(ab.sources.Records(at(5, 30)), name="fast", event_time="t")
    slow = program.read(ab.sources.Records(at(8, 10)), name="slow", event_time="t")
    log = [
        ab.testing.Cut("fast", {0: (0, 2)}, finished=NOTHING),
        ab.testing.Cut("slow", {0: (0, 1)}, finished=NOTHING),
        ab.testing.Cut("slow", {0: (1, 2)}, finished=NOTHING),
    ]
    united = fast.union(slow).window(ab.tumbling("10 ms")).agg(ts=ab.collect("t"))
    united.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program, log=log[:2])["out"] == []
    out = ab.testing.run_sequential(program, log=log)["out"]
    assert out == [{"window_start": 0, "window_end": 10, "ts": [5, 8]}]


# The order of results


def test_windows_leave_by_end_then_start_then_key():
    """At one watermark sessions of equal end leave by start, those of equal start by key.

    Gap 10. Key z: 0, 9, 18, 20 are one session [0, 30). Key a: 20 is [20, 30). Key null: 20 is
    [20, 30). Key B: 20 is [20, 30). Key c: 15 is [15, 25). At the end of time: end 25 first: c.
    Then end 30: start 0 before start 20: z, though z is the greatest key. Then start 20 by key:
    null first, then strings by their bytes: B (0x42) before a (0x61).
    """
    rows = [{"k": "z", "t": t} for t in (0, 9, 18, 20)]
    rows += [{"k": "a", "t": 20}, {"k": None, "t": 20}, {"k": "B", "t": 20}, {"k": "c", "t": 15}]
    program, stream = reading(rows)
    out, _ = windows(program, stream, ab.session("10 ms"), by="k", n=ab.count())
    assert out == [
        {"window_start": 15, "window_end": 25, "k": "c", "n": 1},
        {"window_start": 0, "window_end": 30, "k": "z", "n": 4},
        {"window_start": 20, "window_end": 30, "k": None, "n": 1},
        {"window_start": 20, "window_end": 30, "k": "B", "n": 1},
        {"window_start": 20, "window_end": 30, "k": "a", "n": 1},
    ]


def test_float_keys_group_by_value_with_nan_last_and_both_zeros_one():
    """M6: NaN = NaN and -0.0 = 0.0 are one group each; null first, NaN last.

    All in [0, 10): null once; -0.0 and 0.0 together twice; 1.5 once; inf once; NaN twice. The
    order of keys: null, -inf would be next, 0.0, 1.5, inf, NaN.
    """
    nan, inf = float("nan"), float("inf")
    keys = [nan, 1.5, -0.0, None, 0.0, inf, nan]
    program, stream = reading([{"t": 1, "k": k} for k in keys])
    out, _ = windows(program, stream, ab.tumbling("10 ms"), by="k", n=ab.count())
    shown = [(None if row["k"] is None else str(row["k"]), row["n"]) for row in out]
    assert shown == [(None, 1), ("0.0", 2), ("1.5", 1), ("inf", 1), ("nan", 2)]


def test_several_by_columns_are_compared_from_left_to_right_and_shown_in_their_order():
    """Tuples by column: false before true, then the second column.

    All records are in [0, 10). `by=["b", "n"]`: the groups are (false, 2), (true, -1), (true, 3),
    in that order; the columns come after the bounds in the order of `by`.
    """
    rows = [
        {"t": 1, "n": 3, "b": True},
        {"t": 2, "n": -1, "b": True},
        {"t": 3, "n": 2, "b": False},
        {"t": 4, "n": 3, "b": True},
    ]
    program, stream = reading(rows)
    out, _ = windows(program, stream, ab.tumbling("10 ms"), by=["b", "n"], ts=ab.collect("t"))
    assert out == [
        {"window_start": 0, "window_end": 10, "b": False, "n": 2, "ts": [3]},
        {"window_start": 0, "window_end": 10, "b": True, "n": -1, "ts": [2]},
        {"window_start": 0, "window_end": 10, "b": True, "n": 3, "ts": [1, 4]},
    ]
    assert list(out[0]) == ["window_start", "window_end", "b", "n", "ts"]


def test_windows_of_a_keyed_stream_are_windows_by_its_key():
    """key_by("k", "i").window(w) groups by k and i: (a, 1) twice, (a, 2) once, in [0, 10)."""
    program, stream = reading([{"t": t, "k": "a", "i": i} for t, i in ((1, 1), (2, 2), (3, 1))])
    counted = stream.key_by("k", "i").window(ab.tumbling("10 ms")).agg(n=ab.count())
    counted.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"window_start": 0, "window_end": 10, "k": "a", "i": 1, "n": 2},
        {"window_start": 0, "window_end": 10, "k": "a", "i": 2, "n": 1},
    ]


def test_two_instants_of_one_clock_time_are_two_keys():
    """Timestamps are keys by instant (M6): when clocks go back, 02:30 happens twice.

    In Berlin on 2024-10-27 the instants 00:30 UTC and 01:30 UTC are both shown as 02:30. As values
    of the key column they are different keys, in the order of the instants: 00:15 UTC (02:15),
    00:30 UTC (02:30), 01:15 UTC (02:15), 01:30 UTC (02:30), each once. By clock time there would
    be two groups of two.
    """
    minutes = [90, 30, 75, 15]  # after midnight UTC
    frame = pl.DataFrame(
        {"t": [1] * 4, "k": [datetime(2024, 10, 27, m // 60, m % 60) for m in minutes]}
    ).with_columns(pl.col("k").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"))
    program = ab.Program("m09")
    stream = program.read(ab.sources.Records(frame), name="events", event_time="t")
    out, _ = windows(program, stream, ab.tumbling("10 ms"), by="k", n=ab.count())
    shown = [(row["k"].astimezone(UTC).strftime("%H:%M"), row["n"]) for row in out]
    assert shown == [("00:15", 1), ("00:30", 1), ("01:15", 1), ("01:30", 1)]


# Sessions


def test_a_record_at_exactly_last_plus_gap_begins_a_new_session():
    """A session is [first, last + gap): its end is not in it.

    Gap 10. 0 and 9 are one session, [0, 19). 19 is exactly 9 + 10: a new one, which 28 prolongs:
    [19, 38). 18 would have joined the first.
    """
    program, stream = reading(at(0, 9, 19, 28))
    out, late = windows(program, stream, ab.session("10 ms"), ts=ab.collect("t"))
    assert out == [
        {"window_start": 0, "window_end": 19, "ts": [0, 9]},
        {"window_start": 19, "window_end": 38, "ts": [19, 28]},
    ]
    assert late == []


def test_a_record_at_exactly_gap_before_a_session_is_not_in_it_either():
    """The same from the other side: [9, 19) and [19, 29) do not touch, whichever comes first."""
    program, stream = reading(at(19, 9, 30, 21))
    out, _ = windows(program, stream, ab.session("10 ms"), ts=ab.collect("t"))
    assert out == [
        {"window_start": 9, "window_end": 19, "ts": [9]},
        {"window_start": 19, "window_end": 40, "ts": [19, 30, 21]},
    ]


def test_a_record_between_two_open_sessions_makes_them_one_in_order_of_arrival():
    """Gap 10: 0 is [0, 10), 15 is [15, 25); 8 is [8, 18), which touches both: one, [0, 25).

    The rows of the merged session are taken by order key, that is as they came: 0, 15, 8.
    """
    program, stream = reading(at(0, 15, 8))
    out, _ = windows(
        program,
        stream,
        ab.session("10 ms"),
        ts=ab.collect("t"),
        first=ab.first("t"),
        last=ab.last("t"),
    )
    assert out == [{"window_start": 0, "window_end": 25, "ts": [0, 15, 8], "first": 0, "last": 8}]


def test_the_rows_of_merged_sessions_are_interleaved_as_they_came():
    """Gap 5: 0, 20, 2, 22 make two sessions, then 6, 10, 14, 18 bridge them.

    0 and 2 are [0, 7), 20 and 22 are [20, 27). 6: [6, 11) touches the first: [0, 11). 10: [10, 15)
    prolongs it to 15. 14: to 19. 18: [18, 23) touches both: [0, 27). By order key the rows are
    0, 20, 2, 22, 6, 10, 14, 18: not one session's rows after the other's.
    """
    program, stream = reading(at(0, 20, 2, 22, 6, 10, 14, 18))
    out, _ = windows(program, stream, ab.session("5 ms"), ts=ab.collect("t"))
    assert out == [
        {"window_start": 0, "window_end": 27, "ts": [0, 20, 2, 22, 6, 10, 14, 18]},
    ]


def test_sessions_of_different_keys_do_not_touch():
    """Gap 10: a at 0 and 12 are two sessions, though b at 6 lies between them."""
    rows = [{"k": "a", "t": 0}, {"k": "b", "t": 6}, {"k": "a", "t": 12}]
    program, stream = reading(rows)
    out, _ = windows(program, stream, ab.session("10 ms"), by="k", n=ab.count())
    assert out == [
        {"window_start": 0, "window_end": 10, "k": "a", "n": 1},
        {"window_start": 6, "window_end": 16, "k": "b", "n": 1},
        {"window_start": 12, "window_end": 22, "k": "a", "n": 1},
    ]


def test_a_record_that_would_be_late_alone_is_not_if_it_merges_into_an_open_session():
    """A session's lateness is judged after merging the record into it.

    Gap 10. Epoch 0: key a at 0, 9, 15 is [0, 25); watermark 15, so it is open. Epoch 1: a at 2
    alone would be [2, 12), closed at 15; merged it is [0, 25), open: it counts. b at 2 finds no
    session: [2, 12), 12 <= 15: late. b at 5 is [5, 15), 15 <= 15: late. b at 6 is [6, 16): open.
    """
    rows = [{"k": "a", "t": t} for t in (0, 9, 15, 2)] + [{"k": "b", "t": t} for t in (2, 5, 6)]
    program, stream = reading(rows)
    out, late = windows(
        program,
        stream,
        ab.session("10 ms"),
        by="k",
        log=cuts(3, 7, finished=True),
        ts=ab.collect("t"),
    )
    assert out == [
        {"window_start": 6, "window_end": 16, "k": "b", "ts": [6]},
        {"window_start": 0, "window_end": 25, "k": "a", "ts": [0, 9, 15, 2]},
    ]
    assert late == [{"k": "b", "t": 2}, {"k": "b", "t": 5}]


def test_a_record_that_was_late_does_not_prolong_what_comes_after_it():
    """A late record is in no session, so it merges with nothing that follows.

    Gap 10. Epoch 0: b at 20, watermark 20. Epoch 1: a at 5 is [5, 15): late. a at 12 is [12, 22),
    open; had 5 been kept, they would be one session [5, 22).
    """
    rows = [{"k": "b", "t": 20}, {"k": "a", "t": 5}, {"k": "a", "t": 12}]
    program, stream = reading(rows)
    out, late = windows(
        program,
        stream,
        ab.session("10 ms"),
        by="k",
        log=cuts(1, 3, finished=True),
        ts=ab.collect("t"),
    )
    assert out == [
        {"window_start": 12, "window_end": 22, "k": "a", "ts": [12]},
        {"window_start": 20, "window_end": 30, "k": "b", "ts": [20]},
    ]
    assert late == [{"k": "a", "t": 5}]


def test_a_record_inside_a_session_that_has_left_begins_a_new_one_if_it_is_not_late():
    """What has left is gone: it can neither be merged into nor emitted again.

    Gap 10. Epoch 0: a at 0 and b at 12; watermark 12: a's [0, 10) leaves. Epoch 1: a at 5 lies in
    that, but it is no more; [5, 15) ends behind 12, so it is a session of its own. At the end of
    time: a's [5, 15), then b's [12, 22).
    """
    rows = [{"k": "a", "t": 0}, {"k": "b", "t": 12}, {"k": "a", "t": 5}]
    program, stream = reading(rows)
    out, late = windows(
        program,
        stream,
        ab.session("10 ms"),
        by="k",
        log=cuts(2, 3, finished=True),
        ts=ab.collect("t"),
    )
    assert out == [
        {"window_start": 0, "window_end": 10, "k": "a", "ts": [0]},
        {"window_start": 5, "window_end": 15, "k": "a", "ts": [5]},
        {"window_start": 12, "window_end": 22, "k": "b", "ts": [12]},
    ]
    assert late == []


# Windows of rows


def test_rows_windows_emit_at_once_the_last_n_at_every_step_th_record_of_a_key():
    """n = 3, step = 2, by key: fewer than 3 at first, and the result comes with the record.

    Key a has records at 1, 3, 4, 6. Its second (3) emits [1, 3]: only two are there. Its fourth
    (6) emits the last three: [3, 4, 6]. Key b has 2, 5: its second (5) emits [2, 5]. Results come
    in the order of the records that cause them: 3, 5, 6; the bounds are the first and last event
    times in each. No watermark is needed: the one epoch is not finished.
    """
    rows = [{"k": k, "t": t} for k, t in zip("abaaba", (1, 2, 3, 4, 5, 6), strict=True)]
    program, stream = reading(rows)
    out, _ = windows(program, stream, ab.rows(3, step=2), by="k", log=cuts(6), ts=ab.collect("t"))
    assert out == [
        {"window_start": 1, "window_end": 3, "k": "a", "ts": [1, 3]},
        {"window_start": 2, "window_end": 5, "k": "b", "ts": [2, 5]},
        {"window_start": 3, "window_end": 6, "k": "a", "ts": [3, 4, 6]},
    ]


def test_rows_windows_without_by_are_over_the_whole_stream_and_step_is_n_unless_said():
    """rows(2): every second record emits the last two; the fifth waits for a sixth for ever.

    Records 1, 2, 3, 4, 5 of keys that do not matter: [1, 2] at the second, [3, 4] at the fourth.
    The end of time emits nothing.
    """
    program, stream = reading(at(1, 2, 3, 4, 5))
    out, _ = windows(program, stream, ab.rows(2), ts=ab.collect("t"))
    assert out == [
        {"window_start": 1, "window_end": 2, "ts": [1, 2]},
        {"window_start": 3, "window_end": 4, "ts": [3, 4]},
    ]


def test_rows_windows_with_a_step_above_n_leave_records_out():
    """rows(1, step=3): the third and the sixth record emit themselves alone."""
    program, stream = reading(at(1, 2, 3, 4, 5, 6, 7))
    out, _ = windows(program, stream, ab.rows(1, step=3), ts=ab.collect("t"))
    assert out == [
        {"window_start": 3, "window_end": 3, "ts": [3]},
        {"window_start": 6, "window_end": 6, "ts": [6]},
    ]


def test_rows_windows_count_by_arrival_so_that_no_record_is_late_for_them():
    """Epochs do not show in rows windows, and a record behind the watermark counts like any.

    Epoch 0: 50, watermark 50. Epoch 1: 50 again, then epoch 2: 10, far behind. rows(2, step=1)
    emits at every record: [50]; [50, 50]; [50, 10], the last two by arrival.
    """
    program, stream = reading(at(50, 50, 10))
    out, late = windows(program, stream, ab.rows(2, step=1), log=cuts(1, 2, 3), ts=ab.collect("t"))
    assert [row["ts"] for row in out] == [[50], [50, 50], [50, 10]]
    assert late == []


def test_the_result_of_a_rows_window_has_the_event_time_of_the_record_that_caused_it():
    """A rows window contains its end, so its result is not one microsecond before it.

    rows(2) over 3 and 10 emits one result, caused by the record at 10. The tumbling window behind
    it puts it into [10, 20); at 10 ms - 1 us it would be in [0, 10).
    """
    program, stream = reading(at(3, 10))
    pairs = (
        stream.window(ab.rows(2))
        .agg(n=ab.count())
        .rename({"window_start": "first", "window_end": "last"})
    )
    out, _ = windows(program, pairs, ab.tumbling("10 ms"), ns=ab.collect("n"))
    assert out == [{"window_start": 10, "window_end": 20, "ns": [2]}]


# allow_late


def test_a_window_that_changes_after_it_left_is_emitted_again_with_the_next_revision():
    """Size 10, allowed 20: [0, 10) changes until the watermark is 30.

    Epoch 0: 5, 12; watermark 12: [0, 10) leaves, revision 0. Epoch 1: 7 (10 + 20 > 12: open); the
    watermark stays 12, and is the next watermark: revision 1 with two. Epoch 2: 3, 4, 29;
    watermark 29: revision 2 with four, and [10, 20) leaves for the first time, behind it by its
    end. Epoch 3: 9 (10 + 20 > 29: still open), 30; watermark 30: revision 3 with five, and
    [20, 30) for the first time with 29. Epoch 4: 8: 30 <= 30, closed: late; 13: [10, 20) is open
    (40 > 30), revision 1; the source finishes: [30, 40) leaves. What does not change is not
    emitted again.
    """
    program, stream = reading(at(5, 12, 7, 3, 4, 29, 9, 30, 8, 13))
    windowed = stream.window(ab.tumbling("10 ms")).allow_late("20 ms")
    windowed.late.write(ab.sinks.Memory("late"))
    windowed.agg(ts=ab.collect("t")).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program, log=cuts(2, 3, 6, 8, 10, finished=True))
    assert rows["out"] == [
        {"window_start": 0, "window_end": 10, "ts": [5], "revision": 0},
        {"window_start": 0, "window_end": 10, "ts": [5, 7], "revision": 1},
        {"window_start": 0, "window_end": 10, "ts": [5, 7, 3, 4], "revision": 2},
        {"window_start": 10, "window_end": 20, "ts": [12], "revision": 0},
        {"window_start": 0, "window_end": 10, "ts": [5, 7, 3, 4, 9], "revision": 3},
        {"window_start": 20, "window_end": 30, "ts": [29], "revision": 0},
        {"window_start": 10, "window_end": 20, "ts": [12, 13], "revision": 1},
        {"window_start": 30, "window_end": 40, "ts": [30], "revision": 0},
    ]
    assert rows["late"] == [{"t": 8}]


def test_a_window_that_is_allowed_late_closes_exactly_at_its_end_plus_that():
    """Allowed 5: [0, 10) is open before watermark 15, closed at it.

    Epoch 0: 14, watermark 14. Epoch 1: 9: 10 + 5 = 15 > 14: open; the window is past its end, so
    it leaves at this epoch's watermark, 15 (of the record at 15): revision 0. Epoch 2: 8: 15 <= 15:
    late.
    """
    program, stream = reading(at(14, 9, 15, 8))
    windowed = stream.window(ab.tumbling("10 ms")).allow_late("5 ms")
    windowed.late.write(ab.sinks.Memory("late"))
    windowed.agg(n=ab.count()).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program, log=cuts(1, 3, 4))
    assert rows["out"] == [{"window_start": 0, "window_end": 10, "n": 1, "revision": 0}]
    assert rows["late"] == [{"t": 8}]


def test_a_window_whose_first_record_comes_after_its_end_begins_with_revision_0_per_group():
    """Revisions count how often a window of a group was emitted, each group for itself.

    Size 10, allowed 100. Epoch 0: a at 1 and a at 20, watermark 20: a's [0, 10) leaves, revision 0.
    Epoch 1: b at 2 and a at 3: both windows [0, 10) are open, and past their end. At the next
    watermark (still 20) a's is revision 1, b's is emitted for the first time, revision 0; by key,
    a before b.
    """
    rows = [{"k": k, "t": t} for k, t in (("a", 1), ("a", 20), ("b", 2), ("a", 3))]
    program, stream = reading(rows)
    windowed = stream.window(ab.tumbling("10 ms"), by="k").allow_late("100 ms")
    windowed.agg(ts=ab.collect("t")).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=cuts(2, 4))["out"]
    assert out == [
        {"window_start": 0, "window_end": 10, "k": "a", "ts": [1], "revision": 0},
        {"window_start": 0, "window_end": 10, "k": "a", "ts": [1, 3], "revision": 1},
        {"window_start": 0, "window_end": 10, "k": "b", "ts": [2], "revision": 0},
    ]


def test_sliding_windows_are_revised_one_by_one():
    """Size 10, slide 5, allowed 3: of the two windows of a record one may be closed already.

    Epoch 0: 6, in [0, 10) and [5, 15); and 16, in [10, 20) and [15, 25); watermark 16: [0, 10) and
    [5, 15) leave, revision 0. Epoch 1: 7: [0, 10) is closed (10 + 3 <= 16), [5, 15) open
    (15 + 3 > 16): it is emitted again, revision 1; 7 is not late.
    """
    program, stream = reading(at(6, 16, 7))
    windowed = stream.window(ab.sliding("10 ms", "5 ms")).allow_late("3 ms")
    windowed.late.write(ab.sinks.Memory("late"))
    windowed.agg(ts=ab.collect("t")).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program, log=cuts(2, 3))
    assert rows["out"] == [
        {"window_start": 0, "window_end": 10, "ts": [6], "revision": 0},
        {"window_start": 5, "window_end": 15, "ts": [6], "revision": 0},
        {"window_start": 5, "window_end": 15, "ts": [6, 7], "revision": 1},
    ]
    assert rows["late"] == []


def test_revised_rows_may_pass_stateless_operators():
    """filter, lookup, map and union take revised rows; the column `revision` is one like others.

    Epoch 0: 5, 12, watermark 12: [0, 10), revision 0. Epoch 1: 6: revision 1 with two. The table
    names the counts 1 and 2.
    """
    names = pl.DataFrame({"n": [1, 2], "name": ["one", "two"]})
    program, stream = reading(at(5, 12, 6))
    revised = stream.window(ab.tumbling("10 ms")).allow_late("20 ms").agg(n=ab.count())
    revised.lookup(names, on="n").select("revision", "name").filter(pl.col("revision") >= 0).write(
        ab.sinks.Memory("out")
    )
    out = ab.testing.run_sequential(program, log=cuts(2, 3))["out"]
    assert out == [{"revision": 0, "name": "one"}, {"revision": 1, "name": "two"}]


def _echo(record):
    return record


STATEFUL = {
    "window": lambda s, _: s.window(ab.tumbling("10 ms")).agg(n=ab.count()),
    "rows": lambda s, _: s.window(ab.rows(2)).agg(n=ab.count()),
    "session": lambda s, _: s.window(ab.session("1 ms")).agg(n=ab.count()),
    "process": lambda s, _: s.process(_echo, out={"n": pl.Int64}),
    "keyed process": lambda s, _: s.key_by("n").process(_echo, out={"n": pl.Int64}),
    "reduce": lambda s, _: s.key_by("n").reduce(lambda value, record: record),
    "deduplicate": lambda s, _: s.key_by("n").deduplicate(),
    "match": lambda s, _: s.key_by("n").match([ab.step("a", pl.col("n") > 0)], within="1 s"),
    "join": lambda s, other: s.join(other, on="n", within="1 s"),
    "join on the right": lambda s, other: other.join(s, on="n", within="1 s"),
    "merge": lambda s, _: s.merge(s),
    "in_time_order": lambda s, _: s.in_time_order(),
    "behind a filter": lambda s, _: s.filter(pl.col("n") > 0).key_by("n").deduplicate(),
    "behind a select": lambda s, _: s.select("n").key_by("n").deduplicate(),
    "behind a map": lambda s, _: s.map(_echo, out=s.schema).key_by("n").deduplicate(),
    "behind a union": lambda s, _: s.union(s).key_by("n").deduplicate(),
    "behind a split": lambda s, _: s.split(a=pl.col("n") > 0).a.key_by("n").deduplicate(),
    "behind with_event_time": lambda s, _: (
        s.with_event_time("window_end").window(ab.tumbling("10 ms")).agg(m=ab.count())
    ),
}


@pytest.mark.parametrize("use", STATEFUL.values(), ids=STATEFUL.keys())
def test_revised_rows_are_refused_by_operators_with_state(use):
    """Such a stream may feed stateless operators and sinks only.

    A window that counted revisions 0 and 1 as two rows would count one thing twice. It is refused
    where it is written, also behind stateless operators, which do not make the rows final.
    """
    _, stream = reading([{"t": 1, "n": 1}])
    revised = stream.window(ab.tumbling("10 ms")).allow_late("10 ms").agg(n=ab.count())
    with pytest.raises(ab.ProgramError):
        use(revised, stream)


def test_revised_rows_may_not_come_back_through_a_feedback_either():
    """A feedback holds rows over to the next epoch and is no stateless operator.

    It would also forget that its rows may be revised: `again` could be deduplicated or windowed.
    One of the two must be refused: closing the feedback with a revised stream, or a stateful
    operator that reads the feedback.
    """
    program, stream = reading([{"t": 1, "n": 1}])
    again = program.feedback({"n": pl.Int64}, name="again")
    revised = stream.window(ab.tumbling("10 ms")).allow_late("10 ms").agg(n=ab.count())
    again.key_by("n").deduplicate().write(ab.sinks.Memory("out"))
    with pytest.raises(ab.ProgramError):
        again.close(revised.select("n"))


def test_allow_late_is_not_for_sessions():
    """A session that left cannot be found again by its bounds, so it cannot be revised."""
    _, stream = reading([{"t": 1}])
    with pytest.raises(ab.ProgramError):
        stream.window(ab.session("10 ms")).allow_late("10 ms").agg(n=ab.count())


def test_a_group_or_a_result_called_revision_clashes_with_allow_late():
    """The column `revision` exists with `allow_late`; another of that name would be lost.

    Two columns of one name in the result are refused, as for any other: a group by a column called
    revision, and a function that gives one.
    """
    _, stream = reading([{"t": 1, "revision": 7}])
    with pytest.raises(ab.ProgramError):
        stream.window(ab.tumbling("10 ms"), by="revision").allow_late("5 ms").agg(n=ab.count())
    with pytest.raises(ab.ProgramError):
        stream.window(ab.tumbling("10 ms")).allow_late("5 ms").agg(revision=ab.count())
    with pytest.raises(ab.ProgramError):
        stream.window(ab.tumbling("10 ms")).allow_late("5 ms").apply(
            lambda key, frame: {"revision": 7}, out={"revision": pl.Int64}
        )


def test_without_allow_late_there_is_no_revision_and_the_name_is_free():
    """The column exists only with `allow_late`: a group by a column called revision is one like any."""
    program, stream = reading([{"t": 1, "revision": 7}])
    out, _ = windows(program, stream, ab.tumbling("10 ms"), by="revision", n=ab.count())
    assert out == [{"window_start": 0, "window_end": 10, "revision": 7, "n": 1}]


# apply


def test_apply_gets_each_window_as_a_frame_and_may_give_dicts_lists_frames_or_nothing():
    """fn(key, frame) sees a group's rows in order; its rows come behind the bounds and the group.

    [0, 10): group a has x = 1, 2, group b has 3, group c has 4, group d has 5. The windows leave by
    key. a gives a dict: one row. b gives a list of two. c gives a frame of two rows, with only one
    of the columns: the other is null. d gives None: no row. 2 for a Float64 column is fine (2.0).
    """
    rows = [{"t": 1, "k": k, "x": x} for x, k in enumerate("aabcd", 1)]
    program, stream = reading(rows)

    def results(key, frame):
        (group,) = key
        assert frame.columns == ["t", "k", "x"]
        if group == "a":
            return {"total": frame["x"].sum(), "share": 2}
        if group == "b":
            return [{"total": 30, "share": 0.5}, {"total": 31}]
        if group == "c":
            return pl.DataFrame({"total": [40, 41]})
        return None

    applied = stream.window(ab.tumbling("10 ms"), by="k").apply(
        results, out={"total": pl.Int64, "share": pl.Float64}
    )
    applied.write(ab.sinks.Memory("out"))
    bounds = {"window_start": 0, "window_end": 10}
    assert ab.testing.run_sequential(program)["out"] == [
        {**bounds, "k": "a", "total": 3, "share": 2.0},
        {**bounds, "k": "b", "total": 30, "share": 0.5},
        {**bounds, "k": "b", "total": 31, "share": None},
        {**bounds, "k": "c", "total": 40, "share": None},
        {**bounds, "k": "c", "total": 41, "share": None},
    ]


def test_apply_without_by_has_an_empty_key_and_may_name_its_columns_like_the_bounds():
    """The key of no columns is the empty tuple; a column of `out` stands in place of a bound.

    [0, 10) has 4 and 2 in this order. The function gives window_start itself; the bound of that
    name is left out, window_end stays, then come the columns of `out`.
    """
    program, stream = reading(at(4, 2))

    def earliest(key, frame):
        assert key == ()
        return {"ts": frame["t"].to_list(), "window_start": frame["t"].min()}

    stream.window(ab.tumbling("10 ms")).apply(
        earliest, out={"ts": pl.List(pl.Int64), "window_start": pl.Int64}
    ).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program)["out"]
    assert out == [{"window_end": 10, "ts": [4, 2], "window_start": 2}]
    assert list(out[0]) == ["window_end", "ts", "window_start"]


def test_apply_with_allow_late_sees_all_rows_of_the_window_each_time():
    """Epoch 0: 5, 12: [0, 10) leaves with [5], revision 0; epoch 1: 7: with [5, 7], revision 1."""
    program, stream = reading(at(5, 12, 7))
    stream.window(ab.tumbling("10 ms")).allow_late("20 ms").apply(
        lambda key, frame: {"ts": frame["t"].to_list()}, out={"ts": pl.List(pl.Int64)}
    ).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=cuts(2, 3))["out"]
    assert out == [
        {"window_start": 0, "window_end": 10, "ts": [5], "revision": 0},
        {"window_start": 0, "window_end": 10, "ts": [5, 7], "revision": 1},
    ]


def test_a_window_whose_function_fails_may_be_skipped():
    """An error in `apply` obeys on_error; the other windows are as if nothing had happened.

    [0, 10) has one row, [10, 20) has two: the function raises for two.
    """
    program, stream = reading(at(5, 12, 13, 25))

    def alone(key, frame):
        if frame.height > 1:
            raise ValueError("not alone")
        return {"t": frame["t"][0]}

    stream.window(ab.tumbling("10 ms")).apply(alone, out={"t": pl.Int64}, on_error="skip").write(
        ab.sinks.Memory("out")
    )
    assert ab.testing.run_sequential(program)["out"] == [
        {"window_start": 0, "window_end": 10, "t": 5},
        {"window_start": 20, "window_end": 30, "t": 25},
    ]


# The types of time


def test_windows_of_naive_datetimes_count_from_1970_in_utc():
    """A naive Datetime is UTC; bounds have the column's own type.

    1 day windows: 2024-05-01 23:59:59.999999 is in [05-01, 05-02); 2024-05-02 00:00 starts the
    next; 1969-12-31 12:00 is in [1969-12-31, 1970-01-01).
    """
    times = [
        datetime(2024, 5, 1, 23, 59, 59, 999999),
        datetime(2024, 5, 2),
        datetime(1969, 12, 31, 12),
    ]
    program, stream = reading(at(*times))
    out, _ = windows(program, stream, ab.tumbling("1 d"), n=ab.count())
    assert out == [
        {"window_start": datetime(1969, 12, 31), "window_end": datetime(1970, 1, 1), "n": 1},
        {"window_start": datetime(2024, 5, 1), "window_end": datetime(2024, 5, 2), "n": 1},
        {"window_start": datetime(2024, 5, 2), "window_end": datetime(2024, 5, 3), "n": 1},
    ]


def test_windows_of_datetimes_with_a_zone_are_the_same_instants_shown_in_the_zone():
    """Windows start at multiples since 1970-01-01 UTC, whatever the zone; days are days of UTC.

    00:30 on 2024-03-31 in Berlin (UTC+1) is 23:30 UTC on the 30th: [30th 00:00, 31st 00:00) UTC,
    shown as 01:00 to 01:00. 03:30 on the 31st (UTC+2 since 01:00 UTC) is 01:30 UTC:
    [31st, April 1st) UTC, shown as 01:00 (still UTC+1) to 02:00 (UTC+2).
    """
    rows = at(
        datetime(2024, 3, 31, 0, 30, tzinfo=BERLIN), datetime(2024, 3, 31, 3, 30, tzinfo=BERLIN)
    )
    program, stream = reading(rows, schema={"t": pl.Datetime("us", "Europe/Berlin")})
    out, _ = windows(program, stream, ab.tumbling("1 d"), n=ab.count())
    assert out == [
        {
            "window_start": datetime(2024, 3, 30, 1, tzinfo=BERLIN),
            "window_end": datetime(2024, 3, 31, 1, tzinfo=BERLIN),
            "n": 1,
        },
        {
            "window_start": datetime(2024, 3, 31, 1, tzinfo=BERLIN),
            "window_end": datetime(2024, 4, 1, 2, tzinfo=BERLIN),
            "n": 1,
        },
    ]


def test_the_hour_that_happens_twice_is_two_windows():
    """On 2024-10-27 in Berlin 02:30 happens at 00:30 UTC and at 01:30 UTC: two windows of 1 h.

    In UTC they are [00:00, 01:00) and [01:00, 02:00). Rows are compared in UTC, since the clock
    times are equal.
    """
    frame = pl.DataFrame(
        {"t": [datetime(2024, 10, 27, 1, 30), datetime(2024, 10, 27, 0, 30)]}
    ).select(
        pl.col("t")
        .cast(pl.Datetime("us"))
        .dt.replace_time_zone("UTC")
        .dt.convert_time_zone("Europe/Berlin")
    )
    program = ab.Program("m09")
    stream = program.read(ab.sources.Records(frame), name="events", event_time="t")
    out, _ = windows(program, stream, ab.tumbling("1 h"), n=ab.count())
    shown = [
        (row["window_start"].astimezone(UTC), row["window_end"].astimezone(UTC), row["n"])
        for row in out
    ]
    assert shown == [
        (datetime(2024, 10, 27, h, tzinfo=UTC), datetime(2024, 10, 27, h + 1, tzinfo=UTC), 1)
        for h in (0, 1)
    ]


def test_datetimes_in_milliseconds_have_windows_in_milliseconds():
    """Datetime("ms"): 1.5 s windows; 2.999 s is in [1.5, 3), 3 s starts the next."""
    rows = at(datetime(1970, 1, 1, 0, 0, 2, 999000), datetime(1970, 1, 1, 0, 0, 3))
    program, stream = reading(rows, schema={"t": pl.Datetime("ms")})
    out, _ = windows(program, stream, ab.tumbling("1500 ms"), n=ab.count())
    assert out == [
        {
            "window_start": datetime(1970, 1, 1, 0, 0, 1, 500000),
            "window_end": datetime(1970, 1, 1, 0, 0, 3),
            "n": 1,
        },
        {
            "window_start": datetime(1970, 1, 1, 0, 0, 3),
            "window_end": datetime(1970, 1, 1, 0, 0, 4, 500000),
            "n": 1,
        },
    ]


def test_integer_seconds_have_windows_in_seconds():
    """time_unit="s": 59 is in the first minute, 60 starts the second, -1 is in the one before."""
    program, stream = reading(at(59, 60, -1), time_unit="s")
    out, _ = windows(program, stream, ab.tumbling("1 min"), n=ab.count())
    assert out == [
        {"window_start": -60, "window_end": 0, "n": 1},
        {"window_start": 0, "window_end": 60, "n": 1},
        {"window_start": 60, "window_end": 120, "n": 1},
    ]


# A window behind a window


def test_a_result_lies_in_the_last_instant_of_its_window_for_the_next_one():
    """The event time of a result is window_end - 1 us (M7), also where the column counts seconds.

    Time unit s; windows of 10 s, behind them windows of 20 s. 5, 15, 20; one epoch, watermark 20:
    [0, 10) and [10, 20) leave; their results at 9.999999 and 19.999999 s are both in [0, 20), and
    come before the watermark there (M7), so that [0, 20) leaves at the same watermark with both.
    At 20 s the second would be in [20, 40). [20, 30) is still open.
    """
    program, stream = reading(at(5, 15, 20), time_unit="s")
    inner = stream.window(ab.tumbling("10 s")).agg(n=ab.count())
    inner.write(ab.sinks.Memory("inner"))
    inner.window(ab.tumbling("20 s")).agg(ns=ab.collect("n")).write(ab.sinks.Memory("outer"))
    rows = ab.testing.run_sequential(program, log=cuts(3))
    assert rows["inner"] == [
        {"window_start": 0, "window_end": 10, "n": 1},
        {"window_start": 10, "window_end": 20, "n": 1},
    ]
    assert rows["outer"] == [{"window_start": 0, "window_end": 20, "ns": [1, 1]}]


def test_results_of_two_window_operators_meet_by_operator_first():
    """Phase 1: the operator's number comes before the window's end in the order key (M5).

    Windows of 20 (written first) and of 10 over 5 and 15, united with the small ones on the left.
    At the end of time [0, 20) of the first operator goes first, though it ends last and enters at
    the second input; then [0, 10) and [10, 20).
    """
    program, stream = reading(at(5, 15))
    large = stream.window(ab.tumbling("20 ms")).agg(n=ab.count())
    small = stream.window(ab.tumbling("10 ms")).agg(n=ab.count())
    small.union(large).write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"window_start": 0, "window_end": 20, "n": 2},
        {"window_start": 0, "window_end": 10, "n": 1},
        {"window_start": 10, "window_end": 20, "n": 1},
    ]
