"""From the values of single runs to rows: medians, spread and ratios. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.report import Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Metric:
    """What the values of a case say, and in which unit."""

    case: str
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The median of some runs and the least and greatest of them.

    >>> Summary.of([3.0, 1.0, 2.0])
    Summary(value=2.0, low=1.0, high=3.0, runs=3)
    """

    value: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Sum up the runs of one system; at least one."""
        if not values:
            message = "no runs to sum up"
            raise ValueError(message)
        return cls(statistics.median(values), min(values), max(values), len(values))


def bare(metric: Metric, system: str, values: Sequence[float]) -> Row:
    """A row that is compared with nothing."""
    found = Summary.of(values)
    return Row(
        metric.case, metric.name, metric.unit, system, found.value, found.low, found.high,
        found.runs,
    )  # fmt: skip


def compared(
    metric: Metric, samples: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, str]]
) -> list[Row]:
    """One row a pair (system, against); a system that leads no pair has one bare row.

    >>> rows = compared(Metric("c", "t", "s"), {"a": [1.0], "b": [4.0]}, [("a", "b")])
    >>> [(row.system, row.against, row.ratio) for row in rows]
    [('a', 'b', 0.25), ('b', None, None)]
    """
    for name in (name for pair in pairs for name in pair):
        if name not in samples:
            message = f"{metric.case}: {name!r} was not measured; there are {', '.join(samples)}"
            raise ValueError(message)
    rows = []
    for system, values in samples.items():
        alone = bare(metric, system, values)
        others = [against for first, against in pairs if first == system]
        rows += [_beside(alone, other, samples[other]) for other in others] or [alone]
    return rows


def paired_differences(values: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    """Run by run, value less other: what was measured side by side shares its noise.

    >>> paired_differences([3.0, 5.0], [1.0, 2.0])
    (2.0, 3.0)
    """
    return tuple(value - other for value, other in zip(values, others, strict=True))


def _beside(row: Row, against: str, values: Sequence[float]) -> Row:
    other = Summary.of(values).value
    if other == 0:
        message = f"{row.case}/{row.metric}: {against!r} is 0, so nothing can be a multiple of it"
        raise ValueError(message)
    return Row(
        row.case, row.metric, row.unit, row.system, row.value, row.low, row.high, row.runs,
        against, row.value / other,
    )  # fmt: skip
