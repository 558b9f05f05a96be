"""M14: streams together: union, merge, in_time_order, match, whole streams, feedback."""

import polars as pl
import pytest

import anabranch as ab

Cut = ab.testing.Cut
NEVER = frozenset()


def read(program, name, times, partitions=1, **more):
    """Read rows that are called after their source and number: a0, a1, ..."""
    rows = [{"t": t, "x": f"{name}{n}"} for n, t in enumerate(times)]
    source = ab.sources.Records(rows, partitions=partitions)
    return program.read(source, name=name, event_time="t", **more)


def written(program, stream, column="x", **how):
    """One column of a stream's rows, in order."""
    stream.write(ab.sinks.Memory("out"))
    return [row[column] for row in ab.testing.run_sequential(program, **how)["out"]]


def cut(source, start, end, **more):
    """An epoch of one partition; the source is not finished unless `finished` says so."""
    return Cut(source, {0: (start, end)}, **{"finished": NEVER, **more})


# Union


def test_union_is_by_log_order():
    """Epochs in log order, whatever the times and the inputs.

    Log: b0, then a0 a1, then b1: that is the order, though `a` is input 0 and its times are less.
    """
    program = ab.Program("case")
    a, b = read(program, "a", [1, 2]), read(program, "b", [50, 60])
    log = [cut("b", 0, 1), cut("a", 0, 2), cut("b", 1, 2)]
    assert written(program, a.union(b), log=log) == ["b0", "a0", "a1", "b1"]


def test_union_has_the_columns_of_the_first_in_their_order():
    """The other's columns have the same names in another order: values go by name."""
    program = ab.Program("case")
    a = read(program, "a", [1])
    b = read(program, "b", [2]).select("x", "t")
    a.union(b).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program)["out"]
    assert [list(row.items()) for row in rows] == [
        [("t", 1), ("x", "a0")],
        [("t", 2), ("x", "b0")],
    ]


# Merge and in_time_order


def test_merge_holds_rows_and_releases_them_by_event_time():
    """At each watermark those before it, in order of time.

    Epoch 0, a: 10, 30: w(a) = 30, b has no watermark: the merge's is none, all is held. Epoch 1, b:
    20, 25: w = min(30, 25) = 25: released are 10 (a0), 20 (b0); 25 is not < 25. Epoch 2, b: 40,
    finished: w = min(30, end) = 30: b1 (25); a1 at 30 is not < 30. Epoch 3 finishes a: a1 (30), b2
    (40).
    """
    program = ab.Program("case")
    a, b = read(program, "a", [10, 30]), read(program, "b", [20, 25, 40])
    log = [
        cut("a", 0, 2),
        cut("b", 0, 2),
        cut("b", 2, 3, finished={0}),
        cut("a", 2, 2, finished={0}),
    ]
    merged = a.merge(b)
    assert written(program, merged, log=log) == ["a0", "b0", "b1", "a1", "b2"]


def test_merge_shows_when_it_released():
    """Rows belong to the epoch whose watermark released them: a union beside tells.

    As above cut to two epochs: in epoch 0 nothing is released though a's own rows pass `seen`; in
    epoch 1 b's rows pass (phase 0), then the merge releases a0, b0 (phase 1).
    """
    program = ab.Program("case")
    a, b = read(program, "a", [10, 30]), read(program, "b", [20, 25])
    merged = a.merge(b).select(x=pl.format("merged {}", "x"))
    seen = a.union(b).select(x=pl.format("seen {}", "x"))
    log = [cut("a", 0, 2), cut("b", 0, 2)]
    assert written(program, merged.union(seen), log=log) == [
        "seen a0", "seen a1", "seen b0", "seen b1", "merged a0", "merged b0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reverse", "expected"),
    [(False, ["a0", "a1", "b0", "b1"]), (True, ["b0", "b1", "a0", "a1"])],
)
def test_merge_breaks_ties_of_time_by_input_position_then_arrival(reverse, expected):
    """(time, input position, arrival).

    All at time 7; log: b0, a0, a1, b1, and the ends of both. a.merge(b): a's rows by arrival, then
    b's. b.merge(a): b's first.
    """
    program = ab.Program("case")
    a, b = read(program, "a", [7, 7]), read(program, "b", [7, 7])
    log = [cut("b", 0, 1), cut("a", 0, 2, finished={0}), cut("b", 1, 2, finished={0})]
    merged = b.merge(a) if reverse else a.merge(b)
    assert written(program, merged, log=log) == expected


def test_rows_behind_the_watermark_pass_a_merge_at_once_and_before_the_released():
    """Behind w nothing can be ordered any more: they go through in phase 0.

    in_time_order is a merge of one. Epoch 0: 20 (a0), w = 20: a0 is not < 20 and is held. Epoch 1:
    25 (a1), 5 (a2), 21 (a3): a2 is behind 20 and passes at once; w = 25 releases 20 (a0), 21 (a3).
    Epoch 2: 24 (a4) is behind 25: passes at once, 30 (a5); w = 30 releases a1 (25). Unfinished: a5
    stays.
    """
    program = ab.Program("case")
    stream = read(program, "a", [20, 25, 5, 21, 24, 30])
    log = [cut("a", 0, 1), cut("a", 1, 4), cut("a", 4, 6)]
    assert written(program, stream.in_time_order(), log=log) == ["a2", "a0", "a3", "a4", "a1"]


def test_a_row_at_the_watermark_is_not_behind_it():
    """Behind is time < w, and released is time < w: a row at w waits.

    Epoch 0: a0 at 20, w = 20: held. Epoch 1: a1 at 20: not behind, held, w = 20. Epoch 2: a2 at 21,
    w = 21: both are released, by arrival.
    """
    program = ab.Program("case")
    stream = read(program, "a", [20, 20, 21])
    log = [cut("a", n, n + 1) for n in range(3)]
    assert written(program, stream.in_time_order(), log=log[:2]) == []
    program = ab.Program("case")
    stream = read(program, "a", [20, 20, 21])
    assert written(program, stream.in_time_order(), log=log) == ["a0", "a1"]


def test_in_time_order_over_partitions_goes_by_arrival_among_equal_times():
    """One input: (time, arrival).

    Partition 0 holds a0 (9), a2 (3), partition 1 a1 (3), a3 (1). They arrive a0, a2, a1, a3 in one
    epoch; the end of time releases a3 (1), a2 (3), a1 (3), a0 (9).
    """
    program = ab.Program("case")
    stream = read(program, "a", [9, 3, 3, 1], partitions=2)
    assert written(program, stream.in_time_order()) == ["a3", "a2", "a1", "a0"]


def test_released_rows_keep_their_times_and_are_not_late_downstream():
    """What w releases reaches the next operator before w (M7).

    Epoch 0: 12, 3, then w = 12: in_time_order releases 3 only (12 is not < 12), and the window
    [0, 10) behind it has it when w = 12 comes, and leaves. Epoch 1: the end of time: 12.
    """
    program = ab.Program("case")
    stream = read(program, "a", [12, 3, 13])
    windows = stream.in_time_order().window(ab.tumbling("10 ms")).agg(xs=ab.collect("x"))
    log = [cut("a", 0, 2), cut("a", 2, 3, finished={0})]
    assert written(program, windows, "xs", log=log) == [["a1"], ["a0", "a2"]]


def test_window_results_are_held_and_released_in_the_same_epoch():
    """A result at window_end - 1 us is before the w that made it.

    Records 3, 12: epoch 0, w = 12: [0, 10) leaves at 9.999 and is released by the same w; epoch 1,
    the end of time: [10, 20). The windows are input 0 of the merge with themselves shifted: each
    result twice, the times being equal by position.
    """
    program = ab.Program("case")
    stream = read(program, "a", [3, 12, 13])
    results = stream.window(ab.tumbling("10 ms")).agg(n=ab.count())
    one = results.select(x=pl.format("one {}", "window_end"))
    two = results.select(x=pl.format("two {}", "window_end"))
    log = [cut("a", 0, 2), cut("a", 2, 3, finished={0})]
    assert written(program, two.merge(one), log=log) == ["two 10", "one 10", "two 20", "one 20"]


def test_a_stream_merged_with_itself_goes_by_time_then_position():
    """(time, input position, arrival): among equal times all of input 0 before all of input 1.

    Times 7, 7, 9: at 7 a0, a1 of input 0, then a0, a1 of input 1; at 9 a2 twice.
    """
    program = ab.Program("case")
    stream = read(program, "a", [7, 7, 9])
    assert written(program, stream.merge(stream)) == ["a0", "a1", "a0", "a1", "a2", "a2"]


def test_rows_behind_the_watermark_pass_a_merge_in_log_order():
    """They are not sorted: behind w there is only the order in which they come.

    Epoch 0, a: 50, w(a) = 50. Epoch 1, b: 40, finished: w = min(50, end) = 50: b0 (40) is released,
    a0 (50) held. Epoch 2, a: 30, 10, 60: a1, a2 are behind 50: they pass as they come; then w = 60
    releases a0 (50); a3 (60) stays.
    """
    program = ab.Program("case")
    a, b = read(program, "a", [50, 30, 10, 60]), read(program, "b", [40])
    log = [cut("a", 0, 1), cut("b", 0, 1, finished={0}), cut("a", 1, 4)]
    assert written(program, a.merge(b), log=log) == ["b0", "a1", "a2", "a0"]


# Match


def match(events, pattern, *, within="100 ms", skip=False, **how):
    """The matches of a pattern over events (key, kind, t), as tuples with the rows' numbers."""
    program = ab.Program("case")
    rows = [{"k": k, "e": e, "t": t, "n": n} for n, (k, e, t) in enumerate(events)]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t")
    steps = [ab.step(name, pl.col("e") == e, times=times) for name, e, times in pattern]
    matches = stream.key_by("k").match(steps, within=within, skip=skip)
    matches.write(ab.sinks.Memory("out"))
    names = [name for name, _, _ in pattern]
    return [
        (row["k"], row["match_start"], row["match_end"], *([r["n"] for r in row[s]] for s in names))
        for row in ab.testing.run_sequential(program, **how)["out"]
    ]


AB = [("first", "a", 1), ("second", "b", 1)]


def at(text, key="k"):
    """Events of one key, a letter each, 1 ms apart from time 0."""
    return [(key, letter, t) for t, letter in enumerate(text)]


def test_a_match_is_contiguous():
    """a then b with nothing of the key between.

    a0 x1 b2: x breaks the run. a3 b4: a match, from 3 to 4.
    """
    assert match(at("axbab"), AB) == [("k", 3, 4, [3], [4])]


def test_with_skip_others_may_stand_between():
    """a0 x1 b2 is a match; then it starts anew behind it: a3 b4."""
    assert match(at("axbab"), AB, skip=True) == [("k", 0, 2, [0], [2]), ("k", 3, 4, [3], [4])]


def test_a_match_has_complete_rows_and_their_schema():
    """The keys, match_start, match_end, and a list of records per step, all columns."""
    program = ab.Program("case")
    rows = [{"k": 1, "t": 5, "v": "a"}, {"k": 1, "t": 9, "v": "b"}]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t")
    steps = [ab.step("one", pl.col("v") == "a"), ab.step("two", lambda r: r["v"] == "b")]
    stream.key_by("k").match(steps, within="1 s").write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"k": 1, "match_start": 5, "match_end": 9, "one": [rows[0]], "two": [rows[1]]}
    ]


def test_every_record_may_begin_a_match():
    """A record that ends one run may begin another.

    a0 a1 b2: the run of a0 dies at a1 (no b), a1 begins a new one, b2 completes it.
    """
    assert match(at("aab"), AB) == [("k", 1, 2, [1], [2])]


def test_after_a_match_it_starts_anew_behind_it():
    """No record is in two matches.

    Pattern a b a. a0 b1 a2 is a match; a2 is used up, so b3 a4 alone is none. Then a5 b6 a7: a4
    began a run that died at a5; the match is 5 to 7.
    """
    aba = [("first", "a", 1), ("second", "b", 1), ("third", "a", 1)]
    assert match(at("ababaaba"), aba) == [("k", 0, 2, [0], [1], [2]), ("k", 5, 7, [5], [6], [7])]


def test_a_repeated_step_takes_so_many_records():
    """times=3: exactly three in a row, then b.

    a0 a1 b2: only two. a3 a4 a5 a6 b7: the run of 3 dies at a6 (b wanted), the run begun at 4 has
    4, 5, 6 and b7: a match. Its list has the three.
    """
    assert match(at("aabaaaab"), [("as", "a", 3), ("end", "b", 1)]) == [("k", 4, 7, [4, 5, 6], [7])]


def test_a_repeated_last_step_ends_the_match_at_its_last_time():
    """A complete pattern is a match at once, and the next begins behind it.

    b a a: b0 a1 a2 is complete at a2; a3 begins nothing (b wanted).
    """
    assert match(at("baaa"), [("start", "b", 1), ("as", "a", 2)]) == [("k", 0, 2, [0], [1, 2])]


def test_with_skip_the_oldest_run_is_complete_first_and_ends_the_others():
    """a0 a1 b2: both runs wait for b; the oldest gets it, and all begin anew.

    b3 then finds no run.
    """
    assert match(at("aabb"), AB, skip=True) == [("k", 0, 2, [0], [2])]


def test_within_includes_its_end():
    """First and last at most d apart: 10 is within 10 ms, 11 is not.

    a at 0 and b at 10: a match. a at 20, b at 31: none.
    """
    events = [("k", "a", 0), ("k", "b", 10), ("k", "a", 20), ("k", "b", 31)]
    assert match(events, AB, within="10 ms") == [("k", 0, 10, [0], [1])]


def test_with_skip_a_run_that_got_too_old_leaves_the_place_to_a_younger():
    """a at 0 is too old for b at 12, a at 5 is not: 5 to 12, within 10 ms."""
    events = [("k", "a", 0), ("k", "a", 5), ("k", "b", 12)]
    assert match(events, AB, within="10 ms", skip=True) == [("k", 5, 12, [1], [2])]


def test_a_match_is_by_arrival_not_by_event_time():
    """Records of a key in the order they come; times may run backwards within d.

    a at 9 arrives, then b at 4: a match, whose start is the first record's time 9, its end 4. Of a
    at 2 and b at 3 the b arrives first: no match, though by time it would be one.
    """
    events = [("k", "a", 9), ("k", "b", 4), ("k", "b", 3), ("k", "a", 2)]
    assert match(events, AB) == [("k", 9, 4, [0], [1])]


def test_a_match_sees_its_own_key_only():
    """What comes between of another key does not break contiguity.

    k: a0 . b2, j: b1 . a3, then j: b4. k's match leaves with record 2, j's with record 4.
    """
    events = [("k", "a", 0), ("j", "b", 1), ("k", "b", 2), ("j", "a", 3), ("j", "b", 4)]
    assert match(events, AB) == [("k", 0, 2, [0], [2]), ("j", 3, 4, [3], [4])]


def test_a_match_may_span_epochs():
    """Its records come one at a time over any number of epochs.

    a0 | b1 | a2 | b3, an epoch each. w before the epoch of b1 is 0, of b3 2: the runs still count
    (0 + 100 >= 0).
    """
    assert match(at("abab"), AB, epoch_rows=1) == [("k", 0, 1, [0], [1]), ("k", 2, 3, [2], [3])]


def test_a_null_predicate_does_not_hold():
    """null == "a" is null, which is not true: the record fits no step and breaks the run."""
    events = [("k", "a", 0), ("k", None, 1), ("k", "b", 2)]
    assert match(events, AB) == []
    assert match(events, AB, skip=True) == [("k", 0, 2, [0], [2])]


def test_a_record_may_fit_several_steps():
    """Predicates need not exclude each other; each record is taken once.

    Both steps hold for every record: 0, 1 are a match, 2, 3 another, 4 waits.
    """
    both = [("first", "a", 1), ("second", "a", 1)]
    assert match(at("aaaaa"), both) == [("k", 0, 1, [0], [1]), ("k", 2, 3, [2], [3])]


# Whole streams


def test_process_on_a_whole_stream_sees_all_records_with_one_state():
    """One key for all: partitions in order, epoch by epoch.

    Partition 0: a0, a2; partition 1: a1, a3. Rounds of one: a0, a1, then a2, a3. Each is told with
    its predecessor.
    """
    program = ab.Program("case")
    stream = read(program, "a", [1, 2, 3, 4], partitions=2)

    def follow(record, state):
        previous, state.value = state.value, record["x"]
        yield {"x": f"{previous} {record['x']}"}

    made = stream.process(follow, out={"x": pl.String})
    assert written(program, made, epoch_rows=1) == ["None a0", "a0 a1", "a1 a2", "a2 a3"]


def test_the_state_of_a_whole_stream_is_undone_by_an_exception():
    """State as in M11: the failed record's write is gone, the record skipped.

    Counts: a0 1, a1 would be 2 but raises, a2 is 2.
    """
    program = ab.Program("case")
    stream = read(program, "a", [1, 2, 3])

    def count(record, state):
        state.value = (state.value or 0) + 1
        state.list.append(record["x"])
        if record["x"] == "a1":
            raise ValueError("no")
        return {"x": f"{record['x']}: {state.value} {state.list}"}

    made = stream.process(count, out={"x": pl.String}, on_error="skip")
    assert written(program, made) == ["a0: 1 ['a0']", "a2: 2 ['a0', 'a2']"]


def test_process_behind_a_union_sees_both_streams_in_log_order():
    """Sequential over the united stream, over epochs of two sources."""
    program = ab.Program("case")
    a, b = read(program, "a", [1, 2]), read(program, "b", [3])

    def follow(record, state):
        state.list.append(record["x"])
        return {"x": " ".join(state.list)}

    made = a.union(b).process(follow, out={"x": pl.String})
    log = [cut("a", 0, 1), cut("b", 0, 1), cut("a", 1, 2)]
    assert written(program, made, log=log) == ["a0", "a0 b0", "a0 b0 a1"]


# Feedback


def test_what_enters_a_feedback_in_one_epoch_comes_out_at_the_start_of_the_next():
    """Each row comes back with one more mark, until it has two.

    Epochs: 1 | 2 | (empty) | (empty). Epoch 0: 1 -> 1', fed back. Epoch 1: first 1' -> 1'', which
    is done; then 2 -> 2'. Epoch 2 (no records): 2' -> 2''. Epoch 3: nothing. The sink reads what
    the marking gives, in order.
    """
    program = ab.Program("case")
    stream = program.read(ab.sources.Records([{"x": "1"}, {"x": "2"}]), name="in")
    back = program.feedback({"x": pl.String})
    marked = stream.union(back).with_columns(x=pl.col("x") + "'")
    back.close(marked.filter(~pl.col("x").str.ends_with("''")))
    log = [Cut("in", {0: pair}) for pair in ((0, 1), (1, 2), (2, 2), (2, 2))]
    assert written(program, marked, log=log) == ["1'", "1''", "2'", "2''"]


def test_rows_come_out_of_a_feedback_in_the_order_in_which_they_entered_it():
    """They come before the epoch's own records, in their old order.

    Epoch 0: records 1, 2, 3. Epoch 1: 1, 2, 3 again (fed back), then record 4. Nothing that was fed
    back is fed back again (only records without a mark enter).
    """
    program = ab.Program("case")
    rows = [{"x": x} for x in "1234"]
    stream = program.read(ab.sources.Records(rows), name="in")
    back = program.feedback({"x": pl.String})
    both = back.with_columns(x=pl.col("x") + " again").union(stream)
    back.close(stream)
    log = [Cut("in", {0: (0, 3)}), Cut("in", {0: (3, 4)})]
    assert written(program, both, log=log) == ["1", "2", "3", "1 again", "2 again", "3 again", "4"]


def test_what_enters_a_feedback_in_the_last_epoch_does_not_come_out():
    """There is no next epoch.

    One epoch: 1 passes, its echo would come in an epoch that the log does not have.
    """
    program = ab.Program("case")
    stream = program.read(ab.sources.Records([{"x": "1"}]), name="in")
    back = program.feedback({"x": pl.String})
    back.close(stream)
    assert written(program, stream.union(back)) == ["1"]


def test_a_feedback_comes_out_in_the_next_epoch_of_the_log_whosever_it_is():
    """Epochs of the log, not of a source.

    Epoch 0: a0, which enters. Epoch 1 is of b: first the echo of a0, then b0. Epoch 2 is of a: a1
    (b0 did not enter). Epoch 3 is of b: the echo of a1, then b1.
    """
    program = ab.Program("case")
    a, b = read(program, "a", [1, 2]), read(program, "b", [1, 2])
    back = program.feedback({"t": pl.Int64, "x": pl.String}, event_time="t")
    back.close(a)
    echo = back.with_columns(x=pl.format("echo {}", "x"))
    log = [cut("a", 0, 1), cut("b", 0, 1), cut("a", 1, 2), cut("b", 1, 2)]
    assert written(program, a.union(b).union(echo), log=log) == [
        "a0", "echo a0", "b0", "a1", "echo a1", "b1",
    ]  # fmt: skip


def test_an_empty_epoch_shows_in_a_feedback():
    """It is an epoch of the log, so what waits comes out in it, before the next one's records.

    Epoch 0: 1. Epoch 1 (empty): echo of 1. Epoch 2: 2, and nothing waits. Without the empty epoch
    the output would be the same rows, as the echo comes first in the epoch of 2: the difference
    shows in a chain: each echo that comes out enters again. Epochs 1 | - | 2: 1, 1', then 1'', 2.
    Epochs 1 | 2: 1, then 1', 2.
    """
    outputs = []
    for ranges in (((0, 1), (1, 1), (1, 2)), ((0, 1), (1, 2))):
        program = ab.Program("case")
        stream = program.read(ab.sources.Records([{"x": "1"}, {"x": "2"}]), name="in")
        back = program.feedback({"x": pl.String})
        both = back.with_columns(x=pl.col("x") + "'").union(stream)
        back.close(both)
        log = [Cut("in", {0: pair}) for pair in ranges]
        outputs.append(written(program, both, log=log))
    assert outputs == [["1", "1'", "1''", "2"], ["1", "1'", "2"]]


def test_a_window_result_fed_back_comes_in_the_next_epoch_as_a_record():
    """Made in phase 1 of one epoch, it is of phase 0 in the next.

    Counts of windows of 10 ms. Epoch 0: records 3, 12, w = 12: [0, 10) leaves with 1. Epoch 1: the
    echo of it, then record 13 and at the end of time [10, 20) with 2. Sink: echo, rows and results
    as one stream.
    """
    program = ab.Program("case")
    stream = read(program, "a", [3, 12, 13])
    back = program.feedback({"x": pl.String})
    counts = stream.window(ab.tumbling("10 ms")).agg(n=ab.count())
    told = counts.select(x=pl.format("{}: {}", "window_end", "n"))
    back.close(told)
    back.select(x=pl.format("echo {}", "x")).write(ab.sinks.Memory("echo"))
    told.write(ab.sinks.Memory("told"))
    log = [cut("a", 0, 2), cut("a", 2, 3, finished={0})]
    assert ab.testing.run_sequential(program, log=log) == {
        "echo": [{"x": "echo 10: 1"}],
        "told": [{"x": "10: 1"}, {"x": "20: 2"}],
    }


def feedback_windows(change):
    """Windows of 10 ms over a source and, through `change`, a feedback that nothing enters."""
    program = ab.Program("case")
    stream = read(program, "a", [3, 12])
    back = program.feedback({"t": pl.Int64, "x": pl.String}, event_time="t")
    both = stream.union(change(back))
    back.close(stream.filter(pl.lit(False)))
    windows = both.window(ab.tumbling("10 ms")).agg(xs=ab.collect("x"))
    return written(program, windows, "xs", log=[cut("a", 0, 2)])


def test_a_feedbacks_watermark_does_not_count():
    """Only sources have watermarks; the cycle would wait for itself.

    Records 3, 12: w = 12 of the source alone: [0, 10) leaves.
    """
    assert feedback_windows(lambda back: back) == [["a0"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda back: back.filter(pl.col("t") > 0),
        lambda back: back.union(back),
        lambda back: back.in_time_order(),
    ],
    ids=["filter", "union", "in_time_order"],
)
def test_a_feedbacks_watermark_does_not_count_behind_operators_either(change):
    """An operator's watermark is the least over the *sources* that feed it; a feedback is none.

    As above with an operator between the feedback and the union: w = 12: [0, 10) leaves.
    """
    assert feedback_windows(change) == [["a0"]]


def test_a_feedback_row_is_late_like_any_other():
    """It comes an epoch later, when the watermark may have passed it.

    Epoch 0: records a0 (3), a1 (12), w = 12: [0, 10) leaves with a0, and both rows were fed back.
    Epoch 1: a0 comes back at 3: [0, 10) is closed (10 <= 12), late; a1 comes back at 12 for
    [10, 20): counts. Then record a2 (25), w = 25: [10, 20) leaves with a1, a1. Unfinished.
    """
    program = ab.Program("case")
    stream = read(program, "a", [3, 12, 25])
    back = program.feedback({"t": pl.Int64, "x": pl.String}, event_time="t")
    windows = stream.union(back).window(ab.tumbling("10 ms"))
    windows.late.select("x").write(ab.sinks.Memory("late"))
    windows.agg(xs=ab.collect("x")).select("xs").write(ab.sinks.Memory("out"))
    back.close(stream)
    log = [cut("a", 0, 2), cut("a", 2, 3)]
    assert ab.testing.run_sequential(program, log=log) == {
        "late": [{"x": "a0"}],
        "out": [{"xs": ["a0"]}, {"xs": ["a1", "a1"]}],
    }


def test_a_null_event_time_from_a_feedback_is_an_error_of_the_run():
    """A null event time obeys on_error, and a feedback has none but to fail."""
    program = ab.Program("case")
    stream = read(program, "a", [3, 4])
    back = program.feedback({"t": pl.Int64, "x": pl.String}, event_time="t")
    back.close(stream.with_columns(t=pl.lit(None, dtype=pl.Int64)))
    stream.union(back).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program, epoch_rows=1)


def test_two_feedbacks_come_out_in_the_order_they_were_made():
    """Both at the start of the next epoch, the first made first.

    Record 1 enters both. Next epoch: of `one`, then of `two`.
    """
    program = ab.Program("case")
    stream = program.read(ab.sources.Records([{"x": "1"}]), name="in")
    one, two = (program.feedback({"x": pl.String}) for _ in range(2))
    two.close(stream)
    one.close(stream)
    first = one.select(x=pl.format("one {}", "x"))
    second = two.select(x=pl.format("two {}", "x"))
    log = [Cut("in", {0: (0, 1)}), Cut("in", {0: (1, 1)})]
    assert written(program, second.union(first), log=log) == ["one 1", "two 1"]


def test_a_feedback_that_is_never_closed_is_refused():
    """A stream must be written to be read."""
    program = ab.Program("case")
    stream = program.read(ab.sources.Records([{"x": "1"}]), name="in")
    stream.union(program.feedback({"x": pl.String})).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.ProgramError):
        ab.testing.run_sequential(program)
