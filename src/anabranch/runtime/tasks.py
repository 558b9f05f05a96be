"""What a task does, in whatever process it runs: read splits, or take a lane's epochs.

A process keeps the states of its lanes by version. A version is never changed: an attempt that
fails leaves its parent as it was, and one that was repeated elsewhere is never asked for again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import polars as pl

from anabranch.clock import Clock, SystemClock
from anabranch.compiler.proof import Proof
from anabranch.ids import Marks
from anabranch.kernels.bundle import OFFSET, from_blob, in_order, to_blob, visible
from anabranch.kernels.lane_task import LaneState, LaneTask
from anabranch.kernels.results import EpochInput, EpochOutput, LaneResult, TaskError
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.exchange import BLOB, Exchange, FileExchange, PartName
from anabranch.runtime.memory import keep_freed
from anabranch.runtime.payload import (
    EpochDone,
    HeadDone,
    HeadItem,
    LaneDone,
    LaneItem,
    LaneJob,
    MergeDone,
    MergeItem,
    StageDone,
    StageJob,
    Strand,
)
from anabranch.runtime.stopwatch import Stopwatch
from anabranch.runtime.tables import TableVersions
from anabranch.state.delta import SLICE, Delta, pack
from anabranch.state.recovery import read_chain
from anabranch.state.stores import store_at

if TYPE_CHECKING:
    import pyarrow as pa

BEGIN = "begin"
"""The version before the first epoch."""

_KEPT = 3
"""Versions a process keeps of a lane: the parent, the one being made, and one that may be void."""

SPLIT_ROWS = 1 << 40
"""Rows are ordered by their split's place in its epoch, then by their place in the split."""


class Worker:
    """What one process knows of one deployment."""

    def __init__(
        self,
        deployment: Deployment,
        clock: Clock | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Begin with the deployment alone; rows go through its files unless told otherwise."""
        keep_freed()
        self._deployment = deployment
        self._exchange = exchange or FileExchange(deployment.exchange)
        self._watch = Stopwatch(clock or SystemClock())
        self._store = store_at(deployment.checkpoint, deployment.durability)
        self._states: OrderedDict[str, LaneState] = OrderedDict()
        self._versions = TableVersions(self._store)

    def heads(self, items: Sequence[HeadItem]) -> list[HeadDone]:
        """Read splits and do their stateless work; errors of the user's are told, not raised."""
        proofs = [proof for each in self._deployment.inputs for proof in each.head.proofs]
        done = [self._head(item) for item in items] if (broken := _broken(proofs)) is None else []
        broken = broken or _broken(proofs)
        if broken is None:
            return done
        return [HeadDone(i.ticket, i.number, i.partition, error=broken) for i in items]

    def merges(self, items: Sequence[MergeItem]) -> list[MergeDone]:
        """Put the lanes' rows of epochs into one order, each for a sink."""
        return [merged(self._deployment, item) for item in items]

    def lane(self, job: LaneJob) -> LaneDone:
        """Take a lane's epochs in order, stage by stage, from one version of state to the next."""
        self._watch.take()
        with self._watch("state"):
            states = {each.stage: self._state(job.lane, each) for each in job.stages}
        if missing := tuple(stage for stage, state in states.items() if state is None):
            return LaneDone(job.lane, missing=missing)
        proofs = [p for each in job.stages for p in self._deployment.stages[each.stage].task.proofs]
        if (broken := _broken(proofs)) is not None:
            return LaneDone(job.lane, error=broken)
        done = []
        for each in job.stages:
            state = states[each.stage]
            assert state is not None
            found = self._stage(job.lane, each, state)
            if not isinstance(found, StageDone):
                return LaneDone(job.lane, error=asdict(found))
            done.append(found)
        if (broken := _broken(proofs)) is not None:
            return LaneDone(job.lane, error=broken)
        return LaneDone(job.lane, tuple(done), spent=self._watch.take())

    def _stage(self, lane: int, job: StageJob, state: LaneState) -> StageDone | TaskError:
        task = self._deployment.stages[job.stage].task
        with self._watch("exchange"):
            inputs = [self._input(lane, item) for item in job.items]
        with self._watch("kernel"):
            result = self._taken(task, job.items, inputs, state)
        if result.error is not None:
            return result.error
        with self._watch("stage"):
            outputs = zip(job.items, result.outputs, strict=True)
            epochs = tuple(self._output(lane, job.stage, item, each) for item, each in outputs)
        with self._watch("state"):
            together, changed = result.state.together(state, result.deltas)
            # The parent is a value of its own, so the new version need not keep its layers apart.
            made, version = together.fold(), uuid4().hex
            self._keep(version, made)
            paths, sizes = self._write_deltas(lane, job, version, changed, made)
        heights = {operator: each.height for operator, each in changed.items()}
        return StageDone(job.stage, version, epochs, paths, job.snapshot, heights, sizes)

    def _taken(
        self,
        task: LaneTask,
        items: Sequence[LaneItem],
        inputs: Sequence[EpochInput],
        state: LaneState,
    ) -> LaneResult:
        """Epochs in order, those together for which the same versions of tables hold."""
        outputs: list[EpochOutput] = []
        deltas: list[Mapping[str, pl.DataFrame]] = []
        both = zip(items, inputs, strict=True)
        for tables, group in groupby(both, key=lambda each: each[0].tables):
            mine = self._versions.of(task, tables)
            done = mine.run([given for _, given in group], state, self._deployment.owners)
            outputs += done.outputs
            deltas += done.deltas
            state = done.state
            if done.error is not None:
                return LaneResult(outputs, state, deltas, done.error)
        return LaneResult(outputs, state, deltas)

    def _head(self, item: HeadItem) -> HeadDone:
        given, watch = self._deployment.inputs[item.source], self._watch
        watch.take()
        with watch("read"):
            frame = given.source.frame(item.split, given.head.columns)
            rows = frame.height
            frame = frame if item.until is None else frame.head(item.until)
        with watch("kernel"):
            head = self._versions.of(given.head, item.tables)
            without = [row for row in item.without if row < frame.height]
            result = head.run(frame, item.partition, item.number * SPLIT_ROWS, without)
        greatest = result.greatest_time
        done = HeadDone(
            item.ticket, item.number, item.partition, rows, greatest, letters=result.letters
        )
        if result.error is not None:
            return replace(done, error=asdict(result.error))
        parts, staged, size = {}, {}, 0
        for number, by_lane in result.parts.items():
            sink = given.head.exits[number].sink
            if sink is not None:
                with watch("stage"):
                    message = stage(self._deployment, sink, by_lane[0], item.ticket, item.attempt)
                    staged[sink] = message
                continue
            with watch("exchange"):
                name = f"{item.attempt}-{item.source}x{number}"
                blobs = {lane: to_blob(rows) for lane, rows in by_lane.items()}
                size += sum(map(len, blobs.values()))
                parts[number] = self._send(item.ticket, item.number, name, blobs)
        return replace(done, parts=parts, staged=staged, size=size, spent=watch.take())

    def _send(
        self, ticket: int, number: int, attempt: str, blobs: Mapping[int, bytes]
    ) -> dict[str, Any]:
        return self._exchange.write(PartName(self._deployment.id, ticket, number, attempt), blobs)

    def _input(self, lane: int, item: LaneItem) -> EpochInput:
        parts = {}
        for entry, references in item.parts.items():
            blobs = (self._exchange.read(part, lane) for part in references)
            parts[entry] = [from_blob(blob) for blob in blobs if blob is not None]
            if item.until is not None:
                parts[entry] = [_up_to(item.until, rows) for rows in parts[entry]]
        return EpochInput(item.epoch, parts, item.marks, item.origins)

    def _output(self, lane: int, number: int, item: LaneItem, output: EpochOutput) -> EpochDone:
        deployment = self._deployment
        exits, rows, parts, staged = deployment.stages[number].task.exits, 0, {}, {}
        for at, by_lane in output.parts.items():
            sink, name = exits[at].sink, f"{item.attempt}-s{number}x{at}"
            if sink is not None:
                rows += by_lane[0].height
            if sink is None or deployment.merged(sink):
                blobs = {to: to_blob(rows) for to, rows in by_lane.items()}
                parts[at] = self._send(item.ticket, lane, name, blobs)
            else:
                attempt = f"{item.attempt}-{lane}"
                staged[sink] = stage(deployment, sink, by_lane[0], item.epoch, attempt)
        return EpochDone(item.epoch, rows, output.late, parts, staged, output.letters)

    def _state(self, lane: int, job: StageJob) -> LaneState | None:
        """The parent state: kept here, or made again from its deltas where they were sent."""
        task = self._deployment.stages[job.stage].task
        if job.parent in self._states:
            return self._states[job.parent]
        if job.parent == BEGIN:
            return task.restore({})
        if job.chain is None:
            return None
        frames = {
            operator: [rows for strand in strands for rows in self._mine(strand, lane)]
            for operator, strands in job.chain.items()
        }
        state = task.restore(frames)
        self._keep(job.parent, state)
        return state

    def _mine(self, strand: Strand, lane: int) -> Iterator[pl.DataFrame]:
        """The rows, in deltas that follow each other, of the slices that a lane owns now."""
        mine = self._deployment.owners.slices_of(lane)
        for delta in read_chain(self._store, strand):
            yield delta.frame.filter(pl.col(SLICE).is_in(mine))

    def _keep(self, version: str, state: LaneState) -> None:
        self._states[version] = state
        self._states.move_to_end(version)
        while len(self._states) > _KEPT * self._deployment.lanes * len(self._deployment.stages):
            self._states.popitem(last=False)

    def _write_deltas(
        self,
        lane: int,
        job: StageJob,
        version: str,
        changed: Mapping[str, pl.DataFrame],
        made: LaneState,
    ) -> tuple[dict[str, str], dict[str, int]]:
        """Write what changed in all epochs of the job, or all there is: one file an operator.

        Returns the files and their bytes, by operator.
        """
        written = made.whole() if job.snapshot else changed
        paths, sizes = {}, {}
        for operator in made.views:
            delta = Delta(
                operator,
                lane,
                self._deployment.run,
                job.items[0].epoch,
                job.items[-1].epoch,
                version,
                written[operator],
                parent=None if job.snapshot or job.parent == BEGIN else job.parent,
                watermark=_watermark(job.items[-1].marks),
                kind="snapshot" if job.snapshot else "delta",
                slice_key=self._deployment.stages[job.stage].key,
            )
            packed = pack(delta)
            self._store.create(delta.path, packed)
            paths[operator], sizes[operator] = delta.path, len(packed)
        return paths, sizes


def _up_to(place: int, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows up to a place in their epoch, where they have places."""
    return rows.filter(pl.col(OFFSET) <= place) if OFFSET in rows.columns else rows


def _broken(proofs: Sequence[Proof]) -> dict[str, Any] | None:
    """The error of a function that is not what it was when it was proved, if there is one."""
    for proof in proofs:
        if (what := proof.changed()) is not None:
            text = f"RunError: {what}: it was proved to run in parallel as it was"
            return asdict(TaskError(proof.operator, text))
    return None


def _watermark(marks: Marks) -> int | None:
    """The least of all sources' watermarks behind an epoch."""
    found = [after for _, after in marks.values()]
    return None if None in found else min(each for each in found if each is not None)


def stage(
    deployment: Deployment, sink: str, rows: pl.DataFrame, epoch: int, attempt: int | str
) -> Any:
    """Give rows to a sink, the user's columns alone."""
    batches = _batches(visible(rows))
    return deployment.outputs[sink].sink.write(batches, epoch, f"{deployment.run}-{attempt}")


def merged(deployment: Deployment, item: MergeItem) -> MergeDone:
    """Put the lanes' rows of an epoch into one order (M5) and give them to a sink."""
    files = FileExchange(deployment.exchange)
    # A part that came with the lane's result has its blob in it.
    blobs = [part[BLOB][0] if BLOB in part else files.read(part, 0) for part in item.parts]
    frames = [from_blob(blob) for blob in blobs if blob is not None]
    message = stage(deployment, item.sink, in_order(frames), item.epoch, item.attempt)
    return MergeDone(item.sink, item.epoch, message)


def _batches(rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    yield from rows.to_arrow().to_batches()
