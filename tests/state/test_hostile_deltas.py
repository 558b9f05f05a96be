"""Checksums that are right and Arrow that is not: scenario 23 of the reliability notes.

In deltas, in the messages of sinks, in the versions of lookup tables, and in a source's files.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.connectors.untrusted_arrow import NotWhole, read_file, read_stream

ROOT = Path(__file__).resolve().parents[2]


def read_hostile(place, first, count):
    script = str(ROOT / "tests" / "state" / "hostile_deltas.py")
    done = subprocess.run(
        [sys.executable, script, place, str(first), str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        check=False,
    )
    assert 0 == done.returncode, f"its process died: {done.stderr[:500]}"
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "count"), [("delta", 1500), ("message", 500), ("table", 500)])
def test_it_is_refused_or_read_and_never_ends_the_process(place, count):
    found = read_hostile(place, 0, count)

    assert {"refused", "read"} == set(found)
    assert found["refused"] > 100


@pytest.mark.chaos
@pytest.mark.parametrize("place", ["delta", "message", "table"])
@pytest.mark.parametrize("first", range(1500, 21_500, 5000))
def test_nor_do_many_more(place, first):
    assert {"refused", "read"} == set(read_hostile(place, first, 5000))


FRAME = pl.DataFrame(
    {"n": [0] * 100_000, "c": pl.Series(["a", "b"] * 50_000, dtype=pl.Categorical)}
)


def as_stream(frame, **options):
    stream = io.BytesIO()
    frame.write_ipc_stream(stream, **options)
    return stream.getvalue()


def as_file(frame, **options):
    file = io.BytesIO()
    frame.write_ipc(file, **options)
    return file.getvalue()


FORMS = [(as_stream, read_stream), (as_file, read_file)]


@pytest.mark.parametrize(("written", "read"), FORMS)
def test_what_polars_writes_is_read(written, read):
    for frame in (FRAME, FRAME.clear(), FRAME.head(3), pl.DataFrame({"x": [None, None]})):
        assert frame.equals(read(written(frame)))
        assert frame.schema == read(written(frame)).schema


@pytest.mark.parametrize(("written", "read"), FORMS)
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_rows_that_would_swell_are_refused_before_they_are_unpacked(
    written, read, compression, monkeypatch
):
    """A bomb is found by its metadata: nobody gets as far as to read the table."""
    data = written(FRAME, compression=compression)
    assert len(data) < 100_000  # of 800,000 and more

    before = pa.total_allocated_bytes()
    with pytest.raises(NotWhole, match="compressed"):
        read(data)

    assert pa.total_allocated_bytes() - before < len(data) * 2


def test_a_dictionary_that_would_swell_is_refused_too():
    words = pa.array(["x" * 1000 + str(n) for n in range(100)]).dictionary_encode()
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    table = pa.table({"w": words})
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)

    with pytest.raises(NotWhole, match="compressed"):
        read_stream(sink.getvalue())


def test_rows_that_take_nothing_are_counted():
    sink, rows = io.BytesIO(), (1 << 31) - 1
    with pa.ipc.new_stream(sink, pa.schema({"x": pa.null()})) as writer:
        writer.write_batch(pa.record_batch({"x": pa.Array.from_buffers(pa.null(), rows, [None])}))

    with pytest.raises(NotWhole, match=f"bytes are {rows} rows"):
        read_stream(sink.getvalue())


def test_a_footer_that_points_outside_is_refused():
    data = bytearray(as_file(FRAME.head(3)))
    size = int.from_bytes(data[-10:-6], "little")
    data[-10 - size : -10] = bytes(size)

    with pytest.raises(NotWhole):
        read_file(bytes(data))


def test_an_arrow_file_of_a_source_with_text_that_is_none_is_refused(tmp_path):
    """Polars would take the bytes for text, and answer with whatever they make of it."""
    text = pa.array(["aa", "bb"])
    bad = pa.StringArray.from_buffers(2, text.buffers()[1], pa.py_buffer(b"\xff\xfe\xff\xfe"))
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema({"s": pa.string()})) as writer:
        writer.write_batch(pa.record_batch({"s": bad}))
    source = ab.sources.Files(tmp_path / "a.arrow", bounded=True)
    source.latest()

    (split,) = source.plan({0: [0, 0]}, {0: [1, 0]})
    with pytest.raises(ab.RunError, match=r"a\.arrow cannot be read"):
        list(source.read(split))
