"""`anabranch run` and its options: what is wrong with a call is told before anything is started."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from anabranch.cli import main
from anabranch.cli.command import parser
from anabranch.cli.on_spark import Ended, Options, Ran, _start
from anabranch.cli.run import _options, _tell
from anabranch.epoch.triggers import Trigger, available_now, epochs

PROGRAM = """
import polars as pl
import anabranch as ab

program = ab.Program("doubles")
numbers = program.read(ab.sources.Generator(
    lambda n: {"n": n, "t": n}, schema={"n": int, "t": int}, rows=20, partitions=2), event_time="t")
numbers.filter(pl.col("n") > 3).window(ab.tumbling("10 ms"), by="n").agg(c=ab.count()).write(
    ab.sinks.Files("{out}", format="parquet"))
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "doubles.py"
    file.write_text(PROGRAM.replace("{out}", str(tmp_path / "out")))
    return file


def parsed(*given):
    return parser().parse_args(["run", "p.py", *given])


@pytest.mark.parametrize(
    ("given", "expected"),
    [("now", available_now()), ("500 ms", epochs("500 ms")), ("2s", epochs("2 s"))],
)
def test_a_trigger_is_now_or_a_duration(given, expected):
    found = parsed("--trigger", given).trigger

    assert isinstance(found, Trigger)
    assert expected == found


def test_epochs_are_as_small_as_is_said_whatever_the_trigger():
    for given, expected in [
        ([], epochs("1 s", 7)),
        (["--trigger", "now"], available_now(7)),
        (["--trigger", "2 s"], epochs("2 s", 7)),
    ]:
        assert expected == _options(parsed("--max-rows", "7", *given)).trigger
    assert _options(parsed()).trigger is None


def test_what_is_not_given_is_left_to_the_program():
    options = parsed()

    assert (None, None, None, None, []) == (
        options.trigger,
        options.checkpoint,
        options.parallelism,
        options.master,
        options.conf,
    )


def test_settings_may_be_several_and_hold_an_equals_sign():
    options = parsed("--conf", "a.b=1", "--conf", "c.d=-Dx=y z", "--conf", "e=")

    assert [("a.b", "1"), ("c.d", "-Dx=y z"), ("e", "")] == options.conf


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--trigger", "soon"], '"now", or a duration such as "1 s" or "500 ms"; got \'soon\''),
        (["--trigger", "0 s"], "got '0 s'"),
        (["--parallelism", "0"], "a whole number from 1, got '0'"),
        (["--parallelism", "two"], "a whole number from 1, got 'two'"),
        (["--conf", "spark.x"], "KEY=VALUE, such as spark.driver.memory=4g; got 'spark.x'"),
        (["--conf", "=1"], "KEY=VALUE"),
        (["--metrics-port", "0"], "a port from 1 to 65535, got '0'"),
        (["--metrics-port", "web"], "a port from 1 to 65535, got 'web'"),
        (
            ["--masters", "local"],
            "unrecognized arguments: --masters local; did you mean '--master'?",
        ),
        (["--nothing-like-it"], "run: error: unrecognized arguments: --nothing-like-it\n"),
    ],
)
def test_a_wrong_call_is_two_and_says_what_is_right(given, told, capsys):
    with pytest.raises(SystemExit) as left:
        main(["run", "p.py", *given])

    said = capsys.readouterr()
    assert (2, "") == (left.value.code, said.out)
    assert told in said.err


def test_a_wrong_call_is_an_object_too(capsys):
    with pytest.raises(SystemExit) as left:
        main(["run", "p.py", "--json", "--parallelism", "0"])

    assert 2 == left.value.code
    found = json.loads(capsys.readouterr().out)
    assert (False, "UsageError") == (found["ok"], found["error"]["type"])
    assert "a whole number from 1" in found["error"]["message"]


def test_a_file_that_is_not_there_is_told(tmp_path, capsys):
    assert 1 == main(["run", str(tmp_path / "none.py"), "--json"])

    assert "no such file" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_every_command_says_what_it_does(capsys):
    for name in ("demo", "run", "explain", "bench", "doctor", "state", "why", "top"):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert 0 == left.value.code
        assert "--json" in capsys.readouterr().out


def test_the_last_line_says_how_many_rows_were_late_or_failed_if_any(capsys):
    ran = Ran("bare", 1, 6, 2.0), Ran("both", 2, 6000, 2.0, late=1, failed=3000)

    _tell(Ended(ran), parsed())

    assert [
        "bare: 6 rows in 1 epoch, 2.00 s",
        "both: 6,000 rows in 2 epochs, 2.00 s; 1 late, 3,000 failed",
    ] == capsys.readouterr().out.splitlines()


class Changed:
    """A program that was changed since its checkpoint was made, and its query in one."""

    name, notes = "views", ("operator 'ads' is new",)

    def start(self, **options):
        return self


def test_what_has_changed_since_the_checkpoint_is_told(capsys):
    _start(Changed(), Options(available_now(), None, None, "local[2]", {}))

    assert "views: operator 'ads' is new\n" == capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_takes_all_options_and_a_second_goes_on(program, tmp_path, capsys):
    checkpoint = tmp_path / "ckpt"
    given = ["run", str(program), "--json", "--master", "local[2]", "--trigger", "now"]
    given += ["--conf", "spark.app.name=mine", "--conf", "spark.driver.memory=512m"]
    given += ["--checkpoint", str(checkpoint), "--parallelism", "3"]

    assert 0 == main(given)
    first = json.loads(capsys.readouterr().out)
    assert 0 == main(given)
    second = json.loads(capsys.readouterr().out)

    assert (True, "spark", 20) == (first["ok"], first["runtime"], first["programs"][0]["rows"])
    assert 0 == second["programs"][0]["rows"], "all was read before"
    assert [4, 5, 6] == _written(tmp_path)[:3]
    assert 0 == main(["state", str(checkpoint), "--json"])
    assert 3 == json.loads(capsys.readouterr().out)["lanes"]


WATCHED = """
import urllib.request
from pathlib import Path

import anabranch as ab

def read(rows, epoch):
    with urllib.request.urlopen("http://127.0.0.1:{port}/metrics") as answer:
        Path("{out}").write_bytes(answer.read())

program = ab.Program("watched")
numbers = program.read(ab.sources.Records([{"n": n, "t": n} for n in range(20)]), event_time="t")
numbers.window(ab.tumbling("10 ms"), by="n").agg(c=ab.count()).write(ab.sinks.Callback(read))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_is_watched_where_its_options_say(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    file, out, progress = (tmp_path / name for name in ("watched.py", "metrics", "progress.jsonl"))
    file.write_text(WATCHED.replace("{port}", str(port)).replace("{out}", str(out)))

    given = ["run", str(file), "--json", "--master", "local[2]", "--trigger", "now"]
    assert 0 == main([*given, "--metrics-port", str(port), "--progress", str(progress)])

    assert 20 == json.loads(capsys.readouterr().out)["programs"][0]["rows"]
    told = [json.loads(line) for line in progress.read_text().splitlines()]
    assert 20 == sum(each["numInputRows"] for each in told)
    assert {"watched"} == {each["name"] for each in told}
    assert 'anabranch_epochs_under_way{query="watched"} 1\n' in out.read_text()


@pytest.mark.spark
@pytest.mark.slow
def test_settings_for_another_spark_than_the_files_own_are_refused(tmp_path):
    """In a process of its own: the Spark that the file stops and starts is the whole process's."""
    file = tmp_path / "own.py"
    file.write_text(OWN_SPARK.replace("{out}", str(tmp_path / "out")))
    done = subprocess.run(
        [sys.executable, "-c", THREE_RUNS, str(file)], capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stderr[-4000:]
    refused, ran, _ = (json.loads(line) for line in done.stdout.splitlines())
    assert "--master and --conf cannot be had" in refused["error"]["message"]
    assert "master local[1,4]" in refused["error"]["message"]
    assert 5 == ran["programs"][0]["rows"]
    assert [0, 1, 2, 3, 4] == _written(tmp_path)


THREE_RUNS = """
import sys
from anabranch.cli import main

given = ["run", sys.argv[1], "--json", "--trigger", "now"]
assert 1 == main([*given, "--master", "local[4]", "--conf", "a=b"])
assert 0 == main(given)
assert 0 == main([*given, "--sequential"])
"""

# The context is stopped when the file is imported again: each import begins with none.
OWN_SPARK = """
import anabranch as ab
from anabranch.spark import private
from anabranch.spark.session import spark_context
from pyspark.sql import SparkSession

if private.active_context() is not None:
    private.active_context().stop()
spark = SparkSession(spark_context(master="local[1]").sc)
program = ab.Program("own")
program.read(ab.sources.Spark(spark.range(0, 5, 1, 1))).select("id").write(
    ab.sinks.Files("{out}", format="parquet"))
"""


def _written(tmp_path: Path):
    frame = pl.concat(
        [pl.read_parquet(file) for file in sorted((tmp_path / "out").glob("*.parquet"))]
    )
    return frame["n" if "n" in frame.columns else "id"].to_list()
