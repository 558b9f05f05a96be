"""Files, rows and functions that are not what the program takes them for.

Each takes a directory of its own to make its trouble in. The marks `# here` say which line of the
user's the error must name, where it can know one.
"""

import datetime as dt
import io

import polars as pl

import anabranch as ab
from tests.errors.running import files, run, stream

GOOD = pl.DataFrame({"user": ["a", "b"], "n": [1, 2]})
TYPES = {"user": pl.String, "n": pl.Int64}


def parquet(place, **frames):
    """Files in a directory, which is told."""
    (place / "in").mkdir(exist_ok=True)
    for name, frame in frames.items():
        frame.write_parquet(place / "in" / f"{name}.parquet")
    return place / "in"


def written(place, name, content):
    """One file of these bytes in a directory, which is told."""
    (place / "in").mkdir()
    (place / "in" / name).write_bytes(content)
    return place / "in"


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def a_path_that_is_not_there(place):
    (place / "orders").mkdir()
    ab.sources.Files(place / "oders")  # here


def a_lookup_table_that_is_not_there(place):
    _, rows = stream()
    rows.lookup(place / "users.parquet", on="user")  # here


def a_url_that_is_no_directory(place):
    ab.sources.Files("ftp://host/orders")  # here


def an_empty_directory(place):
    ab.sources.Files(place, format="parquet")  # here


def an_empty_directory_of_an_unknown_format(place):
    ab.sources.Files(place)  # here


def a_suffix_that_says_nothing(place):
    (place / "orders.xls").write_bytes(b"")
    ab.sources.Files(place)  # here


def a_format_that_is_misspelt(place):
    ab.sources.Files(place, format="parqet")  # here


def text_without_a_schema(place):
    (place / "orders.csv").write_text("user,n\na,1\n")
    ab.sources.Files(place)  # here


def a_truncated_parquet_file_when_the_program_is_written(place):
    given = parquet(place, orders=GOOD)
    cut(given / "orders.parquet")
    ab.sources.Files(given)


def a_truncated_parquet_file_when_it_runs(place):
    given = parquet(place, a=GOOD, b=GOOD)
    cut(given / "b.parquet")
    run(files(given), place)


def an_empty_parquet_file(place):
    given = written(place, "orders.parquet", b"")
    run(files(given, schema=TYPES), place)


def drift_between_files_another_type(place):
    run(files(parquet(place, a=GOOD, b=GOOD.with_columns(pl.col("n").cast(pl.String)))), place)


def drift_between_files_a_column_is_missing(place):
    run(files(parquet(place, a=GOOD, b=GOOD.drop("n"))), place)


def drift_between_files_a_column_is_renamed(place):
    run(files(parquet(place, a=GOOD, b=GOOD.rename({"n": "number"}))), place)


def a_file_that_vanished(place):
    given = parquet(place, a=GOOD)
    source = ab.sources.Files(given, bounded=True)
    source.latest()
    (given / "a.parquet").unlink()
    list(source.read({"file": "a.parquet", "from": 0, "to": None}))


def a_file_that_has_fewer_rows_than_it_had(place):
    source = ab.sources.Files(parquet(place, a=GOOD), bounded=True)
    source.latest()
    parquet(place, a=GOOD.head(1))
    list(source.read({"file": "a.parquet", "from": 0, "to": 2}))


def an_arrow_file_that_is_none(place):
    given = written(place, "orders.arrow", b"ARROW1\0\0 and then something else")
    run(files(given, schema=TYPES), place)


def csv_that_is_not_utf_8(place):
    given = written(place, "orders.csv", "user,n\nJürgen,1\n".encode("latin-1"))
    run(files(given, schema=TYPES), place)


def csv_with_another_header(place):
    given = written(place, "orders.csv", b"usr,n\na,1\n")
    run(files(given, schema=TYPES), place)


def csv_with_a_value_that_is_no_number(place):
    given = written(place, "orders.csv", b"user,n\na,1\nb,many\n")
    run(files(given, schema=TYPES), place)


def rows_of_two_types(place):
    ab.sources.Records([{"n": 1}, {"n": "one"}])  # here


def rows_that_are_no_records(place):
    ab.sources.Records([1, 2])  # here


def a_null_event_time(place):
    program, rows = stream(rows=[{"n": 1, "at": 1}, {"n": 2, "at": None}], event_time="at")
    rows.write(ab.sinks.Memory("out"))
    run(program, place)


def a_function_that_raises(place):
    program, rows = stream()

    def price(record):
        return {"price": 100 // record["n"]}  # here

    rows.map(price, out={"price": pl.Int64}).write(ab.sinks.Memory("out"))
    run(program, place)


def a_function_that_raises_far_below(place):
    program, rows = stream()

    def parsed(record):
        return {"day": dt.date.fromisoformat(record["user"])}  # here

    rows.map(parsed, out={"day": pl.Date}).write(ab.sinks.Memory("out"))
    run(program, place)


def a_predicate_that_raises(place):
    program, rows = stream()
    rows.filter(lambda record: record["missing"] > 0).write(ab.sinks.Memory("out"))  # here
    run(program, place)


def a_function_that_gives_no_record(place):
    program, rows = stream()
    rows.map(lambda record: record["n"], out={"n": pl.Int64}).write(ab.sinks.Memory("out"))
    run(program, place)


def a_function_that_gives_other_columns(place):
    program, rows = stream()
    rows.map(lambda record: {"m": record["n"]}, out={"n": pl.Int64}).write(ab.sinks.Memory("out"))
    run(program, place)


def a_function_that_gives_a_value_of_another_type(place):
    program, rows = stream()
    rows.map(lambda record: {"n": str(record["n"])}, out={"n": pl.Int64}).write(
        ab.sinks.Memory("out")
    )
    run(program, place)


def a_function_that_gives_no_rows_to_go_through(place):
    program, rows = stream()
    rows.flat_map(lambda record: record["n"], out={"n": pl.Int64}).write(ab.sinks.Memory("out"))
    run(program, place)


def a_value_that_cannot_be_kept(place):
    program, rows = stream()

    def keep(record, state):
        state.value = io.StringIO()
        return iter(())

    rows.key_by("user").process(keep, out={"n": pl.Int64}).write(ab.sinks.Memory("out"))
    run(program, place)


def an_expression_that_fails_on_a_row(place):
    program, rows = stream()
    rows.select(pl.col("user").cast(pl.Int64)).write(ab.sinks.Memory("out"))  # here
    run(program, place)


def a_generator_that_raises(place):
    program = ab.Program("bad")
    made = ab.sources.Generator(lambda n: {"n": 1 // (2 - n)}, schema={"n": pl.Int64}, rows=5)
    program.read(made).write(ab.sinks.Memory("out"))
    run(program, place)


def a_generator_that_gives_other_columns(place):
    program = ab.Program("bad")
    made = ab.sources.Generator(lambda n: {"m": n}, schema={"n": pl.Int64}, rows=5)
    program.read(made).write(ab.sinks.Memory("out"))
    run(program, place)


def a_callback_that_raises(place):
    program, rows = stream()

    def send(rows, epoch):
        raise ConnectionError("the queue is gone")

    rows.write(ab.sinks.Callback(send))
    run(program, place)


def a_table_whose_columns_change(place):
    program, rows = stream()
    users = pl.DataFrame({"user": ["a"], "city": ["x"]})
    versions = iter([users, users.rename({"city": "town"})])
    found = rows.lookup(lambda: next(versions), on="user", refresh="1 us")  # here
    found.write(ab.sinks.Memory("out"))
    run(program, place)


def a_table_that_cannot_be_loaded_again(place):
    program, rows = stream()
    versions = iter([pl.DataFrame({"user": ["a"], "city": ["x"]})])

    def load():
        for version in versions:
            return version
        raise ConnectionError("the database is gone")

    rows.lookup(load, on="user", refresh="1 us").write(ab.sinks.Memory("out"))  # here
    run(program, place)


_HELPERS = {"parquet", "written", "cut"}
CASES = [
    case
    for name, case in list(globals().items())
    if getattr(case, "__module__", None) == __name__ and name not in _HELPERS
]
