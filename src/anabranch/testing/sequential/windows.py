"""Windows: which a record belongs to, when it is late, when they leave (M9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import polars as pl

from anabranch.errors import RunError
from anabranch.program.operators.operator import LATE, OUT, Output
from anabranch.program.operators.windowed import REVISION, WindowAggregate, WindowApply
from anabranch.program.windows import Rows, SessionGap, Sliding, Tumbling
from anabranch.testing.sequential.aggregates import aggregate
from anabranch.testing.sequential.frames import frame_of
from anabranch.testing.sequential.node import Emitted, Node
from anabranch.testing.sequential.row import Record, Row, caused_by_watermark
from anabranch.testing.sequential.rowwise import results
from anabranch.testing.sequential.times import shown
from anabranch.testing.sequential.values import conform, copied, key_of, order_of

WindowOperator: TypeAlias = WindowAggregate | WindowApply
Bounds: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class Pane:
    """One window of one group, with its rows in order."""

    start: int
    end: int
    key: tuple[Any, ...]
    rows: list[Row] = field(default_factory=list)
    changed: bool = True
    revision: int = 0

    @property
    def place(self) -> tuple[int, int, Any]:
        """Where it leaves: by end, start and key."""
        return (self.end, self.start, order_of(self.key))


class WindowNode(Node[WindowOperator]):
    """What all windows have in common: what becomes of a pane's rows."""

    def bounds(self, pane: Pane) -> Record:
        """The columns that say which window and group it is."""
        names = self.op.windowing.by
        return {
            "window_start": shown(pane.start, self.given.time),
            "window_end": shown(pane.end, self.given.time),
            **dict(zip(names, pane.key, strict=True)),
        }

    def emit(self, pane: Pane, cause: Row) -> Emitted:
        """The results of a pane, as rows caused by `cause`."""
        if isinstance(self.op, WindowAggregate):
            values = self.bounds(pane) | self._aggregates(self.op, pane)
            return [(OUT, cause.with_values(self._revised(values, pane)))]
        return self.attempt(cause, lambda: self._applied(pane, cause))

    def _aggregates(self, op: WindowAggregate, pane: Pane) -> Record:
        records, types = [row.values for row in pane.rows], op.outputs[OUT].schema
        try:
            return {
                name: aggregate(each, records, self.given.schema, types[name])
                for name, each in op.aggregates
            }
        except RunError as error:
            message = f"{op.name} failed on window {self.bounds(pane)}: {error.what}"
            raise RunError(message, site=op.site, so=error.so) from error

    def _applied(self, pane: Pane, cause: Row) -> list[Row]:
        assert isinstance(self.op, WindowApply)
        frame = frame_of([row.values for row in pane.rows], self.given.schema)
        given = self.op.function.call(pane.key, frame)
        if isinstance(given, pl.DataFrame):
            given = given.rows(named=True)
        all_columns = self.op.outputs[OUT].schema
        schema = pl.Schema({name: all_columns[name] for name in self.op.columns})
        bounds = {name: v for name, v in self.bounds(pane).items() if name not in schema}
        made = [bounds | conform(copied(each), schema) for each in results(given)]
        return [cause.child(sub, self._revised(v, pane)) for sub, v in enumerate(made)]

    def _revised(self, values: Record, pane: Pane) -> Record:
        late_allowed = self.op.windowing.allowed is not None
        return {**values, REVISION: pane.revision} if late_allowed else values

    def leave(self, panes: Iterable[Pane], epoch: int) -> Emitted:
        """Emit panes whose end has come, in order (end, start, key)."""
        for pane in sorted(panes, key=lambda each: each.place):
            order = (pane.start, order_of(pane.key))
            # M7: the last instant that lies in the window.
            time = pane.end - 1
            cause = caused_by_watermark(epoch, self.op.id, pane.end, order, time, self.bounds(pane))
            yield from self.emit(pane, cause)
            pane.changed = False
            pane.revision += 1


class AlignedNode(WindowNode):
    """Tumbling and sliding windows."""

    def __init__(self, op: WindowOperator, inputs: Sequence[Output]) -> None:
        """Begin with no windows."""
        super().__init__(op, inputs)
        self._panes: dict[Any, Pane] = {}
        self._allowed = op.windowing.allowed or 0

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Put the row into its windows that are not closed; late for all, it goes to `late`."""
        windows = list(self._windows(row.at()))
        still_open = [each for each in windows if each[1] + self._allowed > self.watermark]
        key = key_of(row.values, self.op.windowing.by)
        for start, end in still_open:
            pane = self._panes.setdefault((start, order_of(key)), Pane(start, end, key))
            pane.rows.append(row)
            pane.changed = True
        return [(LATE, row)] if windows and not still_open else []

    def advance(self, watermark: float, epoch: int) -> Emitted:
        """Let changed windows leave whose end has come, then forget the closed ones."""
        self.watermark = watermark
        due = [pane for pane in self._panes.values() if pane.changed and pane.end <= watermark]
        yield from self.leave(due, epoch)
        self._panes = {
            place: pane
            for place, pane in self._panes.items()
            if pane.end + self._allowed > watermark
        }

    def _windows(self, time: int) -> Iterable[Bounds]:
        window = self.op.windowing.window
        if isinstance(window, Tumbling):
            start = time // window.size * window.size
            return [(start, start + window.size)]
        assert isinstance(window, Sliding)
        first = (time - window.size) // window.slide + 1
        last = time // window.slide
        starts = (number * window.slide for number in range(first, last + 1))
        return [(start, start + window.size) for start in starts]


class SessionNode(WindowNode):
    """Sessions [first, last + gap), which merge when a record falls between them."""

    def __init__(self, op: WindowOperator, inputs: Sequence[Output]) -> None:
        """Begin with no sessions."""
        super().__init__(op, inputs)
        self._sessions: dict[Any, list[Pane]] = {}

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Merge the record with the sessions it touches; only then is it judged late or not."""
        window = self.op.windowing.window
        assert isinstance(window, SessionGap)
        key, start, end = key_of(row.values, self.op.windowing.by), row.at(), row.at() + window.gap
        sessions = self._sessions.setdefault(order_of(key), [])
        touched = [each for each in sessions if each.start < end and start < each.end]
        apart = [each for each in sessions if not (each.start < end and start < each.end)]
        merged = Pane(
            min([start, *(each.start for each in touched)]),
            max([end, *(each.end for each in touched)]),
            key,
            sorted([row, *(r for each in touched for r in each.rows)], key=lambda r: r.key),
        )
        if merged.end <= self.watermark:
            return [(LATE, row)]
        self._sessions[order_of(key)] = [*apart, merged]
        return ()

    def advance(self, watermark: float, epoch: int) -> Emitted:
        """Let the sessions leave that no record can prolong any more."""
        self.watermark = watermark
        panes = [pane for sessions in self._sessions.values() for pane in sessions]
        yield from self.leave([pane for pane in panes if pane.end <= watermark], epoch)
        self._sessions = {
            key: [pane for pane in sessions if pane.end > watermark]
            for key, sessions in self._sessions.items()
        }


class RowsNode(WindowNode):
    """The last n records of a key, at every step-th one, at once.

    The result's event time is its cause's, the last record's: a rows window includes its end, and
    an instant before it could lie behind the watermark.
    """

    def __init__(self, op: WindowOperator, inputs: Sequence[Output]) -> None:
        """Begin with no records."""
        super().__init__(op, inputs)
        self._rows: dict[Any, list[Row]] = {}

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Add the record, and emit if it is a step-th one."""
        window = self.op.windowing.window
        assert isinstance(window, Rows)
        key = key_of(row.values, self.op.windowing.by)
        seen = self._rows.setdefault(order_of(key), [])
        seen.append(row)
        if len(seen) % window.step:
            return ()
        last = seen[-window.count :]
        return self.emit(Pane(last[0].at(), last[-1].at(), key, last), row)


def window_node(op: WindowOperator, inputs: Sequence[Output]) -> WindowNode:
    """The node for a kind of window."""
    match op.windowing.window:
        case Tumbling() | Sliding():
            return AlignedNode(op, inputs)
        case SessionGap():
            return SessionNode(op, inputs)
        case Rows():
            return RowsNode(op, inputs)
