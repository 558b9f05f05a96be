"""A source that makes its records from their numbers.

A record is a function of its number alone, so any range can be made again, in any process, without
having been stored. Values are checked, not coerced: Polars, told to be strict, still takes True for
1, cuts 1.5 to 1 inside a struct, and gives a Date column another type when it meets a datetime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, final

import polars as pl
from polars.datatypes import DataTypeClass

from anabranch.clock import Clock, SystemClock
from anabranch.connectors.base import Source
from anabranch.errors import CheckpointError, ProgramError, RunError

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.ids import Offset, Partition

BATCH_ROWS = 65_536
"""At most so many rows are held at a time: 8 columns of 8 bytes are then 4 MiB."""


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
        self._rows, self._rate, self._partitions = rows, rate, partitions
        self._clock: Clock = SystemClock() if clock is None else clock
        self._began: float | None = None
        self._before = 0  # rows that were due before this process began to count
        self._due = 0

    def partitions(self) -> Sequence[Partition]:
        """0, 1, ..."""
        return range(self._partitions)

    def latest(self) -> Mapping[Partition, Offset]:
        """The rows due by now in each partition; None where they have no end and no rate."""
        if self._rate is None:
            return self.end()
        now = self._clock.elapsed()
        if self._began is None:
            self._began = now
        due = self._before + int(self._rate * (now - self._began))
        self._due = due if self._rows is None else min(due, self._rows)
        return {p: self._count(p, self._due) for p in self.partitions()}

    def end(self) -> Mapping[Partition, Offset]:
        """All rows of each partition, due or not; None where they have no end."""
        if self._rows is None:
            return dict.fromkeys(self.partitions())
        return {p: self._count(p, self._rows) for p in self.partitions()}

    def finished(self, partition: Partition) -> bool:
        """Whether the partition's last row was due when `latest` was last asked."""
        if self._rows is None:
            return False
        due = self._rows if self._rate is None else self._due
        return self._count(partition, due) == self._count(partition, self._rows)

    def memory(self) -> int | None:
        """The rows due at the last look, where they have a rate: a new process has a new clock."""
        return None if self._rate is None else self._due

    def recall(self, memory: object) -> None:
        """Count on from what was due before; without it offsets would go back on a restart."""
        if self._rate is None or memory is None:
            return
        if not isinstance(memory, int) or not _whole(memory, 0):
            message = "the memory of a Generator cannot be read"
            raise CheckpointError(message, why=f"it is no number of rows: {memory!r}")
        self._before, self._due, self._began = memory, memory, None

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


class _RowByRow:
    """A function of one number, called for each."""

    def __init__(self, fn: Callable[[int], Any], schema: pl.Schema) -> None:
        self._fn, self._schema = fn, schema

    def __call__(self, numbers: pl.Series) -> pl.DataFrame:
        try:
            return frame_of([self._row(number) for number in numbers], self._schema)
        except Misfit as misfit:
            message = f"Generator: row {numbers[misfit.row]} does not fit the schema"
            raise RunError(message, why=misfit.why, have=_shown(self._schema)) from misfit

    def _row(self, number: int) -> object:
        try:
            return self._fn(number)
        except Exception as error:
            message = f"Generator: fn({number}) failed"
            raise RunError(message, why=f"{type(error).__name__}: {error}") from error


class _Vectorized:
    """A function of many numbers at a time, whose frame must be what was declared."""

    def __init__(self, fn: Callable[[pl.Series], Any], schema: pl.Schema) -> None:
        self._fn, self._schema = fn, schema

    def __call__(self, numbers: pl.Series) -> pl.DataFrame:
        rows = f"rows {numbers[0]} to {numbers[-1]}"
        try:
            frame = self._fn(numbers)
        except Exception as error:
            message = f"Generator: fn failed for {rows}"
            raise RunError(message, why=f"{type(error).__name__}: {error}") from error
        if wrong := self._wrong(frame, numbers.len()):
            message = f"Generator: what fn gave for {rows} does not fit"
            raise RunError(message, why=wrong, have=_shown(self._schema))
        return frame.select(list(self._schema))  # type: ignore[no-any-return]  # checked above

    def _wrong(self, frame: object, height: int) -> str | None:
        if not isinstance(frame, pl.DataFrame):
            return f"it is a {type(frame).__name__}, not a Polars DataFrame"
        if frame.height != height:
            return f"it has {frame.height} rows, not {height}"
        return difference(self._schema, frame.schema)


class Misfit(Exception):
    """A row that its schema cannot hold: its place among the rows given, and why."""

    def __init__(self, row: int, why: str) -> None:
        """Say which row and why."""
        super().__init__(row, why)
        self.row, self.why = row, why


def frame_of(rows: Sequence[Any], schema: pl.Schema) -> pl.DataFrame:
    """Put rows into a frame of exactly this schema, or raise `Misfit`.

    A missing key is null. An unknown key is a misfit, and so is a value of another type: a whole
    number is fine for a float, a float or a bool for a whole number is not, and nothing is cut off.

    >>> frame_of([{"n": 1}, {}], pl.Schema({"n": pl.Int64})).to_dicts()
    [{'n': 1}, {'n': None}]
    """
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Misfit(number, f"it is a {type(row).__name__}, not a dict")
        if unknown := [name for name in row if name not in schema]:
            raise Misfit(number, f"it has a column {unknown[0]!r} that the schema has not")
    columns = [
        _column(name, [row.get(name) for row in rows], dtype) for name, dtype in schema.items()
    ]
    return pl.DataFrame(columns)


def declared(schema: Mapping[str, Any], what: str) -> pl.Schema:
    """The schema a user wrote as a mapping of names to types.

    >>> declared({"n": int, "at": pl.Datetime}, "Generator")
    Schema([('n', Int64), ('at', Datetime(time_unit='us', time_zone=None))])
    """
    try:
        types = {name: _instance(dtype) for name, dtype in schema.items()}
        if not types or not all(isinstance(name, str) for name in types):
            raise TypeError("at least one column, each with a text for a name")  # noqa: EM101 - told below
        return pl.Schema(types)
    except (AttributeError, TypeError) as error:
        message = f"{what}: schema must map column names to Polars types, got {schema!r}"
        so = 'write it like {"user": pl.String, "amount": pl.Float64}'
        raise ProgramError(message, why=str(error).splitlines()[0], so=so) from error


def difference(expected: pl.Schema, found: pl.Schema) -> str | None:
    """The first difference in names or types, in words; the columns' order is none.

    >>> difference(pl.Schema({"n": pl.Int64}), pl.Schema({"n": pl.Int32}))
    "column 'n' is Int32, expected Int64"
    """
    for name, dtype in expected.items():
        if name not in found:
            return f"column {name!r} is missing, expected {dtype}"
        if found[name] != dtype:
            return f"column {name!r} is {found[name]}, expected {dtype}"
    extra = [name for name in found if name not in expected]
    return f"column {extra[0]!r} is {found[extra[0]]}, expected no such column" if extra else None


def _column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    if not {type(value) for value in values} <= _exact(dtype):
        wrong = next((row for row, value in enumerate(values) if not _fits(value, dtype)), None)
        if wrong is not None:
            raise Misfit(wrong, _why(name, values[wrong], dtype))
    try:
        return _series(name, values, dtype)
    except _REFUSALS:
        # Of the right type, but too large, or no member of an Enum: Polars knows which one not.
        wrong = next(row for row, value in enumerate(values) if not _builds(value, dtype))
        raise Misfit(wrong, _why(name, values[wrong], dtype)) from None


_REFUSALS = (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError)
_NONE = type(None)
_EXACT: Mapping[type, frozenset[type]] = {
    pl.Boolean: frozenset({bool, _NONE}),
    pl.Float32: frozenset({float, int, _NONE}),
    pl.Float64: frozenset({float, int, _NONE}),
    pl.String: frozenset({str, _NONE}),
    pl.Categorical: frozenset({str, _NONE}),
    pl.Enum: frozenset({str, _NONE}),
    pl.Binary: frozenset({bytes, _NONE}),
    pl.Date: frozenset({date, _NONE}),
    pl.Time: frozenset({time, _NONE}),
    pl.Null: frozenset({_NONE}),
}


def _exact(dtype: pl.DataType) -> frozenset[type]:
    """The Python types that need no closer look; a column of them is checked by one set."""
    return frozenset({int, _NONE}) if dtype.is_integer() else _EXACT.get(type(dtype), frozenset())


def _fits(value: object, dtype: Any) -> bool:  # noqa: PLR0911 - one case a type
    """Whether a type holds this value as it is, but for the range of numbers."""
    if value is None or type(value) in _exact(dtype):
        return True
    match dtype:
        case pl.Datetime():
            return isinstance(value, datetime) and _instant_fits(value, dtype)
        case pl.Duration():
            return isinstance(value, timedelta) and _unit_fits(value.microseconds, dtype.time_unit)
        case pl.Decimal():
            return isinstance(value, Decimal) and value.is_finite() and _scale_fits(value, dtype)
        case pl.List() | pl.Array():
            return isinstance(value, list | tuple) and all(_fits(v, dtype.inner) for v in value)
        case pl.Struct():
            types = {field.name: field.dtype for field in dtype.fields}
            return isinstance(value, dict) and all(
                name in types and _fits(each, types[name]) for name, each in value.items()
            )
    # A subclass of a plain type is one; but a bool is no number here, a datetime no date.
    kinds = tuple(kind for kind in _exact(dtype) if kind is not _NONE)
    return isinstance(value, kinds) and not isinstance(value, bool | datetime)


def _instant_fits(value: datetime, dtype: pl.Datetime) -> bool:
    # Polars takes a naive value for UTC and the other way round: an hour may be meant either way.
    aware = value.tzinfo is not None
    return aware == (dtype.time_zone is not None) and _unit_fits(value.microsecond, dtype.time_unit)


def _unit_fits(microseconds: int, unit: str) -> bool:
    return unit != "ms" or microseconds % 1000 == 0


def _scale_fits(value: Decimal, dtype: pl.Decimal) -> bool:
    return value == round(value, dtype.scale)


def _builds(value: object, dtype: pl.DataType) -> bool:
    try:
        _series("", [value], dtype)
    except _REFUSALS:
        return False
    return True


def _series(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    return pl.Series(name, values, dtype=dtype, strict=True)


def _why(name: str, value: object, dtype: pl.DataType) -> str:
    return f"column {name!r} is {dtype}, got {type(value).__name__} {value!r}"


def _shown(schema: pl.Schema) -> str:
    return ", ".join(f"{name}: {dtype}" for name, dtype in schema.items())


def _instance(dtype: Any) -> Any:
    return dtype() if isinstance(dtype, DataTypeClass) else dtype


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
