"""M7: the event time of a row travels beside it."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

import anabranch as ab

Cut = ab.testing.Cut
NEVER = frozenset()


def numbered(times, *, unit="ms", **more):
    """A program that reads rows n = 0, 1, ... at these times; returns it and the stream."""
    program = ab.Program("case")
    rows = [{"t": t, "n": n, **{k: v[n] for k, v in more.items()}} for n, t in enumerate(times)]
    source = ab.sources.Records(rows)
    return program, program.read(source, name="in", event_time="t", time_unit=unit)


def windows(stream, column="n", size="10 ms"):
    """Which values fell into which windows: rows (start, values)."""
    results = stream.window(ab.tumbling(size)).agg(values=ab.collect(column))
    return results.select("window_start", "values")


def written(program, stream, **how):
    """The rows of a stream as tuples."""
    stream.write(ab.sinks.Memory("out"))
    return [tuple(row.values()) for row in ab.testing.run_sequential(program, **how)["out"]]


def times(stream, column="n"):
    """Each row's event time, told by windows of one row (M9: bounds are first and last times)."""
    return stream.window(ab.rows(1)).agg(value=ab.last(column)).select("window_end", "value")


def test_dropping_the_time_column_changes_nothing():
    """After `select("n")` no column tells the time; the rows still have theirs.

    Times 3, 14, 5: [0, 10) holds rows 0 and 2, [10, 20) row 1.
    """
    program, stream = numbered([3, 14, 5])
    assert written(program, windows(stream.select("n"))) == [(0, [0, 2]), (10, [1])]


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.with_columns(t=pl.lit(999)),
        lambda s: s.rename({"t": "when"}),
        lambda s: s.drop("t"),
        lambda s: s.with_columns(t=pl.lit(None, dtype=pl.Int64)),
        lambda s: s.map(lambda r: {"n": r["n"], "t": -5}, out={"n": pl.Int64, "t": pl.Int64}),
        lambda s: s.rename({"t": "n", "n": "t"}).rename({"n": "t", "t": "n"}),
        lambda s: s.map_batches(lambda f: f.select("n"), out={"n": pl.Int64}, elementwise=True),
    ],
)
def test_changing_the_visible_column_changes_nothing(change):
    """Overwritten, renamed, dropped or null: the event time is not the column.

    Times 3, 14, 5 as above, whatever became of the column t.
    """
    program, stream = numbered([3, 14, 5])
    assert written(program, windows(change(stream))) == [(0, [0, 2]), (10, [1])]


def test_with_event_time_changes_it():
    """The rows take their times from the other column from there on.

    t = 1, 2, 3, other = 25, 4, 15: windows go by `other`: [0, 10) row 1, [10, 20) row 2, [20, 30)
    row 0. All in one epoch, then the end of time.
    """
    program, stream = numbered([1, 2, 3], other=[25, 4, 15])
    assert written(program, windows(stream.with_event_time("other"))) == [
        (0, [1]),
        (10, [2]),
        (20, [0]),
    ]


def test_with_event_time_takes_the_column_as_it_is_there():
    """Computed columns are as good as read ones, and an overwritten t is then taken.

    t = 1, 2 overwritten by t * 10 = 10, 20: the windows go by 10 and 20.
    """
    program, stream = numbered([1, 2])
    moved = stream.with_columns(t=pl.col("t") * 10).with_event_time("t")
    assert written(program, windows(moved)) == [(10, [0]), (20, [1])]


def test_with_event_time_does_not_move_the_watermark():
    """The watermark is the source's; a row sent back behind it may be late.

    Epoch 0: t = 30, other = 31: w = 30. Epoch 1: t = 40, other = 12: window [10, 20) has end 20 <=
    30: late. t = 41, other = 99: [90, 100). Then the end of time: [30, 40) and [90, 100) leave.
    """
    program, stream = numbered([30, 40, 41], other=[31, 12, 99])
    grouped = stream.with_event_time("other").window(ab.tumbling("10 ms"))
    grouped.late.select("n").write(ab.sinks.Memory("late"))
    grouped.agg(values=ab.collect("n")).write(ab.sinks.Memory("out"))
    log = [Cut("in", {0: (0, 1)}), Cut("in", {0: (1, 3)})]
    assert ab.testing.run_sequential(program, log=log) == {
        "late": [{"n": 1}],
        "out": [
            {"window_start": 30, "window_end": 40, "values": [0]},
            {"window_start": 90, "window_end": 100, "values": [2]},
        ],
    }


def test_a_row_ahead_of_its_source_waits_for_the_sources_watermark():
    """with_event_time into the future: the window leaves when the source's time is there.

    Epoch 0: t = 1, other = 25, w = 1. Epoch 1: t = 29, other = 2 ([0, 10) has end 10 > 1: on
    time), w = 29: [0, 10) leaves, [20, 30) does not. Unfinished.
    """
    program, stream = numbered([1, 29], other=[25, 2])
    log = [Cut("in", {0: (0, 1)}), Cut("in", {0: (1, 2)}, finished=NEVER)]
    found = written(program, windows(stream.with_event_time("other")), log=log)
    assert found == [(0, [1])]


def test_a_window_results_time_is_one_microsecond_before_its_end():
    """window_end - 1 us, whatever the unit of the column.

    Unit us: records 3, 14: results of [0, 10), [10, 20) at 9 and 19.
    """
    program, stream = numbered([3, 14], unit="us")
    results = stream.window(ab.tumbling("10 us")).agg(c=ab.count())
    assert written(program, times(results, "window_end")) == [(9, 10), (19, 20)]


def test_a_window_result_falls_into_the_window_it_fills():
    """[10, 20) at 19.999 ms is in [0, 20) of the next window, and in time for it.

    Records 3, 14, 25, one epoch, the end of time. First: 10, 20, 30. Second, of 20 ms: [0, 20) with
    the first two results, [20, 40) with the third.
    """
    program, stream = numbered([3, 14, 25])
    first = stream.window(ab.tumbling("10 ms")).agg(c=ab.count())
    second = windows(first, "window_end", "20 ms")
    assert written(program, second) == [(0, [10, 20]), (20, [30])]


def test_what_a_watermark_makes_comes_before_it_downstream():
    """Rows that w makes belong to its epoch and reach the next operator before w does.

    Epoch 0: records 3, 14, 20: w = 20. [0, 10) and [10, 20) leave the first window and are in
    [0, 20) of the second when w = 20 reaches it: it leaves in the same epoch, with both.
    """
    program, stream = numbered([3, 14, 20])
    first = stream.window(ab.tumbling("10 ms")).agg(c=ab.count())
    second = windows(first, "window_end", "20 ms")
    log = [Cut("in", {0: (0, 3)}, finished=NEVER)]
    assert written(program, second, log=log) == [(0, [10, 20])]


def test_three_windows_of_one_size_in_a_row_hand_each_result_through_in_one_epoch():
    """end - 1 us lies in [end - 10, end) again: the same bounds three times.

    Epoch 0: records 3, 12, w = 12: [0, 10) passes all three. Epoch 1: the end of time: [10, 20).
    """
    program, stream = numbered([3, 12, 13])
    first = stream.window(ab.tumbling("10 ms")).agg(c=ab.count())
    second = first.window(ab.tumbling("10 ms")).agg(c=ab.sum("c"))
    third = second.window(ab.tumbling("10 ms")).agg(c=ab.sum("c"))
    log = [Cut("in", {0: (0, 2)}), Cut("in", {0: (2, 3)})]
    assert written(program, third, log=log) == [(0, 10, 1), (10, 20, 2)]


def test_a_result_moved_to_its_windows_end_is_in_the_next_window():
    """with_event_time("window_end"): start included, so 10 is in [10, 20).

    Records 3, 14: results 10, 20 at the times 10, 20: [10, 20) and [20, 30).
    """
    program, stream = numbered([3, 14])
    first = stream.window(ab.tumbling("10 ms")).agg(c=ab.count())
    second = windows(first.with_event_time("window_end"), "window_end")
    assert written(program, second) == [(10, [10]), (20, [20])]


def test_a_result_moved_to_its_windows_start_is_judged_by_the_watermark_before_its_epoch():
    """The start lies behind the watermark that let the window leave; the one before it counts.

    Results of 10 ms, moved to their start, into windows of 5 ms. Epoch 0: records 3, 8, w = 8.
    Epoch 1: record 30, w = 30: [0, 10) leaves with 2 and is moved to 0; [0, 5) has end 5 <= 8:
    late. Epoch 2: record 52, w = 52: [30, 40) leaves with 1, moved to 30; [30, 35) has end 35 > 30:
    on time, and leaves at 52. Epoch 3, finished: [50, 60) with 1, moved to 50; 55 > 52: on time.
    """
    program, stream = numbered([3, 8, 30, 52])
    first = stream.window(ab.tumbling("10 ms")).agg(c=ab.count())
    second = first.with_event_time("window_start").window(ab.tumbling("5 ms"))
    second.late.write(ab.sinks.Memory("late"))
    second.agg(cs=ab.collect("c")).write(ab.sinks.Memory("out"))
    log = [Cut("in", {0: pair}, finished=NEVER) for pair in ((0, 2), (2, 3), (3, 4))]
    assert ab.testing.run_sequential(program, log=[*log, Cut("in", {0: (4, 4)})]) == {
        "late": [{"window_start": 0, "window_end": 10, "c": 2}],
        "out": [
            {"window_start": 30, "window_end": 35, "cs": [1]},
            {"window_start": 50, "window_end": 55, "cs": [1]},
        ],
    }


def test_a_pairs_time_is_the_later_of_the_two():
    """Whichever side the later one is on.

    Key 1: l1 at 8, r1 at 12: the pair is at 12. Key 2: l2 at 14, r2 at 9: the pair is at 14. Left's
    epoch is the first (both finish, left was read first), so right's records bring the pairs, r1
    before r2.
    """
    program = ab.Program("case")
    sides = []
    for name, rows in (("l", [(1, 8), (2, 14)]), ("r", [(1, 12), (2, 9)])):
        records = [{"t": t, "k": k, name: f"{name}{k}"} for k, t in rows]
        sides.append(program.read(ab.sources.Records(records), name=name, event_time="t"))
    pairs = sides[0].join(sides[1].drop("t"), on="k", within="5 ms")
    both = times(pairs.select(p=pl.col("l") + pl.col("r")), "p")
    assert written(program, both) == [(12, "l1r1"), (14, "l2r2")]


def test_every_row_made_of_a_row_has_its_time():
    """flat_map, explode, lookup, map: the time of the cause.

    Rows 0 at 3, 1 at 14. Each is made two by the flat_map; lookup and explode keep them.
    """
    program, stream = numbered([3, 14], unit="us")
    table = pl.DataFrame({"n": [0, 1], "list": [["a"], ["b", "c"]]})
    made = (
        stream.flat_map(lambda r: [{"n": r["n"]}, {"n": r["n"]}], out={"n": pl.Int64})
        .lookup(table, on="n")
        .explode("list")
        .map(lambda r: {"v": r["list"]}, out={"v": pl.String})
    )
    assert written(program, times(made, "v")) == [
        (3, "a"), (3, "a"), (14, "b"), (14, "c"), (14, "b"), (14, "c"),
    ]  # fmt: skip


def test_a_reduced_value_has_the_time_of_the_record_that_changed_it():
    """The cause is the record; what the value's column t says is the column's business.

    reduce keeps the first record's t = 3. The value after record 1 (at 14) is shown with t = 3 but
    has the event time 14.
    """
    program, stream = numbered([3, 14], unit="us", k=[1, 1])
    kept = stream.key_by("k").reduce(lambda value, _: value)
    told = kept.window(ab.rows(1)).agg(t=ab.last("t")).select("window_end", "t")
    assert written(program, told) == [(3, 3), (14, 3)]


def test_a_deduplicated_row_keeps_its_time():
    """A row that passes is the row that came."""
    program, stream = numbered([3, 4, 14], unit="us", k=[1, 1, 2])
    assert written(program, times(stream.key_by("k").deduplicate())) == [(3, 0), (14, 2)]


def test_a_result_of_rows_has_the_time_of_the_record_that_caused_it():
    """A rows window emits at once, caused by a record: any other row's time is its cause's.

    Records 5, 3 (two rows, then a result, caused by the second): window_start 5, window_end 3, and
    its event time is 3: the next window of 4 us is [0, 4).
    """
    program, stream = numbered([5, 3], unit="us")
    pair = stream.window(ab.rows(2)).agg(c=ab.count())
    bounds = pair.window(ab.tumbling("4 us")).agg(starts=ab.collect("window_start"))
    assert written(program, bounds) == [(0, 4, [5])]


def test_datetimes_travel_as_well():
    """A Datetime column in milliseconds: inside, a result's time is still end - 1 us.

    Records at 3 s and 14 s past midnight, windows of 10 s, then of 20 s: [0, 20) has both results.
    """
    program = ab.Program("case")
    day = datetime(2024, 5, 1)
    rows = [{"at": day + timedelta(seconds=s)} for s in (3, 14)]
    source = ab.sources.Records(rows, schema={"at": pl.Datetime("ms")})
    stream = program.read(source, name="in", event_time="at")
    first = stream.window(ab.tumbling("10 s")).agg(c=ab.count())
    second = first.window(ab.tumbling("20 s")).agg(c=ab.count())
    assert written(program, second) == [(day, day + timedelta(seconds=20), 2)]


def test_windows_of_zoned_times_start_at_multiples_since_1970_in_utc():
    """A zone is how a time is shown; a window of a day begins at midnight UTC.

    New York, 2024-05-01 21:00 is 2024-05-02 01:00 UTC: the day window is the one of May 2nd in UTC,
    20:00 to 20:00 in New York.
    """
    program = ab.Program("case")
    zone = "America/New_York"
    row = {"at": datetime(2024, 5, 2, 1, tzinfo=UTC)}
    source = ab.sources.Records([row], schema={"at": pl.Datetime("us", zone)})
    stream = program.read(source, name="in", event_time="at")
    days = stream.window(ab.tumbling("1 d")).agg(c=ab.count())
    texts = days.select(
        start=pl.col("window_start").dt.to_string("%d %H:%M"),
        end=pl.col("window_end").dt.to_string("%d %H:%M"),
    )
    assert written(program, texts) == [("01 20:00", "02 20:00")]


def test_a_late_record_keeps_its_columns_and_its_time():
    """`late` has the original rows; their event time is theirs, though behind the watermark.

    Epoch 0: record 15, w = 15. Epoch 1: record 3 is late for [0, 10), and told with its time 3.
    """
    program, stream = numbered([15, 3], unit="us")
    grouped = stream.window(ab.tumbling("10 us"))
    late = times(grouped.late)
    grouped.agg(c=ab.count()).write(ab.sinks.Memory("results"))
    log = [Cut("in", {0: (0, 1)}), Cut("in", {0: (1, 2)})]
    assert written(program, late, log=log) == [(3, 1)]


def test_a_null_in_the_new_time_column_is_an_error_of_the_record():
    """with_event_time obeys on_error like a read: fail, or skip.

    other = 5, null: with "skip" only row 0 goes on; with "fail" the run fails.
    """
    program, stream = numbered([1, 2], other=[5, None])
    kept = stream.with_event_time("other", on_error="skip")
    assert written(program, windows(kept)) == [(0, [0])]
    program, stream = numbered([1, 2], other=[5, None])
    windows(stream.with_event_time("other")).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program)


def test_a_dead_letter_has_the_event_time_of_its_record():
    """Any other row's time is that of its cause, and a letter is a row.

    Times 3, 14, 5; the function fails on all: letters at 3, 14, 5: [0, 10) has offsets 0 and 2.
    """
    program, stream = numbered([3, 14, 5])

    def fail(record):
        raise ValueError("no")

    made = stream.map(fail, out={"n": pl.Int64}, on_error="dead_letter")
    assert written(program, windows(made.dead_letters, "offset")) == [(0, [0, 2]), (10, [1])]


def test_the_dead_letters_of_a_read_have_no_event_time():
    """A record is in them because its time is null, or because nothing of it could be read.

    So a window over them is refused where it is written, whatever the log brings.
    """
    program = ab.Program("case")
    source = ab.sources.Records([{"t": t} for t in (3, 14, 5)])
    stream = program.read(source, name="in", event_time="t", on_error="dead_letter")
    with pytest.raises(ab.ProgramError, match="needs event times"):
        windows(stream.dead_letters, "offset")


def test_a_letter_of_a_record_without_event_time_can_be_in_no_window():
    """What has no time cannot be windowed: refused, or an error of the run, never an accident.

    The second record has a null time; its letter has none to inherit.
    """
    program = ab.Program("case")
    source = ab.sources.Records([{"t": 3}, {"t": None}])
    stream = program.read(source, name="in", event_time="t", on_error="dead_letter")
    with pytest.raises(ab.AnabranchError):
        written(program, windows(stream.dead_letters, "offset"))
