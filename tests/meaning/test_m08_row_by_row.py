"""M8: row by row."""

import json
from datetime import date, datetime

import polars as pl
import pytest

import anabranch as ab

Cut = ab.testing.Cut
NAN = float("nan")
N = {"n": pl.Int64}


def given(rows, schema=None, *, partitions=1, **how):
    """A program that reads these rows; returns it and the stream."""
    program = ab.Program("case")
    source = ab.sources.Records(rows, schema=schema, partitions=partitions)
    return program, program.read(source, name="in", **how)


def numbers(*values, **how):
    """A program that reads rows n."""
    return given([{"n": n} for n in values], N, **how)


def written(program, stream, **how):
    """The rows of a stream."""
    stream.write(ab.sinks.Memory("out"))
    return ab.testing.run_sequential(program, **how)["out"]


def ns(*values):
    """Rows n."""
    return [{"n": n} for n in values]


def letters(rows):
    """Dead letters with their record read back: how JSON is spaced is nobody's business."""
    return [{**row, "record": json.loads(row["record"])} for row in rows]


def line_of(fn, below):
    """Where a function's line is, as a dead letter tells it."""
    code = fn.__code__
    return f"{code.co_filename}:{code.co_firstlineno + below} in {code.co_name}"


# Expressions


def test_a_null_predicate_drops_the_row():
    """Null is not true: neither n > 1 nor its negation holds for a null n.

    1 fails, 2 passes, null gives null and is dropped; the negation passes 1 alone.
    """
    program, stream = numbers(1, 2, None)
    assert written(program, stream.filter(pl.col("n") > 1)) == ns(2)
    program, stream = numbers(1, 2, None)
    assert written(program, stream.filter(~(pl.col("n") > 1))) == ns(1)


def test_a_null_in_a_boolean_column_drops_the_row():
    """The column itself as predicate: true passes, false and null do not."""
    rows = [{"n": n, "ok": ok} for n, ok in enumerate([True, None, False])]
    program, stream = given(rows)
    assert written(program, stream.filter(pl.col("ok")).select("n")) == ns(0)


def test_a_predicate_may_name_its_column_by_a_pattern():
    """A regular expression that names one column is that column: ^ok$ is ok.

    Rows 0 (true) and 2 (true) pass, row 1 does not.
    """
    rows = [{"n": n, "ok": ok} for n, ok in enumerate([True, False, True])]
    program, stream = given(rows)
    assert written(program, stream.filter(pl.col("^ok$")).select("n")) == ns(0, 2)


def test_a_function_as_predicate_passes_the_row_as_it_was():
    """filter decides; what the function does to its copy is nobody's business.

    The function sets n to 99 and holds for odd n: 1, 3 pass as they came; None holds for nobody.
    """
    program, stream = numbers(1, 2, 3, 4)

    def odd(record):
        n, record["n"] = record["n"], 99
        return n % 2 == 1 or None

    assert written(program, stream.filter(odd)) == ns(1, 3)


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("n") > pl.col("n").mean(),
        pl.col("n") == pl.col("n").max(),
        pl.col("n").cum_sum() > 1,
        pl.col("n").shift(1) > 1,
        pl.col("n").rank() > 1,
        pl.col("n").is_duplicated(),
        pl.col("n") > pl.col("n").first().over("n"),
        pl.col("n").fill_null(strategy="forward") > 1,
        (pl.col("n") - pl.col("n").min()).abs() > 1,
        pl.len() > pl.col("n"),
        pl.col("n").is_in(pl.col("n").unique().implode()),
        pl.col("n").map_batches(lambda s: s > 1, return_dtype=pl.Boolean),
    ],
    ids=str,
)
def test_expressions_that_look_beyond_the_row_are_refused_where_they_are_written(expression):
    """Every node must be row separable, at whatever depth: the root alone does not tell."""
    _, stream = numbers(1, 2)
    with pytest.raises(ab.ProgramError):
        stream.filter(expression)
    with pytest.raises(ab.ProgramError):
        stream.select(x=expression)
    with pytest.raises(ab.ProgramError):
        stream.with_columns(x=expression)


def test_what_looks_across_a_row_or_into_its_list_is_row_by_row():
    """Horizontal functions and those of a list see one row.

    Row 0: a = 1, b = 5, list [1, 3]: greatest 5, mean 2.0. Row 1: a = 7, b = null, list []:
    greatest 7 (nulls are passed over), mean of nothing null.
    """
    rows = [{"a": 1, "b": 5, "list": [1, 3]}, {"a": 7, "b": None, "list": []}]
    program, stream = given(rows)
    made = stream.select(top=pl.max_horizontal("a", "b"), mean=pl.col("list").list.mean())
    assert written(program, made) == [{"top": 5, "mean": 2.0}, {"top": 7, "mean": None}]


def test_business_days_are_row_by_row():
    """Each date alone decides: Friday 2024-05-03 and a business day is Monday the 6th."""
    program, stream = given([{"d": date(2024, 5, 3)}, {"d": date(2024, 5, 6)}])
    assert written(program, stream.select(pl.col("d").dt.add_business_days(1))) == [
        {"d": date(2024, 5, 6)},
        {"d": date(2024, 5, 7)},
    ]


def test_columns_are_in_the_order_written():
    """select: its own order. with_columns: an old name keeps its place, a new one goes last."""
    program, stream = given([{"a": 1, "b": 2, "c": 3}])
    made = stream.with_columns(d=pl.lit(4), a=pl.col("a") + 10).rename({"b": "z"}).drop("c")
    made.write(ab.sinks.Memory("kept"))
    stream.select("c", a2=pl.col("a") * 2).write(ab.sinks.Memory("chosen"))
    rows = ab.testing.run_sequential(program)
    assert {name: [list(row.items()) for row in found] for name, found in rows.items()} == {
        "kept": [[("a", 11), ("z", 2), ("d", 4)]],
        "chosen": [[("c", 3), ("a2", 2)]],
    }


def test_new_columns_see_the_old_ones():
    """with_columns computes all at once: b = a is the old a, whatever a becomes."""
    program, stream = given([{"a": 1, "b": 2}])
    made = stream.with_columns(a=pl.col("b"), b=pl.col("a"))
    assert written(program, made) == [{"a": 2, "b": 1}]


def test_an_expression_that_fails_on_a_row_fails_the_run():
    """A run that fails raises RunError, its cause chained, whoever computed the value.

    "x" is no number: the strict cast fails on row 1.
    """
    program, stream = given([{"s": "1"}, {"s": "x"}])
    stream.select(n=pl.col("s").cast(pl.Int64)).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError) as caught:
        ab.testing.run_sequential(program)
    assert isinstance(caught.value.__cause__, pl.exceptions.PolarsError)


# Map and flat_map


def test_map_makes_one_of_one():
    """Each record becomes one, in order; a missing key is null, columns are in `out`'s order."""
    program, stream = numbers(1, 2)
    out = {"b": pl.Int64, "a": pl.Int64}
    made = stream.map(lambda r: {"a": r["n"]} if r["n"] == 1 else {"a": 2, "b": 3}, out=out)
    rows = written(program, made)
    assert [list(row.items()) for row in rows] == [
        [("b", None), ("a", 1)],
        [("b", 3), ("a", 2)],
    ]


@pytest.mark.parametrize("answer", [None, [], [{"n": 1}], 5, "n", (("n", 1),)], ids=repr)
def test_map_must_return_a_record(answer):
    """None is an error, and so is everything that is no dict."""
    program, stream = numbers(1)
    stream.map(lambda _: answer, out=N).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program)


def test_what_a_function_raises_is_the_cause_of_the_runs_error():
    """RunError, cause chained: the very exception."""
    program, stream = numbers(1)
    mine = KeyError("mine")

    def fail(record):
        raise mine

    stream.map(fail, out=N).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError) as caught:
        ab.testing.run_sequential(program)
    assert caught.value.__cause__ is mine


def test_flat_map_yields_or_returns_any_number():
    """By n: 0 returns None, 1 a dict, 2 a list of two, 3 an empty list, 4 a generator of two.

    Each record's rows stand at its place.
    """
    program, stream = numbers(0, 1, 2, 3, 4)

    def some(record):
        n = record["n"]
        answers = [None, {"n": 10}, [{"n": 20}, {"n": 21}], [], ({"n": 40 + i} for i in range(2))]
        return answers[n]

    assert written(program, stream.flat_map(some, out=N)) == ns(10, 20, 21, 40, 41)


def test_a_generator_may_yield_nothing_and_its_return_value_is_no_row():
    """What counts is what is yielded.

    n = 1 yields nothing; n = 2 yields 2 and returns a dict, which is dropped.
    """
    program, stream = numbers(1, 2)

    def some(record):
        if record["n"] == 2:
            yield {"n": 2}
        return {"n": 99}

    assert written(program, stream.flat_map(some, out=N)) == ns(2)


@pytest.mark.parametrize("answer", [5, "text", [5], [None], [[{"n": 1}]]], ids=repr)
def test_flat_map_gives_records_only(answer):
    """A dict, dicts, or None; anything else is an error of that record."""
    program, stream = numbers(1)
    stream.flat_map(lambda _: answer, out=N).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program)


# Copies


def test_records_are_copied_at_each_yield():
    """One dict, changed and yielded thrice, is three records.

    n = 0, 1, 2 with a list that grows: each row has the list as it was when it was yielded.
    """
    program, stream = numbers(0)

    def grow(record):
        record["list"] = []
        for n in range(3):
            record["n"] = n
            record["list"].append(n)
            yield record
        record["n"] = 99

    made = stream.flat_map(grow, out={"n": pl.Int64, "list": pl.List(pl.Int64)})
    assert written(program, made) == [
        {"n": 0, "list": [0]},
        {"n": 1, "list": [0, 1]},
        {"n": 2, "list": [0, 1, 2]},
    ]


def test_what_a_function_does_to_its_record_is_not_seen_by_others():
    """Two functions and a sink read one stream; one of them ruins its copy, lists inside too."""
    program, stream = given([{"n": 1, "list": [1, 2]}])

    def ruin(record):
        record["n"] = -1
        record["list"].clear()
        return {"n": 0}

    def look(record):
        return {"n": record["n"] * 10 + len(record["list"])}

    stream.map(ruin, out=N).write(ab.sinks.Memory("ruined"))
    stream.map(look, out=N).write(ab.sinks.Memory("looked"))
    stream.write(ab.sinks.Memory("out"))
    assert ab.testing.run_sequential(program) == {
        "ruined": ns(0),
        "looked": ns(12),
        "out": [{"n": 1, "list": [1, 2]}],
    }


def test_what_a_function_does_to_a_returned_record_later_is_nobodys_business():
    """Records kept and changed after they were returned are what they were when they left.

    Each call sets n = -1 in all dicts it returned before. A window holds the rows until the end
    of time and still has 1, 2, 3.
    """
    program, stream = given([{"t": t} for t in (1, 2, 3)], event_time="t")
    kept = []

    def remember(record):
        for each in kept:
            each["n"] = -1
            each["list"].append(-1)
        kept.append({"n": record["t"], "list": [record["t"]]})
        return kept[-1]

    made = stream.map(remember, out={"n": pl.Int64, "list": pl.List(pl.Int64)})
    results = made.window(ab.tumbling("10 ms")).agg(n=ab.collect("n"), lists=ab.collect("list"))
    assert written(program, results.select("n", "lists")) == [
        {"n": [1, 2, 3], "lists": [[1], [2], [3]]}
    ]


def test_a_record_handed_through_is_a_copy_too():
    """Returning the given record and changing it at the next call changes nothing."""
    program, stream = numbers(1, 2, 3)
    last = []

    def through(record):
        for each in last:
            each["n"] = -1
        last[:] = [record]
        return record

    assert written(program, stream.map(through, out=N)) == ns(1, 2, 3)


# Batches


def test_map_batches_gets_an_epochs_rows_as_one_frame_in_order():
    """Partition 0 holds 0, 2, 4, partition 1 holds 1, 3; two epochs: (0, 2, 1, 3), (4).

    The function tells the height of its frame and the running number of each row in it.
    """
    program, stream = numbers(0, 1, 2, 3, 4, partitions=2)

    def told(frame):
        of, at = pl.len().cast(pl.Int64), pl.col("n").cum_count().cast(pl.Int64)
        return frame.with_columns(of=of, at=at)

    made = stream.map_batches(told, out={"n": pl.Int64, "of": pl.Int64, "at": pl.Int64})
    rows = written(program, made, epoch_rows=2)
    assert [tuple(row.values()) for row in rows] == [
        (0, 4, 1), (2, 4, 2), (1, 4, 3), (3, 4, 4), (4, 1, 1),
    ]  # fmt: skip


def test_map_batches_may_give_more_or_fewer_rows():
    """A frame of any height: here the sum, then the greatest, of each epoch.

    Epochs (1, 2), (3): 3, 2, then 3, 3.
    """
    program, stream = numbers(1, 2, 3)

    def told(frame):
        return pl.DataFrame({"n": [frame["n"].sum(), frame["n"].max()]})

    assert written(program, stream.map_batches(told, out=N), epoch_rows=2) == ns(3, 2, 3, 3)


def test_map_batches_elementwise_is_row_by_row_in_its_place():
    """Elementwise any cut gives the same rows: n + 1 for each, and none for n = 2.

    In a union with its input each row stands behind its cause: the branches of a diamond.
    """
    program, stream = numbers(1, 2, 3)

    def add(frame):
        return frame.filter(pl.col("n") != 2).with_columns(pl.col("n") + 100)

    made = stream.map_batches(add, out=N, elementwise=True)
    assert written(program, stream.union(made)) == ns(1, 101, 2, 3, 103)


def test_map_batches_behind_a_window_gets_the_epochs_results_as_well():
    """The rows that reached it by the epoch's end: those of records, then those of the watermark.

    Epoch 0: times 3, 12: w = 12, [0, 10) leaves: rows 3, 12 and the result 10: one frame of three.
    Epoch 1: time 13, the end of time: rows 13 and the result 20: one of two.
    """
    program, stream = given([{"t": t} for t in (3, 12, 13)], event_time="t")
    ends = stream.window(ab.tumbling("10 ms")).agg(c=ab.count()).select(n="window_end")
    both = stream.select(n="t").union(ends)
    out = {"ns": pl.List(pl.Int64)}
    made = both.map_batches(lambda f: pl.DataFrame({"ns": [f["n"].to_list()]}), out=out)
    log = [Cut("in", {0: (0, 2)}), Cut("in", {0: (2, 3)})]
    assert written(program, made, log=log) == [{"ns": [3, 12, 10]}, {"ns": [13, 20]}]


def test_the_rows_of_a_batch_have_its_greatest_event_time():
    """Which row of a frame was made of which nobody knows: all have the greatest time.

    One epoch of 14, 3: both rows are at 14, in [10, 20).
    """
    program, stream = given([{"t": t, "n": t} for t in (14, 3)], event_time="t")
    made = stream.map_batches(lambda f: f.select("n"), out=N)
    results = made.window(ab.tumbling("10 ms")).agg(ns=ab.collect("n"))
    assert written(program, results) == [{"window_start": 10, "window_end": 20, "ns": [14, 3]}]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda f: f.rename({"n": "m"}),
        lambda f: f.with_columns(m=pl.lit(1)),
        lambda f: f.with_columns(pl.col("n").cast(pl.Float64)),
        lambda f: f.rows(named=True),
        lambda f: None,
    ],
    ids=["name", "more", "type", "dicts", "none"],
)
def test_map_batches_must_give_a_frame_of_the_columns_it_said(wrong):
    """Other columns, other types, no frame: the run fails."""
    program, stream = numbers(1)
    stream.map_batches(wrong, out=N).write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program)


# Split and explode


def test_split_sends_a_row_to_the_first_predicate_that_is_true():
    """Both hold for 6: `two` is written first and takes it. Null is not true: rest.

    2: two; 3: three; 6: two; 7: neither; null: both predicates are null, rest.
    """
    program, stream = numbers(2, 3, 6, 7, None)
    parts = stream.split(two=pl.col("n") % 2 == 0, three=pl.col("n") % 3 == 0)
    parts.two.write(ab.sinks.Memory("two"))
    parts.three.write(ab.sinks.Memory("three"))
    parts.rest.write(ab.sinks.Memory("rest"))
    assert ab.testing.run_sequential(program) == {
        "two": ns(2, 6),
        "three": ns(3),
        "rest": ns(7, None),
    }


def test_a_null_predicate_of_a_split_asks_the_next_one():
    """Not true is not true, whether false or null.

    n null: the first is null, the second (is null) holds.
    """
    program, stream = numbers(1, None)
    parts = stream.split(one=pl.col("n") > 0, missing=pl.col("n").is_null())
    parts.one.write(ab.sinks.Memory("one"))
    parts["missing"].write(ab.sinks.Memory("missing"))
    parts.rest.write(ab.sinks.Memory("rest"))
    assert ab.testing.run_sequential(program) == {"one": ns(1), "missing": ns(None), "rest": []}


def test_explode_makes_a_row_of_each_element_in_order():
    """Elements in list order, the other columns beside each; nulls inside are elements.

    [1, null, 2]: three rows; [] has no elements and gives none; null gives one row with null. That
    is what Polars does by default, and what its users expect of the word.
    """
    rows = [{"a": a, "list": v} for a, v in (("x", [1, None, 2]), ("y", []), ("z", None))]
    program, stream = given(rows, {"a": pl.String, "list": pl.List(pl.Int64)})
    assert written(program, stream.explode("list")) == [
        {"a": "x", "list": 1},
        {"a": "x", "list": None},
        {"a": "x", "list": 2},
        {"a": "z", "list": None},
    ]


def test_explode_of_a_list_of_lists_unfolds_one_level():
    """[[1, 2], []]: rows [1, 2] and []; the empty inner list is an element and stays empty."""
    program, stream = given([{"list": [[1, 2], []]}])
    assert written(program, stream.explode("list")) == [{"list": [1, 2]}, {"list": []}]


# Errors of a record


def picky(record):
    """Fail on n = 2, having ruined the record."""
    n, record["n"] = record["n"], -1
    if n == 2:
        raise ValueError("two is too much")
    return {"n": n * 10}


def test_on_error_skip_drops_the_record_alone():
    """2 fails and is gone; the others go on."""
    program, stream = numbers(1, 2, 3)
    assert written(program, stream.map(picky, out=N, on_error="skip")) == ns(10, 30)


def test_a_dead_letter_tells_everything():
    """Operator, source, partition, offset, epoch, reason, error, traceback, record.

    Partition 0 holds 1, 3, 2; partition 1 holds 2, 4. Rounds of one: epoch 0 takes 1, 2; epoch 1
    takes 3, 4; epoch 2 takes 2. The 2 of partition 1 is its offset 0, in epoch 0; the 2 of
    partition 0 is its offset 2, in epoch 2. The record is the one that came, not the ruined one.
    """
    program, stream = numbers(1, 2, 3, 4, 2, partitions=2)
    made = stream.map(picky, out=N, on_error="dead_letter", name="picky")
    made.dead_letters.write(ab.sinks.Memory("dead"))
    made.write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program, epoch_rows=1)
    letter = {
        "operator": "picky",
        "source": "in",
        "reason": "error",
        "error": "ValueError: two is too much",
        "traceback": line_of(picky, 4),
        "record": {"n": 2},
    }
    assert rows["out"] == ns(10, 30, 40)
    assert letters(rows["dead"]) == [
        {**letter, "partition": "1", "offset": 0, "epoch": 0},
        {**letter, "partition": "0", "offset": 2, "epoch": 2},
    ]
    assert list(rows["dead"][0]) == [
        "operator", "source", "partition", "offset", "epoch",
        "reason", "error", "traceback", "record",
    ]  # fmt: skip


def test_dead_letters_behind_a_flat_map_name_the_record_at_the_operator_and_its_origin():
    """The record is the one that failed, the offset that of the source's record it was made of.

    Record 7 (offset 0) gives 1, 2; record 8 (offset 1) gives 2. picky fails on both 2.
    """
    program, stream = numbers(7, 8)
    made = stream.flat_map(lambda r: ns(1, 2) if r["n"] == 7 else ns(2), out=N)
    mapped = made.map(picky, out=N, on_error="dead_letter")
    told = mapped.dead_letters.select("partition", "offset", "record")
    assert letters(written(program, told)) == [
        {"partition": "0", "offset": 0, "record": {"n": 2}},
        {"partition": "0", "offset": 1, "record": {"n": 2}},
    ]


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_a_record_that_fails_gives_no_rows_at_all(on_error):
    """What it yielded before the error is undone: a record is taken or not.

    n = 1 yields 1 and 10; n = 2 yields 2, then raises.
    """
    program, stream = numbers(1, 2)

    def some(record):
        yield {"n": record["n"]}
        if record["n"] == 2:
            raise ValueError
        yield {"n": record["n"] * 10}

    assert written(program, stream.flat_map(some, out=N, on_error=on_error)) == ns(1, 10)


def test_dead_letters_stand_at_the_place_of_their_record():
    """A letter has its record's key: united with the rows it is where the row would have been."""
    program, stream = numbers(1, 2, 3)
    made = stream.map(picky, out=N, on_error="dead_letter")
    told = made.dead_letters.select(x=pl.format("dead {}", "offset"))
    assert written(program, told.union(made.select(x=pl.format("row {}", "n")))) == [
        {"x": "row 10"},
        {"x": "dead 1"},
        {"x": "row 30"},
    ]


def test_a_null_event_time_obeys_on_error():
    """fail, skip, or a dead letter of the read itself, with its offset and epoch."""
    rows = [{"t": 1}, {"t": None}, {"t": 3}]
    program, stream = given(rows, {"t": pl.Int64}, event_time="t")
    stream.write(ab.sinks.Memory("out"))
    with pytest.raises(ab.RunError):
        ab.testing.run_sequential(program)
    program, stream = given(rows, {"t": pl.Int64}, event_time="t", on_error="skip")
    assert written(program, stream) == [rows[0], rows[2]]
    program, stream = given(rows, {"t": pl.Int64}, event_time="t", on_error="dead_letter")
    stream.write(ab.sinks.Memory("out"))
    told = ("operator", "source", "partition", "offset", "epoch", "reason", "record")
    stream.dead_letters.select(*told).write(ab.sinks.Memory("dead"))
    found = ab.testing.run_sequential(program, epoch_rows=1)
    assert found["out"] == [rows[0], rows[2]]
    assert letters(found["dead"]) == [
        {
            "operator": "in",
            "source": "in",
            "partition": "0",
            "offset": 1,
            "epoch": 1,
            "reason": "error",
            "record": {"t": None},
        }
    ]


def test_the_record_of_a_dead_letter_is_json_whatever_its_floats():
    """JSON knows no NaN and no infinity; the text must be JSON all the same."""
    program, stream = given([{"x": NAN, "y": float("inf"), "n": 1}])

    def fail(record):
        raise ValueError("no")

    made = stream.map(fail, out=N, on_error="dead_letter")
    [row] = written(program, made.dead_letters.select("record"))

    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    assert json.loads(row["record"], parse_constant=refuse)["n"] == 1


# What a Python operator may give


@pytest.mark.parametrize(
    ("value", "dtype", "held"),
    [
        (1, pl.Float64, 1.0),
        (None, pl.Int64, None),
        (-128, pl.Int8, -128),
        (2**64 - 1, pl.UInt64, 2**64 - 1),
        (True, pl.Boolean, True),
        ([1, None], pl.List(pl.Float64), [1.0, None]),
        ((1, 2), pl.List(pl.Int64), [1, 2]),
        (["a"], pl.List(pl.String), ["a"]),
        ([[True], []], pl.List(pl.List(pl.Boolean)), [[True], []]),
        ({"a": 1, "b": "c"}, pl.Struct({"a": pl.Int64, "b": pl.String}), {"a": 1, "b": "c"}),
        ({"a": 1}, pl.Struct({"a": pl.Float64, "b": pl.String}), {"a": 1.0, "b": None}),
        (b"x", pl.Binary, b"x"),
        (datetime(2024, 5, 1), pl.Datetime("us"), datetime(2024, 5, 1)),
    ],
    ids=repr,
)
def test_values_that_fit_their_column(value, dtype, held):
    """int for float is fine and becomes a float; null fits everywhere; inside lists likewise."""
    program, stream = numbers(0)
    [row] = written(program, stream.map(lambda _: {"x": value}, out={"x": dtype}))
    assert row == {"x": held}
    assert type(row["x"]) is type(held)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, pl.Int64),
        (1.0, pl.Int64),
        (True, pl.Float64),
        (1, pl.Boolean),
        ("1", pl.Int64),
        (1, pl.String),
        (128, pl.Int8),
        (-1, pl.UInt8),
        (2**63, pl.Int64),
        ("x", pl.Binary),
        (b"x", pl.String),
        ([True], pl.List(pl.Int64)),
        ("ab", pl.List(pl.String)),
        ({"c": 1}, pl.Struct({"a": pl.Int64})),
        ("2024-05-01", pl.Datetime("us")),
    ],
    ids=repr,
)
def test_values_of_the_wrong_type_are_an_error_of_their_record(value, dtype):
    """bool or float for int is none; nothing is cast, parsed or wrapped around.

    With on_error="skip" the record with the wrong value is dropped, the other one passes.
    """
    program, stream = numbers(0, 1)
    answers = [{"x": value}, {"x": None}]
    made = stream.map(lambda r: answers[r["n"]], out={"x": dtype}, on_error="skip")
    assert written(program, made) == [{"x": None}]


def test_an_unknown_key_is_an_error_of_its_record():
    """A misspelt column is not dropped in silence.

    Record 1 gives m besides n: skipped; record 2 passes.
    """
    program, stream = numbers(1, 2)
    made = stream.flat_map(
        lambda r: {"n": 1, "m": 1} if r["n"] == 1 else {"n": 2}, out=N, on_error="skip"
    )
    assert written(program, made) == ns(2)


def test_one_wrong_row_of_several_makes_the_record_fail():
    """All rows of a record or none: the second of record 1 is wrong, so the first is gone too."""
    program, stream = numbers(1, 2)
    made = stream.flat_map(
        lambda r: [{"n": r["n"]}, {"n": 0.5 if r["n"] == 1 else 5}], out=N, on_error="skip"
    )
    assert written(program, made) == ns(2, 5)


def test_an_empty_record_is_a_record_of_nulls():
    """A missing key is null, and all may be missing."""
    program, stream = numbers(1)
    made = stream.map(lambda _: {}, out={"a": pl.Int64, "b": pl.String})
    assert written(program, made) == [{"a": None, "b": None}]
