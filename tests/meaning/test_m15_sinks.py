"""M15, as far as the sequential run shows it: what is written where, and that no sink is touched."""

import polars as pl
import pytest

import anabranch as ab


class Untouchable(ab.sinks.Sink):
    """A sink that must not be used."""

    def __init__(self, name=None):
        """Have a name or none."""
        if name is not None:
            self.name = name

    def write(self, batches, epoch, attempt):
        """Fail."""
        raise AssertionError("written to")

    def publish(self, messages, epoch):
        """Fail."""
        raise AssertionError("published")

    def abort(self, messages, epoch):
        """Fail."""
        raise AssertionError("aborted")

    def rewind(self, after):
        """Fail."""
        raise AssertionError("rewound")


def reading(*values, partitions=1):
    """A program that reads these values as column x."""
    program = ab.Program("m15")
    source = ab.sources.Records([{"x": x} for x in values], {"x": pl.Int64}, partitions)
    return program, program.read(source, name="numbers")


def test_the_sequential_run_touches_no_sink():
    """run_sequential gives the rows of each sink by its name; it neither stages nor publishes.

    Every method of the sink raises; the run gives 1, 2 all the same, with one epoch and with two.
    """
    program, stream = reading(1, 2)
    stream.write(Untouchable("out"))
    assert ab.testing.run_sequential(program) == {"out": [{"x": 1}, {"x": 2}]}
    assert ab.testing.run_sequential(program, epoch_rows=1) == {"out": [{"x": 1}, {"x": 2}]}


def test_a_memory_sink_stays_empty_and_the_run_may_be_repeated():
    """Two runs of one program give the same: nothing is left over from the first, nor in the sink."""
    program, stream = reading(1, 2)
    sink = ab.sinks.Memory("out")

    def count(record, state):
        state.value = (state.value or 0) + 1
        return {"n": state.value}

    stream.process(count, out={"n": pl.Int64}).write(sink)
    first, second = ab.testing.run_sequential(program), ab.testing.run_sequential(program)
    assert first == second == {"out": [{"n": 1}, {"n": 2}]}
    assert sink.rows == []


def test_every_sink_gets_all_rows_of_its_stream_and_one_that_gets_none_is_there():
    """One stream into two sinks, a filtered one into a third, and one that nothing reaches."""
    program, stream = reading(1, 2, 3)
    stream.write(ab.sinks.Memory("all"))
    stream.write(ab.sinks.Memory("all again"))
    stream.filter(pl.col("x") > 1).write(ab.sinks.Memory("some"))
    stream.filter(pl.col("x") > 9).write(ab.sinks.Memory("none"))
    rows = [{"x": 1}, {"x": 2}, {"x": 3}]
    assert ab.testing.run_sequential(program) == {
        "all": rows,
        "all again": rows,
        "some": rows[1:],
        "none": [],
    }


def test_a_sink_is_called_by_the_name_given_to_write_or_its_own_or_write_n():
    """write(sink, name="mine") wins over the sink's name; without either it is write-1."""
    program, stream = reading(1)
    stream.write(ab.sinks.Memory("own"), name="mine")
    stream.write(ab.sinks.Memory("own"))
    assert ab.testing.run_sequential(program) == {"mine": [{"x": 1}], "own": [{"x": 1}]}
    program, stream = reading(1)
    stream.write(Untouchable())
    assert ab.testing.run_sequential(program) == {"write-1": [{"x": 1}]}


def test_two_sinks_of_one_name_are_refused():
    """Rows are found by the sink's name, so there is one of each."""
    _, stream = reading(1)
    stream.write(ab.sinks.Memory("out"))
    with pytest.raises(ab.ProgramError):
        stream.write(ab.sinks.Memory("out"))


def test_an_ordered_sink_has_rows_by_epoch_partition_and_offset():
    """Two partitions, epochs of one row of each: rows 0..4 are in partitions 0, 1, 0, 1, 0.

    Epoch 0: 10 (partition 0), 11 (partition 1). Epoch 1: 12, 13. Epoch 2: 14. With one epoch for
    all: partition 0 gives 10, 12, 14, then partition 1 gives 11, 13.
    """
    program, stream = reading(10, 11, 12, 13, 14, partitions=2)
    stream.write(ab.sinks.Memory("out"))
    small = ab.testing.run_sequential(program, epoch_rows=1)["out"]
    assert [row["x"] for row in small] == [10, 11, 12, 13, 14]
    large = ab.testing.run_sequential(program)["out"]
    assert [row["x"] for row in large] == [10, 12, 14, 11, 13]


def test_an_unordered_sink_has_the_same_rows_in_some_order():
    """ordered=False promises the content alone: it is compared as a multiset."""
    program, stream = reading(3, 1, 3, 2, partitions=2)
    stream.write(ab.sinks.Memory("out"), ordered=False)
    out = ab.testing.run_sequential(program)["out"]
    assert sorted(row["x"] for row in out) == [1, 2, 3, 3]
    assert all(list(row) == ["x"] for row in out)


def test_columns_of_a_sink_s_rows_are_in_the_order_of_the_schema():
    """select gives b, a; a map with out a, b, where the dict has them the other way: a, b."""
    program, stream = reading(1)
    both = stream.select(b=pl.col("x") + 1, a="x")
    both.write(ab.sinks.Memory("selected"))
    both.map(lambda r: {"b": r["b"], "a": r["a"]}, out={"a": pl.Int64, "b": pl.Int64}).write(
        ab.sinks.Memory("mapped")
    )
    rows = ab.testing.run_sequential(program)
    assert list(rows["selected"][0].items()) == [("b", 2), ("a", 1)]
    assert list(rows["mapped"][0].items()) == [("a", 1), ("b", 2)]


def test_dead_letters_and_late_records_may_be_written_like_any_stream():
    """Three ports of two operators into three sinks; the order in each is that of the records.

    Epoch 0: t = 20 passes the map, watermark 20. Epoch 1: 5 is late for [0, 10); -1 fails in the
    map. The source finishes: [20, 30) leaves with 20 alone.
    """
    program = ab.Program("m15")
    source = ab.sources.Records([{"t": 20}, {"t": 5}, {"t": -1}])
    stream = program.read(source, name="times", event_time="t")

    def positive(record):
        if record["t"] < 0:
            raise ValueError("negative")
        return record

    mapped = stream.map(positive, out={"t": pl.Int64}, on_error="dead_letter", name="positive")
    windowed = mapped.window(ab.tumbling("10 ms"))
    mapped.dead_letters.select("operator", "error").write(ab.sinks.Memory("letters"))
    windowed.late.write(ab.sinks.Memory("late"))
    windowed.agg(n=ab.count()).write(ab.sinks.Memory("out"))
    log = [
        ab.testing.Cut("times", {0: (0, 1)}, finished=frozenset()),
        ab.testing.Cut("times", {0: (1, 3)}, finished=frozenset({0})),
    ]
    assert ab.testing.run_sequential(program, log=log) == {
        "letters": [{"operator": "positive", "error": "ValueError: negative"}],
        "late": [{"t": 5}],
        "out": [{"window_start": 20, "window_end": 30, "n": 1}],
    }


def test_what_a_reader_does_to_a_row_does_not_change_another_sink_s():
    """Rows in the result are dicts of their own, also where two sinks got the same row."""
    program, stream = reading(1)
    stream.write(ab.sinks.Memory("a"))
    stream.write(ab.sinks.Memory("b"))
    rows = ab.testing.run_sequential(program)
    rows["a"][0]["x"] = 100
    assert rows["b"] == [{"x": 1}]
