"""Keys of every kind, from process to process: scenario 21 of the reliability notes.

Where a key is kept is decided by its bytes alone; what is one key and what is two, by the law (M6).
"""

import json
import math
import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import run, written
from tests.state.under_seed import program as seeds_program

ROOT = Path(__file__).resolve().parents[2]

TEXT = st.one_of(
    st.text(max_size=6),  # any plane, no surrogates: those are no text in Polars
    st.sampled_from(["", "\0", "a\0", "é", "e\u0301", "שלום", "\u202ea", "💧", "a/../b", "\ufeff"]),
)
WIDE = st.floats(width=64, allow_nan=True, allow_subnormal=True)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
KINDS = {
    "text": (pl.String, TEXT),
    "bytes": (pl.Binary, st.binary(max_size=12)),
    "float": (pl.Float64, st.one_of(st.sampled_from([0.0, -0.0, float("nan")]), WIDE)),
    "single": (pl.Float32, st.floats(width=32)),
    "integer": (pl.Int64, st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pl.UInt64, st.integers(0, 2**64 - 1)),
    "small": (pl.Int8, st.integers(-128, 127)),
    "boolean": (pl.Boolean, st.booleans()),
    "decimal": (
        pl.Decimal(38, 3),
        st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-3)),
    ),
    "time": (pl.Datetime("us"), st.datetimes(FIRST, LAST)),
    "zoned": (
        pl.Datetime("us", "Europe/Berlin"),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
    "milliseconds": (
        pl.Datetime("ms"),
        st.datetimes(FIRST, LAST).map(
            lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
        ),
    ),
    "date": (pl.Date, st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "clock": (pl.Time, st.times().map(lambda t: time(t.hour, t.minute, t.second, t.microsecond))),
    "duration": (
        pl.Duration("us"),
        st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)),
    ),
}


NAN = float("nan")
EDGES = {
    "text": ["", "\0", "a", "a\0", "é", "e\u0301", "💧", "\U0010ffff", None],
    "bytes": [b"", b"\0", b"\0\0", b"\xff" * 9, None],
    "float": [0.0, -0.0, NAN, -NAN, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, None],
    "single": [0.0, -0.0, NAN, math.inf, 2.0**-149, None],
    "integer": [0, -1, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, None],
    "unsigned": [0, 2**63, 2**64 - 1, None],
    "decimal": [Decimal(0), Decimal("-0.000"), Decimal("0.001"), Decimal(10**34), None],
    "time": [FIRST, LAST, datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), None],
    "milliseconds": [FIRST, LAST.replace(microsecond=999000), None],
    "zoned": [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)],
    "date": [date(1, 1, 1), date(9999, 12, 31), None],
    "clock": [time(0), time(23, 59, 59, 999999), None],
}


def count(record, state):
    state.value = (state.value or 0) + 1
    yield {"k": record["k"], "n": state.value}


def program(keys, dtype, home):
    made = ab.Program("keys")
    rows = [{"t": i * 300, "k": key} for i, key in enumerate(keys)]
    source = ab.sources.Records(rows, schema={"t": pl.Int64, "k": dtype})
    read = made.read(source, name="in", event_time="t")
    counted = read.key_by("k").process(count, out={"k": dtype, "n": pl.Int64}, name="count")
    windows = read.window(ab.tumbling("1 s"), by="k").agg(n=ab.count())
    once = read.key_by("k").deduplicate()
    for name, stream in (("counted", counted), ("windows", windows), ("once", once)):
        stream.write(ab.sinks.Files(home / name, format="parquet"), name=name)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_found_again_by_another_run_of_another_width(kind, tmp_path_factory):
    dtype, values = KINDS[kind]

    # Few different keys, many of each: what matters is that equal ones meet.
    @settings(max_examples=8)
    @given(data=st.data())
    def search(data):
        few = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=5))
        keys = data.draw(st.lists(st.sampled_from(few), min_size=1, max_size=18))
        check(keys, dtype, tmp_path_factory.mktemp("keys"))

    search()


@pytest.mark.slow
@pytest.mark.parametrize("kind", EDGES)
def test_keys_at_the_edges_of_their_type_are_one_or_two_as_the_law_says(kind, tmp_path):
    check(EDGES[kind] * 3, KINDS[kind][0], tmp_path)


def check(keys, dtype, home):
    run(program(keys, dtype, home), home / "ckpt", rows=3, stop_after=3, lanes=2)
    run(program(keys, dtype, home), home / "ckpt", rows=3, lanes=3)

    expected = run_sequential(program(keys, dtype, home), log=home / "ckpt")
    for name, rows in expected.items():
        assert_same_rows(rows, written(home / name))
    names = [path.name for path in (home / "ckpt").rglob("*")]
    assert all(name.isascii() and len(name) < 200 for name in names)


def test_a_key_of_a_megabyte_and_its_neighbours_are_different_keys(tmp_path):
    long = "x" * (1 << 20)
    keys = [long, long + "\0", long[:-1], long, "", long + "\0"]

    check(keys, pl.String, tmp_path)

    assert [1, 1, 1, 2, 1, 2] == [row["n"] for row in written(tmp_path / "counted")]


def test_what_looks_the_same_and_has_other_bytes_is_another_key(tmp_path):
    check(["é", "e\u0301", "é", "É", "a", "a\0", "a"], pl.String, tmp_path)

    assert [1, 1, 2, 1, 1, 1, 2] == [row["n"] for row in written(tmp_path / "counted")]


def test_a_text_that_is_no_text_is_refused_where_it_comes_in():
    """Half a surrogate pair has no bytes: Polars cannot hold it, so it cannot become a key."""
    with pytest.raises(ab.ProgramError):
        ab.sources.Records([{"k": "\ud800"}], schema={"k": pl.String})


# Hash seeds


def under(seed, home, stop=500):
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(seed),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    script = str(ROOT / "tests" / "state" / "under_seed.py")
    done = subprocess.run(
        [sys.executable, script, str(home), str(stop)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_processes_with_other_hash_seeds_keep_the_same_in_the_same_place(tmp_path):
    one, other = under(1, tmp_path / "1"), under(2, tmp_path / "2")

    assert one["hash"] != other["hash"], "the seeds make no difference"
    assert one["slices"] == other["slices"]
    assert one["deltas"] == other["deltas"], "what state holds depends on the hash seed"


@pytest.mark.slow
def test_a_process_with_another_hash_seed_goes_on(tmp_path):
    under(3, tmp_path, stop=4)
    under(4, tmp_path)

    expected = run_sequential(seeds_program(tmp_path), log=tmp_path / "ckpt")["out"]
    assert 40 == len(expected)
    assert_same_rows(expected, written(tmp_path / "out"))
