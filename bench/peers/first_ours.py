"""A small program from nothing to its first result: `python first_ours.py INPUTS HOME`.

A script as a user writes it. It prints how many windows there are, of how many rows, and ends.
"""

import sys
from pathlib import Path

import polars as pl

import anabranch as ab


def main(inputs: Path, home: Path) -> None:
    """The whole of it."""
    program = ab.Program("first")
    (
        program.read(ab.sources.Files(inputs, format="parquet"), event_time="at", lateness="1 s")
        .filter(pl.col("value") > 2)
        .window(ab.tumbling("10 s"), by="key")
        .agg(n=ab.count(), total=ab.sum("value"))
        .write(ab.sinks.Files(home / "out", format="parquet"))
    )
    query = program.start(
        trigger=ab.available_now(), checkpoint=home / "checkpoint", master="local[2]"
    )
    query.await_termination()

    found = pl.read_parquet(home / "out" / "**" / "*.parquet")
    print(found.height, found["n"].sum(), found["total"].sum(), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
