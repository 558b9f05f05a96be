"""A source as a driver looks at it: what is there beyond the last plan, cut to one epoch's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from anabranch.connectors.base import Interruption
from anabranch.epoch.bundles import Bundles
from anabranch.epoch.protocol import Offer
from anabranch.epoch.row_limit import RowLimit
from anabranch.ids import Offset, Partition
from anabranch.program.operators.edges import Read
from anabranch.program.operators.operator import OUT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Intake:
    """Follows how far a source has been planned."""

    def __init__(
        self, read: Read, max_rows: int | None, positions: Mapping[Partition, Offset] | None = None
    ) -> None:
        """Go on from these positions; a partition without one begins at its beginning."""
        self._read, self._source, self._max_rows = read, read.source, max_rows
        self._positions = dict(positions or {})
        self._end: Mapping[Partition, Offset] | None = None
        self._empty_since: dict[Partition, float] = {}
        self._interruptions: dict[Partition, tuple[Offset, Interruption | None]] = {}
        """What the source said last, and of which offset: it may say so once."""
        self._pause: float | None = None
        """Until when there is nothing to be had, in seconds of the clock."""

    @property
    def positions(self) -> Mapping[Partition, Offset]:
        """Where the next epoch begins in each partition."""
        return {p: self._at(p) for p in self._source.partitions()}

    def freeze_end(self) -> None:
        """Read up to what is there now and no further."""
        self._end = dict(self._source.latest())

    def look(self, now: float = 0.0, limit: RowLimit | None = None) -> Offer:
        """What the next epoch could hold, at this moment of the clock (seconds)."""
        most = self._max_rows
        if most is None and limit is not None:
            most = max(1, limit.rows // max(1, len(self._source.partitions())))
        if self._pause is not None and now < self._pause:
            return self._nothing(now)
        latest = self._source.latest() if self._end is None else self._end
        offsets: dict[Partition, tuple[Offset, Offset]] = {}
        finished, more = set(), False
        for partition in self._source.partitions():
            start, end = self._at(partition), latest.get(partition, self._at(partition))
            cut = self._source.limit(partition, start, end, most)
            offsets[partition] = (start, cut)
            more = more or cut != end
            if cut == end and self._source.finished(partition):
                finished.add(partition)
            self._note(partition, now, empty=start == end)
        hint = None if more else self._hint()
        idle = frozenset(p for p in offsets if p not in finished and self._idle(p, now))
        return Offer(offsets, frozenset(finished), hint, more, idle)

    def _nothing(self, now: float) -> Offer:
        """A source that pauses is empty, but not at its end."""
        offsets = {p: (self._at(p), self._at(p)) for p in self._source.partitions()}
        for partition in offsets:
            self._note(partition, now, empty=True)
        idle = frozenset(p for p in offsets if self._idle(p, now))
        return Offer(offsets, frozenset(), None, more=True, idle=idle)

    def interruption(self, offer: Offer) -> Interruption | None:
        """What the source does to a run that cuts this, if it is one that does something."""
        for partition, (start, end) in offer.offsets.items():
            if start == end:
                continue
            offset, known = self._interruptions.get(partition, (None, None))
            if offset != end:
                known = self._source.interruption(partition, end)
                self._interruptions[partition] = (end, known)
            if known is not None:
                return known
        return None

    def pause(self, until: float) -> None:
        """Take the source for empty until then."""
        self._pause = until

    def _note(self, partition: Partition, now: float, *, empty: bool) -> None:
        """Note since when a partition is empty; nothing that came could have gone between looks."""
        if empty:
            self._empty_since.setdefault(partition, now)
        else:
            self._empty_since.pop(partition, None)

    def _idle(self, partition: Partition, now: float) -> bool:
        timeout, since = self._read.idle_timeout, self._empty_since.get(partition)
        return timeout is not None and since is not None and now - since >= timeout / 1_000_000

    def take(self, offer: Offer) -> None:
        """Note that an offer was planned."""
        for partition, (_, end) in offer.offsets.items():
            self._positions[partition] = end

    def splits(self, offer: Offer, bundles: Bundles | None = None) -> list[tuple[int, Any]]:
        """The splits of an epoch with the index of their partition, in order (M5)."""
        found = list(self._planned(offer, None))
        size = None if bundles is None else bundles.size(offer.rows, len(found))
        return found if size is None else list(self._planned(offer, size))

    def _planned(self, offer: Offer, size: int | None) -> Iterator[tuple[int, Any]]:
        for index, partition in enumerate(self._source.partitions()):
            at, end = offer.offsets.get(partition, (None, None))
            while at != end:
                to = self._source.limit(partition, at, end, size)
                for split in self._source.plan({partition: at}, {partition: to}):
                    yield index, split
                at = to

    def _at(self, partition: Partition) -> Offset:
        if partition not in self._positions:
            self._positions[partition] = self._source.first(partition)
        return self._positions[partition]

    def _hint(self) -> int | None:
        hint, time = self._source.hint(), self._read.outputs[OUT].time
        if hint is None or time is None:
            return None
        if isinstance(time.dtype, pl.Datetime):
            known = hint if hint.tzinfo is not None else hint.replace(tzinfo=UTC)
            return int((known - _EPOCH) // timedelta(microseconds=1))
        return int(hint) * time.tick
