"""M12: when timers fire, in which order, and what event times their rows have.

One source `events` of one partition with lateness 0 and event times in milliseconds in column `t`:
at the end of an epoch the watermark is the greatest `t` so far. `Alarm` sets a timer at the
record's `at`, unless that is null, and tells of every record and timer.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import anabranch as ab

NOTHING = frozenset()
END = 2**63 - 1
OUT = {"what": pl.String, "k": pl.String, "at": pl.Int64, "w": pl.Int64}


class Alarm(ab.KeyedOperator):
    """Say what happens: ("record", key, its time) and ("timer", key, its time)."""

    out = OUT

    def on_record(self, record, state):
        """Set the timer that the record asks for."""
        if record["at"] is not None:
            state.timer_at(record["at"])
        return {"what": "record", "k": state.key, "at": record["t"], "w": state.watermark}

    def on_timer(self, at, state):
        """Tell of it."""
        return {"what": "timer", "k": state.key, "at": at, "w": state.watermark}


def records(*triples):
    """Rows of a key, an event time and the time of the timer to set."""
    return [{"k": k, "t": t, "at": at} for k, t, at in triples]


def reading(rows):
    """A program that reads these rows, and the stream of them."""
    program = ab.Program("m12")
    schema = {"k": pl.String, "t": pl.Int64, "at": pl.Int64}
    source = ab.sources.Records(rows, schema=schema)
    return program, program.read(source, name="events", event_time="t")


def cuts(*ends, finished=False):
    """Epochs that end before these rows; the last one finishes the source or not."""
    made = [
        ab.testing.Cut("events", {0: (start, end)}, finished=NOTHING)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    if finished:
        made[-1] = replace(made[-1], finished=frozenset({0}))
    return made


def told(rows, log, operator=Alarm, **options):
    """What the operator tells, as (what, key, time)."""
    program, stream = reading(rows)
    stream.key_by("k").process(operator, **options).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=log)["out"]
    return [(row["what"], row["k"], row["at"]) for row in out]


def test_a_timer_fires_at_the_first_watermark_at_or_behind_it_after_the_records_of_that_epoch():
    """Timer at 10. Epoch 0: watermark 9: not yet. Epoch 1: 10 and another 3: watermark 10: it fires.

    It fires after both records of epoch 1, though its time is reached with the first. In epoch 2
    nothing is left to fire.
    """
    rows = records(("a", 9, 10), ("a", 10, None), ("b", 3, None), ("a", 50, None))
    assert told(rows, cuts(1)) == [("record", "a", 9)]
    assert told(rows, cuts(1, 3, 4)) == [
        ("record", "a", 9),
        ("record", "a", 10),
        ("record", "b", 3),
        ("timer", "a", 10),
        ("record", "a", 50),
    ]


def test_a_timer_fires_at_the_end_of_the_epoch_that_set_it_if_its_watermark_is_behind_it():
    """One epoch: a at 1 sets 5, then b at 7: watermark 7 >= 5: after b's record the timer fires."""
    rows = records(("a", 1, 5), ("b", 7, None))
    assert told(rows, cuts(2)) == [("record", "a", 1), ("record", "b", 7), ("timer", "a", 5)]


def test_timers_fire_by_time_and_then_by_key():
    """At one watermark all due timers, in order (time, key), whoever set them first.

    b sets 12, a sets 12, null sets 12, c sets 11, B sets 12. Watermark 20: c at 11; then 12 by
    key: null, B, a, b (strings by their bytes).
    """
    rows = records(
        ("b", 1, 12), ("a", 1, 12), (None, 1, 12), ("c", 1, 11), ("B", 1, 12), ("z", 20, None)
    )
    assert told(rows, cuts(6))[6:] == [
        ("timer", "c", 11),
        ("timer", None, 12),
        ("timer", "B", 12),
        ("timer", "a", 12),
        ("timer", "b", 12),
    ]


def test_the_timers_of_two_keys_are_interleaved_by_time():
    """a sets 4, 8; b sets 2, 6: at watermark 7: b 2, a 4, b 6; at watermark 8: a 8."""
    rows = records(
        ("a", 1, 4), ("b", 1, 2), ("a", 1, 8), ("b", 1, 6), ("c", 7, None), ("c", 8, None)
    )
    assert told(rows, cuts(5, 6))[4:] == [
        ("record", "c", 7),
        ("timer", "b", 2),
        ("timer", "a", 4),
        ("timer", "b", 6),
        ("record", "c", 8),
        ("timer", "a", 8),
    ]


def test_number_keys_are_ordered_by_value():
    """Keys 10 and 9 with the same time: 9 before 10 (as text it would be the other way)."""

    class Numbered(ab.KeyedOperator):
        out = {"k": pl.Int64, "at": pl.Int64}

        def on_record(self, record, state):
            state.timer_at(5)

        def on_timer(self, at, state):
            yield {"k": state.key, "at": at}

    program = ab.Program("m12")
    source = ab.sources.Records([{"t": 1, "k": k} for k in (10, -1, 9)])
    stream = program.read(source, name="events", event_time="t")
    stream.key_by("k").process(Numbered).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program)["out"]
    assert out == [{"k": -1, "at": 5}, {"k": 9, "at": 5}, {"k": 10, "at": 5}]


def test_the_same_key_and_time_fires_once():
    """a sets 10 twice in one epoch and again in the next, b once: each fires once at watermark 10."""
    rows = records(("a", 1, 10), ("a", 2, 10), ("b", 2, 10), ("a", 3, 10), ("c", 10, None))
    assert told(rows, cuts(3, 5))[3:] == [
        ("record", "a", 3),
        ("record", "c", 10),
        ("timer", "a", 10),
        ("timer", "b", 10),
    ]


def test_a_timer_that_has_fired_may_be_set_again():
    """Once means once while it waits: at 10 it fires in epoch 0; set again in epoch 1, it fires again.

    In epoch 1 the time 10 is at the watermark before the epoch: it fires at this epoch's end.
    """
    rows = records(("a", 10, 10), ("a", 11, 10))
    assert told(rows, cuts(1, 2)) == [
        ("record", "a", 10),
        ("timer", "a", 10),
        ("record", "a", 11),
        ("timer", "a", 10),
    ]


def test_a_timer_at_or_before_the_watermark_fires_at_this_epoch_s_end():
    """Epoch 0: watermark 20. Epoch 1 has records behind it, and its watermark stays 20.

    a sets 20 (at the watermark), b sets 3 (far before it): both fire after the records of epoch 1,
    by time: b 3, a 20. Not at once: c's record comes before them.
    """
    rows = records(("z", 20, None), ("a", 15, 20), ("b", 15, 3), ("c", 15, None))
    assert told(rows, cuts(1, 4))[1:] == [
        ("record", "a", 15),
        ("record", "b", 15),
        ("record", "c", 15),
        ("timer", "b", 3),
        ("timer", "a", 20),
    ]


def test_an_epoch_without_rows_fires_what_its_watermark_reaches():
    """The watermark of an empty epoch comes from a hint: 9 does not reach 10, then 10 does."""
    rows = records(("a", 1, 10))
    log = [
        *cuts(1),
        ab.testing.Cut("events", {}, finished=NOTHING, hint=9),
        ab.testing.Cut("events", {}, finished=NOTHING, hint=10),
    ]
    assert told(rows, log[:2]) == [("record", "a", 1)]
    assert told(rows, log) == [("record", "a", 1), ("timer", "a", 10)]


def test_at_the_end_of_time_all_timers_fire_and_see_it():
    """The source finishes: the watermark is the end of time, 2^63 - 1 as the column shows it.

    a at 1 sets 10^15, b sets 10^15 + 1: both fire, in order of time, and see the end of time.
    """
    program, stream = reading(records(("a", 1, 10**15), ("b", 1, 10**15 + 1)))
    stream.key_by("k").process(Alarm).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program)["out"]
    assert out == [
        {"what": "record", "k": "a", "at": 1, "w": None},
        {"what": "record", "k": "b", "at": 1, "w": None},
        {"what": "timer", "k": "a", "at": 10**15, "w": END},
        {"what": "timer", "k": "b", "at": 10**15 + 1, "w": END},
    ]


def test_a_timer_sees_the_new_watermark_and_a_record_the_one_before():
    """Epoch 0: record without a watermark; watermark 6: the timer at 5 sees 6. Epoch 1: record sees 6."""
    program, stream = reading(records(("a", 6, 5), ("a", 8, None)))
    stream.key_by("k").process(Alarm).write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program, log=cuts(1, 2))["out"] == [
        {"what": "record", "k": "a", "at": 6, "w": None},
        {"what": "timer", "k": "a", "at": 5, "w": 6},
        {"what": "record", "k": "a", "at": 8, "w": 6},
    ]


# Timers that set timers


class Every(Alarm):
    """Ring every 5 ms, while there is time."""

    def on_timer(self, at, state):
        """Tell of it, and set the next, unless time has ended."""
        if state.watermark < END:
            state.timer_at(at + 5)
        return super().on_timer(at, state)


def test_a_timer_set_in_on_timer_fires_in_the_same_sweep_if_due_and_later_if_not():
    """a rings from 5 on, b from 7 on, every 5. Watermark 16, then 20.

    The sweep at 16 in order (time, key): a 5, b 7, a 10, b 12, a 15; next are b 17 and a 20. The
    sweep at 20: b 17, a 20. At the end of time the two that wait fire and set no more: b 22, a 25.
    """
    rows = records(("a", 1, 5), ("b", 1, 7), ("z", 16, None), ("z", 20, None))
    assert told(rows, cuts(3, 4, 4, finished=True), Every)[2:] == [
        ("record", "z", 16),
        ("timer", "a", 5),
        ("timer", "b", 7),
        ("timer", "a", 10),
        ("timer", "b", 12),
        ("timer", "a", 15),
        ("record", "z", 20),
        ("timer", "b", 17),
        ("timer", "a", 20),
        ("timer", "b", 22),
        ("timer", "a", 25),
    ]


class Back(Alarm):
    """A timer that sets another at an earlier or the same time, three times in all."""

    def __init__(self, step):
        """How far to go back."""
        self.step = step

    def on_timer(self, at, state):
        """Go back until there were three."""
        state.value = (state.value or 0) + 1
        if state.value < 3:
            state.timer_at(at - self.step)
        return super().on_timer(at, state)


def test_a_timer_set_before_the_one_that_fires_follows_it_at_once():
    """Both keys set 10; each goes back by 4 twice. (10, a) comes first, then what it set: 6, then 2.

    They are due and earlier than (10, b), so they come before it; then b the same: 10, 6, 2. Rows
    are not put in front of what has been emitted already.
    """
    rows = records(("b", 1, 10), ("a", 1, 10), ("z", 30, None))
    assert told(rows, cuts(3), Back(4))[3:] == [
        ("timer", "a", 10),
        ("timer", "a", 6),
        ("timer", "a", 2),
        ("timer", "b", 10),
        ("timer", "b", 6),
        ("timer", "b", 2),
    ]


def test_a_timer_set_at_the_very_time_of_the_one_that_fires_follows_it_at_once():
    """The same with a step of 0: once it fires it waits no longer, so its time may be set again."""
    rows = records(("b", 1, 10), ("a", 1, 10), ("z", 30, None))
    assert told(rows, cuts(3), Back(0))[3:] == [("timer", "a", 10)] * 3 + [("timer", "b", 10)] * 3


# clear, errors, ttl


class Snooze(Alarm):
    """A record at an even time cancels all timers before it sets its own."""

    def on_record(self, record, state):
        """Clear, then go on."""
        if record["t"] % 2 == 0:
            state.clear()
        return super().on_record(record, state)


def test_clear_cancels_the_timers_of_its_key_that_were_set_before():
    """a sets 10 at 1 and 11 at 3; at 4 it clears and sets 12; b's timer at 10 is not touched.

    At watermark 20: b 10, a 12. a's 10 and 11 are cancelled.
    """
    rows = records(("a", 1, 10), ("b", 1, 10), ("a", 3, 11), ("a", 4, 12), ("z", 20, None))
    assert told(rows, cuts(3, 4, 5), Snooze)[5:] == [("timer", "b", 10), ("timer", "a", 12)]


def test_clear_in_a_timer_cancels_those_that_are_due_in_the_same_sweep():
    """a sets 5, 6 and 7, b sets 6. The timer at 5 clears its key: a's 6 and 7 do not fire."""

    class Once(Alarm):
        def on_timer(self, at, state):
            state.clear()
            return super().on_timer(at, state)

    rows = records(("a", 1, 5), ("a", 1, 6), ("a", 1, 7), ("b", 1, 6), ("z", 20, None))
    assert told(rows, cuts(5), Once)[5:] == [("timer", "a", 5), ("timer", "b", 6)]


def test_a_record_that_fails_sets_no_timer_and_cancels_none():
    """An exception undoes the record's writes (M11), its timers and its clear() among them.

    a at 1 sets 10. a at 2 clears, sets 11 and fails. At watermark 20: 10 fires, 11 does not.
    """

    class Fails(Snooze):
        def on_record(self, record, state):
            row = super().on_record(record, state)
            if record["t"] == 2:
                raise ValueError
            return row

    rows = records(("a", 1, 10), ("a", 2, 11), ("z", 21, None))
    assert told(rows, cuts(3), Fails, on_error="skip") == [
        ("record", "a", 1),
        ("record", "z", 21),
        ("timer", "a", 10),
    ]


def test_a_timer_that_fails_is_over_and_its_writes_are_undone():
    """a sets 5 and 6. The timer at 5 writes, sets 7, and fails: skipped; 6 finds nothing written.

    It does not fire again, and 7 is not set: at the end only 6 has been told, with no value.
    """

    class Fails(Alarm):
        def on_timer(self, at, state):
            found = state.value
            state.value = at
            if at == 5:
                state.timer_at(7)
                raise ValueError
            return {"what": f"timer {found}", "k": state.key, "at": at}

    rows = records(("a", 1, 5), ("a", 1, 6), ("z", 20, None))
    out = told(rows, cuts(3, 3, finished=True), Fails, on_error="skip")
    assert out[3:] == [("timer None", "a", 6)]


def test_timers_and_records_share_the_state_of_their_key():
    """A count of silence: every record moves the deadline, a timer that is not the last is ignored.

    Timeout 10. a at 1 and 5, b at 3. Deadlines: a 11 (then 15), b 13. At watermark 14: a's 11 is
    not the last (15 is): nothing; b's 13 is: told. At 15: a's 15: told.
    """

    class Silence(ab.KeyedOperator):
        out = {"k": pl.String, "silent_since": pl.Int64}

        def on_record(self, record, state):
            state.value = record["t"]
            state.timer_at(record["t"] + 10)

        def on_timer(self, at, state):
            if state.value + 10 == at:
                yield {"k": state.key, "silent_since": state.value}
                state.clear()

    rows = records(("a", 1, None), ("b", 3, None), ("a", 5, None), ("z", 14, None), ("z", 15, None))
    program, stream = reading(rows)
    stream.key_by("k").process(Silence).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=cuts(4, 5))["out"]
    assert out == [{"k": "b", "silent_since": 3}, {"k": "a", "silent_since": 5}]


def test_timers_of_state_that_outlived_its_time_are_dropped():
    """ttl 10: a's last record is at 1. A timer at 11 finds its state (1 + 10 is not less than 11).

    A timer at 12 does not: 1 + 10 < 12: dropped. b's last record is at 5: its timer at 12 fires.
    """
    rows = records(("a", 1, 11), ("a", 1, 12), ("b", 5, 12), ("z", 20, None))
    assert told(rows, cuts(4), ttl="10 ms")[4:] == [("timer", "a", 11), ("timer", "b", 12)]


# Event times of timer rows


def timed(rows, log):
    """The timers and their windows of 10 ms: which rows are in which, and which are late."""
    program, stream = reading(rows)
    timers = stream.key_by("k").process(Alarm).filter(pl.col("what") == "timer")
    windowed = timers.window(ab.tumbling("10 ms"))
    windowed.late.write(ab.sinks.Memory("late"))
    windowed.agg(ats=ab.collect("at")).write(ab.sinks.Memory("out"))
    return ab.testing.run_sequential(program, log=log)


def test_a_timer_s_row_has_the_time_of_the_timer():
    """Timers at 8 and 12, set at 1; watermark 25 reaches both at once.

    Their rows have event times 8 and 12 (there was no watermark before the epoch): windows [0, 10)
    and [10, 20), which leave at the same watermark 25, behind the rows (M7).
    """
    out = timed(records(("a", 1, 8), ("a", 1, 12), ("z", 25, None)), cuts(3))
    assert out["out"] == [
        {"window_start": 0, "window_end": 10, "ats": [8]},
        {"window_start": 10, "window_end": 20, "ats": [12]},
    ]
    assert out["late"] == []


def test_the_row_of_a_timer_set_in_the_past_has_the_watermark_before_the_epoch_as_its_time():
    """Event time max(t, watermark before the epoch): such a row is never late behind the operator.

    Epoch 0: watermark 25. Epoch 1: a sets 3, and z at 31 moves the watermark to 31. The timer's row
    has event time max(3, 25) = 25: window [20, 30), not [0, 10), which is closed, nor [30, 40),
    where the new watermark lies. It leaves at 31.
    """
    out = timed(records(("z", 25, None), ("a", 26, 3), ("z", 31, None)), cuts(1, 3))
    assert out["out"] == [{"window_start": 20, "window_end": 30, "ats": [3]}]
    assert out["late"] == []


def test_a_timer_s_row_does_not_have_the_time_of_the_watermark_that_fires_it():
    """Epoch 0: a sets 27, watermark 20. Epoch 1: watermark 45. max(27, 20) = 27: window [20, 30)."""
    out = timed(records(("a", 20, 27), ("z", 45, None)), cuts(1, 2))
    assert out["out"] == [{"window_start": 20, "window_end": 30, "ats": [27]}]


# Types of time, whole streams


def test_timers_of_datetimes_get_datetimes():
    """naive Datetime: two keys, deadlines 1 h after each record; 12:00 and 12:20.

    b at 12:20 sets 13:20, a at 12:00 sets 13:00; z at 13:20 moves the watermark to 13:20: a 13:00,
    then b 13:20.
    """

    class Hour(ab.KeyedOperator):
        out = {"k": pl.String, "at": pl.Datetime("us")}

        def on_record(self, record, state):
            if record["k"] != "z":
                state.timer_at(record["t"] + timedelta(hours=1))

        def on_timer(self, at, state):
            yield {"k": state.key, "at": at}

    program = ab.Program("m12")
    noon = datetime(2024, 5, 1, 12)
    pairs = (("b", 20), ("a", 0), ("z", 80))
    rows = [{"k": k, "t": noon + timedelta(minutes=m)} for k, m in pairs]
    stream = program.read(ab.sources.Records(rows), name="events", event_time="t")
    stream.key_by("k").process(Hour).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=cuts(3))["out"]
    assert out == [
        {"k": "a", "at": datetime(2024, 5, 1, 13)},
        {"k": "b", "at": datetime(2024, 5, 1, 13, 20)},
    ]


def test_timers_with_a_zone_fire_by_instant():
    """Berlin goes from UTC+1 to UTC+2 at 01:00 UTC on 2024-03-31: 01:30 local + 1 h is 03:30 local.

    Computed by the function with timedelta on the clock, 02:30 does not exist; the test adds the
    hour in UTC. The timer at 01:30 UTC fires at the watermark 01:30 UTC, shown as 03:30.
    """
    berlin, utc = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")

    class Hour(ab.KeyedOperator):
        out = {"at": pl.Datetime("us", "Europe/Berlin")}

        def on_record(self, record, state):
            if state.value is None:
                state.value = True
                state.timer_at(record["t"].astimezone(utc) + timedelta(hours=1))

        def on_timer(self, at, state):
            yield {"at": at}

    program = ab.Program("m12")
    schema = {"t": pl.Datetime("us", "Europe/Berlin")}
    times = [
        datetime(2024, 3, 31, 1, 30, tzinfo=berlin),
        datetime(2024, 3, 31, 3, 30, tzinfo=berlin),
    ]
    source = ab.sources.Records([{"t": t} for t in times], schema=schema)
    program.read(source, name="events", event_time="t").process(Hour).write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program, log=cuts(1))["out"] == []
    out = ab.testing.run_sequential(program, log=cuts(1, 2))["out"]
    assert out == [{"at": datetime(2024, 3, 31, 3, 30, tzinfo=berlin)}]


def test_a_timer_of_a_whole_stream_fires_once_for_all_keys():
    """process on a whole stream has one key: a and b both set 5: it fires once."""
    program, stream = reading(records(("a", 1, 5), ("b", 2, 5), ("z", 9, None)))

    class Whole(Alarm):
        def on_record(self, record, state):
            if record["at"] is not None:
                state.timer_at(record["at"])

        def on_timer(self, at, state):
            yield {"what": "timer", "at": at}

    stream.process(Whole).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=cuts(3))["out"]
    assert out == [{"what": "timer", "k": None, "at": 5, "w": None}]


def test_timers_come_after_the_records_of_other_operators_of_the_epoch():
    """Timers are phase 1: united with the records themselves they follow all of the epoch (M5).

    Epoch 0: a at 1 sets 2; z at 5. Records first: a, z; then the timer.
    """
    program, stream = reading(records(("a", 1, 2), ("z", 5, None)))
    timers = stream.key_by("k").process(Alarm).filter(pl.col("what") == "timer")
    timers.select("k", "at").union(stream.select("k", at="t")).write(ab.sinks.Memory("out"))
    out = ab.testing.run_sequential(program, log=cuts(2))["out"]
    assert out == [{"k": "a", "at": 1}, {"k": "z", "at": 5}, {"k": "a", "at": 2}]


def test_a_timer_may_be_set_after_the_end_of_time_where_a_feedback_brings_a_record():
    """Behind a finished source the watermark is the end of time; a feedback may still bring rows.

    `events` finishes in epoch 0: the operator's watermark is the end of time (the feedback's does
    not count). What entered the feedback comes out in the next epoch, of `other`: a at 1 sets 5,
    which is before the watermark, so it fires at this epoch's end.
    """
    program, stream = reading(records(("a", 1, 5)))
    program.read(ab.sources.Records([{"x": 1}]), name="other")
    schema = {"k": pl.String, "t": pl.Int64, "at": pl.Int64}
    again = program.feedback(schema, name="again", event_time="t")
    both = stream.filter(pl.col("t") < 0).union(again)
    both.key_by("k").process(Alarm).select("what", "at").write(ab.sinks.Memory("out"))
    again.close(stream)
    log = [
        ab.testing.Cut("events", {0: (0, 1)}, finished=frozenset({0})),
        ab.testing.Cut("other", {0: (0, 1)}, finished=NOTHING),
    ]
    out = ab.testing.run_sequential(program, log=log)["out"]
    assert out == [{"what": "record", "at": 1}, {"what": "timer", "at": 5}]


def test_a_function_has_no_timers():
    """timer_at needs an on_timer: in a plain function it is an error of the record."""
    program, stream = reading(records(("a", 1, 5)))

    def sets(record, state):
        state.timer_at(5)

    stream.key_by("k").process(sets, out=OUT).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program)
