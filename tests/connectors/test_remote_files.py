"""Files in an object store, read and written, here on a local server that speaks S3's protocol."""

import pickle

import polars as pl
import pytest

import anabranch as ab
from anabranch.connectors.places import RemotePlace
from anabranch.errors import ProgramError, RunError
from anabranch.objects import Bucket, ObjectUrl
from anabranch.testing import assert_same_rows, check_source, run_sequential
from tests.runtime.test_inline import run

SCHEMA = {"n": pl.Int64, "word": pl.String}
WRITERS = {
    "parquet": lambda frame, file: frame.write_parquet(file, row_group_size=3),
    "arrow": lambda frame, file: frame.write_ipc(file),
    "csv": lambda frame, file: frame.write_csv(file),
    "jsonl": lambda frame, file: frame.write_ndjson(file),
}


def rows(low, high):
    return pl.DataFrame({"n": range(low, high), "word": [f"w{n} ü" for n in range(low, high)]})


def put(url, name, frame, tmp_path):
    """A file in the store; its format is its suffix."""
    file = tmp_path / "whole"
    WRITERS[name.rpartition(".")[2]](frame, file)
    Bucket(ObjectUrl.of(url), "test").create(name, file.read_bytes())


@pytest.fixture(params=list(WRITERS))
def suffix(request):
    return request.param


def source(url, suffix, **options):
    return ab.sources.Files(url, format=suffix, schema=SCHEMA, **options)


@pytest.fixture
def filled(bucket, suffix, tmp_path):
    url = f"{bucket}/events"
    put(url, f"b.{suffix}", rows(10, 20), tmp_path)
    put(url, f"2026/a.{suffix}", rows(0, 10), tmp_path)
    put(url, f"_staging/c.{suffix}", rows(90, 99), tmp_path)
    put(url, f".hidden.{suffix}", rows(90, 99), tmp_path)
    put(bucket, f"events2/a.{suffix}", rows(90, 99), tmp_path)
    return url


def test_it_does_what_sources_promise(filled, suffix, tmp_path):
    numbers = iter(range(100))

    def more():
        number = next(numbers)
        put(filled, f"z{number:03d}.{suffix}", rows(20 + number, 21 + number), tmp_path)

    check_source(source(filled, suffix), advance=more, again=lambda: source(filled, suffix))


def test_what_is_hidden_is_left_out_and_the_rest_is_in_order(filled, suffix):
    program = ab.Program("p")
    program.read(source(f"{filled}/", suffix, bounded=True)).write(ab.sinks.Memory("out"))

    found = run_sequential(program)["out"]

    assert list(range(20)) == [row["n"] for row in found]
    assert "w3 ü" == found[3]["word"]


def test_some_columns_of_some_rows(filled, suffix):
    made = source(filled, suffix)
    made.latest()
    (split,) = made.plan({0: [0, 4]}, {0: [0, 8]})

    frame = pickle.loads(pickle.dumps(made)).frame(split, ["word"])

    assert {"word": [f"w{n} ü" for n in range(4, 8)]} == frame.select("word").to_dict(
        as_series=False
    )


def test_a_file_alone(filled, suffix):
    program = ab.Program("p")
    only = source(f"{filled}/b.{suffix}", suffix, bounded=True)
    program.read(only).write(ab.sinks.Memory("out"))

    assert list(range(10, 20)) == [row["n"] for row in run_sequential(program)["out"]]


def test_schema_and_format_come_from_the_first_file(bucket, tmp_path):
    put(f"{bucket}/events", "a.parquet", rows(0, 3), tmp_path)

    assert pl.Schema(SCHEMA) == ab.sources.Files(f"{bucket}/events").schema


def test_a_run_goes_on_behind_files_that_came_meanwhile(filled, suffix, tmp_path):
    def made():
        program = ab.Program("copied")
        stream = program.read(source(filled, suffix), name="in")
        stream.write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")
        return program

    run(made(), tmp_path / "ckpt", rows=7, stop_after=3, in_flight=2)
    put(filled, f"A.{suffix}", rows(20, 25), tmp_path)
    run(made(), tmp_path / "ckpt", rows=7)

    found = pl.read_parquet(tmp_path / "out")
    assert list(range(25)) == found["n"].to_list()
    expected = run_sequential(made(), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, found.rows(named=True))


def test_a_network_that_is_down_is_no_bad_file(filled, suffix, monkeypatch):
    """A bad file counts as a row that may be passed over; one that cannot be reached must not."""
    made = source(filled, suffix)
    made.latest()
    (split, _) = made.plan({0: [0, 0]}, {0: [2, 0]})
    real = RemotePlace.open

    class Cut:
        """A file whose connection is cut behind its first byte."""

        def __init__(self, file):
            self._file = file

        def read(self, size=None):
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")

        def __getattr__(self, name):
            return getattr(self._file, name)

    monkeypatch.setattr(RemotePlace, "open", lambda self, name: Cut(real(self, name)))

    for read in (lambda: made.frame(split), lambda: list(made.read(split))):
        with pytest.raises(RunError, match=r"cannot read s3://.*/2026/a\.\w+") as caught:
            read()
        assert "NETWORK_CONNECTION" in caught.value.why


def test_a_file_that_went_is_told(filled, suffix):
    made = source(filled, suffix)
    made.latest()
    (split, _) = made.plan({0: [0, 0]}, {0: [2, 0]})
    Bucket(ObjectUrl.of(filled), "test").delete(f"2026/a.{suffix}")

    with pytest.raises(RunError, match=r"2026/a\.\w+ has vanished"):
        made.frame(split)


def test_a_place_in_which_nothing_is_yet_is_waited_for(bucket, tmp_path):
    made = source(f"{bucket}/later", "parquet")
    assert {0: [0, 0]} == made.latest()

    put(f"{bucket}/later", "a.parquet", rows(0, 2), tmp_path)

    assert {0: [1, 0]} == made.latest()


def test_no_secret_travels(filled, suffix, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    made = source(filled, suffix)
    made.latest()

    assert b"canary" not in pickle.dumps(made)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://no-such-bucket/events", "Files: s3://no-such-bucket/events does not exist"),
        ("foo://bucket/events", "Files: foo://bucket/events cannot be reached by PyArrow"),
        ("s3://bucket/events?region=x", "has settings in it"),
        ("s3://key:canary@bucket/x", "s3://***@bucket/x has credentials in it"),
    ],
)
def test_a_source_that_cannot_be_is_refused(bucket, url, message):
    with pytest.raises(ProgramError) as caught:
        source(url, "parquet")

    assert message in caught.value.what
    assert "canary" not in str(caught.value)
    assert __file__.endswith(caught.value.file.rpartition("/")[2])


def test_a_file_url_is_a_path(tmp_path):
    (tmp_path / "my in").mkdir()
    rows(0, 3).write_parquet(tmp_path / "my in" / "a.parquet")

    made = ab.sources.Files((tmp_path / "my in").as_uri())

    assert {0: [1, 0]} == made.latest()
