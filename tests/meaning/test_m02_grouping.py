"""M2: epoch, job and commit are three things; how epochs are grouped never shows."""

from itertools import combinations, pairwise

import polars as pl
import pytest

import anabranch as ab

Cut = ab.testing.Cut

TIMES = [1, 4, 11, 15, 22]
WINDOWS = [
    {"window_start": 0, "window_end": 10, "ns": [0, 1]},
    {"window_start": 10, "window_end": 20, "ns": [2, 3]},
    {"window_start": 20, "window_end": 30, "ns": [4]},
]


def program_of_windows():
    """Rows n = 0, 1, ... at TIMES, collected by windows of 10 ms, and running sums beside them."""
    program = ab.Program("case")
    rows = [{"t": t, "n": n} for n, t in enumerate(TIMES)]
    stream = program.read(ab.sources.Records(rows), name="in", event_time="t")
    stream.window(ab.tumbling("10 ms")).agg(ns=ab.collect("n")).write(ab.sinks.Memory("out"))
    stream.process(running_sum, out={"sum": pl.Int64}).write(ab.sinks.Memory("sums"))
    return program


def running_sum(record, state):
    """The sum of n so far."""
    state.value = (state.value or 0) + record["n"]
    return {"sum": state.value}


def cut_at(*places):
    """The log that ends an epoch at each of these rows and at the last."""
    bounds = [0, *places, len(TIMES)]
    return [Cut("in", {0: pair}) for pair in pairwise(bounds)]


@pytest.mark.parametrize("form", [list, tuple, iter])
def test_a_log_means_the_same_however_it_is_handed_over_and_however_often(form):
    """The output is a function of the log: a second run of the same program gives it again.

    Epochs (1, 4), (11, 15), (22): w = 4, then 15, which lets [0, 10) leave with rows 0 and 1, then
    the end of time, which lets [10, 20) leave with 2, 3 and [20, 30) with 4. Sums of n: 0, 1, 3,
    6, 10.
    """
    program = program_of_windows()
    expected = {"out": WINDOWS, "sums": [{"sum": s} for s in (0, 1, 3, 6, 10)]}
    for _ in range(2):
        assert expected == ab.testing.run_sequential(program, log=form(cut_at(2, 4)))


@pytest.mark.parametrize(
    "places", [places for k in range(5) for places in combinations(range(1, 5), k)], ids=str
)
def test_cuts_do_not_show_for_one_partition_in_order(places):
    """One source, one partition, no timers, no record behind a watermark: any cuts, same output.

    Times ascend, so whatever the cuts, w at the end of an epoch is the time of its last record and
    no later record is behind it. Every window has all its records before a w at or behind its end
    comes, and windows leave in order of their ends: always the same three rows. The running sums
    see the records in the same order.
    """
    expected = {"out": WINDOWS, "sums": [{"sum": s} for s in (0, 1, 3, 6, 10)]}
    assert expected == ab.testing.run_sequential(program_of_windows(), log=cut_at(*places))


@pytest.mark.parametrize(
    ("epochs", "windows", "sums"), [(0, 0, 0), (1, 0, 2), (2, 1, 4), (3, 3, 5)]
)
def test_a_commit_after_any_epoch_holds_a_prefix_of_the_output(epochs, windows, sums):
    """What is written for a prefix of the log is what the whole log writes first.

    Epochs (1, 4), (11, 15), (22). After one: w = 4 closes nothing, two sums. After two: w = 15
    closed [0, 10), four sums. After three: the end of time, everything.
    """
    log = cut_at(2, 4)[:epochs]
    written = ab.testing.run_sequential(program_of_windows(), log=log)
    assert written == {
        "out": WINDOWS[:windows],
        "sums": [{"sum": s} for s in (0, 1, 3, 6, 10)][:sums],
    }


def test_rounds_are_the_log_that_they_make():
    """`epoch_rows=2` is the log with an epoch behind every second row.

    Rows (0, 1), (2, 3), (4): w = 4, 15, the end of time, as in the explicit log.
    """
    expected = {"out": WINDOWS, "sums": [{"sum": s} for s in (0, 1, 3, 6, 10)]}
    assert expected == ab.testing.run_sequential(program_of_windows(), epoch_rows=2)
    assert expected == ab.testing.run_sequential(program_of_windows(), log=cut_at(2, 4))


def test_epochs_without_records_between_others_do_not_show():
    """An epoch of 1 ms may be empty: it gives no rows and moves no watermark.

    After (1, 4) w = 4; three empty epochs leave the greatest time seen at 4, so w stays 4 and no
    window leaves; then (11, 15, 22) and the end of time close all three windows.
    """
    empty = [Cut("in", {0: (2, 2)})] * 3
    log = [Cut("in", {0: (0, 2)}), *empty, Cut("in", {0: (2, 5)}), Cut("in", {0: (5, 5)})]
    expected = {"out": WINDOWS, "sums": [{"sum": s} for s in (0, 1, 3, 6, 10)]}
    assert expected == ab.testing.run_sequential(program_of_windows(), log=log)


def test_a_partition_an_epoch_does_not_name_gave_nothing():
    """Leaving a partition out and giving it an empty range are the same log.

    Partition 0 has rows 0, 2 and partition 1 rows 1, 3. Epoch 0 reads partition 1, epoch 1
    partition 0: rows 1, 3, then 0, 2, both times.
    """
    program = ab.Program("case")
    source = ab.sources.Records([{"n": n} for n in range(4)], partitions=2)
    program.read(source, name="in").write(ab.sinks.Memory("out"))
    expected = [{"n": n} for n in (1, 3, 0, 2)]
    short = [Cut("in", {1: (0, 2)}), Cut("in", {0: (0, 2)})]
    long = [Cut("in", {0: (0, 0), 1: (0, 2)}), Cut("in", {0: (0, 2), 1: (2, 2)})]
    assert expected == ab.testing.run_sequential(program, log=short)["out"]
    assert expected == ab.testing.run_sequential(program, log=long)["out"]


def test_another_query_in_the_same_run_does_not_show():
    """Two unrelated pipelines in one program give what each gives alone on its part of the log.

    `in` as above. `other` has its own epochs between: its rows come in its order, 7, 8, and its
    watermark feeds nothing of the windows over `in`.
    """
    program = program_of_windows()
    other = program.read(ab.sources.Records([{"m": 7}, {"m": 8}]), name="other")
    other.write(ab.sinks.Memory("others"))
    one, two, three = cut_at(2, 4)
    log = [Cut("other", {0: (0, 1)}), one, two, Cut("other", {0: (1, 2)}), three]
    assert ab.testing.run_sequential(program, log=log) == {
        "out": WINDOWS,
        "sums": [{"sum": s} for s in (0, 1, 3, 6, 10)],
        "others": [{"m": 7}, {"m": 8}],
    }
