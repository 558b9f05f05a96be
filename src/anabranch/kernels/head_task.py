"""What happens to rows of a source before any operator with state: read, changed, divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_

import numpy as np
import polars as pl

from anabranch.compiler.proof import Proof
from anabranch.connectors.unread import UNREAD
from anabranch.kernels.bundle import OFFSET, PARTITION, TIME
from anabranch.kernels.exits import Exit
from anabranch.kernels.failures import Failed, failing, told
from anabranch.kernels.letters import letters_of, letters_unread
from anabranch.kernels.results import HeadResult, TaskError
from anabranch.kernels.stateless.chain import Chain
from anabranch.kernels.stateless.columns import filtered, framed
from anabranch.kernels.stateless.python_rows import Record, records_of
from anabranch.kernels.stateless.split import Branches
from anabranch.kernels.times import FARTHEST, micros_of
from anabranch.kernels.windows.tally import Tally
from anabranch.kernels.wires import Wire
from anabranch.program.functions import OnError
from anabranch.program.operators.operator import DEAD_LETTERS, OUT, Port
from anabranch.program.schema import TimeType
from anabranch.state.slices import Owners


@dataclass(frozen=True)
class Entrance:
    """How a source's rows become bundles."""

    port: Port
    operator: str
    schema: pl.Schema
    live: tuple[str, ...]
    """The columns that somebody reads."""
    event_time: str | None
    time: TimeType | None
    on_error: OnError
    """`dead_letter` only where they are read."""
    ordered: bool
    """Whether rows need order columns: those for sinks leave as they came, split by split."""
    timed: bool
    """Whether rows need their event times beside them."""
    unread: str | None = None
    """The column, where a frame has it, that tells of rows which the source could not read."""


@dataclass(frozen=True)
class HeadNode:
    """Operators one behind the other, or a split."""

    port: Port
    """Where its rows leave."""
    wire: Wire
    work: Chain | Branches

    def run(self, rows: pl.DataFrame) -> tuple[dict[str, pl.DataFrame], int]:
        """Rows by output, and how many records failed and were left out."""
        if isinstance(self.work, Branches):
            return dict(self.work.run(rows)), 0
        made, left = self.work.run(rows)
        letters = {} if left.letters is None else {DEAD_LETTERS: left.letters}
        return {OUT: made, **letters}, left.count


@dataclass(frozen=True)
class HeadTask:
    """Rows of a source through operators without state, then to where they leave."""

    entrance: Entrance
    nodes: tuple[HeadNode, ...]
    exits: tuple[Exit, ...]
    proofs: tuple[Proof, ...] = ()
    """What its being parallel rests on; to be looked at when a task begins and ends."""
    owners: Owners | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that it reads: a frame may leave out all others.

        One at least: of a frame without columns nobody could tell how many rows it has.
        """
        time, schema = self.entrance.event_time, self.entrance.schema
        read = tuple(n for n in schema if n in self.entrance.live or n == time)
        return read or tuple(schema)[:1]

    def route(self, owners: Owners) -> HeadTask:
        """The same task for these lanes."""
        return replace(self, owners=owners)

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> HeadTask:
        """The same task with other versions of some lookup tables, by the lookup's name."""
        nodes = tuple(
            replace(node, work=node.work.with_tables(tables))
            if isinstance(node.work, Chain)
            else node
            for node in self.nodes
        )
        exits = tuple(
            each if each.early is None else replace(each, early=each.early.with_tables(tables))
            for each in self.exits
        )
        return replace(self, nodes=nodes, exits=exits)

    def run(
        self,
        frame: pl.DataFrame,
        partition_index: int,
        first_row: int,
        without: Sequence[int] = (),
    ) -> HeadResult:
        """Take consecutive rows of one partition, the first with this number in it.

        Those of the frame that are `without` are passed over: they are told in letters alone.
        """
        if self.owners is None:
            message = "a head task is routed before it is run"
            raise ValueError(message)
        try:
            places = _places(partition_index, first_row, frame.height)
            flows, greatest, letters = self._flows(frame, places, without)
            place, tallies = (partition_index, first_row), dict[Port, Tally]()
            for port in (exit_.wire.port for exit_ in self.exits):
                tallies.setdefault(port, Tally(flows[port]))
            parts = {
                number: found
                for number, exit_ in enumerate(self.exits)
                if (found := exit_.parts(tallies[exit_.wire.port], self.owners, place))
            }
        except Failed as failed:
            return HeadResult({}, frame.height, None, 0, failed.error)
        return HeadResult(parts, frame.height, greatest, letters)

    def nothing(self) -> dict[Port, pl.DataFrame]:
        """What every port gives of no rows."""
        return self._flows(pl.DataFrame(schema=self.entrance.schema), _places(0, 0, 0))[0]

    def _flows(
        self, frame: pl.DataFrame, places: list[pl.Series], without: Sequence[int] = ()
    ) -> tuple[dict[Port, pl.DataFrame], int | None, int]:
        self._require_columns(frame)
        left_out = self._left_out(frame, without)
        if self.entrance.unread is not None:
            frame = frame.drop(self.entrance.unread, strict=False)
        entered, greatest, letters = (
            self._entered_without(frame, places, left_out)
            if left_out
            else self._entered(frame, places)
        )
        flows = {_output(self.entrance.port, name): rows for name, rows in entered.items()}
        for node in self.nodes:
            given, failed = node.run(node.wire.carry(flows[node.wire.port]))
            letters += failed
            for output, rows in given.items():
                flows[_output(node.port, output)] = rows
        return flows, greatest, letters

    def _left_out(self, frame: pl.DataFrame, without: Sequence[int]) -> tuple[_LeftOut, ...]:
        """The rows that do not enter; where one of them ends the run, it does."""
        found, name = list[_LeftOut](), self.entrance.unread
        if without:
            found.append(_LeftOut(pl.Series(np.isin(np.arange(frame.height), without))))
        if name is None or name not in frame.columns:
            return tuple(found)
        mask = frame[name].is_not_null()
        for passed_over in found:
            mask &= ~passed_over.mask
        unread = frame[name].filter(mask).to_list()
        if unread and self.entrance.on_error == "fail":
            raise Failed(_not_read(self.entrance.operator, unread[0]))
        return (*found, _LeftOut(mask, unread)) if unread else tuple(found)

    def _entered_without(
        self, frame: pl.DataFrame, places: list[pl.Series], left_out: Sequence[_LeftOut]
    ) -> tuple[dict[str, pl.DataFrame], int | None, int]:
        """All rows but these, which are told in letters where somebody reads them."""
        out = reduce(or_, (each.mask for each in left_out))
        # Letters are put in order by their places, though nobody behind them may ask for those.
        ordered = replace(self, entrance=replace(self.entrance, ordered=True))
        rows, greatest, letters = ordered._entered(  # noqa: SLF001 - it is this very task
            frame.filter(~out), [each.filter(~out) for each in places]
        )
        if DEAD_LETTERS in rows:
            names = rows[DEAD_LETTERS].columns
            told_of = [self._letters(frame, places, each).select(names) for each in left_out]
            rows[DEAD_LETTERS] = pl.concat([rows[DEAD_LETTERS], *told_of]).sort(OFFSET)
        if not self.entrance.ordered:
            rows = {output: each.drop(PARTITION, OFFSET) for output, each in rows.items()}
        return rows, greatest, letters + int(out.sum())

    def _letters(
        self, frame: pl.DataFrame, places: list[pl.Series], left_out: _LeftOut
    ) -> pl.DataFrame:
        mask, entrance = left_out.mask, self.entrance
        height = int(mask.sum())
        columns = [frame[name].filter(mask) for name in entrance.live]
        if entrance.timed:
            columns.append(pl.repeat(None, height, dtype=pl.Int64, eager=True).alias(TIME))
        failed = framed([*columns, *(each.filter(mask) for each in places)], height)
        if left_out.unread is None:
            return letters_of(entrance.operator, failed, tuple(entrance.schema), "quarantined")
        return letters_unread(entrance.operator, left_out.unread, failed)

    def _entered(
        self, frame: pl.DataFrame, places: list[pl.Series]
    ) -> tuple[dict[str, pl.DataFrame], int | None, int]:
        entrance = self.entrance
        columns, greatest, missing = [frame[name] for name in entrance.live], None, None
        if entrance.event_time is not None and entrance.time is not None:
            times, greatest = self._times(frame[entrance.event_time], entrance.time)
            missing = self._without_time(frame, times)
            if entrance.timed:
                columns.append(times.alias(TIME))
        elif entrance.timed:
            columns.append(pl.repeat(None, frame.height, dtype=pl.Int64, eager=True).alias(TIME))
        if entrance.ordered:
            columns += places
        bundle = framed(columns, frame.height)
        if missing is None and entrance.on_error == "dead_letter":
            # Where letters are read there are always some, if only of no rows.
            missing = pl.repeat(value=False, n=frame.height, dtype=pl.Boolean, eager=True)
        if missing is None:
            return {OUT: bundle}, greatest, 0
        rows = {OUT: filtered(bundle, ~missing, entrance.live)}
        if entrance.on_error == "dead_letter":
            failed = filtered(bundle, missing, entrance.live)
            errors = [_no_time(entrance.event_time)] * failed.height
            told_of = letters_of(entrance.operator, failed, tuple(entrance.schema), "error", errors)
            rows[DEAD_LETTERS] = told_of
        return rows, greatest, int(missing.sum())

    def _require_columns(self, frame: pl.DataFrame) -> None:
        """Refuse rows without a column that is read, or with one of another type."""
        given = frame.schema
        for name in self.columns:
            expected, found = self.entrance.schema[name], given.get(name)
            if found != expected:
                text = "RunError: the source gave other columns than it said: "
                text += f"{name!r} is {found or 'missing'}, expected {expected}"
                raise Failed(TaskError(self.entrance.operator, text))
        unread = self.entrance.unread
        if unread is not None and given.get(unread, UNREAD) != UNREAD:
            text = "RunError: the source tells rows that it could not read in another type: "
            text += f"{unread!r} is {given[unread]}, expected {UNREAD}"
            raise Failed(TaskError(self.entrance.operator, text))

    def _times(self, values: pl.Series, kind: TimeType) -> tuple[pl.Series, int | None]:
        """Event times in microseconds, and the greatest."""
        if kind.tick == 1 and isinstance(values.dtype, pl.Datetime):
            # They are in the column as they are, which two looks tell; `micros_of` is a query.
            times = values.cast(pl.Int64)
            low, high = times.min(), times.max()
            if low is None or -FARTHEST <= low <= high <= FARTHEST:  # type: ignore[operator]
                return times, high  # type: ignore[return-value]
        with failing(self.entrance.operator):
            times = micros_of(values, kind)
        return times, times.max()  # type: ignore[return-value]

    def _without_time(self, frame: pl.DataFrame, times: pl.Series) -> pl.Series | None:
        """Which rows have no event time, if any; where that ends the run, it does."""
        if not times.null_count():
            return None
        missing = times.is_null()
        if self.entrance.on_error == "fail":
            first = missing.arg_max()
            assert first is not None
            record = records_of(frame.slice(first, 1), frame.columns)[0]
            raise Failed(told(self.entrance.operator, _no_time(self.entrance.event_time), record))
        return missing


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Rows that do not enter, for one reason."""

    mask: pl.Series
    unread: Sequence[Record] | None = None
    """What the source tells of them, if it could not read them; else they are passed over."""


def _not_read(operator: str, row: Record) -> TaskError:
    """The error that ends a run at a row which could not be read."""
    place = row["file"] if row["line"] is None else f"line {row['line']} of {row['file']}"
    so = 'mend the file and start again, or pass on_error="skip" or "dead_letter" to read(...)'
    return TaskError(operator, f"{place} cannot be read: {row['why']}", so=so)


def _output(port: Port, name: str) -> Port:
    """Another output of the operator, or the same."""
    return port if port.output == name else replace(port, output=name)


def _no_time(column: str | None) -> ValueError:
    return ValueError(f"null event time in column {column!r}")


def _places(partition_index: int, first_row: int, height: int) -> list[pl.Series]:
    """The order columns of rows that follow one another."""
    # By NumPy: an eager expression of Polars is a query, which costs more than 1,000 such rows.
    return [
        pl.Series(PARTITION, np.full(height, partition_index, dtype=np.int32)),
        pl.Series(OFFSET, np.arange(first_row, first_row + height, dtype=np.int64)),
    ]
