"""Row by row (M8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from anabranch.program.functions import Function
from anabranch.program.operators import rowwise as ops
from anabranch.program.operators.operator import OUT, REST
from anabranch.testing.sequential.frames import evaluated, frame_of, projected
from anabranch.testing.sequential.node import Emitted, Node
from anabranch.testing.sequential.row import Row, caused_by_watermark
from anabranch.testing.sequential.times import micros
from anabranch.testing.sequential.values import BadRow, conform, copied


def results(given: Any) -> Iterable[Any]:
    """What a function gave, as records: a dict, a list or iterator of them, or None for nothing."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return (given,)
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        message = f"expected a dict, a list of dicts or None, got {type(given).__name__}"
        raise BadRow(message)
    return given  # type: ignore[no-any-return]


class FilterNode(Node[ops.Filter]):
    """Null does not hold."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Pass the row or drop it."""
        by = self.op.predicate
        if isinstance(by, Function):
            return self.attempt(row, lambda: [row] if by.call(copied(row.values)) else [])
        return [(OUT, row)] if evaluated(row.values, self.given.schema, by) else []


class SelectNode(Node[ops.Select]):
    """The expressions' columns alone."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Compute the columns."""
        values = projected(row.values, self.given.schema, self.op.expressions)
        return [(OUT, row.with_values(values))]


class WithColumnsNode(Node[ops.WithColumns]):
    """The expressions' columns beside the others."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Compute the columns; a new one of an old name takes its place."""
        new = projected(row.values, self.given.schema, self.op.expressions)
        return [(OUT, row.with_values({**row.values, **new}))]


class DropNode(Node[ops.Drop]):
    """All columns but some."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Leave the columns out."""
        kept = {name: value for name, value in row.values.items() if name not in self.op.columns}
        return [(OUT, row.with_values(kept))]


class RenameNode(Node[ops.Rename]):
    """The same values under other names."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Rename the columns."""
        names = dict(self.op.names)
        renamed = {names.get(name, name): value for name, value in row.values.items()}
        return [(OUT, row.with_values(renamed))]


class ExplodeNode(Node[ops.Explode]):
    """A list's elements, one row each: an empty one gives no row, null one with null."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Unfold the list."""
        given = row.values[self.op.column]
        elements = [None] if given is None else given
        for sub, element in enumerate(elements):
            yield OUT, row.child(sub, {**row.values, self.op.column: element})


class WithEventTimeNode(Node[ops.WithEventTime]):
    """The same row at another time (M7)."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Take the time from the column."""
        kind = self.op.outputs[OUT].time
        assert kind is not None
        value = row.values[self.op.column]
        if value is None:
            message = f"null event time in column {self.op.column!r}"
            return self.failed(row, ValueError(message))
        return [(OUT, Row(row.key, micros(value, kind), row.values, row.origin))]


class MapNode(Node[ops.Map]):
    """One record to one."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Apply the function; None is an error."""
        return self.attempt(row, lambda: [row.with_values(self._one(row))])

    def _one(self, row: Row) -> dict[str, Any]:
        given = self.op.function.call(copied(row.values))
        if given is None:
            message = "map must return a record, got None; use filter or flat_map to drop records"
            raise BadRow(message)
        return conform(copied(given), self.op.outputs[OUT].schema)


class FlatMapNode(Node[ops.FlatMap]):
    """One record to any number."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Apply the function; what it yielded before an error is undone."""
        return self.attempt(row, lambda: self._many(row))

    def _many(self, row: Row) -> list[Row]:
        schema = self.op.outputs[OUT].schema
        given = results(self.op.function.call(copied(row.values)))
        return [row.child(sub, conform(copied(each), schema)) for sub, each in enumerate(given)]


class MapBatchesNode(Node[ops.MapBatches]):
    """Elementwise, a row is as good as any cut; else an epoch's rows wait for its end.

    A frame's rows need not correspond to those that made them, so they have the greatest event
    time of these, and follow the epoch's records.
    """

    def __init__(self, op: ops.MapBatches, inputs: Any) -> None:
        """Begin with nothing held."""
        super().__init__(op, inputs)
        self._held: list[Row] = []

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Apply the function to one row, or hold it."""
        if self.op.elementwise:
            return self.attempt(
                row, lambda: [row.child(sub, v) for sub, v in enumerate(self._called([row]))]
            )
        self._held.append(row)
        return ()

    def advance(self, watermark: float, epoch: int) -> Emitted:
        """Apply the function to the epoch's rows."""
        held, self._held = self._held, []
        self.watermark = watermark
        if not held:
            return
        try:
            made = self._called(held)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            for sub, row in enumerate(held):
                for output, letter in self.failed(row, error):
                    yield output, self._placed(epoch, sub, letter.time, letter.values)
            return
        time = None if held[0].time is None else max(row.at() for row in held)
        for sub, values in enumerate(made):
            yield OUT, self._placed(epoch, sub, time, values)

    def _placed(self, epoch: int, sub: int, time: int | None, values: dict[str, Any]) -> Row:
        return caused_by_watermark(epoch, self.op.id, 0, sub, time, values)

    def _called(self, rows: list[Row]) -> list[dict[str, Any]]:
        frame = frame_of([row.values for row in rows], self.given.schema)
        given = self.op.function.call(frame)
        schema = self.op.outputs[OUT].schema
        if not isinstance(given, pl.DataFrame):
            message = f"expected a frame, got {type(given).__name__}"
            raise BadRow(message)
        if dict(given.schema) != dict(schema):
            message = f"expected the columns {dict(schema)}, got {dict(given.schema)}"
            raise BadRow(message)
        return given.select(list(schema)).rows(named=True)


class SplitNode(Node[ops.Split]):
    """The first predicate that is true takes the row."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Send the row to one branch."""
        for name, predicate in self.op.predicates:
            if evaluated(row.values, self.given.schema, predicate):
                return [(name, row)]
        return [(REST, row)]
