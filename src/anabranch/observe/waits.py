"""Who waits for a watermark: operators that hold something back until one comes (M9, M12-M14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from anabranch.epoch.watermarks import END_OF_TIME
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Read
from anabranch.program.operators.keyed import Process
from anabranch.program.operators.operator import Operator
from anabranch.program.operators.together import InTimeOrder, Join, Merge
from anabranch.program.operators.windowed import WindowAggregate, WindowApply
from anabranch.program.windows import Rows, SessionGap, Sliding, Tumbling, Window


@dataclass(frozen=True, slots=True)
class Wait:
    """An operator that holds something until its watermark comes."""

    operator: str
    holds: str
    """What it holds, as in "it gives its ... when"."""
    lags: Mapping[str, int] = field(default_factory=dict)
    """The sources that feed it, and by how much its watermark is behind each of theirs."""
    window: Window | None = None

    def watermark(self, watermarks: Mapping[str, int | None]) -> tuple[int | None, str]:
        """Its watermark, and the source that holds it: the least over those that feed it (M4).

        >>> Wait("window-1", "windows", {"a": 0, "b": 5}).watermark({"a": 30, "b": 32})
        (27, 'b')
        """
        found = [(_behind(watermarks[name], lag), name) for name, lag in self.lags.items()]
        return min(found, key=lambda each: (each[0] is not None, each[0] or 0))

    def next_end(self, watermark: int) -> int | None:
        """The end of the first window that may still be open; None: that is not so easily known.

        >>> Wait("w", "windows", window=Tumbling(10)).next_end(20)
        30
        >>> Wait("w", "windows", window=Sliding(10, 4)).next_end(20)
        22
        """
        match self.window:
            case Tumbling(size):
                return (watermark // size + 1) * size
            case Sliding(size, slide):
                return ((watermark - size) // slide + 1) * slide + size
        return None


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a program decides what waits for what."""

    timed: frozenset[str] = frozenset()
    """The sources that have event times."""
    idle_timeouts: Mapping[str, int | None] = field(default_factory=dict)
    """Of each source, in microseconds."""
    waits: tuple[Wait, ...] = ()

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The shape of a program."""
        return cls(
            frozenset(read.name for read in graph.sources if read.event_time is not None),
            {read.name: read.idle_timeout for read in graph.sources},
            tuple(_waits(graph)),
        )


def _waits(graph: Graph) -> Iterator[Wait]:
    lags = _lags(graph)
    for operator in graph.operators:
        holds, window = _holds(operator)
        # What only a feedback feeds has no watermark to wait for (M14).
        if holds is not None and lags[operator.id]:
            yield Wait(operator.name, holds, lags[operator.id], window)


def _holds(operator: Operator) -> tuple[str | None, Window | None]:
    match operator:
        case WindowAggregate(windowing=windowing) | WindowApply(windowing=windowing):
            if isinstance(windowing.window, Rows):
                return None, None
            kind = "sessions" if isinstance(windowing.window, SessionGap) else "windows"
            return kind, windowing.window
        case Process(function=function) if function.has_timers:
            return "timers", None
        case Join(how=how) if how != "inner":
            return "rows without a partner", None
        case Merge() | InTimeOrder():
            return "rows in order of time", None
    return None, None


def _lags(graph: Graph) -> dict[OperatorId, dict[str, int]]:
    """Of each operator the sources that feed it, and by how much its watermark is behind theirs."""
    fed: dict[OperatorId, dict[str, int]] = {}
    gives: dict[OperatorId, dict[str, int]] = {}
    for operator in graph.operators:
        mine = fed[operator.id] = {operator.name: 0} if isinstance(operator, Read) else {}
        for port in operator.inputs:
            for source, lag in gives[port.operator].items():
                mine[source] = max(lag, mine.get(source, 0))
        # An outer join's output is behind by as much as its last rows may be (M13).
        more = operator.within if isinstance(operator, Join) and operator.how != "inner" else 0
        gives[operator.id] = {source: lag + more for source, lag in mine.items()}
    return fed


def _behind(watermark: int | None, lag: int) -> int | None:
    return watermark if watermark is None or watermark == END_OF_TIME else watermark - lag
