import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors.generator import Generator
from anabranch.connectors.rows import BATCH_ROWS, Misfit, frame_of
from anabranch.errors import CheckpointError, ProgramError, RunError
from anabranch.testing.clock import MockClock

N = {"n": pl.Int64}


def number(i):
    return {"n": i}


def numbers(source, partition, start, end):
    splits = source.plan({partition: start}, {partition: end})
    return [n for s in splits for batch in source.read(s) for n in batch["n"].to_pylist()]


vectorized_or_not = st.sampled_from(
    [
        {"fn": number, "vectorized": False},
        {"fn": lambda series: pl.DataFrame({"n": series}), "vectorized": True},
    ]
)


@settings(deadline=None)  # how fast the machine is says nothing
@given(vectorized_or_not, st.integers(0, 40), st.integers(1, 5))
def test_every_row_is_in_its_partition_once(how, rows, partitions):
    source = Generator(**how, schema=N, rows=rows, partitions=partitions)

    for p, end in source.latest().items():
        assert list(range(int(p), rows, partitions)) == numbers(source, p, 0, end)


@settings(deadline=None)  # how fast the machine is says nothing
@given(vectorized_or_not, st.data())
def test_two_ranges_are_the_range_of_both_and_are_read_again_the_same(how, data):
    source = Generator(**how, schema=N, rows=50, partitions=data.draw(st.integers(1, 3)))
    partition = data.draw(st.sampled_from(list(source.partitions())))
    a, b, c = sorted(data.draw(st.integers(0, source.latest()[partition])) for _ in range(3))

    whole = numbers(source, partition, a, c)

    assert whole == numbers(source, partition, a, b) + numbers(source, partition, b, c)
    assert whole == numbers(source, partition, a, c)


def test_batches_are_bounded():
    source = Generator(
        lambda series: pl.DataFrame({"n": series}), schema=N, rows=BATCH_ROWS + 1, vectorized=True
    )

    assert [BATCH_ROWS, 1] == [b.num_rows for b in source.read((0, 0, BATCH_ROWS + 1))]


def test_without_a_rate_all_rows_are_there():
    source = Generator(number, schema=N, rows=5, partitions=2)

    assert {0: 3, 1: 2} == source.latest() == source.end()
    assert source.finished(0)
    assert source.finished(1)


def test_an_endless_one_has_no_end():
    source = Generator(number, schema=N, partitions=2)

    assert {0: None, 1: None} == source.latest() == source.end()
    assert not source.finished(0)
    assert 7 == source.limit(0, 2, None, 5)
    with pytest.raises(RunError, match=r"^Generator: a range without an end cannot be read\n"):
        source.plan({0: 0}, source.latest())


def test_rows_become_due_by_the_clock_from_the_first_look_on():
    clock = MockClock()
    source = Generator(number, schema=N, rows=5, rate=2, partitions=2, clock=clock)
    clock.advance(100)

    assert {0: 0, 1: 0} == source.latest()
    clock.advance(1.5)
    assert {0: 2, 1: 1} == source.latest()
    assert {0: 3, 1: 2} == source.end()
    clock.advance(100)
    assert {0: 3, 1: 2} == source.latest()


def test_a_partition_finishes_with_its_last_row():
    clock = MockClock()
    source = Generator(number, schema=N, rows=3, rate=1, partitions=2, clock=clock)
    source.latest()

    clock.advance(2)
    assert [False, False] == [source.finished(p) for p in (0, 1)]
    source.latest()
    assert [False, True] == [source.finished(p) for p in (0, 1)]
    clock.advance(1)
    source.latest()
    assert [True, True] == [source.finished(p) for p in (0, 1)]


def test_a_rate_goes_on_where_it_was_in_another_process():
    clock = MockClock()
    before = Generator(number, schema=N, rate=10, clock=clock)
    before.latest()
    clock.advance(3)
    assert {0: 30} == before.latest()

    after = Generator(number, schema=N, rate=10, clock=clock)
    after.recall(before.memory())

    assert {0: 30} == after.latest()
    clock.advance(1)
    assert {0: 40} == after.latest()


def test_without_a_rate_there_is_nothing_to_remember():
    source = Generator(number, schema=N)

    assert source.memory() is None
    source.recall(None)


@pytest.mark.parametrize("memory", [-1, "3", True, [1]])
def test_a_strange_memory_is_refused(memory):
    with pytest.raises(CheckpointError, match=r"^the memory of a Generator cannot be read\n"):
        Generator(number, schema=N, rate=1).recall(memory)


def test_a_missing_key_is_null():
    source = Generator(lambda i: {}, schema=N, rows=1)

    assert [None] == numbers(source, 0, 0, 1)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda i: {"n": 1.5 if i == 4 else i}, "column 'n' is Int64, got float 1.5"),
        (lambda i: {"n": 2**63 if i == 4 else i}, f"column 'n' is Int64, got int {2**63}"),
        (lambda i: {"m": 1} if i == 4 else {}, "it has a column 'm' that the schema has not"),
        (lambda i: [1] if i == 4 else {}, "it is a list, not a dict"),
    ],
)
def test_a_row_that_does_not_fit_is_named(fn, why):
    source = Generator(fn, schema=N, rows=9, partitions=2)

    with pytest.raises(RunError) as failed:
        list(source.read((0, 1, 4)))

    error = failed.value
    assert ("Generator: row 4 does not fit the schema", why) == (error.what, error.why)
    assert (__file__, fn.__code__.co_firstlineno) == (error.file, error.line)
    assert "n: Int64" == error.have


def test_an_error_of_the_function_is_told_with_its_row_and_chained():
    source = Generator(lambda i: {"n": 1 // (i - 2)}, schema=N, rows=5)

    with pytest.raises(
        RunError, match=r"^Generator: fn\(2\) failed\n  at .*\n.*ZeroDivisionError"
    ) as failed:
        list(source.read((0, 0, 5)))

    assert isinstance(failed.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda s: pl.DataFrame({"n": s.head(1)}), "it has 1 rows, not 3"),
        (lambda s: pl.DataFrame({"n": s.cast(pl.Int32)}), "column 'n' is Int32, expected Int64"),
        (lambda s: pl.DataFrame({"m": s}), "column 'n' is missing, expected Int64"),
        (
            lambda s: pl.DataFrame({"n": s, "m": s}),
            "column 'm' is Int64, expected no such column",
        ),
        (lambda s: {"n": s}, "it is a dict, not a Polars DataFrame"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(fn, why):
    source = Generator(fn, schema=N, rows=3, vectorized=True)

    with pytest.raises(RunError) as failed:
        list(source.read((0, 0, 3)))

    assert "Generator: what fn gave for rows 0 to 2 does not fit" == failed.value.what
    assert why == failed.value.why


def test_an_error_of_a_vectorized_function_is_chained():
    source = Generator(lambda s: 1 // 0, schema=N, rows=3, vectorized=True)

    with pytest.raises(RunError, match=r"^Generator: fn failed for rows 0 to 2\n"):
        list(source.read((0, 0, 3)))


def test_a_vectorized_function_gets_whole_numbers_and_may_order_columns_as_it_likes():
    seen = []

    def fn(series):
        seen.append(series.dtype)
        return pl.DataFrame({"b": series, "a": series})

    source = Generator(fn, schema={"a": pl.Int64, "b": pl.Int64}, rows=2, vectorized=True)

    (batch,) = source.read((0, 0, 2))
    assert ["a", "b"] == batch.schema.names
    assert [pl.Int64] == seen


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1},
        {"rows": True},
        {"rate": 0},
        {"rate": float("nan")},
        {"rate": "1"},
        {"partitions": 0},
        {"partitions": 1.0},
        {"schema": {}},
        {"schema": {"n": pl.List}},
        {"schema": {"n": "x"}},
        {"schema": {1: pl.Int64}},
        {"schema": ["n"]},
        {"fn": 3},
    ],
)
def test_nonsense_is_refused_where_it_is_written(wrong):
    with pytest.raises(ProgramError, match=r"^Generator: "):
        Generator(**{"fn": number, "schema": N, **wrong})


NAIVE = datetime.fromisoformat("2024-01-01T00:00:00")
FINE = NAIVE + timedelta(microseconds=5)
STRUCT = pl.Struct({"a": pl.Int64})


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, pl.Float64()),
        (1.5, pl.Float32()),
        ("a", pl.Enum(["a"])),
        ("a", pl.Categorical()),
        (b"a", pl.Binary()),
        (FINE, pl.Datetime("us")),
        (datetime(2024, 1, 1, tzinfo=UTC), pl.Datetime("ms", "UTC")),
        (timedelta(microseconds=5), pl.Duration("us")),
        (date(2024, 1, 1), pl.Date()),
        (time(1, 2), pl.Time()),
        (Decimal("1.20"), pl.Decimal(10, 1)),
        ([1, None], pl.List(pl.Int64)),
        ([1, 2], pl.Array(pl.Int64, 2)),
        ({"a": 1}, STRUCT),
        ([{"a": 1}], pl.List(STRUCT)),
    ],
)
def test_a_value_that_fits_comes_back_as_it_was(value, dtype):
    frame = frame_of([{"v": value}, {}], pl.Schema({"v": dtype}))

    assert dtype == frame.schema["v"]
    assert [value, None] == frame["v"].to_list()


def test_a_struct_without_a_field_has_null_there():
    assert [{"a": None}] == frame_of([{"v": {}}], pl.Schema({"v": STRUCT}))["v"].to_list()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, pl.Int64()),
        (True, pl.Float64()),
        (1.0, pl.Int64()),
        (300, pl.Int8()),
        (-1, pl.UInt32()),
        (1, pl.Boolean()),
        (1, pl.String()),
        ("b", pl.Enum(["a"])),
        ("a", pl.Binary()),
        (NAIVE, pl.Date()),
        (date(2024, 1, 1), pl.Datetime("us")),
        (5, pl.Datetime("us")),
        ("2024-01-01", pl.Datetime("us")),
        (datetime(2024, 1, 1, tzinfo=UTC), pl.Datetime("us")),
        (NAIVE, pl.Datetime("us", "UTC")),
        (FINE, pl.Datetime("ms")),
        (timedelta(microseconds=5), pl.Duration("ms")),
        (5, pl.Duration("us")),
        (Decimal("1.25"), pl.Decimal(10, 1)),
        (Decimal("NaN"), pl.Decimal(10, 1)),
        (1.5, pl.Decimal(10, 1)),
        ([1, 2.5], pl.List(pl.Int64)),
        ([True], pl.List(pl.Int64)),
        ([1], pl.Array(pl.Int64, 2)),
        ({"a": 1.5}, STRUCT),
        ({"a": 1, "b": 2}, STRUCT),
        (1, pl.Null()),
    ],
)
def test_nothing_is_coerced(value, dtype):
    with pytest.raises(Misfit) as misfit:
        frame_of([{}, {"v": value}], pl.Schema({"v": dtype}))

    assert 1 == misfit.value.row
    assert f"column 'v' is {dtype}, got {type(value).__name__} {value!r}" == misfit.value.why


@pytest.mark.slow
def test_importing_connectors_starts_neither_arrow_nor_spark():
    code = (
        "import sys; from anabranch.connectors import file_sink, file_source, generator; "
        "print(sorted({'pyarrow', 'pyspark'} & set(sys.modules)))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == found.stdout.strip()
