"""A report as text, the same on a terminal, in a file and on every machine."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness.report import Header, Report, Row

WIDTH = 120
WIDEST = 160
"""Of a table: a line of it is never broken, and a unit that is cut off says nothing."""


def text(report: Report) -> str:
    """Name, header, one line a row, notes."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, color_system=None, highlight=False, emoji=False)
    console.print(f"bench {report.bench}\n", markup=False)
    for line in header_lines(report.header):
        console.print(line, markup=False)
    console.width = WIDEST
    console.print(_table(report.rows))
    console.width = WIDTH
    for note in report.notes:
        console.print(f"Note: {note}", markup=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def header_lines(header: Header) -> Iterator[str]:
    """One line a fact; what is not known is left out."""
    for name, value in asdict(header).items():
        if value is not None:
            yield f"{name:<10}  {value}"


def amount(value: float) -> str:
    """A number with three digits that matter, and all of them before the point.

    >>> [amount(x) for x in (1234567.8, 12.345, 0.0012345, 0.0)]
    ['1,234,568', '12.3', '0.00123', '0']
    """
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _table(rows: tuple[Row, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("case", "metric", "system"):
        table.add_column(name, no_wrap=True)
    for name in ("median", "low", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("unit")
    table.add_column("runs", justify="right")
    table.add_column("ratio", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{amount(row.ratio)} x {row.against}"
    numbers = (amount(row.value), amount(row.low), amount(row.high))
    return (row.case, row.metric, row.system, *numbers, row.unit, str(row.runs), ratio)
