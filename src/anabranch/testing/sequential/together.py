"""Streams and tables together (M13, M14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from anabranch.errors import RunError
from anabranch.program.operators import together as ops
from anabranch.program.operators.operator import DEAD_LETTERS, OUT, Output
from anabranch.testing.sequential.node import Emitted, Node
from anabranch.testing.sequential.row import Record, Row, caused_by_watermark
from anabranch.testing.sequential.values import key_of, order_of

LEFT, RIGHT = 0, 1


@dataclass(slots=True)
class Stored:
    """A row that waits for partners."""

    row: Row
    side: int
    arrival: int
    key: Any
    matched: bool = False


class JoinNode(Node[ops.Join]):
    """Two sides, each with the rows that can still match."""

    def __init__(self, op: ops.Join, inputs: Sequence[Output]) -> None:
        """Begin with nothing stored."""
        super().__init__(op, inputs)
        self._stored: list[Stored] = []
        self._arrivals = 0
        self.lag = 0 if op.how == "inner" else op.within

    def take(self, row: Row, position: int) -> Emitted:
        """Pair the row with its partners in the order they arrived, then keep it."""
        if not self._can_match(row):
            return [(DEAD_LETTERS, self.letter(row, "late"))]
        key = key_of(row.values, self.op.on)
        new = Stored(row, position, self._arrivals, None if None in key else order_of(key))
        self._arrivals += 1
        partners = [each for each in self._stored if self._match(each, new)]
        self._stored.append(new)
        return [(OUT, self._pair(partner, new)) for partner in partners]

    def advance(self, watermark: float, epoch: int) -> Emitted:
        """Let go of rows that can match no more; those of an outer side leave unmatched."""
        self.watermark = watermark
        gone = [each for each in self._stored if not self._can_match(each.row)]
        self._stored = [each for each in self._stored if self._can_match(each.row)]
        outer = {"left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}.get(self.op.how, ())
        alone = [each for each in gone if not each.matched and each.side in outer]
        for each in sorted(alone, key=lambda e: (e.row.at(), e.side, e.arrival)):
            values = self._values(each if each.side == LEFT else None, each if each.side else None)
            order = (each.side, each.arrival)
            time = each.row.at()
            row = caused_by_watermark(epoch, self.op.id, time, order, time, values)
            yield OUT, replace(row, origin=each.row.origin)

    def _can_match(self, row: Row) -> bool:
        return row.at() + self.op.within >= self.watermark

    def _match(self, stored: Stored, new: Stored) -> bool:
        return (
            stored.side != new.side
            and stored.key is not None
            and stored.key == new.key
            and abs(stored.row.at() - new.row.at()) <= self.op.within
        )

    def _pair(self, partner: Stored, new: Stored) -> Row:
        partner.matched = new.matched = True
        left, right = (partner, new) if new.side == RIGHT else (new, partner)
        row = new.row.child(partner.arrival, self._values(left, right))
        return replace(row, time=max(partner.row.at(), new.row.at()))

    def _values(self, left: Stored | None, right: Stored | None) -> Record:
        there = (left or right).row.values  # type: ignore[union-attr]
        values = {
            name: left.row.values[name] if left else there[name] if name in self.op.on else None
            for name in self.inputs[LEFT].schema
        }
        for name, new in self.op.right_names:
            values[new] = right.row.values[name] if right else None
        return values


class LookupNode(Node[ops.Lookup]):
    """A table, in the version that the log says."""

    def __init__(self, op: ops.Lookup, inputs: Sequence[Output]) -> None:
        """Begin with the version there is now."""
        super().__init__(op, inputs)
        self._rows: dict[Any, list[Record]] = {}
        self.load(op.table.load())

    def load(self, table: pl.DataFrame) -> None:
        """Take another version from here on."""
        if dict(table.schema) != dict(self.op.table.schema):
            message = f"{self.op.name}: the table's columns changed"
            have = f"{dict(self.op.table.schema)}, then {dict(table.schema)}"
            raise RunError(message, site=self.op.site, have=have)
        self._rows = {}
        for record in table.iter_rows(named=True):
            key = key_of(record, self.op.on)
            if None not in key:
                self._rows.setdefault(order_of(key), []).append(record)
        twice = [rows[0] for rows in self._rows.values() if len(rows) > 1]
        if twice and not self.op.many:
            message = (
                f"{self.op.name}: the table has several rows for {key_of(twice[0], self.op.on)}"
            )
            raise RunError(message, site=self.op.site, so="pass many=True")

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """The row beside each of the table's rows with its key."""
        key = key_of(row.values, self.op.on)
        found = [] if None in key else self._rows.get(order_of(key), [])
        if not found:
            return [] if self.op.how == "inner" else [(OUT, self._beside(row, None))]
        made = [self._beside(row, record) for record in found]
        if not self.op.many:
            return [(OUT, made[0])]
        return [(OUT, each.child(sub, each.values)) for sub, each in enumerate(made)]

    def _beside(self, row: Row, record: Record | None) -> Row:
        new = {to: record[name] if record else None for name, to in self.op.right_names}
        return row.with_values({**row.values, **new})


class UnionNode(Node[ops.Union]):
    """Rows as they come."""

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Pass the row, its columns in the left one's order."""
        names = self.op.outputs[OUT].schema
        return [(OUT, row.with_values({name: row.values[name] for name in names}))]


class TimeOrderNode(Node[ops.Merge | ops.InTimeOrder]):
    """Rows are held until the watermark has passed them; those behind it pass at once."""

    def __init__(self, op: ops.Merge | ops.InTimeOrder, inputs: Sequence[Output]) -> None:
        """Begin with nothing held."""
        super().__init__(op, inputs)
        self._held: list[tuple[int, int, int, Row]] = []
        self._arrivals = 0

    def take(self, row: Row, position: int) -> Emitted:
        """Hold the row, or let it pass if it is behind."""
        names = self.op.outputs[OUT].schema
        row = row.with_values({name: row.values[name] for name in names})
        if row.at() < self.watermark:
            return [(OUT, row)]
        self._held.append((row.at(), position, self._arrivals, row))
        self._arrivals += 1
        return ()

    def advance(self, watermark: float, epoch: int) -> Emitted:
        """Release what lies before the watermark, in order (time, position, arrival)."""
        self.watermark = watermark
        due = sorted((each for each in self._held if each[0] < watermark), key=lambda e: e[:3])
        self._held = [each for each in self._held if each[0] >= watermark]
        for time, position, arrival, row in due:
            order = (position, arrival)
            placed = caused_by_watermark(epoch, self.op.id, time, order, time, row.values)
            yield OUT, replace(placed, origin=row.origin)
