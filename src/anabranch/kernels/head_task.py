"""What happens to rows of a source before any operator with state: read, changed, divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from anabranch.compiler.proof import Proof
from anabranch.kernels.bundle import OFFSET, PARTITION, TIME
from anabranch.kernels.exits import Exit
from anabranch.kernels.failures import Failed, failing, told
from anabranch.kernels.letters import letters_of
from anabranch.kernels.results import HeadResult, TaskError
from anabranch.kernels.stateless.chain import Chain
from anabranch.kernels.stateless.columns import filtered, framed
from anabranch.kernels.stateless.python_rows import records_of
from anabranch.kernels.stateless.split import Branches
from anabranch.kernels.times import FARTHEST, micros_of
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
            place = (partition_index, first_row)
            parts = {
                number: found
                for number, exit_ in enumerate(self.exits)
                if (found := exit_.parts(flows[exit_.wire.port], self.owners, place))
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
        entered, greatest, letters = (
            self._entered_without(frame, places, without)
            if without
            else self._entered(frame, places)
        )
        flows = {replace(self.entrance.port, output=name): rows for name, rows in entered.items()}
        for node in self.nodes:
            given, left_out = node.run(node.wire.carry(flows[node.wire.port]))
            letters += left_out
            for output, rows in given.items():
                flows[replace(node.port, output=output)] = rows
        return flows, greatest, letters

    def _entered_without(
        self, frame: pl.DataFrame, places: list[pl.Series], without: Sequence[int]
    ) -> tuple[dict[str, pl.DataFrame], int | None, int]:
        """All rows but these, which are told in letters where somebody reads them."""
        kept = pl.Series(np.isin(np.arange(frame.height), without, invert=True))
        # Letters are put in order by their places, though nobody behind them may ask for those.
        ordered = replace(self, entrance=replace(self.entrance, ordered=True))
        rows, greatest, letters = ordered._entered(  # noqa: SLF001 - it is this very task
            frame.filter(kept), [each.filter(kept) for each in places]
        )
        if DEAD_LETTERS in rows:
            passed_over = [frame[name].filter(~kept) for name in self.entrance.live]
            if self.entrance.timed:
                nobody = pl.repeat(None, len(without), dtype=pl.Int64, eager=True)
                passed_over.append(nobody.alias(TIME))
            passed_over += [each.filter(~kept) for each in places]
            operator, columns = self.entrance.operator, tuple(self.entrance.schema)
            failed = framed(passed_over, len(without))
            told_of = letters_of(operator, failed, columns, "quarantined")
            both = pl.concat([rows[DEAD_LETTERS], told_of.select(rows[DEAD_LETTERS].columns)])
            rows[DEAD_LETTERS] = both.sort(OFFSET)
        if not self.entrance.ordered:
            rows = {output: each.drop(PARTITION, OFFSET) for output, each in rows.items()}
        return rows, greatest, letters + len(without)

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


def _no_time(column: str | None) -> ValueError:
    return ValueError(f"null event time in column {column!r}")


def _places(partition_index: int, first_row: int, height: int) -> list[pl.Series]:
    """The order columns of rows that follow one another."""
    # By NumPy: an eager expression of Polars is a query, which costs more than 1,000 such rows.
    return [
        pl.Series(PARTITION, np.full(height, partition_index, dtype=np.int32)),
        pl.Series(OFFSET, np.arange(first_row, first_row + height, dtype=np.int64)),
    ]
