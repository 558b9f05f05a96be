"""Programs that mean nothing: each function fails at its marked line, and nowhere else.

The marks `# here` say which line the error must name.
"""

import polars as pl

import anabranch as ab

ROWS = [{"user": "a", "n": 1, "x": 0.5, "at": 1_000, "tags": ["x"]}]


def stream(program=None, *, timed=True, name=None):
    program = program or ab.Program("bad")
    return program.read(ab.sources.Records(ROWS), event_time="at" if timed else None, name=name)


def written():
    rows = ab.Program("bad")
    stream(rows).write(ab.sinks.Memory("out"))
    return rows


def wrong_column():
    stream().filter(pl.col("usr") == "a")  # here


def wrong_column_in_a_chain_of_several_lines():
    (
        stream()
        .filter(pl.col("user") == "a")
        .select("user", "nn")  # here
        .write(ab.sinks.Memory("out"))
    )


def a_method_of_spark_s():
    stream().groupBy("user")  # here


def a_method_that_is_misspelt():
    stream().with_column(z=pl.col("n"))  # here


def windows_that_are_written():
    stream().window(ab.tumbling("1 s")).write(ab.sinks.Memory("out"))  # here


def keys_that_are_filtered():
    stream().key_by("user").filter(pl.col("n") > 1)  # here


def type_clash():
    stream().with_columns(z=pl.col("user") + pl.col("n"))  # here


def filter_that_is_not_a_condition():
    stream().filter(pl.col("n") + 1)  # here


def an_expression_that_looks_at_other_rows():
    stream().filter(pl.col("x") > pl.col("x").mean())  # here


def an_expression_that_looks_at_earlier_rows():
    stream().with_columns(d=pl.col("n") - pl.col("n").shift(1))  # here


def a_python_function_inside_an_expression():
    stream().select(pl.col("n").map_elements(hash, return_dtype=pl.Int64))  # here


def a_date_format_that_is_guessed():
    stream().select(pl.col("user").str.to_datetime())  # here


def missing_event_time():
    stream(timed=False).window(ab.tumbling("10 s"))  # here


def event_time_in_a_column_of_text():
    program = ab.Program("bad")
    program.read(ab.sources.Records(ROWS), event_time="user")  # here


def event_time_in_a_column_that_does_not_exist():
    program = ab.Program("bad")
    program.read(ab.sources.Records(ROWS), event_time="time")  # here


def zero_duration():
    ab.tumbling("0 s")  # here


def a_duration_without_a_unit():
    ab.session("10")  # here


def a_window_finer_than_the_time_column():
    stream().window(ab.tumbling("500 us"))  # here


def two_operators_of_one_name():
    good = stream()
    good.filter(pl.col("n") > 0, name="positive")
    good.filter(pl.col("n") > 1, name="positive")  # here


def two_sinks_of_one_name():
    good = stream()
    good.write(ab.sinks.Memory("out"))
    good.write(ab.sinks.Memory("out"))  # here


def map_without_its_columns():
    stream().map(lambda record: record)  # here


def a_function_of_too_many_arguments():
    stream().filter(lambda record, state, more: True)  # here


def a_key_without_an_order():
    stream().key_by("tags")  # here


def an_aggregate_that_is_none():
    stream().window(ab.tumbling("1 s")).agg(total=sum)  # here


def an_aggregation_of_many_values():
    stream().window(ab.tumbling("1 s")).agg(all=pl.col("n").unique())  # here


def a_sum_of_text():
    stream().window(ab.tumbling("1 s")).agg(total=ab.sum("user"))  # here


def a_result_column_twice():
    stream().window(ab.tumbling("1 s"), by="user").agg(user=ab.count())  # here


def state_behind_revised_rows():
    revised = stream().window(ab.tumbling("1 s"), by="user").allow_late("5 s").agg(n=ab.count())
    revised.key_by("user").deduplicate()  # here


def late_revisions_of_sessions():
    stream().window(ab.session("1 s")).allow_late("5 s")  # here


def a_join_of_keys_of_different_types():
    program = ab.Program("bad")
    left = stream(program)
    right = left.with_columns(pl.col("user").str.len_chars().alias("user"))
    left.join(right, on="user", within="1 s")  # here


def a_union_of_different_columns():
    left = stream()
    left.union(left.select("user"))  # here


def streams_of_two_programs():
    stream().union(stream())  # here


def a_table_with_a_key_twice():
    table = pl.DataFrame({"user": ["a", "a"], "city": ["x", "y"]})
    stream().lookup(table, on="user")  # here


def a_table_that_is_none():
    stream().lookup({"a": 1}, on="user")  # here


def dead_letters_that_never_come():
    mapped = stream().map(lambda record: record, out={"user": pl.String})
    mapped.dead_letters.write(ab.sinks.Memory("letters"))  # here


def a_feedback_that_is_never_closed():
    program = ab.Program("bad")
    stream(program)
    program.feedback({"n": pl.Int64})  # here
    program.freeze()


def late_rows_of_a_window_without_results():
    program = ab.Program("bad")
    windows = stream(program).window(ab.tumbling("1 s"))
    windows.late.write(ab.sinks.Memory("late"))  # here
    program.freeze()


def a_source_that_is_none():
    ab.Program("bad").read([{"n": 1}])  # here


def a_sink_that_is_none():
    stream().write("out/")  # here


def nanoseconds():
    frame = pl.DataFrame({"at": [1]}).select(pl.col("at").cast(pl.Datetime("ns")))
    ab.Program("bad").read(ab.sources.Records(frame))  # here


def a_branch_called_rest():
    stream().split(rest=pl.col("n") > 0)  # here


def an_unknown_way_with_errors():
    stream().filter(lambda record: True, on_error="ignore")  # here


def a_name_that_cannot_be_a_directory():
    stream().filter(pl.col("n") > 0, name="a/b")  # here


def a_step_that_never_happens():
    ab.step("fails", pl.col("n") > 0, times=0)  # here


def a_key_column_that_does_not_exist():
    stream().key_by("usr")  # here


def a_key_that_is_an_expression():
    stream().key_by(pl.col("user"))  # here


def a_function_that_was_called():
    stream().map(str(1), out={"n": pl.Int64})  # here


def dead_letters_of_what_cannot_fail():
    stream().select("user").dead_letters.write(ab.sinks.Memory("letters"))  # here


def a_feedback_that_is_closed_twice():
    program = ab.Program("bad")
    rows = stream(program).select("n")
    back = program.feedback({"n": pl.Int64})
    back.close(rows)
    back.close(rows)  # here


def a_lookup_by_a_column_that_the_table_has_not():
    stream().lookup(pl.DataFrame({"usr": ["a"], "city": ["x"]}), on="user")  # here


def a_window_without_a_unit():
    stream().window(ab.tumbling(10))  # here


def an_unknown_unit_of_time():
    program = ab.Program("bad")
    program.read(ab.sources.Records(ROWS), event_time="at", time_unit="min")  # here


def no_rows_and_no_schema():
    ab.sources.Records([])  # here


def a_row_that_does_not_fit_its_schema():
    ab.sources.Records([{"n": "one"}], schema={"n": pl.Int64})  # here


def an_unknown_way_to_join():
    left = stream()
    left.join(left, on="user", within="1 s", how="outer")  # here


def epochs_of_no_rows():
    ab.available_now(0)  # here


def a_trigger_that_is_a_text():
    written().start(trigger="1 s")  # here


def no_lanes():
    written().start(parallelism=0)  # here


def a_program_that_writes_nothing():
    program = ab.Program("bad")
    program.read(ab.sources.Records(ROWS))  # here
    program.start()


def an_operator_and_a_sink_of_one_name():
    program = ab.Program("bad")
    rows = program.read(ab.sources.Records(ROWS), name="rows")
    rows.write(ab.sinks.Memory("rows"))  # here


CASES = [
    case
    for name, case in list(globals().items())
    if callable(case) and not name.startswith("_") and name not in ("stream", "written")
]
