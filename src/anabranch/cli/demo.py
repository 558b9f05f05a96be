"""`anabranch demo`: a program from a generator to windowed results, told as it goes."""

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
from anabranch.cli.sequentially import NOTICE, run_to_sinks
from anabranch.connectors.generator import Generator
from anabranch.connectors.memory import Memory
from anabranch.program.aggregates import count, count_distinct
from anabranch.program.windows import tumbling
from anabranch.testing.compare import assert_same_rows
from anabranch.testing.oracle import run_sequential

_EVENTS = {"event_time": pl.Int64, "ad": pl.Int64, "event_type": pl.String, "user": pl.Int64}
_ROWS, _PER_SECOND, _SHOWN = 9_000, 300, 8


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.set_defaults(call=demo)


def events(numbers: pl.Series) -> pl.DataFrame:
    """Ad events, 300 a second of event time, slightly out of order; a third of them are views."""
    shuffled = numbers // 10 * 10 + numbers * 7 % 10
    kinds = pl.Series(["view", "click", "purchase"])
    return pl.DataFrame(
        {
            "event_time": shuffled * 1000 // _PER_SECOND,
            "ad": shuffled % 1000,
            "event_type": kinds.gather(shuffled % 3),
            "user": shuffled * 31 % 97,
        }
    )


def campaign_views() -> Program:
    """Views and users of each campaign, every ten seconds."""
    ads = pl.DataFrame(
        {"ad": range(1000), "campaign": [f"campaign-{ad // 100}" for ad in range(1000)]}
    )
    program = Program("campaign-views")
    source = Generator(events, schema=_EVENTS, rows=_ROWS, vectorized=True)
    (
        program.read(source, event_time="event_time", time_unit="ms", lateness="1 s")
        .filter(pl.col("event_type") == "view")
        .lookup(ads, on="ad")
        .window(tumbling("10 s"), by="campaign")
        .agg(views=count(), users=count_distinct("user"))
        .write(Memory("results"))
    )
    return program


def demo(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Show the program, run it, show its results, and that the cuts of the log do not show."""
    if not options.json:
        print("The program (anabranch.cli.demo.campaign_views):\n")
        print(inspect.getsource(campaign_views))
    print(NOTICE, file=sys.stderr)
    ran, written = run_to_sinks(campaign_views())
    again = run_sequential(campaign_views(), epoch_rows=123)
    assert_same_rows(written["results"], again["results"])
    if not options.json:
        _show(written["results"])
        rate = _ROWS / ran.seconds
        print(f"{_ROWS} events in {ran.epochs} epochs, {ran.seconds:.2f} s, {rate:,.0f} events/s")
        print("run again in epochs of 123 rows: the same rows in the same order")
        print("\nNext: README.md has a program to start from; `anabranch run FILE` runs yours.")
    return 0, {"runtime": "oracle", "events": _ROWS, **asdict(ran)}


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"results: {len(rows)} rows, the first {_SHOWN}")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows[:_SHOWN]:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
