"""A source as the oracle reads it: the rows of an epoch, and the watermark at its end (M1, M4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.connectors.unread import UNREAD
from anabranch.errors import ProgramError, RunError
from anabranch.ids import Offset, Partition
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Read
from anabranch.program.operators.operator import DEAD_LETTERS, OUT
from anabranch.testing.sequential.node import Emitted, Node
from anabranch.testing.sequential.row import BEFORE_TIME, END_OF_TIME, RECORD_PHASE, Origin, Row
from anabranch.testing.sequential.times import micros


@dataclass(slots=True)
class _Partition:
    """What is known of a partition so far."""

    at: Offset
    rows: int = 0
    greatest: float = BEFORE_TIME
    finished: bool = False


class Feed(Node[Read]):
    """One source: reads cuts of it and follows its watermark."""

    def __init__(self, op: Read) -> None:
        """Begin at the first offset of each partition."""
        super().__init__(op, ())
        self._known: dict[Partition, _Partition] = {}
        self._looked = False
        self._time = op.outputs[OUT].time

    def next_cut(self, rows: int | None) -> Cut | None:
        """The next epoch of at most so many rows a partition; None when there is no more."""
        source, end = self.op.source, self.op.source.end()
        ranges: dict[Partition, tuple[Offset, Offset]] = {}
        for partition in source.partitions():
            at = self._of(partition).at
            if end[partition] is None:
                message = f"{self.op.name} never ends, so it cannot be run to its end"
                so = "give the source rows=..., or pass log=[...]"
                raise ProgramError(message, site=self.op.site, so=so)
            ranges[partition] = (at, source.limit(partition, at, end[partition], rows))
        if self._looked and all(start == to for start, to in ranges.values()):
            return None
        # What the source hints at lies behind all that it holds now.
        reached = all(to == end[partition] for partition, (_, to) in ranges.items())
        return Cut(self.op.name, ranges, hint=source.hint() if reached else None)

    def rows(self, cut: Cut, epoch: int) -> Emitted:
        """The rows of a cut, in partition and offset order."""
        self._looked = True
        source = self.op.source
        for index, partition in enumerate(source.partitions()):
            if partition not in cut.offsets:
                continue
            start, end = cut.offsets[partition]
            known = self._of(partition)
            for number, record in enumerate(self._records(partition, start, end), known.rows):
                key = (epoch, RECORD_PHASE, (index, number))
                origin = Origin(epoch, self.op.name, str(partition), number)
                unread = None if source.unread is None else record.pop(source.unread, None)
                row = Row(key, None, record, origin)
                if (partition, number) in cut.quarantined:
                    yield DEAD_LETTERS, self.letter(row, "quarantined")
                elif unread is not None:
                    yield from self._unread(row, unread)
                else:
                    yield from self._timed(row, known)
                known.rows += 1
            known.at = end

    def close(self, cut: Cut) -> float:
        """The watermark at the end of a cut whose rows have all been taken."""
        self._finish(cut)
        partitions = [(p, self._of(p)) for p in self.op.source.partitions()]
        if all(known.finished for _, known in partitions):
            return END_OF_TIME
        hint = BEFORE_TIME
        if cut.hint is not None and self._time is not None:
            hint = micros(cut.hint, self._time)
        live = [k.greatest for p, k in partitions if not k.finished and p not in cut.idle]
        seen = min(live) - self.op.lateness if live else BEFORE_TIME
        return max(self.watermark, hint, seen)

    def _finish(self, cut: Cut) -> None:
        source = self.op.source
        end, latest = source.end(), source.latest()
        for partition in source.partitions():
            known = self._of(partition)
            if cut.finished is not None:
                known.finished |= partition in cut.finished
            elif known.at == end[partition]:
                # An end beyond what is there now is one that is known in advance.
                ahead = latest[partition] != end[partition]
                known.finished |= ahead or source.finished(partition)

    def _records(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterator[dict[str, Any]]:
        for split in self.op.source.plan({partition: start}, {partition: end}):
            for batch in self.op.source.read(split):
                frame = pl.DataFrame(batch)
                self._check(frame)
                yield from frame.iter_rows(named=True)

    def _check(self, frame: pl.DataFrame) -> None:
        schema, unread = self.op.outputs[OUT].schema, self.op.source.unread
        expected = dict(schema)
        if unread is not None and unread in frame.columns:
            expected[unread] = UNREAD
        if dict(frame.schema) != expected:
            message = f"{self.op.name}: the source gave other columns than it said"
            have = f"{expected}, then {dict(frame.schema)}"
            raise RunError(message, site=self.op.site, have=have)

    def _unread(self, row: Row, unread: dict[str, Any]) -> Emitted:
        """A row that its source could not read obeys `on_error`; it has no values and no time."""
        why = unread.pop("why")
        if self.op.on_error == "fail":
            at = "" if unread["line"] is None else f"line {unread['line']} of "
            message = f"{self.op.name} failed: {at}{unread['file']} cannot be read: {why}"
            raise RunError(message, site=self.op.site, so="mend the file, or pass on_error")
        if self.op.on_error == "dead_letter":
            letter = self.letter(row.with_values(unread), "unread")
            yield DEAD_LETTERS, letter.with_values({**letter.values, "error": why})

    def _timed(self, row: Row, known: _Partition) -> Emitted:
        if self._time is None or self.op.event_time is None:
            return [(OUT, row)]
        value = row.values[self.op.event_time]
        if value is None:
            message = f"null event time in column {self.op.event_time!r}"
            return self.failed(row, ValueError(message))
        time = micros(value, self._time)
        known.greatest = max(known.greatest, time)
        return [(OUT, Row(row.key, time, row.values, row.origin))]

    def _of(self, partition: Partition) -> _Partition:
        if partition not in self._known:
            self._known[partition] = _Partition(self.op.source.first(partition))
        return self._known[partition]
