"""A source that makes its records from their numbers.

A record is a function of its number alone, so any range can be made again, in any process, without
having been stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import polars as pl

from anabranch.clock import Clock, SystemClock
from anabranch.connectors.base import Source
from anabranch.connectors.pace import Pace
from anabranch.connectors.rows import BATCH_ROWS, Misfit, declared, difference, frame_of, shown
from anabranch.errors import CheckpointError, ProgramError, RunError, defining_site, raising_site

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.ids import Offset, Partition


@final
class Generator(Source):
    """Records made by a function of their number; row i is in partition i mod partitions.

    An offset counts a partition's rows, so the row at `offset` of partition p has the number
    offset * partitions + p. With `rows` it finishes, else never; with `rate` rows become due as
    time passes, else all are there at once. `fn` must give the same for the same number each time.

    >>> squares = Generator(lambda i: {"n": i * i}, schema={"n": pl.Int64}, rows=5, partitions=2)
    >>> squares.latest()
    {0: 3, 1: 2}
    >>> [batch["n"].to_pylist() for batch in squares.read((1, 0, 2))]
    [[1, 9]]
    """

    def __init__(  # noqa: PLR0913 - the public contract
        self,
        fn: Callable[[Any], Any],
        *,
        schema: Mapping[str, Any],
        rows: int | None = None,
        rate: float | None = None,
        partitions: int = 1,
        vectorized: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Take `fn(number) -> dict`, or with `vectorized` `fn(Series of numbers) -> frame`.

        `rate` is in rows per second, over all partitions, counted from the first look.
        """
        _require(callable(fn), "fn", "a function of the row number", fn)
        _require(_whole(rows, 0) or rows is None, "rows", "None or a whole number from 0", rows)
        _require(_whole(partitions, 1), "partitions", "a whole number from 1", partitions)
        _require(rate is None or _positive(rate), "rate", "None or a number above 0", rate)
        self.schema = declared(schema, "Generator")
        self._make = _Vectorized(fn, self.schema) if vectorized else _RowByRow(fn, self.schema)
        self._rows, self._partitions = rows, partitions
        self._pace = None if rate is None else Pace(rate, clock or SystemClock())

    def partitions(self) -> Sequence[Partition]:
        """0, 1, ..."""
        return range(self._partitions)

    def latest(self) -> Mapping[Partition, Offset]:
        """The rows due by now in each partition; None where they have no end and no rate."""
        if self._pace is None:
            return self.end()
        due = self._within(self._pace.look())
        return {p: self._count(p, due) for p in self.partitions()}

    def end(self) -> Mapping[Partition, Offset]:
        """All rows of each partition, due or not; None where they have no end."""
        if self._rows is None:
            return dict.fromkeys(self.partitions())
        return {p: self._count(p, self._rows) for p in self.partitions()}

    def finished(self, partition: Partition) -> bool:
        """Whether the partition's last row was due when `latest` was last asked."""
        if self._rows is None:
            return False
        due = self._rows if self._pace is None else self._within(self._pace.due)
        return self._count(partition, due) == self._count(partition, self._rows)

    def memory(self) -> int | None:
        """The rows due at the last look, where they have a rate: a new process has a new clock."""
        return None if self._pace is None else self._within(self._pace.due)

    def recall(self, memory: object) -> None:
        """Count on from what was due before; without it offsets would go back on a restart."""
        if self._pace is None or memory is None:
            return
        if not isinstance(memory, int) or not _whole(memory, 0):
            message = "the memory of a Generator cannot be read"
            raise CheckpointError(message, why=f"it is no number of rows: {memory!r}")
        self._pace.go_on(memory)

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[tuple[Partition, Offset, Offset]]:
        """One split a partition: (partition, start, end)."""
        splits = [(p, start.get(p, 0), end[p]) for p in self.partitions() if p in end]
        if any(stop is None for _, _, stop in splits):
            message = "Generator: a range without an end cannot be read"
            so = "pass rows= or rate=, or a trigger with max_rows="
            raise RunError(message, why="its rows never end, and all are there at once", so=so)
        return [split for split in splits if split[1] < split[2]]

    def read(self, split: tuple[Partition, Offset, Offset]) -> Iterator[pa.RecordBatch]:
        """Make the rows of a range, a bounded number at a time."""
        partition, start, end = split
        for low in range(start, end, BATCH_ROWS):
            high = min(end, low + BATCH_ROWS)
            yield from self._make(self._numbers(int(partition), low, high)).to_arrow().to_batches()

    def _numbers(self, partition: int, low: int, high: int) -> pl.Series:
        step = self._partitions
        numbers = range(low * step + partition, high * step + partition, step)
        return pl.int_range(
            numbers.start, numbers.stop, numbers.step, dtype=pl.Int64, eager=True
        ).alias("number")

    def _count(self, partition: Partition, rows: int) -> int:
        return len(range(int(partition), rows, self._partitions))

    def _within(self, due: int) -> int:
        return due if self._rows is None else min(due, self._rows)


class _RowByRow:
    """A function of one number, called for each."""

    def __init__(self, fn: Callable[[int], Any], schema: pl.Schema) -> None:
        self._fn, self._schema = fn, schema

    def __call__(self, numbers: pl.Series) -> pl.DataFrame:
        try:
            return frame_of([self._row(number) for number in numbers], self._schema)
        except Misfit as misfit:
            message = f"Generator: row {numbers[misfit.row]} does not fit the schema"
            raise _misfit(message, misfit.why, self._fn, self._schema) from misfit

    def _row(self, number: int) -> object:
        try:
            return self._fn(number)
        except Exception as error:
            raise _failed(error, f"fn({number}) failed") from error


class _Vectorized:
    """A function of many numbers at a time, whose frame must be what was declared."""

    def __init__(self, fn: Callable[[pl.Series], Any], schema: pl.Schema) -> None:
        self._fn, self._schema = fn, schema

    def __call__(self, numbers: pl.Series) -> pl.DataFrame:
        rows = f"rows {numbers[0]} to {numbers[-1]}"
        try:
            frame = self._fn(numbers)
        except Exception as error:
            raise _failed(error, f"fn failed for {rows}") from error
        if wrong := self._wrong(frame, numbers.len()):
            message = f"Generator: what fn gave for {rows} does not fit"
            raise _misfit(message, wrong, self._fn, self._schema)
        return frame.select(list(self._schema))  # type: ignore[no-any-return]  # checked above

    def _wrong(self, frame: object, height: int) -> str | None:
        if not isinstance(frame, pl.DataFrame):
            return f"it is a {type(frame).__name__}, not a Polars DataFrame"
        if frame.height != height:
            return f"it has {frame.height} rows, not {height}"
        return difference(self._schema, frame.schema)


def _require(holds: bool, what: str, wanted: str, given: object) -> None:  # noqa: FBT001 - a check
    if not holds:
        message = f"Generator: {what} must be {wanted}, got {given!r}"
        raise ProgramError(message)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _failed(error: Exception, what: str) -> RunError:
    message = f"Generator: {what}"
    why = f"{type(error).__name__}: {error}"
    so = "mend the function: it must give a row for every number, and the same one each time"
    return RunError(message, site=raising_site(error), why=why, so=so)


def _misfit(what: str, why: str, fn: object, schema: pl.Schema) -> RunError:
    code = getattr(fn, "__code__", None)
    site = defining_site(code) if code is not None else None
    return RunError(what, site=site, why=why, have=shown(schema), so="mend fn, or schema=")
