"""M1: the meaning of a run is a function of the program and its log."""

import json

import polars as pl
import pytest

import anabranch as ab

Cut = ab.testing.Cut
NEVER = frozenset()


def numbered(times, *, partitions=1, **read):
    """A program that reads rows n = 0, 1, ... at these times; returns it and the stream."""
    program = ab.Program("case")
    rows = [{"t": t, "n": n} for n, t in enumerate(times)]
    source = ab.sources.Records(rows, partitions=partitions)
    return program, program.read(source, name="in", event_time="t", **read)


def ran(program, **how):
    """The rows of the sink `out`."""
    return ab.testing.run_sequential(program, **how)["out"]


def letters(rows):
    """Dead letters with their record read back: how JSON is spaced is nobody's business."""
    return [{**row, "record": json.loads(row["record"])} for row in rows]


class Blocks(ab.sources.Source):
    """Rows n = 0, 1, ... in blocks of two: an offset counts blocks, not rows."""

    schema = pl.Schema({"n": pl.Int64})

    def partitions(self):
        return ["only"]

    def latest(self):
        return {"only": 3}

    def plan(self, start, end):
        return [(start["only"], end["only"])]

    def read(self, split):
        start, end = split
        yield from pl.DataFrame({"n": range(start * 2, end * 2)}).to_arrow().to_batches()


def test_an_epoch_is_read_in_partition_order_and_each_partition_in_offset_order():
    """Partitions go by their own order, not by the order in which a cut names them.

    Row i is in partition i mod 2, so partition 0 holds 0, 2, 4 and partition 1 holds 1, 3, 5. The
    first epoch names partition 1 first, and still gives partition 0's offset 0 (row 0), then
    partition 1's offsets 0 and 1 (rows 1, 3). The second gives offsets 1, 2 of partition 0 (rows
    2, 4), then offset 2 of partition 1 (row 5).
    """
    program, stream = numbered([0] * 6, partitions=2)
    stream.select("n").write(ab.sinks.Memory("out"))
    log = [Cut("in", {1: (0, 2), 0: (0, 1)}), Cut("in", {1: (2, 3), 0: (1, 3)})]
    assert [{"n": n} for n in (0, 1, 3, 2, 4, 5)] == ran(program, log=log)


@pytest.mark.parametrize(
    ("epoch_rows", "order"),
    [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 1, 3, 4]), (None, [0, 2, 4, 1, 3])],
)
def test_epoch_rows_takes_so_many_rows_from_each_partition_a_round(epoch_rows, order):
    """`epoch_rows=n` makes epochs of up to n rows from each partition; None makes one of all.

    Partition 0 holds rows 0, 2, 4 and partition 1 rows 1, 3. One at a time: (0, 1), (2, 3), (4).
    Two at a time: 0, 2 of partition 0 and then 1, 3 of partition 1, then 4 alone. All at once: the
    whole of partition 0 before the whole of partition 1.
    """
    program, stream = numbered([0] * 5, partitions=2)
    stream.select("n").write(ab.sinks.Memory("out"))
    assert [{"n": n} for n in order] == ran(program, epoch_rows=epoch_rows)


def test_other_cuts_of_the_same_input_are_another_log_and_may_mean_something_else():
    """Where the epochs end says when watermarks pass, and so what is late.

    Times 1, 12, 5. In one epoch all three records come before the watermark (the end of time, as
    Records is finished): [0, 10) has 1 and 5, [10, 20) has 12. Cut behind the second record the
    first epoch ends with w = 12 and lets [0, 10) leave with the 1 alone; the 5 then comes for a
    window whose end 10 <= 12, is late, and [10, 20) leaves with the 12 at the end of time.
    """
    program, stream = numbered([1, 12, 5])
    stream.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    first, second = {"window_start": 0, "window_end": 10}, {"window_start": 10, "window_end": 20}
    assert [{**first, "n": 2}, {**second, "n": 1}] == ran(program, log=[Cut("in", {0: (0, 3)})])
    assert [{**first, "n": 1}, {**second, "n": 1}] == ran(
        program, log=[Cut("in", {0: (0, 2)}), Cut("in", {0: (2, 3)})]
    )


def test_only_what_the_log_names_is_read():
    """A log that stops early is a run that stops early.

    The log has one epoch, rows 0 and 1 of four, at times 3 and 14: w = 14 behind it. Both pass the
    select; [0, 10) leaves with one row. [10, 20) has end 20 > 14 and stays open for ever, since
    no further epoch comes.
    """
    program, stream = numbered([3, 14, 25, 36])
    stream.select("n").write(ab.sinks.Memory("rows"))
    stream.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    written = ab.testing.run_sequential(program, log=[Cut("in", {0: (0, 2)})])
    assert {
        "rows": [{"n": 0}, {"n": 1}],
        "out": [{"window_start": 0, "window_end": 10, "n": 1}],
    } == written


def test_no_epochs_no_rows():
    """The empty log has no records and no watermark: nothing happens, every sink is there."""
    program, stream = numbered([3, 14])
    stream.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    assert ran(program, log=[]) == []


def test_a_quarantined_offset_is_passed_over_and_told_in_the_dead_letters():
    """Quarantine is part of the log: the record never enters the program.

    Rows 0, 1 in the first epoch, 2, 3 in the second; the log quarantines offset 1 and offset 2 of
    partition 0, each in its epoch. Rows 0 and 3 pass. The two dead letters come from the read
    itself, with the position of their epoch (0, then 1), no error and the record as it is.
    """
    program, stream = numbered([0, 0, 0, 0], on_error="dead_letter")
    stream.select("n").write(ab.sinks.Memory("out"))
    stream.dead_letters.write(ab.sinks.Memory("dead"))
    log = [
        Cut("in", {0: (0, 2)}, quarantined=frozenset({(0, 1)})),
        Cut("in", {0: (2, 4)}, quarantined=frozenset({(0, 2)})),
    ]
    written = ab.testing.run_sequential(program, log=log)
    letter = {
        "operator": "in",
        "source": "in",
        "partition": "0",
        "reason": "quarantined",
        "error": None,
        "traceback": None,
    }
    assert written["out"] == [{"n": 0}, {"n": 3}]
    assert letters(written["dead"]) == [
        {**letter, "offset": 1, "epoch": 0, "record": {"t": 0, "n": 1}},
        {**letter, "offset": 2, "epoch": 1, "record": {"t": 0, "n": 2}},
    ]


def test_a_quarantined_record_is_in_no_window_even_if_nobody_reads_dead_letters():
    """The record at offset 1 would have made [0, 10) count three; it was never there.

    Times 1, 2, 3 in one epoch, offset 1 quarantined: [0, 10) counts rows 0 and 2, and leaves at
    the end of time.
    """
    program, stream = numbered([1, 2, 3])
    stream.window(ab.tumbling("10 ms")).agg(ns=ab.collect("n")).write(ab.sinks.Memory("out"))
    log = [Cut("in", {0: (0, 3)}, quarantined=frozenset({(0, 1)}))]
    assert ran(program, log=log) == [{"window_start": 0, "window_end": 10, "ns": [0, 2]}]


def test_quarantine_is_by_partition():
    """(1, 0) is the first row of partition 1 and no other first row.

    Partition 0 holds rows 0, 2 and partition 1 rows 1, 3. Quarantined is (1, 0), which is row 1.
    """
    program, stream = numbered([0] * 4, partitions=2)
    stream.select("n").write(ab.sinks.Memory("out"))
    log = [Cut("in", {0: (0, 2), 1: (0, 2)}, quarantined=frozenset({(1, 0)}))]
    assert ran(program, log=log) == [{"n": 0}, {"n": 2}, {"n": 3}]


def test_a_quarantined_row_has_its_number_in_the_partition_whatever_offsets_count():
    """An offset may count anything (here blocks of two rows); rows are numbered as rows.

    Offsets (0, 1) are the rows 0, 1 and offsets (1, 3) the rows 2, 3, 4, 5. The log quarantines
    row number 3 of the partition in the second epoch: that is n = 3.
    """
    program = ab.Program("case")
    stream = program.read(Blocks(), name="in", on_error="dead_letter")
    stream.write(ab.sinks.Memory("out"))
    stream.dead_letters.select("offset", "epoch", "record").write(ab.sinks.Memory("dead"))
    log = [
        Cut("in", {"only": (0, 1)}),
        Cut("in", {"only": (1, 3)}, quarantined=frozenset({("only", 3)})),
    ]
    written = ab.testing.run_sequential(program, log=log)
    assert written["out"] == [{"n": n} for n in (0, 1, 2, 4, 5)]
    assert letters(written["dead"]) == [{"offset": 3, "epoch": 1, "record": {"n": 3}}]


def test_the_version_of_a_table_is_fixed_in_the_log():
    """A version holds from the epoch that names it until an epoch that names another.

    Four epochs of one record each. Epoch 0 names no version: the table as the program has it, 1.
    Epoch 1 names the version with 2, epoch 2 none (2 still holds), epoch 3 the one with 3.
    """
    program = ab.Program("case")
    stream = program.read(ab.sources.Records([{"k": "a", "n": n} for n in range(4)]), name="in")
    table = [pl.DataFrame({"k": ["a"], "price": [price]}) for price in (1, 2, 3)]
    stream.lookup(table[0], on="k", name="prices").write(ab.sinks.Memory("out"))
    log = [
        Cut("in", {0: (0, 1)}),
        Cut("in", {0: (1, 2)}, tables={"prices": table[1]}),
        Cut("in", {0: (2, 3)}),
        Cut("in", {0: (3, 4)}, tables={"prices": table[2]}),
    ]
    assert ran(program, log=log) == [
        {"k": "a", "n": 0, "price": 1},
        {"k": "a", "n": 1, "price": 2},
        {"k": "a", "n": 2, "price": 2},
        {"k": "a", "n": 3, "price": 3},
    ]


def test_a_new_version_of_a_table_may_lose_and_gain_keys():
    """A version replaces the table whole: nothing of the old one shines through.

    Epoch 0 knows `a` only, so the `b` of row 1 finds nothing (left: null). From epoch 1 on the
    table knows `b` only: the `a` of row 2 finds nothing any more, the `b` of row 3 does.
    """
    program = ab.Program("case")
    rows = [{"k": k} for k in "abab"]
    stream = program.read(ab.sources.Records(rows), name="in")
    old, new = (pl.DataFrame({"k": [k], "v": [v]}) for k, v in (("a", 1), ("b", 2)))
    stream.lookup(old, on="k", how="left", name="table").write(ab.sinks.Memory("out"))
    log = [Cut("in", {0: (0, 2)}), Cut("in", {0: (2, 4)}, tables={"table": new})]
    assert ran(program, log=log) == [
        {"k": "a", "v": 1},
        {"k": "b", "v": None},
        {"k": "a", "v": None},
        {"k": "b", "v": 2},
    ]


def test_a_version_named_with_one_sources_epoch_holds_for_rows_of_every_source():
    """The log is one sequence: a version counts from its epoch on, whoever's epoch it was.

    The lookup is behind a union of `one` and `two`. Epoch 0 (one): version 1. Epoch 1 (two, no
    records) brings version 2. Epoch 2 (one) is looked up in version 2.
    """
    program = ab.Program("case")
    one = program.read(ab.sources.Records([{"k": 1}, {"k": 1}]), name="one")
    two = program.read(ab.sources.Records([{"k": 1}]), name="two")
    table = [pl.DataFrame({"k": [1], "v": [v]}) for v in (1, 2)]
    one.union(two).lookup(table[0], on="k", name="table").write(ab.sinks.Memory("out"))
    log = [
        Cut("one", {0: (0, 1)}),
        Cut("two", {0: (0, 0)}, tables={"table": table[1]}),
        Cut("one", {0: (1, 2)}),
    ]
    assert ran(program, log=log) == [{"k": 1, "v": 1}, {"k": 1, "v": 2}]


def test_records_of_an_epoch_come_before_its_watermark():
    """Of each epoch the records one at a time, then the watermark: order inside does not close.

    One epoch with times 25, 1, 12: none is behind anything, as w comes last (25, unfinished). Then
    [0, 10) and [10, 20) leave with one record each; [20, 30) has end 30 > 25.
    """
    program, stream = numbered([25, 1, 12])
    stream.window(ab.tumbling("10 ms")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    assert ran(program, log=[Cut("in", {0: (0, 3)}, finished=NEVER)]) == [
        {"window_start": 0, "window_end": 10, "n": 1},
        {"window_start": 10, "window_end": 20, "n": 1},
    ]
