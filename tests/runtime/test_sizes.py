"""Records, bundles and schemas of unusual sizes: scenario 22 of the reliability notes."""

import os

import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.runtime import exchange
from anabranch.runtime.exchange import PartName, read_part, write_parts
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import run, written

MIB = 1 << 20
HUGE = 100 * MIB


def newer(value, record):
    return record


def kept(rows, schema, home):
    """The newest record of each key: whole records in state, in the exchange and in the sink."""
    made = ab.Program("kept")
    read = made.read(ab.sources.Records(rows, schema=schema), name="in")
    newest = read.key_by("k").reduce(newer, name="newest")
    newest.write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    return made


@pytest.mark.slow
def test_a_record_of_a_hundred_mebibytes_goes_all_the_way_and_through_a_restart(tmp_path):
    """Among small ones, into state, out of it in a process that did not see it come, and out."""
    rows = [{"k": f"k{i % 2}", "v": "small"} for i in range(4)]
    rows[1] = {"k": "k1", "v": "x" * HUGE}
    schema = {"k": pl.String, "v": pl.String}
    run(kept(rows, schema, tmp_path), tmp_path / "ckpt", rows=1, stop_after=3)
    run(kept(rows, schema, tmp_path), tmp_path / "ckpt", rows=1, lanes=1)

    found = written(tmp_path / "out")
    assert [row["k"] for row in rows] == [row["k"] for row in found]
    assert [5, HUGE, 5, 5] == [len(row["v"]) for row in found]
    files = [file.stat().st_size for file in (tmp_path / "ckpt" / "state").rglob("*.delta")]
    assert max(files) > HUGE, "the test is of nothing unless state held it"


@pytest.mark.slow
def test_ten_thousand_columns(tmp_path):
    schema = {"k": pl.String, **{f"c{i}": pl.Int64 for i in range(10_000)}}
    rows = [{**dict.fromkeys(schema, i), "k": f"k{i % 2}"} for i in range(4)]
    run(kept(rows, schema, tmp_path), tmp_path / "ckpt", rows=2, stop_after=2)
    run(kept(rows, schema, tmp_path), tmp_path / "ckpt", rows=2, lanes=3)

    expected = run_sequential(kept(rows, schema, tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


class Gaps(ab.sources.Source):
    """Batches without rows before, between and behind those with some; some splits have none else."""

    schema = pl.Schema({"t": pl.Int64, "k": pl.Int64})

    def partitions(self):
        return (0,)

    def latest(self):
        return {0: 12}

    def finished(self, partition):
        return True

    def plan(self, start, end):
        return [(low, low + 1) for low in range(start[0], end[0])]

    def read(self, split):
        frame = pl.DataFrame({"t": [split[0] * 500], "k": [split[0] % 2]}, schema=self.schema)
        empty = pa.RecordBatch.from_pylist([], schema=frame.to_arrow().schema)
        yield empty
        yield empty
        if split[0] % 3:
            yield from frame.to_arrow().to_batches()
            yield empty


def test_batches_and_splits_without_rows_are_nothing_and_no_trouble(tmp_path):
    def program():
        made = ab.Program("gaps")
        read = made.read(Gaps(), name="in", event_time="t")
        read.window(ab.tumbling("1 s"), by="k").agg(n=ab.count()).write(
            ab.sinks.Files(tmp_path / "out", format="parquet"), name="out"
        )
        return made

    run(program(), tmp_path / "ckpt", rows=2, stop_after=3)
    run(program(), tmp_path / "ckpt", rows=2, lanes=3)

    expected = run_sequential(program(), log=tmp_path / "ckpt")["out"]
    assert 8 == sum(row["n"] for row in expected)
    assert_same_rows(expected, written(tmp_path / "out"))


WITHOUT = {
    "schema": lambda: ab.sources.Records([{}], schema={}),
    "select": lambda: ab.Program("p").read(ab.sources.Records([{"a": 1}])).select(),
    "drop": lambda: ab.Program("p").read(ab.sources.Records([{"a": 1}])).drop("a"),
}


@pytest.mark.parametrize("how", WITHOUT)
def test_rows_without_columns_are_refused_where_they_are_written(how):
    with pytest.raises(ab.ProgramError, match="column"):
        WITHOUT[how]()


def test_a_part_is_read_whole_however_few_bytes_the_system_gives_at_once(tmp_path, monkeypatch):
    """Linux gives 2 GiB less a page at most, in one call."""
    blob = bytes(range(256)) * 40
    reference = write_parts(tmp_path, PartName("run", 3, 0, "a"), {0: b"other", 1: blob})
    real = os.pread
    monkeypatch.setattr(
        exchange.os, "pread", lambda file, size, at: real(file, min(size, 1000), at)
    )

    assert blob == read_part(reference, 1)
