"""Scarce memory and disks under a real Spark: scenarios 15 and 16 of the reliability notes.

A process is given a limit while it runs, which is as good as a machine that has no more. What was
committed stays whole, the query says what there was too little of, and with enough of it the next run
goes on to the same output.
"""

import resource
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import RunError
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import written
from tests.spark.shaking import lanes_of
from tests.spark.test_spine import PATIENCE_S, ended, files, promptly

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = {"k": pl.Int64, "text": pl.String}
LARGE = 1 << 22


@contextmanager
def limited(pid, what, most):
    """Let a process have no more; it gets what it had back."""
    before = resource.prlimit(pid, what, (most, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        if Path(f"/proc/{pid}").exists():
            resource.prlimit(pid, what, before)


def jvm_of(sc):
    """The process that this Spark runs in; others of this process's past may be there still."""
    return sc._jvm.java.lang.ProcessHandle.current().pid()


def size_of(pid):
    """The memory that a process has for addresses."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


class Rows:
    """A directory to which some small rows, or a large one, are added."""

    def __init__(self, home):
        self.home, self._files, self._rows = home, 0, 0
        (home / "in").mkdir()

    def add(self, count=6, size=1):
        at, self._files = self._files, self._files + 1
        rows = [{"k": n % 3, "text": chr(97 + n % 26) * size} for n in range(count)]
        draft = self.home / f"draft-{at}"
        pl.DataFrame(rows, schema=SCHEMA).write_parquet(draft)
        draft.rename(self.home / "in" / f"{at:05d}.parquet")

    def program(self):
        program = ab.Program("lengths")
        source = ab.sources.Files(self.home / "in", format="parquet", schema=SCHEMA)
        (
            program.read(source, name="in")
            .key_by("k")
            .process(longest, out={"k": pl.Int64, "n": pl.Int64}, name="longest")
            .write(files(self.home), name="out")
        )
        return program

    def start(self, sc, lanes=1, trigger=None):
        return self.program().start(
            sc,
            trigger=trigger or ab.epochs("20 ms"),
            checkpoint=self.home / "ckpt",
            parallelism=lanes,
            slices=8,
        )

    def check(self):
        expected = run_sequential(self.program(), log=self.home / "ckpt")["out"]
        assert_same_rows(expected, written(self.home / "out"))
        return expected


def longest(row, state):
    state.value = max(state.value or 0, len(row["text"]))
    yield {"k": row["k"], "n": state.value}


def fails(query):
    with pytest.raises(RunError) as caught:
        query.await_termination(PATIENCE_S)
    return str(caught.value)


def goes_on(rows, sc):
    """With enough of it the next run takes all that is left."""
    ended(rows.start(sc, lanes=2, trigger=ab.available_now()))
    assert LARGE in {row["n"] for row in rows.check()}


def test_a_lane_out_of_memory_commits_nothing_and_says_what_helps(spark_context, tmp_path):
    rows = Rows(tmp_path)
    rows.add()
    query = rows.start(spark_context)
    promptly(query.process_all_available)
    pid = lanes_of(query).pids()[0]
    with limited(pid, resource.RLIMIT_AS, size_of(pid) + LARGE):
        rows.add(30, LARGE)
        told = fails(query)

    assert "emory" in told or "malloc" in told, told
    assert "fewer rows in an epoch" in told, told
    assert 6 == len(rows.check()), "nothing of that epoch counts"
    goes_on(rows, spark_context)


def test_a_full_disk_under_sparks_shuffle_commits_nothing_and_is_told(
    spark_context, tmp_path, monkeypatch
):
    monkeypatch.setenv("ANABRANCH_EXCHANGE", "shuffle")
    rows = Rows(tmp_path)
    rows.add()
    query = rows.start(spark_context)
    promptly(query.process_all_available)
    with limited(jvm_of(spark_context), resource.RLIMIT_FSIZE, LARGE):
        rows.add(6, LARGE)
        told = fails(query)

    assert "File too large" in told, told
    assert "make room" in told, told
    assert 6 == len(rows.check()), "nothing of that epoch counts"
    goes_on(rows, spark_context)
