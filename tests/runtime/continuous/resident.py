"""Continuous queries in this process, whose tasks can be made to die."""

import polars as pl

import anabranch as ab
from anabranch.api.starting import start
from anabranch.clock import SystemClock
from anabranch.runtime.assembly import Settings
from anabranch.simulate.residence import ThreadPlacer
from anabranch.testing import assert_same_rows, run_sequential

SCHEMA = {"n": pl.Int64, "k": pl.Int64, "t": pl.Int64}


def numbers(rows, partitions=1, keys=7):
    """A source of so many rows, of which there are some at each look."""
    return ab.sources.Generator(
        lambda n: pl.DataFrame({"n": n, "k": n % keys, "t": n * 10}),
        schema=SCHEMA,
        rows=rows,
        partitions=partitions,
        vectorized=True,
    )


def totals(source, sink):
    """A chain with keyed state and a window behind it."""
    program = ab.Program("totals")
    (
        program.read(source, name="in", event_time="t", lateness="20 ms")
        .filter(pl.col("n") % 5 != 0)
        .key_by("k")
        .reduce(lambda before, record: {**record, "n": before["n"] + record["n"]})
        .window(ab.tumbling("70 ms"), by="k")
        .agg(last=ab.max("n"), rows=ab.count())
        .write(sink, name="out")
    )
    return program


class Residence:
    """A program's runs on one checkpoint."""

    def __init__(self, home, program, lanes=2):
        self.home, self.program, self.lanes = home, program, lanes
        self.placer = None

    def start(self, trigger=None, lanes=None):
        clock = SystemClock()
        self.placer = ThreadPlacer(clock)
        settings = Settings(
            trigger or ab.continuous("1 ms", "20 ms"),
            self.home,
            lanes or self.lanes,
            slices=8,
            keep=None,
        )
        return start(self.program.freeze(), settings, self.placer, clock=clock)

    def expected(self):
        return run_sequential(self.program, log=self.home)


def assert_as_logged(residence, rows, name="out"):
    expected = residence.expected()[name]
    assert expected, "there is something to compare"
    assert_same_rows(expected, rows)
