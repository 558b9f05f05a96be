"""A source of numbered rows, so many a second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import polars as pl

from anabranch.clock import Clock, SystemClock
from anabranch.connectors.base import Source
from anabranch.connectors.pace import Pace
from anabranch.connectors.rows import BATCH_ROWS
from anabranch.errors import CheckpointError, ProgramError

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.ids import Offset, Partition

MOST = 1_000_000_000
"""Rows a second; with a thousand times as many, 64 bits would not hold a year's numbers."""

_SECOND = 1_000_000
_Split: TypeAlias = tuple[int, int, int]
"""The first row, the row behind the last, and the start in microseconds since 1970."""


@final
class Rate(Source):
    """`rows_per_second` rows each second, for ever: `value` counts from 0, `timestamp` is when.

    Row `value` has the time start + value / rows_per_second (UTC) and is there a row's length
    later. The start is the first look of the first run; it is kept in the checkpoint, so a row is
    the same in every run, and a query that was down is given what became due meanwhile, at once
    unless its trigger has `max_rows`. One partition, in order of time: `event_time="timestamp"`
    needs no lateness.

    >>> from anabranch.testing import MockClock
    >>> clock = MockClock(start=60.0)
    >>> rate = Rate(2, clock=clock)
    >>> rate.latest()
    {0: 0}
    >>> clock.advance(1.5)
    >>> rate.latest()
    {0: 3}
    >>> (split,) = rate.plan({0: 1}, {0: 3})
    >>> [f"{at:%M:%S.%f} {value}" for at, value in rate.frame(split).rows()]
    ['01:00.500000 1', '01:01.000000 2']
    """

    # No hint: it is in the type of the column that is read as event time, which a source does not
    # know, and would be ahead of the last row's own time by the length of one row.

    def __init__(self, rows_per_second: int, *, clock: Clock | None = None) -> None:
        """Give so many rows each second of the clock."""
        whole = isinstance(rows_per_second, int) and not isinstance(rows_per_second, bool)
        if not whole or not 1 <= rows_per_second <= MOST:
            wanted = f"a whole number from 1 to {MOST:,}"
            message = f"Rate: rows_per_second must be {wanted}, got {rows_per_second!r}"
            so = "for fewer than one row a second use ab.sources.Generator(..., rate=0.1)"
            raise ProgramError(message, so=so)
        self.schema = pl.Schema({"timestamp": pl.Datetime("us"), "value": pl.Int64()})
        self._per_second = rows_per_second
        self._clock: Clock = clock or SystemClock()
        self._pace = Pace(rows_per_second, self._clock)
        self._start: int | None = None

    def partitions(self) -> Sequence[Partition]:
        """Only 0."""
        return (0,)

    def latest(self) -> Mapping[Partition, Offset]:
        """The rows due by now."""
        self._started()
        return {0: self._pace.look()}

    def end(self) -> Mapping[Partition, Offset]:
        """It has none."""
        return {0: None}

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[_Split]:
        """One split. It has the start in it: tasks were sent the source before there was one."""
        split = (start.get(0, 0), end.get(0, 0), self._started())
        return [split] if split[0] < split[1] else []

    def read(self, split: _Split) -> Iterator[pa.RecordBatch]:
        """The rows of a range, a bounded number at a time."""
        low, high, start = split
        for at in range(low, high, BATCH_ROWS):
            rows = self.frame((at, min(high, at + BATCH_ROWS), start))
            yield from rows.to_arrow().to_batches()

    def frame(self, split: _Split, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows of a range as one frame."""
        low, high, start = split
        value = pl.int_range(low, high, dtype=pl.Int64, eager=True).alias("value")
        frame = pl.DataFrame({"timestamp": self._times(value, start), "value": value})
        return frame.select(list(self.schema) if columns is None else list(columns))

    def memory(self) -> dict[str, Any]:
        """The start and the rate, of which times are made, and how many rows were due."""
        return {
            "start": self._started(),
            "rows_per_second": self._per_second,
            "rows": self._pace.due,
        }

    def recall(self, memory: object) -> None:
        """Go on with the same rows: those that would be due by now had the run never ended."""
        start, per_second, rows = _checked(memory)
        if per_second != self._per_second:
            message = f"Rate: the checkpoint has rows at {per_second:,} a second, not at "
            message += f"{self._per_second:,}"
            why = "the times of rows that are planned or done would be others"
            so = f"write Rate({per_second}), or begin with another checkpoint"
            raise CheckpointError(message, why=why, so=so)
        self._start = start
        due, rest = divmod((self._now() - start) * per_second, _SECOND)
        if due >= rows:
            self._pace.go_on(due, ago=rest / _SECOND / per_second)
        else:
            # A wall's clock that was set back must not take rows back.
            self._pace.go_on(rows, ago=0.0)

    def _started(self) -> int:
        if self._start is None:
            # Whole milliseconds are easier to read.
            self._start = self._now() // 1000 * 1000
        return self._start

    def _now(self) -> int:
        return int(self._clock.now() * _SECOND)

    def _times(self, value: pl.Series, start: int) -> pl.Series:
        # Whole seconds apart from the rest: value * 1,000,000 would not fit for long.
        seconds, rest = value // self._per_second, value % self._per_second
        times = seconds * _SECOND + rest * _SECOND // self._per_second + start
        return times.cast(self.schema["timestamp"])


def _checked(memory: object) -> tuple[int, int, int]:
    """What a memory says: it may come from a checkpoint that anybody wrote."""
    match memory:
        case {"start": start, "rows_per_second": per_second, "rows": rows} if (
            all(type(each) is int for each in (start, per_second, rows)) and rows >= 0
        ):
            return start, per_second, rows
    message = "the memory of a Rate cannot be read"
    raise CheckpointError(message, why=f"it names no start and no rows: {memory!r}")
