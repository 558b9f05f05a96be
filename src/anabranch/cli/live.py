"""How queries are getting on: a table that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.clock import Clock
from anabranch.observe.shown import length

LINE_S = 10.0
"""Between two lines of a query where there is no terminal: a log is read later, and kept."""
_LABELS = ("query", "rows", "rows/s", "epochs", "latency", "watermark lag", "state", "")


class Running(Protocol):
    """What a query tells of itself."""

    @property
    def name(self) -> str:
        """Its program's."""

    @property
    def status(self) -> dict[str, Any]:
        """What it does just now."""

    @property
    def recent_progress(self) -> list[dict[str, Any]]:
        """The figures of the last commits."""

    def statistics(self) -> dict[str, Any]:
        """Totals."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A query at a moment."""

    name: str
    doing: str
    rows: int = 0
    epochs: int = 0
    rows_per_second: float | None = None
    latency_s: float | None = None
    """From the cut of the newest epoch to its commit."""
    lag_s: float | None = None
    """How far the watermark that is most behind is behind the wall's time."""
    state_bytes: int = 0

    @classmethod
    def of(cls, query: Running) -> Self:
        """What a query says now."""
        recent, totals = query.recent_progress, query.statistics()
        doing = str(query.status["message"]).splitlines()[0].lower()
        if not recent:
            return cls(query.name, doing)
        ours = recent[-1]["anabranch"]
        lags = [each["lagMs"] for each in ours["sources"].values() if each["lagMs"] is not None]
        return cls(
            query.name,
            doing,
            totals["rows"],
            totals["epochs"],
            recent[-1]["processedRowsPerSecond"],
            ours["latencyMs"][-1] / 1000 if ours["latencyMs"] else None,
            max(0.0, *lags) / 1000 if lags else None,
            _state_bytes(recent),
        )

    def cells(self) -> tuple[str, ...]:
        """As the cells of a row.

        >>> Figures("views", "waiting", 1234567, 3, 5000.0, 0.25, 90.0, 1 << 21).cells()
        ('views', '1,234,567', '5,000', '3', '250 ms', '1 min 30 s', '2.1 MB', 'waiting')
        """
        return (
            self.name,
            f"{self.rows:,}",
            "-" if self.rows_per_second is None else f"{self.rows_per_second:,.0f}",
            f"{self.epochs:,}",
            "-" if self.latency_s is None else length(self.latency_s),
            "-" if self.lag_s is None else length(self.lag_s),
            size(self.state_bytes),
            self.doing,
        )

    def line(self) -> str:
        """As a line of a log.

        >>> Figures("views", "waiting", 7, 3, 5000.0, 0.25, None, 512).line()
        'views: 7 rows, 5,000 rows/s, 3 epochs, latency 250 ms, state 512 bytes, waiting'
        """
        _, rows, rate, epochs, latency, lag, state, doing = self.cells()
        if not self.epochs:
            return f"{self.name}: {doing}"
        parts = [f"{rows} rows", f"{rate} rows/s", f"{epochs} epochs", f"latency {latency}"]
        if self.lag_s is not None:
            parts.append(f"watermark lag {lag}")
        return f"{self.name}: {', '.join([*parts, f'state {state}', doing])}"


def size(count: int) -> str:
    """Bytes in a unit that is easy to read.

    >>> size(1), size(999), size(15_750), size(3_200_000_000)
    ('1 byte', '999 bytes', '15.8 kB', '3.2 GB')
    """
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    shown, units = count / 1000, ["kB", "MB", "GB", "TB", "PB"]
    while shown >= 999.95 and len(units) > 1:
        shown, units = shown / 1000, units[1:]
    return f"{shown:.1f} {units[0]}"


def _state_bytes(recent: Sequence[Mapping[str, Any]]) -> int:
    """Of all operators: a commit tells only of those that it changed."""
    newest: dict[str, int] = {}
    for progress in recent:
        for each in progress["stateOperators"]:
            newest[each["operatorName"]] = each["customMetrics"]["stateBytes"]
    return sum(newest.values())


class Screen:
    """Where progress is shown: on standard error, never on standard output."""

    def __init__(self, console: Console, clock: Clock, live: Live | None) -> None:
        """Show on a console; with a `live` there is a terminal."""
        self._console, self._clock, self._live = console, clock, live
        self._notice = ""
        self._shown: tuple[Figures, ...] = ()
        self._at = clock.elapsed()

    def say(self, text: str) -> None:
        """Say something that stays to be seen."""
        self._notice = text
        if self._live is None:
            self._line(text)

    def show(self, queries: Sequence[Running]) -> None:
        """Show how they are now."""
        figures = tuple(Figures.of(each) for each in queries)
        if self._live is not None:
            self._live.update(
                Group(table(figures), *([Text(self._notice)] if self._notice else []))
            )
        elif self._is_time():
            for each in figures:
                if each not in self._shown:
                    self._line(each.line())
            self._shown, self._at = figures, self._clock.elapsed()

    def _is_time(self) -> bool:
        return self._clock.elapsed() - self._at >= LINE_S

    def _line(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


@contextmanager
def screen(clock: Clock, console: Console | None = None) -> Iterator[Screen]:
    """Where progress is shown meanwhile."""
    console = console or Console(file=sys.stderr)
    if not console.is_terminal:
        yield Screen(console, clock, None)
        return
    # What is printed meanwhile goes above the table if it goes to a screen, else where it is led.
    both = sys.stdout.isatty()
    with Live(console=console, refresh_per_second=5, transient=True, redirect_stdout=both) as live:
        yield Screen(console, clock, live)


def table(figures: Sequence[Figures]) -> Table:
    """A row for each query."""
    made = Table(box=None, pad_edge=False)
    for at, label in enumerate(_LABELS):
        left = at in (0, len(_LABELS) - 1)
        made.add_column(label, justify="left" if left else "right", no_wrap=True)
    for each in figures:
        made.add_row(*(Text(cell) for cell in each.cells()))
    return made
