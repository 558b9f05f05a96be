"""What a benchmark found, as values. A report that says nonsense cannot be made.

The JSON form is part of the public contract: exactly `bench`, `header` and `rows`. What pictures
are drawn from is in a file of its own.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Header:
    """On what a benchmark ran: machine and versions, nothing that names a host or a path."""

    cores: int
    memory_gib: float | None
    cpu: str
    os: str
    python: str
    polars: str | None
    pyarrow: str | None
    pyspark: str | None
    anabranch: str | None
    commit: str | None
    date: str


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one system in one case: the median of some runs, their least and greatest.

    With `against`, another system of the same case and metric, `ratio` is value / its value.

    >>> Row("import", "added", "s", "anabranch", 0.01, 0.009, 0.012, 5).ratio is None
    True
    """

    case: str
    metric: str
    unit: str
    system: str
    value: float
    low: float
    high: float
    runs: int
    against: str | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no measurement."""
        if not all(math.isfinite(number) for number in (self.low, self.value, self.high)):
            _refuse(self, "a value is not finite")
        if not self.low <= self.value <= self.high:
            _refuse(self, f"{self.value} is not between {self.low} and {self.high}")
        if self.runs < 1:
            _refuse(self, "no runs")
        if self.ratio is not None and not math.isfinite(self.ratio):
            _refuse(self, "the ratio is not finite")
        if self.against is None and self.ratio is not None:
            _refuse(self, "a ratio to nothing")
        if self.against == self.system:
            _refuse(self, "compared with itself")


@dataclass(frozen=True, slots=True)
class Series:
    """Many values of one system in one case, for a picture: too many for a table."""

    case: str
    metric: str
    system: str
    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        if not self.points or not all(math.isfinite(n) for each in self.points for n in each):
            message = f"{self.case}/{self.metric}/{self.system}: no points, or one is not finite"
            raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Report:
    """All rows of one benchmark. Notes are for readers of the table and stay out of the JSON."""

    bench: str
    header: Header
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()

    def __post_init__(self) -> None:
        """Refuse comparisons with what was not measured, and two rows that say the same."""
        _refuse_repeats(self.rows)
        measured = {(row.case, row.metric, row.system) for row in self.rows}
        for row in self.rows:
            if row.against is not None and (row.case, row.metric, row.against) not in measured:
                _refuse(row, f"{row.against!r} was not measured there")

    def as_json(self) -> dict[str, Any]:
        """The contract's form, ready for `json.dumps`."""
        return {
            "bench": self.bench,
            "header": asdict(self.header),
            "rows": [asdict(row) for row in self.rows],
        }


def _refuse_repeats(rows: Sequence[Row]) -> None:
    seen = set()
    for row in rows:
        place = (row.case, row.metric, row.system, row.against)
        if place in seen:
            _refuse(row, "measured twice")
        seen.add(place)


def _refuse(row: Row, why: str) -> None:
    message = f"{row.case}/{row.metric}/{row.system}: {why}"
    raise ValueError(message)
