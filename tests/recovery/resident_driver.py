"""A continuous query as a program of its own, to be killed: into files, to the end of its rows."""

import sys
from pathlib import Path

import polars as pl

import anabranch as ab

SCHEMA = {"n": pl.Int64, "k": pl.Int64, "t": pl.Int64}
ROWS = 20_000


def counted(record, state):
    state.value = (state.value or 0) + 1
    yield {**record, "n": state.value}


def program(home):
    source = ab.sources.Generator(
        lambda n: pl.DataFrame({"n": n, "k": n % 7, "t": n * 10}),
        schema=SCHEMA,
        rows=ROWS,
        rate=4_000,
        vectorized=True,
    )
    made = ab.Program("killed")
    (
        made.read(source, name="in", event_time="t")
        .key_by("k")
        .process(counted, out=SCHEMA)
        .window(ab.tumbling("50 ms"), by="k")
        .agg(last=ab.max("n"), rows=ab.count())
        .write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    )
    return made


if __name__ == "__main__":
    home = Path(sys.argv[1])
    query = program(home).start(
        trigger=ab.continuous("5 ms", "200 ms"),
        checkpoint=home / "ckpt",
        parallelism=2,
        master="local[2]",
    )
    query.await_termination()
