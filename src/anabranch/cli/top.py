"""`anabranch top DIR`: a query as it goes, by what it leaves in its checkpoint."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from anabranch.cli.checkpoints import Seen, place, seen
from anabranch.cli.live import size
from anabranch.clock import Clock, SystemClock
from anabranch.observe.shown import length, moment

_COLUMNS = ("program", "epochs", "rows", "rows/s", "last commit", "watermark", "lanes", "state")
_AMONG_OTHERS = ("lag", "slack", "next firing", "rank", "held", "policy")
"""Of queries that are in a session."""

_LIVE_S = 86_400.0
_WIDE = 200
"""Columns where there is no screen: nothing is cut off in a file."""

EXAMPLES = (
    ("top ckpt", "again and again, until Ctrl-C"),
    ("top ckpt/* --every 5", "all queries of one run, every five seconds"),
    ("top ckpt --json", "once, for programs"),
)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "directory", type=place, nargs="+", metavar="DIR", help="the checkpoint of a running query"
    )
    command.add_argument(
        "--every", type=_seconds, default=1.0, metavar="S", help="seconds between looks (1)"
    )
    command.add_argument(
        "--once", action="store_true", help="look once and end, as with --json and without a screen"
    )
    command.set_defaults(call=top)


def top(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Show how far queries are, again and again until Ctrl-C."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = _WIDE
    found = [seen(each) for each in options.directory]
    if not options.json:
        _show(options, console, found)
    return 0, {"queries": [asdict(each) for each in found]}


def _show(options: argparse.Namespace, console: Console, found: Sequence[Seen]) -> None:
    clock, waiting = SystemClock(), threading.Event()
    if options.once or not console.is_terminal:
        console.print(table(found, clock))
        return
    try:
        with Live(table(found, clock), console=console, auto_refresh=False) as live:
            while not waiting.wait(options.every):
                found = [seen(each) for each in options.directory]
                live.update(table(found, clock), refresh=True)
    except KeyboardInterrupt:
        return  # it is how one leaves


def table(found: Sequence[Seen], clock: Clock) -> Table:
    """A line for each query."""
    made, others = Table(box=None), any(each.session for each in found)
    for name in (*_COLUMNS, *(_AMONG_OTHERS if others else ())):
        made.add_column(name, justify="left" if name == "program" else "right", no_wrap=True)
    for each in found:
        more = _among_others(each, clock.now()) if others else ()
        made.add_row(*_cells(each, clock.now()), *more)
    return made


def _among_others(found: Seen, now: float) -> tuple[str, ...]:
    """How a query stands in its session, as of its last commit."""
    told = found.session
    if not told:
        return ("-",) * len(_AMONG_OTHERS)
    marks = [each.watermark for each in found.sources if each.watermark is not None]
    lag = now - min(marks) / 1_000_000 if marks else None
    slack, firing, held = (told.get(name) for name in ("slackMs", "nextFiring", "heldBytes"))
    return (
        # Of a replay, or at its end, a watermark tells nothing of how late it is.
        "-" if lag is None or abs(lag) > _LIVE_S else length(max(0.0, lag)),
        _signed(slack / 1000) if isinstance(slack, int | float) else "-",
        _signed(firing / 1_000_000 - now) if isinstance(firing, int) else "-",
        f"{told.get('rank', '-')}",
        size(held) if isinstance(held, int) else "-",
        f"{told.get('policy', '-')}",
    )


def _signed(seconds: float) -> str:
    """A time that may be over.

    >>> _signed(1.5), _signed(-0.25)
    ('1.5 s', '-250 ms')
    """
    return f"-{length(-seconds)}" if seconds < 0 else length(seconds)


def _cells(found: Seen, now: float) -> tuple[str, ...]:
    at, marks = found.committed_at, [each.watermark for each in found.sources]
    known = [each for each in marks if each is not None]
    return (
        found.program,
        f"{found.epochs:,}",
        f"{sum(each.rows for each in found.sources):,}",
        "-" if found.rows_per_second is None else f"{found.rows_per_second:,.0f}",
        "-" if at is None else f"{length(max(0.0, now - at / 1_000_000))} ago",
        # The least counts, and a source without one holds all.
        moment(min(known) if known and len(known) == len(marks) else None),
        f"{found.lanes}",
        size(sum(each.bytes for each in found.operators)),
    )


def _seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        message = f"from 0.1 to 3600 seconds, got {given!r}"
        raise argparse.ArgumentTypeError(message)
    return seconds
