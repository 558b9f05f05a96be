"""Rows of several lanes on their way into one order, for sinks that want one.

What little an epoch has for a sink, the driver puts in order while it commits: a task would cost a
job's time. What is large, tasks put in order in the next cycle, beside its other work: the driver
sees references alone. Commits wait for it, in the order of the log; nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from anabranch.epoch.protocol import LaneWork
from anabranch.runtime.exchange import BLOB, Reference
from anabranch.runtime.locality import nearest
from anabranch.runtime.payload import MergeDone, MergeItem
from anabranch.runtime.tasks import merged
from anabranch.runtime.under_way import Group, UnderWay

MERGE_ABOVE = 1 << 20
"""Bytes: what a driver puts in order in about the time that a job costs."""


class Merging:
    """What is being put into one order, and what has been."""

    def __init__(self, under_way: UnderWay, above: int = MERGE_ABOVE) -> None:
        """Leave more than so many bytes of an epoch to tasks."""
        self._under_way, self._above = under_way, above
        self._pending: dict[tuple[str, int], MergeItem] = {}
        """By sink and epoch."""
        self._done: dict[tuple[str, int], Any] = {}

    @property
    def pending(self) -> list[MergeItem]:
        """What tasks have yet to put in order."""
        return list(self._pending.values())

    def begin(self, group: Group) -> None:
        """Note what is large of epochs that are done."""
        for sink in self._under_way.deployment.outputs:
            for work in group.works:
                parts = self._parts(sink, work)
                if any(BLOB in part for part in parts):
                    continue  # the driver has it anyway
                references = [Reference.from_json(part) for part in parts]
                if sum(each.size for each in references) > self._above:
                    near = nearest([(each.node, each.size) for each in references])
                    item = MergeItem(sink, work.epoch, parts, uuid4().hex, near)
                    self._pending[sink, work.epoch] = item

    def take(self, dones: Iterable[MergeDone]) -> None:
        """Note what tasks have put in order."""
        for done in dones:
            del self._pending[done.sink, done.epoch]
            self._done[done.sink, done.epoch] = done.message

    def done(self, group: Group) -> bool:
        """Whether nothing of these epochs is with tasks."""
        return not any(epoch in group.epochs for _, epoch in self._pending)

    def forget(self, group: Group) -> None:
        """They are committed."""
        self._done = {at: each for at, each in self._done.items() if at[1] not in group.epochs}

    def staged(self, sink: str, group: Group) -> tuple[tuple[int, tuple[Any, ...]], ...]:
        """The messages of a sink's rows, epoch by epoch, each in the order of its rows."""
        found = ((work.epoch, self._messages(sink, work)) for work in group.works)
        return tuple((epoch, messages) for epoch, messages in found if messages)

    def _messages(self, sink: str, work: LaneWork) -> tuple[Any, ...]:
        if (sink, work.epoch) in self._done:
            return (self._done[sink, work.epoch],)
        if parts := self._parts(sink, work):
            item = MergeItem(sink, work.epoch, parts, uuid4().hex)
            return (merged(self._under_way.deployment, item).message,)
        known = self._under_way[work.ticket]
        stage = self._under_way.deployment.outputs[sink].stage
        dones = known.in_order if stage is None else known.of_stage(stage)
        return tuple(done.staged[sink] for done in dones if sink in done.staged)

    def _parts(self, sink: str, work: LaneWork) -> tuple[Any, ...]:
        """Where the lanes' rows of an epoch lie that have to be put into one order."""
        deployment = self._under_way.deployment
        stage = deployment.outputs[sink].stage
        if stage is None or not deployment.merged(sink):
            return ()
        exits = deployment.stages[stage].task.exits
        (number,) = [at for at, each in enumerate(exits) if each.sink == sink]
        made = self._under_way[work.ticket].of_stage(stage)
        return tuple(done.parts[number] for done in made if number in done.parts)
