"""Records at which a function raises, and one at which its process ends, on Spark.

One that raises, of whatever kind the exception is, costs that record and no more, as `on_error` says. One
that kills its process is looked for and named, with nothing of its epoch committed.
"""

import json
import os
import signal

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import written

PATIENCE_S = 60
ROWS = [{"k": f"k{i % 3}", "n": i} for i in range(30)]
POISON = 17
SCHEMA = {"k": pl.String, "n": pl.Int64}
OUT = {"k": pl.String, "sum": pl.Int64}


class Odd(Exception):
    """One that cannot even be shown."""

    def __str__(self):
        raise ValueError("no words")


def huge():
    return bytearray(1 << 60)


def deep(n=0):
    return deep(n + 1)


RAISING = {
    "a plain one": lambda: 1 // 0,
    "out of memory": huge,
    "too deep": deep,
    "without words": lambda: (_ for _ in ()).throw(Odd()),
    "of surrogates": lambda: (_ for _ in ()).throw(ValueError("\ud800\0")),
}


def program(home, how, on_error):
    """Sums by key; the state is touched before the poison works, which must undo it (M11)."""

    @ab.operator(state="keyed")
    def add(record, state):
        state.value = (state.value or 0) + record["n"]
        if record["n"] == POISON and how is not None:
            RAISING[how]()
        yield {"k": record["k"], "sum": state.value}

    made = ab.Program("poison")
    read = made.read(ab.sources.Records(ROWS, schema=SCHEMA), name="in")
    sums = read.key_by("k").process(add, out=OUT, name="add", on_error=on_error)
    sums.write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    if on_error == "dead_letter":
        letters = ab.sinks.Files(home / "letters", format="parquet")
        sums.dead_letters.write(letters, name="letters")
    return made


def run(made, home, lanes=2):
    settings = Settings(
        ab.available_now(4), home / "ckpt", lanes, slices=8, keep=None, in_flight=16
    )
    assert start(made.freeze(), settings, InlineExecutor()).await_termination(PATIENCE_S)


@pytest.mark.parametrize("how", RAISING)
def test_a_record_that_raises_fails_the_query_with_the_record_and_the_next_run_goes_on(
    how, tmp_path
):
    with pytest.raises(RunError) as caught:
        run(program(tmp_path, how, "fail"), tmp_path)
    assert "add failed on" in str(caught.value)
    assert '"n": 17' in str(caught.value)
    assert len(written(tmp_path / "out")) <= 16, "nothing of its epoch was committed"

    run(program(tmp_path, None, "fail"), tmp_path, lanes=3)

    expected = run_sequential(program(tmp_path, None, "fail"), log=tmp_path / "ckpt")["out"]
    assert 30 == len(expected)
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
@pytest.mark.parametrize("how", RAISING)
def test_a_record_that_raises_is_left_out_and_all_others_count(how, on_error, tmp_path):
    run(program(tmp_path, how, on_error), tmp_path)

    expected = run_sequential(program(tmp_path, how, on_error), log=tmp_path / "ckpt")
    assert 29 == len(expected["out"])
    assert_same_rows(expected["out"], written(tmp_path / "out"))
    if on_error == "dead_letter":
        assert_same_rows(told(expected["letters"]), told(written(tmp_path / "letters")))
        (letter,) = written(tmp_path / "letters")
        assert {"k": "k2", "n": 17} == json.loads(letter["record"])
        assert ("add", "in", "0", 17, 4) == tuple(
            letter[name] for name in ("operator", "source", "partition", "offset", "epoch")
        )
        assert "error" == letter["reason"]


def told(letters):
    """Letters without the frames, which are of another stack."""
    return [{**letter, "traceback": None} for letter in letters]


def deadly(record):
    """A kernel that ends its process, as a fault in native code does."""
    if record["n"] == POISON:
        os.kill(os.getpid(), signal.SIGSEGV)
    return record


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
def test_a_record_that_kills_its_process_is_named_and_nothing_is_lost(tmp_path):
    def made(function):
        program = ab.Program("deadly")
        read = program.read(ab.sources.Records(ROWS, schema=SCHEMA), name="in")
        mapped = read.map(function, out=SCHEMA, name="deadly")
        mapped.write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")
        return program

    options = {"trigger": ab.available_now(4), "checkpoint": tmp_path / "ckpt", "parallelism": 2}
    with pytest.raises(RunError, match=r"ends every process.*17"):
        made(deadly).start(master="local[2]", **options).await_termination(300)
    assert len(written(tmp_path / "out")) <= 16
    made(_harmless).start(master="local[2]", **options).await_termination(300)

    assert ROWS == written(tmp_path / "out")


def _harmless(record):
    return record
