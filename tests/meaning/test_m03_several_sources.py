"""M3: several sources: an epoch's position is decided by its end watermark."""

import pytest

import anabranch as ab

Cut = ab.testing.Cut
NEVER = frozenset()


def read(program, name, times, **how):
    """Read rows of a source that say whose they are."""
    rows = [{"t": t, "s": name} for t in times]
    return program.read(ab.sources.Records(rows), name=name, event_time="t", **how)


def seen(rows):
    """Rows by their two columns, for reading."""
    return [(row["s"], row["t"]) for row in rows]


def both(first, second, *, reverse=False):
    """A program that unites two streams, in or against the order in which they were read."""
    program = ab.Program("case")
    one, two = read(program, **first), read(program, **second)
    (two.union(one) if reverse else one.union(two)).write(ab.sinks.Memory("out"))
    return program


def test_of_a_round_the_smallest_end_watermark_goes_first():
    """A slow source's epoch precedes a fast one's, though the fast one was read first.

    Rounds of one row. Round 1: fast ends with w = 100, slow with w = 10, so slow's epoch goes
    first. Round 2 reaches the end of both: both watermarks are the end of time, a tie, which goes
    by the order of the `read` calls, fast before slow.
    """
    program = both({"name": "fast", "times": [100, 200]}, {"name": "slow", "times": [10, 20]})
    rows = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert seen(rows) == [("slow", 10), ("fast", 100), ("fast", 200), ("slow", 20)]


@pytest.mark.parametrize("reverse", [False, True])
def test_ties_go_by_the_order_of_read_calls_not_by_the_unions_inputs(reverse):
    """`union` takes log order first; position among its inputs decides nothing across epochs.

    Rounds of one row. Round 1: both end with w = 5, a tie: `a` was read first. Round 2: both end
    with the end of time: `a` again. So a, b, a, b whether it is a.union(b) or b.union(a).
    """
    program = both({"name": "a", "times": [5, 6]}, {"name": "b", "times": [5, 6]}, reverse=reverse)
    rows = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert seen(rows) == [("a", 5), ("b", 5), ("a", 6), ("b", 6)]


def test_an_epoch_that_finishes_its_source_goes_last_in_its_round():
    """The end of time is greater than every watermark.

    `short` is read first and has one row: its only epoch ends with the end of time. Round 1: long
    (w = 1) goes before it although its record is later. Rounds 2 and 3: long alone.
    """
    program = both({"name": "short", "times": [0]}, {"name": "long", "times": [1, 2, 3]})
    rows = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert seen(rows) == [("long", 1), ("short", 0), ("long", 2), ("long", 3)]


def test_the_watermark_decides_and_not_the_records_times():
    """Lateness is part of the watermark.

    Round 1: `a` has the record 20 and w = 20; `b` has the record 60 and lateness 50, so w = 10 and
    goes first. Round 2: both finish; order of reading.
    """
    program = both(
        {"name": "a", "times": [20, 21]}, {"name": "b", "times": [60, 61], "lateness": "50 ms"}
    )
    rows = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert seen(rows) == [("b", 60), ("a", 20), ("a", 21), ("b", 61)]


def test_a_round_goes_by_the_watermark_at_its_end_not_by_its_last_record():
    """A watermark does not fall with an old record, and the position follows the watermark.

    Round 1: a has 10, b has 20: a first. Round 2: a has 30 (w = 30); b has the old record 1 but
    its watermark stays 20, which is less than 30: b first. Round 3: a has 31, w = 31; b has 25,
    w = 25: b first. Round 4: both finish: a, then b.
    """
    program = both(
        {"name": "a", "times": [10, 30, 31, 40]}, {"name": "b", "times": [20, 1, 25, 26]}
    )
    rows = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert seen(rows) == [
        ("a", 10), ("b", 20),
        ("b", 1), ("a", 30),
        ("b", 25), ("a", 31),
        ("a", 40), ("b", 26),
    ]  # fmt: skip


def test_three_sources_are_ordered_anew_in_every_round():
    """Each round by its own watermarks, ties by the order of reading.

    Round 1: w = 3, 1, 2: b, c, a. Round 2: w = 4, 9, 4: a and c tie, a was read first: a, c, b.
    Round 3: all finish: a, b, c.
    """
    program = ab.Program("case")
    a = read(program, "a", [3, 4, 10])
    b = read(program, "b", [1, 9, 11])
    c = read(program, "c", [2, 4, 12])
    c.union(b).union(a).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert seen(rows) == [
        ("b", 1), ("c", 2), ("a", 3),
        ("a", 4), ("c", 4), ("b", 9),
        ("a", 10), ("b", 11), ("c", 12),
    ]  # fmt: skip


def test_a_fast_source_does_not_relax_a_slow_ones_watermark():
    """An operator's watermark is the least of its sources', so the slow one's records are on time.

    Windows of 10 ms over fast and slow. Epoch 0, fast: record 100, w(fast) = 100; slow has said
    nothing, so the operator has no watermark. Epoch 1, slow: record 5 is not late, w = min(100, 5)
    = 5 closes nothing. Epoch 2, slow: record 50, finished: w = min(100, end of time) = 100, and
    [0, 10) and [50, 60) leave, in this order. Epoch 3 finishes fast: [100, 110) leaves.
    """
    program = ab.Program("case")
    fast, slow = read(program, "fast", [100]), read(program, "slow", [5, 50])
    windows = fast.union(slow).window(ab.tumbling("10 ms"))
    windows.agg(who=ab.collect("s")).write(ab.sinks.Memory("out"))
    log = [
        Cut("fast", {0: (0, 1)}, finished=NEVER),
        Cut("slow", {0: (0, 1)}),
        Cut("slow", {0: (1, 2)}),
        Cut("fast", {0: (1, 1)}),
    ]
    assert ab.testing.run_sequential(program, log=log)["out"] == [
        {"window_start": 0, "window_end": 10, "who": ["slow"]},
        {"window_start": 50, "window_end": 60, "who": ["slow"]},
        {"window_start": 100, "window_end": 110, "who": ["fast"]},
    ]


def test_the_order_of_a_given_log_is_obeyed():
    """A log is what happened: none waits for a watermark not yet known, so it need not be sorted.

    The log takes late watermarks first: fast's 100, 200, then slow's 10, 20. The union gives the
    rows in log order.
    """
    program = both({"name": "fast", "times": [100, 200]}, {"name": "slow", "times": [10, 20]})
    log = [Cut("fast", {0: (0, 2)}), Cut("slow", {0: (0, 1)}), Cut("slow", {0: (1, 2)})]
    rows = ab.testing.run_sequential(program, log=log)["out"]
    assert seen(rows) == [("fast", 100), ("fast", 200), ("slow", 10), ("slow", 20)]


def test_a_source_without_event_times_has_no_watermark_and_goes_first():
    """No watermark is before every watermark, until the source finishes.

    `a` has times, `b` has none of its own (its rows get them by with_event_time, which moves no
    watermark). Round 1: w(a) = 1, b has none: b, a. Round 2: both finish: a, b.
    """
    program = ab.Program("case")
    a = read(program, "a", [1, 2])
    rows = [{"t": t, "s": "b"} for t in (50, 60)]
    b = program.read(ab.sources.Records(rows), name="b").with_event_time("t")
    a.union(b).write(ab.sinks.Memory("out"))
    written = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert seen(written) == [("b", 50), ("a", 1), ("a", 2), ("b", 60)]


def test_an_operator_is_held_only_by_the_sources_that_feed_it():
    """A source that feeds something else has no say.

    `mine` feeds the windows, `other` only a sink. Epoch 0 of mine: record 12, w = 12: [10, 20) is
    open, nothing leaves. Epoch 1 of mine: record 31, w = 31: [10, 20) leaves, though other never
    gave an epoch. Then the log ends with mine unfinished: [30, 40) stays.
    """
    program = ab.Program("case")
    mine, other = read(program, "mine", [12, 31, 99]), read(program, "other", [1])
    mine.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    other.write(ab.sinks.Memory("others"))
    log = [Cut("mine", {0: (0, 1)}), Cut("mine", {0: (1, 2)})]
    assert ab.testing.run_sequential(program, log=log) == {
        "out": [{"window_start": 10, "window_end": 20, "n": 1}],
        "others": [],
    }


def test_an_empty_source_has_one_epoch_that_finishes_it():
    """A source without rows must still say that it is finished, or it would hold everything.

    `none` has no rows; its only epoch ends with the end of time. Without it the windows over both
    would wait for ever: with it [0, 10) leaves with a's record once a is finished too.
    """
    program = ab.Program("case")
    a = read(program, "a", [3])
    schema = {"t": a.schema["t"], "s": a.schema["s"]}
    none = program.read(ab.sources.Records([], schema=schema), name="none", event_time="t")
    a.union(none).window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program)["out"] == [
        {"window_start": 0, "window_end": 10, "n": 1}
    ]


def test_a_dead_letter_of_a_round_tells_the_position_its_epoch_got():
    """The epoch of a letter is its epoch's position in the log, also where rounds decide it.

    Rounds of two rows. Round 1: `a` (1, 2) ends with w = 2, `b` (4, null) with w = 4: a's epoch is
    position 0, b's position 1: the letter of b's offset 1 says 1. Round 2: both finish, a (null)
    is position 2, b (null) position 3.
    """
    program = ab.Program("case")
    a = read(program, "a", [1, 2, None], on_error="dead_letter")
    b = read(program, "b", [4, None, None], on_error="dead_letter")
    a.union(b).select("t").write(ab.sinks.Memory("out"))
    told = [each.dead_letters.select("source", "offset", "epoch") for each in (a, b)]
    told[0].union(told[1]).write(ab.sinks.Memory("dead"))
    assert ab.testing.run_sequential(program, epoch_rows=2) == {
        "out": [{"t": 1}, {"t": 2}, {"t": 4}],
        "dead": [
            {"source": "b", "offset": 1, "epoch": 1},
            {"source": "a", "offset": 2, "epoch": 2},
            {"source": "b", "offset": 2, "epoch": 3},
        ],
    }
