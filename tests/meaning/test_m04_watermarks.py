"""M4: watermarks."""

from datetime import datetime

import polars as pl
import pytest

import anabranch as ab
from tests.connectors.torn import Torn

Cut = ab.testing.Cut
NEVER = frozenset()


def windows_over(rows, *, partitions=1, **read):
    """Windows of 10 ms that collect the n of rows (n, t); `late` takes what came too late."""
    program = ab.Program("case")
    records = [{"n": n, "t": t} for n, t in enumerate(rows)]
    source = ab.sources.Records(
        records, schema={"n": pl.Int64, "t": pl.Int64}, partitions=partitions
    )
    stream = program.read(source, name="in", event_time="t", **read)
    windows = stream.window(ab.tumbling("10 ms"))
    windows.late.select("n").write(ab.sinks.Memory("late"))
    windows.agg(ns=ab.collect("n")).write(ab.sinks.Memory("out"))
    return program


def window(start, *ns):
    """A result of `windows_over`."""
    return {"window_start": start, "window_end": start + 10, "ns": list(ns)}


def run(program, *log):
    """What was written on this log; the source never finishes unless a cut says so."""
    return ab.testing.run_sequential(program, log=log)


def cut(ranges, **more):
    """An epoch of the source, which finishes only where `finished` says so."""
    return Cut("in", ranges, **{"finished": NEVER, **more})


class Hinting(ab.sources.Source):
    """One row at 3, never finished, whose owner knows that nothing before 20 follows."""

    schema = pl.Schema({"n": pl.Int64, "t": pl.Int64})

    def partitions(self):
        return [0]

    def latest(self):
        return {0: 1}

    def plan(self, start, end):
        return [(start[0], end[0])]

    def read(self, split):
        start, end = split
        yield from pl.DataFrame({"n": [0], "t": [3]})[start:end].to_arrow().to_batches()

    def hint(self):
        return 20


def test_lateness_holds_the_watermark_back_and_a_window_leaves_when_its_end_is_reached():
    """w is the greatest time less the lateness; [0, 10) leaves at w = 10, not before.

    Lateness 5 ms. Epoch 0: records 1 and 14, w = 9: [0, 10) has end 10 > 9 and stays. Epoch 1:
    record 8 is behind w = 9, but its window is open, so it counts; the greatest time is still 14,
    w stays 9. Epoch 2: record 15, w = 10: end 10 <= 10, [0, 10) leaves with rows 0 and 2.
    """
    program = windows_over([1, 14, 8, 15], lateness="5 ms")
    log = [cut({0: (0, 2)}), cut({0: (2, 3)}), cut({0: (3, 4)})]
    assert run(program, *log[:2]) == {"out": [], "late": []}
    assert run(program, *log) == {"out": [window(0, 0, 2)], "late": []}


def test_behind_is_not_late():
    """A record behind the watermark counts as long as its window is open.

    Lateness 0. Epoch 0: record 15, w = 15. Epoch 1: record 11 is behind 15 but [10, 20) is open
    (20 > 15): it counts. Record 9 is for [0, 10), whose end 10 <= 15: late. Epoch 2: record 20,
    w = 20, [10, 20) leaves with rows 0 and 1.
    """
    program = windows_over([15, 11, 9, 20])
    log = [cut({0: (0, 1)}), cut({0: (1, 3)}), cut({0: (3, 4)})]
    assert run(program, *log) == {"out": [window(10, 0, 1)], "late": [{"n": 2}]}


def test_the_least_of_the_partitions_decides():
    """Each partition has its own greatest time, and the least of them counts.

    Partition 0: rows 0 (t = 30) and 2 (31). Partition 1: rows 1 (t = 5) and 3 (12). Epoch 0: w =
    min(30, 5) = 5. Epoch 1: w = min(31, 12) = 12: [0, 10) leaves with row 1.
    """
    program = windows_over([30, 5, 31, 12], partitions=2)
    log = [cut({0: (0, 1), 1: (0, 1)}), cut({0: (1, 2), 1: (1, 2)})]
    assert run(program, log[0]) == {"out": [], "late": []}
    assert run(program, *log) == {"out": [window(0, 1)], "late": []}


def test_a_partition_that_never_spoke_holds_the_watermark_until_it_is_idle():
    """Not having spoken is not being idle.

    Partition 0: rows 0 (1), 2 (25). Partition 1 gives nothing in the first two epochs: there is no
    watermark, nothing leaves. Epoch 2 reads nothing and declares partition 1 idle: w = 25, and
    [0, 10) leaves.
    """
    program = windows_over([1, 99, 25, 99], partitions=2)
    log = [cut({0: (0, 1)}), cut({0: (1, 2)}), cut({}, idle=frozenset({1}))]
    assert run(program, *log[:2]) == {"out": [], "late": []}
    assert run(program, *log) == {"out": [window(0, 0)], "late": []}


def test_a_partition_that_was_idle_counts_again_and_the_watermark_does_not_fall():
    """Idle holds for the epochs that say so; w is the maximum of all that it was.

    Partition 0: rows 0 (30), 2 (31), 4 (42). Partition 1: rows 1 (8), 3 (33), 5 (45). Epoch 0:
    partition 1 idle, w = 30. Epoch 1: row 1 at 8 is late ([0, 10) is closed at 30), partition 1
    counts again: min(30, 8) = 8, but w stays 30. Epoch 2: row 2 (31): min(31, 8): w stays 30.
    Epoch 3: row 3 (33): min(31, 33) = 31. Epoch 4: rows 4 (42), 5 (45): w = 42, [30, 40) leaves
    with 0, 2, 3.
    """
    program = windows_over([30, 8, 31, 33, 42, 45], partitions=2)
    log = [
        cut({0: (0, 1)}, idle=frozenset({1})),
        cut({1: (0, 1)}),
        cut({0: (1, 2)}),
        cut({1: (1, 2)}),
        cut({0: (2, 3), 1: (2, 3)}),
    ]
    assert run(program, *log[:4]) == {"out": [], "late": [{"n": 1}]}
    assert run(program, *log) == {"out": [window(30, 0, 2, 3)], "late": [{"n": 1}]}


def test_all_idle_leaves_the_watermark_unchanged():
    """Silence everywhere is no news.

    Epoch 0: row 0 (1) of partition 0, row 1 (25) of partition 1: w = 1. Epoch 1: both idle: w
    stays 1, though partition 1 alone would say 25. Nothing leaves. Epoch 2: only partition 0 idle:
    w = 25, [0, 10) leaves.
    """
    program = windows_over([1, 25], partitions=2)
    log = [
        cut({0: (0, 1), 1: (0, 1)}),
        cut({}, idle=frozenset({0, 1})),
        cut({}, idle=frozenset({0})),
    ]
    assert run(program, *log[:2]) == {"out": [], "late": []}
    assert run(program, *log) == {"out": [window(0, 0)], "late": []}


def test_all_idle_before_anything_was_said_is_no_watermark():
    """Unchanged from nothing is nothing: nobody is late, nothing leaves.

    Epoch 0: no records, both partitions idle. Epoch 1: row 0 at 1 in partition 0, partition 1
    idle: w = 1. Nothing left, nothing late.
    """
    program = windows_over([1, 2], partitions=2)
    log = [cut({}, idle=frozenset({0, 1})), cut({0: (0, 1)}, idle=frozenset({1}))]
    assert run(program, *log) == {"out": [], "late": []}


def test_a_finished_partition_no_longer_counts():
    """What is finished holds nothing, now and ever after.

    Partition 0: row 0 (3). Partition 1: rows 1 (12), 3 (27). Epoch 0: rows 0 and 1, partition 0
    finished: w = 12 (partition 1 alone), [0, 10) leaves. Epoch 1: row 3, and the cut names no
    finished partition: partition 0 stays finished, w = 27, [10, 20) leaves.
    """
    program = windows_over([3, 12, 99, 27], partitions=2)
    log = [cut({0: (0, 1), 1: (0, 1)}, finished=frozenset({0})), cut({1: (1, 2)})]
    assert run(program, *log) == {"out": [window(0, 0), window(10, 1)], "late": []}


def test_the_rest_being_idle_a_finished_partition_does_not_speak_for_them():
    """Neither idle nor finished: if none is left, the watermark is unchanged.

    Partition 0: row 0 (50), finished in epoch 0, partition 1: row 1 (3). w = 3. Epoch 1: partition
    1 idle: no partition counts, and not all are finished: w stays 3. [0, 10) stays.
    """
    program = windows_over([50, 3], partitions=2)
    log = [
        cut({0: (0, 1), 1: (0, 1)}, finished=frozenset({0})),
        cut({}, idle=frozenset({1})),
    ]
    assert run(program, *log) == {"out": [], "late": []}


def test_a_finished_sources_watermark_is_the_end_of_time():
    """Everything leaves, however far in the future, in the order of the ends.

    Records finishes when its end is reached: the one epoch has 1, 1000005 and 12; then the end of
    time closes [0, 10), [10, 20), [1000000, 1000010).
    """
    program = windows_over([1, 1_000_005, 12], lateness="1 h")
    assert run(program, Cut("in", {0: (0, 3)})) == {
        "out": [window(0, 0), window(10, 2), window(1_000_000, 1)],
        "late": [],
    }


def test_records_with_an_empty_partition_finish_it_at_once():
    """A partition without rows reaches its end in the first epoch.

    Three partitions, two rows, rounds of one: rows 0 (3), 1 (12) in epoch 0; all partitions are at
    their ends: the end of time. Everything leaves in one epoch.
    """
    program = windows_over([3, 12], partitions=3)
    written = ab.testing.run_sequential(program, epoch_rows=1)
    assert written == {"out": [window(0, 0), window(10, 1)], "late": []}


def test_a_partition_at_its_end_is_finished_while_the_others_go_on():
    """Rounds of one row: the shorter partition does not hold the longer one's watermark.

    Partition 0: rows 0 (1), 2 (25), 4 (5). Partition 1: row 1 (2), row 3 (12). Round 1: w =
    min(1, 2) = 1. Round 2: rows 2 and 3; partition 1 is at its end and finished: w = 25, so [0, 10)
    leaves with 0, 1 and [10, 20) with 3. Round 3: row 4 (5) is late; finished: [20, 30) leaves.
    """
    program = windows_over([1, 2, 25, 12, 5], partitions=2)
    assert ab.testing.run_sequential(program, epoch_rows=1) == {
        "out": [window(0, 0, 1), window(10, 3), window(20, 2)],
        "late": [{"n": 4}],
    }


def test_an_unfinished_source_leaves_its_last_windows_open():
    """Reading all there is, is not the end of time.

    All rows are read, the source is not finished: w = 12 closes [0, 10); [10, 20) stays.
    """
    program = windows_over([1, 12])
    assert run(program, cut({0: (0, 2)})) == {"out": [window(0, 0)], "late": []}


def test_a_hint_raises_the_watermark_without_a_record():
    """max(w, hint, ...): a hint of 10 closes [0, 10).

    Epoch 0: record 3, w = 3. Epoch 1: no record, hint 9: w = 9, nothing leaves. Epoch 2: hint 10:
    end 10 <= 10, [0, 10) leaves. Epoch 3: record 4 comes against the hint's promise: late.
    """
    program = windows_over([3, 4])
    log = [cut({0: (0, 1)}), cut({}, hint=9), cut({}, hint=10), cut({0: (1, 2)})]
    assert run(program, *log[:2]) == {"out": [], "late": []}
    assert run(program, *log) == {"out": [window(0, 0)], "late": [{"n": 1}]}


def test_a_hint_counts_even_if_a_partition_never_spoke_or_all_are_idle_and_never_lowers():
    """The maximum has three parts, each of its own right.

    Partition 1 never speaks. Epoch 0: row 0 (3) and hint 5: w = 5. Epoch 1: all idle, hint 20: w =
    20, [0, 10) leaves. Epoch 2: hint 1 does not lower it: row 2 (9) is late.
    """
    program = windows_over([3, 99, 9], partitions=2)
    log = [
        cut({0: (0, 1)}, hint=5),
        cut({}, idle=frozenset({0, 1}), hint=20),
        cut({0: (1, 2)}, hint=1),
    ]
    assert run(program, *log) == {"out": [window(0, 0)], "late": [{"n": 2}]}


def test_a_sources_own_hint_counts_where_the_run_makes_the_log():
    """Without a log the run makes one, and the hint is part of what a source says.

    One epoch: record 3, the source unfinished, its hint 20: w = max(3, 20) = 20 and [0, 10)
    leaves.
    """
    program = ab.Program("case")
    stream = program.read(Hinting(), name="in", event_time="t")
    stream.window(ab.tumbling("10 ms")).agg(ns=ab.collect("n")).write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program) == {"out": [window(0, 0)]}


def test_a_hint_is_in_the_time_columns_own_type():
    """Datetime in, Datetime out: microseconds, naive is UTC.

    Record at 00:00:03; hint 00:00:10 closes the window of 10 s that begins at midnight.
    """
    program = ab.Program("case")
    at = [datetime(2024, 5, 1, 0, 0, s) for s in (0, 3, 10)]
    stream = program.read(ab.sources.Records([{"t": at[1]}]), name="in", event_time="t")
    stream.window(ab.tumbling("10 s")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    assert run(program, cut({0: (0, 1)}, hint=at[2])) == {
        "out": [{"window_start": at[0], "window_end": at[2], "n": 1}]
    }


def test_a_record_without_event_time_says_nothing():
    """A partition whose records had no time has not spoken.

    on_error="skip". Partition 1's row 1 has a null time: it is dropped, partition 1 still holds.
    Epoch 0: rows 0 (25) and 1 (null): no watermark. Epoch 1: row 2 (1) is therefore not late.
    Epoch 2: row 3 (26) in partition 1: w = min(25, 26) = 25: [0, 10) leaves with row 2.
    """
    program = windows_over([25, None, 1, 26], partitions=2, on_error="skip")
    log = [cut({0: (0, 1), 1: (0, 1)}), cut({0: (1, 2)}), cut({1: (1, 2)})]
    assert run(program, *log) == {"out": [window(0, 2)], "late": []}


def test_the_watermark_is_monotone_and_is_the_one_before_the_epoch():
    """Records of an epoch see the watermark that the epoch before left.

    Lateness 2 ms, an epoch a record: 10, 7, 12, 5, 13. Watermarks at the ends: 8, 8 (7 changes
    nothing), 10, 10, 11. So the records see nothing, 8, 8, 10, 10.
    """
    program = ab.Program("case")
    rows = [{"t": t} for t in (10, 7, 12, 5, 13)]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t", lateness="2 ms")

    def look(record, state):
        return {"t": record["t"], "w": state.watermark}

    stream.process(look, out={"t": pl.Int64, "w": pl.Int64}).write(ab.sinks.Memory("out"))
    log = [cut({0: (n, n + 1)}) for n in range(5)]
    assert run(program, *log)["out"] == [
        {"t": 10, "w": None},
        {"t": 7, "w": 8},
        {"t": 12, "w": 8},
        {"t": 5, "w": 10},
        {"t": 13, "w": 10},
    ]


@pytest.mark.parametrize(("unit", "size"), [("s", "10 s"), ("us", "10 us")])
def test_integer_times_are_in_their_unit(unit, size):
    """Lateness and windows are durations; the column is in `time_unit`.

    Lateness 2 units. Records 1 and 12 in units: w = 10 units, so [0, 10) leaves, whatever the unit.
    """
    program = ab.Program("case")
    source = ab.sources.Records([{"t": 1}, {"t": 12}])
    stream = program.read(source, name="in", event_time="t", time_unit=unit, lateness=f"2 {unit}")
    stream.window(ab.tumbling(size)).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    assert run(program, cut({0: (0, 2)}))["out"] == [{"window_start": 0, "window_end": 10, "n": 1}]


def test_times_before_1970_are_times():
    """Watermarks and windows know no sign.

    Records -25, -14, -1: w = -1: windows [-30, -20) and [-20, -10) leave; [-10, 0) has end 0 > -1
    and stays.
    """
    program = windows_over([-25, -14, -1])
    assert run(program, cut({0: (0, 3)})) == {"out": [window(-30, 0), window(-20, 1)], "late": []}


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_a_row_that_its_source_could_not_read_has_no_time_and_obeys_the_read(on_error):
    """It is a record with an offset and nothing else: it moves no watermark and is in no window.

    Epoch 0: a row at 3 and a torn one; epoch 1: a torn one alone; epoch 2: a row at 12, and the
    end. After epoch 0 the watermark is 3, and epoch 1 leaves it there. [0, 10) leaves when it is
    12, [10, 20) at the end of time. The letters are of rows 1 and 2, each in its epoch.
    """
    program = ab.Program("case")
    rows = [{"n": 0, "t": 3}, "a torn row", "another", {"n": 3, "t": 12}]
    source = Torn(rows, {"n": pl.Int64, "t": pl.Int64})
    stream = program.read(source, name="in", event_time="t", on_error=on_error)
    stream.window(ab.tumbling("10 ms")).agg(ns=ab.collect("n")).write(ab.sinks.Memory("out"))
    if on_error == "dead_letter":
        stream.dead_letters.write(ab.sinks.Memory("dead"))
    written = run(program, cut({0: (0, 2)}), cut({0: (2, 3)}), Cut("in", {0: (3, 4)}))
    assert written["out"] == [window(0, 0), window(10, 3)]
    told = [(x["offset"], x["epoch"], x["reason"], x["error"]) for x in written.get("dead", [])]
    expected = [(1, 0, "unread", "it is torn"), (2, 1, "unread", "it is torn")]
    assert told == (expected if on_error == "dead_letter" else [])


def test_a_row_that_its_source_could_not_read_ends_a_run_that_does_not_say_otherwise():
    """`on_error` is "fail" unless it is said; with or without an event time."""
    for event_time in (None, "t"):
        program = ab.Program("case")
        source = Torn([{"n": 0, "t": 3}, "a torn row"], {"n": pl.Int64, "t": pl.Int64})
        program.read(source, name="in", event_time=event_time).write(ab.sinks.Memory("out"))
        with pytest.raises(ab.RunError, match=r"^in failed: line 2 of torn-0 cannot be read"):
            run(program, cut({0: (0, 2)}))
