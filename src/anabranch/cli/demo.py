"""`anabranch demo`: a program from a generator to windowed results on Spark, told as it goes."""

from __future__ import annotations

import argparse
import inspect
import sys
from dataclasses import asdict
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from anabranch.api.program import Program
from anabranch.cli.on_spark import Options, Ran, run_on_spark
from anabranch.connectors.generator import Generator
from anabranch.connectors.memory import Memory
from anabranch.epoch.triggers import available_now
from anabranch.program.aggregates import count, sum  # noqa: A004 - as users write it
from anabranch.program.windows import tumbling
from anabranch.testing.compare import assert_same_rows
from anabranch.testing.oracle import run_sequential

_EVENTS = {"event_time": pl.Int64, "ad": pl.Int64, "event_type": pl.String, "price": pl.Int64}
_ROWS, _PER_SECOND, _EPOCH_ROWS, _SHOWN = 3_000_000, 30_000, 200_000, 8
_FEW, _FEW_ROWS = 300, 6_000

EXAMPLES = (("demo", "on all cores"), ("demo --master 'local[2]'", "on two"))


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark's master (default: local[*])"
    )
    command.set_defaults(call=demo)


def events(numbers: pl.Series, per_second: int = _PER_SECOND) -> pl.DataFrame:
    """Ad events, so many a second of event time, slightly out of order; a third are views."""
    shuffled = numbers // 10 * 10 + numbers * 7 % 10
    kinds = pl.Series(["view", "click", "purchase"])
    return pl.DataFrame(
        {
            "event_time": shuffled * 1000 // per_second,
            "ad": shuffled % 1000,
            "event_type": kinds.gather(shuffled % 3),
            "price": shuffled * 31 % 97,
        }
    )


def few_events(numbers: pl.Series) -> pl.DataFrame:
    """The same at a rate that the oracle can follow."""
    return events(numbers, _FEW)


def campaign_views(source: Generator, sink: Memory) -> Program:
    """Views of each campaign and what they cost, every ten seconds."""
    campaigns = [f"campaign-{ad // 100}" for ad in range(1000)]
    ads = pl.DataFrame({"ad": range(1000), "campaign": campaigns})
    program = Program("campaign-views")
    (
        program.read(source, event_time="event_time", time_unit="ms", lateness="1 s")
        .filter(pl.col("event_type") == "view")
        .lookup(ads, on="ad")
        .window(tumbling("10 s"), by="campaign")
        .agg(views=count(), cost=sum("price"))
        .write(sink)
    )
    return program


def demo(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Show the program, run it on Spark, show its results, and that they are the oracle's."""
    if not options.json:
        print("The program (anabranch.cli.demo.campaign_views):\n")
        print(inspect.getsource(campaign_views))
    settings = Options(available_now(_EPOCH_ROWS), None, None, options.master, {})
    results, few = Memory("results"), Memory("results")
    many = Generator(events, schema=_EVENTS, rows=_ROWS, vectorized=True)
    some = Generator(few_events, schema=_EVENTS, rows=_FEW_ROWS, vectorized=True)
    ran = _run(campaign_views(many, results), settings)
    print(f"checking a run over {_FEW_ROWS:,} other events against the oracle", file=sys.stderr)
    _run(campaign_views(some, few), settings)
    expected = run_sequential(campaign_views(some, few), epoch_rows=1_000)
    assert_same_rows(expected["results"], few.rows)
    if not options.json:
        _show(results.rows)
        print(f"{_ROWS:,} events in {ran.epochs} epochs on Spark ({options.master})")
        print(
            f"The same program over {_FEW_ROWS:,} slower events, on Spark and one at a time by the"
        )
        print("oracle: the same rows, same order")
        print("\nNext: README.md has a program to start from; `anabranch run FILE` runs yours.")
    return 0, {"runtime": "spark", "events": _ROWS, "rows": len(results.rows), **asdict(ran)}


def _run(program: Program, settings: Options) -> Ran:
    """Run a program to its end: what Ctrl-C left undone would be compared in vain."""
    ended = run_on_spark([program], settings)
    if ended.asked:
        raise KeyboardInterrupt
    return ended.queries[0]


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"results: {len(rows)} rows, the first {_SHOWN}")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows[:_SHOWN]:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
