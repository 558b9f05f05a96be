"""A source whose items also say when a run ends, dies or waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, final

import polars as pl

from anabranch.connectors.base import Interruption, Source
from anabranch.connectors.rows import Misfit, declared, frame_of
from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa

    from anabranch.ids import Offset, Partition


class Ending(Enum):
    """An item at which a run stops."""

    EOF = "ends the run; the next one goes on after it"
    ABORT = "kills the run, once"

    def __repr__(self) -> str:
        """The name by which it is imported."""
        return self.name


EOF: Final = Ending.EOF
ABORT: Final = Ending.ABORT


@final
@dataclass(frozen=True, slots=True, init=False)
class PAUSE:
    """An item at which a run waits; the duration is in microseconds.

    >>> PAUSE("5 s")
    PAUSE(duration=5000000)
    """

    duration: int

    def __init__(self, duration: str | timedelta) -> None:
        """Take a duration as every other."""
        object.__setattr__(self, "duration", parse_duration(duration, "PAUSE"))


Control: TypeAlias = Ending | PAUSE


@final
class TestingSource(Source):
    """Rows with `EOF`, `ABORT` and `PAUSE(duration)` among them, each ending an epoch. Finishes.

    One partition, 0. An offset is an index into the items; a control item takes one and has no row.

    >>> source = TestingSource([{"n": 1}, EOF, {"n": 2}])
    >>> source.limit(0, 0, 3, None), source.control(2)
    (2, EOF)
    """

    EOF: ClassVar[Literal[Ending.EOF]] = EOF
    ABORT: ClassVar[Literal[Ending.ABORT]] = ABORT
    PAUSE: ClassVar[type[PAUSE]] = PAUSE

    __test__: ClassVar[bool] = False  # pytest takes classes of such a name for tests

    def __init__(
        self,
        items: Iterable[Mapping[str, Any] | Control],
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the items as they are now; the types are those of `schema`, else of the values."""
        given = list(items)
        rows = [item for item in given if not isinstance(item, Control)]
        self._controls: list[Control | None] = [
            item if isinstance(item, Control) else None for item in given
        ]
        self._rows_before = [0, *accumulate(int(item is None) for item in self._controls)]
        self._spent: set[int] = set()
        self.schema = _inferred(rows) if schema is None else declared(schema, "TestingSource")
        try:
            self._frame = frame_of(rows, self.schema)
        except Misfit as misfit:
            message = f"TestingSource: item {self._item(misfit.row)} does not fit the schema"
            raise ProgramError(message, why=misfit.why) from misfit

    def partitions(self) -> Sequence[Partition]:
        """Only 0."""
        return (0,)

    def latest(self) -> Mapping[Partition, Offset]:
        """The number of items; where to stop before is what `limit` says."""
        return {0: len(self._controls)}

    def limit(self, partition: Partition, start: Offset, end: Offset, rows: int | None) -> Offset:  # noqa: ARG002
        """Right behind the next control item, or after `rows` rows if that comes first.

        A control item right after the last of the rows still belongs to them: it would otherwise
        end an epoch of its own with nothing in it.
        """
        enough = None if rows is None else self._rows_before[start] + rows
        for offset in range(start, end):
            if self._controls[offset] is not None:
                return offset + 1
            if self._rows_before[offset] == enough:
                return offset
        return end

    def control(self, offset: Offset) -> Control | None:
        """The control item that ends at this offset; None for a row, and for a spent `ABORT`."""
        index = int(offset) - 1
        if not 0 <= index < len(self._controls) or index in self._spent:
            return None
        return self._controls[index]

    def interruption(self, partition: Partition, offset: Offset) -> Interruption | None:  # noqa: ARG002
        """What the control item that ends here does to a run; an `ABORT` says so once."""
        match self.control(offset):
            case Ending.EOF:
                return Interruption("end")
            case Ending.ABORT:
                self.spend(offset)
                return Interruption("kill")
            case PAUSE(duration=duration):
                return Interruption("wait", duration / 1_000_000)
            case _:
                return None

    def spend(self, offset: Offset) -> None:
        """Say that the run died of the `ABORT` that ends here: from now on it only ends an epoch.

        The epoch of an `ABORT` is never committed, so a resumed run meets it again.
        """
        if self.control(offset) is ABORT:
            self._spent.add(offset - 1)

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[tuple[Offset, Offset]]:
        """One split: (start, end)."""
        split = (start.get(0, 0), end.get(0, 0))
        return [split] if split[0] < split[1] else []

    def read(self, split: tuple[Offset, Offset]) -> Iterator[pa.RecordBatch]:
        """The rows among a range of items."""
        low, high = (self._rows_before[offset] for offset in split)
        yield from self._frame.slice(low, high - low).to_arrow().to_batches()

    def finished(self, partition: Partition) -> bool:  # noqa: ARG002
        """Nothing is ever added."""
        return True

    def _item(self, row: int) -> int:
        """The index, among all items, of a row."""
        return [i for i, control in enumerate(self._controls) if control is None][row]


def _inferred(rows: Sequence[Any]) -> pl.Schema:
    """The types of the values of each name, in the order in which names are first met."""
    names = list(dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row))
    if not names:
        message = "TestingSource: no rows and no schema"
        raise ProgramError(message, so='pass schema={"column": pl.Int64, ...}')
    return pl.Schema({name: _inferred_type(name, rows) for name in names})


def _inferred_type(name: str, rows: Sequence[Any]) -> pl.DataType:
    values = [row.get(name) for row in rows if isinstance(row, Mapping)]
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pl.Float64()
    try:
        return pl.Series(name, values, strict=True).dtype
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        message = f"TestingSource: the values of {name!r} have no one type"
        why = str(error).splitlines()[0]
        raise ProgramError(message, why=why, so="make them equal, or pass schema=") from error
