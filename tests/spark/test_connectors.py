"""Connectors on a real Spark: text files, rows that come by the clock, and rows on the driver."""

import threading

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import RunError
from anabranch.testing import assert_same_rows, run_sequential
from tests.connectors.test_unread_runs import SCHEMA, torn
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import written
from tests.spark.test_spine import ended, promptly

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(params=["files", "shuffle"])
def _exchange(request, monkeypatch):
    monkeypatch.setenv("ANABRANCH_EXCHANGE", request.param)


def made(sink, *, ordered=True):
    make, rows, schema = PROGRAMS["campaign_views"]
    return make(ab.sources.Records(rows(60), schema=schema, partitions=2), sink, ordered=ordered)


class Taken:
    """Keeps what it gets; neither the lock nor the thread's name could travel to a task."""

    def __init__(self):
        self.epochs, self._lock = [], threading.Lock()

    def __call__(self, rows, epoch):
        with self._lock:
            self.epochs.append((epoch, rows))


@pytest.mark.usefixtures("_exchange")
@pytest.mark.parametrize("ordered", [True, False])
def test_a_function_gets_every_epoch_in_order(ordered, spark_context, tmp_path):
    taken = Taken()
    program = made(ab.sinks.Callback(taken), ordered=ordered)

    ended(
        program.start(
            spark_context,
            trigger=ab.available_now(7),
            checkpoint=tmp_path / "ckpt",
            parallelism=2,
        )
    )

    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    numbers = [epoch for epoch, _ in taken.epochs]
    assert sorted(set(numbers)) == numbers
    assert_same_rows(expected, [row for _, rows in taken.epochs for row in rows], ordered=ordered)


def test_a_function_that_fails_is_called_again_by_the_next_run(spark_context, tmp_path):
    taken = Taken()

    def save(rows, epoch):
        taken(rows, epoch)
        if len(taken.epochs) == 2:
            raise ValueError("no room")

    def start():
        return made(ab.sinks.Callback(save)).start(
            spark_context, trigger=ab.available_now(7), checkpoint=tmp_path / "ckpt"
        )

    with pytest.raises(RunError, match=r"save failed on epoch \d+: ValueError: no room"):
        promptly(start().await_termination)
    failed = taken.epochs[-1]
    ended(start())

    assert failed in taken.epochs[2:]
    last = dict(taken.epochs)
    assert all(last[epoch] == rows for epoch, rows in taken.epochs)
    expected = run_sequential(made(ab.sinks.Callback(save)), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, [row for epoch in sorted(last) for row in last[epoch]])


@pytest.mark.usefixtures("_exchange")
def test_epochs_are_printed_in_order(spark_context, tmp_path, capsys):
    program = made(ab.sinks.Console(rows=100))

    ended(
        program.start(
            spark_context,
            trigger=ab.available_now(7),
            checkpoint=tmp_path / "ckpt",
            parallelism=2,
        )
    )

    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines if "|" in line]
    found = [row for row in cells if row[0] != "window_start"]
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert [[str(value) for value in row.values()] for row in expected] == found
    heads = [line for line in lines if line.startswith("campaign-views / out / epoch ")]
    assert len(heads) == len(cells) - len(found)


@pytest.mark.usefixtures("_exchange")
def test_a_rate_goes_on_in_another_run_with_the_same_rows(spark_context, tmp_path):
    """By the machine's own clock: what is there when is its affair, what is in a row is not."""

    def program():
        made = ab.Program("rate")
        stream = made.read(ab.sources.Rate(1_000), event_time="timestamp")
        stream.window(ab.tumbling("100 ms")).agg(
            n=ab.count(), least=ab.min("value"), most=ab.max("value")
        ).write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")
        return made

    ids = set()
    for _ in range(2):
        query = program().start(
            spark_context, trigger=ab.epochs("50 ms"), checkpoint=tmp_path / "ckpt", parallelism=2
        )
        before = query.statistics()["rows"]
        while query.statistics()["rows"] < before + 400:
            promptly(query.process_all_available)
        query.stop()
        ids.add(query.id)

    found = written(tmp_path / "out")
    assert_same_rows(run_sequential(program(), log=tmp_path / "ckpt")["out"], found)
    frame = pl.DataFrame(found)
    assert frame["n"].equals(frame["most"] - frame["least"] + 1, check_names=False)
    assert frame["least"][1:].to_list() == [each + 1 for each in frame["most"][:-1]]
    assert 0 == frame["least"][0]
    assert frame["n"][1:-1].unique().to_list() == [100]
    assert 1 == len(ids)


@pytest.mark.parametrize(("given", "made_of"), [("csv", "jsonl"), ("jsonl", "csv")])
def test_text_files_are_read_and_written(given, made_of, spark_context, tmp_path):
    schema = {"at": pl.Datetime("us"), "k": pl.String, "n": pl.Int64}
    frame = pl.DataFrame({"n": range(40)}, schema={"n": pl.Int64}).select(
        at=pl.datetime(2026, 1, 1) + pl.duration(seconds=pl.col("n")),
        k=pl.lit("a,\n") + (pl.col("n") % 3).cast(pl.String),
        n=pl.col("n"),
    )
    write = ab.sinks.Files(tmp_path / "in", format=given)
    for part in range(4):
        batches = frame.slice(10 * part, 10).to_arrow().to_batches()
        write.publish([write.write(batches, part, "a")], part)
    program = ab.Program("text")
    source = ab.sources.Files(tmp_path / "in", format=given, schema=schema, bounded=True)
    windows = program.read(source, name="in", event_time="at").window(ab.tumbling("7 s"), by="k")
    sums = windows.agg(n=ab.sum("n"))
    sums.write(ab.sinks.Files(tmp_path / "out", format=made_of), name="out")

    ended(
        program.start(
            spark_context,
            trigger=ab.available_now(7),
            checkpoint=tmp_path / "ckpt",
            parallelism=2,
        )
    )

    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    found = ab.sources.Files(tmp_path / "out", format=made_of, schema=sums.schema)
    splits = found.plan({}, found.latest())
    assert 18 == len(expected)
    assert_same_rows(
        expected, [row for split in splits for row in found.frame(split).rows(named=True)]
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_cannot_be_read_is_told_and_spark_reads_what_was_partitioned(
    suffix, spark_context, tmp_path
):
    from pyspark.sql import SparkSession

    torn(tmp_path, suffix)
    source = ab.sources.Files(tmp_path / "in", format=suffix, schema=SCHEMA, bounded=True)
    program = ab.Program("torn")
    read = program.read(source, name="in", event_time="t", on_error="dead_letter")
    letters = ab.sinks.Files(tmp_path / "letters", format="parquet")
    read.dead_letters.write(letters, name="letters")
    day = pl.when(pl.col("n") % 4 > 0).then(pl.format("ü/{}=%", pl.col("n") % 2))
    out = ab.sinks.Files(tmp_path / "out", format="parquet", partition_by=["day", "k"])
    read.with_columns(day=day).write(out, name="out")

    ended(
        program.start(
            spark_context,
            trigger=ab.available_now(3),
            checkpoint=tmp_path / "ckpt",
            parallelism=2,
        )
    )

    expected = run_sequential(program, log=tmp_path / "ckpt")
    assert 3 <= len(expected["letters"])
    assert_same_rows(expected["letters"], written(tmp_path / "letters"))
    columns = list(expected["out"][0])
    # Spark's own time zone would show in timestamps, so those are left out.
    found = SparkSession(spark_context).read.parquet(str(tmp_path / "out")).drop("t").collect()
    rows = sorted(({**each.asDict(), "t": None} for each in found), key=lambda row: row["n"])
    assert [{**row, "t": None} for row in expected["out"]] == [
        {name: row[name] for name in columns} for row in rows
    ]
