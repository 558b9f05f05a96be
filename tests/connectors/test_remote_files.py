"""Files in an object store, read and written, here on a local server that speaks S3's protocol."""

import pickle
import sys

import polars as pl
import pytest

import anabranch as ab
from anabranch.connectors.places import RemotePlace
from anabranch.errors import ProgramError, RunError
from anabranch.objects import Bucket, ObjectUrl
from anabranch.simulate.inline import UNKIND
from anabranch.testing import assert_same_rows, check_sink, check_source, run_sequential
from tests.runtime.programs import PROGRAMS
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


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"], indirect=True)
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


# ---- the sink -----------------------------------------------------------------------------------


def sink(url, suffix="parquet", **options):
    return ab.sinks.Files(url, format=suffix, **options)


def seen(url, suffix="parquet", schema=None):
    """What a reader sees who lists the place: the rows of all files, in the order of their names."""
    program = ab.Program("reader")
    read = ab.sources.Files(url, format=suffix, schema=schema or SCHEMA, bounded=True)
    program.read(read).write(ab.sinks.Memory("out"))
    return run_sequential(program)["out"]


def names(url):
    return sorted(Bucket(ObjectUrl.of(url), "test").sizes(""))


def batches(low, high):
    return rows(low, high).to_arrow().to_batches()


@pytest.fixture
def out(bucket):
    return f"{bucket}/results/out"


@pytest.mark.slow
def test_it_does_what_sinks_promise(out):
    check_sink(sink(out), read=lambda: seen(out), rows=rows(0, 40), again=lambda: sink(out))


def test_an_epoch_is_shown_once_and_nothing_is_left_staged(out):
    made = sink(out)
    messages = [made.write(batches(0, 3), 4, "1-0"), made.write(batches(3, 5), 4, "1-1")]
    assert [] == seen(out)

    made.publish(messages, 4)
    pickle.loads(pickle.dumps(made)).publish(messages, 4)

    assert list(range(5)) == [row["n"] for row in seen(out)]
    assert ["part-0000000004-00000.parquet", "part-0000000004-00001.parquet"] == names(out)


@pytest.mark.parametrize("step", range(1, 5))
def test_publishing_again_after_a_crash_at_any_request_ends_in_the_same_place(
    out, step, monkeypatch
):
    made = sink(out)
    messages = [made.write(batches(0, 3), 4, "1-0"), made.write(batches(3, 5), 4, "1-1")]
    calls = []

    class Crash(BaseException):
        pass

    def dying(real):
        def call(self, *arguments):
            for each in [arguments] if real is copy else [(name,) for name in arguments]:
                calls.append(each)
                real(self, *each)
                if len(calls) == step:
                    raise Crash

        return call

    copy, delete = Bucket.copy, Bucket.delete
    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "copy", dying(copy))
        patched.setattr(Bucket, "delete", dying(delete))
        with pytest.raises(Crash):
            made.publish(messages, 4)

    assert step == len(calls)
    sink(out).publish(messages, 4)
    assert ["part-0000000004-00000.parquet", "part-0000000004-00001.parquet"] == names(out)
    assert list(range(5)) == [row["n"] for row in seen(out)]


def test_a_file_of_another_run_is_not_overwritten(out):
    made = sink(out)
    first = made.write(batches(0, 3), 0, "1-0")
    made.publish([first], 0)
    second = made.write(batches(5, 9), 0, "2-0")

    with pytest.raises(RunError, match=r"part-0000000000-00000\.parquet is there already, written"):
        made.publish([second], 0)

    assert [0, 1, 2] == [row["n"] for row in seen(out)]
    assert f"_staging/{second['staged']}" in names(out)


def test_output_that_was_removed_before_it_was_shown_is_told(out):
    made = sink(out)
    message = made.write(batches(0, 3), 0, "1-0")
    Bucket(ObjectUrl.of(out), "test").delete(f"_staging/{message['staged']}")

    with pytest.raises(RunError, match="is neither staged nor published"):
        made.publish([message], 0)


def test_what_is_left_of_a_dead_run_is_swept(out):
    made = sink(out)
    kept, _ = made.write(batches(0, 3), 0, "1-0"), made.write(batches(0, 3), 0, "1-1")

    made.sweep([kept])

    assert [f"_staging/{kept['staged']}"] == names(out)
    made.abort([kept], 0)
    assert [] == names(out)


def test_rows_that_fail_leave_nothing(out):
    def failing():
        yield from batches(0, 3)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        sink(out).write(failing(), 0, "1-0")

    assert [] == names(out)


def test_a_store_whose_copies_overwrite_is_refused_before_anything_is_shown(out, monkeypatch):
    import obstore

    real = obstore.copy
    monkeypatch.setattr(
        obstore, "copy", lambda store, a, b, overwrite: real(store, a, b, overwrite=True)
    )

    with pytest.raises(RunError, match="it has no conditional puts"):
        sink(out).sweep(())
    assert [] == names(out)


def test_partitions_are_directories_of_names_that_are_read_again(out):
    made = sink(out, partition_by="word")
    frame = pl.DataFrame({"n": [1, 2, 3], "word": ["a b/c", "ü", "a b/c"]})

    made.publish([made.write(frame.to_arrow().to_batches(), 0, "1-0")], 0)

    assert {
        "word=a%20b%2Fc/part-0000000000-00000.parquet",
        "word=ü/part-0000000000-00000.parquet",
    } == {*names(out)}
    assert [1, 3, 2] == [row["n"] for row in seen(out, schema={"n": pl.Int64})]


@pytest.mark.slow
def test_a_query_reads_one_place_and_writes_another_through_a_crash(bucket, tmp_path):
    """Source, sink and checkpoint are in the store."""
    _, events, schema = PROGRAMS["fraud"]
    frame = pl.DataFrame(events(120), schema=schema)
    for at in range(0, 120, 40):
        put(f"{bucket}/in", f"{at:03d}.parquet", frame[at : at + 40], tmp_path)

    def made():
        read = ab.sources.Files(f"{bucket}/in", format="parquet", schema=schema)
        return PROGRAMS["fraud"][0](read, sink(f"{bucket}/out"))

    from anabranch.state.stores import place_of
    from tests.recovery.test_object_checkpoints import downloaded

    place = place_of(f"{bucket}/ckpt")
    run(made(), place, mischief=UNKIND, in_flight=2, stop_after=5)
    run(made(), place, seed=1, mischief=UNKIND, lanes=3)

    expected = run_sequential(made(), log=downloaded(place, tmp_path / "log"))["out"]
    assert expected
    assert_same_rows(expected, seen(f"{bucket}/out", schema=dict(pl.DataFrame(expected).schema)))
    assert not [name for name in names(f"{bucket}/out") if name.startswith("_")]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("hdfs://host/out", "Files: nothing can be written to hdfs://host/out"),
        ("s3://key:canary@bucket/x", "s3://***@bucket/x has credentials in it"),
        ("s3://bucket/x?a=b", "has settings in it"),
        ("s3://", "s3:// names no place in an object store"),
    ],
)
def test_a_sink_that_cannot_be_is_refused(url, message):
    with pytest.raises(ProgramError) as caught:
        sink(url)

    assert message in caught.value.what
    assert "canary" not in str(caught.value)
    assert __file__.endswith(caught.value.file.rpartition("/")[2])


def test_a_sink_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(ProgramError, match=r"pip install \"anabranch\[objects\]\""):
        sink("s3://bucket/out")


def test_a_bucket_that_is_not_there_is_told_when_it_is_written(bucket):
    with pytest.raises(RunError, match="there is no such bucket"):
        sink("s3://no-such-bucket/out").write(batches(0, 3), 0, "1-0")


def test_a_sink_at_a_file_url_is_a_directory(tmp_path):
    made = sink((tmp_path / "my out").as_uri())

    made.publish([made.write(batches(0, 3), 0, "1-0")], 0)

    assert 3 == pl.read_parquet(tmp_path / "my out").height
